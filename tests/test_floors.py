"""The law of the house: imports go down only. The table below is CONTRIBUTING.md's."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "relatum"

ALLOWED: dict[str, set[str]] = {
    # ground floor: each stands alone
    "base": set(),
    "arrays": set(),
    "penalty": set(),
    "surrogates": set(),
    "relative": set(),
    "diagnostics": set(),
    "distributed": set(),
    "products": set(),
    "runs": set(),
    "settings": set(),
    "models": {"distributed"},
    "data": set(),
    "probes": set(),
    # the siblings that never meet
    "critics": {"base", "products"},
    "scores": {"base", "distributed", "products"},
    "objectives": {"base", "surrogates", "relative"},
    "latent_class": {"arrays", "diagnostics", "surrogates"},
    # what binds them
    "losses": {"arrays", "base", "distributed", "scores"},
    "mi": {
        "arrays", "base", "critics", "diagnostics", "losses", "objectives", "relative", "scores",
    },
    "estimators": {
        "base", "critics", "diagnostics", "latent_class", "losses", "mi", "objectives", "penalty",
        "relative", "runs", "training",
    },
    "training": {"distributed", "runs"},
    "report": {"runs", "probes"},
    "recipes": {
        "base", "critics", "data", "diagnostics", "distributed", "estimators", "latent_class",
        "losses", "mi", "models", "objectives", "penalty", "probes", "relative", "report", "runs",
        "scores", "settings", "surrogates", "training",
    },
    "commands": set(),
    "help_pages": set(),
    "cli": {"commands", "help_pages", "recipes", "settings", "runs"},
    "__main__": {"cli"},
    "__init__": {
        "critics", "distributed", "estimators", "latent_class", "losses", "mi", "objectives",
        "penalty", "relative",
    },
}  # fmt: skip


def rooms():
    found = {p.stem for p in PACKAGE.glob("*.py")}
    return found | {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a file imports, read from its text."""
    depth = len(path.relative_to(PACKAGE).parts)  # 1 for a module, 2 inside a room
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module] if node.module else [a.name for a in node.names]
            found |= {name.split(".")[0] for name in names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            if module.split(".")[0] == "relatum":
                found.add(module.split(".")[1] if "." in module else "__init__")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "relatum":
                    found.add(alias.name.split(".")[1] if "." in alias.name else "__init__")
    return found


def test_every_room_is_in_the_table():
    assert rooms() == set(ALLOWED)


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_go_down(room):
    place = PACKAGE / room
    files = list(place.rglob("*.py")) if place.is_dir() else [PACKAGE / f"{room}.py"]
    assert files
    for path in files:
        assert imported_rooms(path) - {room} <= ALLOWED[room], path.name


def test_the_table_has_no_circle():
    done: set[str] = set()
    while len(done) < len(ALLOWED):
        ready = {room for room, below in ALLOWED.items() if room not in done and below <= done}
        assert ready, f"circle among {set(ALLOWED) - done}"
        done |= ready


def at_import(node):
    """The nodes that are executed when a module is imported: not what is inside functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_import(child)


def test_the_core_imports_nothing_optional():
    """`import relatum` needs torch, numpy, scipy and jaxtyping alone."""
    optional = {"torchvision", "PIL", "sklearn", "pandas", "matplotlib", "jinja2", "rich", "yaml",
                "jsonargparse", "mlxtend", "pyarrow", "tensorboard"}  # fmt: skip
    core = ["base", "critics", "scores", "objectives", "losses", "mi", "relative", "surrogates"]
    for room in [*core, "latent_class", "diagnostics", "__init__"]:
        place = PACKAGE / room
        files = list(place.rglob("*.py")) if place.is_dir() else [PACKAGE / f"{room}.py"]
        for path in files:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            # An estimate draws itself and a matrix becomes a table where someone asks for it.
            drawn = room in ("mi", "latent_class")
            for node in at_import(tree) if drawn else ast.walk(tree):
                names = []
                if isinstance(node, ast.Import):
                    names = [a.name for a in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                assert not {n.split(".")[0] for n in names} & optional, path.name
