"""The settings of ``relatum train speech``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ...data.audio import CHANNELS
from ...models.speech import CONTEXTS, PREDICTORS
from ...objectives import OBJECTIVES
from ...scores import SCOPES
from ...settings import check_choices, check_seed, choice
from ...training import OPTIMIZERS

__all__ = ["TrainSpeech"]


@dataclass(frozen=True)
class TrainSpeech:
    """Train an encoder on recordings: each frame predicts those to come, against other frames.

    No transcript, label or speaker is needed; who speaks is used only to make batches of one
    speaker, so that a negative cannot be told by the voice. The defaults are the published sizes;
    configs/speech-cpu.yaml has some for two cores.

    Example: relatum train speech --data LibriSpeech/train-clean-100 --objective rpc --out runs/rpc
    """

    data: str = ""
    """Where the recordings are: a folder or an uncompressed .tar in LibriSpeech's layout, or of any
    wav, flac, ogg or mp3 files; several with commas between them."""

    only: Path | None = None
    """File with the ids to use, one a line: LibriSpeech's utterance ids, or paths below the folder
    without ending. Default: all."""

    speakers: Path | None = None
    """CSV file with the columns file,speaker. Default: LibriSpeech's ids say it; of other files the
    first folder."""

    rate: int = 16000
    """Samples per second; files of another rate are resampled."""

    channels: str = choice("mean", CHANNELS)
    """Files of several channels: mean = their average, first = the first, error = refuse them."""

    on_bad_file: str = choice("error", ("error", "skip"))
    """What to do with a file that cannot be decoded or is empty: stop with its name, or skip and
    count it."""

    check: bool = True
    """Decode every file once before training (100 hours: some minutes), so that damage does not
    stop it half way."""

    window: int = 20480
    """Samples of a window: 1.28 s and 128 frames at 16 kHz."""

    short: str = choice("skip", ("skip", "pad"))
    """Recordings shorter than a window: left out, or padded with zeros. Both are counted."""

    normalize: bool = True
    """Bring each window to mean 0 and variance 1. Samples as they are, in [-1, 1], are so small
    beside the first convolution's offsets that training hardly begins."""

    objective: str = choice("rpc", tuple(OBJECTIVES))
    """What is maximised for each look-ahead; the loss is their sum. `relatum objectives` explains
    each."""

    alpha: float | None = None
    """RPC: weight of the mean negative score. Default 1."""

    beta: float | None = None
    """RPC: penalty on squared positive scores, which caps them at 1/beta. Default 0.25."""

    gamma: float | None = None
    """RPC: penalty on squared negative scores. Default 1."""

    penalty: float | None = None
    """WPC: weight of the one-sided gradient penalty that keeps the score 1-Lipschitz in the samples
    of a window, as the network sees them. A step takes three to five times as long. Default 10."""

    temperature: float | None = None
    """Divides the inner product of prediction and frame. Default: the square root of --frame-dim
    for rpc and chi2 (16 of 256), else --frame-dim, which makes the score a mean."""

    negatives: int = 128
    """Frames drawn as negatives for each anchor; all its look-aheads share them."""

    negatives_from: str = choice("any", SCOPES)
    """any = from all windows of the batch; same_speaker = from those of the anchor's speaker;
    same_sequence = from its own window."""

    exclude_positive: bool = False
    """Leave out negatives that are drawn at the very place of the positive. The published code
    keeps them (about one in a thousand)."""

    batches: str = choice("same_speaker", ("same_speaker", "any"))
    """Batches of windows of one speaker, or of any. Speakers with fewer windows than --batch-size
    cannot fill one and are not used."""

    frame_dim: int = 256
    """Channels of the convolutions, the width of a frame."""

    context_dim: int = 256
    """Width of a context, the representation handed on."""

    recurrent: str = choice("lstm", tuple(CONTEXTS))
    """The context network."""

    look_ahead: int = 12
    """How many frames ahead are predicted, each by a predictor of its own."""

    predictor: str = choice("transformer", PREDICTORS)
    """transformer = one causal layer over the contexts; linear = a matrix, ten times as fast."""

    heads: int = 8
    """Heads of the transformer."""

    feedforward: int = 2048
    """Hidden width of the transformer."""

    dropout: float = 0.1
    """Dropout in the transformer."""

    kernels: str = "10,8,4,4,4"
    """Kernels of the convolutions."""

    strides: str = "5,4,2,2,2"
    """Strides of the convolutions; their product is the samples of a frame (160: 10 ms)."""

    paddings: str = "3,2,1,1,1"
    """Zeros on each side before each convolution."""

    batch_size: int = 8
    """Windows of a batch, on all processes together: negatives come from them, so this changes the
    task."""

    epochs: float = 200.0
    """Passes over the windows, each shifted at random within its recording."""

    steps: int | None = None
    """Number of updates, instead of --epochs."""

    optimizer: str = choice("adamw", OPTIMIZERS)
    """adamw (with no decay, as here, it is Adam); sgd with momentum 0.9; or lars."""

    learning_rate: float = 2e-4
    """Highest rate."""

    weight_decay: float = 0.0
    """Decay of weight matrices."""

    schedule: str = choice("constant", ("constant", "cosine"))
    """The rate after the warm-up: as it is, or along a cosine to zero."""

    warmup_epochs: float | None = None
    """Epochs of linear warm-up. Default: 0 for transformer; for linear a tenth of all, at most
    10."""

    gradient_clip: float | None = None
    """Largest norm of the gradient. Default: no limit."""

    device: str = "auto"
    """auto (cuda where there is one, else cpu), cpu, cuda or cuda:1."""

    threads: int | None = None
    """CPU threads. Default: torch's own choice. Another number may change the last bits."""

    seed: int = 0
    """Seed of the weights, the order, the shifts and the negatives."""

    log_every: int = 20
    """Steps between two lines of metrics."""

    checkpoint_every: int = 200
    """Steps between two checkpoints."""

    tensorboard: bool = False
    """Write TensorBoard event files."""

    out: Path = Path("runs/speech")
    """The run directory."""

    resume: bool = False
    """Continue a run from its last checkpoint, by its own settings: --config RUN/config.yaml
    --resume. Without the file, all options must be repeated as they were."""

    dry_run: bool = False
    """Only print the settings in full and the sizes, then stop."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_seed("seed", self.seed)
        positive = (
            "rate window negatives frame_dim context_dim look_ahead heads feedforward batch_size"
            " epochs steps temperature gradient_clip threads log_every checkpoint_every"
            " learning_rate"
        ).split()
        for name in positive:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value}")
        for name in ("weight_decay", "warmup_epochs", "penalty"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0, got {value}")
        if self.on_bad_file == "skip" and not self.check:
            raise ValueError("on_bad_file skip must decode every file: leave out --no-check")
