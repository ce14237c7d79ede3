"""Batch normalisation over processes is torch's on all rows; group normalisation ties no rows."""

import pytest
import torch
from torch import nn

from relatum.distributed import ALONE, Group, average_gradients
from relatum.models import group_normalized, synchronized
from relatum.models.normalization import SynchronizedBatchNorm
from tests.laws import processes

LAYERS = {
    "plain": {},
    "plain average of batches": {"momentum": None},
    "without scale and offset": {"affine": False},
    "without running statistics": {"track_running_stats": False},
}


def three_batches(rank, size, group=None):
    """Outputs, gradients and running statistics of three training batches of 7 rows."""
    found = {}
    for name, options in LAYERS.items():
        torch.manual_seed(0)
        network = nn.Sequential(nn.BatchNorm2d(3, **options)).double()
        for parameter in network.parameters():
            nn.init.uniform_(parameter)
        if group != "torch":
            synchronized(network, Group.world())
        batches = 3 * torch.randn(3, 7, 3, 2, 2, dtype=torch.float64) + 50
        slopes = torch.randn(7, 3, 2, 2, dtype=torch.float64)
        mine, values = slice(7 * rank // size, 7 * (rank + 1) // size), []
        for batch in batches:
            x = batch[mine].contiguous(memory_format=torch.channels_last).requires_grad_()
            network.zero_grad()
            out = network(x)
            Group.world().sum((out**2 * slopes[mine]).sum()).backward()
            average_gradients(network.parameters(), Group.world())
            values += [out.detach(), x.grad / size, *(p.grad.clone() for p in network.parameters())]
        found[name] = (values, [b.clone() for b in network.buffers()])
        if options.get("track_running_stats", True):
            network.eval()
            found[name][1].append(network(batches[0]).detach())
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_synchronised_is_torchs_on_all_rows(size):
    truth = three_batches(0, 1, "torch")
    for rank, found in enumerate(processes.run(three_batches, size)):
        mine = slice(7 * rank // size, 7 * (rank + 1) // size)
        for name, (values, statistics) in truth.items():
            own = [v[mine] if v.ndim == 4 else v for v in values]
            for a, b in zip(found[name][0] + found[name][1], own + statistics, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=name)


def half_precision(rank, size, dtype):
    """Output, gradient at the input and running variance, of 2,000 rows near 50."""
    torch.manual_seed(0)
    x, slopes = (torch.randn(2000, 4) + 50).to(dtype), torch.randn(2000, 4).to(dtype)
    mine = slice(2000 * rank // size, 2000 * (rank + 1) // size)
    layer = SynchronizedBatchNorm(nn.BatchNorm1d(4), Group.world())
    own = x[mine].requires_grad_()
    out = layer(own)
    out.backward(slopes[mine])
    exact, wide = nn.BatchNorm1d(4).double(), x.double().requires_grad_()
    expected = exact(wide)
    expected.backward(slopes.double())
    truth = (expected[mine].detach(), wide.grad[mine], exact.running_var)
    return (out.detach(), own.grad, layer.running_var), truth


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 2])
def test_half_precision_is_rounded_once(dtype, size):
    """Statistics are float32: sums of 2,000 numbers near 50 do not fit in half."""
    for found, truth in processes.run(half_precision, size, dtype):
        assert [each.dtype for each in found] == [dtype, dtype, torch.float32]
        for a, b in zip(found, truth, strict=True):
            torch.testing.assert_close(a, b.to(a.dtype))


def kept(rank, size):
    """Bytes that the layer keeps for the backward pass, of an input of 2 bytes a number."""
    layer = SynchronizedBatchNorm(nn.BatchNorm2d(3), Group.world())
    x = torch.randn(4, 3, 8, 8, dtype=torch.bfloat16, requires_grad=True)
    found = {}

    def keep(tensor):
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = layer(x)
    del out
    return sum(found.values()), x.numel()


@pytest.mark.parametrize("size", [1, 2])
def test_the_input_is_all_that_is_kept(size):
    """As torch's layer does: the input, and a few numbers a channel."""
    for held, numbers in processes.run(kept, size):
        assert 2 * numbers <= held < 2 * numbers + 200


def second_derivative(rank, size):
    layer = SynchronizedBatchNorm(nn.BatchNorm1d(3), Group.world()).double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    try:
        slope.square().sum().backward()
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_a_second_derivative_is_refused_and_not_wrong():
    for said in processes.run(second_derivative, 2):
        assert "once_differentiable" in said


def costs_nothing(rank, size):
    layer = SynchronizedBatchNorm(nn.BatchNorm1d(4), Group.world()).to("meta")
    return layer(torch.empty(5, 4, device="meta")).shape


def test_tensors_without_contents_are_not_sent():
    assert processes.run(costs_nothing, 2) == [(5, 4)] * 2


def test_one_value_a_channel_has_no_variance():
    layer = SynchronizedBatchNorm(nn.BatchNorm1d(4), ALONE)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(torch.randn(1, 4))
    assert layer.eval()(torch.randn(1, 4)).isfinite().all()


@pytest.mark.parametrize(
    ("channels", "groups"), [(1, 1), (6, 1), (10, 1), (16, 2), (20, 2), (96, 4), (2048, 32)]
)
def test_groups_tie_no_rows(channels, groups):
    network = nn.Sequential(nn.BatchNorm1d(channels), nn.BatchNorm1d(channels, affine=False))
    scale = nn.init.uniform_(network[0].weight)
    network[0].register_parameter("bias", None)
    group_normalized(network)
    assert [layer.num_groups for layer in network] == [groups] * 2
    assert network[0].weight is scale
    assert list(network.parameters()) == [scale]
    x = torch.randn(5, channels, 3)
    torch.testing.assert_close(network(x)[2:3], network(x[2:3]))
    parts = x.view(5, groups, -1)
    normal = (parts - parts.mean(2, keepdim=True)) / (
        parts.var(2, correction=0, keepdim=True) + 1e-5
    ).sqrt()
    torch.testing.assert_close(network[0](x), normal.view_as(x) * scale[:, None])


@pytest.mark.parametrize("convert", [group_normalized, lambda net: synchronized(net, ALONE)])
def test_layers_that_stand_twice_or_alone(convert):
    layer = nn.BatchNorm1d(4)
    network = nn.Sequential(layer, nn.ReLU(), layer, nn.Sequential(layer))
    convert(network)
    assert network[0] is network[2] is network[3][0]
    assert type(network[0]) is not nn.BatchNorm1d
    with pytest.raises(ValueError, match="put it into a Sequential"):
        convert(layer)
