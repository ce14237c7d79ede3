"""``relatum train speech`` on tones made here: runs, resuming, settings, what is refused."""

import io
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from rich.console import Console

from relatum import cli
from relatum.recipes.speech import TrainSpeech, load_windows, read_settings, resolve
from relatum.recipes.train_speech import main
from relatum.runs import Run, RunError
from relatum.settings import SettingsError
from relatum.training import NonFiniteLoss, Plan

QUIET = Console(quiet=True)
RATE = 16000


@pytest.fixture(scope="module")
def voices(tmp_path_factory):
    """Two speakers of noisy tones that last 80 ms, each at a pitch of its own."""
    root = tmp_path_factory.mktemp("voices")
    generator = np.random.default_rng(0)
    for speaker, lowest in {"ann": 400, "bob": 200}.items():
        for i in range(4):
            hertz = np.repeat(lowest * 2 ** generator.uniform(0, 3, 25), RATE * 80 // 1000)
            sound = 0.3 * np.sin(2 * np.pi * np.cumsum(hertz) / RATE)
            sound += generator.normal(0, 0.01, len(sound))
            (root / speaker).mkdir(exist_ok=True)
            soundfile.write(root / speaker / f"{i}.flac", sound, RATE)
    return root


def settings(voices, out, **changes):
    small = {
        "data": str(voices), "window": 6400, "frame_dim": 16, "context_dim": 16,
        "predictor": "linear", "look_ahead": 4, "negatives": 16, "batch_size": 4, "steps": 6,
        "learning_rate": 3e-3, "log_every": 2, "checkpoint_every": 2, "threads": 1,
        "device": "cpu", "out": out,
    }  # fmt: skip
    return TrainSpeech(**{**small, **changes})


def weights(run):
    return torch.load(run.checkpoint, weights_only=True)["modules"]["network"]


def test_a_run_holds_what_was_done(voices, tmp_path):
    run = main(settings(voices, tmp_path / "run"), QUIET)
    lines = run.metrics()
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert all(np.isfinite(line["loss"]) for line in lines)
    card = run.read_json("data.json")
    assert (card["utterances"], card["speakers"], card["windows"]) == (8, 2, 40)
    outcome = run.read_json("results/training.json")["payload"]
    assert (outcome["steps"], outcome["objective"], outcome["temperature"]) == (6, "rpc", 4.0)
    resolved = read_settings(run)
    assert (resolved.alpha, resolved.beta, resolved.gamma) == (1.0, 0.25, 1.0)


def test_a_killed_run_continues_bit_for_bit(voices, tmp_path, monkeypatch):
    whole = main(settings(voices, tmp_path / "whole", predictor="transformer", heads=2), QUIET)
    killed = settings(voices, tmp_path / "killed", predictor="transformer", heads=2)
    from relatum.recipes.speech import step as module

    calls, real = [], module.PredictionStep.__call__

    def dying(self, rows, seed):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, rows, seed)

    monkeypatch.setattr(module.PredictionStep, "__call__", dying)
    with pytest.raises(KeyboardInterrupt):
        main(killed, QUIET)
    monkeypatch.undo()
    run = main(replace(killed, resume=True), QUIET)
    ours, theirs = weights(run), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    keys = ("step", "loss", "grad_norm")
    assert [[line[key] for key in keys] for line in run.metrics()] == [
        [line[key] for key in keys] for line in whole.metrics()
    ]


@pytest.mark.parametrize("objective", ["dv", "nwj", "js", "chi2", "hinge", "logistic", "wpc"])
def test_every_objective_trains(voices, tmp_path, objective):
    run = main(settings(voices, tmp_path / "run", objective=objective, steps=2), QUIET)
    assert np.isfinite(run.metrics()[-1]["loss"])


@pytest.mark.parametrize("scope", ["any", "same_speaker", "same_sequence"])
def test_every_scope_trains_on_mixed_batches(voices, tmp_path, scope):
    given = settings(
        voices, tmp_path / "r", negatives_from=scope, batches="any", exclude_positive=True, steps=2
    )
    assert np.isfinite(main(given, QUIET).metrics()[-1]["loss"])


def test_the_penalty_of_wpc_is_kept_and_logged(voices, tmp_path):
    """Scores that are steep at first become flat, and are logged on the way."""
    given = settings(
        voices, tmp_path / "run", objective="wpc", temperature=0.01, steps=30, learning_rate=1e-2
    )
    run = main(given, QUIET)
    assert read_settings(run).penalty == 10.0
    found = [line["gradient_penalty"] for line in run.metrics()]
    assert found[0] > 1
    assert found[-1] < found[0] / 10


def test_scales_of_the_scores_are_the_published_ones():
    published = TrainSpeech(data="x")
    assert resolve(published).temperature == 16.0
    for objective in ("cpc", "js", "nwj", "dv"):
        assert resolve(replace(published, objective=objective)).temperature == 256.0
    assert resolve(replace(published, temperature=2.0)).temperature == 2.0


def test_batches_are_of_one_speaker(voices, tmp_path):
    windows = load_windows(settings(voices, tmp_path))
    plan = Plan(
        rows=len(windows), batch_size=4, steps=30, learning_rate=1.0, warmup_steps=0, seed=0,
        groups=windows.speaker,
    )  # fmt: skip
    assert plan.steps_per_epoch == 10
    seen = [rows for step in range(20) for rows, _ in plan.batches(step)]
    assert all(len(windows.speaker[rows].unique()) == 1 for rows in seen)
    for epoch in (seen[:10], seen[10:]):
        assert torch.cat(epoch).sort().values.tolist() == list(range(40))
    assert not torch.equal(torch.cat(seen[:10]), torch.cat(seen[10:]))
    speakers = [int(windows.speaker[rows[0]]) for rows in seen]
    assert speakers[:10] != sorted(speakers[:10])  # not one speaker after the other


def test_groups_drop_what_does_not_fill_a_batch():
    groups = torch.tensor([0] * 7 + [1] * 2 + [2] * 6)
    plan = Plan(
        rows=15, batch_size=3, steps=9, learning_rate=1.0, warmup_steps=0, seed=0, groups=groups
    )
    assert plan.steps_per_epoch == 2 + 0 + 2
    used = set()
    for epoch in range(20):
        rows = plan.order(epoch)
        assert len(rows) == 12
        assert groups[rows].bincount().tolist() == [6, 0, 6]
        used |= set(rows.tolist())
    assert used == set(range(15)) - {7, 8}
    with pytest.raises(ValueError, match="from one group each"):
        Plan(
            rows=15, batch_size=8, steps=9, learning_rate=1.0, warmup_steps=0, seed=0,
            groups=groups,
        )  # fmt: skip


def test_a_constant_rate_climbs_and_stays():
    plan = Plan(
        rows=8, batch_size=2, steps=20, learning_rate=0.2, warmup_steps=4, seed=0,
        constant_rate=True,
    )  # fmt: skip
    assert [round(plan.rate(step), 6) for step in (0, 1, 3, 4, 19)] == [0.05, 0.1, 0.2, 0.2, 0.2]
    assert replace(plan, warmup_steps=0).rate(0) == 0.2


def test_continuing_needs_the_same_settings_and_sounds(voices, tmp_path):
    given = settings(voices, tmp_path / "run", steps=2)
    main(given, QUIET)
    with pytest.raises(RunError, match="already holds a run"):
        main(given, QUIET)
    with pytest.raises(RunError, match="negatives: 16 -> 8"):
        main(replace(given, resume=True, negatives=8), QUIET)
    shown = io.StringIO()
    main(replace(given, resume=True), Console(file=shown))
    assert "is finished" in shown.getvalue()
    (voices / "ann" / "more.wav").write_bytes(b"")
    soundfile.write(voices / "ann" / "more.wav", np.zeros(9000), RATE)
    try:
        with pytest.raises(RunError, match="other recordings: 8 of 2 speakers then, 9 of 2 now"):
            main(replace(given, resume=True), QUIET)
    finally:
        (voices / "ann" / "more.wav").unlink()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data": ""}, "data is missing"),
        ({"objective": "cpc", "beta": 0.1}, "'cpc' has no parameter beta"),
        ({"predictor": "linear", "heads": 7}, "heads belongs to predictor transformer: heads 7"),
        ({"predictor": "linear", "dropout": 0.5}, "dropout belongs to predictor transformer"),
        ({"penalty": 1.0}, "penalty belongs to wpc; objective 'rpc' has none"),
        ({"predictor": "transformer", "heads": 3}, "heads must divide"),
        ({"kernels": "10,x"}, "kernels must be whole numbers"),
        ({"window": 640}, "too few to look 4 ahead"),
        ({"batch_size": 21}, "no speaker has batch_size 21 windows"),
        ({"warmup_epochs": 9.0}, "warmup_epochs 9.0 is longer"),
    ],
)
def test_what_does_not_go_together_is_said(voices, tmp_path, changes, why):
    with pytest.raises(SettingsError, match=why):
        main(settings(voices, tmp_path / "run", **changes), QUIET)
    assert not (tmp_path / "run").exists()


def test_nobody_says_who_speaks(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.random.default_rng(0).normal(0, 0.1, 64000), RATE)
    with pytest.raises(SettingsError, match="nobody says who speaks"):
        main(settings(tmp_path, tmp_path / "run"), QUIET)
    run = main(settings(tmp_path, tmp_path / "run", batches="any", steps=1), QUIET)
    assert run.read_json("data.json")["windows"] == 10


def test_the_command_line(voices, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "speech", "--data", str(voices), "--out", str(out), "--window", "6400",
             "--frame-dim", "8", "--context-dim", "8", "--predictor", "linear", "--steps", "1",
             "--look-ahead", "2", "--negatives", "4", "--batch-size", "2"]  # fmt: skip
    assert cli.main([*words, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "8 recordings of 2 speakers, 0.3 minutes, 40 windows" in shown
    assert not out.exists()
    assert cli.main(words) == 0
    assert json.loads((out / "results" / "training.json").read_text())["kind"] == "training"
    assert Run.open(out).metrics()[-1]["step"] == 1
    (voices / "bob" / "bad.wav").write_bytes(b"no sound")
    try:
        capsys.readouterr()
        assert cli.main([*words, "--resume"]) == 1
        assert "bad.wav cannot be decoded" in capsys.readouterr().err
    finally:
        (voices / "bob" / "bad.wav").unlink()
    assert cli.main(["train", "speech", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "LibriSpeech" in shown
    assert cli.main(["train", "speech", "--objective", "mine", "--data", "x"]) == 2


@pytest.mark.parametrize(("objective", "reached"), [("cpc", 4 * math.log(17) - 2), ("rpc", -0.05)])
def test_an_encoder_learns_to_tell_what_comes(voices, tmp_path, objective, reached):
    """Tones hold for eight frames. Knowing nothing costs log 17 nats for each of four look-aheads,
    and 0 by RPC; without scaled windows CPC stays there."""
    given = settings(
        voices, tmp_path / "run", objective=objective, steps=120, learning_rate=1e-2,
        temperature=4.0, frame_dim=32, context_dim=32, log_every=120,
    )  # fmt: skip
    assert main(given, QUIET).metrics()[-1]["loss"] < reached
    if objective == "cpc":
        plain = main(replace(given, normalize=False, out=tmp_path / "plain"), QUIET)
        assert plain.metrics()[-1]["loss"] > reached


def test_a_loss_that_is_not_finite_is_named_across_processes():
    """A pool of processes pickles what a cell raises; one that cannot be unpickled breaks it."""
    error = NonFiniteLoss("the loss is not finite", 7, {"loss": math.nan, "mi": None}, "last.pt")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert str(again).startswith("the loss is not finite at step 7 (loss nan); training stopped")
    assert (again.step, list(again.terms)) == (7, ["loss", "mi"])
