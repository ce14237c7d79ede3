"""One self-contained HTML page from run directories, readable offline, on a phone and in print."""

from __future__ import annotations

from .render import render

__all__ = ["render"]
