"""Moments of past steps: bias and noise of the gradient, and what training with them reaches.

    python benchmarks/streaming.py

A population of synthetic pairs is small enough to know its gradient exactly. Along plain training
the gradient with moments of past steps is compared with it; then each decay trains by itself.
About six minutes on one core. Writes ``docs/results/streaming_cpu.md``.
"""

from __future__ import annotations

import argparse
import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from measure import machine
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from streaming_page import page
from torch import Tensor, nn

from relatum import RPC, ContrastiveLoss, Cosine, DotProduct
from relatum.scores import MovingMoments, Statistics

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "streaming_cpu.md"
PAIRS, WIDTH, LATENT, DIM = 2048, 32, 8, 16
DECAYS = (0.0, 0.5, 0.9, 0.99)
STEPS, LONG, POINTS = 300, 2000, (30, 100, 300)
CRITICS = {"cosine / 0.5": Cosine(0.5), "dot / 4": DotProduct(4.0)}
RATES = {"cosine / 0.5": (0.03, 0.3, 3.0), "dot / 4": (0.003, 0.03, 0.1)}
SIZES = {"cosine / 0.5": (16, 64, 256), "dot / 4": (64,)}


@dataclass(frozen=True)
class Setting:
    """One training: SGD at a constant rate, RPC(1, 0.005, 1), two views."""

    critic: str
    batch: int
    rate: float
    steps: int


@dataclass
class Point:
    """The gradient with each decay at one moment of plain training, relative to |g_pop|.

    Attributes:
        bias: |E g − g_pop| with the past as it stands, by decay; a list over seeds.
        stale: The same with the past's batches replaced by the population at their time: the part
            that is due to moving parameters.
        noise: sqrt(E |g − E g|²).
        check: |mean of sampled g − E g|² over what its sampling noise lets expect.
    """

    setting: Setting
    step: int
    bias: dict[float, list[float]] = field(default_factory=lambda: {d: [] for d in DECAYS})
    stale: dict[float, list[float]] = field(default_factory=lambda: {d: [] for d in DECAYS})
    noise: dict[float, list[float]] = field(default_factory=lambda: {d: [] for d in DECAYS})
    check: list[float] = field(default_factory=list)


@dataclass
class Final:
    """The population's objective after training, by decay; a list over seeds."""

    setting: Setting
    objective: dict[float, list[float]]


class Training:
    """An encoder that is trained on batches drawn with replacement from the population.

    Drawn so, a batch's negatives are pairs of independent rows: the plain loss has no bias at all
    against the population's full product of marginals, and that of a past is told apart from it.
    """

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.seed = setting, seed
        torch.manual_seed(seed)
        self.encoder = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, DIM))
        self.parameters = [*self.encoder.parameters()]
        self.loss = ContrastiveLoss(RPC(1.0, 0.005, 1.0), CRITICS[setting.critic])
        self.generator = torch.Generator().manual_seed(seed)
        self.x, self.y = population()

    def batch(self, generator: torch.Generator) -> Statistics:
        """The statistics of random pairs."""
        rows = torch.randint(PAIRS, (self.setting.batch,), generator=generator)
        return self._statistics(self.x[rows], self.y[rows])

    def everything(self) -> Statistics:
        """The population's, no pair excluded: negatives are the full product of marginals."""
        total = self._statistics(self.x, self.y)
        nothing = type(total.excluded)(*(0 * part for part in total.excluded))
        return total._replace(excluded=nothing, excluded_pairs=0)

    def gradient(self, total: Statistics, past: MovingMoments | None = None) -> list[Tensor]:
        """The gradient of the loss; the statistics may be used again."""
        value = self.loss.from_statistics(total, past)
        return [*torch.autograd.grad(value, self.parameters, retain_graph=True)]

    @torch.no_grad()
    def objective(self) -> float:
        """J of the population."""
        return -float(self.loss.from_statistics(self.everything()))

    def steps(self, past: MovingMoments | None) -> Iterator[Statistics]:
        """Trains; yields each batch's statistics before its step is taken."""
        for _ in range(self.setting.steps):
            total = self.batch(self.generator)
            gradient = self.gradient(total, past)
            yield total
            with torch.no_grad():
                torch._foreach_add_(self.parameters, gradient, alpha=-self.setting.rate)
            if past is not None:
                past.update(total)

    def _statistics(self, x: Tensor, y: Tensor) -> Statistics:
        a, b = self.encoder(torch.cat([x, y])).chunk(2)
        return self.loss.statistics(a, b)


def main() -> None:
    """Measures and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few short runs; writes no page")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    console = Console()
    settings, frozen, long = grid()
    seeds, batches, compared = (0, 1, 2), 100, (0, 1, 2, 3, 4)
    if quick:
        settings, frozen, long = settings[3:5], frozen[1:2], [replace(long[0], steps=60)]
        seeds, batches, compared = (0, 1), 20, (0, 1)
    measured, trained = [*frozen, *settings], [*settings, *long]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    agreement = {name: by_all_scores(name) for name in CRITICS}
    with Progress(*columns, console=console) as progress:
        gradients = progress.add_task("gradients", total=len(measured) * len(seeds))
        finals = progress.add_task(
            "training", total=sum(s.steps for s in trained) * len(DECAYS) * len(compared)
        )
        points: list[Point] = []
        for setting in measured:
            at = {step: Point(setting, step) for step in POINTS}
            for seed in seeds:
                measure(setting, seed, batches, at)
                progress.advance(gradients)
            points += at.values()
        done = [train(s, compared, lambda n: progress.advance(finals, n)) for s in trained]
    took = time.process_time()
    text = page(points, done, agreement, machine(()), took, len(seeds), batches)
    if quick:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    PAGE.write_text(text, encoding="utf-8")
    console.print(f"wrote docs/results/{PAGE.name}")


def grid() -> tuple[list[Setting], list[Setting], list[Setting]]:
    """Settings that train, frozen ones, and a long training."""
    where = [(critic, batch) for critic in CRITICS for batch in SIZES[critic]]
    moving = [Setting(c, n, rate, STEPS) for c, n in where for rate in RATES[c]]
    frozen = [Setting(c, n, 0.0, STEPS) for c, n in where]
    return moving, frozen, [Setting("cosine / 0.5", 16, 0.03, LONG)]


def population() -> tuple[Tensor, Tensor]:
    """Two noisy views of Gaussian vectors that vary in a few directions."""
    generator = torch.Generator().manual_seed(0)
    latent = torch.randn(PAIRS, LATENT, generator=generator)
    mixing = torch.randn(LATENT, WIDTH, generator=generator) / math.sqrt(LATENT)
    noise = 0.7 * torch.randn(2, PAIRS, WIDTH, generator=generator)
    x, y = latent @ mixing + noise
    return x, y


def measure(setting: Setting, seed: int, batches: int, points: dict[int, Point]) -> None:
    """Adds one seed: every decay's past looks on while plain training goes its way."""
    training = Training(setting, seed)
    pasts = {decay: MovingMoments(DIM, decay) for decay in DECAYS}
    stale = {decay: MovingMoments(DIM, decay) for decay in DECAYS}
    for step, total in enumerate(training.steps(None)):
        if step + 1 in points:
            at_point(training, pasts, stale, batches, points[step + 1])
        with torch.no_grad():
            everything = training.everything()
        for decay in DECAYS:
            pasts[decay].update(total)
            stale[decay].update(everything)


def at_point(
    training: Training,
    pasts: dict[float, MovingMoments],
    stale: dict[float, MovingMoments],
    batches: int,
    point: Point,
) -> None:
    """Exact expectations, since RPC is linear in a batch's moments; noise by sampling."""
    everything = training.everything()
    truth = flat(training.gradient(everything))
    expected = {d: flat(training.gradient(everything, pasts[d])) for d in DECAYS}
    # Other batches at every point, so that the check below has independent cells.
    generator = torch.Generator().manual_seed(
        zlib.crc32(repr((training.setting, training.seed, point.step)).encode())
    )
    sampled: dict[float, list[Tensor]] = {d: [] for d in DECAYS}
    for _ in range(batches):
        total = training.batch(generator)
        for decay in DECAYS:
            sampled[decay].append(flat(training.gradient(total, pasts[decay])))
    norm = truth.norm()
    for decay in DECAYS:
        away = torch.stack(sampled[decay]) - expected[decay]
        variance = away.square().sum(1).mean()
        aged = flat(training.gradient(everything, stale[decay]))
        point.bias[decay].append(float((expected[decay] - truth).norm() / norm))
        point.stale[decay].append(float((aged - truth).norm() / norm))
        point.noise[decay].append(float(variance.sqrt() / norm))
        point.check.append(float(batches * away.mean(0).square().sum() / variance))


def train(setting: Setting, seeds: Sequence[int], advance: Callable[[int], None]) -> Final:
    """Every decay by itself, from the same start with the same batches."""
    found: dict[float, list[float]] = {decay: [] for decay in DECAYS}
    for seed in seeds:
        for decay in DECAYS:
            training = Training(setting, seed)
            for _ in training.steps(MovingMoments(DIM, decay) if decay else None):
                advance(1)
            found[decay].append(training.objective())
    return Final(setting, found)


def by_all_scores(critic: str) -> float:
    """The gradient of the first 256 pairs from moments against all their scores, relative."""
    training = Training(Setting(critic, 0, 0.0, 0), 0)
    training.encoder.double()
    training.x, training.y = training.x[:256].double(), training.y[:256].double()
    ours = flat(training.gradient(training.everything()))
    a, b = (training.encoder(side) for side in (training.x, training.y))
    rows, critic_of = torch.cat([a, b]), CRITICS[critic]
    positives, table = critic_of(a, b), critic_of(rows[:, None], rows[None])
    value = positives.mean() - 0.0025 * positives.square().mean()
    value = value - table.mean() - table.square().mean() / 2
    truth = flat(list(torch.autograd.grad(-value, training.parameters)))
    return float((ours - truth).norm() / truth.norm())


def flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.detach().double().flatten() for part in parts])


if __name__ == "__main__":
    main()
