"""Which two commits of `txlake.Log` may follow each other on a table with an identity column.

The pairs are those of Delta's IdentityColumnConflictSuite, and the answers are its own: two engines
that give values beyond one high-water mark give the same values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import pytest

from tests.lake.log_tables import Line, add, new_log
from txlake.errors import ConcurrentAppendException, Conflict, MetadataChangedException
from txlake.lake.log import Log, LogTransaction

Act = Callable[[LogTransaction, int], None]
PROTOCOL: Line = {
    "protocol": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["identityColumns", "rowTracking", "domainMetadata"],
    }
}
_files = count()
ON = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row_commit_version",
}


def definition(
    mark: int | None,
    properties: Mapping[str, str] | None = None,
    *,
    more: Sequence[str] = (),
    other: int | None = None,
) -> Line:
    """The metadata of a table of the identity columns id and other, and of a plain value."""
    fields = []
    for name, value in (("id", mark), ("other", other)):
        about = {"start": 1, "step": 1, "allowExplicitInsert": True, "highWaterMark": value}
        named = {f"delta.identity.{k}": v for k, v in about.items() if v is not None}
        fields.append({"name": name, "type": "long", "nullable": True, "metadata": named})
    for name in ("value", *more):
        fields.append({"name": name, "type": "integer", "nullable": True, "metadata": {}})
    return {
        "metaData": {
            "id": "t",
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "configuration": {"delta.enableRowTracking": "false", **(properties or {})},
        }
    }


def rows() -> Line:
    line = add(f"file-{next(_files)}")
    return {"add": {**line["add"], "stats": '{"numRecords": 1}'}}


def generates(transaction: LogTransaction, mark: int) -> None:
    transaction.commit([definition(mark), rows()], operation="WRITE")


def syncs(transaction: LogTransaction, mark: int) -> None:
    properties = transaction.snapshot.properties
    transaction.commit([definition(mark, properties)], operation="SYNC IDENTITY")


def inserts_values(transaction: LogTransaction, mark: int) -> None:
    transaction.commit([rows()], operation="WRITE")


def tracks_rows(transaction: LogTransaction, mark: int) -> None:
    transaction.commit([definition(None, ON)], operation="SET TBLPROPERTIES")


def adds_a_column(transaction: LogTransaction, mark: int) -> None:
    transaction.commit([definition(None, more=["value2"])], operation="ADD COLUMNS")


ACTS: dict[str, Act] = {
    "generates": generates,
    "syncs": syncs,
    "inserts values": inserts_values,
    "tracks rows": tracks_rows,
    "adds a column": adds_a_column,
}
SETS_METADATA = ACTS.keys() - {"inserts values"}


def table(**properties: str) -> Log:
    """An empty table."""
    log = new_log()
    made = [PROTOCOL, definition(None, properties)]
    log.start_transaction().commit(made, operation="CREATE TABLE")
    return log


def outcome(log: Log, ours: Act, theirs: Act, marks: tuple[int, int]) -> type[Conflict] | None:
    """What our commit gets after theirs."""
    own, other = log.start_transaction(), log.start_transaction()
    theirs(other, marks[1])
    try:
        ours(own, marks[0])
    except Conflict as error:
        return type(error)
    return None


def expected(ours: str, theirs: str) -> type[Conflict] | None:
    """Delta's answer: metadata follows no metadata; rows follow moved marks and row tracking."""
    if theirs == "inserts values":
        return None
    if ours in SETS_METADATA or theirs == "adds a column":
        return MetadataChangedException
    return None


@pytest.mark.parametrize("marks", [(1, 1), (1, 2), (2, 1)], ids=str)
@pytest.mark.parametrize("theirs", ACTS)
@pytest.mark.parametrize("ours", ACTS)
def test_as_delta_answers(ours: str, theirs: str, marks: tuple[int, int]) -> None:
    assert outcome(table(), ACTS[ours], ACTS[theirs], marks) is expected(ours, theirs)


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(
    ("level", "error"), [("Serializable", ConcurrentAppendException), ("WriteSerializable", None)]
)
def test_a_sync_beside_rows_that_it_did_not_see(
    level: str, error: type[Conflict] | None, reads: bool
) -> None:
    def ours(transaction: LogTransaction, mark: int) -> None:
        if reads:
            transaction.read()
        syncs(transaction, mark)

    log = table(**{"delta.isolationLevel": level})
    assert outcome(log, ours, inserts_values, (5, 9)) is error


def test_values_that_were_generated_before_an_other_engine_moved_the_mark() -> None:
    """The mark is looked up when a statement is planned, and was moved before it runs."""
    log = table()
    planned = log.start_transaction()
    generates(log.start_transaction(), 1)
    inserts_values(log.start_transaction(), 2)
    with pytest.raises(MetadataChangedException, match="high-water marks of identity columns"):
        generates(planned, 1000)
    assert log.snapshot().version == 2


def test_the_mark_of_another_column_moves() -> None:
    def moves_other(transaction: LogTransaction, mark: int) -> None:
        transaction.commit([definition(None, other=mark)], operation="SYNC IDENTITY")

    assert outcome(table(), syncs, moves_other, (1, 1)) is MetadataChangedException


def test_properties_of_a_table_without_identity_columns_follow_each_other() -> None:
    """Stated marks bind where there are any."""
    log = new_log()
    schema = json.dumps({"type": "struct", "fields": []})

    def definition_with(**properties: str) -> Line:
        return {"metaData": {"id": "t", "schemaString": schema, "configuration": properties}}

    log.start_transaction().commit([definition_with()], operation="CREATE TABLE")
    own, other = log.start_transaction(), log.start_transaction()
    other.commit([definition_with(theirs="1")], operation="SET TBLPROPERTIES")
    own.commit([definition_with(ours="2")], operation="SET TBLPROPERTIES")
    assert log.snapshot().properties == {"theirs": "1", "ours": "2"}
