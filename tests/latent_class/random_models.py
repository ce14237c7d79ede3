"""Random finite models, and the losses written a second time, for plain loops."""

import math

import numpy as np

from relatum.latent_class import FiniteModel

LOSSES = ("hinge", "logistic")

LOSS = {
    "hinge": lambda t: max(0.0, 1.0 + t),
    "logistic": lambda t: (max(t, 0.0) + math.log1p(math.exp(-abs(t)))) / math.log(2),
}
MANY = {
    "hinge": lambda v: max((max(0.0, 1.0 + t) for t in v), default=0.0),
    "logistic": lambda v: math.log2(1.0 + math.fsum(math.exp(t) for t in v)),
}
LIPSCHITZ = {"hinge": 1.0, "logistic": 1 / math.log(2)}


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
