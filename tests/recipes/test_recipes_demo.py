"""The demo in small: everything is made, and a second call keeps it."""

import io

import pytest
from rich.console import Console

from relatum.recipes import demo
from relatum.runs import Run


@pytest.mark.slow
def test_demo_twice(tmp_path, monkeypatch):
    small = {**demo.SETTINGS, "data": "digits", "image_size": 8, "tensorboard": False}
    monkeypatch.setattr(demo, "SETTINGS", small)
    settings = demo.Demo(out=tmp_path / "demo", seeds=1, epochs=1, jobs=1)
    said = io.StringIO()
    page = demo.main(settings, Console(file=said, width=120))
    assert page == tmp_path / "demo" / "report.html"
    assert page.stat().st_size > 10_000
    for word in ["RPC", "CPC", "Raw pixels", "Untrained encoder", f"report: {page}"]:
        assert word in said.getvalue()
    runs = [Run.open(tmp_path / "demo" / f"{name}-0") for name in demo.OBJECTIVES]
    before = [(run.checkpoint.stat().st_mtime_ns, dict(run.results())) for run in runs]
    again = io.StringIO()
    demo.main(settings, Console(file=again, width=120))
    assert [(run.checkpoint.stat().st_mtime_ns, dict(run.results())) for run in runs] == before
    assert said.getvalue().split("Test accuracy")[1] == again.getvalue().split("Test accuracy")[1]


def test_counts_are_positive():
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        demo.Demo(seeds=0)
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        demo.Demo(jobs=0)
