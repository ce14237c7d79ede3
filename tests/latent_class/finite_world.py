"""Finite classes, their exact risks as plain sums, and what the tests of estimates share."""

import math
from itertools import product

import numpy as np

from relatum.latent_class.sample import labelled_sample

LOSSES = {
    "hinge": lambda t: np.maximum(0.0, 1.0 + t),
    "logistic": lambda t: np.logaddexp(0, t) / np.log(2),
}
MANY = {
    "hinge": lambda v: max(0.0, 1 + max(v)),
    "logistic": lambda v: math.log2(1 + sum(math.exp(x) for x in v)),
}


class World:
    """Finite classes and their exact risks, written out as sums over the support."""

    def __init__(self, seed, classes=3, support=4, dim=2, scale=0.8):
        generator = np.random.default_rng(seed)
        self.laws = generator.dirichlet(np.ones(support), classes)
        self.points = scale * generator.standard_normal((support, dim))
        self.prior = generator.dirichlet(5 * np.ones(classes))
        self.gram = self.points @ self.points.T

    def draw(self, labels, generator):
        cumulative = self.laws.cumsum(1)[labels]
        at = (generator.random(len(labels))[:, None] > cumulative).sum(1)
        return self.points[np.minimum(at, len(self.points) - 1)]

    def pair_losses(self, loss):
        """Over anchor i, positive j, negative k."""
        losses = LOSSES[loss](self.gram[:, None, :] - self.gram[:, :, None])
        return np.einsum("ci,cj,ek,ijk->ce", self.laws, self.laws, self.laws, losses)

    def blocks(self, c, size):
        """Each mean of so many members of a class, with its probability."""
        for rows in product(range(len(self.points)), repeat=size):
            yield self.points[list(rows)].mean(0), self.laws[c, list(rows)].prod()


def within(values, truth, sigmas=4.5):
    values = np.asarray(values, float)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return (np.abs(values.mean(axis=0) - truth) <= sigmas * error + 1e-12).all()


def random_sample(seed, sizes=(5, 8, 11), dim=3, **options):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return labelled_sample(generator.standard_normal((len(labels), dim)), labels, **options)
