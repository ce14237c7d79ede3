"""The cost model of docs/scaling.md counts what the code does, and its page is up to date."""

import importlib
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from relatum import OBJECTIVES, ContrastiveLoss, Cosine, DotProduct, Group
from relatum.base import Scores
from relatum.scores import from_matrix
from tests.laws import processes

DOCS = Path(__file__).resolve().parents[1] / "docs"
D = 16
NAMES = {"rpc": "RPC", "cpc": "CPC", "js": "JS", "dv": "DV", "hinge": "Hinge"}
CASES = [
    *((name, pairing, ids) for name in ("rpc", "cpc") for pairing in ("two_view", "in_batch")
      for ids in (False, True)),
    *(("cpc", pairing, False) for pairing in ("in_batch_symmetric",)),
    *((name, pairing, False) for name in ("js", "dv", "hinge")
      for pairing in ("two_view", "in_batch_symmetric")),
    ("rpc", "in_batch_symmetric", False),
]  # fmt: skip


@pytest.fixture
def model(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("scaling_model")


def handed(rank, size, shares):
    """Bytes that a step of each case hands to collectives; more rows than make sums cheaper."""
    found = {}
    for shares_of in shares:
        rows = shares_of[rank]
        first = sum(shares_of[:rank])
        for name, pairing, ids in CASES:
            group = Group.world()
            loss = ContrastiveLoss(OBJECTIVES[name](), Cosine(0.5), pairing, group=group)
            x, y = torch.randn(2, rows, D).requires_grad_()
            given = {"ids": torch.arange(first, first + rows)} if ids else {}
            loss(x, y, **given).backward()
            found[shares_of, name, pairing, ids] = dict(group.sent)
        for pairing in ("two_view", "in_batch", "in_batch_symmetric"):
            group = Group.world()
            loss = ContrastiveLoss(OBJECTIVES["rpc"](), Cosine(0.5), pairing, group=group)
            x, y = torch.randn(2, rows, D).requires_grad_()
            loss.from_statistics(loss.statistics(x, y)).backward()
            found[shares_of, "statistics", pairing, False] = dict(group.sent)
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_bytes_are_those_that_processes_hand_to_collectives(size, model):
    shares = [(150, 151, 149)[:size], (400, 301, 300)[:size]]
    for found in processes.run(handed, size, shares):
        assert len(found) == 2 * (len(CASES) + 3)
        for (rows, name, pairing, ids), counted in found.items():
            loss = model.Loss(NAMES.get(name, "RPC"), pairing, sum(rows), D, size)
            if name == "statistics":
                sent = model.sent_by_statistics(loss)
            else:
                sent = model.sent(loss, ids=ids, rows=max(rows))
            kinds = {kind: n for kind, n in vars(sent).items() if n}
            if name == "rpc" and ids:  # ids are compared; no group of equal ones spans processes
                counted = without_members(counted, loss)
            assert counted == kinds, (rows, name, pairing, ids)


def without_members(counted, loss):
    """What was sent but the number of shared rows of each process, which is 0 of each."""
    extra = 8 * loss.processes
    return {k: n - extra * (k == "all_reduce") for k, n in counted.items() if n}


class Counted(TorchDispatchMode):
    """Operations of matrix products, and numbers that all operations read or write."""

    FREE = frozenset(
        "view t transpose slice split detach expand unsqueeze alias _unsafe_view squeeze permute "
        "empty empty_like new_empty as_strided select _reshape_alias unbind _local_scalar_dense "
        "zeros_like".split()
    )

    def __init__(self, least=0):
        super().__init__()
        self.flops = self.numbers = 0
        self.least = least  # numbers of a tensor that counts

    def size(self, tensor):
        if tensor.numel() < self.least or tensor.dtype == torch.bool:
            return 0
        return 1 if 0 in tensor.stride() else tensor.numel()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        tensors = [t for t in args if isinstance(t, torch.Tensor)]
        if name in ("mm", "addmm_"):
            a, b = tensors[-2:]
            self.flops += 2 * a.shape[0] * a.shape[1] * b.shape[1]
        if name == "cat":
            tensors = list(args[0])
        if name not in self.FREE:
            outs = out if isinstance(out, (tuple, list)) else [out]
            outs = [t for t in outs if isinstance(t, torch.Tensor)]
            self.numbers += sum(map(self.size, (*tensors, *outs)))
        return out


def counts(objective, critic, pairing, pairs, dim, side=None):
    x, y = torch.randn(2, pairs, dim)
    x.requires_grad_(), y.requires_grad_()
    loss = ContrastiveLoss(OBJECTIVES[objective](), critic, pairing, side)
    with Counted(0 if side is None else side**2) as counted:
        torch.autograd.grad(loss(x, y), (x, y))
    return counted


PAIRINGS = ["two_view", "in_batch", "in_batch_symmetric"]


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("critic", ["cosine", "dot"])
def test_work_of_moments(pairing, critic, model):
    made = Cosine(0.5) if critic == "cosine" else DotProduct(128.0)
    for pairs in (8192, 16384):  # two parts and four
        counted = counts("rpc", made, pairing, pairs, 128)
        loss = model.Loss("RPC", pairing, pairs, critic=critic)
        assert counted.flops == loss.flops
        # The model leaves out what does not grow with d.
        assert counted.numbers == pytest.approx(loss.row_numbers, rel=0.1)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("objective", ["cpc", "js", "hinge", "stable"])
def test_work_of_tiles(pairing, objective, model):
    pairs, dim, side = 2048, 2, 128  # only tiles are as large as a tile
    temperature = 0.02 if objective == "stable" else 0.5
    name = "cpc" if objective == "stable" else objective
    critic = Cosine(temperature)
    counted = counts(name, critic, pairing, pairs, dim, side)
    loss = model.Loss(NAMES[name], pairing, pairs, dim, temperature=temperature, tile=side)
    assert loss.strategy == "tiled"
    assert counted.flops == loss.flops
    # The model leaves out masking, which a few tiles need.
    assert counted.numbers == pytest.approx(loss.score_numbers, rel=0.08)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_products_of_dense_scores(pairing, model):
    counted = counts("cpc", Cosine(0.5), pairing, 64, 8)
    loss = model.Loss("CPC", pairing, 64, 8)
    assert loss.strategy == "dense"
    assert counted.flops == loss.flops


def test_several_processes_share_the_work_without_the_symmetry_of_one(model):
    one, many = (model.Loss("CPC", "two_view", 65536, processes=r) for r in (1, 8))
    # (2N)² / R scores twice, and two gradients; one process visits half of them.
    assert many.flops == 4 * 2 * 128 * (2 * 65536) ** 2 / 8
    assert one.flops == pytest.approx(2 * 2 * 128 * (2 * 65536) ** 2, rel=0.01)
    assert many.score_numbers == 11 * (2 * 65536) ** 2 / 8


def test_rings(model):
    # Four processes pass 3 of 4 quarters on, twice for a sum; a gather passes 3 whole parts on.
    assert model.Sent(all_reduce=400).travelling(4) == 600
    assert model.Sent(reduce_scatter=400).travelling(4) == 300
    assert model.Sent(all_gather=400).travelling(4) == 1200


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("objective", ["rpc", "cpc", "js"])
def test_strategies_are_those_that_the_library_chooses(objective, pairing, model):
    for pairs in (30, 100, 200, 300):
        x, y = torch.randn(2, pairs, 128)
        scores = ContrastiveLoss(OBJECTIVES[objective](), Cosine(0.5), pairing).scores(x, y)
        strategy = scores.negatives.strategy
        held = model.Loss(NAMES[objective], pairing, pairs).strategy
        if held == "gram":
            assert repr(strategy).startswith("Gram")
        else:
            strategy = getattr(strategy, "rest", strategy)  # kept for the other reductions
            strategy = getattr(strategy, "forward", strategy)
            assert repr(strategy).lower().startswith(held)


def test_counts_beyond_the_whole_numbers_of_float32():
    # One more than float32 can count to: the sum is off by one at most, it does not stall.
    n = 2**24 + 3
    scores = Scores(torch.full((n,), 3.0), from_matrix(torch.zeros(2, 2)).negatives)
    assert float(scores.average(scores.positives)) == pytest.approx(3, rel=1e-6)


def test_moments_of_many_rows():
    """Float32 sums over long parts of narrow factors: the worst that the page speaks of."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 2**20, 4, generator=generator)
    loss = ContrastiveLoss(OBJECTIVES["rpc"](), Cosine(0.5), "in_batch")
    single, double = (loss.scores(a, b).negatives.moments()[1] for a, b in
                      ((x, y), (x.double(), y.double())))  # fmt: skip
    assert float(single) == pytest.approx(float(double), rel=1e-4)


def test_page_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    module = importlib.import_module("fill_scaling")
    page = (DOCS / "scaling.md").read_text(encoding="utf-8")
    assert module.filled(page) == page
