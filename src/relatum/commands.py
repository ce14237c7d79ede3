"""The commands: where each one's settings and function are, and what it does in a few words."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["COMMANDS", "Command"]


class Command(NamedTuple):
    """Where a command's settings class and function are.

    Where a command has many options, ``sections`` says how they are grouped on its help page: a
    section begins at the field that is its key.
    """

    module: str
    settings: str
    function: str
    summary: str
    sections: Mapping[str, str] = types.MappingProxyType({})


_TRAINING: Final = {"data": "data", "objective": "objective and pairs"}


COMMANDS: Final[dict[str, Command]] = {
    "train images": Command(
        "recipes.train_images",
        "TrainImages",
        "main",
        "train an encoder on images",
        {**_TRAINING, "encoder": "networks and views", "batch_size": "optimisation"}
        | {"device": "the run"},
    ),
    "train classes": Command(
        "recipes.train_classes", "TrainClasses", "main", "train where theory bounds the outcome"
    ),
    "probe": Command("recipes.probe", "Probe", "main", "measure trained encoders"),
    "finetune": Command(
        "recipes.finetune", "FineTune", "main", "train a whole network on few or all labels"
    ),
    "embed": Command("recipes.embed", "Embed", "main", "write features and ids to files"),
    "export": Command("recipes.export", "Export", "main", "write a trained encoder to one file"),
    "train speech": Command(
        "recipes.train_speech",
        "TrainSpeech",
        "main",
        "train an encoder on recordings",
        {**_TRAINING, "frame_dim": "networks", "batch_size": "optimisation", "device": "the run"},
    ),
    "probe speech": Command(
        "recipes.probe_speech", "ProbeSpeech", "main", "measure encoders of recordings"
    ),
    "embed speech": Command(
        "recipes.embed_speech", "EmbedSpeech", "main", "write features of every 10 ms to files"
    ),
    "certify": Command(
        "recipes.certify", "Certify", "main", "say how well classes will be told apart"
    ),
    "report": Command("recipes.report", "Report", "main", "make one HTML page from runs"),
    "objectives": Command(
        "recipes.report", "Objectives", "list_objectives", "explain the objectives"
    ),
    "fit": Command("recipes.fit", "Fit", "fit", "embed two sides of a table"),
    "retrieve": Command("recipes.fit", "Retrieve", "retrieve", "find the other side of a row"),
    "mi": Command("recipes.mi", "MI", "main", "estimate mutual information from a table"),
    "mi-benchmark": Command(
        "recipes.mi_benchmark", "MIBenchmark", "main", "measure estimators of mutual information"
    ),
    "reproduce stability": Command(
        "recipes.stability", "Stability", "main", "which objectives run away, and why"
    ),
    "reproduce batch-size": Command(
        "recipes.batch_size", "BatchSize", "main", "accuracy against the size of the batch"
    ),
    "reproduce relative-parameters": Command(
        "recipes.relative_parameters",
        "RelativeParameters",
        "main",
        "accuracy over alpha, beta and gamma",
    ),
    "reproduce vision-table": Command(
        "recipes.vision_table", "VisionTable", "main", "every objective on CIFAR and STL-10"
    ),
    "reproduce speech-table": Command(
        "recipes.speech_table", "SpeechTable", "main", "phones and speakers by every objective"
    ),
    "reproduce speech-batch-size": Command(
        "recipes.speech_batch_size", "SpeechBatchSize", "main", "phones against the batch's size"
    ),
    "reproduce mi-staircase": Command(
        "recipes.mi_staircase",
        "Staircase",
        "main",
        "follow a climbing mutual information by every estimator",
    ),
    "demo": Command("recipes.demo", "Demo", "main", "the whole job on MNIST-5k, in minutes"),
}
