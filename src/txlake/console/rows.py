"""Some rows of a table, and those that a version changed, read without Spark.

Owns how many are read at most, and how a file that a version changed in part is read in part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from txlake.datafiles.vectors import VectorCache
from txlake.errors import TxlakeError
from txlake.log.files import files_table
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.deletion_vectors import inline
from txlake.protocol.statistics import FileStatistics
from txlake.session.engine import Engine, Handle
from txlake.transaction.change_feed import Told, as_recorded, labelled, told_by
from txlake.transaction.data_plane import TableData
from txlake.transaction.feed_rules import CHANGE_TYPE
from txlake.transaction.net_changes import DELETE, INSERT, all_but
from txlake.transaction.table_log import Commit

ROWS_MAX = 20
_FILES_MAX = 16
_SIGNS = {
    DELETE: "−",
    INSERT: "+",
    "update_preimage": "−",
    "update_postimage": "+",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Rows for a page.

    Attributes:
        rows: each with a sign, `+` or `−` where it was added or taken away, and its values.
        is_cut: whether there are more.
        problem: why they aren't shown.
    """

    columns: Sequence[str] = ()
    rows: Sequence[tuple[str, Sequence[object]]] = ()
    is_cut: bool = False
    problem: str = ""


_NOT_HERE = (
    "these rows can't be read without Spark: their columns are nested, or their files are many, "
    "large or in a bucket"
)


def sample(engine: Engine, handle: Handle, snapshot: Snapshot) -> Shown:
    """The first rows of a version."""
    try:
        adds = list(itertools.islice(snapshot.files.adds(), _FILES_MAX))
        few = _few(adds)
        found = engine.work(handle, snapshot).plain_rows(files_table(few), None, ROWS_MAX + 1)
    except (TxlakeError, OSError) as error:
        return Shown(problem=str(error).partition("\n")[0])
    if found is None:
        return Shown(problem=_NOT_HERE)
    rows = [("", list(row.values())) for row in found.to_pylist()]
    return Shown(
        columns=snapshot.schema.names,
        rows=rows[:ROWS_MAX],
        is_cut=len(rows) > ROWS_MAX or len(few) < len(snapshot.files),
    )


def _few(adds: Sequence[Add]) -> list[Add]:
    """As many files as the rows that are shown need, where their statistics tell that."""
    few: list[Add] = []
    rows = 0
    for add in adds:
        few.append(add)
        held = FileStatistics.from_json(add.stats).num_records
        gone = 0 if add.deletion_vector is None else add.deletion_vector.cardinality
        rows += 0 if held is None else held - gone
        if rows > ROWS_MAX:
            break
    return few


def changed(engine: Engine, handle: Handle, commit: Commit) -> Shown:
    """The rows that a version added and took away."""
    log = handle.log
    try:
        after = log.snapshot(version=commit.version)
        vectors = VectorCache(log.store, log.external_vectors)
        told = told_by(log, commit, commit.timestamp_ms, vectors)
        found = list(itertools.islice(_rows(engine, handle, after, told), ROWS_MAX + 1))
    except _Unreadable:
        return Shown(problem=_NOT_HERE)
    except (TxlakeError, OSError) as error:
        return Shown(problem=str(error).partition("\n")[0])
    return Shown(columns=after.schema.names, rows=found[:ROWS_MAX], is_cut=len(found) > ROWS_MAX)


class _Unreadable(Exception):
    """This process can't read the rows."""


def _rows(
    engine: Engine, handle: Handle, after: Snapshot, told: Sequence[Told]
) -> Iterator[tuple[str, Sequence[object]]]:
    """What was taken away first."""
    plain, recorded = engine.work(handle, after), engine.work(handle, as_recorded(after))
    names = after.schema.names
    for one in sorted(told, key=lambda part: part.change_type != DELETE)[:_FILES_MAX]:
        if one.change_type is None:
            for row in _read(recorded, labelled(one)):
                yield _SIGNS.get(str(row[CHANGE_TYPE]), ""), [row[name] for name in names]
        else:
            for row in _read(plain, _part(plain, one)):
                yield _SIGNS[one.change_type], [row[name] for name in names]


def _read(work: TableData, add: Add) -> Sequence[dict[str, object]]:
    found: pa.Table | None = work.plain_rows(files_table([add]), None, ROWS_MAX + 1)
    if found is None:
        raise _Unreadable
    rows: Sequence[dict[str, object]] = found.to_pylist()
    return rows


def _part(work: TableData, one: Told) -> Add:
    """The file with no live rows but those that are told of."""
    if one.only is None:
        return one.file
    count = FileStatistics.from_json(one.file.stats).num_records
    if count is None:
        count = work.footer(one.file).num_rows
    hidden = inline(all_but(one.only, count))
    return msgspec.structs.replace(one.file, deletion_vector=hidden)
