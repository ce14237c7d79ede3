"""The parts of `relatum reproduce mi-staircase`: task, estimators, cells, perfect critic, page."""

from .cells import Cell, Plan, read_cells, train_cell
from .estimators import TRAININGS
from .oracle import Oracle, oracle
from .page import write_page
from .task import LEVELS, TASKS

__all__ = [
    "LEVELS",
    "TASKS",
    "TRAININGS",
    "Cell",
    "Oracle",
    "Plan",
    "oracle",
    "read_cells",
    "train_cell",
    "write_page",
]
