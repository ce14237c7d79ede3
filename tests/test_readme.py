"""The README is executed: its Python runs, its commands parse, its tables are generated."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", range(2))
def test_python_blocks_run(number):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 2
    exec(compile(blocks[number], f"README block {number}", "exec"), {})


def test_generated_parts_are_up_to_date():
    spec = importlib.util.spec_from_file_location("fill_readme", ROOT / "docs" / "fill_readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.filled(TEXT) == TEXT


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", TEXT, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_commands_parse():
    from relatum.cli import parse

    blocks = "".join(re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL))
    commands = re.findall(r"^relatum .*$", blocks, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        parse(shlex.split(command.split("#")[0])[1:])
