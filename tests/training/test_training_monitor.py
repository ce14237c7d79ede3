"""What a person sees of a training, on a terminal and in a log."""

import io
import re

import pytest
from rich.console import Console

from relatum.runs import Run
from relatum.training import Monitor


def shown(folder, total, log_every, per_epoch, done=0, **console):
    said = io.StringIO()
    run = Run.create(folder / "a run", "a: 1\n")
    options = {"done": done, "steps_per_epoch": per_epoch, "console": Console(file=said, **console)}
    with Monitor(run, total, **options) as monitor:
        for step in range(done + 1, total + 1):
            monitor.advance(0.01, 8)
            if step % log_every == 0 or step == total:
                record = {"step": step, "epoch": step / per_epoch, "loss": -0.25, "mi": 1.5}
                monitor.log({**record, "mi_ceiling": None, "effective_rank": 31.5})
    return said.getvalue()


@pytest.mark.parametrize(
    ("total", "log_every", "per_epoch", "done"),
    [(2, 10, 5, 0), (15, 10, 5, 0), (372, 10, 31, 0), (5000, 1, 4000, 0), (9000, 10, 7, 8000)],
)
def test_a_log_has_the_first_and_the_last_record_and_few_between(
    tmp_path, total, log_every, per_epoch, done
):
    lines = shown(tmp_path, total, log_every, per_epoch, done).splitlines()
    steps = [int(re.search(rf"step (\d+)/{total} ", line)[1]) for line in lines]
    assert steps[0] == min(done + log_every, total)
    assert steps[-1] == total
    assert steps == sorted(set(steps))
    assert len(steps) <= 22
    assert all("loss -0.250  MI 1.50  rank 31.5" in line for line in lines)


def test_a_narrow_terminal_shows_the_time_left_and_nothing_that_there_is_not(tmp_path):
    bar = shown(tmp_path, 40, 1, 40, width=60, force_terminal=True, color_system=None)
    last = bar.split("\r")[-1].splitlines()[0]
    assert re.search(r"a run \d+:\d\d:\d\d 40/40 ", last)
    assert "loss -0.250" in last
    assert "log K" not in bar and "—" not in bar
