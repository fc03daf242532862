"""Spark Connect servers of this machine that listen where every client looks: one at a time."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def connect_port() -> Iterator[None]:
    """Hold the port of `SparkSession.builder.remote("local")` against other test processes."""
    with Path(tempfile.gettempdir(), "txlake-connect-port").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
