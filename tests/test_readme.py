"""README and guide are executed: Python runs, commands parse, tables are generated."""

import importlib
import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

from relatum import cli

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "count"), [("README.md", 4), ("docs/guide.md", 6)])
def test_python_blocks_run(page, count):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == count
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page} block {number}", "exec"), {})


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_are_up_to_date():
    assert script("fill_readme").filled(TEXT) == TEXT


def test_what_was_measured_is_what_the_pages_say():
    filling = script("fill_measured")
    assert filling.measured() == json.loads(filling.MEASURED.read_text(encoding="utf-8"))


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", TEXT, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_commands_parse():
    blocks = "".join(re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL))
    commands = re.findall(r"^relatum (.*?)(?:\s*#.*)?$", blocks, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        name = next(n for n in cli.COMMANDS if f"{command} ".startswith(f"{n} "))
        module = importlib.import_module(f"relatum.{cli.COMMANDS[name].module}")
        settings_class = getattr(module, cli.COMMANDS[name].settings)
        cli.parse(name, settings_class, shlex.split(command.removeprefix(name)))
