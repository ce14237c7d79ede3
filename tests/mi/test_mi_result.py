"""The estimate as people meet it: units, strict JSON, text, pictures."""

import json
import math

import matplotlib
import numpy as np
import pytest

from relatum import RPC
from relatum.mi.result import KINDS, MIEstimate

matplotlib.use("Agg")

POINTWISE = np.array([0.5, -1.0, np.nan, 2.0])
FULL = MIEstimate(
    value=0.5,
    interval=(0.25, 0.75),
    method="cpc",
    kind="lower bound",
    standard_error=0.125,
    ceiling=2.0,
    p_value=0.005,
    permutations=199,
    train_value=0.75,
    seed_spread=0.0625,
    pointwise=POINTWISE,
    rows=4000,
    held_out=1000,
    seconds=1.5,
    warnings=("the critic <had not> converged", "column 'b' is constant"),
    settings={"objective": RPC(), "hidden": (64, 64), "seed": np.int64(3), "rate": float("inf")},
)
BARE = MIEstimate(-0.01, (math.nan, math.nan), "ksg", "difference")


def test_bits_are_nats_over_log_2():
    bits = FULL.in_bits()
    assert bits.unit == "bits"
    for name in ("value", "standard_error", "ceiling", "train_value", "seed_spread"):
        assert getattr(bits, name) == pytest.approx(getattr(FULL, name) / math.log(2), rel=1e-15)
    assert bits.interval == pytest.approx((0.25 / math.log(2), 0.75 / math.log(2)), rel=1e-15)
    np.testing.assert_allclose(bits.pointwise, POINTWISE / math.log(2), rtol=1e-15)
    # What is no amount of information stays: shares, counts, seconds.
    for name in ("p_value", "level", "permutations", "rows", "held_out", "seconds"):
        assert getattr(bits, name) == getattr(FULL, name)


def test_every_float_of_information_is_converted():
    """A field added later must be placed: here, or among those that stay."""
    stays = {"p_value", "level", "seconds"}
    floats = {k for k, v in vars(FULL).items() if isinstance(v, float)} - stays
    bits = FULL.in_bits()
    assert all(getattr(bits, name) != getattr(FULL, name) for name in floats)


def test_conversion_there_and_back():
    again = FULL.in_bits().in_bits().in_nats()
    assert again.unit == "nats"
    assert again.value == pytest.approx(0.5, rel=1e-15)
    assert FULL.in_nats().value == 0.5
    assert BARE.in_bits().ceiling is None


def test_to_dict_is_strict_json():
    text = json.dumps(FULL.to_dict(), allow_nan=False)
    read = json.loads(text)
    assert set(read) == set(vars(FULL))
    assert read["interval"] == [0.25, 0.75]
    assert read["pointwise"] == [0.5, -1.0, None, 2.0]
    assert read["settings"]["hidden"] == [64, 64]
    assert read["settings"]["seed"] == 3
    assert read["settings"]["rate"] is None
    assert read["settings"]["objective"] == repr(RPC())
    assert json.loads(json.dumps(BARE.to_dict(), allow_nan=False))["interval"] == [None, None]


@pytest.mark.parametrize("shown", [str(FULL), FULL._repr_html_()])
def test_text_says_what_the_number_is(shown):
    for part in (
        "cpc", "0.500 ± 0.125 nats", "0.250 to 0.750", "95 % interval", KINDS["lower bound"],
        "2.000 (1.500 above", "0.005 (of independence, 199 permutations)",
        "0.750 (gap to held out 0.250)", "0.062", "4,000, read from 1,000", "1.5 s",
        "is constant",
    ):  # fmt: skip
        assert part in shown.replace("&#x27;", "'")


def test_text_is_aligned_and_warns_line_by_line():
    lines = str(FULL).splitlines()
    assert lines[-2:] == [f"warning: {text}" for text in FULL.warnings]
    body = lines[1:-2]
    start = body[0].index("0.500")
    assert all(line[start - 2 : start] == "  " and line[start] != " " for line in body)


@pytest.mark.parametrize("shown", [str(BARE), repr(BARE), BARE._repr_html_()])
def test_nothing_unknown_is_printed(shown):
    assert "-0.010" in shown
    assert "nan" not in shown.lower()
    assert "None" not in shown


def test_html_is_escaped():
    assert "&lt;had not&gt;" in FULL._repr_html_()
    assert "<had not>" not in FULL._repr_html_()


def test_digits_follow_the_standard_error():
    fine = MIEstimate(0.123456789, (0.1234, 0.1235), "ksg", "difference", standard_error=2.5e-5)
    assert "0.123457 ± 0.000025 nats" in str(fine)
    assert "0.000 ±" in str(MIEstimate(-1e-5, (-1, 1), "ksg", "difference", standard_error=0.1))


@pytest.mark.parametrize("estimate", [FULL, BARE, FULL.in_bits()])
def test_plot(estimate):
    from matplotlib import pyplot

    axes = estimate.plot()
    axes.figure.canvas.draw()
    assert axes.get_title() == f"{estimate.method}: {estimate.kind}"
    assert estimate.unit in axes.get_xlabel()
    heights = sum(patch.get_height() for patch in axes.containers[0]) if axes.containers else None
    assert heights == (3 if estimate.pointwise is not None else None)
    pyplot.close(axes.figure)
    figure, given = pyplot.subplots()
    assert estimate.plot(given) is given
    pyplot.close(figure)
