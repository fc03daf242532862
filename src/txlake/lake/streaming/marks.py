"""Marks in Spark's plans by which a sink recognises a stream of its own target table.

A sink that reads its target isn't a blind append.
"""

from __future__ import annotations

import hashlib
import re

_MARK = "#txlake-stream-"
# A stream of the format `txlake` or `txlake_stream`, with or without a mark.
_RELATION = re.compile(r"Streaming\w*Relation\w*[^\n]*\btxlake(?:_stream)?\b")


def stream_mark(table: str, url: str) -> str:
    """Return the alias that marks a stream of a table in plans."""
    return f"{table.replace('`', '')}{_MARK}{_digest(url)}"


def may_read(plan: str, url: str) -> bool:
    """Return whether a plan may read a stream of the table at a URL.

    It has that table's mark, or a stream without any mark.
    """
    if f"{_MARK}{_digest(url)}" in plan:
        return True
    return len(_RELATION.findall(plan)) > plan.count(_MARK)


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
