"""The protocol card: what must be equal before two probe numbers may be compared.

Published numbers differ by several points because one group probes the layer before and another
after the projection head, tunes on the test set, leaves batch normalisation in training mode, or
fine-tunes the encoder by mistake. A card records all of it beside the number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Comparison", "ProtocolCard", "check_unchanged", "comparable", "parameter_hash"]

# What differs between the things compared, not between the ways of comparing them.
_IDENTITY = ("encoder_hash_before", "encoder_hash_after")


def parameter_hash(module: nn.Module) -> str:
    """A fingerprint of all weights and buffers: SHA-256 over names, types, shapes and bytes.

    Equal for equal values on any device, different after any change, running statistics of batch
    normalisation included.

    Raises:
        TypeError: If the module's state holds something other than tensors; it is named.

    Example:
        >>> module = torch.nn.BatchNorm1d(2)
        >>> before = parameter_hash(module)
        >>> _ = module(torch.randn(4, 2))     # in training mode: moves the running statistics
        >>> before == parameter_hash(module)
        False
    """
    # Buffers that are not saved are part of what the encoder computes, too.
    state: dict[str, Any] = {**module.state_dict(), **dict(module.named_buffers())}
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        if not isinstance(tensor, Tensor):
            raise TypeError(f"cannot fingerprint {name}: it is a {type(tensor).__name__}")
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_unchanged(before: str | None, after: str | None) -> None:
    """Raises if the encoder's fingerprints before and after an evaluation differ.

    Raises:
        ValueError: If they do. The encoder was not frozen, or its batch normalisation was not in
            evaluation mode, and the number is not that of the encoder that was handed in.
    """
    if before != after:
        raise ValueError(
            f"the encoder changed during evaluation: its fingerprint was {before} before and is "
            f"{after} after; freeze it and put it in evaluation mode"
        )


@dataclass(frozen=True)
class ProtocolCard:
    """How a probe number came about. A card whose encoder changed cannot be made.

    Attributes:
        encoder_hash_before: :func:`parameter_hash` before the evaluation; None without an encoder.
        encoder_hash_after: The same after it.
        layer: Which features, such as "encoder" (before the projection head) or "pixels".
        feature_dim: Their number.
        preprocessing: What happens to an image before the encoder.
        batch_norm: The mode of batch normalisation, such as "evaluation".
        split: One sentence on how training and test rows were parted.
        standardisation: Whose statistics scale the features.
        regularisation_grid: The penalties tried; empty for probes without one.
        regularisation_choice: On which rows and by what rule one was chosen.
        seeds: The seeds of the repetitions.
        n_train: Labelled training rows there are.
        n_test: Test rows there are.
        tuned: What is trained on the labels besides a classifier; an encoder is tuned on a copy.
        optimisation: How the classifier, and what is tuned, is fitted.
        labels: Which of the training labels are used.

    Raises:
        ValueError: If the two hashes differ.
    """

    encoder_hash_before: str | None
    encoder_hash_after: str | None
    layer: str
    feature_dim: int
    preprocessing: str
    batch_norm: str
    split: str
    standardisation: str
    regularisation_grid: tuple[float, ...]
    regularisation_choice: str
    seeds: tuple[int, ...]
    n_train: int
    n_test: int
    tuned: str = "nothing"
    optimisation: str = "L-BFGS until converged (linear probe only)"
    labels: str = "all"

    def __post_init__(self) -> None:
        check_unchanged(self.encoder_hash_before, self.encoder_hash_after)

    def to_dict(self) -> dict[str, Any]:
        """The card as plain values, ready to be written as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> ProtocolCard:
        """The card that :meth:`to_dict` wrote.

        Raises:
            ValueError: If a field is missing or unknown; all such fields are named.
        """
        names = {entry.name for entry in fields(cls)}
        if names != set(record):
            raise ValueError(
                f"not a protocol card: missing {sorted(names - set(record))}, "
                f"unknown {sorted(set(record) - names)}"
            )
        lists = {"regularisation_grid", "seeds"}
        values: dict[str, Any] = {
            key: tuple(value) if key in lists else value for key, value in record.items()
        }
        return cls(**values)


@dataclass(frozen=True)
class Comparison:
    """Whether two numbers may be compared: true where nothing differs.

    Attributes:
        differences: One line for each thing that does.
    """

    differences: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if self:
            return "the protocols agree"
        return "the protocols differ:\n" + "\n".join(f"  {line}" for line in self.differences)


def comparable(card_a: ProtocolCard, card_b: ProtocolCard) -> Comparison:
    """Compares two cards field by field, the encoders' own fingerprints aside.

    Example:
        >>> from dataclasses import replace
        >>> card = ProtocolCard(None, None, "pixels", 784, "none", "none", "by class, seed 0",
        ...                     "training rows", (0.1,), "held-out rows", (0, 1, 2), 4000, 1000)
        >>> bool(comparable(card, card))
        True
        >>> print(comparable(card, replace(card, layer="encoder")))
        the protocols differ:
          layer: 'pixels' against 'encoder'
    """
    a, b = asdict(card_a), asdict(card_b)
    return Comparison(
        tuple(
            f"{name}: {a[name]!r} against {b[name]!r}"
            for name in a
            if name not in _IDENTITY and a[name] != b[name]
        )
    )
