"""Tables, sentences and notes against hand arithmetic."""

import math
import re

import pytest

from relatum.report import render
from relatum.report.reading import Column, group, open_records
from relatum.report.tables import accuracy_rows, columns, difference_rows
from relatum.report.words import notes, percent, protocol_notes, start_line, verdict

from .fake_runs import make_run, probe_rows

LINEAR = Column("linear", None)
T2 = 4.302652729911275  # t(0.975) with 2 degrees of freedom, from a printed table: 4.303
HALF = T2 / math.sqrt(3)  # half-width for three values with s = 1


def accuracies(encoder, untrained, pixels):
    return {
        ("encoder", "linear", None): encoder,
        ("untrained", "linear", None): untrained,
        ("pixels", "linear", None): pixels,
    }


def three_seeds(tmp_path, objective="cpc", encoder=(0.90, 0.91, 0.92), pixels=0.905, **more):
    # Encoder 91 with s = 1 point; untrained 80, 82, 81, so differences are 10, 9, 11.
    return [
        make_run(
            tmp_path / f"{objective}{seed}",
            objective=objective,
            seed=seed,
            rows=probe_rows(accuracies(encoder[seed], untrained, pixels), seed),
            **more,
        )
        for seed, untrained in enumerate((0.80, 0.82, 0.81))
    ]


def groups_of(paths):
    return group(open_records(paths))


def visible(html):
    text = re.sub(r"<svg.*?</svg>|<style.*?</style>|<[^>]*>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", text.replace("\N{NO-BREAK SPACE}", " "))


def test_means_and_intervals_of_the_table(tmp_path):
    groups = groups_of(three_seeds(tmp_path))
    rows = accuracy_rows(groups, [LINEAR])
    assert [row.label for row in rows] == ["CPC", "Untrained encoder", "Raw pixels"]
    encoder, untrained, pixels = (row.cells[0] for row in rows)
    assert (encoder.mean, encoder.high - encoder.mean) == pytest.approx((0.91, HALF / 100))
    assert (untrained.mean, untrained.mean - untrained.low) == pytest.approx((0.81, HALF / 100))
    assert (pixels.mean, pixels.n) == (0.905, 1)  # one measurement, repeated in three runs


def test_paired_differences(tmp_path):
    rows = difference_rows(groups_of(three_seeds(tmp_path)), [LINEAR])
    untrained, pixels = (row.cells[0] for row in rows)
    assert rows[0].label == "CPC minus untrained encoder"
    assert (untrained.mean, untrained.high - untrained.mean) == pytest.approx((0.10, HALF / 100))
    assert (pixels.mean, pixels.high - pixels.mean) == pytest.approx((0.005, HALF / 100))


def test_the_page_shows_these_numbers(tmp_path):
    text = visible(render(three_seeds(tmp_path), tmp_path / "r.html").read_text(encoding="utf-8"))
    # HALF = 2.484: points of a per cent with one decimal
    assert "CPC 91.0 ± 2.5 3 runs" in text
    assert "Untrained encoder 81.0 ± 2.5" in text
    assert "Raw pixels 90.5 n = 1" in text
    assert "CPC minus untrained encoder ▲ +10.0 ± 2.5" in text
    assert "CPC minus raw pixels ≈ +0.5 ± 2.5" in text


def test_objectives_are_paired_by_seed(tmp_path):
    cpc = three_seeds(tmp_path)
    js = three_seeds(tmp_path, "js", encoder=(0.88, 0.90, 0.92))  # differences 2, 1, 0
    groups = groups_of(cpc + js[::-1])
    row = difference_rows(groups, [LINEAR])[-1]
    assert (row.label, row.repeats) == ("CPC minus JS", "3 shared seeds")
    assert row.cells[0].mean == pytest.approx(0.01)
    assert row.cells[0].high - row.cells[0].mean == pytest.approx(HALF / 100)
    # The untrained encoders of one seed are one encoder: counted once, not once an objective.
    assert accuracy_rows(groups, [LINEAR])[2].cells[0].n == 3


def test_probe_seeds_inside_a_run_are_averaged_first(tmp_path):
    few = {("encoder", "linear", 10): 0.5}
    runs = []
    for seed, pair in enumerate(((0.5, 0.7), (0.7, 0.9))):  # run means 0.6 and 0.8
        rows = [
            row
            for draw, accuracy in enumerate(pair)
            for row in probe_rows(dict.fromkeys(few, accuracy), draw)
        ]
        runs.append(make_run(tmp_path / str(seed), seed=seed, rows=rows))
    both = accuracy_rows(groups_of(runs), [Column("linear", 10)])[0]
    assert (both.repeats, both.cells[0].n) == ("2 runs", 2)
    assert both.cells[0].mean == pytest.approx(0.7)
    # s = 0.1414, t(0.975, 1) = 12.706: half = 12.706 * 0.1
    assert both.cells[0].high - both.cells[0].mean == pytest.approx(1.2706, abs=1e-4)
    alone = accuracy_rows(groups_of(runs[:1]), [Column("linear", 10)])[0]
    assert (alone.repeats, alone.cells[0].n) == ("1 run, 2 probe seeds", 2)


def test_runs_with_different_settings_are_not_averaged(tmp_path):
    runs = [
        make_run(tmp_path / "a", seed=0, settings="temperature: 0.1\n"),
        make_run(tmp_path / "b", seed=1, settings="temperature: 0.1\nthreads: 4\n"),
        make_run(tmp_path / "c", seed=0, settings="temperature: 0.5\n"),
    ]
    found = {g.label: [run.name for run in g.runs] for g in groups_of(runs)}
    assert found == {"CPC, temperature 0.1": ["a", "b"], "CPC, temperature 0.5": ["c"]}


def test_runs_of_one_name_keep_apart(tmp_path):
    runs = [make_run(tmp_path / x / "run", seed=i) for i, x in enumerate("ab")]
    assert [run.name for run in open_records(runs)] == ["a/run", "b/run"]


def test_columns_stand_in_reading_order(tmp_path):
    kinds = [("class-means", None), ("knn", None), ("linear", None), ("linear", 10), ("linear", 2)]
    rows = probe_rows({("encoder", *kind): 0.5 for kind in kinds})
    found = columns(groups_of([make_run(tmp_path / "r", rows=rows)]))
    assert [(c.probe, c.labels_per_class) for c in found] == [kinds[i] for i in (4, 3, 2, 1, 0)]


def test_the_verdict_says_what_is_clear_and_what_may_be_chance(tmp_path):
    (text,) = verdict(groups_of(three_seeds(tmp_path)))
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    assert text.startswith("CPC was trained on mnist5k (3 runs).")
    assert "a linear probe on all labels classifies 91.0 ± 2.5 % of the test images" in text
    assert "+10.0 ± 2.5 points against the untrained encoder (81.0 ± 2.5 %)" in text
    assert "+0.5 ± 2.5 points against raw pixels (90.5 %)" in text
    assert text.endswith(
        "The difference to the untrained encoder exceeds its interval; the difference to raw"
        " pixels does not and may be chance."
    )


def test_the_verdict_of_a_loss_and_of_a_single_run(tmp_path):
    runs = three_seeds(tmp_path, pixels=0.99)
    assert f"{percent(None)}" == "\N{EN DASH}"
    (text,) = verdict(groups_of(runs))
    assert "\N{MINUS SIGN}8.0" in text and "Each of these differences exceeds" in text
    (alone,) = verdict(groups_of(runs[:1]))
    assert "an interval needs more seeds" in alone
    assert alone.endswith("with one measurement of each, any of this may be chance.")


def test_each_data_set_has_its_own_verdict(tmp_path):
    a = make_run(tmp_path / "a", rows=probe_rows(accuracies(0.9, 0.8, 0.7)))
    b = make_run(tmp_path / "b", rows=probe_rows(accuracies(0.6, 0.5, 0.4)))
    config = b / "config.yaml"
    config.write_text(config.read_text().replace("mnist5k", "cifar10:/some/where"))
    groups = groups_of([a, b])
    assert [g.label for g in groups] == ["CPC on cifar10", "CPC on mnist5k"]
    assert [text.partition(" (")[0] for text in verdict(groups)] == [
        "CPC was trained on cifar10",
        "CPC was trained on mnist5k",
    ]


def told(paths):
    return {(note.level, note.about): note.text for note in notes(groups_of(paths))}


@pytest.mark.parametrize("shift", [0.0, -math.log(512)])
def test_start_line_and_collapse_in_either_form_of_the_loss(tmp_path, shift):
    # Cross-entropy form: loss + reading = log K. Negative bound: loss + reading = 0.
    for name, height in (("dead", 1.0), ("alive", 0.5)):
        run = make_run(tmp_path / name)
        lines = [
            f'{{"step": {i}, "loss": {height * math.log(512) + shift},'
            f' "mi": {(1 - height) * math.log(512)}, "mi_ceiling": {math.log(512)}}}'
            for i in range(5)
        ]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    records = open_records([tmp_path / "dead", tmp_path / "alive"])
    assert [start_line(run) for run in records] == pytest.approx(
        [math.log(512) + shift] * 2, abs=1e-3
    )
    found = told([tmp_path / "dead", tmp_path / "alive"])
    assert "stands at its starting line" in found["bad", "dead"]
    assert ("good", "alive") in found


def test_no_start_line_where_loss_and_reading_are_unrelated(tmp_path):
    run = make_run(tmp_path / "r", log={"mi": 2.0})
    assert start_line(open_records([run])[0]) is None


@pytest.mark.parametrize(
    ("log", "level", "phrase"),
    [
        ({"effective_rank": 1.2}, "bad", "collapsed to one direction (effective rank 1.2)"),
        ({"effective_rank": 3.0}, "warn", "effective rank is low (3.0)"),
        ({"contrastive_accuracy": 0.999}, "warn", "task has become easy"),
        ({"mi": 6.2}, "warn", "touches its ceiling, log K = 6.24"),
        ({}, "good", "No alarm"),
    ],
)
def test_notes(tmp_path, log, level, phrase):
    assert phrase in told([make_run(tmp_path / "r", log=log)])[level, "r"]


def test_only_what_was_checked_is_called_fine(tmp_path):
    full = make_run(tmp_path / "full")
    bare = make_run(tmp_path / "bare", log={"mi": None, "effective_rank": None})
    assert told([full, bare]) == {
        ("good", "full"): "No alarm: the loss is finite, it has left its starting line and the"
        " embeddings have not collapsed.",
        ("good", "bare"): "No alarm: the loss is finite.",
    }


def test_equal_notes_are_told_once(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate("abc")]
    assert list(told(runs)) == [("good", "a, b and c")]


def test_nonfinite_steps_and_accuracies_are_counted(tmp_path):
    rows = probe_rows({("encoder", "linear", None): {"value": None, "reason": "nan"}})
    training = {"nonfinite_steps": 3}
    run = make_run(tmp_path / "r", rows=rows, training=training)
    texts = [note.text for note in notes(groups_of([run]))]
    assert any("not finite in 3 steps" in text for text in texts)
    assert any("left out of the means: 1" in text for text in texts)


def test_unlike_protocols_shared_seeds_and_unfrozen_encoders_are_reported(tmp_path):
    rows = probe_rows(accuracies(0.9, 0.8, 0.7))
    card = {"split": "x", "encoder_hash_before": "aa", "encoder_hash_after": "aa", "seeds": [0]}
    paths = [
        make_run(tmp_path / "a", rows=rows, card=card),
        make_run(tmp_path / "b", rows=rows, card={**card, "split": "y", "seeds": [1]}),
    ]
    texts = [note.text for note in protocol_notes(groups_of(paths))]
    assert any("different protocols (split)" in text for text in texts)
    assert any("share one seed" in text for text in texts)
    assert protocol_notes(groups_of(paths[:1])) == []
    spoiled = make_run(tmp_path / "c", rows=rows, card={**card, "encoder_hash_after": "bb"})
    assert "changed while it was probed" in protocol_notes(groups_of([spoiled]))[0].text


def diverged(step):
    return {"nonfinite_steps": 1, "nonfinite_step": step, "steps": step}


def test_a_run_that_diverged_is_not_praised(tmp_path):
    rows = probe_rows(accuracies(0.99, 0.99, 0.5))
    bad = make_run(tmp_path / "bad", objective="dv", rows=rows, losses=[], training=diverged(0))
    (text,) = verdict(groups_of([bad]))
    assert text == (
        "DV was trained on mnist5k (one run). DV diverged at step 0 (run bad). Its probe is of the"
        " last good checkpoint, which is the untrained network. So nothing is known about the"
        " accuracy of a trained encoder."
    )
    good = make_run(tmp_path / "good", rows=probe_rows(accuracies(0.9, 0.8, 0.7)))
    (text,) = verdict(groups_of([bad, good]))
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    assert "DV diverged at step 0 (run bad)." in text
    assert "With the trained encoder a linear probe on all labels classifies 90.0 %" in text
    assert "99" not in text and "DV, the next best" not in text
    row = accuracy_rows(groups_of([bad]), [LINEAR])[0]
    assert row.repeats == "1 run, diverged"
    assert (
        "not finite at step 0, where training ended; what is left is the last good"
        in (told([bad])["bad", "bad"])
    )


@pytest.mark.parametrize(
    ("settings", "step", "left"),
    [
        ("", 70, "the last good checkpoint."),
        ("checkpoint_every: 50\n", 120, "the last good checkpoint (step 100)."),
        ("checkpoint_every: 50\n", 100, "the last good checkpoint (step 100)."),
        ("checkpoint_every: 50\n", 49, "the last good checkpoint, which is the untrained network."),
    ],
)
def test_some_runs_of_a_group_diverged(tmp_path, settings, step, left):
    runs = [
        make_run(
            tmp_path / name,
            seed=seed,
            rows=probe_rows(accuracies(0.9, 0.8, 0.7), seed),
            settings=settings,
            training=diverged(step) if name == "b" else {"nonfinite_step": None, "steps": 200},
        )
        for seed, name in enumerate("abc")
    ]
    (text,) = verdict(groups_of(runs))
    assert f"1 of the 3 runs of CPC diverged at step {step} (run b). Its probe is of {left}" in text
    assert accuracy_rows(groups_of(runs), [LINEAR])[0].repeats == "3 runs, 1 diverged"
