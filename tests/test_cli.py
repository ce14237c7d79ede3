"""The command line: help that teaches, errors of one line, exit codes."""

import dataclasses
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relatum import cli
from relatum.objectives import OBJECTIVES
from relatum.objectives.table import table_rows
from relatum.recipes.images import TrainImages
from relatum.recipes.probe import Probe
from relatum.settings import field_docs


def say(capsys, *words):
    code = cli.main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_overview_lists_every_command(capsys):
    for words in [(), ("--help",), ("-h",)]:
        code, out, _ = say(capsys, *words)
        assert code == 0
        for name, command in cli.COMMANDS.items():
            assert name in out
            assert command.summary in out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_every_command(capsys, name):
    code, out, _ = say(capsys, *name.split(), "--help")
    assert code == 0
    assert f"relatum {name}" in out


@pytest.mark.parametrize("word", ["train", "reproduce"])
def test_a_word_that_begins_commands_lists_them(capsys, word):
    for words in ([word], [word, "--help"], [word, "-h"]):
        code, out, _ = say(capsys, *words)
        assert code == 0
        listed = [line[2:].split("  ")[0] for line in out.splitlines() if line.startswith("  ")]
        assert listed == [name for name in cli.COMMANDS if name.startswith(f"{word} ")]
        assert all(cli.COMMANDS[name].summary in out for name in listed)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_speaks_of_no_python_types(capsys, name):
    text = " ".join(say(capsys, *name.split(), "--help")[1].split())
    for word in ("<class", "(type:", "default: null", "default: )", "None)"):
        assert word not in text


def test_help_teaches(capsys):
    _, out, _ = say(capsys, "train", "images", "--help")
    text = " ".join(out.split())
    assert "--accumulate-steps" in text
    assert "This is not a larger contrastive batch" in text
    assert "One of: cpc, dv, nwj, js, wpc, rpc, chi2, hinge, logistic." in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tran"], "unknown command 'tran'; did you mean 'train images'?"),
        (["train", "imges"], "unknown command 'train imges'; did you mean 'train images'?"),
        (["train", "--data", "x"], "unknown command 'train --data'; did you mean 'train images'?"),
        (["images"], "unknown command 'images'; did you mean 'train images'?"),
        (["train", "clases"], "unknown command 'train clases'; did you mean 'train classes'?"),
        (["prob"], "unknown command 'prob'; did you mean 'probe'?"),
        (["train", "images", "--bach-size", "3"], "did you mean '--batch-size'?"),
        (["train", "images", "--bach-size=3"], "unknown option '--bach-size'"),
        (["train", "images", "-x"], "unknown option '-x'"),
        (["train", "images", "--batch-size", "x"], "--batch-size must be a whole number, got 'x'"),
        (["train", "images", "--batch-size", "3.5"], "must be a whole number, got '3.5'"),
        (["train", "images", "--batch-size"], "option --batch-size needs a value"),
        (["train", "images", "--objective", "rcp"], "did you mean 'rpc'?"),
        (["train", "images", "--augmentation", "simcrl"], "did you mean 'simclr'?"),
        (["train", "images", "--seed", "-1"], "seed must be an integer from 0"),
        (["train", "images", "--seed", "1099511627776"], "seed must be an integer from 0"),
        (["train", "images", "--resume", "maybe"], "--resume must be true or false, got 'maybe'"),
        (["train", "images", "--resume=2"], "--resume must be true or false, got '2'"),
        (["train", "images", "stray"], "unexpected 'stray'"),
        (["train", "images", "--config", "none.yaml"], "cannot read the preset none.yaml"),
        (["train", "images", "--data", ""], "option --data is empty"),
        (["train", "images", "--out="], "option --out is empty"),
        (["probe", ""], "one of the words after relatum probe is empty"),
        (["probe"], "name at least one run directory"),
        (["probe", "x", "--device", "foo"], "device must be auto, cpu, cuda or cuda:N, got 'foo'"),
        (["embed", "x", "--device", "foo"], "device must be auto, cpu, cuda or cuda:N, got 'foo'"),
        (["embed", "x", "--test-fraction", "1"], "test_fraction must be between 0 and 1, got 1"),
        (["embed", "x", "--limit", "0"], "limit must be at least 1, got 0"),
        (["embed", "x", "--split-seed", "-1"], "split_seed must be an integer from 0"),
        (["demo", "--epochs", "0"], "epochs must be positive and finite, got 0"),
        (["fly"], "unknown command 'fly'; all are listed by relatum --help"),
        (["probe", "x", "--colour", "3"], "option '--colour'; all are listed by relatum probe"),
        (["train", "images", "--objective", "CPC"], "did you mean 'cpc'?"),
        (["probe", "x", "--map", "circle"], "unknown map 'circle'; Known: tsne, pca"),
        (["objectives", "rcp"], "unknown objective 'rcp'; did you mean 'rpc'?"),
        (["embed"], "takes one RUN, got 0"),
        (["embed", "a", "b"], "takes one RUN, got 2"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(capsys, words, message):
    code, out, error = say(capsys, *words)
    assert code == 2
    assert out == ""
    assert message in error
    assert error.startswith("relatum: error: ")
    assert error.count("\n") == 1


def test_a_job_that_fails_is_one_line_and_code_1(capsys, tmp_path):
    code, _, error = say(capsys, "probe", str(tmp_path / "none"))
    assert (code, error) == (1, f"relatum: error: there is no run directory {tmp_path}/none\n")
    code, _, error = say(capsys, "train", "images", "--data", str(tmp_path / "none"))
    assert code == 1
    assert error.count("\n") == 1


def test_version(capsys):
    project = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    code, out, _ = say(capsys, "--version")
    assert code == 0
    assert f'\nversion = "{out.split()[-1]}"\n' in project


def test_debug_shows_where(tmp_path):
    with pytest.raises(ValueError, match="there is no run directory"):
        cli.main(["probe", str(tmp_path / "none"), "--debug"])


def images(*words):
    return cli.parse("train images", TrainImages, words)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--tensorboard"], True),
        (["--tensorboard", "true"], True),
        (["--tensorboard=yes"], True),
        (["--tensorboard", "1"], True),
        (["--no-tensorboard"], False),
        (["--tensorboard", "False"], False),
        (["--tensorboard=0"], False),
        (["--tensorboard", "no"], False),
        (["--no-tensorboard=false"], True),
        ([], None),
    ],
)
def test_switches_in_every_spelling(words, value):
    assert images(*words).tensorboard is value


def test_types_and_spellings():
    settings = images(
        "--batch-size", "32", "--learning-rate=1e-3", "--epochs", "3", "--seed", "0",
        "--data", "0", "--out", "a b/ü", "--beta", "0", "--weight_decay", "0",
    )  # fmt: skip
    assert (settings.batch_size, settings.learning_rate, settings.epochs) == (32, 1e-3, 3.0)
    assert (settings.seed, settings.data, str(settings.out)) == (0, "0", "a b/ü")
    assert (settings.beta, settings.weight_decay, settings.limit) == (0.0, 0.0, None)


def test_no_option_means_the_defaults():
    assert images() == TrainImages()


def test_positional_runs():
    settings = cli.parse("probe", Probe, ["a", "--draws", "2", "b"])
    assert [str(path) for path in settings.runs] == ["a", "b"]
    assert settings.draws == 2


def test_presets_are_strict_and_options_win(tmp_path):
    preset = tmp_path / "a.yaml"
    preset.write_text("objective: cpc\nlearning_rate: 1e-4\nepochs: 3\n")
    settings = images("--epochs", "5", "--config", str(preset))
    assert (settings.objective, settings.learning_rate, settings.epochs) == ("cpc", 1e-4, 5.0)
    for text, message in [
        ("bach_size: 3\n", "unknown key 'bach_size'; did you mean 'batch_size'?"),
        ("batch_size: many\n", "batch_size must be a whole number, got 'many'"),
        ("objective: rcp\n", "did you mean 'rpc'?"),
        ("- a\n", "expected `key: value` lines"),
        ("colour: 3\n", "unknown key 'colour'; known are data, image_size, "),
        ("a: [\n", "not valid YAML"),
        ("data: ''\n", "data is empty"),
    ]:
        preset.write_text(text)
        with pytest.raises(cli.UsageError, match=message.replace("?", r"\?")):
            images("--config", str(preset))


@pytest.mark.filterwarnings("default::UserWarning")
def test_warnings_are_one_line(capsys, tmp_path):
    code, _, error = say(
        capsys, "train", "images", "--data", "digits", "--beta", "0", "--dry-run", "--limit", "100",
        "--batch-size", "20", "--no-tensorboard", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 0
    assert error.startswith("relatum: warning: ")
    assert error.count("\n") == 1


def test_objectives(capsys):
    code, out, _ = say(capsys, "objectives")
    assert code == 0
    for name in ("cpc", "rpc", "logistic"):
        assert name in out
    assert "E_P[" in out or "E_P f" in out


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_objective_is_explained(capsys, name):
    row = next(row for row in table_rows() if row["name"] == name)
    code, out, _ = say(capsys, "objectives", name)
    text = " ".join(out.split())
    assert code == 0
    for key in ("title", "formula", "reduction", "optimum", "mi_reading", "cost", "stable_here"):
        assert " ".join(row[key].split()) in text, key
    assert not re.search(r":math:|:func:|``|\\\\", text)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_setting_is_explained(name):
    command = cli.COMMANDS[name]
    module = importlib.import_module(f"relatum.{command.module}")
    settings = getattr(module, command.settings)
    docs = field_docs(settings)
    assert set(docs) == {field.name for field in dataclasses.fields(settings)}
    assert all(text.rstrip(".") and text[-1] == "." for text in docs.values())


@pytest.mark.parametrize("key", ["data", "batch_size", "seed", "epochs", "resume"])
def test_a_key_without_a_value_is_named(key, tmp_path, capsys):
    preset = tmp_path / "y.yaml"
    preset.write_text(f"{key}:\n")
    assert cli.main(["train", "images", "--config", str(preset)]) == 2
    assert f"{key} must be" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["epochs", "learning-rate", "weight-decay", "warmup-epochs"])
def test_infinite_numbers_are_refused(option, capsys):
    assert cli.main(["train", "images", "--data", "digits", f"--{option}", ".inf"]) != 0
    message = capsys.readouterr().err
    assert "must be a finite number" in message
    assert len(message.strip().splitlines()) == 1


def test_a_reader_that_stops_early_is_no_error():
    """As behind ``| head``: the end of the pipe is closed before anything is read."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "relatum", "train", "images", "--help"]
    found = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert found.returncode == 1
    assert found.stderr == ""


def test_a_log_says_how_far_it_is_and_what_to_do_next(capsys, tmp_path):
    code, out, _ = say(
        capsys, "train", "images", "--data", "digits", "--steps", "2", "--batch-size", "32",
        "--no-tensorboard", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 0
    assert "run step 2/2 epoch" in out
    assert out.splitlines()[-1].endswith(f"next: relatum probe {tmp_path / 'run'}")
