"""How the open values of the settings are decided, and which settings exclude each other."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from typing import Any, Final

import torch

from ...base import MomentObjective
from ...objectives import OBJECTIVES, Released
from ...settings import SettingsError, check_used
from .settings import CRITIC_TEMPERATURES, TrainImages

__all__ = [
    "AUTOCAST",
    "found_device",
    "objective_parameters",
    "resolve",
    "steps_per_epoch",
    "stored_size",
    "total_steps",
]

SIZES: Final = {
    "mnist5k": 28,
    "digits": 16,
    "cifar10": 32,
    "cifar100": 32,
    "stl10": 96,
    "omniglot": 32,
    "celeba": 64,
    "imagenet": 224,
}
AUTOCAST: Final = {"none": None, "bf16": torch.bfloat16, "fp16": torch.float16}
RAW_DOT: Final = ("rpc", "chi2")  # scored by the raw dot product in Tsai et al. (2021)


def stored_size(settings: TrainImages) -> int:
    """Side of the images in pixels, decided."""
    return settings.image_size or SIZES.get(set_name(settings), 64)


def set_name(settings: TrainImages) -> str:
    """The name of a known set, such as celeba of ``celeba/Male:DIR``."""
    return re.sub("^celeba/[^:/]*:", "celeba:", settings.data).split(":")[0]


def steps_per_epoch(settings: TrainImages, rows: int) -> int:
    """Whole steps in one pass over `rows` training images.

    Raises:
        ValueError: If they do not fill one step.
    """
    images = settings.batch_size * settings.accumulate_steps
    if rows < images:
        many = f" x accumulate_steps {settings.accumulate_steps}"
        raise ValueError(
            f"{rows} training images do not fill one step of batch_size {settings.batch_size}"
            f"{many if settings.accumulate_steps > 1 else ''}; use a smaller batch_size"
        )
    return rows // images


def total_steps(settings: TrainImages, rows: int) -> int:
    """Number of updates: ``steps``, or the epochs' worth, at least 1."""
    return settings.steps or max(1, round(settings.epochs * steps_per_epoch(settings, rows)))


def resolve(settings: TrainImages, rows: int) -> TrainImages:
    """The same settings with every open value decided; this is what ``config.yaml`` holds.

    Args:
        settings: As given.
        rows: Number of training images.

    Raises:
        SettingsError: If settings contradict each other or the number of images.
    """
    critic = settings.critic or ("dot" if settings.objective in RAW_DOT else "cosine")
    images_a_step = settings.batch_size * settings.accumulate_steps
    rates = {"adamw": 0.003, "lars": images_a_step / 256, "sgd": 0.1 * images_a_step / 256}
    epochs = total_steps(settings, rows) / steps_per_epoch(settings, rows)
    resolved = dataclasses.replace(
        settings,
        image_size=stored_size(settings),
        critic=critic,
        temperature=_default(settings.temperature, CRITIC_TEMPERATURES[critic]),
        pairing=settings.pairing or _pairing(critic, settings),
        penalty=_default(settings.penalty, _penalty(settings)),
        augmentation=settings.augmentation or _augmentation(settings),
        learning_rate=_default(settings.learning_rate, rates[settings.optimizer]),
        warmup_epochs=_default(settings.warmup_epochs, min(10.0, round(epochs / 10, 6))),
        device=found_device(settings.device),
        tensorboard=_default(settings.tensorboard, _tensorboard_installed()),
        **objective_parameters(settings),
    )
    _check_together(resolved, rows)
    return resolved


def objective_parameters(settings: TrainImages) -> dict[str, Any]:
    """The parameters of the objective, given or default.

    Raises:
        SettingsError: If one is given that the objective does not have.
    """
    known = inspect.signature(OBJECTIVES[settings.objective]).parameters
    for name in ("alpha", "beta", "gamma"):
        if getattr(settings, name) is not None and name not in known:
            raise SettingsError(f"objective {settings.objective!r} has no parameter {name}")
    return {
        name: _default(getattr(settings, name), parameter.default)
        for name, parameter in known.items()
    }


def _default(value: Any, default: Any) -> Any:
    """`value` unless it is None; 0 and False are values."""
    return default if value is None else value


def _penalty(settings: TrainImages) -> float | None:
    return 10.0 if settings.objective == "wpc" and not settings.spectral_norm else None


def _pairing(critic: str, settings: TrainImages) -> str:
    if settings.positives > 1:
        return "block"
    if settings.queue_size:
        return "in_batch"
    return "two_view" if critic in ("dot", "cosine") else "in_batch_symmetric"


def _augmentation(settings: TrainImages) -> str:
    if set_name(settings) in ("mnist5k", "digits"):
        return "digits"
    return "simclr-cifar" if stored_size(settings) <= 64 else "simclr"


def found_device(name: str) -> str:
    """The device of that name: auto, cpu, cuda or cuda:N.

    Raises:
        SettingsError: If there is no such device.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not re.fullmatch(r"cuda(:\d+)?", name):
        raise SettingsError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if name != "cpu" and not torch.cuda.is_available():
        raise SettingsError(f"device {name!r}: this machine has no CUDA device; use cpu")
    return name


def _tensorboard_installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


def _check_together(settings: TrainImages, rows: int) -> None:
    """Raises SettingsError where two settings exclude each other."""
    if settings.critic == "joint" and (settings.temperature or settings.learn_temperature):
        raise SettingsError("the joint critic has no temperature; leave out --temperature")
    if (settings.micro_batch_size or 0) > settings.batch_size:
        raise SettingsError(
            f"micro_batch_size {settings.micro_batch_size} is larger than batch_size "
            f"{settings.batch_size}"
        )
    if settings.positives > 1 and settings.pairing != "block":
        raise SettingsError(
            f"positives {settings.positives} belongs to pairing block, got {settings.pairing!r}"
        )
    _check_used(settings)
    _check_lipschitz(settings)
    _check_moments(settings)
    _check_debiased(settings)
    _check_released(settings)
    if settings.stream and settings.augmentation == "digits":
        raise SettingsError(
            "augmentation digits turns images, which is one step with the crop, and stream crops "
            "while decoding: take another augmentation, or leave out --stream"
        )
    if settings.queue_size and settings.pairing != "in_batch":
        raise SettingsError(
            f"a queue replaces the negatives of pairing in_batch, got pairing {settings.pairing!r}"
        )
    if settings.queue_size >= rows:
        raise SettingsError(
            f"queue_size {settings.queue_size} is not smaller than the training set ({rows} "
            "images): the queue would hold older copies of the same images"
        )


def _check_used(settings: TrainImages) -> None:
    """Raises SettingsError where a setting would have no effect."""
    if not settings.certify_every:
        check_used(settings, "certify_images", "certify_every")
    if not settings.stream:
        check_used(settings, "cache", "stream")
    if settings.projection_layers == 1:
        check_used(settings, "projection_hidden", "projection_layers of 2 or more")
    if set_name(settings) in ("mnist5k", "digits"):
        check_used(settings, "download", "sets of torchvision, not to mnist5k or digits")


def _check_lipschitz(settings: TrainImages) -> None:
    """Raises SettingsError where what keeps WPC's critic Lipschitz cannot be."""
    for name in ("penalty", "spectral_norm"):
        if getattr(settings, name) not in (None, False) and settings.objective != "wpc":
            raise SettingsError(f"{name} belongs to wpc; objective {settings.objective!r} has none")
    if settings.spectral_norm and settings.penalty:
        raise SettingsError(
            f"spectral_norm stands for the gradient penalty, got penalty {settings.penalty} too: "
            "leave one out"
        )
    if settings.spectral_norm and settings.micro_batch_size:
        raise SettingsError(
            "spectral_norm and micro_batch_size exclude each other: the second pass over a "
            "micro-batch would find other weights than the first"
        )
    if settings.compile and settings.penalty:
        raise SettingsError(
            "compile and the gradient penalty exclude each other, since a compiled network has no "
            "second derivatives: leave out --compile, or use --spectral-norm"
        )


def _check_moments(settings: TrainImages) -> None:
    """Raises SettingsError where sums over micro-batches do not say enough."""
    asked = "moments_only" if settings.moments_only else "moment_decay"
    if not settings.moments_only and not settings.moment_decay:
        return
    if not isinstance(OBJECTIVES[settings.objective](), MomentObjective):
        raise SettingsError(
            f"{asked} belongs to rpc and chi2; {settings.objective} needs every score"
        )
    if settings.critic == "joint":
        raise SettingsError(f"{asked} needs a critic that is an inner product; joint is not")
    if settings.queue_size:
        raise SettingsError(f"{asked} and a queue exclude each other: leave one out")
    if settings.micro_batch_size == 1:
        raise SettingsError(
            f"{asked} takes its readings from the last micro-batch, and one image has no "
            "negatives: use a micro_batch_size of 2 or more"
        )


def _check_debiased(settings: TrainImages) -> None:
    """Raises SettingsError where a debiased batch would have no best loss."""
    prior = settings.positive_prior
    if not prior or settings.critic == "cosine" or settings.objective not in ("rpc", "chi2", "js"):
        return
    beta, gamma = settings.beta or 0.0, settings.gamma or 0.0
    if settings.objective == "rpc" and beta > gamma * prior / (1 - prior):
        return
    raise SettingsError(
        f"positive_prior {prior} with {settings.objective} and unbounded scores (critic "
        f"{settings.critic}) has no best loss: use --critic cosine"
        + (
            f", or beta above gamma * prior / (1 - prior) = {gamma * prior / (1 - prior):.4g}"
            if settings.objective == "rpc"
            else ""
        )
    )


def _check_released(settings: TrainImages) -> None:
    """Raises SettingsError where the released code has no counterpart of a setting."""
    if not settings.released_devices:
        return
    for name in ("queue_size", "positive_prior", "moments_only", "moment_decay"):
        if getattr(settings, name):
            raise SettingsError(
                f"released_devices and {name} exclude each other, since the released code has no "
                "such thing: leave one out"
            )
    if settings.pairing != "two_view":
        raise SettingsError(
            f"released_devices belongs to pairing two_view, got {settings.pairing!r}"
        )
    try:
        objective = Released(OBJECTIVES[settings.objective](), settings.released_devices)
        objective.share(settings.batch_size)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"released_devices {settings.released_devices}: {error}") from None
