"""What an encoder in training is worth for classes, on labelled training images held back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from ...data import ImageTable
from ...latent_class import labelled_sample, leave_one_out_risk, pair_risks, pair_table
from ...models import Encoder
from ...probes import NonFiniteFeatures, extract_features
from ...settings import SettingsError
from ..embeddings import on_sphere
from .settings import TrainImages

__all__ = ["CertificateWatch", "held_back"]

READINGS: Final = (
    "contrastive_risk",
    "noncollision_risk",
    "collision_excess",
    "mean_classifier_risk",
)

TEMPERATURE: Final = 0.5
"""Of the scores, as the cosine critic's: embeddings of length √2, whatever the critic trained."""


@dataclass(frozen=True)
class CertificateWatch:
    r"""The terms of the transfer certificate at some steps, on images that are not trained on.

    With the representation scaled to length :math:`1/\sqrt T` and the hinge loss: the contrastive
    risk :math:`L_{un}`, its part :math:`L^{\ne}` between classes, what collisions cost beyond 1,
    :math:`L^= - 1`, and the mean classifier's risk :math:`L_{sup}^\mu`, each row left out of its
    own mean. Labels are read here and touch nothing that is trained.

    Attributes:
        encoder: The network whose output is the representation.
        images: Those held back.
        every: Steps between two readings.
        last: The last step, which is read as well.
    """

    encoder: Encoder
    images: ImageTable
    every: int
    last: int

    @classmethod
    def of(
        cls, encoder: Encoder, images: ImageTable | None, every: int, last: int
    ) -> CertificateWatch | None:
        """The watch over images that are held back; None where none are."""
        return None if images is None else cls(encoder, images, every, last)

    def __call__(self, step: int) -> dict[str, float | None]:
        """The readings after so many steps; nothing where none is due."""
        if step % self.every and step != self.last:
            return {}
        try:
            features = extract_features(self.encoder, self.images.pixels)
        except NonFiniteFeatures:  # the next step says so, and stops or records it
            return dict.fromkeys(READINGS)
        sample = labelled_sample(on_sphere(features, TEMPERATURE), self.images.labels)
        risks = pair_risks(pair_table(sample), method="projection")
        values = (
            risks.unsupervised.value,
            risks.noncollision.value,
            risks.collision.value - 1,
            leave_one_out_risk(sample).value,
        )
        return dict(zip(READINGS, values, strict=True))


def held_back(images: ImageTable, settings: TrainImages) -> tuple[ImageTable, ImageTable | None]:
    """The images to train on, and those held back for ``certify_every``; None where it is off.

    Raises:
        SettingsError: If there are not so many labelled images, or too few of two classes.
    """
    if not settings.certify_every:
        return images, None
    labelled = np.flatnonzero(images.labels.numpy() >= 0)
    if len(labelled) < settings.certify_images:
        raise SettingsError(
            f"certify_images {settings.certify_images}: there are {len(labelled)} labelled "
            "training images to hold back"
        )
    generator = np.random.default_rng([settings.split_seed, 1])
    chosen = np.sort(generator.permutation(labelled)[: settings.certify_images])
    counts = np.bincount(images.labels.numpy()[chosen])
    if (counts >= 3).sum() < 2:
        raise SettingsError(
            f"certify_images {settings.certify_images} hold {(counts >= 3).sum()} classes with 3 "
            "images or more; two are needed"
        )
    rest = np.setdiff1d(np.arange(len(images)), chosen)
    train_on, watched = (images.select(torch.from_numpy(rows)) for rows in (rest, chosen))
    return train_on, watched.held()
