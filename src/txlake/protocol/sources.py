"""The tag by which a rewrite that keeps order says which rows each output holds.

`add.tags["txlake.sources"]` is a JSON list, in row order, of `[path, deletion vector id or null,
first live row, number of live rows]`; the output's rows are exactly those live rows. Paths are as
in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from txlake.errors import InvalidRequest

SOURCES_TAG = "txlake.sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run of live rows of one logical file, counted as they were when it was read."""

    path: str
    vector_id: str | None
    first: int
    rows: int


def sources_text(sources: Iterable[Source]) -> str:
    """The tag's text."""
    rows = [[one.path, one.vector_id, one.first, one.rows] for one in sources]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def parse_sources(text: str) -> tuple[Source, ...]:
    """The sources from the tag's text. Raises InvalidRequest when it isn't one."""
    try:
        rows = json.loads(text)
        return tuple(
            Source(path=str(path), vector_id=vector, first=int(first), rows=int(count))
            for path, vector, first, count in rows
        )
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"tag {SOURCES_TAG}: expected a list of sources: {error}") from error
