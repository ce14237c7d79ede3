"""Protocol cards: what changed in the encoder, and what differs between two numbers."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from torch import nn

from relatum.probes import ProtocolCard, check_unchanged, comparable, parameter_hash
from relatum.runs import strict_json

CARD = ProtocolCard(
    encoder_hash_before="abc",
    encoder_hash_after="abc",
    layer="encoder",
    feature_dim=256,
    preprocessing="pixels / 255",
    batch_norm="evaluation",
    split="stratified, seed 0",
    standardisation="labelled training rows",
    regularisation_grid=(1.0, 0.1),
    regularisation_choice="five folds",
    seeds=(0, 1, 2),
    n_train=3200,
    n_test=800,
)


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Linear(4, 4).bfloat16())


def test_equal_values_have_equal_fingerprints():
    assert parameter_hash(module()) == parameter_hash(module())
    turned = module()
    turned[0].weight.data = turned[0].weight.data.to(memory_format=torch.channels_last)
    assert parameter_hash(turned) == parameter_hash(module())
    assert len(parameter_hash(module())) == 64


@pytest.mark.parametrize("name", list(module().state_dict()))
def test_a_change_of_any_value_changes_the_fingerprint(name):
    changed = module()
    with torch.no_grad():
        changed.state_dict()[name].view(-1)[-1:] += 1
    assert parameter_hash(changed) != parameter_hash(module())


def test_names_shapes_types_and_unsaved_buffers_count():
    class Buffered(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.register_buffer("scale", value, persistent=False)

    zeros = torch.zeros(4)
    hashes = {
        parameter_hash(Buffered(value))
        for value in (zeros, zeros + 1, zeros.view(2, 2), zeros.int(), torch.zeros(8).half())
    }
    assert len(hashes) == 5
    assert parameter_hash(nn.Sequential(Buffered(zeros))) not in hashes


def test_state_that_cannot_be_fingerprinted_is_named():
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"note": 1}

    with pytest.raises(TypeError, match="cannot fingerprint _extra_state: it is a dict"):
        parameter_hash(Extra(1, 1))


def test_a_changed_encoder_is_an_error():
    check_unchanged("abc", "abc")
    with pytest.raises(ValueError, match="the encoder changed during evaluation"):
        check_unchanged("abc", "abd")
    with pytest.raises(ValueError, match="the encoder changed during evaluation"):
        replace(CARD, encoder_hash_after="abd")


def test_training_mode_during_evaluation_is_caught():
    encoder = module()[:2].train()
    before = parameter_hash(encoder)
    encoder(torch.randn(4, 3, 5, 5))
    with pytest.raises(ValueError, match="evaluation mode"):
        check_unchanged(before, parameter_hash(encoder))


def test_equal_protocols_of_unlike_encoders_are_comparable():
    other = replace(CARD, encoder_hash_before="xyz", encoder_hash_after="xyz")
    assert comparable(CARD, other)
    assert str(comparable(CARD, other)) == "the protocols agree"


@pytest.mark.parametrize(
    "name", [f.name for f in fields(ProtocolCard) if not f.name.startswith("encoder_hash")]
)
def test_every_other_field_is_compared(name):
    value = getattr(CARD, name)
    changed = value + 1 if isinstance(value, int) else value * 2
    comparison = comparable(CARD, replace(CARD, **{name: changed}))
    assert not comparison
    assert comparison.differences == (f"{name}: {value!r} against {changed!r}",)


def test_all_differences_are_listed():
    other = replace(CARD, layer="projection", n_test=1000)
    assert str(comparable(CARD, other)).splitlines() == [
        "the protocols differ:",
        "  layer: 'encoder' against 'projection'",
        "  n_test: 800 against 1000",
    ]


def test_a_card_survives_json():
    import json

    record = json.loads(strict_json(CARD.to_dict()))
    assert ProtocolCard.from_dict(record) == CARD
    del record["layer"]
    record["layers"] = 3
    with pytest.raises(ValueError, match=r"missing \['layer'\], unknown \['layers'\]"):
        ProtocolCard.from_dict(record)
    with pytest.raises(FrozenInstanceError):
        CARD.layer = "pixels"
