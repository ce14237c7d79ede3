"""Finite classes, random ones and one with its risks as plain sums; the losses a second time."""

import math
from itertools import product

import numpy as np

from relatum.latent_class import FiniteModel, labelled_sample

LOSSES = {
    "hinge": lambda t: np.maximum(0.0, 1.0 + t),
    "logistic": lambda t: np.logaddexp(0, t) / np.log(2),
}
# For plain loops, where numpy would be slow.
LOSS = {
    "hinge": lambda t: max(0.0, 1.0 + t),
    "logistic": lambda t: (max(t, 0.0) + math.log1p(math.exp(-abs(t)))) / math.log(2),
}
MANY = {
    "hinge": lambda v: max((max(0.0, 1.0 + t) for t in v), default=0.0),
    "logistic": lambda v: math.log2(1.0 + math.fsum(math.exp(t) for t in v)),
}
LIPSCHITZ = {"hinge": 1.0, "logistic": 1 / math.log(2)}


class World(FiniteModel):
    """Finite classes and their exact risks, written out as sums over the support."""

    def __init__(self, seed, classes=3, support=4, dim=2, scale=0.8):
        generator = np.random.default_rng(seed)
        laws = generator.dirichlet(np.ones(support), classes)
        points = scale * generator.standard_normal((support, dim))
        super().__init__(generator.dirichlet(5 * np.ones(classes)), laws, points)

    def draw(self, labels, generator):
        cumulative = self.laws.cumsum(1)[labels]
        at = (generator.random(len(labels))[:, None] > cumulative).sum(1)
        return self.features[np.minimum(at, len(self.features) - 1)]

    def pair_losses(self, loss):
        """Over anchor i, positive j, negative k."""
        losses = LOSSES[loss](self.gram[:, None, :] - self.gram[:, :, None])
        return np.einsum("ci,cj,ek,ijk->ce", self.laws, self.laws, self.laws, losses)

    def blocks(self, c, size):
        """Each mean of so many members of a class, with its probability."""
        for rows in product(range(len(self.features)), repeat=size):
            yield self.features[list(rows)].mean(0), self.laws[c, list(rows)].prod()


def within(values, truth, sigmas=4.5):
    values = np.asarray(values, float)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return (np.abs(values.mean(axis=0) - truth) <= sigmas * error + 1e-12).all()


def random_sample(seed, sizes=(5, 8, 11), dim=3, **options):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return labelled_sample(generator.standard_normal((len(labels), dim)), labels, **options)


def random_model(rng, classes=6, points=9, width=4):
    """Skewed or uniform prior; dense or sparse laws; free, sphere or (nearly) collapsed encoder."""
    k, d = rng.integers(2, classes + 1), rng.integers(1, width + 1)
    n = rng.integers(max(3, k), points + 1) if points > max(3, k) else max(3, k)
    prior = np.full(k, 1 / k) if rng.random() < 0.3 else rng.dirichlet(np.full(k, 2.0))
    prior = (prior + 0.01) / (prior + 0.01).sum()
    laws = rng.dirichlet(np.full(n, rng.choice([0.3, 1.0])), k)
    features = rng.normal(size=(n, d))
    shape = rng.integers(4)
    if shape == 1:
        features /= np.linalg.norm(features, axis=1, keepdims=True)
    elif shape >= 2:  # each point belongs to one class, whose members lie (nearly) together
        owner = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
        laws = np.where(owner == np.arange(k)[:, None], laws + 0.05, 0)
        noise = 0.0 if shape == 2 else 0.1
        features = rng.normal(size=(k, d))[owner] + noise * features
    laws /= laws.sum(axis=1, keepdims=True)
    features *= rng.uniform(0.3, 4) / np.linalg.norm(features, axis=1).max()
    return FiniteModel(prior, laws, features)


def random_models(count, seed=0, **sizes):
    rng = np.random.default_rng(seed)
    return [random_model(rng, **sizes) for _ in range(count)]


def violations(models, left, right, slack=1e-10):
    """How many models break left(model) <= right(model), beyond rounding."""
    pairs = [(left(model), right(model)) for model in models]
    return sum(a > b + slack * max(1.0, abs(b)) for a, b in pairs)
