"""torch.compile: the same values and gradients, at any batch size, with no tile in a graph."""

import pytest
import torch
from torch import nn

from relatum import (
    OBJECTIVES,
    RPC,
    Bilinear,
    ContrastiveLoss,
    Cosine,
    DotProduct,
    JointMLP,
    gradient_penalty,
)
from relatum.scores import holding

# torch hides this one of its own, by a way that warnings made errors come before.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

D = 3
CASES = {
    "dense": ("cpc", Cosine(0.5, learn=True), "two_view", None, {}),
    "tiled": ("wpc", Cosine(0.5), "two_view", 2, {}),
    "tiled, running maximum": ("dv", Cosine(0.01), "in_batch", 2, {}),
    "tiled sums": ("js", DotProduct(), "in_batch_symmetric", 2, {}),
    "tiled maximum": ("hinge", Bilinear(D, D), "in_batch", 2, {}),
    "gram": ("rpc", DotProduct(2.0, learn=True), "two_view", None, {}),
    "gram, ids": ("chi2", Cosine(0.5), "in_batch", None, {"ids": lambda n: torch.arange(n) // 2}),
    "blocks": ("nwj", JointMLP(D, D, (4,)), "in_batch_symmetric", 2, {}),
    "bank": ("cpc", Cosine(0.5), None, None, {"negatives": lambda n: torch.ones(5, D).tril()}),
    "own": ("logistic", Cosine(0.5), None, None, {"negatives": lambda n: torch.ones(n, 4, D)}),
}
SIZES = [12, 9, 15, 4, *range(20, 26)]  # more than the compiler would make graphs for


@pytest.fixture(autouse=True)
def forgotten():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _counted():
    counters = torch._dynamo.utils.counters
    counters.clear()
    return counters["stats"]


def _equal_steps(step, modules, batches):
    """A step, compiled and not: values and gradients of all parameters."""
    compiled = torch.compile(step, backend="aot_eager")
    for batch in batches:
        outcomes = []
        for run in (step, compiled):
            modules.zero_grad()
            value = run(*batch)
            value.backward()
            outcomes.append([value.detach(), *(p.grad for p in modules.parameters())])
        for ours, expected in zip(*reversed(outcomes), strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_compiled_step_is_the_step(case, monkeypatch):
    objective, critic, pairing, block_size, given = CASES[case]
    if "gram" in case:
        monkeypatch.setattr(holding, "gram_pays", lambda *_: True)
    loss = ContrastiveLoss(OBJECTIVES[objective](), critic, pairing, block_size)
    modules = nn.ModuleDict({"encoder": nn.Linear(5, D), "loss": loss})

    def step(x, y):
        keywords = {name: make(len(x)) for name, make in given.items()}
        return 2 * loss(modules["encoder"](x), modules["encoder"](y), **keywords)

    stats = _counted()
    _equal_steps(step, modules, [torch.randn(2, n, 5) for n in SIZES])
    # The encoder is in a graph, tiles are in none, and no size of batch has a graph of its own.
    assert 2 <= stats["calls_captured"] < 30
    assert stats["unique_graphs"] < 8


def test_a_compiled_loss_and_its_parts():
    loss = ContrastiveLoss(RPC(), Cosine(0.5), "in_batch", block_size=2)
    compiled = torch.compile(loss, backend="aot_eager")
    for n in SIZES:
        x, y = torch.randn(n, D), torch.randn(n, D)
        torch.testing.assert_close(compiled(x, y), loss(x, y))
        with pytest.raises(ValueError, match="one row per pair"):
            compiled(x, y[1:])

    @torch.compile(backend="aot_eager")
    def parts(x, y):
        scores = loss.scores(2 * x, y)
        statistics = loss.statistics(x, y)
        return loss.from_scores(scores) + 0, loss.from_statistics(statistics) + 0

    for n in SIZES[:4]:
        x, y = torch.randn(n, D), torch.randn(n, D)
        for value in parts(x, y):
            torch.testing.assert_close(value, loss(x, y), check_dtype=False)


def test_a_compiled_gradient_penalty():
    critic = nn.Sequential(nn.Linear(5, 8), nn.Tanh())

    def step(x, y):
        return gradient_penalty(lambda a, b: (critic(a) * critic(b)).sum(1), 5 * x, 5 * y)

    _equal_steps(step, critic, [torch.randn(2, n, 5) for n in SIZES[:4]])
