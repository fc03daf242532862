"""A proposal after the commits that came first: its files, its reads, and what isn't there."""

from __future__ import annotations

import json

import msgspec
import pytest
from pyroaring import BitMap64

from tests.commit.committing import append, begin
from tests.commit.log_of import VECTORS, LogOf, add
from txlake.commit.part_states import PartSummaries
from txlake.commit.rebase import Proposal, check_read_unchanged, check_reads
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.footprint import Read, ReadKind
from txlake.conflict.levels import Level
from txlake.datafiles.vectors import load_vector, write_vectors
from txlake.errors import (
    ConcurrentAppendException,
    InvalidRequest,
    SerializableIsolationViolation,
)
from txlake.protocol.actions import Add

ON = {"delta.enableDeletionVectors": "true"}
ROWS = json.dumps({"numRecords": 6})


def table_of_rows() -> LogOf:
    """A table with deletion vectors, and a file `a` of six rows."""
    return LogOf().create(add("a", stats=ROWS), configuration=ON, protocol=VECTORS)


def deleting(table: LogOf, *positions: int, log: TableLog | None = None) -> TableTransaction:
    """A DELETE of these rows of the file, with a log of its own or this one."""
    transaction = begin(table) if log is None else TableTransaction(log, log.latest())
    (file,) = transaction.base.files.adds()
    (vector,) = write_vectors(table.store, table.clock, [BitMap64(positions)])
    marked = add("a", stats=json.dumps({"numRecords": 6, "tightBounds": False}), vector=vector)
    transaction.read(None, None, deletes_all=True)
    transaction.stage([file.tombstone(timestamp_ms=1), marked], operation="DELETE")
    return transaction


def deleted(table: LogOf) -> list[int]:
    (file,) = table.open().latest().files.adds()
    assert file.deletion_vector is not None
    return list(load_vector(table.store, file.deletion_vector))


def test_deletions_of_two_in_one_file_are_written_as_one_vector() -> None:
    table = table_of_rows()
    first, second = deleting(table, 1), deleting(table, 4)
    first.commit()
    assert second.commit().rebased_over == (1,)
    assert deleted(table) == [1, 4]


def test_a_vector_that_met_no_other_is_not_written_again() -> None:
    table = table_of_rows()
    transaction = deleting(table, 1)
    append(table, "b")
    before = [path for path in table.paths if path.endswith(".bin")]
    transaction.commit()
    assert [path for path in table.paths if path.endswith(".bin")] == before


def test_rows_shown_in_two_versions_have_to_be_the_same() -> None:
    table = LogOf().create(add("a"))
    older = table.open().latest()
    compacting_away = begin(table)
    (file,) = older.files.adds()
    removed = file.tombstone(timestamp_ms=1, data_change=False)
    packed = msgspec.structs.replace(add("b"), data_change=False)
    compacting_away.stage([removed, packed], operation="OPTIMIZE")
    compacting_away.commit()
    same = table.open().latest()
    check_read_unchanged(table.open(), older, same, Read())
    append(table, "c")
    with pytest.raises(ConcurrentAppendException):
        check_read_unchanged(table.open(), same, table.open().latest(), Read(kind=ReadKind.PLAIN))
    check_read_unchanged(table.open(), older, same, Read())


def compacting(table: LogOf, output: str) -> TableTransaction:
    """A compaction of the file into this one."""
    transaction = begin(table)
    (file,) = transaction.base.files.adds()
    moved = Add(
        path=output,
        partition_values={},
        size=1,
        modification_time=1,
        data_change=False,
        stats=ROWS,
        tags={"txlake.sources": json.dumps([["a", None, 0, 6]])},
    )
    removed = file.tombstone(timestamp_ms=1, data_change=False)
    transaction.stage([removed, moved], operation="OPTIMIZE")
    return transaction


def test_what_others_did_already_makes_no_version() -> None:
    table = table_of_rows()
    first, second = compacting(table, "b"), compacting(table, "c")
    first.commit()
    table.store.requests.clear()
    committed = second.commit()
    assert (committed.version, committed.attempts) == (1, 0)
    assert {kind for kind, _ in table.store.requests} <= {"get", "head", "list"}
    assert [file.path for file in table.open().latest().files.adds()] == ["b"]


def test_a_table_that_is_gone_is_not_begun_anew() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([add("a")], operation="WRITE")
    table.remove_file(*table.paths)
    with pytest.raises((InvalidRequest, FileNotFoundError)):
        transaction.commit()
    assert table.paths == []


# --- what was read of a table that is no part of the commit ---------------------------------------


def reading(table: LogOf, kind: ReadKind, level: Level | None = None) -> Proposal:
    """A transaction that read the whole table, and changes something elsewhere."""
    transaction = begin(table, level)
    if kind is ReadKind.PLAIN:
        transaction.plain_read()
    else:
        transaction.read(None, None)
    elsewhere = begin(LogOf().create())
    elsewhere.stage([add("a")], operation="WRITE")
    return transaction.proposal(txn_id="reader", parts=PartSummaries([elsewhere.part_summary]))


def test_what_was_read_has_to_hold_as_the_table_is_now() -> None:
    table = LogOf().create(add("a"))
    for_write = reading(table, ReadKind.FOR_WRITE, Level.SERIALIZABLE)
    plain = reading(table, ReadKind.PLAIN, Level.SERIALIZABLE)
    for proposal in (for_write, plain):
        check_reads(table.open(), proposal)
    append(table, "b")
    with pytest.raises(ConcurrentAppendException):
        check_reads(table.open(), for_write)
    with pytest.raises(SerializableIsolationViolation):
        check_reads(table.open(), plain)


def test_reads_that_the_level_does_not_ask_about_cost_no_look_at_the_table() -> None:
    table = LogOf().create(add("a"))
    plain = reading(table, ReadKind.PLAIN, Level.SNAPSHOT)
    append(table, "b")
    table.store.requests.clear()
    check_reads(table.open(), plain)
    assert table.store.requests == []


def test_a_table_that_was_not_there_was_not_read() -> None:
    table = LogOf()
    proposal = reading(table, ReadKind.FOR_WRITE, Level.SERIALIZABLE)
    table.create(add("a"))
    check_reads(table.open(), proposal)
