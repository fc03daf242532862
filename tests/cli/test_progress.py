"""A statement's progress: told on a terminal after a moment, never in a pipe."""

from __future__ import annotations

import io
import sys
import threading

import pytest
from rich.progress import Progress

from txlake.cli import progress


class _Screen(io.StringIO):
    """Standard error, as a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def test_a_pipe_stays_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen(terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_DELAY_S", 0.0)
    with progress.progress("DELETE FROM sales.orders"):
        pass
    assert screen.getvalue() == ""


def test_a_terminal_names_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen(terminal=True)
    shown = threading.Event()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_DELAY_S", 0.0)
    start = Progress.start

    def started(bar: Progress) -> None:
        start(bar)
        shown.set()

    monkeypatch.setattr(Progress, "start", started)
    with progress.progress("OPTIMIZE sales.orders"):
        assert shown.wait(30)
    assert "OPTIMIZE sales.orders" in screen.getvalue()


def test_quick_statements_draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_DELAY_S", 3600.0)
    with progress.progress("DELETE FROM sales.orders"):
        pass
    assert "DELETE" not in screen.getvalue()


def test_a_long_statement_is_shortened() -> None:
    assert progress.shortened("DELETE\n  FROM t") == "DELETE FROM t"
    assert progress.shortened(f"SELECT {', '.join('abcdefghijklmnopqrstuvwxyz')} FROM t") == (
        "SELECT a, b, c, d, e, f, g, h, i, j, k, l, ..."
    )
