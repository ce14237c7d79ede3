"""`relatum train images` against SimCLR as anybody would write it, step for step."""

import io
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from relatum.data import POLICIES
from relatum.recipes import train_images
from relatum.recipes.images import TrainImages, build_networks, load_images, read_settings
from relatum.training import Plan

STEPS, BATCH, SIDE, TAU, WARMUP = 20, 32, 16, 0.5, 4


def simclr():
    """A convolutional encoder and a projection head of three layers."""
    channels = (3, 16, 32, 64, 128)
    layers = []
    for before, after in pairwise(channels):
        convolution = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    for after in (128, 128, 24):
        layers += [nn.Linear(128, after, bias=False), nn.BatchNorm1d(after), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    network[-1].bias.requires_grad_(False)  # stays 0
    return network


class PlainLARS:
    """As in the paper's code: vectors get neither decay nor a rate of their own."""

    def __init__(self, parameters, decay):
        self.parameters, self.decay = list(parameters), decay
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    def step(self, rate):
        with torch.no_grad():
            for p, v in zip(self.parameters, self.velocity, strict=True):
                gradient, local = p.grad, 1.0
                if p.ndim > 1:
                    gradient = gradient + self.decay * p
                    local = 0.001 * float(p.norm()) / float(gradient.norm())
                v.copy_(0.9 * v + rate * local * gradient)
                p -= v


class PlainAdamW:
    def __init__(self, parameters, decay):
        parameters = list(parameters)
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
        ]
        self.inner = torch.optim.AdamW(groups)

    def step(self, rate):
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()


def nt_xent(z):
    z = F.normalize(z)
    similarity = (z @ z.T / TAU).masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf)
    return F.cross_entropy(similarity, torch.arange(len(z)).roll(len(z) // 2))


def schedule(step, rate):
    if step < WARMUP:
        return rate * (step + 1) / WARMUP
    part = torch.tensor((step - WARMUP) / (STEPS - WARMUP) * torch.pi, dtype=torch.float64)
    return rate * float(1 + part.cos()) / 2


@pytest.mark.parametrize(
    ("name", "plain", "rate"), [("adamw", PlainAdamW, 0.003), ("lars", PlainLARS, 4.0)]
)
def test_the_training_curve_is_that_of_plain_simclr(tmp_path, monkeypatch, name, plain, rate):
    """In double precision: these 20 steps multiply what rounding leaves by up to a million."""

    def double(*arguments):
        networks = build_networks(*arguments)
        networks.encoder.register_forward_pre_hook(lambda _, images: (images[0].double(),))
        for network in networks:
            network.double()
        return networks

    monkeypatch.setattr(train_images, "_networks", double)
    per_epoch = 256 // BATCH
    settings = TrainImages(
        data="digits", image_size=SIDE, limit=256, batch_size=BATCH, steps=STEPS, log_every=1,
        objective="cpc", critic="cosine", temperature=TAU, projection_dim=24, optimizer=name,
        learning_rate=rate, weight_decay=0.01, warmup_epochs=WARMUP / per_epoch, device="cpu",
        tensorboard=False, seed=3, out=tmp_path / "run",
    )  # fmt: skip
    run = train_images.main(settings, Console(file=io.StringIO()))

    settings, pixels = read_settings(run), load_images(settings).train.pixels
    assert len(pixels) == 256
    network, start = simclr().double(), build_networks(settings)
    trained = [p for p in network.parameters() if p.requires_grad]
    given = [*start.encoder.parameters(), *start.head.parameters()]
    with torch.no_grad():
        for p, value in zip(trained, given, strict=True):
            p.copy_(value)
    policy, optimizer = POLICIES["digits"](SIDE), plain(trained, 0.01)
    plan = Plan(256, BATCH, STEPS, rate, WARMUP, seed=3)
    losses = []
    for step in range(STEPS):
        ((rows, seed),) = plan.batches(step)
        generator = torch.Generator().manual_seed(seed)
        draws = [policy.draw(BATCH, generator) for _ in range(2)]
        views = torch.cat([policy.apply(pixels[rows], each) for each in draws])
        loss = nt_xent(network(views.double()))
        network.zero_grad()
        loss.backward()
        optimizer.step(schedule(step, rate))
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1  # a curve that goes somewhere
    assert [line["loss"] for line in run.metrics()] == pytest.approx(losses, rel=1e-8)
