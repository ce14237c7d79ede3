"""Decoding rules on images whose pixels are known, and alignment when files are left out."""

import io
from concurrent.futures import Future

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from relatum.data.images import DataError, decode, decode_image
from relatum.data.listing import Listing


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def listing(items, labels=None):
    n = len(items)
    return Listing(
        items=items,
        ids=[f"file{i}.png" for i in range(n)],
        labels=np.asarray(labels if labels is not None else range(n), dtype=np.int64),
        classes=tuple(f"c{i}" for i in range(n)),
        source="somewhere",
    )


def solid(value, mode="RGB", size=(4, 4)):
    return Image.new(mode, size, value)


def pixel(data, size=4):
    image, kind = decode_image(data, size)
    assert image.dtype == np.uint8
    assert image.shape == (size, size, 3)
    return tuple(int(v) for v in image[0, 0]), kind


# --- 16 bits and more


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (255, 1), (256, 1), (32768, 128), (65535, 255)]
)
def test_16_bit_grey_is_scaled_not_clipped(value, expected):
    data = encoded(Image.fromarray(np.full((4, 4), value, dtype=np.uint16)))
    assert pixel(data) == ((expected,) * 3, "16-bit grey")


def test_16_bit_tiff_is_scaled_too():
    data = encoded(Image.fromarray(np.full((4, 4), 32768, dtype=np.uint16)), "TIFF")
    assert pixel(data)[0] == (128, 128, 128)


def test_float_tiff_in_the_unit_interval_is_scaled():
    data = encoded(Image.fromarray(np.full((4, 4), 0.5, dtype=np.float32)), "TIFF")
    assert pixel(data)[0] == (128, 128, 128)


@pytest.mark.parametrize("value", [-0.25, 1.5, float("nan"), float("inf")])
def test_float_tiff_outside_is_an_error(value):
    data = encoded(Image.fromarray(np.full((4, 4), value, dtype=np.float32)), "TIFF")
    with pytest.raises(DataError, match=r"floats .* must lie in \[0, 1\]"):
        decode_image(data, 4)


def test_32_bit_tiff_is_an_error():
    data = encoded(Image.fromarray(np.full((4, 4), -7, dtype=np.int32)), "TIFF")
    with pytest.raises(DataError, match="no known white"):
        decode_image(data, 4)


# --- channels and transparency


def test_grey():
    assert pixel(encoded(solid(77, "L"))) == ((77, 77, 77), "grey")


def test_black_and_white():
    assert pixel(encoded(solid(1, "1")))[0] == (255, 255, 255)


def test_rgb_is_untouched():
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    image, kind = decode_image(encoded(Image.fromarray(noise)), 8)
    assert kind == ""
    np.testing.assert_array_equal(image, noise)


def test_transparent_red_becomes_white_not_red():
    assert pixel(encoded(solid((255, 0, 0, 0), "RGBA")))[0] == (255, 255, 255)


def test_half_transparent_black_becomes_mid_grey():
    # 255 * (1 - 128 / 255) = 127
    assert pixel(encoded(solid((0, 0, 0, 128), "RGBA")))[0] == (127, 127, 127)


def test_grey_with_alpha():
    assert pixel(encoded(solid((40, 255), "LA")))[0] == (40, 40, 40)
    assert pixel(encoded(solid((40, 0), "LA"))) == ((255, 255, 255), "LA with alpha")


def test_palette_with_and_without_transparency():
    image = solid(1, "P")
    image.putpalette([9, 8, 7, 10, 20, 30])
    assert pixel(encoded(image)) == ((10, 20, 30), "a palette")
    assert pixel(encoded(image, transparency=0))[0] == (10, 20, 30)
    assert pixel(encoded(image, transparency=1))[0] == (255, 255, 255)


def test_rgb_with_a_transparent_colour():
    data = encoded(solid((1, 2, 3)), transparency=(1, 2, 3))
    assert pixel(data)[0] == (255, 255, 255)


def test_cmyk():
    data = encoded(solid((0, 255, 255, 0), "CMYK"), "TIFF")  # no cyan, full magenta and yellow
    assert pixel(data) == ((255, 0, 0), "CMYK")


def test_first_frame_of_an_animation():
    frames = [solid((250, 0, 0)), solid((0, 250, 0))]
    data = encoded(frames[0], "PNG", save_all=True, append_images=frames[1:])
    assert pixel(data) == ((250, 0, 0), "the first frame of an animation, RGB")


# --- orientation and size


@pytest.mark.parametrize(
    ("orientation", "corner"),
    # Where the top left pixel of a 4x4 image goes (row, column), by the EXIF standard.
    [(1, (0, 0)), (2, (0, 3)), (3, (3, 3)), (4, (3, 0)), (5, (0, 0)), (6, (0, 3)), (7, (3, 3)),
     (8, (3, 0))],
)  # fmt: skip
def test_orientation(orientation, corner):
    image = solid((0, 0, 0))
    image.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels, _ = decode_image(encoded(image, exif=exif), 4)
    assert tuple(np.argwhere(pixels[:, :, 0] == 255)[0]) == corner


def test_orientation_6_turns_a_wide_image_before_the_cut():
    # 40 x 20, left half red: turned clockwise the red half is on top.
    image = solid((0, 0, 255), size=(40, 20))
    image.paste((255, 0, 0), (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels, _ = decode_image(encoded(image, exif=exif), 20)
    assert (pixels[:10] == (255, 0, 0)).all()
    assert (pixels[10:] == (0, 0, 255)).all()


def test_centre_square_is_kept():
    image = np.zeros((4, 12, 3), dtype=np.uint8)
    image[:, 4:8] = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    pixels, _ = decode_image(encoded(Image.fromarray(image)), 4)
    np.testing.assert_array_equal(pixels, image[:, 4:8])


@pytest.mark.parametrize(("width", "height"), [(60, 40), (40, 60), (64, 64), (16, 8)])
def test_resize_is_shorter_side_then_centre_crop(width, height):
    rng = np.random.default_rng(1)
    image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    size = 16
    scale = size / min(width, height)
    big = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    left, top = (big.width - size) // 2, (big.height - size) // 2
    expected = np.asarray(big.crop((left, top, left + size, top + size)), dtype=int)
    pixels, _ = decode_image(encoded(image), size)
    assert abs(pixels.astype(int) - expected).max() <= 1


def test_shrinking_averages():
    """A fine checkerboard becomes grey; without antialiasing it would stay black or white."""
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    pixels, _ = decode_image(encoded(Image.fromarray(board)), 8)
    assert abs(pixels.astype(int) - 127).max() <= 3


# --- bad files


def broken():
    noise = np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    jpeg = encoded(Image.fromarray(noise), "JPEG")
    png = encoded(Image.fromarray(noise))
    return {
        "half a JPEG": jpeg[: len(jpeg) // 2],
        "half a PNG": png[: len(png) // 2],
        "nothing": b"",
        "text": b"this is not an image",
        "a header only": png[:40],
    }


@pytest.mark.parametrize("what", list(broken()))
def test_broken_file_is_an_error_that_names_it(what):
    with pytest.raises(DataError, match=r"decode file0\.png \(in somewhere\).*--on-bad-file skip"):
        decode(listing([broken()[what]]), image_size=8)


def test_half_a_file_fails_even_when_pillow_is_told_to_tolerate_it(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(DataError):
        decode_image(broken()["half a JPEG"], 8)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(DataError, match=r"file0\.png.*No such file"):
        decode(listing([tmp_path / "gone.png"]), image_size=8)


@pytest.mark.parametrize("bad", [{2}, {0}, {4}, {0, 1, 3}])
def test_skipping_keeps_rows_labels_and_ids_aligned(bad):
    items = [b"broken" if i in bad else encoded(solid((i, i, i))) for i in range(5)]
    table = decode(listing(items, [10, 11, 12, 13, 14]), image_size=4, on_bad_file="skip")
    good = [i for i in range(5) if i not in bad]
    assert table.rows.tolist() == good
    assert table.pixels[:, 0, 0, 0].tolist() == good
    assert table.labels.tolist() == [10 + i for i in good]
    assert table.ids == tuple(f"file{i}.png" for i in good)
    assert [file.index for file in table.skipped] == sorted(bad)
    assert table.skipped[0].id == f"file{min(bad)}.png"
    assert any(f"{len(bad)} files could not be decoded" in note for note in table.notes)


def test_all_broken_is_an_error_even_when_skipping():
    with pytest.raises(DataError, match="none of the 3 images"):
        decode(listing([b"x"] * 3), image_size=4, on_bad_file="skip")


def test_conversions_are_counted():
    items = [encoded(solid(1, "L")), encoded(solid((1, 2, 3))), encoded(solid(2, "L"))]
    notes = decode(listing(items), image_size=4).notes
    assert notes == ("2 of 3 images converted to RGB from grey",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image_size": 0}, "image_size must be at least 1, got 0"),
        ({"image_size": 4, "workers": -1}, "workers must be 0 or more, got -1"),
        ({"image_size": 4, "on_bad_file": "ignore"}, "on_bad_file must be 'error' or 'skip'"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        decode(listing([encoded(solid((0, 0, 0)))]), **arguments)


@pytest.mark.slow
def test_workers_do_not_change_the_result():
    rng = np.random.default_rng(3)
    items = [
        encoded(Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)))
        for _ in range(300)
    ]
    items[150] = b"broken"
    alone = decode(listing(items), image_size=6, on_bad_file="skip")
    shared = decode(listing(items), image_size=6, on_bad_file="skip", workers=2)
    assert torch.equal(alone.pixels, shared.pixels)
    assert torch.equal(alone.rows, shared.rows)
    assert (alone.ids, alone.skipped, alone.notes) == (shared.ids, shared.skipped, shared.notes)


def test_select_keeps_all_columns_together():
    items = [encoded(solid((i, i, i))) for i in range(5)]
    chosen = decode(listing(items), image_size=4).select(torch.tensor([3, 1]))
    assert len(chosen) == 2
    assert chosen.ids == ("file3.png", "file1.png")
    assert chosen.pixels[:, 0, 0, 0].tolist() == [3, 1]
    assert chosen.labels.tolist() == chosen.rows.tolist() == [3, 1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stream", [False, True])
def test_batches_are_the_pixels_in_order(workers, stream):
    colours = [solid((n, 2 * n, 255 - n)) for n in range(7)]
    table = decode(listing(list(map(encoded, colours))), image_size=4, stream=stream)
    batches = list(table.batches(3, workers))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    expected = np.stack([np.asarray(image).transpose(2, 0, 1) for image in colours])
    np.testing.assert_array_equal(torch.cat(batches).numpy(), expected)


def test_a_batch_with_an_image_that_is_gone_names_it(tmp_path):
    files = [tmp_path / f"{n}.png" for n in range(3)]
    for file in files:
        file.write_bytes(encoded(solid((1, 2, 3))))
    table = decode(listing(files), image_size=4, stream=True)
    files[1].unlink()
    with pytest.raises(DataError, match=r"cannot decode file1\.png \(in somewhere\).*No such file"):
        list(table.batches(2))


def test_workers_stay_little_ahead_of_what_is_used(monkeypatch):
    """However slow the user of the pixels is, memory holds a few chunks."""
    asked = []

    class Pool:
        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def submit(self, work, *arguments):
            asked.append(len(arguments[0]))
            future = Future()
            future.set_result(work(*arguments))
            return future

        def shutdown(self, **_):
            pass

    monkeypatch.setattr("relatum.data.images.ProcessPoolExecutor", Pool)
    monkeypatch.setattr("relatum.data.images._CHUNK", 2)
    white = encoded(solid((255, 255, 255)))
    table = decode(listing([white] * 40), image_size=4, stream=True)
    asked.clear()
    batches = table.batches(2, workers=3)
    for used in range(1, 21):
        next(batches)
        assert sum(asked) <= 2 * used + 2 * 2 * 3
    assert sum(asked) == 40
