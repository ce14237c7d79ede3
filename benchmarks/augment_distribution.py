"""Two-sample tests of our random views against torchvision's; used by ``augment.py``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from scipy import stats
from torch import Tensor
from torchvision.transforms import v2

from relatum.data import POLICIES, Augmentation
from relatum.data.transforms import NOTHING

ALPHA = 0.01
POWER = 0.9
Numbers = NDArray[np.float64]
NAMES = ("brightness", "contrast", "saturation", "hue")


@dataclass(frozen=True)
class Comparison:
    """One test."""

    what: str
    where: str
    test: str
    n: int
    effect: float
    p: float
    rate: float = 0.5
    """For rates: the pooled one."""
    cells: int = 2
    """For orders: how many."""
    tests: int = 1
    """How many tests share the level."""
    adjusted: float = 1.0

    @property
    def detectable(self) -> float:
        """The effect found with probability POWER at level ALPHA / tests."""
        level, z = ALPHA / self.tests, stats.norm.ppf(POWER)
        if self.test == "KS":
            # Beyond the critical value by the spread of the distance at its own place, at most
            # sqrt(2 / 4n): a bound from below on the power.
            return math.sqrt(-math.log(level / 2) / self.n) + z * math.sqrt(0.5 / self.n)
        if self.test == "Fisher":
            spread = math.sqrt(2 * self.rate * (1 - self.rate) / self.n)
            return float((stats.norm.isf(level / 2) + z) * spread)
        df = self.cells - 1
        critical = stats.chi2.isf(level, df)
        sizes = np.linspace(0, 10 * critical, 10_001)
        return math.sqrt(sizes[np.argmax(stats.ncx2.sf(critical, df, sizes) >= POWER)] / 2 / self.n)

    def line(self) -> str:
        """A row of the page."""
        numbers = f"{self.n:,} | {self.effect:.4f} | {self.detectable:.4f}"
        tail = f"{self.p:.3g} | {self.adjusted:.3g}"
        return f"| {self.what} | {self.where} | {self.test} | {numbers} | {tail} |"


def compare_all(scale: float) -> list[Comparison]:
    """All tests; `scale` times the full sample sizes."""
    jobs: list[Callable[[], list[Comparison]]] = []
    for name, side in (("simclr-cifar", 32), ("simclr", 224)):
        policy, n = POLICIES[name](side), int(20_000 * scale)
        jobs.append(lambda p=policy, w=name, n=n: compare_draws(p, p, f"`{w}`, {p.size}", n))
    for name, side, full in (("simclr-cifar", 32, 10_000), ("simclr", 96, 4_000)):
        policy, n = POLICIES[name](side), int(full * scale)
        for image in range(2):
            where = f"`{name}`, {side}, image {image + 1}"
            jobs.append(lambda p=policy, w=where, n=n, i=image: compare_views(p, p, w, n, i))
    jobs.append(lambda: compare_operations(int(4_000 * scale)))
    found = [row for job in track(jobs, description="distributions") for row in job()]
    return holm(found)


def holm(rows: list[Comparison]) -> list[Comparison]:
    """Adds the corrected p-values."""
    ranked = sorted(range(len(rows)), key=lambda i: rows[i].p)
    result, worst = list(rows), 0.0
    for rank, i in enumerate(ranked):
        worst = max(worst, min(1.0, (len(rows) - rank) * rows[i].p))
        result[i] = replace(rows[i], adjusted=worst, tests=len(rows))
    return result


def controls(scale: float) -> list[str]:
    """What a wrong policy on our side gives: a bullet each."""
    small, large = POLICIES["simclr-cifar"](32), POLICIES["simclr"](224)
    wrong = [
        (large, {"crop_area": (0.11, 1.0)}, "crop area from 0.11, not 0.08"),
        (large, {"crop_aspect": (0.8, 1.25)}, "aspect in [4/5, 5/4], not [3/4, 4/3]"),
        (large, {"flip": 0.53}, "flip at 0.53, not 0.5"),
        (large, {"hue": 0.19}, "hue up to 0.19, not 0.2"),
        (large, {"blur_sigma": (0.1, 1.9)}, "blur sigma up to 1.9, not 2"),
        (small, {"brightness": 0.44}, "brightness up to 0.44, not 0.4"),
    ]
    lines = []
    for truth, change, title in track(wrong, description="controls"):
        ours, n = replace(truth, **change), int(20_000 * scale)
        rows = compare_draws(ours, truth, "", n)
        lines.append(control_line(title, "parameters", rows))
    change, title = {"saturation": 0.8}, "saturation up to 0.8, not 0.4"
    rows = compare_views(replace(small, **change), small, "", int(10_000 * scale), 0)
    return [*lines, control_line(title, "views", rows)]


def control_line(title: str, kind: str, rows: list[Comparison]) -> str:
    worst = min(rows, key=lambda row: row.p)
    p = min(1.0, len(rows) * worst.p)
    verdict = "seen" if p < ALPHA else "**not seen**"
    return f"* {title} ({kind}): {verdict}, p = {p:.2g} at {worst.what}."


# --- parameters


def compare_draws(
    policy: Augmentation, truth: Augmentation, where: str, n: int
) -> list[Comparison]:
    """The drawn parameters of `policy` against those torchvision draws for `truth`."""
    ours, theirs = our_parameters(policy, n), their_parameters(truth, n)
    rows = []
    for what, values in ours.items():
        if what == "order":
            table = np.stack([np.bincount(v, minlength=256) for v in (values, theirs[what])])
            rows.append(order_test(what, where, table))
        elif values.dtype == bool:
            rows.append(rate_test(what, where, values, theirs[what]))
        else:
            rows.append(number_test(what, where, values, theirs[what]))
    return rows


def our_parameters(policy: Augmentation, n: int) -> dict[str, NDArray]:
    """By name; bool for what happens or not, int for the order."""
    draws = policy.draw(n, torch.Generator().manual_seed(policy.size))
    jittered = draws.order[:, 0] != NOTHING
    found = {**box_parameters(draws.boxes.numpy(), policy.size), "flip": draws.flip.numpy()}
    found |= {"jitter happens": jittered.numpy(), "order": order_code(draws.order[jittered])}
    found |= {name: draws.factors[jittered, i].numpy() for i, name in enumerate(NAMES)}
    found["greyscale"] = draws.greyscale.numpy()
    if policy.blur:
        happens = draws.sigma > 0
        found |= {"blur happens": happens.numpy(), "blur sigma": draws.sigma[happens].numpy()}
    return found


@functools.cache  # the controls use them again
def their_parameters(policy: Augmentation, n: int) -> dict[str, NDArray]:
    """The same, drawn by torchvision's own classes; what happens is read off a marked image."""
    torch.manual_seed(policy.size)
    image = torch.empty(3, policy.size, policy.size)
    crop = v2.RandomResizedCrop(policy.size, policy.crop_area, policy.crop_aspect)
    boxes = [crop.make_params([image]) for _ in range(n)]
    boxes = np.array([[b["top"], b["left"], b["height"], b["width"]] for b in boxes])
    found = {**box_parameters(boxes, policy.size)}
    found["flip"] = happens(v2.RandomHorizontalFlip(policy.flip), n)
    colours = [policy.brightness, policy.contrast, policy.saturation, policy.hue]
    jitter = v2.ColorJitter(*colours)
    darken = v2.ColorJitter(brightness=(0.5, 0.5))
    found["jitter happens"] = happens(v2.RandomApply([darken], policy.jitter_probability), n)
    drawn = [jitter.make_params([image]) for _ in range(int(n * policy.jitter_probability))]
    found["order"] = order_code(torch.stack([each["fn_idx"] for each in drawn]))
    for name in NAMES:
        found[name] = np.array([each[f"{name}_factor"] for each in drawn])
    found["greyscale"] = happens(v2.RandomGrayscale(policy.greyscale), n)
    if policy.blur:
        blur = v2.GaussianBlur(3, policy.blur_sigma)
        found["blur happens"] = happens(v2.RandomApply([darken], policy.blur), n)
        sigmas = [blur.make_params([image])["sigma"][0] for _ in range(int(n * policy.blur))]
        found["blur sigma"] = np.array(sigmas)
    return found


def box_parameters(boxes: NDArray, side: int) -> dict[str, NDArray]:
    """Area, aspect and place of crops; whole numbers are spread over their pixel."""
    fraction = np.random.default_rng(2).random(boxes.shape) - 0.5
    top, left, height, width = (boxes + fraction).T
    area, aspect = height * width / side**2, np.log(width / height)
    centres = {"crop centre, down": top + height / 2, "crop centre, right": left + width / 2}
    return {"crop area": area, "crop aspect": aspect, **centres}


def order_code(order: Tensor) -> NDArray:
    """One whole number for each permutation of four."""
    return (order @ torch.tensor([64, 16, 4, 1])).numpy()


def happens(transform: Callable[[Tensor], Tensor], n: int) -> NDArray:
    """How often the transform changes a small image that all of them change."""
    image = torch.tensor([[0.1, 0.9], [0.2, 0.4], [0.7, 0.3]]).view(3, 1, 2)
    return np.array([not torch.equal(transform(image), image) for _ in range(n)])


# --- views


def compare_views(
    policy: Augmentation, truth: Augmentation, where: str, n: int, image: int
) -> list[Comparison]:
    """Whole views of one fixed image, summed up by features."""
    ours, theirs = our_features(policy, n, image), their_features(truth, n, image)
    return [number_test(f"views: {key}", where, ours[key], theirs[key]) for key in ours]


def compare_operations(n: int) -> list[Comparison]:
    """Views that one operation alone makes, by the feature that it changes most."""
    still = Augmentation(48, crop_area=None, flip=0.0, jitter_probability=1.0)
    alone: list[tuple[str, dict[str, object], str]] = [
        ("crop", {"crop_area": (0.08, 1.0)}, "gradient"),
        ("brightness", {"brightness": 0.8}, "mean green"),
        ("contrast", {"contrast": 0.8}, "deviation green"),
        ("saturation", {"saturation": 0.8}, "saturation"),
        ("hue", {"hue": 0.2}, "mean red"),
        ("blur", {"blur": 1.0}, "gradient"),
    ]
    rows = []
    for what, changes, key in alone:
        policy = replace(still, **changes)  # type: ignore[arg-type]
        ours, theirs = our_features(policy, n, 0), their_features(policy, n, 0)
        rows.append(number_test(f"{what} alone: {key}", "48", ours[key], theirs[key]))
    return rows


def our_features(policy: Augmentation, n: int, image: int) -> dict[str, Numbers]:
    generator = torch.Generator().manual_seed(policy.size + image)
    images = fixed_image(policy.size, image).expand(n, -1, -1, -1)
    return features(policy(images, generator))


@functools.cache
def their_features(policy: Augmentation, n: int, image: int) -> dict[str, Numbers]:
    torch.manual_seed(policy.size + image)
    transform, x = torchvision_floats(policy), fixed_image(policy.size, image) / 255
    return features(torch.stack([transform(x) for _ in range(n)]))


def torchvision_floats(policy: Augmentation) -> v2.Compose:
    """The policy in torchvision's classes, for floats; the crop's overshoot is clipped."""
    steps: list[Callable[[Tensor], Tensor]] = []
    if policy.crop_area is not None:
        bicubic = v2.InterpolationMode.BICUBIC
        crop = (policy.size, policy.crop_area, policy.crop_aspect, bicubic)
        steps += [v2.RandomResizedCrop(*crop, antialias=True), v2.Lambda(lambda x: x.clamp(0, 1))]
    jitter = v2.ColorJitter(policy.brightness, policy.contrast, policy.saturation, policy.hue)
    blur = v2.GaussianBlur(2 * (policy.size // 10 // 2) + 1, policy.blur_sigma)
    steps += [v2.RandomHorizontalFlip(policy.flip)]
    steps += [v2.RandomApply([jitter], policy.jitter_probability)]
    steps += [v2.RandomGrayscale(policy.greyscale), v2.RandomApply([blur], policy.blur)]
    return v2.Compose(steps)


def fixed_image(side: int, seed: int) -> Tensor:
    """A smooth uint8 image with a ramp of colours, so that each half looks different."""
    g = torch.Generator().manual_seed(100 + seed)
    coarse = torch.rand(1, 3, 6, 6, generator=g)
    fine = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic")[0]
    ramp = torch.linspace(0.2, 0.8, side).view(1, 1, side) * torch.rand(3, 1, 1, generator=g)
    noise = 0.05 * torch.randn(3, side, side, generator=g)
    return ((0.6 * fine + 0.4 * ramp + noise).clamp(0, 1) * 255).byte()


def features(x: Tensor) -> dict[str, Numbers]:
    """Numbers that sum up each view."""
    found = {}
    for i, colour in enumerate(("red", "green", "blue")):
        found[f"mean {colour}"] = x[:, i].mean(dim=(1, 2))
        found[f"deviation {colour}"] = x[:, i].flatten(1).std(dim=1)
    found["saturation"] = (x.amax(1) - x.amin(1)).mean(dim=(1, 2))
    steps = x.diff(dim=2).square().mean(dim=(1, 2, 3)) + x.diff(dim=3).square().mean(dim=(1, 2, 3))
    found["gradient"] = steps.sqrt()
    left, right = x.mean(dim=(1, 2)).tensor_split(2, dim=1)
    found["right minus left"] = right.mean(dim=1) - left.mean(dim=1)
    return {key: value.double().numpy() for key, value in found.items()}


# --- tests


def number_test(what: str, where: str, ours: Numbers, theirs: Numbers) -> Comparison:
    n, noise = min(len(ours), len(theirs)), np.random.default_rng(5)
    a, b = (v + 1e-5 * noise.standard_normal(len(v)) for v in (ours, theirs))
    result = stats.ks_2samp(a, b, method="asymp")
    return Comparison(what, where, "KS", n, float(result.statistic), float(result.pvalue))


def rate_test(what: str, where: str, ours: NDArray, theirs: NDArray) -> Comparison:
    table = [[int(v.sum()), int((~v).sum())] for v in (ours, theirs)]
    p = float(stats.fisher_exact(table).pvalue)
    rate = float(np.concatenate([ours, theirs]).mean())
    effect = abs(float(ours.mean() - theirs.mean()))
    return Comparison(what, where, "Fisher", min(len(ours), len(theirs)), effect, p, rate=rate)


def order_test(what: str, where: str, table: NDArray) -> Comparison:
    table = table[:, table.sum(axis=0) > 0]
    result = stats.chi2_contingency(table)
    n = int(table.sum(axis=1).min())
    effect = math.sqrt(result.statistic / table.sum())
    p = float(result.pvalue)
    return Comparison(what, where, "χ²", n, effect, p, cells=table.shape[1])
