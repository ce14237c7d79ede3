"""Block similarity on images: further views of each image, scored by their mean."""

import io

import pytest
import torch
from rich.console import Console
from torch import nn

from relatum import CPC, ContrastiveLoss, Cosine
from relatum.data import POLICIES, InMemory
from relatum.recipes.images import Networks, TrainImages, load_images, resolve
from relatum.recipes.images.step import ContrastiveStep
from relatum.recipes.train_images import main
from relatum.settings import SettingsError

IMAGES = torch.randint(0, 256, (10, 3, 8, 8), generator=torch.Generator().manual_seed(1)).byte()
ROWS = torch.tensor([3, 1, 8, 5, 0])
TINY = {
    "data": "digits", "image_size": 8, "limit": 120, "batch_size": 24, "projection_dim": 8,
    "projection_layers": 2, "steps": 3, "log_every": 1, "tensorboard": False, "device": "cpu",
}  # fmt: skip


def step(positives, micro=None):
    torch.manual_seed(0)
    encoder, head = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.Tanh()), nn.Linear(16, 6)
    networks = Networks(encoder, head, ContrastiveLoss(CPC(), Cosine(0.5), "block"))
    policy = POLICIES["simclr-cifar"](8)
    return ContrastiveStep(
        networks, InMemory(IMAGES), policy, micro_batch_size=micro, positives=positives
    )


def test_the_loss_is_that_of_mean_scores_of_views():
    made = step(3)
    generator = torch.Generator().manual_seed(7)
    draws = [made.augmentation.draw(len(ROWS), generator) for _ in range(4)]
    z = [
        nn.functional.normalize(
            made.networks.head(made.networks.encoder(made.augmentation.apply(IMAGES[ROWS], each)))
        )
        for each in draws
    ]
    scores = sum(z[0] @ view.T for view in z[1:]) / 3 / 0.5
    expected = nn.functional.cross_entropy(scores, torch.arange(len(ROWS)))
    torch.testing.assert_close(made(ROWS, 7).loss, expected)


@pytest.mark.parametrize("micro", [1, 2])
def test_micro_batches_have_its_gradient(micro):
    found = []
    for size in (None, micro):
        made = step(2, size)
        torch.autograd.backward(made(ROWS, 5).loss)
        found.append([p.grad for module in made.networks for p in module.parameters()])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "changes", [{}, {"moments_only": True, "micro_batch_size": 10}, {"objective": "wpc"}]
)
def test_a_run_trains_on_blocks(tmp_path, changes):
    settings = TrainImages(**TINY, positives=3, out=tmp_path / "run", **changes)
    run = main(settings, Console(file=io.StringIO()))
    assert "pairing: block" in run.config_text
    assert len(run.metrics()) == 3


def test_several_positives_need_blocks():
    settings = TrainImages(**TINY, positives=2, pairing="two_view")
    with pytest.raises(SettingsError, match="positives 2 belongs to pairing block"):
        resolve(settings, len(load_images(settings).train))
