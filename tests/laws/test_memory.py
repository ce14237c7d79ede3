"""What is kept between forward and backward, counted in bytes of distinct storages."""

import gc

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from relatum import OBJECTIVES, RPC, Bilinear, ContrastiveLoss, Cosine, DotProduct, JointMLP
from relatum.scores import factors, gram, holding, reductions

NUMBER = 4  # bytes


def kept(forward, *inputs, closures=False):
    """Bytes beyond the inputs that autograd saves or, if asked, that a closure of its graph holds.

    Random states are left out: a checkpoint keeps one, of 5 kB, for each block.
    """
    before, storages = _tensors_alive() if closures else {}, {}
    before |= {t.untyped_storage().data_ptr(): t for t in inputs}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        value = forward(*inputs)
    assert value.requires_grad
    storages |= _tensors_alive() if closures else {}
    return sum(s.nbytes() for at, s in storages.items() if at not in before)


def _tensors_alive():
    gc.collect()
    # Exact types: what torch.compile leaves behind elsewhere has no memory of its own.
    found = [t for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter)]
    random_state = torch.get_rng_state().shape
    storages = (t.untyped_storage() for t in found if t.shape != random_state)
    return {s.data_ptr(): s for s in storages}


def _pairs(n, d):
    return [torch.randn(n, d, requires_grad=True) for _ in range(2)]


@pytest.mark.parametrize("bound", [reductions.LARGEST_BOUND, -1.0])
@pytest.mark.parametrize("pairing", ["two_view", "in_batch", "in_batch_symmetric", None, "masked"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_tiles_keep_the_factors_and_some_numbers_per_row(objective, pairing, bound, monkeypatch):
    monkeypatch.setattr(reductions, "LARGEST_BOUND", bound)
    monkeypatch.setattr(holding, "gram_pays", lambda *_: False)
    d = 2
    critic = Cosine(0.5) if pairing == "two_view" else Bilinear(d, d)
    masked = pairing == "masked"
    pairing = None if masked else pairing
    loss = ContrastiveLoss(OBJECTIVES[objective](), critic, pairing, block_size=16)

    def of(n):
        given = {"negatives": torch.randn(n, d)} if pairing is None else {}
        if masked:
            given |= {"negative_mask": torch.rand(n, n) < 0.5}
        return kept(lambda x, y: loss(x, y, **given), *_pairs(n, d))

    few, many = of(128), of(512)
    assert many < 4.01 * few
    # Factors of both sides, before and after the temperature, and 20 numbers of each row.
    assert many < 512 * 2 * (4 * d + 20) * NUMBER
    assert many < 512 * 512 * NUMBER / 10


@pytest.mark.parametrize("ids", [None, 1, 32])
@pytest.mark.parametrize("pairing", ["two_view", "in_batch", "in_batch_symmetric"])
def test_moments_keep_factors_and_square_matrices_at_any_size(pairing, ids, monkeypatch):
    """Bytes by N d are the same for 1,000 pairs as for 8,000; groups of 32 ids are no exception."""
    monkeypatch.setattr(factors, "_CACHED", 1 << 12)
    d = 16
    loss = ContrastiveLoss(RPC(), Cosine(0.5), pairing)

    def of(n):
        given = {} if ids is None else {"ids": torch.arange(n) // ids}
        return kept(lambda x, y: loss(x, y, **given), *_pairs(n, d))

    few, many = of(1000), of(8000)
    assert many < 8.01 * few
    assert many < (8000 * 2 * (5 * d + 10) + 20 * d**2) * NUMBER


class Largest(TorchDispatchMode):
    """The most numbers that any tensor made inside has."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else [out]:
            if isinstance(made, torch.Tensor):
                self.numbers = max(self.numbers, made.numel())
        return out


@pytest.mark.parametrize("size", [2, 8, 32, 128, 512])
def test_excluded_groups_take_no_more_than_the_factors(size, monkeypatch):
    """Whatever the size of groups: no row is gathered once for each pair of a large one."""
    monkeypatch.setattr(gram, "_CHUNK", 1 << 12)
    monkeypatch.setattr(gram, "_ALONE", 1 << 13)
    n, d = 512, 128
    x, y = _pairs(n, d)
    loss = ContrastiveLoss(RPC(), DotProduct(), "in_batch")
    scores = loss.scores(x, y, ids=torch.cat([torch.arange(n - 1) // size, torch.tensor([n])]))
    assert "Gram" in repr(scores.negatives)
    with Largest() as largest:
        loss.from_scores(scores).backward()
    assert largest.numbers <= n * d


def test_blocks_of_a_joint_critic_keep_no_hidden_layer_and_no_mask():
    n, d = 128, 4
    loss = ContrastiveLoss(RPC(), JointMLP(d, d, (8,)), "in_batch_symmetric", block_size=8)
    found = kept(loss, *_pairs(n, d), closures=True)
    assert found < n * n  # bytes: the masks alone have twice as many, hidden layers 64 times


def test_statistics_of_parts_keep_nothing_but_the_inputs():
    """Micro-batches: each part is encoded and summed up again in the backward pass."""
    d, part = 16, 250
    encoder = torch.nn.Linear(8, d)
    loss = ContrastiveLoss(RPC(), DotProduct(4.0), "two_view")

    def total(x, y):
        parts = [
            checkpoint(lambda a, b: loss.statistics(encoder(a), encoder(b)), a, b,
                       use_reentrant=False)
            for a, b in zip(x.split(part), y.split(part), strict=True)
        ]  # fmt: skip
        whole = parts[0]
        for more in parts[1:]:
            whole = whole.plus(more)
        return loss.from_statistics(whole)

    for n in (1000, 4000):
        x, y = torch.randn(2, n, 8)
        assert kept(total, x, y) < 10 * (d * d + d) * 8  # float64, whatever the number of parts
        torch.testing.assert_close(total(x, y).float(), loss(encoder(x), encoder(y)))


@pytest.mark.parametrize(
    "free", [0, 2**20, 2**28 - 1, 2**28, 10**9, 2**32, 8 * 10**9, 2**34, 2**40]
)
def test_tiles_on_a_gpu_take_a_sixteenth_of_its_free_memory(free, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2 * free))
    side = holding.tile_side(torch.device("cuda"))
    assert 512 <= side <= 8192
    assert side.bit_count() == 1
    peak = 4 * side**2 * NUMBER
    assert peak <= free / 16 or side == 512
    assert 4 * peak > free / 16 or side == 8192  # the next power of two would not fit
    assert holding.tile_side(torch.device("cpu")) == 512
