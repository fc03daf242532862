"""A progress line on a terminal while a statement runs; nothing in a pipe.

Owns what the line says and when it appears: only after a moment, so that quick statements stay
quiet.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from txlake.statements import Statement

_QUIET_S = 0.8


@contextmanager
def progress(statement: Statement) -> Iterator[None]:
    """Shows that the statement is at work, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(describe(statement), total=None)
    timer = threading.Timer(_QUIET_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def describe(statement: Statement) -> str:
    """The statement in a few words: its kind and its table."""
    words = "".join(
        f" {letter.lower()}" if letter.isupper() else letter for letter in type(statement).__name__
    ).strip()
    table = getattr(statement, "table", getattr(statement, "target", None))
    return words if table is None else f"{words} {table}"
