"""SimCLRv2's ResNets against published sizes, closed-form counts and explicit loops."""

import pytest
import torch
from torch import nn

from relatum.distributed import ALONE
from relatum.models import build_encoder, group_normalized, synchronized
from relatum.models.resnet import SelectiveKernel

# Chen et al. (2020), Big Self-Supervised Models are Strong Semi-Supervised Learners, table 1:
# millions of variables, which are the parameters and the running statistics, no classifier.
PUBLISHED = {
    "resnet50": 24, "resnet50-sk": 35, "resnet50-2x": 94, "resnet50-2x-sk": 140,
    "resnet101": 43, "resnet101-sk": 65, "resnet101-2x": 170, "resnet101-2x-sk": 257,
    "resnet152": 58, "resnet152-sk": 89, "resnet152-2x": 233, "resnet152-2x-sk": 354,
    "resnet152-3x-sk": 795,
}  # fmt: skip
BLOCKS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3),
    101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3),
}  # fmt: skip


def sizeless(name, image_size):
    """The network without memory for its weights."""
    with torch.device("meta"):
        return build_encoder(name, image_size=image_size)


def layer(k, before, after):
    """A k x k convolution without bias, and the scale and offset of its normalisation."""
    return k * k * before * after + 2 * after


def counted(depth, width, selective, small):
    """Parameters of the network, summed layer by layer from the paper's description."""
    stem = 64 * width
    if small:
        total = layer(3, 3, stem)
    elif selective:
        total = layer(3, 3, stem // 2) + layer(3, stem // 2, stem // 2) + layer(3, stem // 2, stem)
    else:
        total = layer(7, 3, stem)
    before = stem
    for group, blocks in enumerate(BLOCKS[depth]):
        c = 64 * width * 2**group
        for block in range(blocks):
            after = c if depth < 50 else 4 * c
            if block == 0:
                total += layer(1, before, after)
            if depth < 50:
                total += layer(3, before, c) + layer(3, c, c)
            else:
                total += layer(1, before, c) + layer(1, c, after)
                middle = max(32, c // 16)
                gate = layer(1, c, middle) + middle * 2 * c
                total += layer(3, c, 2 * c) + gate if selective else layer(3, c, c)
            before = after
    return total


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name):
    encoder = sizeless(name, 224)
    variables = sum(v.numel() for v in encoder.state_dict().values() if v.is_floating_point())
    assert round(variables / 1e6) == PUBLISHED[name]


@pytest.mark.parametrize("depth", BLOCKS)
@pytest.mark.parametrize(("width", "selective"), [(1, False), (2, False), (3, True)])
@pytest.mark.parametrize("side", [32, 96])
def test_parameters_are_those_of_the_description(depth, width, selective, side):
    if selective and depth < 50:
        pytest.skip("basic blocks have no selective kernels")
    name = f"resnet{depth}-{width}x" + "-sk" * selective
    encoder = sizeless(name, side)
    found = sum(p.numel() for p in encoder.parameters())
    assert found == counted(depth, width, selective, side <= 64)
    assert encoder.dim == (512 if depth < 50 else 2048) * width


@pytest.mark.parametrize(
    ("side", "stem", "last"), [(32, 32, 4), (64, 64, 8), (65, 17, 3), (96, 24, 3)]
)
@pytest.mark.parametrize("selective", [False, True])
def test_resolutions(side, stem, last, selective):
    """Small images keep theirs in the stem; groups 2 to 4 halve it, in their 3 x 3 convolution."""
    network = sizeless("resnet50" + "-sk" * selective, side).eval().network
    images = torch.empty(1, 3, side, side, device="meta")
    x = network.maxpool(network.act1(network.bn1(network.conv1(images))))
    assert x.shape == (1, 64, stem, stem)
    for group in (network.layer1, network.layer2, network.layer3, network.layer4):
        x = group(x)
    assert x.shape == (1, 2048, last, last)
    blocks = [m for m in network.modules() if hasattr(m, "conv3")]
    strided = [b.conv2 for b in blocks if getattr(b.conv2, "conv", b.conv2).stride == (2, 2)]
    assert len(strided) == 3
    assert {b.conv1.stride for b in blocks} == {(1, 1)}


def test_normalisation_and_start():
    encoder = build_encoder("resnet50-sk", image_size=96)
    layers = [m for m in encoder.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {(m.eps, m.momentum) for m in layers} == {(1e-5, 0.1)}
    zero = [m for m in layers if not m.weight.any()]
    assert len(zero) == 16  # one a block
    assert all(bool((m.weight == 1).all()) for m in layers if m not in zero)
    convolutions = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert all(m.bias is None for m in convolutions)
    for weight in (m.weight.detach() for m in convolutions if m.weight.numel() > 20_000):
        scaled = weight * weight[0].numel() ** 0.5
        assert float(scaled.var()) == pytest.approx(1, abs=0.05)
        assert float(scaled.abs().max()) <= 2 / 0.8796  # cut at two deviations


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet50-sk"])
def test_a_new_network_is_its_shortcuts(name):
    """Branches start at zero: stem, four projections with a ReLU, and the mean over positions."""
    encoder = build_encoder(name, image_size=32).eval()
    images, network = torch.rand(2, 3, 32, 32), encoder.network
    x = network.bn1(network.conv1(images)).relu()
    for group in (network.layer1, network.layer2, network.layer3, network.layer4):
        *_, convolution, normalisation = group[0].downsample
        kernel = convolution.weight[:, :, 0, 0]
        if name.endswith("sk"):
            x = averaged(x, 1 if group is network.layer1 else 2)
        elif group is not network.layer1:
            x = x[:, :, ::2, ::2]
        x = normalisation(torch.einsum("oi,nihw->nohw", kernel, x)).relu()
    torch.testing.assert_close(encoder(images), x.mean((2, 3)), rtol=1e-4, atol=1e-5)


def averaged(x, stride):
    """Means of 2 x 2 pixels, of those that are inside."""
    side = x.shape[-1]
    corners = range(0, side, stride)
    return torch.stack(
        [torch.stack([x[:, :, i : i + 2, j : j + 2].mean((2, 3)) for j in corners], -1)
         for i in corners], -2,
    )  # fmt: skip


def test_a_selective_kernel_by_hand():
    """Two convolutions of their own, mixed by a softmax over the two of each channel."""
    torch.manual_seed(0)
    module = SelectiveKernel(48, 2).double()
    for p in module.parameters():
        nn.init.normal_(p, std=0.3)
    module.train()
    x = torch.randn(5, 48, 6, 6, dtype=torch.float64)

    def normal(y, layer):
        axes = [0, 2, 3]
        mean, variance = y.mean(axes, keepdim=True), y.var(axes, correction=0, keepdim=True)
        scale, offset = layer.weight.view(1, -1, 1, 1), layer.bias.view(1, -1, 1, 1)
        return ((y - mean) / (variance + 1e-5).sqrt() * scale + offset).clamp(min=0)

    both = normal(nn.functional.conv2d(x, module.conv.weight, stride=2, padding=1), module.bn)
    first, second = both[:, :48], both[:, 48:]
    mean = (first + second).mean((2, 3))
    gate = module.attention
    hidden = normal((mean @ gate.fc_reduce.weight.flatten(1).T)[..., None, None], gate.bn)
    assert hidden.shape[1] == 32
    logits = hidden.flatten(1) @ gate.fc_select.weight.flatten(1).T
    share = torch.sigmoid(logits[:, :48] - logits[:, 48:])[..., None, None]
    torch.testing.assert_close(module(x), share * first + (1 - share) * second)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet51", "did you mean 'resnet50'"),
        ("resnet50-0x", "unknown encoder 'resnet50-0x'"),
        ("resnet34-sk", "which resnet34 does not have; use resnet50-sk"),
        ("timm:resnet18q", "timm has no model 'resnet18q'"),
        ("timm:vit_tiny_patch16_224", "does not make one vector of an image of 10 x 10"),
    ],
)
def test_networks_that_cannot_be(name, message):
    with pytest.raises(ValueError, match=message):
        build_encoder(name, image_size=10)


@pytest.mark.parametrize(
    ("name", "dim"),
    [("vit_tiny_patch16_224", 192), ("mobilenetv3_small_050", 1024), ("resnet10t", 512)],
)
def test_backbones_of_timm(name, dim):
    encoder = build_encoder(f"timm:{name}", image_size=32)
    assert encoder.training
    assert encoder.dim == dim
    assert encoder(torch.rand(2, 3, 32, 32)).shape == (2, dim)


def test_replaced_normalisations_keep_their_nonlinearity():
    """timm's normalise and activate in one layer."""
    torch.manual_seed(0)
    encoder = build_encoder("timm:mobilenetv3_small_050", image_size=32)
    images = torch.rand(4, 3, 32, 32)
    torch.manual_seed(1)
    expected = encoder(images)
    synchronized(encoder, ALONE)
    torch.manual_seed(1)
    torch.testing.assert_close(encoder(images), expected, rtol=1e-4, atol=1e-5)
    activations = sum(isinstance(m, nn.ReLU | nn.Hardswish) for m in encoder.modules())
    group_normalized(encoder)
    assert sum(isinstance(m, nn.ReLU | nn.Hardswish) for m in encoder.modules()) == activations
