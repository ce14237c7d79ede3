"""Block similarity: scores averaged over several class mates, as if they were one candidate."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ..base import Critic, SeparableCritic

__all__ = ["over_blocks"]


def over_blocks(critic: Critic) -> Critic:
    r"""The critic of blocks: the mean score over the b rows of a block.

    .. math:: f(x, \{y_1, \dots, y_b\}) = \frac1b \sum_{s=1}^b f(x, y_s)

    Candidates (..., b, d) take the place of (..., d). Where the critic is an inner product so is
    this, with the mean of the factors of y, and all ways to hold scores serve it as they are.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et al.,
        2019), section 6.2. https://arxiv.org/abs/1902.09229

    Example:
        >>> import torch
        >>> from relatum.critics import DotProduct
        >>> x, mates = torch.tensor([[1.0, 0.0]]), torch.tensor([[[2.0, 0.0], [0.0, 2.0]]])
        >>> over_blocks(DotProduct())(x, mates)
        tensor([1.])
    """
    return _BlockFactors(critic) if isinstance(critic, SeparableCritic) else _BlockScores(critic)


class _BlockScores:
    """Mean scores of a critic that must see both sides of each pair."""

    symmetric = False

    def __init__(self, critic: Critic) -> None:
        self.critic = critic
        self.parameters = getattr(critic, "parameters", tuple)

    def __call__(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*c b dy"]) -> Tensor:
        return self.critic(x.unsqueeze(-2), y).mean(-1)


class _BlockFactors(_BlockScores):
    """Mean factors of a critic that is an inner product."""

    critic: SeparableCritic

    def __init__(self, critic: SeparableCritic) -> None:
        super().__init__(critic)
        self.rowwise = getattr(critic, "rowwise", False)

    def factors(
        self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*c b dy"]
    ) -> tuple[Tensor, Tensor]:
        u, v = self.critic.factors(x, y)
        # Rows that a critic of the user's own rounded to half are summed in float32.
        return u, (v.float() if v.dtype.itemsize < 4 else v).mean(-2)
