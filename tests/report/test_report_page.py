"""The page as a whole: self-contained, escaped, complete, deterministic, never a crash."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from relatum.report import render
from relatum.runs import RunError

from .fake_runs import make_run, png, probe_rows

ROWS = probe_rows(
    {
        (features, probe, few): accuracy
        for features, accuracy in (("encoder", 0.9), ("untrained", 0.7), ("pixels", 0.8))
        for probe, few in (("linear", 10), ("linear", None), ("knn", None), ("class-means", None))
    }
)
TRAINING = {"steps": 600, "seconds": 61.5, "nonfinite_steps": 0, "final_loss": 2.25}
EVIL = '<b>&"</b>'


class Page(HTMLParser):
    """Collects what a browser would see: tags with attributes, ids, and text."""

    VOID = frozenset({"meta", "img", "br", "line", "path", "use", "rect", "hr"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def values(self, name):
        return [attrs[name] for _, attrs in self.tags if attrs.get(name)]


def page_of(runs, tmp_path):
    out = render(runs, tmp_path / "out" / "report.html")
    return out.read_text(encoding="utf-8")


@pytest.fixture
def full(tmp_path):
    return [
        make_run(
            tmp_path / f"{objective}-{seed}",
            objective=objective,
            seed=seed,
            rows=ROWS,
            training=TRAINING,
            classes=["cat", EVIL, "$x^2$"],
        )
        for objective in ("cpc", "rpc")
        for seed in (0, 1)
    ]


def test_the_page_is_well_formed_and_loads_nothing(full, tmp_path):
    text = page_of(full, tmp_path)
    page = Page(text)
    assert page.open == []
    assert dict(page.tags)["html"]["lang"] == "en"
    assert not {"script", "link", "iframe", "object", "embed", "base"} & {t for t, _ in page.tags}
    loads = page.values("src") + page.values("href") + page.values("xlink:href")
    assert loads
    assert all(place.startswith(("data:image/png;base64,", "#")) for place in loads)
    assert "http:" not in text and "https:" not in text
    assert "@import" not in text
    assert all(place.startswith("#") for place in re.findall(r"url\(([^)]*)\)", text))
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]


def test_ids_are_unique_and_every_reference_has_its_target(full, tmp_path):
    text = page_of(full, tmp_path)
    page = Page(text)
    ids = page.values("id")
    assert len(ids) == len(set(ids)) > 100
    targets = [place[1:] for place in page.values("href")] + re.findall(r"url\(#([^)]*)\)", text)
    targets += page.values("aria-labelledby")
    assert set(targets) <= set(ids)


def test_figures_follow_the_theme_and_have_words(full, tmp_path):
    page = Page(page_of(full, tmp_path))
    drawings = [attrs for tag, attrs in page.tags if tag == "svg" and attrs.get("role") == "img"]
    assert len(drawings) == 4 + 2 + 5 + 4 + 2  # accuracy, losses, curves, more curves, maps
    assert all(attrs["aria-label"] and attrs["viewbox"] for attrs in drawings)
    styles = " ".join(attrs.get("style") or "" for _, attrs in page.tags)
    assert re.findall(r"#[0-9a-fA-F]{3,6}\b", styles) == []  # variables only
    assert all(attrs.get("alt") for tag, attrs in page.tags if tag == "img")


def test_text_from_runs_is_escaped_everywhere(tmp_path):
    run = make_run(
        tmp_path / "run<i>&",
        objective=f"'{EVIL}'",
        settings=f"note: '{EVIL}'\n",
        rows=[{**row, "warnings": [EVIL]} for row in ROWS],
        card={"split": EVIL, EVIL: EVIL},
        training={"critic": EVIL},
        classes=[EVIL, "b"],
    )
    text = page_of([run], tmp_path)
    page = Page(text)
    assert page.open == []
    assert EVIL not in text and "<i>" not in text
    assert "".join(page.words).count(EVIL) > 10
    assert any(EVIL in label for label in page.values("aria-label"))


def test_text_between_svg_tags_is_left_alone(tmp_path):
    # The drawings' numbers are shortened; a class name that looks like one must not be.
    run = make_run(tmp_path / "r", classes=['0.125 "id="x" #f1e1f1', "b"])
    assert '0.125 "id="x" #f1e1f1'[:24] in "".join(Page(page_of([run], tmp_path)).words)


def test_output_is_deterministic_and_the_order_of_the_runs_does_not_matter(full, tmp_path):
    assert page_of(full[1:3], tmp_path) == page_of(full[2:0:-1], tmp_path)


@pytest.mark.slow
def test_size_of_a_page_of_six_runs(tmp_path):
    runs = [
        make_run(
            tmp_path / f"{i}",
            objective=objective,
            rows=ROWS,
            training=TRAINING,
            losses=[float(i) for i in range(2000)],
            classes=[str(c) for c in range(10)],
            points=5000,
        )
        for i, objective in enumerate(["cpc", "dv", "nwj", "js", "rpc", "chi2"])
    ]
    assert len(page_of(runs, tmp_path)) < 3_000_000


def test_one_run_without_any_result_names_the_commands(tmp_path):
    text = page_of([make_run(tmp_path / "alone", losses=[])], tmp_path)
    assert "No probe yet for alone: <code>relatum probe alone</code>" in text
    assert "No map yet for alone" in text
    assert "No neighbours yet for alone" in text
    assert "nothing is known about accuracy" in text
    assert "Not started, or stopped at once: nothing has been logged yet." in text


def test_runs_that_were_killed_are_listed_as_such(tmp_path):
    for name in ("early", "midway"):
        make_run(tmp_path / name, losses=[] if name == "early" else None, training={})
    (tmp_path / "early" / "environment.json").unlink()
    text = page_of([tmp_path / "early", tmp_path / "midway"], tmp_path)
    assert "<b>early</b><br>Not started, or stopped at once" in text
    assert "<b>midway</b><br>Training has not finished" in text
    assert "not recorded" in text
    finished = page_of([make_run(tmp_path / "whole")], tmp_path)
    assert "not finished" not in finished and "Not started" not in finished


def test_runs_with_and_without_a_probe_share_a_page(tmp_path):
    runs = [
        make_run(tmp_path / "a", seed=0, rows=ROWS),
        make_run(tmp_path / "b", seed=1),
        make_run(tmp_path / "c", objective="js", losses=[{"value": None, "reason": "nan"}]),
    ]
    text = page_of(runs, tmp_path)
    assert "No probe yet for b and c" in text
    assert "1 of 2 runs" in text
    assert "Loss or gradient was not finite in one step" in text


def test_metrics_that_are_nan_are_gaps(tmp_path):
    nan = {"value": None, "reason": "nan"}
    log = {"effective_rank": nan, "mi": None, "learning_rate": {"value": None, "reason": "inf"}}
    text = page_of([make_run(tmp_path / "r", log=log, losses=[1.0, nan, 3.0, 2.0])], tmp_path)
    assert "Effective rank against step" not in text
    assert "Learning rate against step" not in text
    assert "Loss of CPC against step. Last values: r 2" in text


def test_results_of_unknown_kind_are_shown_as_they_are(tmp_path):
    from relatum.runs import Run

    path = make_run(tmp_path / "r")
    Run.open(path).write_result("certificate", "transfer-certificate", {"bound": 0.125})
    text = page_of([path], tmp_path)
    assert "transfer-certificate" in text and "&#34;bound&#34;: 0.125" in text


def test_what_is_no_run_is_refused(tmp_path):
    run = make_run(tmp_path / "run")
    with pytest.raises(RunError, match="no config"):
        render([tmp_path], tmp_path / "x.html")
    with pytest.raises(RunError, match="there is no run directory"):
        render([tmp_path / "nowhere"], tmp_path / "x.html")
    with pytest.raises(RunError, match="at least one"):
        render([], tmp_path / "x.html")
    with pytest.raises(RunError, match="count as a repeat"):
        render([run, run], tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_pictures_that_are_not_pictures_are_refused(tmp_path):
    row = {"query": png(0), "query_label": "a", "neighbours": [{"png": "x", "label": "b"}]}
    run = make_run(tmp_path / "r", neighbours=[row])
    with pytest.raises(RunError, match="not a base64 PNG"):
        render([run], tmp_path / "x.html")


def test_neighbours_are_marked_by_symbol_and_by_colour(tmp_path):
    found = [
        {"png": png(1), "label": "a", "similarity": 0.75},
        {"png": png(2), "label": "b", "similarity": -0.5},
    ]
    row = {"query": png(0), "query_label": "a", "neighbours": found}
    text = page_of([make_run(tmp_path / "r", neighbours=[row])], tmp_path)
    assert re.search(
        r'<li class="right"><img src="data:image/png;base64,' + re.escape(png(1)), text
    )
    assert re.search(
        r'<li class="wrong"><img src="data:image/png;base64,' + re.escape(png(2)), text
    )
    assert "<span>✓ a</span><small>0.75</small>" in text
    assert "<span>✗ b</span><small>\N{MINUS SIGN}0.50</small>" in text


def test_many_pairs_of_objectives_are_folded_away(tmp_path):
    """Four objectives have six pairs, shown in place; five have ten, behind a summary."""
    names = ["cpc", "rpc", "js", "dv", "nwj"]
    accuracies = {("encoder", "linear", None): 0.9, ("pixels", "linear", None): 0.8}
    runs = []
    for name in names:
        make_run(tmp_path / name, objective=name, rows=probe_rows(accuracies))
        runs.append(tmp_path / name)
    few = render(runs[:4], tmp_path / "few.html").read_text(encoding="utf-8")
    many = render(runs, tmp_path / "many.html").read_text(encoding="utf-8")
    assert "Encoders against each other" not in few
    assert "Encoders against each other (10 pairs)" in many
    assert "one in twenty" in many


@pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("pdftotext")),
    reason="printing needs chromium and pdftotext",
)
def test_print_unfolds_details_and_cuts_nothing(tmp_path):
    run = make_run(tmp_path / "run", rows=ROWS, training=TRAINING, settings="odd_setting: 3\n")
    environment = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    environment["command"] = f"relatum train images --data {'long/' * 60} --last word"
    (run / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    page, pdf = render([run], tmp_path / "r.html"), tmp_path / "r.pdf"
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    subprocess.run(
        [*browser, profile, f"--print-to-pdf={pdf}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    # What is cut at the edge of the paper is still in the file, but outside the page.
    paper = ["pdftotext", "-x", "0", "-y", "0", "-W", "620", "-H", "850", pdf, "-"]
    found = subprocess.run(paper, check=True, capture_output=True).stdout.decode()
    words = " ".join(found.split())
    assert "odd_setting: 3" in words and "Gradient norm" in words
    assert "--last word" in words
