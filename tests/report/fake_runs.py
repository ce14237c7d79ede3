"""Writes small run directories whose numbers are known, as the recipes would."""

import base64
import io
import math

import numpy as np
from PIL import Image

from relatum.runs import Run


def png(seed, size=28):
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def probe_rows(accuracies, seed=0):
    """`accuracies`: {(features, probe, labels_per_class): accuracy}."""
    return [
        {
            "features": features,
            "probe": probe,
            "labels_per_class": few,
            "seed": seed,
            "accuracy": accuracy,
        }
        for (features, probe, few), accuracy in accuracies.items()
    ]


def make_run(
    path,
    *,
    objective="cpc",
    seed=0,
    rows=None,
    card=None,
    settings="",
    losses=None,
    log=None,
    training=None,
    classes=None,
    points=40,
    neighbours=None,
):
    run = Run.create(path, f"objective: {objective}\ndata: mnist5k\nseed: {seed}\n{settings}")
    rng = np.random.default_rng(seed)
    if losses is None:
        losses = [math.log(512) - 4 * (1 - math.exp(-i / 8)) for i in range(30)]
    for i, loss in enumerate(losses):
        reading = math.log(512) - loss if isinstance(loss, float) else None
        record = {
            "step": 20 * i,
            "epoch": i / 4,
            "loss": loss,
            "mi": reading,
            "mi_ceiling": math.log(512),
            "contrastive_accuracy": 0.9 * i / len(losses),
            "effective_rank": 8.0 + i,
            "alignment": 0.5,
            "uniformity": -2.0,
            "learning_rate": 1e-3 * (1 - i / len(losses)),
            "grad_norm": 1.0,
            "pairs_per_second": 900.0 + float(rng.normal()),
            "temperature": 0.1,
        }
        run.log(record | (log or {}))
    if training is None and losses:
        training = {"steps": 20 * len(losses)}
    if training:
        run.write_result("training", "training", {"objective": objective, **training})
    if rows is not None:
        protocol = {"layer": "encoder", "feature_dim": 64, "standardised": True}
        run.write_result("probe", "probe", {"card": card or protocol, "rows": rows})
    if classes is not None:
        labels = [i % len(classes) for i in range(points)]
        centres = rng.normal(size=(len(classes), 2)) * 6
        xy = centres[labels] + rng.normal(size=(points, 2))
        payload = {"xy": xy, "labels": labels, "classes": classes, "method": "PCA"}
        run.write_result("map", "embedding-map", payload)
        if neighbours is None:
            neighbours = [
                {
                    "query": png(i),
                    "query_label": classes[i % len(classes)],
                    "neighbours": [
                        {
                            "png": png(100 + 10 * i + j),
                            "label": classes[(i + (j == 4)) % len(classes)],
                            "similarity": 0.99 - 0.05 * j,
                        }
                        for j in range(6)
                    ],
                }
                for i in range(6)
            ]
    if neighbours is not None:
        run.write_result("neighbours", "neighbours", {"rows": neighbours})
    return run.path
