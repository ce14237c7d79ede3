"""Tasks whose mutual information is known from the mathematics."""

from .additive import additive_information, additive_uniform
from .catalogue import CORE, TASKS, THREE
from .discrete import class_and_gaussian, table, table_information
from .gaussian import (
    dense,
    gaussian,
    gaussian_information,
    paired,
    pairwise,
    pairwise_correlation,
)
from .mixtures import mixture
from .student import student, student_correction
from .task import Task
from .transforms import Map, spiral, transformed
from .variants import VARIANTS, independent, part, twice

__all__ = [
    "CORE",
    "TASKS",
    "THREE",
    "VARIANTS",
    "Map",
    "Task",
    "additive_information",
    "additive_uniform",
    "class_and_gaussian",
    "dense",
    "gaussian",
    "gaussian_information",
    "independent",
    "mixture",
    "paired",
    "pairwise",
    "pairwise_correlation",
    "part",
    "spiral",
    "student",
    "student_correction",
    "table",
    "table_information",
    "transformed",
    "twice",
]
