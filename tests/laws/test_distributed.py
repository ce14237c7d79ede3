"""One, two and three processes have the loss and the gradients of one process with all rows."""

import copy
import gc
import io
import itertools
import pickle
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn

from relatum import (
    OBJECTIVES,
    Bilinear,
    ContrastiveLoss,
    Cosine,
    DotProduct,
    Group,
    JointMLP,
    TwoTower,
)
from relatum.distributed import ALONE, average_gradients
from relatum.scores import holding
from tests.laws import processes

# Rows of each process: uneven, and one process with a single row.
SHARES = {1: [9], 2: [5, 4], 3: [4, 1, 4]}
IDS = {
    "none": None,
    # Copies on one process, on two, on all three, and rows that belong to nobody.
    "shared": [7, 7, 2, 3, 7, 5, 2, 8, -1],
    "nobody": [-1, -1, 4, 4, -1, -1, 9, -1, 4],
}
D = 3


def critics():
    torch.manual_seed(3)
    return {
        "cosine": Cosine(0.5, learn=True),
        "dot": DotProduct(2.0),
        "bilinear": Bilinear(D, D),
        "tower": TwoTower(nn.Linear(D, 4), temperature=0.7),
        "joint": JointMLP(D, D, hidden=(5,)),
    }


def cases():
    for critic, pairing in itertools.product(
        critics(), ["two_view", "in_batch", "in_batch_symmetric"]
    ):
        if pairing == "two_view" and critic in ("bilinear", "joint"):
            continue
        for ids, objective in itertools.product(IDS, OBJECTIVES):
            for block_size, gram in ((None, False), (2, False), (None, True)):
                if gram and (objective not in ("rpc", "chi2") or critic == "joint"):
                    continue
                # Tiles and blocks know reductions alone: one objective for each of the four.
                if block_size and (
                    objective not in ("cpc", "js", "rpc", "hinge") or ids == "nobody"
                ):
                    continue
                yield critic, pairing, ids, objective, block_size, gram


def losses_and_gradients(rank, size, group=None):
    """Loss, input gradients / R and averaged parameter gradients of every case."""
    group = Group.world() if group is None else group
    torch.manual_seed(0)
    x, y = torch.randn(2, 9, D, dtype=torch.float64)
    weight = torch.randn(D, D, dtype=torch.float64)
    first = sum(SHARES[size][:rank])
    mine = slice(first, first + SHARES[size][rank])
    found, pays = {}, holding.gram_pays
    for case in cases():
        name, pairing, ids, objective, block_size, gram = case
        holding.gram_pays = (lambda *_: True) if gram else pays
        critic = critics()[name].double()
        encoder = nn.Parameter(weight.clone())
        loss = ContrastiveLoss(OBJECTIVES[objective](), critic, pairing, block_size, group)
        given = {} if IDS[ids] is None else {"ids": torch.tensor(IDS[ids])[mine]}
        a, b = x[mine] @ encoder, y[mine].t().contiguous().t() @ encoder
        value = loss(a, b, **given)
        value.backward()
        parameters = [encoder, *critic.parameters()]
        average_gradients(parameters, group)
        found[case] = [value.detach(), *(p.grad for p in parameters)]
    holding.gram_pays = pays
    return found


@pytest.fixture(scope="module")
def truth():
    return losses_and_gradients(0, 1, ALONE)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_loss_and_gradients_of_any_division(size, truth):
    for found in processes.run(losses_and_gradients, size):
        assert found.keys() == truth.keys()
        for case, values in found.items():
            for a, b in zip(values, truth[case], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=str(case))


def bytes_sent(rank, size, rows, ids):
    """What one step with RPC hands to collectives, forward and backward."""
    group = Group.world()
    loss = ContrastiveLoss(OBJECTIVES["rpc"](), DotProduct(), "in_batch", group=group)
    x, y = torch.randn(2, rows, 16, dtype=torch.float64).requires_grad_()
    given = {}
    if ids:  # one id of every process is shared by a row of each other, the rest are distinct
        own = torch.arange(rows) + rows * (rank + 1)
        own[0] = 5
        given = {"ids": own}
    loss(x, y, **given).backward()
    return dict(group.sent)


@pytest.mark.parametrize("size", [2, 3])
def test_rpc_sends_moments_whatever_the_number_of_rows(size):
    """Forward and backward: d² + d moments, the sums of positives and negatives, and row counts."""
    d, wide = 16, 8
    moments = 2 * (d * d + d) * wide
    # E_P f, E_P f², E_Q f, E_Q f²: each mean over positives carries its count.
    sums = 2 * (2 + 2 + 2) * wide
    # Row counts are agreed upon twice, then the number of negatives and the check for cancellation.
    whole_numbers = (2 * size + 1 + 1) * 8
    for rows in (300, 1200):
        for sent in processes.run(bytes_sent, size, rows, False):
            assert sent["all_reduce"] <= moments + sums + whole_numbers
            assert sent.keys() == {"all_reduce"}


def test_rpc_with_ids_sends_ids_and_the_members_of_shared_groups():
    small, large = (processes.run(bytes_sent, 2, rows, True)[0] for rows in (300, 1200))
    # One id per row; then one member, its id, and the member's gradient to each process.
    member = 16 * 8 + 8
    assert small["all_gather"] == 300 * 8 + member
    assert large["all_gather"] == 1200 * 8 + member
    assert small["reduce_scatter"] == large["reduce_scatter"] == 2 * 16 * 8
    assert small["all_reduce"] == large["all_reduce"]


def without_rows(rank, size):
    x = torch.randn(0 if rank else 3, 2)
    try:
        ContrastiveLoss(OBJECTIVES["cpc"](), Cosine(), group=Group.world())(x, x)
    except ValueError as error:
        return str(error)
    return "no error"


def test_a_process_without_rows_is_an_error_on_all():
    for message in processes.run(without_rows, 2):
        assert "at least one pair, they have [3, 0]" in message


def copied(rank, size):
    """The loss, and that of a deep copy, a pickle and a state of it."""
    torch.manual_seed(rank)
    x, y = torch.randn(2, 4, D)
    loss = ContrastiveLoss(OBJECTIVES["cpc"](), Cosine(0.5, learn=True), group=Group.world())
    assert list(loss.state_dict()) == ["critic.temperature.log_scale"]
    buffer = io.BytesIO()
    torch.save(loss, buffer)
    buffer.seek(0)
    others = [copy.deepcopy(loss), torch.load(buffer, weights_only=False)]
    if size > 1:
        part = ContrastiveLoss(OBJECTIVES["cpc"](), Cosine(), group=Group(dist.new_group([0, 1])))
        assert copy.deepcopy(part).group.size == 2
        with pytest.raises(TypeError, match="cannot be pickled: save a state_dict"):
            pickle.dumps(part)
    return [loss(x, y).detach(), *(other(x, y).detach() for other in others)]


@pytest.mark.parametrize("size", [1, 2])
def test_a_loss_with_a_group_can_be_copied_and_saved(size):
    for first, *others in processes.run(copied, size):
        assert all(torch.equal(first, other) for other in others)


def scattered(rank, size):
    """Both ways of summing rows that processes keep parts of: as NCCL does it, and as gloo."""
    group, rows = Group.world(), SHARES[size]
    value = torch.arange(9.0 * 2).view(9, 2) * (rank + 1)
    try:
        at_once = group._reduce_scatter_at_once(value, rows)
    except RuntimeError as error:  # this torch's gloo cannot
        at_once = str(error)
    return at_once, group._reduce_scatter(value, rows)


@pytest.mark.parametrize("size", [2, 3])
def test_reduce_scatter_at_once_and_one_by_one(size):
    whole = torch.arange(9.0 * 2).view(9, 2) * sum(range(1, size + 1))
    parts = torch.split(whole, SHARES[size])
    for part, (at_once, one_by_one) in zip(parts, processes.run(scattered, size), strict=True):
        assert torch.equal(one_by_one, part)
        if isinstance(at_once, str):
            pytest.skip(f"gloo of this torch: {at_once}")
        assert torch.equal(at_once, part)


def test_a_group_does_not_outlive_the_one_of_torch(tmp_path):
    """What still holds a process group when the interpreter ends can abort it."""
    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    group, held = Group.world(), weakref.ref(dist.group.WORLD)
    assert held() is not None
    dist.destroy_process_group()
    gc.collect()
    assert held() is None
    with pytest.raises(RuntimeError, match="was destroyed: make a new one"):
        pickle.dumps(group)
