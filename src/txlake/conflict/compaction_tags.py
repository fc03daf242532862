"""The tags with which other engines' OPTIMIZE records, on its tombstones, where it put the rows.

`remove.tags["compactedInto"]` is a JSON list of paths of outputs, as their `add` has them.
`remove.tags["compactionInfo"]` is a JSON list of objects, one for each output: `rowOffsetInTarget`
is the position there of the file's first live row, `sourceNumPhysicalRecords` the number of the
file's rows, deleted ones included. The live rows, by the tombstone's deletion vector, are
consecutive in the output, in their order.

Databricks writes these tags, and so does the row-level concurrency that is proposed for Delta Spark
(delta-io/delta, issues 7360 and 7407). No specification describes them, so a record counts only as
far as the numbers of rows confirm it. One that is incomplete, of another form, or with fields that
aren't known, counts as none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from txlake.errors import TxlakeError
from txlake.log.files import canonical_path
from txlake.protocol.actions import Add, Remove
from txlake.protocol.sources import Source
from txlake.protocol.statistics import FileStatistics

COMPACTED_INTO = "compactedInto"
COMPACTION_INFO = "compactionInfo"
_OFFSET = "rowOffsetInTarget"
_ROWS = "sourceNumPhysicalRecords"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placement:
    """The live rows of one file, and where they begin in an output.

    Attributes:
        output: the output's canonical path.
        offset: the position there of the first of them.
        source: the rows.
    """

    output: str
    offset: int
    source: Source


def compaction_tags(output: str, *, offset: int, rows: int) -> dict[str, str]:
    """Return the tags of a file whose live rows are all in one output.

    `output`: the output's path, as in the log. `offset`: the position there of the file's first
    live row. `rows`: the number of the file's rows, deleted ones included.
    """
    info = [{_OFFSET: offset, _ROWS: rows}]
    return {
        COMPACTED_INTO: json.dumps([output], separators=(",", ":"), ensure_ascii=False),
        COMPACTION_INFO: json.dumps(info, separators=(",", ":")),
    }


def recorded_sources(
    removed: Iterable[Remove], added: Iterable[Add]
) -> dict[str, tuple[Source, ...]]:
    """Return the sources of a rewrite's outputs, as its tombstones record them, in row order.

    The keys are canonical paths. Left out are outputs that change data or have a deletion vector
    already, and those whose rows the tombstones don't account for one by one: the files' live rows
    have to follow each other without a gap, from the output's first row to its last, and
    statistics, where there are some, have to state the same numbers.
    """
    files = [(canonical_path(file.path), file) for file in removed]
    times = Counter(path for path, _ in files)
    placed: dict[str, list[_Placement]] = {}
    for path, file in files:
        found = _placement(file) if times[path] == 1 else None
        if found is not None:
            placed.setdefault(found.output, []).append(found)
    sources: dict[str, tuple[Source, ...]] = {}
    for output in added if placed else ():
        path = canonical_path(output.path)
        is_new = not output.data_change and output.deletion_vector is None and path not in times
        found_sources = _tiled(placed.get(path, ()), output) if is_new else ()
        if found_sources:
            sources[path] = found_sources
    return sources


def _placement(file: Remove) -> _Placement | None:
    """Return where a tombstone's tags put the file's live rows; None if they don't say it."""
    tags = file.tags or {}
    outputs, infos = _list(tags.get(COMPACTED_INTO)), _list(tags.get(COMPACTION_INFO))
    match outputs, infos:
        case [str(output)], [dict(info)] if not file.data_change:
            offset, rows = info.pop(_OFFSET, None), info.pop(_ROWS, None)
        case _:
            return None
    if not (_is_number(offset) and _is_number(rows)) or any(info.values()):
        return None
    vector = file.deletion_vector
    live = rows - (0 if vector is None else vector.cardinality)
    if live < 0 or _number_of_rows(file) not in (None, rows):
        return None
    source = Source(path=file.path, vector_id=file.key[1], first=0, rows=live)
    return _Placement(output=canonical_path(output), offset=offset, source=source)


def _list(text: str | None) -> list[object]:
    """Return the list that a tag holds; an empty one if it holds none."""
    try:
        found: object = json.loads(text or "")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number_of_rows(file: Add | Remove) -> int | None:
    """Return the number of a file's rows, deleted ones included; None without statistics of it, -1
    if they can't be read.
    """
    try:
        return FileStatistics.from_json(file.stats).num_records
    except TxlakeError:
        return -1


def _tiled(placed: Sequence[_Placement], output: Add) -> tuple[Source, ...]:
    """Return the sources by their places in an output; () unless they are all of its rows."""
    ordered = sorted(placed, key=lambda one: (one.offset, one.source.rows))
    end = 0
    for one in ordered:
        if one.offset != end:
            return ()
        end += one.source.rows
    return tuple(one.source for one in ordered) if end == _number_of_rows(output) else ()
