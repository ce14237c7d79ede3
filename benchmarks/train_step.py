"""The whole training step, against a plain loop of lightly and torchvision.

    pip install -e '.[all,bench]'
    python benchmarks/train_step.py

Two views of each image, ResNet-18 with the small stem, projection head, loss, backward, optimiser.
About five minutes on two cores, which should have nothing else to do. Writes
``docs/results/train_step_cpu.md``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torchvision
from measure import machine, machine_words, markdown, quartiles, warn_if_busy
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from relatum import CPC, RPC, ContrastiveLoss, Cosine, DotProduct
from relatum.data import POLICIES
from relatum.models import ProjectionHead, build_encoder
from relatum.training import build_optimizer

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "train_step_cpu.md"
SIDE, IMAGES, EMBEDDING = 32, 2048, 128
RATE, DECAY = 0.05, 1e-4
VIEWS, FORWARD, LOSS = "views", "networks, forward", "loss, forward"
LOSS_BACK, BACK, UPDATE = "loss, backward", "networks, backward", "optimiser"
PARTS = (VIEWS, FORWARD, LOSS, LOSS_BACK, BACK, UPDATE)
OFFSET = EMBEDDING  # parameters of lightly's head that relatum's does not have

Parts = dict[str, float]


class Clock:
    """Seconds since the last lap, by the part of the step that they belong to."""

    def __init__(self) -> None:
        self.parts: Parts = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """The time since the last lap belongs to this part."""
        now = time.perf_counter()
        self.parts[part] = now - self._last
        self._last = now


class Relatum:
    """A step of relatum's parts, as its own training takes it: both views are one batch."""

    def __init__(self, loss: ContrastiveLoss, pixels: np.ndarray, batch: int) -> None:
        self.encoder = build_encoder("resnet18", image_size=SIDE)
        self.encoder.to(memory_format=torch.channels_last)
        self.head = ProjectionHead(self.encoder.dim, self.encoder.dim, EMBEDDING, layers=2)
        self.loss, self.batch = loss, batch
        self.networks = nn.ModuleList([self.encoder, self.head])
        self.optimizer = build_optimizer(
            "sgd", self.networks, learning_rate=RATE, weight_decay=DECAY
        )
        self.pixels = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
        self.augmentation = POLICIES["simclr-cifar"](SIDE)
        self.generator = torch.Generator().manual_seed(0)

    def step(self) -> Parts:
        """One step."""
        clock = Clock()
        rows = torch.randperm(len(self.pixels), generator=self.generator)[: self.batch]
        images = self.pixels[rows]
        views = torch.cat([self.augmentation(images, self.generator) for _ in range(2)])
        clock.lap(VIEWS)
        z = self.head(self.encoder(views))
        clock.lap(FORWARD)
        x, y = (part.detach().requires_grad_() for part in z.chunk(2))
        learn(self.loss, self.optimizer, [x, y], lambda g: z.backward(torch.cat(g)), clock)
        return clock.parts


class Rows(torch.utils.data.Dataset):
    """Images as torchvision's CIFAR-10 gives them: from an array, through PIL, transformed."""

    def __init__(self, pixels: np.ndarray, transform: Callable[[Image.Image], Any]) -> None:
        self.pixels, self.transform = pixels, transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> list[Tensor]:
        views: list[Tensor] = self.transform(Image.fromarray(self.pixels[row]))
        return views


class Plain:
    """The loop that lightly's documentation shows, on torchvision's network."""

    def __init__(self, workers: int, channels_last: bool, pixels: np.ndarray, batch: int) -> None:
        from lightly.loss import NTXentLoss
        from lightly.models.modules import SimCLRProjectionHead
        from lightly.transforms import SimCLRTransform

        self.encoder = torchvision.models.resnet18(weights=None)
        self.encoder.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
        self.encoder.maxpool = nn.Identity()
        self.encoder.fc = nn.Identity()
        if channels_last:
            self.encoder.to(memory_format=torch.channels_last)
        self.head = SimCLRProjectionHead(512, 512, EMBEDDING)
        self.networks = nn.ModuleList([self.encoder, self.head])
        self.loss = NTXentLoss(temperature=0.5)
        self.optimizer = torch.optim.SGD(
            self.networks.parameters(), lr=RATE, momentum=0.9, weight_decay=DECAY
        )
        # The policy "simclr-cifar" in lightly's words.
        transform = SimCLRTransform(SIDE, cj_strength=0.5, gaussian_blur=0.0, normalize=None)
        self.loader = torch.utils.data.DataLoader(
            Rows(pixels, transform), batch, shuffle=True, drop_last=True, num_workers=workers
        )
        self.workers = workers

    def step(self) -> Parts:
        """One step in the steady state.

        Workers fill their queue in an untimed step and then make one batch while one is used. They
        end with the step, or they would work at the cost of whoever is measured next.
        """
        batches = iter(self.loader)
        if self.workers:
            self._step(batches)
        return self._step(batches)

    def _step(self, batches: Iterator[list[Tensor]]) -> Parts:
        clock = Clock()
        first, second = next(batches)
        clock.lap(VIEWS)
        z = [self.head(self.encoder(view)) for view in (first, second)]
        clock.lap(FORWARD)
        leaves = [part.detach().requires_grad_() for part in z]
        learn(self.loss, self.optimizer, leaves, partial(torch.autograd.backward, z), clock)
        return clock.parts


def learn(
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    leaves: Sequence[Tensor],
    backward: Callable[[list[Tensor]], None],
    clock: Clock,
) -> None:
    """Loss, both halves of the backward pass, and the update."""
    value = loss(*leaves)
    clock.lap(LOSS)
    gradients = torch.autograd.grad(value, leaves)
    clock.lap(LOSS_BACK)
    backward(list(gradients))
    clock.lap(BACK)
    optimizer.step()
    optimizer.zero_grad()
    clock.lap(UPDATE)


def contestants(pixels: np.ndarray, batch: int) -> dict[str, Relatum | Plain]:
    rpc = ContrastiveLoss(RPC(1.0, 0.005, 1.0), DotProduct(128.0), "two_view")
    cpc = ContrastiveLoss(CPC(), Cosine(0.5), "two_view")
    found: dict[str, Relatum | Plain] = {
        "relatum, RPC": Relatum(rpc, pixels, batch),
        "relatum, CPC": Relatum(cpc, pixels, batch),
    }
    for channels_last in (False, True):
        for workers in (0, 2):
            name = f"plain, {workers} workers" + (", channels last" if channels_last else "")
            found[name] = Plain(workers, channels_last, pixels, batch)
    return found


def main() -> None:
    """Steps in turns, then the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=128, help="images a step, two views of each")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each contestant")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="16 images a step, no page written")
    options = parser.parse_args()
    if options.quick:
        options.batch, options.rounds = 16, 3
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    console = Console()
    load = warn_if_busy(console)
    shape = (IMAGES, SIDE, SIDE, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    compared = contestants(pixels, options.batch)
    sizes = check_sizes(compared)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    steps: dict[str, list[Parts]] = {name: [] for name in compared}
    with Progress(*columns, console=console) as progress:
        turns = [name for _ in range(options.rounds + 1) for name in compared]
        for name in progress.track(turns, description="steps"):
            steps[name].append(compared[name].step())
    timed = {name: each[1:] for name, each in steps.items()}  # the first is the warm-up
    text = page(timed, options.batch, sizes, machine(("torchvision", "lightly", "pillow")), load)
    if options.quick:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    PAGE.write_text(text, encoding="utf-8")
    console.print(f"wrote docs/results/{PAGE.name}")


def check_sizes(compared: Mapping[str, Relatum | Plain]) -> dict[str, int]:
    """The same networks, but for the offset of the last normalisation, or nothing is compared."""
    sizes = {n: sum(p.numel() for p in c.networks.parameters()) for n, c in compared.items()}
    ours, plain = sizes["relatum, RPC"], sizes["plain, 0 workers"]
    if ours + OFFSET != plain:
        raise RuntimeError(f"the networks differ: {ours:,} parameters and {plain:,}")
    return {"ours": ours, "plain": plain}


def page(
    timed: Mapping[str, Sequence[Parts]],
    batch: int,
    sizes: Mapping[str, int],
    found: Mapping[str, Any],
    load: float,
) -> str:
    """The results page."""
    return "\n".join(
        [
            "# The whole training step",
            "",
            f"Generated by `python benchmarks/{found['command']}`. {machine_words(found, load)}",
            "",
            HOW.format(batch=batch, side=SIDE, images=IMAGES, **sizes),
            "",
            *speed_table(timed, batch),
            "",
            *words(timed),
            "",
            "## Where the time goes",
            "",
            "Medians of the parts, in milliseconds and in percent of the sum of the row's medians. "
            "With workers, *views* is the wait for them; what they compute slows the other parts.",
            "",
            *profile_table(timed),
            "",
        ]
    )


HOW = """Random {side} x {side} images ({images:,} in memory), {batch} a step, two views of
each, SimCLR's policy for CIFAR; float32. ResNet-18 with the small stem, a head of two layers to
128 dimensions, SGD with momentum 0.9 and weight decay 1e-4. relatum: {ours:,} parameters; the
plain loop: {plain:,}, as lightly's head keeps the offset of its last normalisation. *relatum*
is put together from its parts as `relatum train images` does it: views of whole batches by
`POLICIES["simclr-cifar"]` (bicubic), both views through the network as one batch, colours
innermost in memory (channels last); RPC(1, 0.005, 1) on dot products / 128, CPC on cosines /
0.5. *plain* is lightly's `SimCLRTransform` (bilinear) on PIL images in a `DataLoader`,
torchvision's network on one view after the other, lightly's `SimCLRProjectionHead` and
`NTXentLoss`(0.5), in torch's usual memory format and, with *channels last*, in ours. All take
turns, a step each, after a step of warm-up; loaders with workers get an untimed step before
each timed one to fill their queue. Images a second count images, not views.""".replace("\n", " ")


def speed_table(timed: Mapping[str, Sequence[Parts]], batch: int) -> list[str]:
    rates = {name: [batch / sum(p.values()) for p in each] for name, each in timed.items()}
    base = median(rates["plain, 0 workers"])
    rows = []
    for name, each in rates.items():
        low, middle, high = quartiles(each)
        spread = f"[{low:.2f}, {high:.2f}]"
        rows.append([name, f"{middle:.2f}", spread, f"{middle / base:.2f}", str(len(each))])
    head = ["", "images a second", "quartiles", "over plain, 0 workers", "steps"]
    return markdown(head, rows)


def words(timed: Mapping[str, Sequence[Parts]]) -> list[str]:
    """The two comparisons that matter, from the measurements."""
    total = {name: median(sum(p.values()) for p in each) for name, each in timed.items()}
    plain = [name for name in total if name.startswith("plain")]
    best = min(plain, key=total.__getitem__)
    share = {
        name: median((p[FORWARD] + p[BACK]) / sum(p.values()) for p in timed[name])
        for name in ("relatum, CPC", best)
    }
    return [
        f"With the same loss, relatum's step is {total[best] / total['relatum, CPC']:.2f} times as "
        f"fast as the fastest plain loop (*{best}*) and "
        f"{total['plain, 0 workers'] / total['relatum, CPC']:.2f} times as fast as the plain loop "
        f"without options. The networks take {share['relatum, CPC']:.0%} of relatum's step and "
        f"{share[best]:.0%} of that plain loop's; views, loss and update share the rest, which is "
        "all that a library beside the network can save."
    ]


def profile_table(timed: Mapping[str, Sequence[Parts]]) -> list[str]:
    rows = []
    for name, each in timed.items():
        parts = {part: 1e3 * median(p[part] for p in each) for part in PARTS}
        whole = sum(parts.values())
        cells = [f"{value:,.1f} ({value / whole:.1%})" for value in parts.values()]
        rows.append([name, *cells])
    return markdown(["", *PARTS], rows)


if __name__ == "__main__":
    main()
