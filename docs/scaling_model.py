"""What one step of a loss costs: products, passes over memory, bytes sent, peak memory.

Counts follow the code of ``relatum.scores`` and ``relatum.distributed``; ``tests/test_scaling.py``
compares them with what torch and the processes do. Seconds come from a :class:`Machine`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from relatum.scores import factors, holding, reductions

REDUCTIONS = {
    "CPC": "logsumexp", "WPC": "logsumexp", "Logistic": "logsumexp", "DV": "logsumexp",
    "NWJ": "logsumexp", "JS": "mean", "Hinge": "maximum", "RPC": "moments", "chi2": "moments",
}  # fmt: skip
"""The one reduction of the negatives that an objective needs."""

WIDTH = 4  # bytes of a float32

ROW_PASSES = {
    ("two_view", "cosine"): 80, ("two_view", "dot"): 63,
    ("in_batch", "cosine"): 57, ("in_batch", "dot"): 41,
    ("in_batch_symmetric", "cosine"): 57, ("in_batch_symmetric", "dot"): 41,
}  # fmt: skip
"""How often the moments read or write a vector of d numbers for each pair, in parts."""

TILE_PASSES = {
    ("logsumexp", 1): 11, ("logsumexp", 2): 14, ("stable logsumexp", 1): 16,
    ("stable logsumexp", 2): 31, ("mean", 1): 14, ("mean", 2): 14, ("maximum", 1): 2,
    ("maximum", 2): 3,
}  # fmt: skip
"""How often tiles read or write a score, forward and backward, where the columns are candidates
(1) or anchors as well (2)."""


@dataclass(frozen=True)
class Loss:
    """One batch of one objective.

    Attributes:
        objective: A key of :data:`REDUCTIONS`.
        pairing: ``two_view``, ``in_batch`` or ``in_batch_symmetric``.
        pairs: N, on all processes together.
        dim: d, the width of the factors.
        processes: R; each holds N / R pairs.
        critic: ``cosine`` or ``dot``.
        temperature: What scores are divided by.
        tile: Side of a tile.
    """

    objective: str
    pairing: str
    pairs: int
    dim: int = 128
    processes: int = 1
    critic: str = "cosine"
    temperature: float = 0.5
    tile: int = 512

    @classmethod
    def named(cls, name: str, pairs: int, dim: int) -> Loss:
        """From the name of a row of the benchmark, as ``relatum CPC, two_view, cosine / 0.5``."""
        found = re.fullmatch(r"relatum (\w+), (\w+), (\w+) / ([\d.]+)", name)
        assert found is not None, name
        objective, pairing, critic, temperature = found.groups()
        return cls(objective, pairing, pairs, dim, 1, critic, float(temperature))

    @property
    def views(self) -> bool:
        """Whether both views are rows of one matrix."""
        return self.pairing == "two_view"

    @property
    def both(self) -> bool:
        """Whether candidates are anchors too."""
        return self.pairing == "in_batch_symmetric"

    @property
    def matrix(self) -> tuple[int, int]:
        """Anchors of a process and candidates of all, of one direction."""
        columns = 2 * self.pairs if self.views else self.pairs
        return ceil(columns / self.processes), columns

    @property
    def strategy(self) -> str:
        """How the negatives are held: the choice of scores/holding.py."""
        rows, columns = self.matrix
        if REDUCTIONS[self.objective] == "moments":
            if holding.gram_pays(columns, columns, self.dim):
                return "gram"
        return "tiled" if rows * columns > holding._DENSE else "dense"

    @property
    def reduction(self) -> str:
        """The reduction; with a running maximum where exponentials could overflow."""
        kind = REDUCTIONS[self.objective]
        unbounded = self.critic == "dot" or 1 / self.temperature > reductions.LARGEST_BOUND
        return f"stable {kind}" if kind == "logsumexp" and unbounded else kind

    @property
    def mirrored(self) -> bool:
        """Whether a tile above the diagonal speaks for its mirror image."""
        return self.views and self.processes == 1 and self.strategy == "tiled"

    @property
    def sides(self) -> int:
        """1 if columns are candidates alone in a tile, 2 if they are anchors as well."""
        return 2 if self.mirrored or (self.both and self.processes == 1) else 1

    @property
    def directions(self) -> int:
        """Matrices that are visited: several processes walk through both directions apart."""
        return 2 if self.both and self.processes > 1 else 1

    @property
    def visited(self) -> float:
        """Scores computed in a forward pass."""
        rows, columns = self.matrix
        if not self.mirrored:
            return self.directions * rows * columns
        sizes = [min(self.tile, rows - i) for i in range(0, rows, self.tile)]
        return (rows**2 + sum(size**2 for size in sizes)) / 2

    @property
    def flops(self) -> float:
        """Additions and multiplications in matrix products, forward and backward."""
        rows, columns = self.matrix
        if self.strategy == "gram":  # two Gram matrices, and one product with each going back
            return 8 * self.pairs / self.processes * self.dim**2
        if self.strategy == "dense":
            products = 3 * rows * columns * self.directions
        elif REDUCTIONS[self.objective] == "maximum":  # the winners alone have a gradient
            products = self.visited
        else:  # scores, scores again, and the gradients of both sides
            gradients = rows * columns if self.mirrored else 2 * self.visited
            products = 2 * self.visited + gradients
        return 2 * self.dim * products

    @property
    def row_numbers(self) -> float:
        """Numbers of the factors that are read or written, besides the products."""
        passes = ROW_PASSES[self.pairing, self.critic]
        return passes * self.dim * self.pairs / self.processes

    @property
    def score_numbers(self) -> float:
        """Numbers of tiles that are read or written, by products as well."""
        if self.strategy == "gram":
            return 0.0
        return TILE_PASSES[self.reduction, self.sides] * self.visited


@dataclass(frozen=True)
class Machine:
    """Seconds of the parts, on a CPU whose tiles stay in the cache.

    Attributes:
        product: Of an addition or multiplication in a product of tiles.
        exponential: Of an exponential of a score and the passes around it.
        mean: Of a score whose softplus is taken, with its slope and a second time going back.
        maximum: Of a score in a maximum, for each side that is an anchor.
        row: Of a number of a factor that is read or written.
        call: Of a call, whatever its size.
    """

    product: float
    exponential: float = 0.0
    mean: float = 0.0
    maximum: float = 0.0
    row: float = 0.0
    call: float = 0.0

    def seconds(self, loss: Loss) -> float:
        """Forward and backward, one process."""
        scores = {
            "moments": 0.0,
            "logsumexp": 2 * self.exponential,
            # Without a common bound, rows and columns need exponentials of their own.
            "stable logsumexp": 2 * loss.sides * self.exponential,
            "mean": self.mean,
            "maximum": loss.sides * self.maximum,
        }[loss.reduction]
        each = self.call + self.product * loss.flops + self.row * loss.row_numbers
        return each + scores * loss.visited


def added_bytes(loss: Loss) -> float:
    """Peak memory beyond the inputs, one process on a CPU; gradients of both inputs included."""
    inputs = 2 * loss.pairs * loss.dim * WIDTH
    scores = loss.matrix[0] * loss.matrix[1] * WIDTH
    tile = loss.tile**2 * WIDTH
    if loss.strategy == "gram":  # factors and gradients; the parts in work; ids
        return 2 * inputs + min(inputs, 2 * factors._CACHED * WIDTH) + 12 * loss.pairs
    if loss.strategy == "dense":
        return (5 if loss.both else 4) * scores + 2 * inputs
    kept = 3.0  # factors, their scaled or joined copy, its gradient
    if loss.reduction == "maximum":  # the winners and their products, of each side
        kept += 2 * loss.views + loss.both
    buffers = {"logsumexp": 2, "stable logsumexp": 4, "mean": 4, "maximum": 1}[loss.reduction]
    return kept * inputs + buffers * tile


@dataclass(frozen=True)
class Sent:
    """Bytes that a process hands to collectives, as ``Group.sent`` counts them."""

    all_reduce: int = 0
    all_gather: int = 0
    reduce_scatter: int = 0

    def travelling(self, processes: int) -> float:
        """Bytes that leave a process in rings."""
        r = processes
        around = 2 * (r - 1) / r * self.all_reduce + (r - 1) / r * self.reduce_scatter
        return around + (r - 1) * self.all_gather


def sent(loss: Loss, width: int = WIDTH, ids: bool = False, rows: int | None = None) -> Sent:
    """Bytes of a forward and backward pass of ``ContrastiveLoss``, several processes.

    Args:
        loss: The batch.
        width: Bytes of a number of the embeddings.
        ids: Whether each pair was given an id, all of them different.
        rows: The most pairs that any process has; N / R, rounded up, unless told.
    """
    r, d = loss.processes, loss.dim
    most = ceil(loss.pairs / r) if rows is None else rows
    anchors = 2 if loss.views or loss.both else 1  # of a pair
    kind = REDUCTIONS[loss.objective]
    # Row counts twice, the number of negatives; a mean over positives and its count, both ways.
    reduced, gathered, scattered = 2 * 8 * r + 8 + 4 * width, 0, 0
    if ids:
        gathered += 8 * most
    if kind == "moments":  # another mean; two sums; d² + d moments of each side both ways
        reduced += 4 * width + 4 * width + (2 if loss.both else 1) * 2 * (d * d + d) * width
        reduced += 8 if width < 8 else 0  # did anybody's sums cancel?
        return Sent(reduced, gathered, scattered)
    gathered += anchors * most * d * width
    scattered += anchors * loss.pairs * d * width
    if kind == "mean":
        reduced += 2 * width
    if loss.objective in ("DV", "NWJ"):  # one number for each anchor, whose count is agreed upon
        reduced += 8 * r
        gathered += anchors * most * width
        scattered += anchors * loss.pairs * width
    return Sent(reduced, gathered, scattered)


def sent_by_statistics(loss: Loss) -> Sent:
    """The same where sums over micro-batches are all that is kept (``--moments-only``)."""
    moments = (2 if loss.both else 1) * (loss.dim**2 + loss.dim)
    # Float64 both ways; then row counts, two counts of pairs, and four sums both ways.
    return Sent(2 * 8 * moments + 8 * loss.processes + 2 * 8 + 2 * 4 * 8)


@dataclass(frozen=True)
class Gpu:
    """Data sheet, and what is assumed beside it.

    Attributes:
        flops: Float32 products a second, without tensor cores.
        bandwidth: Bytes of its memory a second.
        memory: Bytes.
        node: GPUs of a node.
        inside: Bytes a second that leave a GPU within a node.
        outside: The same between nodes.
        share: Of both peaks that is reached.
        views: Views a second through a ResNet-50, forward and backward.
        hop: Seconds from one process to the next, however small the message.
        tile: Side of a tile.
    """

    flops: float = 67e12
    bandwidth: float = 3.35e12
    memory: float = 80e9
    node: int = 8
    inside: float = 450e9
    outside: float = 50e9
    share: float = 0.6
    views: float = 2500.0
    hop: float = 5e-6
    tile: int = 8192

    def seconds(self, loss: Loss) -> float:
        """Of the loss on each GPU, forward and backward, without the network."""
        numbers = loss.row_numbers + loss.score_numbers
        return (loss.flops / self.flops + numbers * WIDTH / self.bandwidth) / self.share

    def network(self, loss: Loss) -> float:
        """Of the loss's collectives: bytes in rings, and hops that nothing shortens.

        Sums of few numbers go up and down a tree.
        """
        r = loss.processes
        handed = sent(loss)
        tree = 2 * (r - 1).bit_length()
        hops = (12 if REDUCTIONS[loss.objective] == "moments" else 5) * tree
        if handed.reduce_scatter:  # a ring for the gather, and one going back
            hops += 2 * loss.directions * (r - 1)
        return handed.travelling(r) / self.pace(r) + hops * self.hop

    def pace(self, processes: int) -> float:
        """Bytes a second that leave a GPU."""
        return self.inside if processes <= self.node else self.outside

    def added_bytes(self, loss: Loss) -> float:
        """Peak on each GPU beyond the embeddings of its own rows."""
        own = 2 * loss.pairs / loss.processes * loss.dim * WIDTH
        numbered = 24 * loss.pairs  # ids of all candidates, on every process
        if loss.strategy == "gram":
            return 4 * own + numbered
        tiles = 4 * min(self.tile, loss.matrix[0]) * min(self.tile, loss.matrix[1]) * WIDTH
        # The gathered rows as scored, their gradient, and what it is copied into; or, where the
        # scores are kept for readings, the rows as gathered besides two of these.
        return 4 * own + 3 * gathered_bytes(loss) + tiles + numbered

    def encoder(self, pairs: float, micro: int = 256) -> float:
        """Seconds of both views of some pairs; micro-batches are encoded twice going forward."""
        again = 4 / 3 if pairs > micro else 1.0
        return again * 2 * pairs / self.views


def gathered_bytes(loss: Loss) -> float:
    """All candidates of a batch, as every process has them before a score is computed."""
    return (2 if loss.views or loss.both else 1) * loss.pairs * loss.dim * WIDTH
