"""The settings of ``relatum train images``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...data import POLICIES
from ...models import check_encoder
from ...objectives import OBJECTIVES
from ...scores import PAIRINGS
from ...settings import check_choices, check_seed, choice
from ...training import OPTIMIZERS

__all__ = ["CRITIC_TEMPERATURES", "TrainImages"]

# The critics of Tsai et al. (2021) on CIFAR: RPC scores raw dot products of 128-d batch-normalised
# projections, divided by 128; the others cosines, divided by 0.5.
CRITIC_TEMPERATURES: Final = {
    "dot": 128.0,
    "cosine": 0.5,
    "bilinear": 1.0,
    "two-tower": 1.0,
    "joint": None,
}


@dataclass(frozen=True)
class TrainImages:
    """Train an encoder on images by contrasting two augmented views of each."""

    data: str = "mnist5k"
    """Where the images are: mnist5k, digits, cifar10:DIR, cifar100:DIR, stl10:DIR, omniglot:DIR,
    celeba:DIR, imagenet:DIR, a packed .npz file or folder, a folder with a folder per class,
    parquet, or tar shards (DIR/train-{000..146}.tar). Only training rows are used."""

    image_size: int | None = None
    """Side of the square images in pixels. Default: the set's own size, 64 for other data."""

    limit: int | None = None
    """Use only so many training images, balanced over the classes. Default: all."""

    test_fraction: float = 0.2
    """Share of test images for data without a test split of its own."""

    split_seed: int = 0
    """Seed of that split, and of the choice that --limit makes."""

    on_bad_file: str = choice("error", ("error", "skip"))
    """What to do with a file that cannot be decoded: stop with its name, or skip and count it."""

    download: bool = False
    """Let torchvision download CIFAR, STL-10, Omniglot or CelebA into the folder if it is not
    there."""

    workers: int = 0
    """Processes that decode images; 0 decodes in this one. Does not change the result."""

    stream: bool = False
    """Decode images while training instead of holding all in memory: every view is a random crop of
    the whole image. All are looked at once before. Needs --workers to keep a GPU busy (of each
    process, where there are several)."""

    cache: Path | None = None
    """With --stream and parquet files: where their images are unpacked, once."""

    label_column: str | None = None
    """Column of parquet files that holds the labels; none = they are unlabelled. Default: label."""

    objective: str = choice("rpc", OBJECTIVES)
    """What is maximised; `relatum objectives` explains each."""

    alpha: float | None = None
    """RPC: weight of the mean negative score. Default 1."""

    beta: float | None = None
    """RPC: penalty on squared positive scores, which caps them at 1/beta. Default 0.005."""

    gamma: float | None = None
    """RPC: penalty on squared negative scores. Default 1."""

    penalty: float | None = None
    """WPC: weight of the one-sided gradient penalty that keeps the critic 1-Lipschitz in the
    images, on the two views and on interpolates between images. Default 10."""

    released_devices: int = 0
    """Compute rpc, chi2, cpc, dv, js or nwj as the code released with the paper does on so many
    devices, with its deviations from the formulas: to attribute differences, not to use
    (`relatum.objectives.Released`). Pairing two_view alone. 0 = the formulas."""

    critic: str | None = choice(None, CRITIC_TEMPERATURES)
    """How two embeddings become a score. Default: dot for rpc and chi2, else cosine."""

    temperature: float | None = None
    """Divides the scores. Default: 128 for dot, 0.5 for cosine, 1 for bilinear and two-tower."""

    learn_temperature: bool = False
    """Learn the temperature, from the value above on (1/temperature is capped at 100)."""

    pairing: str | None = choice(None, PAIRINGS)
    """Which pairs are negatives: two_view = all other rows of both views (SimCLR); in_batch = the
    second views of the other images; in_batch_symmetric = the same in both directions; block = as
    in_batch, with blocks of --positives views. Default: two_view for dot and cosine, in_batch with
    a queue, else in_batch_symmetric."""

    positives: int = 1
    """Pairing block: so many further views of each image are its positive, by their mean score, and
    as blocks the negatives of the others (block similarity). Costs a pass of the networks each."""

    block_size: int | None = None
    """Side of the tiles in which scores are computed: saves memory, never changes a result."""

    queue_size: int = 0
    """Take the negatives from a queue of so many past embeddings instead of from the batch (own
    images excluded; while it is empty, in the first step, the batch serves). 0 = no queue."""

    positive_prior: float = 0.0
    """Share of the negatives thought to be of the anchor's own class, in [0, 1): the loss is
    debiased of them. 1 / C for C equally common classes; 0 = off."""

    encoder: str = "conv-small"
    """The network whose output is the representation: conv-small or conv-medium for a CPU; a ResNet
    of SimCLRv2, resnet18, 34, 50, 101, 152 or 200, with -2x behind it for twice the width and -sk
    for selective kernels (resnet152-2x-sk); or timm:NAME for a backbone of timm, untrained."""

    normalization: str = choice("batch", ("batch", "sync", "group"))
    """batch = each process normalises over its (micro-)batch; sync = over those of all processes;
    group = over groups of channels of each image, which neither batch, micro-batch nor processes
    change."""

    projection_dim: int = 128
    """Width of the embedding that the critic sees; the projection head is dropped after training.
    """

    projection_hidden: int | None = None
    """Width of the head's hidden layers. Default: the width of the representation."""

    projection_layers: int = 3
    """Number of dense layers of the head."""

    projection_offset: bool = False
    """Give the head's last normalisation an offset. Without one, as released with the paper, the
    embeddings of a batch sum to zero, and alpha of rpc has next to no effect with critic dot."""

    spectral_norm: bool = False
    """WPC: instead of the gradient penalty, divide all convolutions and dense layers by their
    spectral norm. Cheaper, but a normalisation layer behind them undoes it: it binds networks
    without such layers, like timm:vgg11, and hardly any other."""

    compile: bool = False
    """Compile encoder and head with torch.compile: slower to start, then faster; the last bits of
    the result differ."""

    augmentation: str | None = choice(None, POLICIES)
    """How the two views are drawn. Default: digits for mnist5k and digits, simclr-cifar for other
    images of at most 64 pixels, simclr for larger ones."""

    batch_size: int = 256
    """Images of a batch, on all processes together: they are contrasted with each other, so this
    changes the task."""

    micro_batch_size: int | None = None
    """Images that go through the networks at a time, on each process: the exact gradient of the
    whole batch in the memory of a micro-batch, for one extra forward pass. Batch normalisation
    sees the micro-batch; --normalization group avoids that. Default: the whole batch."""

    moments_only: bool = False
    """rpc and chi2: keep only sums over micro-batches, so that not even the embeddings of the
    batch are held. The same loss and gradient. Readings are those of the last micro-batch."""

    moment_decay: float = 0.0
    """rpc and chi2: share of past steps in the moments of the negatives, in [0, 1). Less noise from
    small batches, bias from past parameters: where measured, 0.5 changed little and 0.9 or more
    harmed (docs/results/streaming_cpu.md). 0 = this batch alone. With micro-batches, readings are
    those of the last one, as with --moments-only."""

    epochs: float = 20.0
    """Passes over the training images. Each drops the last, incomplete batch of its own order."""

    steps: int | None = None
    """Number of updates, instead of --epochs."""

    optimizer: str = choice("adamw", OPTIMIZERS)
    """adamw; sgd with momentum 0.9; or lars (momentum 0.9, trust 0.001), the paper's choice."""

    learning_rate: float | None = None
    """Highest rate. Default: 0.003 for adamw; 1.0 (lars) or 0.1 (sgd) times images a step / 256."""

    weight_decay: float = 1e-4
    """Decay of weight matrices; normalisation, biases and temperature have none."""

    warmup_epochs: float | None = None
    """Epochs of linear warm-up before the cosine to zero. Default: a tenth of all, at most 10."""

    accumulate_steps: int = 1
    """Average the gradients of so many batches before each update. This is not a larger
    contrastive batch: images of different batches are never contrasted."""

    gradient_clip: float | None = None
    """Largest norm of the gradient. Default: no limit."""

    autocast: str = choice("none", ("none", "bf16", "fp16"))
    """16-bit floats inside the networks; scores stay 32-bit. fp16 uses a loss scaler."""

    device: str = "auto"
    """auto (cuda where there is one, else cpu), cpu, cuda or cuda:1."""

    threads: int | None = None
    """CPU threads. Default: torch's own choice. Another number may change the last bits."""

    seed: int = 0
    """Seed of the weights, the order and the augmentation."""

    on_nonfinite: str = choice("stop", ("stop", "record"))
    """A loss that is NaN or infinite: stop = an error; record = end the training there, write the
    step into results/training.json and count the run as finished (stability experiments)."""

    log_every: int = 10
    """Steps between two lines of metrics."""

    checkpoint_every: int = 50
    """Steps between two checkpoints."""

    certify_every: int = 0
    """Steps between two readings of what the representation is worth for classes: the contrastive
    risk of class mates, its part between classes, the price of collisions, and the risk of the mean
    classifier (hinge loss, cosines / 0.5). They are read on labelled training images that are held
    back, not on test images. 0 = off."""

    certify_images: int = 500
    """How many are held back for --certify-every: they are not trained on."""

    tensorboard: bool | None = None
    """Write TensorBoard event files. Default: if TensorBoard is installed."""

    out: Path = Path("runs/train")
    """The run directory."""

    resume: bool = False
    """Continue a run from its last checkpoint, by its own settings: --config RUN/config.yaml
    --resume. Without the file, all options must be repeated as they were."""

    dry_run: bool = False
    """Only print the settings in full and the sizes, then stop."""

    tiny: bool = False
    """With --dry-run: two made images of at most 64 pixels (with timm:NAME, of the run's size) in
    place of the data, which need not be there, and the number of images that the named set has."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_encoder(self.encoder)
        for name in ("seed", "split_seed"):
            check_seed(name, getattr(self, name))
        positive = (
            "image_size limit projection_dim projection_hidden projection_layers temperature"
            " block_size batch_size micro_batch_size accumulate_steps epochs steps gradient_clip"
            " threads log_every checkpoint_every positives certify_images"
        ).split()
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}")
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        for name in (
            "weight_decay",
            "learning_rate",
            "warmup_epochs",
            "queue_size",
            "penalty",
            "certify_every",
            "released_devices",
        ):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        if not 0 <= self.positive_prior < 1:
            raise ValueError(f"positive_prior must be in [0, 1), got {self.positive_prior}")
        if not 0 <= self.moment_decay < 1:
            raise ValueError(f"moment_decay must be in [0, 1), got {self.moment_decay}")
        if self.tiny and not self.dry_run:
            raise ValueError("tiny belongs to dry_run: made images teach nothing")
        if self.batch_size < 2:
            raise ValueError("batch_size must be at least 2: one image has no negatives")
        if not 0 < self.test_fraction < 1:
            raise ValueError(f"test_fraction must be between 0 and 1, got {self.test_fraction}")
