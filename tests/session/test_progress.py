"""A statement's progress: told on a terminal after a moment, never in a pipe."""

from __future__ import annotations

import io
import sys
import threading

import pytest
from rich.progress import Progress

from txlake.session import progress
from txlake.statements import Delete, Merge, Optimize, Query, SqlText, TableName

T = TableName(("sales", "orders"))


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
    monkeypatch.setattr(progress, "_QUIET_S", 0.0)
    with progress.progress(Delete(table=T)):
        pass
    assert screen.getvalue() == ""


def test_a_terminal_names_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen(terminal=True)
    shown = threading.Event()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_QUIET_S", 0.0)
    start = Progress.start

    def started(bar: Progress) -> None:
        start(bar)
        shown.set()

    monkeypatch.setattr(Progress, "start", started)
    with progress.progress(Optimize(table=T)):
        assert shown.wait(30)
    assert "optimize sales.orders" in screen.getvalue()


def test_quick_statements_draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_QUIET_S", 3600.0)
    with progress.progress(Delete(table=T)):
        pass
    assert "delete" not in screen.getvalue()


def test_a_statement_is_named_by_kind_and_table() -> None:
    assert progress.describe(Delete(table=T)) == "delete sales.orders"
    merge = Merge(target=T, source=Query(SqlText("SELECT 1")), on=SqlText("true"), clauses=())
    assert progress.describe(merge) == "merge sales.orders"
