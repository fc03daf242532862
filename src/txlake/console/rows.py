"""Some rows of a table, and the rows that a version changed, read without Spark.

Owns the limits on what is read, and how only the changed rows of a partly changed file are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from txlake.commit.change_feed import FeedFile, as_recorded, feed_files, with_feed_columns
from txlake.commit.data_plane import TableData
from txlake.commit.feed_rules import CHANGE_TYPE
from txlake.commit.net_changes import DELETE, INSERT, other_positions
from txlake.commit.table_log import Commit
from txlake.datafiles.vectors import VectorCache
from txlake.errors import TxlakeError
from txlake.log.files import files_table
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.deletion_vectors import inline
from txlake.protocol.statistics import FileStatistics
from txlake.session.engine import Engine, Handle

ROWS_MAX = 20
_FILES_MAX = 16
_SIGNS = {
    DELETE: "−",
    INSERT: "+",
    "update_preimage": "−",
    "update_postimage": "+",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSample:
    """Rows for a page.

    Attributes:
        rows: each row's sign, `+` if added or `−` if deleted, and its values.
        is_cut: whether there are more rows.
        problem: why there are none.
    """

    columns: Sequence[str] = ()
    rows: Sequence[tuple[str, Sequence[object]]] = ()
    is_cut: bool = False
    problem: str = ""


_NEEDS_SPARK = (
    "these rows can't be read without Spark: their columns are nested, or their files are many or "
    "large"
)


def sample(engine: Engine, handle: Handle, snapshot: Snapshot) -> RowSample:
    """Return the first 20 rows of a version, from its first 16 files, or the `problem` of reading
    them.
    """
    try:
        adds = list(itertools.islice(snapshot.files.adds(), _FILES_MAX))
        files = _files_for_sample(adds)
        result = engine.work(handle, snapshot).plain_rows(files_table(files), None, ROWS_MAX + 1)
    except (TxlakeError, OSError) as error:
        return RowSample(problem=str(error).partition("\n")[0])
    if result is None:
        return RowSample(problem=_NEEDS_SPARK)
    rows = [("", list(row.values())) for row in result.to_pylist()]
    return RowSample(
        columns=snapshot.schema.names,
        rows=rows[:ROWS_MAX],
        is_cut=len(rows) > ROWS_MAX or len(files) < len(snapshot.files),
    )


def _files_for_sample(adds: Sequence[Add]) -> list[Add]:
    """Return as many of the files as the shown rows need, by the files' row counts.

    A file whose rows aren't counted is taken, and counts as empty.
    """
    files: list[Add] = []
    rows = 0
    for add in adds:
        files.append(add)
        stored = FileStatistics.from_json(add.stats).num_records
        deleted = 0 if add.deletion_vector is None else add.deletion_vector.cardinality
        rows += 0 if stored is None else stored - deleted
        if rows > ROWS_MAX:
            break
    return files


def changed_rows(engine: Engine, handle: Handle, commit: Commit) -> RowSample:
    """Return the first 20 rows that a version deleted and added, deleted ones first, or the
    `problem` of reading them.

    Only the first 16 changed files are read, which `is_cut` doesn't tell.
    """
    log = handle.log
    try:
        after = log.snapshot(version=commit.version)
        vectors = VectorCache(log.store, log.external_vectors)
        changes = feed_files(log, commit, commit.timestamp_ms, vectors)
        rows = list(itertools.islice(_rows(engine, handle, after, changes), ROWS_MAX + 1))
    except _Unreadable:
        return RowSample(problem=_NEEDS_SPARK)
    except (TxlakeError, OSError) as error:
        return RowSample(problem=str(error).partition("\n")[0])
    return RowSample(columns=after.schema.names, rows=rows[:ROWS_MAX], is_cut=len(rows) > ROWS_MAX)


class _Unreadable(Exception):
    """The rows can't be read without Spark."""


def _rows(
    engine: Engine, handle: Handle, after: Snapshot, changes: Sequence[FeedFile]
) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield the signs and values of the changed rows: of the first 16 files, those with deleted
    rows first, and of each file the first 21 rows.

    Raises _Unreadable if only Spark can read them.
    """
    data, change_data = engine.work(handle, after), engine.work(handle, as_recorded(after))
    names = after.schema.names
    for change in sorted(changes, key=lambda part: part.change_type != DELETE)[:_FILES_MAX]:
        if change.change_type is None:
            for row in _read(change_data, with_feed_columns(change)):
                yield _SIGNS.get(str(row[CHANGE_TYPE]), ""), [row[name] for name in names]
        else:
            for row in _read(data, _only_changed_rows(data, change)):
                yield _SIGNS[change.change_type], [row[name] for name in names]


def _read(work: TableData, add: Add) -> Sequence[dict[str, object]]:
    """Return a file's first 21 rows by their columns' names.

    Raises _Unreadable if only Spark can read them.
    """
    result: pa.Table | None = work.plain_rows(files_table([add]), None, ROWS_MAX + 1)
    if result is None:
        raise _Unreadable
    rows: Sequence[dict[str, object]] = result.to_pylist()
    return rows


def _only_changed_rows(work: TableData, change: FeedFile) -> Add:
    """Return the file with a deletion vector that hides all rows but the changed ones.

    The file as it is, if all its rows changed. Reads the file's footer if its statistics don't
    count the rows.
    """
    if change.only is None:
        return change.file
    count = FileStatistics.from_json(change.file.stats).num_records
    if count is None:
        count = work.footer(change.file).num_rows
    hidden = inline(other_positions(change.only, count))
    return msgspec.structs.replace(change.file, deletion_vector=hidden)
