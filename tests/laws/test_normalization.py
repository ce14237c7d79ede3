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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype):
    """Statistics are float32: sums of 2,000 numbers near 50 do not fit in half."""
    x = (torch.randn(2000, 4) + 50).to(dtype)
    found, exact = SynchronizedBatchNorm(nn.BatchNorm1d(4), ALONE), nn.BatchNorm1d(4).double()
    expected = exact(x.double())
    out = found(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out, expected.to(dtype))
    torch.testing.assert_close(found.running_var, exact.running_var.float())


def test_one_value_a_channel_has_no_variance():
    layer = SynchronizedBatchNorm(nn.BatchNorm1d(4), ALONE)
    with pytest.raises(ValueError, match=r"more than one value per channel .* \(1, 4\)"):
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
