"""What a run will cost, before it starts: parameters, memory, arithmetic and time.

Arithmetic and activations of the networks are counted at the run's image size on tensors without
contents, so that this costs nothing. One real step says how much arithmetic a whole step is, in
units of such a pass, and how fast this machine does it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ...data import ImageTable, Splits
from ...models import held_statistics
from ...penalty import gradient_penalty
from ...settings import SettingsError
from ...training import TrainingState
from ..continuing import own_share
from .build import Networks
from .modes import evaluation
from .resolve import set_name, stored_size
from .settings import TrainImages
from .step import ContrastiveStep

__all__ = ["Estimate", "estimate", "known_rows", "made_images", "span"]

ROWS: Final = {
    "mnist5k": 4_000,
    "digits": 1_437,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "stl10": 105_000,
    "imagenet": 1_281_167,
    "omniglot": 15_424,
    "celeba": 162_770,
}
"""Training images of the known sets (of those without a test split, four fifths)."""

TINY: Final = 64  # largest side of made images, pixels
_PASSES: Final = 2  # views of a counted pass: batch normalisation needs more than one


def known_rows(settings: TrainImages) -> int:
    """The number of training images of a known set, for a dry run without the data.

    Raises:
        SettingsError: If the set is not known.
    """
    if (name := set_name(settings)) not in ROWS:
        raise SettingsError(
            f"tiny knows the sizes of {', '.join(ROWS)}; leave it out for data {settings.data!r}"
        )
    return min(ROWS[name], settings.limit or ROWS[name])


def made_images(settings: TrainImages, count: int = 2) -> Splits:
    """Images of noise, of the run's size but at most 64 pixels unless the encoder is timm's."""
    side = stored_size(settings)
    if not settings.encoder.startswith("timm:"):  # many of which take images of one size alone
        side = min(TINY, side)
    generator = torch.Generator().manual_seed(settings.seed)
    pixels = torch.randint(0, 256, (count, 3, side, side), generator=generator, dtype=torch.uint8)
    table = ImageTable(
        pixels=pixels,
        labels=torch.full((count,), -1),
        ids=tuple(f"made:{i}" for i in range(count)),
        rows=torch.arange(count),
        classes=(),
        source="made",
    )
    return Splits(table, table, "made images")


@dataclass(frozen=True)
class Estimate:
    """The cost of a run."""

    parameters: dict[str, int]
    """Numbers of weights of encoder, head and critic."""
    held: int
    """Bytes of weights, gradients and the optimiser's state."""
    activations: int
    """Bytes that the networks keep of one image, all its views, for the backward pass: counted in
    32-bit floats, of which autocast saves up to half."""
    penalty: int
    """Bytes that WPC's gradient penalty keeps of one image besides: of its views, its interpolates
    and the graph of their gradient. Autocast saves nothing of them."""
    flops: float
    """Floating-point operations of a step, an image (a multiplication with its addition is two)."""
    pace: float
    """Operations a second of all processes together in the step that was measured."""

    def seconds(self, images: int) -> float:
        """For so many images, at the pace measured."""
        return images * self.flops / self.pace


def estimate(
    step: ContrastiveStep, state: TrainingState, settings: TrainImages, rows: Tensor
) -> Estimate:
    """Counts a pass at the run's size and takes two real steps with the rows; changes the state."""
    networks, size = step.networks, stored_size(settings)
    whole, kept = _counted_pass(networks, size)
    here, _ = _counted_pass(networks, step.augmentation.size)
    with FlopCounterMode(display=False) as counter:
        _update(step, state, rows)
    began = time.perf_counter()
    _update(step, state, rows)
    elapsed = time.perf_counter() - began
    share = own_share(len(rows), step.group)
    flops = counter.get_total_flops()
    return Estimate(
        parameters={
            name: sum(p.numel() for p in module.parameters())
            for name, module in networks._asdict().items()
        },
        held=_held(state),
        activations=kept * (1 + step.positives),
        penalty=_kept_by_penalty(networks, size) if step.penalty else 0,
        flops=flops / (share.stop - share.start) * whole / here,
        pace=flops / elapsed * step.group.size,
    )


def _update(step: ContrastiveStep, state: TrainingState, rows: Tensor) -> None:
    state.optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(step(rows, 0).loss)
    state.optimizer.step()
    if step.images.device.type == "cuda":
        torch.cuda.synchronize()


def _held(state: TrainingState) -> int:
    """Bytes of parameters, gradients and what the optimiser remembers of them."""
    tensors: list[Tensor] = [*state.parameters()]
    tensors += [p.grad for p in state.parameters() if p.grad is not None]
    for values in state.optimizer.state.values():
        tensors += [value for value in values.values() if isinstance(value, Tensor)]
    return sum(each.numel() * each.element_size() for each in tensors)


def _counted_pass(networks: Networks, size: int) -> tuple[float, int]:
    """Operations, and bytes kept for the backward pass, of one view through encoder and head."""
    chain = nn.Sequential(networks.encoder, networks.head)
    weights, views = _without_contents(chain), torch.empty(_PASSES, 3, size, size, device="meta")
    with FlopCounterMode(display=False) as counter, _kept(weights) as kept:
        output = torch.func.functional_call(chain, weights, (views,))
    del output  # it held what was kept, so that no storage took another's place
    return counter.get_total_flops() / _PASSES, sum(kept.values()) // _PASSES


def _kept_by_penalty(networks: Networks, size: int) -> int:
    """Bytes kept of an image for the gradient penalty's backward pass."""
    chain = nn.Sequential(networks.encoder, networks.head)
    weights = _without_contents(chain)

    def scores(x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = torch.func.functional_call(chain, weights, (torch.cat([x, y]),))
        return z.chunk(2)[0].mul(z.chunk(2)[1]).sum(1)  # of any critic this is the least part

    # A pair of views and one of interpolates, after the views whose statistics are held.
    x, y = (torch.empty(2, 3, size, size, device="meta") for _ in range(2))
    views = torch.empty(2, 3, size, size, device="meta")
    parts = (networks.encoder, networks.head)
    run = partial(torch.func.functional_call, chain, weights, (views,))
    with _kept(weights) as kept, evaluation(*parts), held_statistics(parts, run):
        penalty = gradient_penalty(scores, x, y)
    del penalty
    return sum(kept.values())


def _without_contents(module: nn.Module) -> dict[str, Tensor]:
    """Its parameters and buffers as tensors without contents, by name."""
    return {
        name: torch.empty_like(value, device="meta").requires_grad_(value.requires_grad)
        for name, value in [*module.named_parameters(), *module.named_buffers()]
    }


@contextmanager
def _kept(weights: dict[str, Tensor]) -> Iterator[dict[int, int]]:
    """The bytes of every storage that autograd keeps meanwhile, but for those of the weights."""
    own = {each.untyped_storage()._cdata for each in weights.values()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


def span(seconds: float) -> str:
    """A time in the unit that suits it.

    Example:
        >>> span(90), span(3235.8 * 60)
        ('1.5 minutes', '2.2 days')
    """
    for unit, length in (("days", 86_400), ("hours", 3_600)):
        if seconds > 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds / 60:.1f} minutes"
