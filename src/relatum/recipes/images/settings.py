"""The settings of ``relatum train images`` and how their open values are decided."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from ...base import MomentObjective
from ...data import POLICIES
from ...models import ENCODERS
from ...objectives import OBJECTIVES
from ...settings import SettingsError, check_choices, check_seed, choice
from ...training import OPTIMIZERS

__all__ = [
    "TrainImages",
    "found_device",
    "objective_parameters",
    "resolve",
    "steps_per_epoch",
    "stored_size",
    "total_steps",
]

SIZES: Final = {"mnist5k": 28, "digits": 16, "cifar10": 32, "cifar100": 32, "stl10": 96}
PAIRINGS: Final = ("two_view", "in_batch", "in_batch_symmetric")

# The critics of Tsai et al. (2021) on CIFAR: RPC scores raw dot products of 128-d batch-normalised
# projections, divided by 128; the others cosines, divided by 0.5.
RAW_DOT: Final = ("rpc", "chi2")
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
    """Where the images are: mnist5k, digits, cifar10:DIR, cifar100:DIR, stl10:DIR, a packed .npz
    file or folder, a folder with a folder per class, or parquet. Only training rows are used."""

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
    """Let torchvision download CIFAR or STL-10 into the folder if it is not there."""

    workers: int = 0
    """Processes that decode images; 0 decodes in this one. Does not change the result."""

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

    critic: str | None = choice(None, CRITIC_TEMPERATURES)
    """How two embeddings become a score. Default: dot for rpc and chi2, else cosine."""

    temperature: float | None = None
    """Divides the scores. Default: 128 for dot, 0.5 for cosine, 1 for bilinear and two-tower."""

    learn_temperature: bool = False
    """Learn the temperature, from the value above on (1/temperature is capped at 100)."""

    pairing: str | None = choice(None, PAIRINGS)
    """Which pairs are negatives: two_view = all other rows of both views (SimCLR); in_batch = the
    second views of the other images; in_batch_symmetric = the same in both directions. Default:
    two_view for dot and cosine, in_batch with a queue, else in_batch_symmetric."""

    block_size: int | None = None
    """Side of the tiles in which scores are computed: saves memory, never changes a result."""

    queue_size: int = 0
    """Take the negatives from a queue of so many past embeddings instead of from the batch (own
    images excluded; while it is empty, in the first step, the batch serves). 0 = no queue."""

    positive_prior: float = 0.0
    """Share of the negatives thought to be of the anchor's own class, in [0, 1): the loss is
    debiased of them. 1 / C for C equally common classes; 0 = off."""

    encoder: str = choice("conv-small", ENCODERS)
    """The network whose output is the representation."""

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

    tensorboard: bool | None = None
    """Write TensorBoard event files. Default: if TensorBoard is installed."""

    out: Path = Path("runs/train")
    """The run directory."""

    resume: bool = False
    """Continue the run in --out from its last checkpoint; all other settings must be the same."""

    dry_run: bool = False
    """Only print the settings in full and the sizes, then stop."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("seed", "split_seed"):
            check_seed(name, getattr(self, name))
        positive = (
            "image_size limit projection_dim projection_hidden projection_layers temperature"
            " block_size batch_size micro_batch_size accumulate_steps epochs steps gradient_clip"
            " threads log_every checkpoint_every"
        ).split()
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}")
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        for name in ("weight_decay", "learning_rate", "warmup_epochs", "queue_size", "penalty"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        if not 0 <= self.positive_prior < 1:
            raise ValueError(f"positive_prior must be in [0, 1), got {self.positive_prior}")
        if not 0 <= self.moment_decay < 1:
            raise ValueError(f"moment_decay must be in [0, 1), got {self.moment_decay}")
        if self.batch_size < 2:
            raise ValueError("batch_size must be at least 2: one image has no negatives")
        if not 0 < self.test_fraction < 1:
            raise ValueError(f"test_fraction must be between 0 and 1, got {self.test_fraction}")


def stored_size(settings: TrainImages) -> int:
    """Side of the images in pixels, decided."""
    return settings.image_size or SIZES.get(settings.data.split(":")[0], 64)


def steps_per_epoch(settings: TrainImages, rows: int) -> int:
    """Whole steps in one pass over `rows` training images.

    Raises:
        ValueError: If they do not fill one step.
    """
    images = settings.batch_size * settings.accumulate_steps
    if rows < images:
        raise ValueError(
            f"{rows} training images do not fill one step of batch_size {settings.batch_size} x "
            f"accumulate_steps {settings.accumulate_steps}; use a smaller batch_size"
        )
    return rows // images


def total_steps(settings: TrainImages, rows: int) -> int:
    """Number of updates: ``steps``, or the epochs' worth, at least 1."""
    return settings.steps or max(1, round(settings.epochs * steps_per_epoch(settings, rows)))


def resolve(settings: TrainImages, rows: int) -> TrainImages:
    """The same settings with every open value decided; this is what ``config.yaml`` holds.

    Args:
        settings: As given.
        rows: Number of training images.

    Raises:
        SettingsError: If settings contradict each other or the number of images.
    """
    critic = settings.critic or ("dot" if settings.objective in RAW_DOT else "cosine")
    images_a_step = settings.batch_size * settings.accumulate_steps
    rates = {"adamw": 0.003, "lars": images_a_step / 256, "sgd": 0.1 * images_a_step / 256}
    epochs = total_steps(settings, rows) / steps_per_epoch(settings, rows)
    resolved = dataclasses.replace(
        settings,
        image_size=stored_size(settings),
        critic=critic,
        temperature=_default(settings.temperature, CRITIC_TEMPERATURES[critic]),
        pairing=settings.pairing or _pairing(critic, settings.queue_size),
        penalty=_default(settings.penalty, 10.0 if settings.objective == "wpc" else None),
        augmentation=settings.augmentation or _augmentation(settings),
        learning_rate=_default(settings.learning_rate, rates[settings.optimizer]),
        warmup_epochs=_default(settings.warmup_epochs, min(10.0, round(epochs / 10, 6))),
        device=found_device(settings.device),
        tensorboard=_default(settings.tensorboard, _tensorboard_installed()),
        **objective_parameters(settings),
    )
    _check_together(resolved, rows)
    return resolved


def objective_parameters(settings: TrainImages) -> dict[str, Any]:
    """The parameters of the objective, given or default.

    Raises:
        SettingsError: If one is given that the objective does not have.
    """
    known = inspect.signature(OBJECTIVES[settings.objective]).parameters
    for name in ("alpha", "beta", "gamma"):
        if getattr(settings, name) is not None and name not in known:
            raise SettingsError(f"objective {settings.objective!r} has no parameter {name}")
    return {
        name: _default(getattr(settings, name), parameter.default)
        for name, parameter in known.items()
    }


def _default(value: Any, default: Any) -> Any:
    """`value` unless it is None; 0 and False are values."""
    return default if value is None else value


def _pairing(critic: str, queue_size: int) -> str:
    if queue_size:
        return "in_batch"
    return "two_view" if critic in ("dot", "cosine") else "in_batch_symmetric"


def _augmentation(settings: TrainImages) -> str:
    if settings.data.split(":")[0] in ("mnist5k", "digits"):
        return "digits"
    return "simclr-cifar" if stored_size(settings) <= 64 else "simclr"


def found_device(name: str) -> str:
    """The device of that name: auto, cpu, cuda or cuda:N.

    Raises:
        SettingsError: If there is no such device.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not re.fullmatch(r"cuda(:\d+)?", name):
        raise SettingsError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if name != "cpu" and not torch.cuda.is_available():
        raise SettingsError(f"device {name!r}: this machine has no CUDA device; use cpu")
    return name


def _tensorboard_installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


def _check_together(settings: TrainImages, rows: int) -> None:
    """Raises SettingsError where two settings exclude each other."""
    if settings.critic == "joint" and (settings.temperature or settings.learn_temperature):
        raise SettingsError("the joint critic has no temperature; leave out --temperature")
    if settings.penalty is not None and settings.objective != "wpc":
        raise SettingsError(f"penalty belongs to wpc; objective {settings.objective!r} has none")
    if (settings.micro_batch_size or 0) > settings.batch_size:
        raise SettingsError(
            f"micro_batch_size {settings.micro_batch_size} is larger than batch_size "
            f"{settings.batch_size}"
        )
    _check_moments(settings)
    _check_debiased(settings)
    if settings.queue_size and settings.pairing != "in_batch":
        raise SettingsError(
            f"a queue replaces the negatives of pairing in_batch, got pairing {settings.pairing!r}"
        )
    if settings.queue_size >= rows:
        raise SettingsError(
            f"queue_size {settings.queue_size} is not smaller than the training set ({rows} "
            "images): the queue would hold older copies of the same images"
        )


def _check_moments(settings: TrainImages) -> None:
    """Raises SettingsError where sums over micro-batches do not say enough."""
    asked = "moments_only" if settings.moments_only else "moment_decay"
    if not settings.moments_only and not settings.moment_decay:
        return
    if not isinstance(OBJECTIVES[settings.objective](), MomentObjective):
        raise SettingsError(
            f"{asked} belongs to rpc and chi2; {settings.objective} needs every score"
        )
    if settings.critic == "joint":
        raise SettingsError(f"{asked} needs a critic that is an inner product; joint is not")
    if settings.queue_size:
        raise SettingsError(f"{asked} and a queue exclude each other: leave one out")
    if settings.micro_batch_size == 1:
        raise SettingsError(
            f"{asked} takes its readings from the last micro-batch, and one image has no "
            "negatives: use a micro_batch_size of 2 or more"
        )


def _check_debiased(settings: TrainImages) -> None:
    """Raises SettingsError where a debiased batch would have no best loss."""
    prior = settings.positive_prior
    if not prior or settings.critic == "cosine" or settings.objective not in ("rpc", "chi2", "js"):
        return
    beta, gamma = settings.beta or 0.0, settings.gamma or 0.0
    if settings.objective == "rpc" and beta > gamma * prior / (1 - prior):
        return
    raise SettingsError(
        f"positive_prior {prior} with {settings.objective} and unbounded scores (critic "
        f"{settings.critic}) has no best loss: use --critic cosine"
        + (
            f", or beta above gamma * prior / (1 - prior) = {gamma * prior / (1 - prior):.4g}"
            if settings.objective == "rpc"
            else ""
        )
    )
