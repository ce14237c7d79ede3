"""The page on mutual information: self-contained, escaped, and saying no more than it may."""

import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from relatum.report.mi_page import mi_page
from relatum.report.mi_words import meanings, verdict

EVIL = '<b>&"</b>'


def estimate(method, value, half, kind="plug-in", **more):
    plain = {
        "method": method, "value": value, "interval": [value - half, value + half], "kind": kind,
        "unit": "nats", "level": 0.95, "standard_error": half / 2, "ceiling": None,
        "p_value": 0.005, "permutations": 199, "train_value": None, "seed_spread": None,
        "pointwise": None, "rows": 200, "held_out": 200, "seconds": 1.0, "warnings": [],
        "settings": {},
    }  # fmt: skip
    return plain | more


def record(*estimates, **more):
    plain = {
        "data": "d.csv", "x": ["a"], "y": ["b"], "rows": 200, "dropped": 0, "groups": None,
        "block_length": None, "unit": "nats", "level": 0.95, "estimates": list(estimates),
        "refused": {}, "environment": {"command": "relatum mi", "python": "3", "versions": {}},
        "kinds": dict.fromkeys(("lower bound", "plug-in", "difference"), "words about it"),
    }  # fmt: skip
    return plain | more


RNG = np.random.default_rng(0)
X = RNG.normal(size=200)
FULL = record(
    estimate("rpc", 0.5, 0.1, pointwise=[None, *RNG.normal(0.5, 1, 199).tolist()],
             train_value=0.6, warnings=[f"not converged {EVIL}"], settings={"hidden": [64, EVIL]}),
    estimate("cpc", 0.4, 0.1, "lower bound", ceiling=0.55, interval=[None, None]),
    estimate("ksg", 0.45, 0.1, "difference"),
    x=[f"a{EVIL}"], refused={"discrete": f"needs classes {EVIL}"}, dropped=3, data=EVIL,
)  # fmt: skip


def test_page_is_self_contained_and_escaped():
    page = mi_page(FULL, (X.tolist(), (X + 1).tolist()))
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert not re.search(r"url\((?!#)", page)
    assert EVIL not in page
    assert "prefers-color-scheme: dark" in page
    tags = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append((tag, dict(attrs)))
    parser.feed(page)
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    # One of intervals, one histogram, one scatter, and a swatch a method.
    labels = [a["aria-label"] for t, a in tags if t == "svg" and "aria-label" in a]
    assert len(labels) == 3
    for text in ("3 with missing values", "not converged", "discrete gave no estimate", "0.550"):
        assert text in page
    assert not re.search(r"\b(nan|None|inf)\b", page)
    assert "#f4e4" not in page


def test_no_row_values_no_pictures_of_rows():
    assert "Row by row" not in mi_page(record(estimate("ksg", 0.4, 0.1)), ([0.0], [1.0]))


def joined(*estimates, **more):
    return " ".join(verdict(record(*estimates, **more)))


def test_dependence_needs_interval_and_p_value():
    low, weak = estimate("ksg", 0.1, 0.2), estimate("ksg", 0.4, 0.1, p_value=0.2)
    for found in (low, weak):
        text = joined(found)
        assert "ksg does not find a dependence between a and b in 200 rows" in text
        assert "no proof of independence" in text
        assert "correlation" not in text
    assert "depend on each other" in joined(estimate("ksg", 0.4, 0.1))
    assert "depend on each other" in joined(estimate("ksg", 0.4, 0.1, p_value=None))
    assert "depend on each other" in joined(estimate("ksg", 0.4, 0.1, interval=[None, None]))


def test_methods_that_differ_are_named():
    text = joined(estimate("rpc", 0.4, 0.1), estimate("gaussian", 0.01, 0.1))
    assert "rpc finds that a and b depend on each other; gaussian does not." in text
    assert "The intervals of gaussian and rpc do not overlap" in text
    assert "The estimate is 0.400 nats" in text


def test_a_lower_bound_below_is_no_disagreement():
    bound = estimate("cpc", 0.1, 0.05, "lower bound")
    assert "overlap" not in joined(bound, estimate("ksg", 0.5, 0.05, "difference"))
    above = estimate("cpc", 0.9, 0.05, "lower bound")
    assert "of ksg and cpc do not overlap" in joined(above, estimate("ksg", 0.5, 0.05))


@pytest.mark.parametrize("unit", ["nats", "bits"])
def test_correlation_of_equal_information(unit):
    """I = -log(1 - rho^2) / 2 of two normal variables, whatever the unit."""
    nats = -math.log(1 - 0.8**2) / 2
    value = nats / math.log(2) if unit == "bits" else nats
    assert "correlation is 0.80 (" in joined(estimate("ksg", value, 0.01), unit=unit)


def test_meanings_name_what_there_is():
    terms = [term for term, _ in meanings(FULL)]
    for term in ("Plug-in (rpc)", "Lower bound (cpc)", "Difference (ksg)", "The p-value",
                 "Training gap", "The ceiling", "The 95\N{NO-BREAK SPACE}% interval"):  # fmt: skip
        assert term in terms
    bare = meanings(record(estimate("ksg", 0.4, 0.1, "difference", p_value=None)))
    assert len(bare) == 4
    grouped = dict(meanings(record(estimate("ksg", 0.4, 0.1), block_length=7)))
    assert "blocks of 7 rows" in grouped["The 95\N{NO-BREAK SPACE}% interval"]


def test_many_columns_are_counted():
    many = record(estimate("ksg", 0.4, 0.1), x=[f"column {i}" for i in range(9)], y=["b", "c"])
    assert "(column 0 and 8 more) and (b and c) depend" in " ".join(verdict(many))
