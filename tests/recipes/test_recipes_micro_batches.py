"""Micro-batches: the gradient of the whole batch in the memory of a part of it."""

import pytest
import torch
from torch import nn

from relatum.data import POLICIES, Frames, InMemory
from relatum.losses import ContrastiveLoss
from relatum.objectives import OBJECTIVES
from relatum.recipes.images import Networks, TrainImages, resolve
from relatum.recipes.images.build import CRITICS
from relatum.recipes.images.step import ContrastiveStep
from relatum.recipes.train_images import main

ROWS = torch.tensor([3, 1, 8, 5, 0, 9, 2])
IMAGES = torch.randint(0, 256, (10, 3, 8, 8), generator=torch.Generator().manual_seed(1)).byte()


def step(objective, micro, *, norm=False, dropout=0.0, temperature=0.5, penalty=None):
    """A step over networks that are the same whatever the micro-batch."""
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(16) if norm else nn.Identity()
    encoder = nn.Sequential(
        nn.Flatten(), nn.Linear(192, 16), middle, nn.Dropout(dropout), nn.Tanh()
    )
    pairing = "in_batch_symmetric"
    loss = ContrastiveLoss(
        OBJECTIVES[objective](), CRITICS["cosine"](6, temperature, True), pairing
    )
    networks = Networks(encoder, nn.Linear(16, 6), loss)
    policy = POLICIES["simclr-cifar"](8)
    return ContrastiveStep(
        networks, InMemory(IMAGES), policy, penalty=penalty, micro_batch_size=micro
    )


def gradients(made, seed=5):
    """The loss and every gradient, with dropout drawn from one state."""
    torch.manual_seed(11)
    output = made(ROWS, seed)
    torch.autograd.backward(output.loss)
    modules = made.networks
    parameters = [p for module in modules for p in module.parameters()]
    return [output.loss.detach(), *(p.grad for p in parameters)]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("micro", [1, 2, 3, 7, 100])
def test_gradients_are_those_of_the_whole_batch(objective, micro):
    whole, parts = gradients(step(objective, None)), gradients(step(objective, micro))
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("micro", [1, 3])
def test_the_penalty_in_parts_is_that_of_the_whole(micro):
    whole, parts, plain = (
        gradients(step("wpc", size, penalty=weight, temperature=0.01))
        for size, weight in ((None, 1.0), (micro, 1.0), (micro, None))
    )
    assert whole[0] > plain[0] + 1
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(a.abs().max()))


def test_batch_normalisation_and_dropout_are_replayed():
    """The truth: the same parts one after the other, with everything held."""
    made = step("rpc", 3, norm=True, dropout=0.5)
    found = gradients(made)
    plain = step("rpc", None, norm=True, dropout=0.5)
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(5)
    draws = [plain.augmentation.draw(7, generator) for _ in range(2)]
    parts = [
        plain._encode(*(Frames(IMAGES[ROWS[at]], each[at]) for each in draws))
        for at in (slice(0, 2), slice(2, 4), slice(4, 7))
    ]
    x, y = (torch.cat(side) for side in zip(*parts, strict=True))
    loss = plain.networks.loss(x, y)
    torch.autograd.backward(loss)
    expected = [loss.detach(), *(p.grad for m in plain.networks for p in m.parameters())]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    # The second forward pass has not counted a batch again.
    for a, b in zip(made.networks.encoder.buffers(), plain.networks.encoder.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    assert made.networks.encoder[2].momentum == 0.1


def test_memory_is_that_of_a_part():
    """What autograd holds of the encoder does not grow with the batch."""

    def stored(micro):
        sizes = []

        def pack(tensor):
            sizes.append(tensor.numel() if tensor.is_floating_point() else 0)
            return tensor

        made = step("rpc", micro)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            made(torch.arange(10).repeat(20), 1)
        return sum(sizes)

    # The views are the input of the first layer; what is left belongs to the loss.
    views, hidden = 2 * 200 * 192, 2 * 200 * 16
    assert stored(None) - stored(10) > views + hidden


def test_settings(tmp_path):
    with pytest.raises(ValueError, match="micro_batch_size 64 is larger than batch_size 32"):
        resolve(TrainImages(batch_size=32, micro_batch_size=64), 100)
    # Statistics of one image have no negatives to read anything from.
    for asked in ({"moments_only": True}, {"moment_decay": 0.5}):
        with pytest.raises(ValueError, match="use a micro_batch_size of 2 or more"):
            resolve(TrainImages(micro_batch_size=1, **asked), 1000)
    run = main(
        TrainImages(
            data="digits",
            image_size=8,
            batch_size=64,
            micro_batch_size=16,
            steps=2,
            tensorboard=False,
            out=tmp_path / "run",
        )
    )
    assert run.metrics()[-1]["step"] == 2
