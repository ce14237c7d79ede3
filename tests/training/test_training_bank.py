"""The queue of past embeddings holds the newest rows, whatever the batch sizes."""

import random

import pytest
import torch

from relatum.training import EmbeddingBank


def keys(*values):
    ids = torch.tensor(values)
    return ids[:, None].float(), ids


def held(bank):
    embeddings, ids = bank.contents()
    assert torch.equal(embeddings[:, 0].long(), ids)
    return sorted(ids.tolist())


def test_size_that_is_no_multiple_of_the_batch():
    bank = EmbeddingBank(5, 1)
    for batch in [(1, 2), (3, 4), (5, 6)]:
        bank.push(*keys(*batch))
    assert held(bank) == [2, 3, 4, 5, 6]
    assert int(bank.ids[bank.pointer]) == 2  # the oldest is overwritten next


def test_batch_larger_than_the_bank():
    bank = EmbeddingBank(5, 1)
    bank.push(*keys(*range(1, 8)))
    assert held(bank) == [3, 4, 5, 6, 7]
    bank.push(*keys(8))
    assert held(bank) == [4, 5, 6, 7, 8]


def test_empty_rows_are_never_handed_out():
    bank = EmbeddingBank(8, 4)
    assert bank.contents().embeddings.shape == (0, 4)
    bank.push(torch.ones(3, 4), torch.arange(3))
    assert bank.contents().embeddings.shape == (3, 4)
    assert bool((bank.contents().embeddings == 1).all())


def test_random_batches_against_a_list():
    generator = random.Random(0)
    bank, newest = EmbeddingBank(7, 1), []
    count = 0
    for _ in range(40):
        batch = range(count, count + generator.randint(1, 10))
        count = batch.stop
        bank.push(*keys(*batch))
        newest = [*newest, *batch][-7:]
        assert held(bank) == newest
        if len(newest) == 7:
            assert int(bank.ids[bank.pointer]) == newest[0]


def test_contents_are_a_copy_without_gradient():
    bank = EmbeddingBank(2, 1)
    rows = torch.ones(2, 1, requires_grad=True)
    bank.push(rows, torch.arange(2))
    before = bank.contents()
    assert not before.embeddings.requires_grad
    bank.push(*keys(5, 6))
    assert torch.equal(before.embeddings, torch.ones(2, 1))


def test_state_round_trip_of_a_half_filled_bank():
    bank, other = EmbeddingBank(5, 1), EmbeddingBank(5, 1)
    bank.push(*keys(1, 2, 3))
    other.load_state_dict(bank.state_dict())
    for either in (bank, other):
        either.push(*keys(4, 5, 6))
    assert held(bank) == held(other) == [2, 3, 4, 5, 6]


def test_refuses_an_empty_bank():
    with pytest.raises(ValueError, match="must be at least 1, got 0 and 4"):
        EmbeddingBank(0, 4)
