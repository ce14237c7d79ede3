"""What each line of a certificate is called and means, in the order of reading."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["DIAGNOSTICS", "GROUPS", "MEANINGS", "Meaning"]


class Meaning(NamedTuple):
    """A line without its number; ``{k}`` stands for the number of negatives."""

    symbol: str
    kind: str
    group: int
    reading: str


GROUPS: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "The facts: classes told apart by their means, each point judged without itself",
        2: "Mean classifier and best linear classifier, in units of the loss",
        3: "One example per class instead of the mean",
        4: "Class collisions: negatives of the anchor's own class",
        5: "What contrasting pairs alone certifies",
        6: "The one-shot risk by margins",
        7: "Many negatives",
        8: "Training",
    }
)
"""The groups of lines and their headings."""

MEANINGS: Final[Mapping[str, Meaning]] = MappingProxyType(
    {
        "pairwise_error": Meaning(
            "err_2", "fact", 1, "error between two classes, on average (ties count)"
        ),
        "top1_error": Meaning("err_K", "fact", 1, "top-1 error among all classes (ties count)"),
        "supervised_low": Meaning(
            "L_sup, low", "risk", 2, "best linear classifier fitted to these rows: too low"
        ),
        "supervised_high": Meaning(
            "L_sup, high", "risk", 2, "linear classifier judged on held-out rows: a little high"
        ),
        "mean_classifier_risk": Meaning(
            "L_sup^μ", "risk", 2, "mean classifier, each point judged without itself"
        ),
        "noncollision_risk": Meaning(
            "L^≠", "risk", 3, "classifier made of one example of each class"
        ),
        "jensen_gap": Meaning(
            "L^≠ - L_sup^μ", "gap", 3, "one-shot noise: gone when class mates are averaged"
        ),
        "jensen_bound": Meaning("J", "bound", 3, "what class variances allow that noise to be"),
        "collision_probability": Meaning(
            "τ", "fact", 4, "how often a negative is of the anchor's class"
        ),
        "collision_excess": Meaning(
            "L^= - 1", "price", 4, "what such a negative costs beyond the unavoidable 1"
        ),
        "collision_price_directional": Meaning(
            "c' s_dir", "price", 4, "what the spread along the scores allows that to be"
        ),
        "collision_price": Meaning("c' s", "price", 4, "the same by the widest direction"),
        "second_order_price": Meaning(
            "L0 tr(ΣS)/4", "price", 4, "the same by second moments: sharp for narrow classes"
        ),
        "collision_cost": Meaning(
            "τ(L^= - 1)/(1-τ)", "price", 4, "what collisions add to the certificate"
        ),
        "beta_spread": Meaning("β s", "price", 4, "what the theory would charge for that"),
        "contrastive_risk": Meaning(
            "L_un", "risk", 5, "contrastive risk: anchor, class mate, any negative"
        ),
        "certificate_point": Meaning(
            "(L_un-τ)/(1-τ)", "bound", 5, "bounds L_sup^μ; a point estimate, not certified"
        ),
        "pair_risk": Meaning("L_pairs", "risk", 5, "contrastive risk with the given pairs"),
        "augmentation_gap": Meaning(
            "L0 E(shift)₊", "price", 5, "to add to it if the pairs are views, not class mates"
        ),
        "margin": Meaning("γ*", "fact", 6, "the margin at which the next bound is least"),
        "margin_bound": Meaning(
            "γ L_γ^μ + Scarf", "bound", 6, "bounds L^≠ by margins and variances alone"
        ),
        "cross_entropy": Meaning(
            "CE", "risk", 7, "cross-entropy of the mean classifier, nats, without itself"
        ),
        "k_negative_risk[k]": Meaning(
            "L_un^({k})",
            "risk",
            7,
            "risk with k = {k} negatives; to be compared with its floor",
        ),
        "floor[k]": Meaning(
            "τ_{k} κ_{k}", "bound", 7, "the part of it that no encoder avoids (collisions)"
        ),
        "collision_probability[k]": Meaning(
            "τ_{k}", "fact", 7, "how often one of k = {k} negatives is of the anchor's class"
        ),
        "coverage[k]": Meaning(
            "p_{k}", "fact", 7, "how surely k = {k} negatives hold a given other class"
        ),
        "top1_bound[k]": Meaning(
            "top-1 by k={k}", "bound", 7, "bounds the top-1 error by L_un^({k}); a point estimate"
        ),
        "infonce[k]": Meaning("InfoNCE_{k}", "risk", 7, "InfoNCE with k = {k} negatives, nats"),
        "cross_entropy_low[k]": Meaning(
            "CE from below", "bound", 7, "what InfoNCE_{k} says of the cross-entropy"
        ),
        "cross_entropy_high[k]": Meaning(
            "CE from above", "bound", 7, "the same from the other side"
        ),
        "training_gap": Meaning(
            "Gen_M", "bound", 8, "what the declared class of encoders may lose by training"
        ),
    }
)
"""Every line by its key; those with ``[k]`` stand once for each number of negatives."""

DIAGNOSTICS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "alignment": "distance² of class mates on the sphere (0 agree, 2 unrelated)",
        "uniformity": "how evenly the sphere is filled (0 collapsed, lower is even)",
        "rankme": "directions in use, by the entropy of singular values",
        "effective_rank": "the same of the centred embeddings",
        "lidar": "directions that tell classes (or the given pairs) apart",
        "alpha_req": "decay k^-α of the covariance's eigenvalues, at these indices:",
        "alpha_req_first": "from this one",
        "alpha_req_last": "to this one",
        "trace_between": "tr Σ_b (V_B), the spread of the class means",
        "trace_within": "tr Σ_w, the spread within classes",
    }
)
"""What each diagnostic says, in plain words."""
