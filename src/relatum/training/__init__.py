"""Training: one loop, its optimisers and schedule, checkpoints, progress."""

from .bank import EmbeddingBank
from .checkpoint import TrainingState, load_checkpoint, save_checkpoint
from .loop import NonFiniteLoss, Plan, Step, StepOutput, Watch, train
from .monitor import Monitor
from .optim import LARS, OPTIMIZERS, build_optimizer, warmup_cosine
from .processes import Place, join_processes

__all__ = [
    "LARS",
    "OPTIMIZERS",
    "EmbeddingBank",
    "Monitor",
    "NonFiniteLoss",
    "Place",
    "Plan",
    "Step",
    "StepOutput",
    "TrainingState",
    "Watch",
    "build_optimizer",
    "join_processes",
    "load_checkpoint",
    "save_checkpoint",
    "train",
    "warmup_cosine",
]
