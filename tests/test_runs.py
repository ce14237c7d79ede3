"""The run directory: nothing half-written, nothing of one run taken for another's."""

import pytest

from relatum import runs
from relatum.runs import Run, RunError, atomic_write


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    atomic_write(tmp_path / "a", b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_where_nothing_can_be_written_the_place_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="^cannot write .*file/a/b: Not a directory$"):
        atomic_write(tmp_path / "file" / "a" / "b", b"new")
    with pytest.raises(OSError, match="^cannot write .*file/run/environment.json: "):
        Run.create(tmp_path / "file" / "run", "a: 1\n")


@pytest.mark.parametrize("name", ["results/probe.json", "metrics.jsonl", "checkpoints/last.pt"])
def test_a_folder_with_remains_of_a_run_is_refused(tmp_path, name):
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    (tmp_path / "run" / name).touch()
    what = name.partition("/")[0]
    with pytest.raises(RunError, match=f"run holds {what} of an earlier run"):
        Run.create(tmp_path / "run", "a: 1\n")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_folders_that_may_hold_a_run(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").touch()
    run = Run.create(tmp_path / "a", "a: 1\n")
    assert Run.open(run.path).environment["python"]
    with pytest.raises(RunError, match="already holds a run"):
        Run.create(tmp_path / "a", "a: 1\n")
    with pytest.raises(RunError, match="is a file; a run needs a folder"):
        Run.create(tmp_path / "a" / "notes.txt", "a: 1\n")


def test_a_kill_before_the_settings_are_written_leaves_no_run(tmp_path, monkeypatch):
    write = runs.atomic_write

    def killed(path, data):
        if path.name == "config.yaml":
            raise KeyboardInterrupt
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "atomic_write", killed)
        with pytest.raises(KeyboardInterrupt):
            Run.create(tmp_path / "run", "a: 1\n")
    with pytest.raises(RunError, match="is not a run directory"):
        Run.open(tmp_path / "run")
    Run.create(tmp_path / "run", "a: 1\n")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe"])
def test_results_that_are_not_json_are_named(tmp_path, content):
    run = Run.create(tmp_path / "run", "a: 1\n")
    (run.path / "data.json").write_bytes(content)
    with pytest.raises(RunError, match=r"run/data\.json is damaged: it is not valid JSON"):
        run.read_json("data.json")
