"""What a certificate advises, warns of, and does not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .records import CertificateLine, FewShot, PairCost

__all__ = ["DOES_NOT_SAY", "VIEWS", "advise"]

DOES_NOT_SAY = (
    "Nothing about the top-1 error among all classes, except through the k-negative bounds, whose "
    "factor is at least the number of classes.",
    "Nothing about new classes, shifted data or invariance: the classes and their laws are those "
    "of these rows.",
    "Nothing about whether training reaches a good encoder, and nothing about an empirical "
    "InfoNCE or SimCLR outcome: the encoder is taken as it is.",
    "Nothing about rows that the encoder was trained or chosen on: a certificate needs fresh ones.",
)
VIEWS = (
    "If the pairs are augmented views of one item, the class of the theory is the item itself: "
    "without the augmentation gap L0 E(f(x)·(f(view) - f(class mate)))₊ nothing follows about "
    "semantic classes."
)

# Advice is given for what makes a difference: of the number itself, and in units of the loss.
_SHARE, _WORTH = 0.2, 0.05
# Factors of the squared norms, and so of all scores.
_SCALES = 2.0 ** np.arange(-4, 5)


def advise(
    lines: Sequence[CertificateLine],
    costly: Sequence[PairCost] = (),
    few_shot: Sequence[FewShot] = (),
    scale: Callable[[float], float] | None = None,
    certified: float | None = None,
) -> tuple[str, ...]:
    """What to change, most general first.

    Args:
        lines: The lines of the certificate.
        costly: Class pairs.
        few_shot: The learning curve.
        scale: The bound where the embeddings are multiplied by a factor.
        certified: The certified bound.
    """
    found = {line.key: line.value for line in lines}
    advice = [
        *_rows(found, certified),
        *_scale(scale),
        *_one_shot(found, few_shot),
        *_collisions(found),
    ]
    return (*advice, *_head(found), *_classes(found, costly))


def _rows(found: Mapping[str, float], certified: float | None) -> list[str]:
    point = found.get("certificate_point", np.nan)
    if certified is None or not certified - point >= max(_WORTH, _SHARE * certified):
        return []
    return [
        f"Rows: {certified - point:.3f} of the certified {certified:.3f} is confidence, which "
        "falls with the root of the number of independent rows, and grows with the square of the "
        "radius."
    ]


def _scale(bound: Callable[[float], float] | None) -> list[str]:
    if bound is None:
        return []
    here, bounds = bound(1.0), [bound(float(factor)) for factor in np.sqrt(_SCALES)]
    best = int(np.argmin(bounds))
    if bounds[best] >= 1 or not here - bounds[best] >= max(_WORTH, _SHARE * here):
        return []
    return [
        f"Scale: embeddings times {np.sqrt(_SCALES[best]):.3g} (a temperature times "
        f"{1 / _SCALES[best]:g}) would bring the bound from {here:.3f} to about "
        f"{bounds[best]:.3f}. Choose the scale on other data than those certified."
    ]


def _one_shot(found: Mapping[str, float], few_shot: Sequence[FewShot]) -> list[str]:
    whole, noise = found.get("noncollision_risk", 0), found.get("jensen_gap", 0)
    if noise < max(_WORTH, _SHARE * whole):
        return []
    curve = [shot for shot in few_shot if shot.shots > 1]
    reached = f" (with {curve[-1].shots}: {curve[-1].risk:.3f})" if curve else ""
    return [
        f"One-shot noise is {noise:.3f} of the risk {whole:.3f}, and no loss of single triplets "
        "can see through it. Where several class mates are known, contrast the means of blocks"
        f"{reached}."
    ]


def _collisions(found: Mapping[str, float]) -> list[str]:
    bound, cost = found.get("certificate_point", 0), found.get("collision_cost", 0)
    if cost < max(_WORTH, _SHARE * bound):
        return []
    return [
        f"Collisions: negatives of the anchor's own class make {cost:.3f} of the bound "
        f"{bound:.3f}. Negatives known to be of other classes, or a smaller scale, take that away."
    ]


def _head(found: Mapping[str, float]) -> list[str]:
    mean, trained = found.get("mean_classifier_risk", 0), found.get("supervised_high", np.inf)
    if mean - trained < max(_WORTH, _SHARE * mean):
        return []
    return [
        f"Classifier: a trained linear one, free to choose its scale, has risk {trained:.3f}, the "
        f"class means {mean:.3f}. Train a linear head; the bounds speak of means alone."
    ]


def _classes(found: Mapping[str, float], costly: Sequence[PairCost]) -> list[str]:
    if len(costly) < 3 or found.get("noncollision_risk", 0) < _WORTH:
        return []
    first, middle = costly[0], costly[len(costly) // 2]
    if not first.risk >= 1.5 * middle.risk:
        return []
    return [
        f"Classes: {first.class_a} and {first.class_b} are told apart worst (one-shot risk "
        f"{first.risk:.3f}, {100 * first.share:.0f} % of the whole): look at their rows and labels."
    ]
