"""The network for sound: lengths by arithmetic, parts beside their formulas written out."""

import pytest
import torch

from relatum.models import SpeechNetwork, SpeechSizes, frames_of
from relatum.models.speech import ChannelNorm, LinearPredictor, SpeechEncoder, TransformerPredictor

from . import reference

SMALL = SpeechSizes(channels=8, context=8, steps=3, predictor="linear", heads=2, feedforward=16)


def test_published_lengths():
    assert frames_of(20480, SpeechSizes()) == (4096, 1024, 512, 256, 128)
    assert SpeechSizes().hop == 160
    x = torch.randn(1, 1, 20480)
    lengths = []
    for layer in SpeechEncoder(SpeechSizes(channels=2)).layers:
        x = layer(x)
        if isinstance(layer, torch.nn.Conv1d):
            lengths.append(x.shape[2])
    assert lengths == [4096, 1024, 512, 256, 128]


@pytest.mark.parametrize("samples", [400, 1599, 1600, 1601, 5000, 20479, 20481])
def test_lengths_of_any_window(samples):
    encoder = SpeechEncoder(SMALL)
    assert encoder(torch.randn(1, samples)).shape[1] == frames_of(samples, SMALL)[-1]


def test_published_number_of_weights():
    network = SpeechNetwork(SpeechSizes(), 20480)
    d = 256
    convolutions = 10 * d + (8 + 4 + 4 + 4) * d * d + 5 * 3 * d
    lstm = 4 * (2 * d * d + 2 * d)
    layer = 4 * (d * d + d) + 116 * d + 2 * 2 * d + 2 * 2048 * d + 2048 + d
    assert sum(p.numel() for p in network.parameters()) == convolutions + lstm + 12 * layer


def test_channel_norm_uses_the_unbiased_variance_of_each_frame():
    norm = ChannelNorm(5)
    x = torch.randn(2, 5, 7)
    y = norm(x)
    for n in range(2):
        for t in range(7):
            frame = x[n, :, t]
            mean = frame.sum() / 5
            variance = (frame - mean).square().sum() / 4
            assert torch.allclose(y[n, :, t], (frame - mean) / (variance + 1e-5).sqrt(), atol=1e-6)


def test_silence_has_finite_frames_and_gradients():
    network = SpeechNetwork(SMALL, 1600)
    frames, contexts = network(torch.zeros(2, 1600))
    (frames.square().sum() + contexts.square().sum()).backward()
    assert frames.isfinite().all()
    assert contexts.isfinite().all()
    assert all(p.grad.isfinite().all() for p in network.encoder.parameters())


def test_nothing_depends_on_the_batch():
    network = SpeechNetwork(SMALL, 1600).double()
    x = torch.randn(4, 1600, dtype=torch.double)
    whole, alone = network(x)[1], torch.cat([network(row[None])[1] for row in x])
    assert torch.allclose(whole, alone, atol=1e-12)


@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_context_is_the_recurrence(recurrent):
    sizes = SpeechSizes(channels=8, context=6, recurrent=recurrent, predictor="linear")
    context = SpeechNetwork(sizes, 20480).context.double()
    z = torch.randn(2, 9, 8, dtype=torch.double)
    w = {
        "ih": context.weight_ih_l0, "hh": context.weight_hh_l0,
        "bih": context.bias_ih_l0, "bhh": context.bias_hh_l0,
    }  # fmt: skip
    assert torch.allclose(context(z)[0], getattr(reference, recurrent)(z, w), atol=1e-12)


@pytest.mark.parametrize("predictor", ["linear", "transformer"])
def test_no_prediction_sees_what_comes(predictor):
    sizes = SpeechSizes(
        channels=8, context=8, steps=3, predictor=predictor, heads=2, feedforward=16, dropout=0.0
    )
    network = SpeechNetwork(sizes, 3200)
    contexts = torch.randn(1, 20, 8, requires_grad=True)
    for prediction in network.predict(contexts):
        assert prediction.shape == (1, 17, 8)
        (gradient,) = torch.autograd.grad(prediction[0, 9, 0], contexts, retain_graph=True)
        assert not gradient[0, 10:].any()
        assert gradient[0, 9].any()


def test_frames_do_not_reach_far_ahead():
    """The receptive field of a frame is 465 samples: what its convolutions cover."""
    encoder = SpeechEncoder(SMALL).double()
    x = torch.randn(1, 4800, dtype=torch.double, requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder(x)[0, 15].sum(), x)
    touched = gradient[0].nonzero().flatten()
    field, hop = 1, 1
    for kernel, stride in zip(SMALL.kernels, SMALL.strides, strict=True):
        field, hop = field + (kernel - 1) * hop, hop * stride
    assert int(touched[-1] - touched[0]) + 1 <= field == 465


def test_linear_predictor_is_a_matrix():
    predictor = LinearPredictor(SMALL)
    assert predictor(torch.zeros(1, 2, 8)).abs().sum() == 0
    assert [tuple(p.shape) for p in predictor.parameters()] == [(8, 8)]


def test_transformer_knows_where_not_only_what():
    predictor = TransformerPredictor(SMALL, 10).eval()
    x = torch.randn(1, 6, 8)
    swapped = x[:, [1, 0, 2, 3, 4, 5]]
    assert not torch.allclose(predictor(x)[:, 5], predictor(swapped)[:, 5], atol=1e-5)
    with pytest.raises(ValueError, match="knows 10 positions, got 11"):
        predictor(torch.randn(1, 11, 8))


def test_transformer_of_unequal_widths():
    sizes = SpeechSizes(channels=6, context=8, steps=2, heads=2, feedforward=16)
    frames, contexts = (network := SpeechNetwork(sizes, 1600))(torch.randn(2, 1600))
    assert network.predict(contexts)[1].shape == (2, 8, 6)
    assert frames.shape == (2, 10, 6)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kernels": (10, 8)}, "must be as many"),
        ({"channels": 1}, "no variance"),
        ({"recurrent": "rnn"}, "recurrent must be one of"),
        ({"predictor": "ffn"}, "predictor must be one of"),
        ({"predictor": "transformer", "heads": 3}, "heads must divide context 8, got 3"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"steps": 0}, "must be positive"),
    ],
)
def test_sizes_that_do_not_go_together(change, why):
    kept = {"channels": 8, "context": 8, "heads": 2}
    with pytest.raises(ValueError, match=why):
        SpeechSizes(**{**kept, **change})


def test_windows_too_short_to_look_ahead():
    with pytest.raises(ValueError, match="has 3 frames, too few to look 3 ahead"):
        SpeechNetwork(SMALL, 480)
    with pytest.raises(ValueError, match="too short for one frame"):
        SpeechEncoder(SMALL)(torch.randn(1, 100))
