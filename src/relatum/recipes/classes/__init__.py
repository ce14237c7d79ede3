"""What training in the framework of latent classes is made of."""

from .populations import Population, Rows, Toy, Tuples, load_population
from .settings import TrainClasses
from .step import TupleStep
from .theory import class_complexity, classes_record

__all__ = [
    "Population",
    "Rows",
    "Toy",
    "TrainClasses",
    "TupleStep",
    "Tuples",
    "class_complexity",
    "classes_record",
    "load_population",
]
