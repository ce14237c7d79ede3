"""A bank (queue) of past embeddings, used as a larger set of negatives."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

__all__ = ["BankContents", "EmbeddingBank"]


class BankContents(NamedTuple):
    """The filled rows of a bank; their order has no meaning."""

    embeddings: Float[Tensor, "m d"]
    ids: Int64[Tensor, " m"]


@final
class EmbeddingBank(nn.Module):
    """The last `size` embeddings with their image ids; the oldest are overwritten first.

    Rows that were never filled are never handed out, so no made-up vector serves as a negative.
    Content, ids and pointer are buffers: they are part of the checkpoint. A batch need not divide
    the size, and of a batch larger than the bank the newest rows stay.

    The embeddings come from past states of the encoder (there is no momentum encoder), so a long
    bank holds stale rows: at a large learning rate keep it short.

    Args:
        size: Number of rows, at least 1.
        dim: Width of an embedding.

    Example:
        >>> bank = EmbeddingBank(5, 1)
        >>> for batch in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        ...     keys = torch.tensor(batch)
        ...     bank.push(keys[:, None], keys.long())
        >>> sorted(bank.contents().ids.tolist()), int(bank.ids[bank.pointer])   # all, the oldest
        ([2, 3, 4, 5, 6], 2)
    """

    embeddings: Tensor
    ids: Tensor
    pointer: Tensor
    filled: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        if size < 1 or dim < 1:
            raise ValueError(f"size and dim of a bank must be at least 1, got {size} and {dim}")
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("ids", torch.full((size,), -1))
        self.register_buffer("pointer", torch.tensor(0))
        self.register_buffer("filled", torch.tensor(0))

    @torch.no_grad()
    def push(self, embeddings: Float[Tensor, "n d"], ids: Int64[Tensor, " n"]) -> None:
        """Adds rows (without gradient), the last one being the newest."""
        size = len(self.ids)
        embeddings, ids = embeddings.detach()[-size:], ids[-size:]
        places = (self.pointer + torch.arange(len(ids), device=self.ids.device)) % size
        self.embeddings[places] = embeddings.to(self.embeddings)
        self.ids[places] = ids.to(self.ids)
        self.pointer.copy_((self.pointer + len(ids)) % size)
        self.filled.copy_((self.filled + len(ids)).clamp(max=size))

    def contents(self) -> BankContents:
        """A copy of the filled rows (the next :meth:`push` does not change it)."""
        filled = int(self.filled)
        return BankContents(self.embeddings[:filled].clone(), self.ids[:filled].clone())
