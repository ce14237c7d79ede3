"""The documentation: what it quotes stands in its sources, it builds without a warning, it opens.

The site is built once and opened in a real browser, from files, as without a network.
"""

import html.parser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from relatum.objectives import OBJECTIVES
from tests.test_tutorials import run, same

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
QUOTING = [
    *(DOCS / name for name in ("choose.md", "found.md")),
    *sorted((DOCS / "objectives").glob("*.md")),
    *sorted((DOCS / "concepts").glob("*.md")),
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PHONE = 390
# The width that the text needs. The theme lets a column that is too wide scroll by itself, and the
# window then looks right: the text and all that holds it are asked. Tables and code may scroll.
WIDTH = """() => {
  let widest = 0;
  for (let e = document.querySelector("[role=main]"); e; e = e.parentElement)
    widest = Math.max(widest, e.scrollWidth);
  return widest;
}"""
# A number that only a measurement can give: with a decimal point, or of three digits and more.
FIGURE = re.compile(r"\d[\d,]*\.\d+(?:e[+-]?\d+)?|\d{1,3}(?:,\d{3})+|\b\d{3,}\b")


def misquoted(text, folder):
    """(figure, paragraph) of each figure beside a link to results that is not on those pages."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\* |\| |\d\. )", text):
        linked = re.findall(r"\]\(([^)#]*results/\w+\.md)", paragraph)
        if not linked:
            continue
        source = "".join((folder / link).read_text(encoding="utf-8") for link in linked)
        there = set(FIGURE.findall(source))
        for figure in FIGURE.findall(re.sub(r"\]\([^)]*\)|`[^`]*`|\$[^$]*\$", " ", paragraph)):
            if figure not in there:
                yield figure, paragraph


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.stem)
def test_figures_stand_on_the_pages_they_are_linked_to(page):
    assert list(misquoted(page.read_text(encoding="utf-8"), page.parent)) == []


def test_a_wrong_figure_is_noticed():
    link = "[page](results/losses_cpu.md)"
    assert list(misquoted(f"a loss takes 886 ms {link}\n\n887 of another page", DOCS)) == []
    ((figure, _),) = misquoted(f"* 886 ms {link}\n* 887 ms {link}", DOCS)
    assert figure == "887"


def test_every_objective_has_a_page():
    pages = {page.stem for page in (DOCS / "objectives").glob("*.md")} - {"index"}
    assert pages == set(OBJECTIVES)


def test_tests_that_are_named_exist():
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert named
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


@pytest.mark.parametrize("name", ["found.md", "concepts/critic.md"])
def test_blocks_outside_tutorials_run(name, capsys):
    text = (DOCS / name).read_text(encoding="utf-8")
    if "```text" not in text:  # nothing shown, nothing compared
        text = re.sub(r"^(```python\n)", r"\1print = lambda *_: None\n", text, flags=re.MULTILINE)
    for found, shown, tolerance in run(text, name):
        assert same(found, shown, tolerance), f"shown:\n{shown}\nprinted:\n{found}"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The built site; every warning of the build is an error."""
    pytest.importorskip("sphinx", reason="the site needs `pip install 'relatum[docs]'`")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    built = subprocess.run([*command, str(DOCS), str(out)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out


class Page(html.parser.HTMLParser):
    """Targets and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.targets = {""}, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        self.targets += [given[name] for name in ("href", "src") if given.get(name)]


@pytest.mark.slow
def test_no_internal_link_is_broken(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not to.exists():
                broken.append((path.name, target))
            elif to in pages and unquote(parts.fragment) not in pages[to].ids:
                broken.append((path.name, target))
    assert not broken
    assert len(pages) > 40


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="driving a browser: playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def tab(browser):
    """A tab of a phone's width that keeps what goes wrong in `tab.faults`."""
    opened = browser.new_page(viewport={"width": PHONE, "height": 844})
    opened.faults = []
    opened.on("console", lambda m: m.type in ("error", "warning") and opened.faults.append(m.text))
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.on("requestfailed", lambda request: opened.faults.append(f"failed: {request.url}"))
    opened.on("request", lambda request: _leaves(request.url) and opened.faults.append(request.url))
    yield opened
    opened.close()


def _leaves(url):
    return not url.startswith(("file:", "data:", "blob:"))


@pytest.mark.slow
def test_every_page_opens_on_a_phone_without_a_network(site, tab):
    wide = {}
    for path in sorted(site.rglob("*.html")):
        tab.goto(path.as_uri())
        width = tab.evaluate(WIDTH)
        if width > PHONE:
            wide[path.relative_to(site)] = width
    assert not tab.faults
    assert not wide


@pytest.mark.slow
def test_formulas_are_drawn(site, tab):
    tab.goto((site / "objectives" / "rpc.html").as_uri())
    box = tab.locator("math[display=block]").first.bounding_box()
    assert box is not None
    assert box["width"] > 200
    assert box["height"] > 20


@pytest.mark.slow
def test_search_finds_rpc_offline(site, tab):
    tab.goto((site / "search.html").as_uri() + "?q=RPC")
    tab.wait_for_selector("#search-results li a")
    found = tab.eval_on_selector_all("#search-results li a", "links => links.map(a => a.href)")
    assert any(address.split("?")[0].endswith("objectives/rpc.html") for address in found)
    assert not tab.faults


@pytest.mark.slow
def test_the_first_page_is_shown(site, tab):
    tab.goto((site / "index.html").as_uri())
    loaded = "[...document.images].filter(i => i.offsetParent).every(i => i.naturalWidth > 0)"
    assert tab.evaluate(loaded)
    assert tab.locator("h1").first.inner_text().startswith("relatum")
