"""What the report shows of a representation: a map of the test images, and nearest neighbours."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from sklearn.manifold import TSNE

from ..data import ImageTable

__all__ = ["embedding_map", "neighbours"]

SEED = 0  # pictures are for looking at: the same rows for all runs
SHOWN = 6  # neighbours of a query
PERPLEXITY = 30.0


def embedding_map(
    features: Float[np.ndarray, "n d"], images: ImageTable, method: str, points: int
) -> dict[str, Any]:
    """Test images in two dimensions.

    Args:
        features: One row an image.
        images: The images, for their labels.
        method: ``pca`` or ``tsne`` (after 50 principal components, perplexity 30, seed 0).
        points: At most so many images, drawn with seed 0.

    Returns:
        The payload of an "embedding-map": xy, labels, classes, method, rows.
    """
    rows = np.random.default_rng(SEED).permutation(len(features))[:points]
    chosen = features[rows].astype(np.float64)
    if len(chosen) < 3:
        raise ValueError(f"a map needs at least 3 images, got {len(chosen)}")
    scaled = chosen - chosen.mean(0)
    perplexity = min(PERPLEXITY, (len(chosen) - 1) / 3)
    if method == "pca":
        xy = _components(scaled, 2)
        how = "PCA"
    else:
        few = _components(scaled, min(50, *scaled.shape))
        # A representation that has collapsed to one point has no directions to start from.
        start = "pca" if few.std() > 0 else "random"
        layout: Any = TSNE  # scikit-learn has no types
        xy = layout(perplexity=perplexity, init=start, random_state=SEED).fit_transform(few)
        how = f"t-SNE (perplexity {perplexity:g}, after 50 principal components)"
    return {
        "xy": np.round(xy, 4).tolist(),
        "labels": images.labels[rows].tolist(),
        "classes": list(images.classes),
        "rows": images.rows[rows].tolist(),
        "method": f"{how} of {len(rows)} of {len(features)} test images",
    }


def _components(rows: Float[np.ndarray, "n d"], count: int) -> Float[np.ndarray, "n c"]:
    """Principal components of centred rows, each turned so that its largest entry is positive."""
    u, scale, _ = np.linalg.svd(rows, full_matrices=False)
    scores = (u * scale)[:, :count]
    signs = np.sign(scores[np.abs(scores).argmax(0), np.arange(scores.shape[1])])
    return np.asarray(scores * np.where(signs == 0, 1, signs))


def neighbours(
    features: Float[np.ndarray, "n d"], images: ImageTable, queries: int
) -> dict[str, Any]:
    """The nearest other test images, by cosine similarity, of a few test images.

    Queries are drawn with seed 0, one class after the other. A row of zeros is similar to nothing.

    Returns:
        The payload of "neighbours".
    """
    values = features.astype(np.float64)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    unit = values / np.where(length > 0, length, 1)
    rows = []
    for query in _one_of_each(images.labels.numpy(), queries):
        similarity = unit @ unit[query]
        similarity[query] = -np.inf
        nearest = np.argsort(-similarity, kind="stable")[: min(SHOWN, len(unit) - 1)]
        found = [
            {
                "png": _png(images, index),
                "label": _name(images, index),
                "similarity": round(float(similarity[index]), 6),
            }
            for index in nearest.tolist()
        ]
        rows.append(
            {
                "query": _png(images, query),
                "query_label": _name(images, query),
                "neighbours": found,
            }
        )
    return {"rows": rows, "similarity": "cosine", "among": f"{len(unit) - 1} other test images"}


def _one_of_each(labels: np.ndarray, count: int) -> list[int]:
    """Rows drawn so that no class comes again before every class has come."""
    order = np.random.default_rng(SEED).permutation(len(labels))
    turn: dict[int, int] = {}
    rounds = []
    for row in order.tolist():
        label = int(labels[row])
        rounds.append((turn.get(label, 0), row))
        turn[label] = turn.get(label, 0) + 1
    return [row for _, row in sorted(rounds, key=lambda item: item[0])][:count]


def _name(images: ImageTable, row: int) -> str:
    label = int(images.labels[row])
    return images.classes[label] if label >= 0 else "unlabelled"


def _png(images: ImageTable, row: int) -> str:
    pixels = images.select(torch.tensor([row])).held().pixels[0]
    buffer = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
