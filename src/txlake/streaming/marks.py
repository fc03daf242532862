"""Which table a stream reads, as its plan tells: a sink that reads its own target isn't blind."""

from __future__ import annotations

import hashlib
import re

_MARK = "#txlake-stream-"
# A stream of the format's, with the mark of `lake.read_stream` or without.
_RELATION = re.compile(r"Streaming\w*Relation\w*[^\n]*\btxlake(?:_stream)?\b")


def stream_mark(table: str, url: str) -> str:
    """The alias by which a stream of a table is known again in plans."""
    return f"{table.replace('`', '')}{_MARK}{_digest(url)}"


def may_read(plan: str, url: str) -> bool:
    """Whether a plan streams the table at a URL, or one that it doesn't name."""
    if f"{_MARK}{_digest(url)}" in plan:
        return True
    return len(_RELATION.findall(plan)) > plan.count(_MARK)


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
