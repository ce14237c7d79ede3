r"""Sums and gathers over processes, with gradient, and the one convention about its scale.

**The convention.** Every process computes the same loss, the one of the whole batch. The backward
pass of a collective is its exact transpose: all-reduce for all-reduce, reduce-scatter for gather.
So on each of R processes the gradient is R times that process's share, and the **mean** over
processes, which DistributedDataParallel and :func:`average_gradients` take, is the gradient of one
process that has all rows. This holds for any division of the rows, even or not.

Every process must make the same calls in the same order, as with any collective.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["ALONE", "Group", "average_gradients"]


@final
class Group:
    """The processes that share a batch.

    Args:
        processes: A process group of torch.distributed; None is this process alone.

    Attributes:
        rank: Number of this process.
        size: Number of processes, R.
        sent: Bytes that this process has handed to collectives, by kind. What travels depends on
            the algorithm: a ring moves 2 (R − 1) / R times an all-reduce's bytes, R − 1 times an
            all-gather's and (R − 1) / R times a reduce-scatter's.

    Example:
        >>> ALONE.sum(torch.ones(2)), ALONE.rows(5), ALONE
        (tensor([1., 1.]), [5], Group(alone))
    """

    def __init__(self, processes: dist.ProcessGroup | None = None) -> None:
        # torch.distributed keeps the group until it is destroyed. A reference of ours would keep
        # it until the interpreter ends, when its threads may abort the process.
        self._reference = None if processes is None else weakref.ref(processes)
        self.rank = 0 if processes is None else dist.get_rank(processes)
        self.size = 1 if processes is None else dist.get_world_size(processes)
        self.sent: Counter[str] = Counter()

    @classmethod
    def world(cls) -> Group:
        """All processes that torch.distributed knows of; this one alone if it is not in use."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.group.WORLD)

    @property
    def _processes(self) -> dist.ProcessGroup | None:
        if self._reference is None:
            return None
        if (found := self._reference()) is None:
            raise RuntimeError("the process group of this loss was destroyed: make a new one")
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Group:
        """Itself: a copy of a module, such as a moving average, is of the same processes."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """What a pickle holds: this process alone, or whatever processes there are when loaded."""
        if self._processes is None:
            return Group, ()
        if self._processes is dist.group.WORLD:
            return Group.world, ()
        raise TypeError(
            "a group of some of the processes cannot be pickled: save a state_dict, or the module "
            "with group=None"
        )

    def __repr__(self) -> str:
        return "Group(alone)" if self.size == 1 else f"Group({self.rank} of {self.size})"

    def sum(self, value: Tensor) -> Tensor:
        """The sum over processes, on each of them; differentiable."""
        if self.size == 1:
            return value
        out: Tensor = _Sum.apply(self, value)
        return out

    def rows(self, n: int) -> list[int]:
        """The number of rows of each process, this one having n."""
        if self.size == 1:
            return [n]
        mine = torch.zeros(self.size, dtype=torch.int64, device=self._device())
        mine[self.rank] = n
        counts: list[int] = self._all_reduce(mine).tolist()
        return counts

    def gather(self, value: Tensor, rows: list[int] | None = None) -> Tensor:
        """The rows of all processes, in order of rank; differentiable.

        Args:
            value: The rows of this process.
            rows: The number of rows of each process, if known (:meth:`rows`).
        """
        if self.size == 1:
            return value
        out: Tensor = _Gather.apply(self, value, self.rows(len(value)) if rows is None else rows)
        return out

    def everywhere(self, condition: bool) -> bool:
        """Whether a condition holds on all processes."""
        if self.size == 1:
            return condition
        failures = torch.tensor(0 if condition else 1, device=self._device())
        return int(self._all_reduce(failures)) == 0

    def _device(self) -> torch.device:
        """Where small numbers must lie for this group's backend."""
        name = "cuda" if "nccl" in str(dist.get_backend(self._processes)) else "cpu"
        return torch.device(name)

    def _all_reduce(self, value: Tensor) -> Tensor:
        total = value.detach().clone(memory_format=torch.contiguous_format)
        self.sent["all_reduce"] += total.numel() * total.element_size()
        dist.all_reduce(total, group=self._processes)
        return total

    def _all_gather(self, value: Tensor, rows: list[int]) -> Tensor:
        # Collectives want one shape everywhere: short parts are filled up, and cut after.
        part = value.new_zeros(max(rows), *value.shape[1:])
        part[: len(value)] = value.detach()
        parts = [torch.empty_like(part) for _ in rows]
        self.sent["all_gather"] += part.numel() * part.element_size()
        dist.all_gather(parts, part, group=self._processes)
        return torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)])

    def _reduce_scatter(self, value: Tensor, rows: list[int]) -> Tensor:
        if "nccl" in str(dist.get_backend(self._processes)):
            return self._reduce_scatter_at_once(value, rows)
        # One reduction for each receiver: every backend has it, and parts may be uneven.
        parts = [part.contiguous().clone() for part in torch.split(value, rows)]
        for receiver, part in enumerate(parts):
            self.sent["reduce_scatter"] += part.numel() * part.element_size()
            dist.reduce(part, group=self._processes, group_dst=receiver)
        mine: Tensor = parts[self.rank]
        return mine

    def _reduce_scatter_at_once(self, value: Tensor, rows: list[int]) -> Tensor:
        # R reductions after each other would take R times the hops of one ring.
        padded = value.new_zeros(len(rows), max(rows), *value.shape[1:])
        for to, part in zip(padded, torch.split(value, rows), strict=True):
            to[: len(part)] = part
        mine = torch.empty_like(padded[0])
        self.sent["reduce_scatter"] += padded.numel() * padded.element_size()
        dist.reduce_scatter_tensor(mine, padded.flatten(0, 1), group=self._processes)
        return mine[: rows[self.rank]]


ALONE = Group()
"""This process, on its own."""


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Group, value: Tensor) -> Tensor:
        ctx.group = group
        return group._all_reduce(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.group.sum(grad)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Group, value: Tensor, rows: list[int]) -> Tensor:
        ctx.group, ctx.rows = group, rows
        return group._all_gather(value, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        out: Tensor = _Scatter.apply(ctx.group, grad, ctx.rows)
        return None, out, None


class _Scatter(torch.autograd.Function):
    """Sums over processes, each of which keeps its own rows: the transpose of gathering."""

    @staticmethod
    def forward(ctx: Any, group: Group, value: Tensor, rows: list[int]) -> Tensor:
        ctx.group, ctx.rows = group, rows
        return group._reduce_scatter(value, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, ctx.group.gather(grad, ctx.rows), None


@torch.no_grad()
def average_gradients(parameters: Iterable[Tensor], group: Group) -> None:
    """Replaces each gradient by its mean over processes: the gradient of the whole batch.

    One all-reduce of all gradients laid end to end. Parameters without a gradient are left out; the
    same ones must be on every process.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if group.size == 1 or not gradients:
        return
    flat = group._all_reduce(torch.cat([g.flatten() for g in gradients])).div_(group.size)
    sizes = [g.numel() for g in gradients]
    for gradient, mean in zip(gradients, torch.split(flat, sizes), strict=True):
        gradient.copy_(mean.view_as(gradient))
