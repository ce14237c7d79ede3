"""The call: its modes, mistakes, words, advice, files and drawing."""

import json
import math

import numpy as np
import pytest
import torch

import relatum
from relatum import TransferCertificate, certify
from relatum.latent_class import minimiser_gap
from relatum.latent_class.certificate.advice import advise
from relatum.latent_class.certificate.meanings import DIAGNOSTICS, MEANINGS
from relatum.latent_class.certificate.records import CertificateLine, PairCost, lines_of
from relatum.runs import strict_json

QUICK = {"k": (), "block": ()}


def blobs(size=300, classes=3, width=4, noise=0.3, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.arange(size) % classes
    rows = np.eye(classes, width)[labels] + noise * generator.standard_normal((size, width))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def mates_of(rows, labels):
    """The next row of the class."""
    mates = np.empty_like(rows)
    for c in np.unique(labels):
        mine = np.flatnonzero(labels == c)
        mates[mine] = rows[np.roll(mine, 1)]
    return mates


ROWS, LABELS = blobs()
FULL = certify(ROWS, LABELS, radius=1.0, k=(1, 4), block=(1, 2, 500))


def test_labels_give_the_whole_waterfall():
    keys = [line.key for line in FULL.lines]
    for name in MEANINGS:
        if name not in ("pair_risk", "augmentation_gap", "training_gap"):
            wanted = [name.replace("[k]", f"[{k}]") for k in (1, 4)] if "[k]" in name else [name]
            assert set(wanted) <= set(keys), name
    assert [line.group for line in FULL.lines] == sorted(line.group for line in FULL.lines)
    assert {line.kind for line in FULL.lines} <= {"fact", "risk", "gap", "price", "bound"}
    assert [shot.shots for shot in FULL.few_shot] == [1, 2]
    assert set(FULL.diagnostics) == set(DIAGNOSTICS)
    assert len(FULL.costly) == 3
    assert FULL.assumptions["class prior given"] is False
    assert any("labels serve twice" in warning for warning in FULL.warnings)
    prior = certify(ROWS, LABELS, radius=1.0, class_prior=[0.2, 0.3, 0.5], **QUICK)
    assert prior.assumptions["class prior given"] is True
    assert not any("twice" in warning for warning in prior.warnings)
    assert prior.line("collision_probability").value == pytest.approx(0.38)


def test_without_a_radius_nothing_is_certified():
    found = certify(ROWS, LABELS, **QUICK)
    assert found.certified is None and found.vacuous is None and "no radius" in found.reason
    assert found.line("certificate_point").value > 0
    assert "cross_entropy_low[1]" not in [line.key for line in certify(ROWS, LABELS, k=1).lines]


def test_pairs_need_no_labels():
    mates = mates_of(ROWS, LABELS)
    found = certify(ROWS, pairs=mates, radius=1.0, tau_lower=0.2)
    assert [line.key for line in found.lines] == ["contrastive_risk", "certificate_point"]
    risk, point = (line.value for line in found.lines)
    assert point == pytest.approx((risk - 0.2) / 0.8) and found.certified > point
    assert found.lines[1].standard_error == pytest.approx(found.lines[0].standard_error / 0.8)
    assert found.does_not_say[0].startswith("If the pairs are augmented views")
    assert set(DIAGNOSTICS) == set(found.diagnostics)
    assert found.settings["mode"] == "pairs"
    # The trace within classes from pairs and from labels.
    labelled = FULL.diagnostics
    for name in ("trace_within", "trace_between"):
        assert found.diagnostics[name] == pytest.approx(labelled[name], abs=0.06)
    given = certify(ROWS, pairs=mates, negatives=ROWS[::2], radius=1.0)
    assert "150 triplets" in given.reason and "150 triplets" in found.reason
    grouped = certify(ROWS, pairs=mates, groups=np.arange(300) // 3, radius=1.0)
    assert "50 triplets" in grouped.reason and any("100 of 300" in x for x in grouped.notes)


def test_labels_tell_views_from_class_mates():
    generator = np.random.default_rng(1)
    views = ROWS + 0.01 * generator.standard_normal(ROWS.shape)
    found = certify(ROWS, LABELS, views, **QUICK)
    assert any("look like views" in warning for warning in found.warnings)
    name = "pairs are class mates, independent given the class"
    assert found.assumptions[name] is False
    assert found.line("pair_risk").value < found.line("contrastive_risk").value
    total = found.line("pair_risk").value + found.line("augmentation_gap").value
    assert total >= found.line("contrastive_risk").value - 0.05
    mates = certify(ROWS, LABELS, mates_of(ROWS, LABELS), **QUICK)
    assert mates.assumptions[name] is None
    assert not any("look like views" in warning for warning in mates.warnings)
    line = mates.line("pair_risk")
    gap = line.value - mates.line("contrastive_risk").value
    assert abs(gap) < 4 * line.standard_error


def test_types_do_not_matter():
    plain = certify(ROWS, LABELS, **QUICK).lines
    again = certify(torch.from_numpy(ROWS), torch.from_numpy(LABELS).to(torch.uint8), **QUICK)
    assert [line.value for line in again.lines] == [line.value for line in plain]
    words = np.array(["ant", "bee", "cat"])[LABELS].tolist()
    named = certify(ROWS, words, class_prior={"ant": 0.2, "bee": 0.3, "cat": 0.5}, **QUICK)
    assert {named.costly[0].class_a, named.costly[0].class_b} <= {"ant", "bee", "cat"}


def test_unlabelled_rows_and_other_classes_stay_out_everywhere():
    labels = LABELS.copy()
    labels[:30] = -1
    kept = slice(30, None)
    mates = mates_of(ROWS, LABELS)
    found = certify(ROWS, labels, mates, groups=np.arange(300), **QUICK)
    alone = certify(ROWS[kept], LABELS[kept], mates[kept], groups=np.arange(270), **QUICK)
    values = [line.value for line in alone.lines]
    assert [line.value for line in found.lines] == pytest.approx(values, abs=1e-12)
    assert any("30 rows labelled -1" in note for note in found.notes)
    rare = np.where(np.arange(300) < 1, 7, LABELS)
    found = certify(ROWS, rare, classes=[0, 1, 2], **QUICK)
    assert found.settings["classes"] == 3 and found.settings["rows"] == 299
    assert any("only 3 classes" in note for note in found.notes)


NAN = ROWS.copy()
NAN[5, 1] = math.nan
RARE = np.where(np.arange(300) < 1, 7, LABELS)
MISTAKES = {
    r"needs labels or pairs, got neither": (ROWS, {}),
    r"embeddings must be finite, row 5 is not \(1 such rows\)": (NAN, {"labels": LABELS}),
    r"embeddings must be a matrix": (ROWS[0], {"labels": LABELS}),
    r"labels must have shape \(300,\), got \(299,\)": (ROWS, {"labels": LABELS[1:]}),
    r"class 7 has 1: name the other classes in classes": (ROWS, {"labels": RARE}),
    r"classes must be labels that occur, 9 does not": (ROWS, {"labels": LABELS, "classes": [0, 9]}),
    r"pairs must have the shape \(300, 4\) of embeddings.*got \(299, 4\)": (
        ROWS, {"pairs": ROWS[1:]},
    ),
    r"pairs must be finite, row 5": (ROWS, {"pairs": NAN}),
    r"pairs must be 4 or more": (ROWS, {"pairs": ROWS, "groups": [0] * 300}),
    r"negatives go with pairs": (ROWS, {"labels": LABELS, "negatives": ROWS}),
    r"negatives must have 4 columns, got 3": (ROWS, {"pairs": ROWS, "negatives": ROWS[:, :3]}),
    r"radius must be a bound on .* got 0.5, and row \d+ of embeddings has length 1": (
        ROWS, {"labels": LABELS, "radius": 0.5},
    ),
    r"radius must be .* got 1.5, and row \d+ of pairs has length 2": (
        ROWS, {"pairs": 2 * ROWS, "radius": 1.5},
    ),
    r"radius must be .* got nan": (ROWS, {"labels": LABELS, "radius": math.nan}),
    r"delta must lie between 0 and 1, got 1": (ROWS, {"labels": LABELS, "delta": 1}),
    r"level must lie between 0 and 1, got 95": (ROWS, {"labels": LABELS, "level": 95}),
    r"tau_lower must be a lower bound in \[0, 1\) .* got -0.1": (
        ROWS, {"pairs": ROWS, "tau_lower": -0.1},
    ),
    r"class_prior goes with labels": (ROWS, {"pairs": ROWS, "class_prior": [0.5, 0.5]}),
    r"class_prior must hold one number for each of the 3 classes": (
        ROWS, {"labels": LABELS, "class_prior": [0.5, 0.5]},
    ),
    r"loss must be one of hinge, logistic, got 'square'": (
        ROWS, {"labels": LABELS, "loss": "square"},
    ),
    r"groups must have one entry for each of 300 rows, got 2": (
        ROWS, {"labels": LABELS, "groups": [1, 2]},
    ),
    r"groups must leave every class rows of 3 groups or more, class 0 has 1": (
        ROWS, {"labels": LABELS, "groups": LABELS},
    ),
    r"k must be whole numbers from 1 on, got 0": (ROWS, {"labels": LABELS, "k": 0}),
    r"block must be whole numbers from 1 on, got 1.5": (ROWS, {"labels": LABELS, "block": [1.5]}),
}  # fmt: skip


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes(message):
    rows, options = MISTAKES[message]
    with pytest.raises(ValueError, match=message):
        certify(rows, **options)


def test_integers_are_no_embeddings():
    with pytest.raises(TypeError, match="embeddings must be floating point"):
        certify(np.eye(6, dtype=int), [0, 0, 0, 1, 1, 1])


def test_words_fit_a_page():
    text = str(FULL)
    assert max(map(len, text.splitlines())) <= 100
    for line in FULL.lines:
        assert f"   {line.symbol} " in text
        if abs(line.value) >= 5e-4:
            assert f"{line.value:.3f}" in text, line.key
    for part in (*FULL.advice, *FULL.warnings, *FULL.notes, *FULL.does_not_say):
        assert "".join(part.split()) in "".join(text.split())
    assert f"CERTIFIED: L_sup^μ <= {FULL.certified:.3f} with probability 95 %" in text
    assert "rows independent: cannot be seen from the data" in text
    paired = str(certify(ROWS, pairs=mates_of(ROWS, LABELS), radius=1.0))
    assert max(map(len, paired.splitlines())) <= 100 and "Few-shot" not in paired


@pytest.mark.parametrize("columns", [20, 60, 80, 300])
def test_words_fit_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = str(FULL).splitlines()
    assert max(map(len, lines)) <= min(100, max(60, columns))
    numbers = [int(line.split()[0]) for line in lines if line[1:3] == "  " and line[0].isdigit()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_bound_above_one_certifies_nothing():
    loose = certify(ROWS[::10], LABELS[::10], radius=9.0)
    assert loose.certified is not None and loose.certified > 1
    text = " ".join(str(loose).split())
    assert "nothing is certified, as" in text or "nothing, as no error is above 100 %" in text


def test_it_goes_through_json_and_back():
    entries = FULL.to_dict()
    text = json.dumps(entries, allow_nan=False)
    assert json.loads(text) == json.loads(strict_json(entries))
    again = TransferCertificate.from_dict(json.loads(text))
    assert again.to_dict() == json.loads(text)
    assert again.line("noncollision_risk") == FULL.line("noncollision_risk")
    assert math.isnan(again.line("jensen_bound").standard_error)
    assert str(again) == str(FULL)


def test_a_missing_line_names_those_there_are():
    with pytest.raises(KeyError, match=r"no line 'risk' .* pairwise_error, top1_error"):
        FULL.line("risk")


def test_the_drawing_is_a_waterfall():
    pytest.importorskip("matplotlib").use("Agg")
    ax = FULL.plot()
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    ends = [
        FULL.line(key).value
        for key in (
            "pairwise_error",
            "mean_classifier_risk",
            "noncollision_risk",
            "certificate_point",
        )
    ]
    ends.append(FULL.certified)
    assert [end for _, end in bars] == pytest.approx(ends)
    assert [start for start, _ in bars] == pytest.approx([0, *ends[:-1]])
    from matplotlib import pyplot

    pyplot.close("all")


def test_the_declared_class_is_reported():
    gap = minimiser_gap(2e4, 10**6, 1.0)
    found = certify(ROWS, LABELS, training=gap, **QUICK)
    line = found.line("training_gap")
    assert line.value == gap.value and not gap.vacuous and "vacuous" not in line.reading
    lost = certify(ROWS, LABELS, training=minimiser_gap(2e4, 100, 1.0), **QUICK)
    assert lost.line("training_gap").reading.endswith("(vacuous)")
    assert found.lines[-1].group == 8


def entries(**values):
    return lines_of(values)


def test_advice_follows_the_numbers():
    assert advise(entries(pairwise_error=0.1)) == ()
    small = certify(0.3 * ROWS, LABELS, **QUICK)
    assert any(x.startswith("Scale: embeddings times") for x in small.advice)
    scaled = [1.0, 0.4]
    (advice,) = advise((), scale=lambda factor: scaled[factor == 2.0])
    assert "times 2 (a temperature times 0.25)" in advice and "from 1.000 to about 0.400" in advice
    noisy = entries(noncollision_risk=0.5, jensen_gap=0.3)
    assert any("contrast the means of blocks" in x for x in advise(noisy))
    collided = entries(certificate_point=0.5, collision_cost=0.2)
    assert any(x.startswith("Collisions") for x in advise(collided))
    head = entries(mean_classifier_risk=0.5, supervised_high=0.2)
    assert any(x.startswith("Classifier") for x in advise(head))
    wide = entries(certificate_point=0.3)
    assert any(
        x.startswith("Rows: 0.500 of the certified 0.800") for x in advise(wide, certified=0.8)
    )
    costs = [PairCost("cat", "dog", 0.9, 0.6, 0.1)] + [PairCost("a", "b", 0.2, 0.1, 0.1)] * 4
    assert any("cat and dog" in x for x in advise(entries(noncollision_risk=0.3), costs))


def test_a_large_radius_and_a_wrong_lower_bound_are_told():
    found = certify(ROWS, LABELS, radius=4.0, tau_lower=0.9, **QUICK)
    assert any("far above the longest row" in warning for warning in found.warnings)
    assert found.assumptions["classes collide with probability 0.9 at least"] is False
    assert found.vacuous and any("vacuous" in warning for warning in found.warnings)


def test_data_given_twice_is_told():
    """Class mates from among the rows themselves: half of the numbers stand twice."""
    found = certify(ROWS, pairs=mates_of(ROWS, LABELS), radius=1.0)
    assert any(x.startswith("300 of 600 rows equal an earlier one") for x in found.warnings)
    apart = certify(ROWS, pairs=blobs(seed=1)[0], radius=1.0)
    assert not any("equal an earlier" in x for x in apart.warnings)
    twice = certify(np.tile(ROWS, (2, 1)), np.tile(LABELS, 2), **QUICK)
    assert any(x.startswith("300 of 600 rows") for x in twice.warnings)
    told = certify(np.tile(ROWS, (2, 1)), np.tile(LABELS, 2), groups=np.tile(np.arange(300), 2),
                   **QUICK)  # fmt: skip
    assert not any("equal an earlier" in x for x in told.warnings)


def test_degenerate_embeddings():
    """A collapsed encoder: every loss is 1, nothing is certified below 1, no number fails."""
    found = certify(np.ones((60, 3)), np.arange(60) % 2, radius=2.0, k=2, block=1)
    assert found.line("contrastive_risk").value == pytest.approx(1)
    assert found.line("pairwise_error").value == 1  # ties are errors
    assert found.vacuous
    zero = certify(np.zeros((60, 3)), np.arange(60) % 2, radius=2.0, k=2, block=1)
    assert zero.line("cross_entropy").value == pytest.approx(math.log(2))
    assert math.isnan(zero.diagnostics["rankme"])
    assert "nan" in str(zero) and zero.to_dict()["diagnostics"]["rankme"] is None


def test_it_stands_at_the_door():
    assert relatum.certify is certify and relatum.TransferCertificate is TransferCertificate
    assert isinstance(FULL.lines[0], CertificateLine)
    assert repr(FULL).startswith("<TransferCertificate: L_sup^μ <= ")
