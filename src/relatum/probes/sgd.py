"""The linear probe as published evaluations fit it: by a fixed schedule, with nothing chosen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from .features import Array
from .labels import Labels
from .linear import Standardiser
from .task import ProbeResult, ProbeTask, probe_task, score

__all__ = ["sgd_probe"]


def sgd_probe(
    train_x: Array,
    train_y: Labels,
    test_x: Array,
    test_y: Labels,
    *,
    seed: int = 0,
    labels_per_class: int | None = None,
    label_fraction: float | None = None,
    epochs: float = 100.0,
    batch_size: int = 512,
    learning_rate: float = 0.1,
    momentum: float = 0.9,
    standardise: bool = False,
    device: torch.device | str = "cpu",
) -> ProbeResult:
    r"""Multinomial logistic regression by Nesterov's SGD on a cosine schedule, in float64.

    .. math:: g_s = \nabla L_s(\theta_s), \quad v_{s+1} = m v_s + g_s, \quad
              \theta_{s+1} = \theta_s - r_s (g_s + m v_{s+1}), \quad
              r_s = \tfrac{r B}{2 \cdot 256} \bigl(1 + \cos(\pi s / S)\bigr)

    where :math:`L_s` is the cross-entropy of batch :math:`s` of :math:`B` rows and
    :math:`\theta = (W, b)` starts at zero; :math:`S` = epochs times rows over :math:`B`.
    There is no penalty, no warm-up and nothing that could be chosen. Features are taken as they
    are: the rate suits their scale or it does not, which is why :func:`linear_probe` is the better
    measure and this one is for comparison with published numbers.

    Args:
        train_x: Features of the training rows, (n, d).
        train_y: Their labels; see :mod:`relatum.probes.labels` for what a label may be.
        test_x: Features of the test rows, (m, d).
        test_y: Their labels.
        seed: Seed of the drawn rows and of the order.
        labels_per_class: Use only so many training rows of each class.
        label_fraction: Use only this share of the training rows of each class.
        epochs: Passes over the rows; each drops the last, incomplete batch of its own order.
        batch_size: :math:`B`, or all rows where there are fewer.
        learning_rate: :math:`r`, the rate of 256 rows.
        momentum: :math:`m`, in (0, 1).
        standardise: Whether to standardise by the labelled training rows, as `linear_probe` does.
        device: Where the steps are computed; rows go there by the batch.

    Raises:
        ValueError: If a setting is out of range, the rows are not usable (see
            :func:`relatum.probes.task.probe_task`), or the fit ended in numbers that are not
            finite.
        TypeError: If features are not floating point or labels are of unlike types.

    References:
        A Simple Framework for Contrastive Learning of Visual Representations (Chen et al., 2020),
        appendix B.9. https://arxiv.org/abs/2002.05709

    Example:
        >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]])
        >>> sgd_probe(x, ["a", "a", "b", "b"], x, ["a", "a", "b", "b"]).accuracy
        1.0
    """
    for name, value in [("epochs", epochs), ("learning_rate", learning_rate)]:
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    if batch_size < 1 or not 0 < momentum < 1:
        raise ValueError(
            f"batch_size must be at least 1 and momentum in (0, 1), got {batch_size} and {momentum}"
        )
    task = probe_task(
        train_x,
        train_y,
        test_x,
        test_y,
        labels_per_class=labels_per_class,
        label_fraction=label_fraction,
        seed=seed,
    )
    train, test = task.train_x, task.test_x
    if standardise:
        standardiser = Standardiser.fit(train)
        train, test = standardiser.apply(train), standardiser.apply(test)
    batch = min(batch_size, len(train))
    steps = max(1, round(epochs * len(train) / batch))
    rate = learning_rate * batch / 256
    scores, loss = _fit(task, train, test, steps, batch, rate, momentum, torch.device(device))
    settings = {
        "epochs": epochs,
        "steps": steps,
        "batch_size": batch,
        "learning_rate": rate,
        "momentum": momentum,
        "standardised": standardise,
        "last_batch_loss": loss,
    }
    return score(task, scores, probe="linear-sgd", settings=settings)


def _fit(
    task: ProbeTask,
    train: Float64[np.ndarray, "n d"],
    test: Float64[np.ndarray, "m d"],
    steps: int,
    batch: int,
    rate: float,
    momentum: float,
    device: torch.device,
) -> tuple[Float64[np.ndarray, "m c"], float]:
    """The class scores of the test rows, and the loss of the last batch."""
    x, y = torch.from_numpy(train), torch.from_numpy(task.train_y)
    zeros = partial(torch.zeros, dtype=x.dtype, device=device, requires_grad=True)
    weight, bias = zeros(len(task.classes), x.shape[1]), zeros(len(task.classes))
    optimizer = torch.optim.SGD([weight, bias], rate, momentum=momentum, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for rows in _batches(len(x), batch, steps, task.seed):
        optimizer.zero_grad()
        loss = cross_entropy(linear(x[rows].to(device), weight, bias), y[rows].to(device))
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        parts = torch.split(torch.from_numpy(test), batch)
        scores = torch.cat([linear(part.to(device), weight, bias).cpu() for part in parts]).numpy()
    if not np.isfinite(scores).all():
        raise ValueError(
            f"the linear probe by SGD diverged: the rate {rate:g} is too high for features as "
            f"large as {np.abs(train).max():.3g}; standardise them, or lower learning_rate"
        )
    return scores, float(loss.detach())


def _batches(n: int, batch: int, steps: int, seed: int) -> Iterator[Int64[Tensor, " b"]]:
    """The rows of each step; every pass has an order of its own."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        place = step % (n // batch)
        if place == 0:
            order = torch.randperm(n, generator=generator)
        yield order[place * batch : (place + 1) * batch]
