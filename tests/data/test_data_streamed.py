"""Images decoded ahead of their use: the same pixels as from memory, whoever decodes them."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from relatum.data import POLICIES, Augmentation, DataError, InMemory, Request, Streamed, load_splits
from relatum.data.decoding import cut

SIZE = 16
KEEP = Augmentation(SIZE, crop_area=None, flip=0.5, brightness=0.4, jitter_probability=0.8)


def picture(value, width=SIZE, height=SIZE):
    """A smooth picture, different for each value: 8-bit rounding between two passes is small."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [np.sin(6 * x * (c + 1) + value) * np.cos(4 * y + c) for c in range(3)]
    return Image.fromarray(np.uint8(np.round(127.5 + 120 * np.stack(waves, axis=2))))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for i in range(40):
        place = root / f"class{i % 2}"
        place.mkdir(exist_ok=True)
        picture(i).save(place / f"{i}.png")
    return root


def tables(folder, stream):
    options = {"image_size": SIZE, "stream": stream}
    return load_splits(str(folder), **options).train


def request(rows, seed, policy):
    generator = torch.Generator().manual_seed(seed)
    return Request(torch.tensor(rows), [policy.draw(len(rows), generator) for _ in range(2)])


def views(source, asked, policy):
    return [policy.apply(each.pixels, each.draws) for each in source.frames(asked)]


BATCHES = [([3, 1, 4, 15, 9, 2, 6], 0), ([5, 8, 9], 1), ([31, 30, 29, 28, 0, 3, 1], 2)]


def test_without_a_crop_streamed_views_are_those_from_memory_bit_for_bit(folder):
    held, streamed = tables(folder, False), tables(folder, True)
    assert held.ids == streamed.ids
    assert streamed.pixels.shape == held.pixels.shape
    sources = InMemory(held.pixels), Streamed(streamed.pixels, KEEP)
    for rows, seed in BATCHES:
        asked = request(rows, seed, KEEP)
        for a, b in zip(*(views(source, asked, KEEP) for source in sources), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["crop-flip", "simclr-cifar", "simclr"])
def test_with_a_crop_they_differ_by_rounding_alone(folder, name):
    """Pillow rounds after each of its two passes: half a level each, and overshoot of the cubic."""
    policy = POLICIES[name](SIZE)
    sources = InMemory(tables(folder, False).pixels), Streamed(tables(folder, True).pixels, policy)
    # Brightness and contrast may nearly double a difference of a level, each.
    levels = 2 if name == "crop-flip" else 8
    for rows, seed in BATCHES:
        asked = request(rows, seed, policy)
        for a, b in zip(*(views(source, asked, policy) for source in sources), strict=True):
            assert a.shape == b.shape == (len(rows), 3, SIZE, SIZE)
            assert float((a - b).abs().max()) <= levels / 255
            assert float((a - b).abs().mean()) <= 0.5 / 255


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than processors
def test_the_result_does_not_depend_on_workers_or_on_what_was_announced(folder):
    policy = POLICIES["simclr-cifar"](SIZE)
    images = tables(folder, True).pixels
    asked = [request(rows, seed, policy) for rows, seed in BATCHES]
    asked.append(request(list(range(32)) * 2, 3, policy))  # more than one chunk
    alone = Streamed(images, policy)
    expected = [alone.frames(each) for each in asked]
    state = torch.get_rng_state()
    for workers in (0, 1, 3):
        ahead = Streamed(images, policy, workers=workers)
        ahead.follow(iter(asked))
        for each, truth in zip(asked, expected, strict=True):
            for a, b in zip(ahead.frames(each), truth, strict=True):
                assert torch.equal(a.pixels, b.pixels)
                assert torch.equal(a.draws.flip, b.draws.flip)
        # What nobody announced is decoded all the same.
        assert torch.equal(ahead.frames(asked[0])[1].pixels, expected[0][1].pixels)
    assert torch.equal(torch.get_rng_state(), state)  # training's own draws are left alone


def test_a_question_out_of_turn_does_not_lose_the_turn(folder):
    policy = POLICIES["crop-flip"](SIZE)
    images = tables(folder, True).pixels
    first, second, other = (request(rows, seed, policy) for rows, seed in BATCHES)
    source = Streamed(images, policy)
    source.follow([first, second])
    alone = Streamed(images, policy)
    for each in (other, first, other, second, first):
        assert torch.equal(source.frames(each)[0].pixels, alone.frames(each)[0].pixels)


def test_two_views_are_two_crops_and_every_seed_gives_others(folder):
    policy = POLICIES["crop-flip"](SIZE)
    source = Streamed(tables(folder, True).pixels, policy)
    found = [source.frames(request([0] * 4, seed, policy)) for seed in (0, 1)]
    crops = [pixels for frames in found for each in frames for pixels in each.pixels]
    assert all(not torch.equal(a, b) for i, a in enumerate(crops) for b in crops[:i])


def test_crops_reach_the_margins_of_an_image_that_is_no_square(tmp_path):
    """From memory only the centre square is seen; streamed, crops lie everywhere, in proportion."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(2):
            marked = np.zeros((20, 80, 3), dtype=np.uint8)
            marked[:, :5] = 255  # outside the centre square, columns 30 to 50
            Image.fromarray(marked).save(tmp_path / name / f"{i}.png")
    policy = POLICIES["crop-flip"](SIZE)
    pixels = load_splits(str(tmp_path), image_size=SIZE, stream=True).train.pixels
    frames = Streamed(pixels, policy).frames(request([0] * 400, 0, policy))
    seen = (frames[0].pixels.flatten(1).amax(dim=1) > 100).float().mean()
    draws = policy.draw(400, torch.Generator().manual_seed(0))
    boxes = policy.crop_boxes(draws.crop, 20, 80)
    assert abs(float(seen) - float((boxes[:, 1] < 5).float().mean())) < 0.02
    assert 0.05 < float(seen) < 0.5
    top, left, height, width = boxes.unbind(1)
    assert bool((top + height <= 20).all()) and bool((left + width <= 80).all())
    area = (height * width).double() / 1600
    # A box of 20 rows and aspect 4/3 has a third of the area: larger ones are the fallback, that.
    assert abs(float(area.max()) - 20 * 27 / 1600) < 1e-9
    assert float(area.min()) >= 0.07


def test_a_box_is_cut_out_before_it_is_resized():
    """What lies beside the box must not bleed into it."""
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    pixels[:, 4:] = 255
    assert cut(Image.fromarray(pixels), (0, 0, 8, 4), 6).max() == 0
    assert cut(Image.fromarray(pixels), (2, 4, 3, 4), 6).min() == 255


def test_what_cannot_be_streamed_is_refused(folder):
    images = tables(folder, True).pixels
    with pytest.raises(ValueError, match="rotates or shifts"):
        Streamed(images, POLICIES["digits"](SIZE))
    with pytest.raises(ValueError, match="images' size 16, got 8"):
        Streamed(images, POLICIES["crop-flip"](8))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_vanishes_is_named(tmp_path, workers):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(2):
            picture(i).save(tmp_path / name / f"{i}.png")
    policy = POLICIES["crop-flip"](SIZE)
    table = load_splits(str(tmp_path), image_size=SIZE, stream=True).train
    (tmp_path / table.ids[1]).unlink()
    source = Streamed(table.pixels, policy, workers=workers)
    asked = request([0, 1], 0, policy)
    source.follow([asked])
    with pytest.raises(DataError, match=rf"{table.ids[1]}.*was whole when training began"):
        source.frames(asked)


def test_a_damaged_file_is_found_before_training_and_may_be_left_out(folder, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(3):
            picture(i).save(tmp_path / name / f"{i}.jpg")
    whole = io.BytesIO()
    picture(0, 64, 64).save(whole, "JPEG")
    (tmp_path / "a" / "1.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    options = {"image_size": SIZE, "stream": True}
    with pytest.raises(DataError, match=r"cannot decode a/1\.jpg"):
        load_splits(str(tmp_path), **options)
    train, test, _ = load_splits(str(tmp_path), **options, on_bad_file="skip")
    held = load_splits(str(tmp_path), image_size=SIZE, on_bad_file="skip")
    assert [table.ids for table in (train, test)] == [table.ids for table in held[:2]]
    assert sum(len(table.pixels) for table in (train, test)) == 5
    assert torch.equal(train.held().pixels, held.train.pixels)
    assert torch.equal(train.held(workers=1).pixels, held.train.pixels)


def test_the_checksum_tells_other_bytes(folder, tmp_path):
    first = tables(folder, True)
    assert first.checksum == tables(folder, True).checksum == first.held().checksum
    for path in folder.rglob("*.png"):
        copy = tmp_path / path.relative_to(folder)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    assert tables(tmp_path, True).checksum == first.checksum
    picture(99).save(tmp_path / first.ids[7])
    assert tables(tmp_path, True).checksum != first.checksum
    assert first.select(torch.tensor([2, 1])).checksum != first.checksum
    assert first.select(torch.tensor([2, 1])).ids == (first.ids[2], first.ids[1])
