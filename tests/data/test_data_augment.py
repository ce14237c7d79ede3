"""Random views: every operation against torchvision's, every draw against its distribution."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torchvision.transforms import RandomResizedCrop, v2
from torchvision.transforms.v2 import functional as tv

from relatum.data import POLICIES, Augmentation, Draws, augment, resampling
from relatum.data.transforms import BRIGHTNESS, CONTRAST, HUE, NOTHING, SATURATION

SIZE = 20
CLOSE = {"rtol": 0, "atol": 2e-6}  # float32, values of order 1, tens of operations


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=6, size=SIZE, seed=0):
    return torch.randint(0, 256, (n, 3, size, size), generator=generator(seed), dtype=torch.uint8)


def same(n, size=SIZE, **changes):
    """Draws that change nothing, except for `changes`."""
    still = Draws(
        boxes=torch.tensor([0, 0, size, size]).repeat(n, 1),
        crop=torch.zeros(n, 22),
        flip=torch.zeros(n, dtype=torch.bool),
        order=torch.full((n, 4), NOTHING),
        factors=torch.tensor([1.0, 1.0, 1.0, 0.0]).repeat(n, 1),
        greyscale=torch.zeros(n, dtype=torch.bool),
        sigma=torch.zeros(n),
        angle=torch.zeros(n),
        shift=torch.zeros(n, 2),
    )
    return dataclasses.replace(still, **changes)


COLOUR = {
    BRIGHTNESS: tv.adjust_brightness,
    CONTRAST: tv.adjust_contrast,
    SATURATION: tv.adjust_saturation,
    HUE: tv.adjust_hue,
}


def one_by_one(x, draws):
    """The colour part of some draws, one image and one torchvision operation after the other."""
    result = []
    for i, image in enumerate(x):
        for code in draws.order[i].tolist():
            if code != NOTHING:
                image = COLOUR[code](image, float(draws.factors[i, code]))
        if draws.greyscale[i]:
            image = tv.rgb_to_grayscale(image, num_output_channels=3)
        result.append(image)
    return torch.stack(result)


# --- operations


@pytest.mark.parametrize("code", list(COLOUR))
def test_each_colour_operation_is_torchvisions(code):
    x = images(8)
    factors = torch.tensor([1.0, 1.0, 1.0, 0.0]).repeat(8, 1)
    values = [0.0, 0.3, 0.9, 1.0, 1.1, 1.5, 1.8, 2.5]
    turns = [-0.5, -0.3, -0.1, 0.0, 0.05, 0.2, 0.4, 0.5]
    factors[:, code] = torch.tensor(turns if code == HUE else values)
    order = torch.full((8, 4), NOTHING)
    order[:, 0] = code
    draws = same(8, order=order, factors=factors)
    got = POLICIES["none"](SIZE).apply(x, draws)
    torch.testing.assert_close(got, one_by_one(x / 255, draws), **CLOSE)


def test_hue_of_pure_colours_is_known():
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(3, 3, 4, 4)
    order = torch.full((3, 4), NOTHING)
    order[:, 0] = HUE
    factors = torch.zeros(3, 4)
    factors[:, HUE] = torch.tensor([1 / 3, -1 / 3, 0.5])  # to green, to blue, to cyan
    got = POLICIES["none"](4).apply(red, same(3, 4, order=order, factors=factors))
    expected = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 1, 1]])
    torch.testing.assert_close(got[:, :, 0, 0], expected, **CLOSE)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_colour_in_every_images_own_order_is_torchvisions(seed, n):
    x = images(n, 6, seed)
    policy = dataclasses.replace(POLICIES["simclr"](6), crop_area=None, flip=0.0, blur=0.0)
    draws = policy.draw(n, generator(seed))
    expected = one_by_one(x / 255, draws)
    torch.testing.assert_close(policy.apply(x, draws), expected, rtol=0, atol=5e-6)


def test_orders_that_no_policy_draws_work_too():
    """Hand-made draws: different operations for different images."""
    order = torch.tensor([[0, 4, 4, 4], [3, 1, 4, 4], [4, 4, 4, 4], [2, 3, 0, 1], [1, 2, 4, 4]])
    factors = torch.tensor([[0.5, 1.6, 0.2, 0.3]]).repeat(5, 1)
    draws = same(5, order=order, factors=factors)
    x = images(5)
    got = POLICIES["none"](SIZE).apply(x, draws)
    torch.testing.assert_close(got, one_by_one(x / 255, draws), **CLOSE)


@pytest.mark.parametrize(("side", "size"), [(20, 20), (32, 16), (70, 32)])
def test_crop_is_torchvisions_bicubic_antialiased_crop(side, size):
    policy = Augmentation(size, input_size=side, crop_area=(0.02, 1.0))
    x = images(24, side)
    draws = policy.draw(24, generator(3))
    got = policy.apply(x, draws)
    for i, (top, left, height, width) in enumerate(draws.boxes.tolist()):
        expected = tv.resized_crop(
            x[i] / 255,
            top,
            left,
            height,
            width,
            [size, size],
            tv.InterpolationMode.BICUBIC,
            antialias=True,
        ).clamp(0, 1)
        expected = tv.horizontal_flip(expected) if draws.flip[i] else expected
        torch.testing.assert_close(got[i], expected, rtol=0, atol=1e-5)
    assert draws.flip.any()
    assert not draws.flip.all()


@pytest.mark.parametrize("size", [30, 50, 64])
def test_blur_is_torchvisions_with_simclrs_kernel(size):
    sigma = torch.tensor([0.1, 0.5, 1.0, 2.0, 0.0])
    x = images(5, size)
    got = POLICIES["none"](size).apply(x, same(5, size, sigma=sigma))
    kernel = {30: 3, 50: 5, 64: 7}[size]
    for i, value in enumerate(sigma.tolist()):
        blurred = tv.gaussian_blur(x[i] / 255, [kernel] * 2, [value] * 2) if value else x[i] / 255
        torch.testing.assert_close(got[i], blurred, **CLOSE)


def test_quarter_turn_is_exact():
    policy = Augmentation(SIZE, crop_area=None, flip=0.0, rotate=90.0)
    x = images(2)
    draws = same(2, angle=torch.tensor([torch.pi / 2, 0.0]))
    got = policy.apply(x, draws)
    expected = torch.stack([torch.rot90(x[0] / 255, 1, (1, 2)), x[1] / 255])  # counter-clockwise
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)


def test_small_rotation_agrees_with_torchvision():
    policy = Augmentation(SIZE, crop_area=None, flip=0.0, rotate=15.0)
    x = images(1) / 255
    got = policy.apply(x, same(1, angle=torch.tensor([np.radians(15.0)]).float()))
    expected = tv.rotate(x, 15.0, tv.InterpolationMode.BILINEAR)
    inner = (..., slice(4, -4), slice(4, -4))
    torch.testing.assert_close(got[inner], expected[inner], rtol=0, atol=1e-4)


def test_shift_by_whole_pixels_moves_and_fills_with_black():
    policy = Augmentation(SIZE, crop_area=None, flip=0.0, shift=0.5)
    x = images(1)
    got = policy.apply(x, same(1, shift=torch.tensor([[3 / SIZE, -2 / SIZE]])))
    expected = torch.zeros(1, 3, SIZE, SIZE)
    expected[..., : SIZE - 3, 2:] = x[..., 3:, : SIZE - 2] / 255  # the window moves 3 down, 2 left
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)


def test_affine_crop_and_flip_agree_with_the_bilinear_crop():
    policy = Augmentation(SIZE, crop_area=(0.3, 1.0), rotate=1.0)
    x = images(8)
    draws = dataclasses.replace(policy.draw(8, generator(4)), angle=torch.zeros(8))
    got = policy.apply(x, draws)
    for i, (top, left, height, width) in enumerate(draws.boxes.tolist()):
        part = x[i : i + 1, :, top : top + height, left : left + width] / 255
        expected = torch.nn.functional.interpolate(part, (SIZE, SIZE), mode="bilinear")[0]
        expected = expected.flip(-1) if draws.flip[i] else expected
        # Inside only: at its border the crop alone knows no neighbours, the whole image does.
        inner = (..., slice(3, -3), slice(3, -3))
        torch.testing.assert_close(got[i][inner], expected[inner], rtol=0, atol=1e-4)


def test_none_changes_nothing():
    x = images()
    got = POLICIES["none"](SIZE)(x, generator())
    assert torch.equal(got, x.float() / 255)


@pytest.mark.parametrize("name", list(POLICIES))
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32, torch.float64])
def test_views_are_new_floats_in_the_unit_interval(name, kind):
    x = images(32, 24)
    x = x if kind == torch.uint8 else x.to(kind) / 255
    before = x.clone()
    views = POLICIES[name](24)(x, generator(1))
    assert views.shape == (32, 3, 24, 24)
    assert views.dtype == (torch.float32 if kind == torch.uint8 else kind)
    assert views.is_contiguous()
    assert float(views.min()) >= 0
    assert float(views.max()) <= 1
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", ["simclr", "digits"])
def test_uint8_and_float_images_give_the_same_views(name):
    policy, x = POLICIES[name](24), images(16, 24)
    draws = policy.draw(16, generator(2))
    torch.testing.assert_close(policy.apply(x, draws), policy.apply(x / 255, draws), **CLOSE)


# --- draws


@pytest.mark.parametrize("name", ["simclr", "simclr-cifar", "digits", "crop-flip"])
def test_slices_of_the_draws_give_slices_of_the_views(name):
    policy, x = POLICIES[name](24), images(30, 24)
    draws = policy.draw(30, generator(5))
    whole = policy.apply(x, draws)
    for rows in (slice(0, 7), slice(7, 8), slice(8, 30)):
        torch.testing.assert_close(policy.apply(x[rows], draws[rows]), whole[rows], **CLOSE)
    some = torch.tensor([4, 28, 4])
    torch.testing.assert_close(policy.apply(x[some], draws[some]), whole[some], **CLOSE)
    assert len(draws[2:9]) == 7


def test_pieces_of_a_large_batch_give_the_views_of_the_whole(monkeypatch):
    policy, x = POLICIES["simclr"](24), images(70, 24)
    draws = policy.draw(70, generator(5))
    whole = policy.apply(x, draws)
    monkeypatch.setattr(augment, "_CACHED", 3 * 24**2 * 8 // torch.get_num_threads())
    torch.testing.assert_close(policy.apply(x, draws), whole, **CLOSE)


def test_stored_and_fresh_crop_matrices_are_the_same(monkeypatch):
    """Fresh ones serve large images on GPUs only, so nothing else here sees them."""
    boxes = Augmentation(20).draw(30, generator(2)).boxes
    flip = torch.arange(30) % 2 == 0
    windows = (boxes[:, 0], boxes[:, 2], flip, 20, 16, torch.float32)
    for on_left in (True, False):
        matrices, row = resampling._matrices(*windows, on_left=on_left)
        with monkeypatch.context() as patch:
            patch.setattr(resampling, "_TABLE_ENTRIES", 0)
            fresh, own = resampling._matrices(*windows, on_left=on_left)
        assert len(fresh) == 30 < len(matrices)
        torch.testing.assert_close(matrices[row], fresh[own], **CLOSE)


def fields(draws):
    return [getattr(draws, field.name) for field in dataclasses.fields(draws)]


def test_the_seed_decides_and_epochs_differ():
    policy = POLICIES["simclr"](32)
    one, two = generator(7), generator(7)
    first = [policy.draw(16, one) for _ in range(2)]
    again = [policy.draw(16, two) for _ in range(2)]
    for a, b in zip(first, again, strict=True):
        assert all(torch.equal(u, v) for u, v in zip(fields(a), fields(b), strict=True))
    assert not torch.equal(first[0].boxes, first[1].boxes)
    assert not torch.equal(first[0].factors, first[1].factors)


def test_a_prefix_of_the_draws_does_not_depend_on_their_number():
    policy = POLICIES["simclr"](32)
    few, many = policy.draw(5, generator(1)), policy.draw(50, generator(1))
    assert all(torch.equal(u, v[:5]) for u, v in zip(fields(few), fields(many), strict=True))


@pytest.mark.parametrize("name", ["simclr", "simclr-cifar", "digits", "crop-flip"])
def test_every_image_and_every_view_has_its_own_draw(name):
    policy = POLICIES[name](32)
    x = images(1, 32).expand(64, -1, -1, -1)
    g = generator(0)
    one, two = policy(x, g), policy(x, g)
    distinct = len(torch.unique(torch.cat([one, two]).flatten(1), dim=0))
    # A crop falls back to the whole image now and then, so crops alone may repeat.
    assert distinct == 128 or (name == "crop-flip" and distinct >= 125)


@pytest.mark.parametrize(
    ("side", "area", "aspect"),
    [
        (32, (0.08, 1.0), (3 / 4, 4 / 3)),
        (224, (0.08, 1.0), (3 / 4, 4 / 3)),
        (28, (0.5, 1.0), (0.5, 2.0)),  # many candidates do not fit
    ],
)
def test_boxes_are_distributed_as_torchvisions(side, area, aspect):
    n = 4000
    boxes = Augmentation(side, crop_area=area, crop_aspect=aspect).draw(n, generator(11)).boxes
    torch.manual_seed(12)
    image = torch.empty(3, side, side)
    theirs = [RandomResizedCrop.get_params(image, list(area), list(aspect)) for _ in range(n)]
    theirs = np.asarray(theirs)
    ours = boxes.numpy()
    jitter = np.random.default_rng(13)  # breaks ties of whole numbers, equally on both sides
    for column in range(4):
        a = ours[:, column] + jitter.random(n)
        b = theirs[:, column] + jitter.random(n)
        assert stats.ks_2samp(a, b).pvalue > 1e-3, column
    a, b = (boxes[:, 2] * boxes[:, 3] + jitter.random(n) for boxes in (ours, theirs))
    assert stats.ks_2samp(a, b).pvalue > 1e-3
    assert (ours[:, 0] + ours[:, 2]).max() <= side
    assert (ours[:, 1] + ours[:, 3]).max() <= side
    assert ours.min() >= 0


@pytest.mark.parametrize("aspect", [(2.0, 3.0), (0.2, 0.4), (0.5, 2.0)])
def test_fallback_is_torchvisions_central_box(aspect):
    """An area of the whole image with another aspect ratio never fits."""
    side = 20
    policy = Augmentation(side, crop_area=(1.0, 1.0), crop_aspect=aspect)
    ours = policy.draw(20, generator(0)).boxes
    if aspect[0] < 1 < aspect[1]:
        ours = ours[(ours[:, 2] != side) | (ours[:, 3] != side)]
        assert len(ours) == 0
    else:
        expected = RandomResizedCrop.get_params(torch.empty(3, side, side), [1, 1], list(aspect))
        assert (ours == torch.tensor(expected)).all()


def test_colour_draws_have_simclrs_distribution():
    n = 6000
    draws = POLICIES["simclr"](32).draw(n, generator(21))
    ranges = [(0.2, 1.8), (0.2, 1.8), (0.2, 1.8), (-0.2, 0.2)]
    for column, (low, high) in enumerate(ranges):
        uniform = stats.uniform(low, high - low)
        assert stats.kstest(draws.factors[:, column].numpy(), uniform.cdf).pvalue > 1e-3
    jittered = draws.order[:, 0] != NOTHING
    orders, counts = torch.unique(draws.order[jittered], dim=0, return_counts=True)
    assert len(orders) == 24  # every permutation
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    for happened, probability in (
        (jittered, 0.8),
        (draws.flip, 0.5),
        (draws.greyscale, 0.2),
        (draws.sigma > 0, 0.5),
    ):
        assert stats.binomtest(int(happened.sum()), n, probability).pvalue > 1e-3
    sigma = draws.sigma[draws.sigma > 0].numpy()
    assert stats.kstest(sigma, stats.uniform(0.1, 1.9).cdf).pvalue > 1e-3


def test_cifar_policy_halves_the_colours_and_has_no_blur():
    draws = POLICIES["simclr-cifar"](32).draw(3000, generator(2))
    assert draws.factors[:, :3].min() >= 0.6
    assert draws.factors[:, :3].max() <= 1.4
    assert draws.factors[:, 3].abs().max() <= 0.1
    assert (draws.sigma == 0).all()


def test_digits_are_not_mirrored():
    draws = POLICIES["digits"](28).draw(2000, generator(2))
    assert not draws.flip.any()
    assert set(draws.order.flatten().tolist()) == {BRIGHTNESS, CONTRAST, NOTHING}
    assert (
        stats.kstest(draws.angle.numpy(), stats.uniform(-np.pi / 12, np.pi / 6).cdf).pvalue > 1e-3
    )


# --- whole views


def torchvisions(policy):
    """The policy in torchvision's classes, on floats; the crop's overshoot is clipped, as ours."""
    bicubic = v2.InterpolationMode.BICUBIC
    jitter = v2.ColorJitter(policy.brightness, policy.contrast, policy.saturation, policy.hue)
    blur = v2.GaussianBlur(2 * (policy.size // 10 // 2) + 1, policy.blur_sigma)
    return v2.Compose(
        [
            v2.RandomResizedCrop(policy.size, policy.crop_area, policy.crop_aspect, bicubic),
            v2.Lambda(lambda x: x.clamp(0, 1)),
            v2.RandomHorizontalFlip(policy.flip),
            v2.RandomApply([jitter], policy.jitter_probability),
            v2.RandomGrayscale(policy.greyscale),
            v2.RandomApply([blur], policy.blur),
        ]
    )


def summaries(x):
    """Numbers that sum up each view; noise breaks the ties of crops that repeat."""
    left, right = x.mean(dim=(1, 2)).chunk(2, dim=1)
    numbers = {
        "level": x.mean(dim=(1, 2, 3)),
        "red": x[:, 0].mean(dim=(1, 2)),
        "contrast": x.flatten(1).std(dim=1),
        "saturation": (x.amax(1) - x.amin(1)).mean(dim=(1, 2)),
        "gradient": x.diff(dim=3).square().mean(dim=(1, 2, 3)).sqrt(),
        "right minus left": (right - left).mean(dim=1),
    }
    noise = np.random.default_rng(9)
    return {k: v.numpy() + 1e-5 * noise.standard_normal(len(v)) for k, v in numbers.items()}


N_VIEWS = 1500
WRONG = {
    "level": {"brightness": 0.2},
    "red": {"hue": 0.4},
    "contrast": {"crop_area": (0.9, 1.0)},
    "saturation": {"greyscale": 0.0},
    "gradient": {"blur": 0.0},
    "right minus left": {"flip": 0.0},
}


@pytest.fixture(scope="module")
def their_views():
    # Red above all, brighter to the right, with fine detail: what each operation changes.
    x = 0.5 + 0.5 * images(1, 30, 3) / 255
    x *= torch.linspace(0.3, 1, 30) * torch.tensor([1.0, 0.5, 0.2]).view(3, 1, 1)
    torch.manual_seed(5)
    transform = torchvisions(POLICIES["simclr"](30))
    return x, summaries(torch.stack([transform(x[0]) for _ in range(N_VIEWS)]))


def test_whole_views_are_distributed_as_torchvisions(their_views):
    x, theirs = their_views
    views = POLICIES["simclr"](30)(x.expand(N_VIEWS, -1, -1, -1), generator(6))
    for name, values in summaries(views).items():
        p = stats.ks_2samp(values, theirs[name]).pvalue
        assert p > 1e-3 / len(theirs), (name, p)


@pytest.mark.parametrize("name", list(WRONG))
def test_a_wrong_policy_is_seen_in_whole_views(their_views, name):
    """Each summary can fail the test above."""
    x, theirs = their_views
    policy = dataclasses.replace(POLICIES["simclr"](30), **WRONG[name])
    values = summaries(policy(x.expand(N_VIEWS, -1, -1, -1), generator(6)))[name]
    assert stats.ks_2samp(values, theirs[name]).pvalue < 1e-3 / len(theirs)


# --- messages


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flip": 1.5}, r"flip must be in \[0, 1\], got 1.5"),
        ({"hue": 0.6}, "hue must be in"),
        ({"brightness": -1.0}, "brightness must be 0 or more"),
        ({"crop_area": (0.0, 1.0)}, "crop_area must be ordered"),
        ({"crop_aspect": (2.0, 1.0)}, "crop_aspect must be ordered"),
        ({"size": 0}, "size must be at least 1"),
        ({"rotate": 5.0, "input_size": 64}, "rotate and shift need images of the views' size 32"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        Augmentation(**{"size": 32, **changes})


def test_wrong_images_are_named():
    policy = POLICIES["none"](32)
    with pytest.raises(ValueError, match=r"need images of shape \(2, 3, 32, 32\), got \(2, 3, 28"):
        policy(images(2, 28), generator())
    with pytest.raises(ValueError, match=r"must be uint8 or floats in \[0, 1\], got torch.int64"):
        policy(images(2, 32).long(), generator())


def test_empty_batch():
    assert POLICIES["simclr"](32)(images(0, 32), generator()).shape == (0, 3, 32, 32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", list(POLICIES))
def test_gpu_views_equal_cpu_views(name):
    policy, x = POLICIES[name](32), images(64, 32)
    draws = policy.draw(64, generator(3))
    views = policy.apply(x.cuda(), draws)
    assert views.is_cuda
    torch.testing.assert_close(views.cpu(), policy.apply(x, draws), rtol=0, atol=1e-5)
