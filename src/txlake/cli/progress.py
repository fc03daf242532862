"""A progress line on a terminal while a statement runs; nothing in a pipe.

Owns its text, and the delay after which it appears, so that quick statements show none.
"""

from __future__ import annotations

import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_DELAY_S = 0.8
_WIDTH = 48


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show that a statement is running, if that takes 0.8 s and standard error is a terminal."""
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
    bar.add_task(shortened(text), total=None)
    timer = threading.Timer(_DELAY_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def shortened(text: str) -> str:
    """Return a statement's text on one short line."""
    return textwrap.shorten(text, _WIDTH, placeholder=" ...")
