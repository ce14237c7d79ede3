"""Latent classes: why contrasting pairs helps a classifier, and by how much.

Unlabelled pairs come from hidden classes; the contrastive risk of an encoder bounds how well a
linear classifier on it can tell the classes apart. In the order of the theory:

* **The classes.** ``model`` (finite: everything is a sum), ``sampling`` (what can only be drawn),
  ``collisions`` (classes among k negatives).
* **Exact risks** of a finite model. ``risks`` (pairs, the mean classifier, margins, spreads),
  ``supervised`` (the best linear classifier), ``tuples`` (k negatives, all classes, InfoNCE,
  spectral).
* **Estimates** from labelled embeddings, with standard errors. ``sample`` (reads them),
  ``pair_tables`` and ``estimates`` (the contrastive risk and its parts), ``leave_one_out`` (the
  mean classifier), ``bracket`` (the best linear one), ``k_negatives``, ``sample_blocks``,
  ``estimated_spreads``; ``resampling`` (standard errors), ``intervals`` (which hold at the stated
  probability).
* **Bounds**: ``bounds``, one function a theorem, of numbers exact or estimated.
* **The certificate**: ``certificate`` says for the embeddings of any encoder how well classes are
  told apart, what of it is certain and what limits it.
* **Complexity** of encoder classes. ``complexity``, ``complexity_linear``, ``contraction`` (from
  encoders to losses).
* **Beneath**: ``fast`` and ``quadrature`` (sums without visiting their terms), ``blocks``,
  ``concentration`` (the one inequality behind all widths), ``checks``.

Losses are "hinge" and "logistic" (base 2, so that knowing nothing costs 1); InfoNCE and
cross-entropies are in nats.

References:
    A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et al.,
    2019). https://arxiv.org/abs/1902.09229
"""

from .bounds import (
    Bound,
    block_bound,
    collision_bound,
    collision_second_order,
    competitive_bound,
    cross_entropy_lower,
    cross_entropy_upper,
    cross_entropy_upper_any_prior,
    curvature_bound,
    finite_class_bound,
    full_way_bound,
    hold_out_bound,
    jensen_bound,
    jensen_gap,
    margin_bound,
    mean_classifier_bound,
    minimiser_gap,
    pac_bayes_bound,
    published_cross_entropy_lower,
    published_cross_entropy_upper,
    published_full_way_bound,
    sandwich,
    scarf,
    sub_gaussian_bound,
    sub_gaussian_margin,
    sub_task_bound,
    task_prior_factor,
    top1_bound,
    tuple_bound,
    tuple_competitive_bound,
    uniform_bound,
    views_bound,
)
from .bracket import (
    SupervisedBracket,
    supervised_bracket,
)
from .certificate import (
    CertificateLine,
    FewShot,
    PairCost,
    TransferCertificate,
    certify,
    few_shot_curve,
)
from .collisions import (
    collision_counts,
    collision_floor,
    collision_probability,
    coverage,
    distinct_classes,
)
from .complexity import (
    Complexity,
    FiniteClass,
    SignedClass,
    exact_complexity,
    mlp_complexity,
    simulated_complexity,
    trivial_complexity,
)
from .complexity_linear import (
    FrobeniusBall,
    OperatorBall,
    RowBalls,
    ScoreBall,
)
from .contraction import (
    block_contraction,
    candidate_contraction,
    encoder_contraction,
    linear_complexity,
    projected_contraction,
    score_contraction,
)
from .estimated_spreads import (
    class_covariances,
    estimated_directional_spread,
    estimated_score_variances,
    estimated_spread,
    estimated_trace,
    spread_upper_bound,
)
from .estimates import (
    Estimate,
    PairRisks,
    normal_estimate,
    pair_risks,
)
from .intervals import (
    bounded_difference_width,
    disjoint_triplets,
    hoeffding_width,
    rigorous_estimate,
)
from .k_negatives import (
    estimated_infonce,
    estimated_k_negative_risk,
)
from .leave_one_out import (
    leave_one_out_cross_entropy,
    leave_one_out_error,
    leave_one_out_full_risk,
    leave_one_out_margin_risk,
    leave_one_out_margins,
    leave_one_out_risk,
    leave_one_out_top_error,
)
from .model import (
    FiniteModel,
)
from .pair_tables import (
    PairTable,
    pair_table,
)
from .resampling import (
    grouped_jackknife,
    hajek,
    jackknife,
    split_error,
)
from .risks import (
    class_spreads,
    collision_risk,
    directional_spread,
    margin_risk,
    mean_classifier_losses,
    mean_classifier_risk,
    mean_scores,
    noncollision_risk,
    pair_losses,
    pairwise_error,
    score_variances,
    spread,
    unsupervised_risk,
)
from .sample import (
    LabelledSample,
    labelled_sample,
)
from .sample_blocks import (
    estimated_block_risks,
    estimated_spectral_risk,
)
from .sampling import (
    Contrasts,
    Pairs,
    SampledModel,
)
from .supervised import (
    LinearMinimum,
    SupervisedRisk,
    ball_lower_bound,
    linear_minimum,
    linear_risk,
    supervised_risk,
)
from .tuples import (
    full_way_losses,
    infonce_risk,
    mean_cross_entropy,
    mean_tuple_risk,
    rest_risk,
    spectral_minimum,
    spectral_risk,
    top1_errors,
    tuple_risk,
    tuple_spread,
)

__all__ = [
    "Bound",
    "CertificateLine",
    "Complexity",
    "Contrasts",
    "Estimate",
    "FewShot",
    "FiniteClass",
    "FiniteModel",
    "FrobeniusBall",
    "LabelledSample",
    "LinearMinimum",
    "OperatorBall",
    "PairCost",
    "PairRisks",
    "PairTable",
    "Pairs",
    "RowBalls",
    "SampledModel",
    "ScoreBall",
    "SignedClass",
    "SupervisedBracket",
    "SupervisedRisk",
    "TransferCertificate",
    "ball_lower_bound",
    "block_bound",
    "block_contraction",
    "bounded_difference_width",
    "candidate_contraction",
    "certify",
    "class_covariances",
    "class_spreads",
    "collision_bound",
    "collision_counts",
    "collision_floor",
    "collision_probability",
    "collision_risk",
    "collision_second_order",
    "competitive_bound",
    "coverage",
    "cross_entropy_lower",
    "cross_entropy_upper",
    "cross_entropy_upper_any_prior",
    "curvature_bound",
    "directional_spread",
    "disjoint_triplets",
    "distinct_classes",
    "encoder_contraction",
    "estimated_block_risks",
    "estimated_directional_spread",
    "estimated_infonce",
    "estimated_k_negative_risk",
    "estimated_score_variances",
    "estimated_spectral_risk",
    "estimated_spread",
    "estimated_trace",
    "exact_complexity",
    "few_shot_curve",
    "finite_class_bound",
    "full_way_bound",
    "full_way_losses",
    "grouped_jackknife",
    "hajek",
    "hoeffding_width",
    "hold_out_bound",
    "infonce_risk",
    "jackknife",
    "jensen_bound",
    "jensen_gap",
    "labelled_sample",
    "leave_one_out_cross_entropy",
    "leave_one_out_error",
    "leave_one_out_full_risk",
    "leave_one_out_margin_risk",
    "leave_one_out_margins",
    "leave_one_out_risk",
    "leave_one_out_top_error",
    "linear_complexity",
    "linear_minimum",
    "linear_risk",
    "margin_bound",
    "margin_risk",
    "mean_classifier_bound",
    "mean_classifier_losses",
    "mean_classifier_risk",
    "mean_cross_entropy",
    "mean_scores",
    "mean_tuple_risk",
    "minimiser_gap",
    "mlp_complexity",
    "noncollision_risk",
    "normal_estimate",
    "pac_bayes_bound",
    "pair_losses",
    "pair_risks",
    "pair_table",
    "pairwise_error",
    "projected_contraction",
    "published_cross_entropy_lower",
    "published_cross_entropy_upper",
    "published_full_way_bound",
    "rest_risk",
    "rigorous_estimate",
    "sandwich",
    "scarf",
    "score_contraction",
    "score_variances",
    "simulated_complexity",
    "spectral_minimum",
    "spectral_risk",
    "split_error",
    "spread",
    "spread_upper_bound",
    "sub_gaussian_bound",
    "sub_gaussian_margin",
    "sub_task_bound",
    "supervised_bracket",
    "supervised_risk",
    "task_prior_factor",
    "top1_bound",
    "top1_errors",
    "trivial_complexity",
    "tuple_bound",
    "tuple_competitive_bound",
    "tuple_risk",
    "tuple_spread",
    "uniform_bound",
    "unsupervised_risk",
    "views_bound",
]
