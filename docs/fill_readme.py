"""Fills the generated parts of README.md: the table of objectives and tables of result pages.

    python docs/fill_readme.py

``tests/test_readme.py`` fails where the README is not what this writes.
"""

import re
from pathlib import Path

from relatum.objectives.table import markdown_table

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results"


def filled(text: str) -> str:
    """The README with its generated parts."""
    parts = {
        "objectives": markdown_table(),
        "demo": first_table("demo_mnist5k_cpu.md"),
        "losses": first_table("losses_cpu.md"),
    }
    for name, content in parts.items():
        pattern = rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)"
        block = f"{content}\n" if content else ""
        text = re.sub(pattern, lambda m, b=block: m[1] + b + m[2], text, flags=re.DOTALL)
    return text


def first_table(page: str) -> str:
    """The first table of a result page."""
    lines = (RESULTS / page).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    stop = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    return "\n".join(lines[start:stop])


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
