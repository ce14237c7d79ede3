"""Tutorials are executed: each block prints what the page shows beneath it, and draws its picture.

Numbers may differ in the last digit shown. Where training or another machine's rounding moves them
further, the page says by how much beside the block's language: ``text tolerance=0.05``. A block
``python file=NAME`` is a file, and the commands of ``bash run`` are run as they stand.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot
import pytest

TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
PAGES = sorted(page for page in TUTORIALS.glob("*.md") if page.stem != "index")
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def same(found, shown, tolerance):
    """Equal words, and numbers within one unit of the last digit shown plus the tolerance."""
    if NUMBER.sub("#", found).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.findall(found), NUMBER.findall(shown), strict=True)
    return all(abs(float(a) - float(b)) <= unit(b) + tolerance for a, b in pairs)


def unit(number):
    """One in the last digit shown; whole numbers are exact."""
    digits = number.partition(".")[2]
    return 1.001 * 10.0 ** -len(digits) if digits and "e" not in digits else 0.0


def shell(commands):
    """What the commands print; `relatum` and `torchrun` are those of this interpreter.

    Standalone takes a port of its own: other tests may start processes at the same time.
    """
    here = {"relatum": "relatum", "torchrun": "torch.distributed.run --standalone"}
    for name, module in here.items():
        commands = re.sub(rf"^{name} ", f"{sys.executable} -m {module} ", commands, flags=re.M)
    paths = os.pathsep.join([str(TUTORIALS.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    surroundings = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-euc", commands], env=surroundings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(text, name):
    """Executes the Python blocks of a page in order, and yields (output, shown, tolerance)."""
    namespace = {"__name__": "__main__"}
    printed = ""
    for number, (language, info, body) in enumerate(FENCE.findall(text)):
        if "file=" in info:
            Path(info.partition("file=")[2].strip()).write_text(body, encoding="utf-8")
        elif language == "bash" and "run" in info.split():
            printed = shell(body)
        elif language == "python":
            assert not printed, f"{name} does not show what a block prints:\n{printed}"
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(body, f"{name} block {number}", "exec"), namespace)
            printed = output.getvalue()
        elif language == "text":
            yield printed, body, float(info.partition("tolerance=")[2] or 0)
            printed = ""
    assert not printed, f"{name} does not show what its last block prints:\n{printed}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_print_what_is_shown_and_draw_the_pictures(page, tmp_path, monkeypatch):
    text = page.read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    monkeypatch.chdir(tmp_path)
    with matplotlib.pyplot.rc_context():
        for found, shown, tolerance in run(text, page.name):
            assert same(found, shown, tolerance), f"shown:\n{shown}\nprinted:\n{found}"
    matplotlib.pyplot.close("all")
    assert pictures
    for picture in pictures:
        assert (page.parent / picture).exists()
        assert (tmp_path / picture).exists(), f"no block draws {picture}"


def test_what_counts_as_the_same():
    assert same("a  0.812\n", "a 0.811", 0)
    assert not same("a 0.813", "a 0.811", 0)
    assert same("a 0.83", "a 0.81", 0.01)
    assert not same("b 0.81", "a 0.81", 1)
    assert not same("11 of 12", "10 of 12", 0)
    assert not same("1 2", "1", 1)


def test_a_wrong_or_hidden_output_is_noticed():
    page = "```python\nprint(1 / 4)\n```\n\n```text\n0.5\n```\n"
    ((found, shown, tolerance),) = run(page, "page")
    assert not same(found, shown, tolerance)
    with pytest.raises(AssertionError, match="does not show"):
        list(run("```python\nprint(1)\n```\n", "page"))
