"""The tag with which a rewrite records which rows each output holds, and in which order.

`add.tags["txlake.sources"]` is a JSON list, in row order, of `[path, deletion vector id or null,
first live row, number of live rows]`; the output's rows are exactly those live rows. A rewrite that
sorts takes rows out of the middle of its sources: `[path, deletion vector id or null, 0, number of
rows, id of a set of positions]` are the rows at those positions, in their order. The set is encoded
and stored as deletion vectors are. Paths are as in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from txlake.errors import InvalidRequest

SOURCES_TAG = "txlake.sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Live rows of one logical file, in their order, counted as of the rewrite's read.

    Attributes:
        first: how many live rows of the file come before the first of these rows.
        rows: the number of these rows.
        positions_id: the id of the set of their positions, in the form of a vector's id; None for
            consecutive rows.
    """

    path: str
    vector_id: str | None
    first: int
    rows: int
    positions_id: str | None = None


def sources_text(sources: Iterable[Source]) -> str:
    """Return the tag's text."""
    rows = [
        [one.path, one.vector_id, one.first, one.rows]
        + ([] if one.positions_id is None else [one.positions_id])
        for one in sources
    ]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def parse_sources(text: str) -> tuple[Source, ...]:
    """Return the sources from the tag's text. Raises InvalidRequest for an invalid text."""
    try:
        rows = json.loads(text)
        return tuple(_parsed(*row) for row in rows)
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"tag {SOURCES_TAG}: expected a list of sources: {error}") from error


def _parsed(
    path: object, vector: str | None, first: str | int, count: str | int, *positions: object
) -> Source:
    """Return a source from one list of the tag.

    Raises ValueError or TypeError for an invalid one.
    """
    match positions:
        case ():
            positions_id = None
        case (str(positions_id),):
            pass
        case _:
            raise ValueError(f"{positions!r:.80} is no id of a set of positions")
    return Source(
        path=str(path),
        vector_id=vector,
        first=int(first),
        rows=int(count),
        positions_id=positions_id,
    )
