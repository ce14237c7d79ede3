"""Augmentation: views per second beside lightly, and the distribution beside torchvision.

    python benchmarks/augment.py            # 3 minutes, one core; writes the page
    python benchmarks/augment.py --quick    # seconds; prints the page only

Needs the extra ``bench``. Both sides get the same policy, one thread and images in memory, each in
the form its users have: lightly PIL images one by one, we a uint8 tensor. The distributions are
compared by two-sample tests, Holm-corrected; controls with a slightly wrong policy show that the
tests see something.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from augment_distribution import ALPHA, Comparison, compare_all, controls
from lightly.transforms import SimCLRTransform
from PIL import Image
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torchvision.transforms import v2

from relatum.data import POLICIES, Augmentation

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "augment_cpu.md"
# Policy, side in pixels, batch, the ratio to lightly that was aimed at (None: shown only).
CASES = [
    ("simclr-cifar", 32, 256, 12.0),
    ("simclr", 32, 256, None),
    ("crop-flip", 32, 256, None),
    ("simclr", 224, 32, 1.0),
    ("crop-flip", 224, 32, None),
]
Speeds = dict[str, list[float]]


def main() -> None:
    """Times, tests, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run; the page is printed")
    quick = parser.parse_args().quick
    console = Console()
    torch.set_num_threads(1)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    speeds = {}
    for name, side, batch, _ in CASES:
        repeats = 2 if quick else (15 if side < 100 else 7)
        speeds[name, side] = measure(POLICIES[name](side), batch, repeats, f"{name}, {side} px")
    comparisons = compare_all(0.02 if quick else 1.0)
    wrong = controls(0.02 if quick else 1.0)
    text = page(speeds, comparisons, wrong, load)
    console.print(text, markup=False, soft_wrap=True)
    if not quick:
        PAGE.write_text(text, encoding="utf-8")
        console.print(f"wrote {PAGE.name}")


def measure(policy: Augmentation, batch: int, repeats: int, title: str) -> Speeds:
    """Views per second of each way, in interleaved repeats after one to warm up."""
    images = blobs(batch, policy.size, torch.Generator().manual_seed(0))
    ways = contestants(policy, images)
    speeds: Speeds = {name: [] for name in ways}
    for repeat in track(range(repeats + 1), description=title):
        for name, two_views_of_each in ways.items():
            began = time.perf_counter()
            first, second = two_views_of_each()
            seconds = time.perf_counter() - began
            assert first.shape == second.shape == (batch, 3, policy.size, policy.size)
            if repeat:
                speeds[name].append(2 * batch / seconds)
    return speeds


def contestants(
    policy: Augmentation, images: Tensor
) -> dict[str, Callable[[], tuple[Tensor, Tensor]]]:
    """What makes two batches of views; each starts from its users' form of the images."""
    generator = torch.Generator().manual_seed(1)
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    pairs = lightly_transform(policy)
    single = torchvision_transform(policy)

    def relatum() -> tuple[Tensor, Tensor]:
        return policy(images, generator), policy(images, generator)

    def lightly() -> tuple[Tensor, Tensor]:
        first, second = zip(*(pairs(picture) for picture in pictures), strict=True)
        return torch.stack(first), torch.stack(second)

    def torchvision() -> tuple[Tensor, Tensor]:
        first, second = zip(*((single(image), single(image)) for image in images), strict=True)
        return torch.stack(first), torch.stack(second)

    return {"relatum": relatum, "lightly": lightly, "torchvision": torchvision}


def lightly_transform(policy: Augmentation) -> SimCLRTransform:
    """SimCLRTransform with the policy's numbers, and without its normalisation."""
    low, high = policy.crop_area or (1.0, 1.0)
    assert high == 1.0, "SimCLRTransform has no largest crop area"
    return SimCLRTransform(
        input_size=policy.size,
        cj_prob=policy.jitter_probability if policy.brightness else 0.0,
        cj_strength=1.0,
        cj_bright=policy.brightness,
        cj_contrast=policy.contrast,
        cj_sat=policy.saturation,
        cj_hue=policy.hue,
        min_scale=low,
        random_gray_scale=policy.greyscale,
        gaussian_blur=policy.blur,
        sigmas=policy.blur_sigma,
        hf_prob=policy.flip,
        normalize=None,
    )


def torchvision_transform(policy: Augmentation) -> v2.Compose:
    """The same in torchvision's classes on uint8 tensors, bicubic as ours."""
    jitter = v2.ColorJitter(policy.brightness, policy.contrast, policy.saturation, policy.hue)
    blur = v2.GaussianBlur(2 * (policy.size // 10 // 2) + 1, policy.blur_sigma)
    return v2.Compose(
        [
            v2.RandomResizedCrop(
                policy.size,
                policy.crop_area,
                policy.crop_aspect,
                v2.InterpolationMode.BICUBIC,
                antialias=True,
            ),
            v2.RandomHorizontalFlip(policy.flip),
            *([v2.RandomApply([jitter], policy.jitter_probability)] if policy.brightness else []),
            *([v2.RandomGrayscale(policy.greyscale)] if policy.greyscale else []),
            *([v2.RandomApply([blur], policy.blur)] if policy.blur else []),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )


def blobs(n: int, side: int, generator: torch.Generator) -> Tensor:
    """Smooth coloured uint8 images: noise of an eighth of the side, enlarged."""
    coarse = torch.rand(n, 3, max(2, side // 8), max(2, side // 8), generator=generator)
    fine = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic")
    return (fine.clamp(0, 1) * 255).byte()


def page(
    speeds: dict[tuple[str, int], Speeds], rows: list[Comparison], wrong: list[str], load: float
) -> str:
    """The results page."""
    versions = ", ".join(f"{n} {version(n)}" for n in ("torch", "torchvision", "lightly", "pillow"))
    lines = [
        "# Augmentation on one core",
        "",
        "Generated by `python benchmarks/augment.py`. Machine: "
        f"{platform.system()} {platform.machine()}, {processor()}; {versions}, "
        f"Python {platform.python_version()}. One process, one thread; load average when it "
        f"began: {load:.1f} on {os.cpu_count()} processors.",
        "",
        "## Speed",
        "",
        "Views per second per core, median of interleaved repeats (smallest to largest); ratio: "
        "median of the repeats' ratios. Every way makes two batches of views of the same images in "
        "memory; nothing is decoded.",
        "",
        "* relatum: from one uint8 tensor, random numbers included.",
        "* lightly: `SimCLRTransform` on PIL images one by one, as in its users' data sets, then "
        "stacked. Same numbers as our policy (crop area, jitter, greyscale, blur, flip); "
        "`normalize=None`, since we do not normalise either. It resizes bilinearly and blurs by "
        "PIL's chain of box filters, both cheaper than our bicubic crop and true Gaussian; neither "
        "can be set.",
        "* torchvision: `transforms.v2` on uint8 tensors one by one, bicubic, then stacked.",
        "",
        "| policy | side | batch | relatum | lightly | torchvision | relatum / lightly | aim |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, side, batch, aim in CASES:
        found = speeds[name, side]
        ratio = statistics.median(
            ours / theirs for ours, theirs in zip(found["relatum"], found["lightly"], strict=True)
        )
        verdict = "" if aim is None else f"{'met' if ratio >= aim else '**missed**'}: {aim:g}"
        cells = [f"`{name}`", str(side), str(batch), *map(spread, found.values())]
        lines.append("| " + " | ".join([*cells, f"{ratio:.1f}", verdict]) + " |")
    return "\n".join([*lines, "", *distribution(rows, wrong), ""])


def spread(values: list[float]) -> str:
    """Median (smallest to largest)."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def distribution(rows: list[Comparison], wrong: list[str]) -> list[str]:
    """The second half of the page."""
    rejected = [row.what for row in rows if row.adjusted < ALPHA]
    verdict = f"Different: {', '.join(rejected)}." if rejected else "No test finds a difference."
    return [
        "## Distribution",
        "",
        f"Two-sample tests against torchvision {version('torchvision')} with the same policy: "
        "Kolmogorov-Smirnov for numbers (D: largest distance of the two distribution functions), "
        "Fisher's exact test for rates (difference), χ² for the order of the colour operations "
        f"(Cramér's V). p is Holm-corrected over all {len(rows)} tests; level {ALPHA:.0%}. "
        "Detectable: the "
        "effect that a test of this size finds with probability 90 % at the strictest of Holm's "
        "levels. Seeds are fixed; none was chosen.",
        "",
        f"**{verdict}**",
        "",
        "| compared | policy, side | test | views each | effect | detectable | p | p, corrected |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
        *(row.line() for row in rows),
        "",
        "Parameters are those drawn; *views* are whole views of fixed images, *alone* views of one "
        "operation only, each summed up by one number. Whole numbers get a uniform fraction and "
        "features noise of 1e-5 on both sides, so that ties and float rounding decide nothing.",
        "",
        "Known differences, made equal here or without effect on these tests:",
        "",
        "* Ours clips the overshoot of the bicubic crop to [0, 1], as torchvision does on uint8 "
        "but not on floats; its views here are computed on floats and clipped after the crop.",
        "* `RandomResizedCrop` is bilinear unless told otherwise; ours is bicubic, antialiased.",
        "* The blur has SimCLR's number of taps (3 at 32, 9 at 96, 23 at 224).",
        "* Random numbers come from other generators, so views agree in distribution only. With "
        "the same parameters they agree in value: `tests/data/test_data_augment.py`.",
        "",
        "Can the tests fail? The same tests with a policy made slightly wrong on our side:",
        "",
        *wrong,
    ]


def processor() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    names = info.read_text().split("\n") if info.exists() else []
    models = [line.split(":")[1].strip() for line in names if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"


if __name__ == "__main__":
    main()
