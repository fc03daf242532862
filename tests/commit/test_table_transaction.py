"""A transaction's part on one table: what it sees, reads, stages and takes back."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from tests.commit.committing import append, begin, info_at
from tests.commit.log_of import LogOf, add, metadata, vector
from txlake.commit.part_states import PartSummaries
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.concurrent_commit import READS_ELSEWHERE
from txlake.conflict.footprint import Read, ReadKind
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    Conflict,
    InvalidRequest,
    MetadataChangedException,
    SerializableIsolationViolation,
)
from txlake.log.predicates import bind, parse_predicate
from txlake.protocol.actions import Action, DomainMetadata, Metadata, Remove, Txn


def paths(transaction: TableTransaction) -> list[str]:
    return sorted(file.path for file in transaction.view.files.adds())


def gone(path: str) -> Remove:
    return add(path).tombstone(timestamp_ms=1)


def stage(transaction: TableTransaction, *actions: Action, operation: str = "WRITE") -> None:
    transaction.stage(actions, operation=operation)


def test_a_transaction_sees_its_own_changes_and_nobody_elses() -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    append(table, "theirs")
    stage(transaction, add("b"))
    stage(transaction, gone("a"), operation="DELETE")
    assert paths(transaction) == ["b"]
    assert transaction.base.files.by_path("a") is not None
    assert transaction.has_changes


def test_savepoints_take_changes_back_and_keep_reads() -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    stage(transaction, add("b"))
    mark = transaction.savepoint()
    transaction.read()
    stage(transaction, add("c"), gone("a"))
    transaction.rollback_to(mark)
    assert paths(transaction) == ["a", "b"]
    assert transaction.commit().version == 1
    assert info_at(table, 1)["isBlindAppend"] is False
    assert info_at(table, 1)["operation"] == "WRITE"


def test_what_an_undone_statement_read_counts_as_a_select() -> None:
    transaction = begin(LogOf().create(add("a")))
    transaction.read(text="before", deletes_all=True)
    token = transaction.savepoint()
    transaction.read(text="after", deletes_all=True)
    transaction.read(text="guarded", kind=ReadKind.GUARD)
    transaction.rollback_to(token)
    transaction.read(text="later", deletes_all=True)
    assert [(one.text, one.kind, one.deletes_all) for one in transaction.reads] == [
        ("before", ReadKind.FOR_WRITE, True),
        ("after", ReadKind.PLAIN, False),
        ("guarded", ReadKind.PLAIN, False),
        ("later", ReadKind.FOR_WRITE, True),
    ]


def test_what_is_taken_back_alone_is_still_read_for_a_write() -> None:
    transaction = begin(LogOf().create(add("a")))
    transaction.read(text="a", deletes_all=True)
    stage(transaction, gone("a"))
    transaction.app_version("app")
    transaction.discard_staged()
    assert not transaction.has_changes
    footprint = transaction.proposal(txn_id="1").footprint
    [read] = footprint.reads
    assert (read.kind, read.deletes_all) == (ReadKind.FOR_WRITE, False)
    assert footprint.read_app_ids == {"app"}


@pytest.mark.parametrize(
    ("level", "reading", "asking"),
    [
        (Level.SNAPSHOT, None, None),
        (Level.WRITE_SERIALIZABLE, None, None),
        (Level.SERIALIZABLE, SerializableIsolationViolation, ConcurrentTransactionException),
    ],
)
def test_undone_reads_count_under_serializable(
    level: Level, reading: type[Conflict] | None, asking: type[Conflict] | None
) -> None:
    setting = Txn(app_id="app", version=1)
    for theirs, expected in ((add("c"), reading), (gone("a"), reading), (setting, asking)):
        table = LogOf().create(add("a"))
        transaction = begin(table, level)
        mark = transaction.savepoint()
        transaction.read()
        transaction.app_version("app")
        stage(transaction, add("x"), gone("a"), operation="UPDATE")
        transaction.rollback_to(mark)
        stage(transaction, add("b"))
        assert conflict_of(transaction, table, theirs) is expected


def test_application_ids_from_before_a_savepoint_count_at_every_level() -> None:
    table = LogOf().create()
    transaction = begin(table, Level.SNAPSHOT)
    transaction.app_version("app")
    mark = transaction.savepoint()
    transaction.app_version("other")
    transaction.rollback_to(mark)
    stage(transaction, add("b"))
    setting = Txn(app_id="app", version=1)
    assert conflict_of(transaction, table, setting) is ConcurrentTransactionException


def test_back_to_the_beginning() -> None:
    transaction = begin(LogOf().create(add("a")))
    stage(transaction, add("b"))
    transaction.rollback_to(None)
    assert not transaction.has_changes
    assert transaction.commit().attempts == 0


def test_a_refused_statement_stages_nothing() -> None:
    transaction = begin(LogOf().create(add("a")))
    with pytest.raises(InvalidRequest):
        stage(transaction, add("b"), gone("missing"))
    assert paths(transaction) == ["a"]
    assert not transaction.has_changes


FOR_ICEBERG = metadata({"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"})
WITH_PARTITIONS = metadata({"delta.enableMaterializePartitionColumnsFeature": "true"})


@pytest.mark.parametrize("settings", [FOR_ICEBERG, WITH_PARTITIONS])
def test_no_more_is_asked_of_files_than_they_had_when_they_were_written(settings: Metadata) -> None:
    table = LogOf().create(add("a"))
    counted = '{"numRecords": 9}'
    late = begin(table)
    stage(late, add("b", stats=counted))
    with pytest.raises(InvalidRequest, match="can't be turned on after files were written in the"):
        stage(late, settings, operation="SET TBLPROPERTIES")
    assert late.view.metadata == late.base.metadata
    # Not where they come after it, go with it, or were there already.
    early = begin(table)
    stage(early, settings, operation="SET TBLPROPERTIES")
    stage(early, add("b", stats=counted))
    stage(early, replace(settings, description="x"), operation="SET TBLPROPERTIES")
    rewriting = begin(table)
    stage(rewriting, add("b", stats=counted))
    gone_again = gone("b")
    stage(rewriting, settings, gone_again, add("c", stats=counted), operation="REORG")
    relisted = begin(table)
    stage(relisted, replace(add("a"), stats=counted))
    stage(relisted, settings, operation="SET TBLPROPERTIES")


def test_several_statements_are_one_commit() -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    transaction.stage([add("b")], operation="WRITE", parameters={"x": 1}, metrics={"numFiles": 1})
    transaction.stage([add("c")], operation="WRITE", parameters={"x": 2}, metrics={"numFiles": 1})
    transaction.commit()
    info = info_at(table, 1)
    assert info["operation"] == "WRITE"
    assert info["operationMetrics"] == {"numFiles": "2"}
    transaction = begin(table)
    transaction.stage([add("d")], operation="WRITE", metrics={"numFiles": 1})
    transaction.stage([gone("d"), add("e")], operation="UPDATE", metrics={"numFiles": 1})
    transaction.commit()
    info = info_at(table, 2)
    assert info["operation"] == "TRANSACTION"
    assert info["operationParameters"] == {
        "statements": json.dumps(["WRITE", "UPDATE"]).replace(" ", "")
    }
    assert info["operationMetrics"] == {"numFiles": "2"}
    assert paths(begin(table)) == ["a", "b", "c", "e"]


@pytest.mark.parametrize("kind", list(ReadKind))
def test_who_read_anything_is_not_blind(kind: ReadKind) -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    transaction.read(kind=kind)
    stage(transaction, add("b"))
    transaction.commit()
    assert info_at(table, 1)["isBlindAppend"] is False


def test_who_read_another_table_is_blind_to_this_one_and_says_what_it_read() -> None:
    table = LogOf().create()
    staging = LogOf()
    creator = begin(staging)
    stage(creator, replace(metadata(), id="staging"), add("s"))
    creator.commit()
    read, unread = begin(staging), begin(LogOf().create())
    read.read()
    transaction = begin(table)
    transaction.read_elsewhere(PartSummaries([read.part_summary, unread.part_summary]))
    stage(transaction, add("b"))
    transaction.commit()
    info = info_at(table, 1)
    assert info["isBlindAppend"] is True
    assert info["tags"] == {READS_ELSEWHERE: '["staging"]'}


def test_what_is_no_blind_append_doesnt_say_what_it_read_elsewhere() -> None:
    table, other = LogOf().create(add("a")), begin(LogOf().create(add("s")))
    other.read()
    transaction = begin(table)
    transaction.read()
    transaction.read_elsewhere(PartSummaries([other.part_summary]))
    stage(transaction, add("b"))
    transaction.commit()
    assert "tags" not in info_at(table, 1)


def test_an_append_with_an_application_id_is_blind() -> None:
    table = LogOf().create()
    transaction = begin(table)
    assert transaction.app_version("app") is None
    stage(transaction, add("b"), Txn(app_id="app", version=1))
    assert transaction.app_version("app") == 1
    transaction.commit()
    assert info_at(table, 1)["isBlindAppend"] is True


def conflict_of(
    ours: TableTransaction, table: LogOf, *theirs: Action, operation: str = "WRITE"
) -> type[Conflict] | None:
    """What becomes of ours when these come first."""
    other = begin(table)
    other.read_files(["nothing"])
    stage(other, *theirs, operation=operation)
    other.commit()
    try:
        ours.commit()
    except Conflict as error:
        return type(error)
    return None


def test_a_delete_that_declared_no_read_counts_as_having_read_all() -> None:
    for theirs, expected in (
        (add("c"), ConcurrentAppendException),
        (gone("b"), ConcurrentDeleteReadException),
        (gone("a"), ConcurrentDeleteDeleteException),
    ):
        table = LogOf().create(add("a"), add("b"))
        transaction = begin(table)
        stage(transaction, gone("a"), operation="DELETE")
        assert conflict_of(transaction, table, theirs) is expected


def test_a_delete_that_says_what_it_read() -> None:
    for theirs, expected in ((add("c"), None), (gone("b"), None)):
        table = LogOf().create(add("a"), add("b"))
        transaction = begin(table)
        transaction.read_files(["a"])
        stage(transaction, gone("a"), operation="DELETE")
        assert conflict_of(transaction, table, theirs) is expected
    table = LogOf().create(add("a"))
    transaction = begin(table)
    transaction.read_files(["x"])
    stage(transaction, gone("a"), operation="DELETE")
    assert conflict_of(transaction, table, gone("a")) is ConcurrentDeleteDeleteException


def test_a_plain_read_says_nothing_about_a_delete() -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    transaction.plain_read()
    stage(transaction, gone("a"), operation="DELETE")
    assert conflict_of(transaction, table, add("c")) is ConcurrentAppendException


def test_plain_reads_count_under_serializable() -> None:
    for level, expected in (
        (Level.SERIALIZABLE, SerializableIsolationViolation),
        (Level.WRITE_SERIALIZABLE, None),
    ):
        table = LogOf().create(add("a"))
        transaction = begin(table, level)
        transaction.plain_read()
        stage(transaction, add("b"))
        assert conflict_of(transaction, table, add("c")) is expected


def test_rows_that_a_dataframe_shows_count_as_read_for_the_write() -> None:
    for read, expected in ((Read(), ConcurrentAppendException), (None, None)):
        table = LogOf().create(add("a"))
        transaction = begin(table, Level.SERIALIZABLE)
        if read is not None:
            transaction.add_read(read)
        stage(transaction, add("b"))
        assert conflict_of(transaction, table, add("c")) is expected


def test_rows_of_a_select_that_are_written_count_as_read_for_the_write() -> None:
    for is_written, expected in ((True, ConcurrentDeleteReadException), (False, None)):
        table = LogOf().create(add("a"))
        transaction = begin(table)
        transaction.plain_read()
        if is_written:
            transaction.promote_plain_reads()
        stage(transaction, add("b"))
        assert conflict_of(transaction, table, gone("a")) is expected


def test_a_file_listed_again_was_read() -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    stage(transaction, add("a", size=11), operation="COMPUTE STATS")
    assert conflict_of(transaction, table, gone("a")) is ConcurrentDeleteReadException
    table = LogOf().create(add("a"))
    transaction = begin(table)
    stage(transaction, add("a", size=11), operation="COMPUTE STATS")
    transaction.commit()
    assert info_at(table, 1)["isBlindAppend"] is False


def test_application_ids_and_domains() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.app_version("app")
    stage(transaction, add("b"))
    setting = Txn(app_id="app", version=1)
    assert conflict_of(transaction, table, setting) is ConcurrentTransactionException

    table = LogOf()
    creator = begin(table)
    stage(creator, metadata({"delta.feature.domainMetadata": "supported"}))
    creator.commit()
    transaction = begin(table)
    transaction.read_domain("mine")
    stage(transaction, add("b"))
    domain = DomainMetadata(domain="mine", configuration="{}", removed=False)
    assert conflict_of(transaction, table, domain) is MetadataChangedException


def test_granularity_table() -> None:
    for granularity, conflicts in (("table", True), ("file", False)):
        table = LogOf().create(
            add("a"), add("b"), configuration={"txlake.conflictGranularity": granularity}
        )
        transaction = begin(table)
        transaction.read_files(["a"])
        stage(transaction, gone("a"), operation="DELETE")
        found = conflict_of(transaction, table, gone("b"), operation="DELETE")
        assert (found is not None) is conflicts


def test_the_coarsest_granularity_counts() -> None:
    for own, around, expected in (
        ("row", None, Granularity.ROW),
        ("row", Granularity.FILE, Granularity.FILE),
        ("table", Granularity.FILE, Granularity.TABLE),
    ):
        table = LogOf().create(configuration={"txlake.conflictGranularity": own})
        log = table.open()
        assert TableTransaction(log, log.latest(), None, around).granularity is expected


def test_reading_a_table_that_isnt_there_is_no_read() -> None:
    table = LogOf()
    transaction = begin(table)
    transaction.read()
    transaction.plain_read()
    assert transaction.base.version == -1
    assert not transaction.part_summary.footprint.read_anything
    stage(transaction, metadata(), add("a"), operation="CREATE TABLE AS SELECT")
    assert transaction.commit().version == 0
    assert paths(begin(table)) == ["a"]


def test_what_is_read_twice_is_noted_once() -> None:
    transaction = begin(LogOf().create(add("a")))
    for _ in range(2):
        transaction.read()
        transaction.plain_read()
    kinds = [read.kind for read in transaction.proposal(txn_id="1").footprint.reads]
    assert kinds == [ReadKind.FOR_WRITE, ReadKind.PLAIN]


def test_a_delete_that_says_what_it_read_is_not_said_to_have_read_more() -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    transaction.read(bind(parse_predicate("id = 1"), transaction.base.schema), "id = 1")
    stage(transaction, gone("a"), operation="DELETE")
    reads = transaction.proposal(txn_id="1").footprint.reads
    assert [read.text for read in reads] == ["id = 1"]


def test_who_committed_goes_back_no_more() -> None:
    transaction = begin(LogOf().create(add("a")))
    token = transaction.savepoint()
    stage(transaction, add("b"))
    transaction.commit()
    with pytest.raises(InvalidRequest, match="committed already"):
        transaction.rollback_to(token)


def test_a_feature_is_dropped_by_its_own_statement_alone() -> None:
    table = LogOf().create()
    transaction = begin(table)
    stage(transaction, metadata({"delta.feature.domainMetadata": "supported"}))
    transaction.commit()
    transaction = begin(table)
    before = transaction.base.protocol
    fewer = type(before)(
        min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "invariants")
    )
    with pytest.raises(InvalidRequest, match="without domainMetadata"):
        stage(transaction, fewer)
    stage(transaction, fewer, operation="DROP FEATURE")
    assert transaction.commit().snapshot.protocol == fewer


def test_deletion_vectors_of_two_statements_are_one() -> None:
    table = LogOf().create(add("a", stats='{"numRecords": 9}'))
    transaction = begin(table)
    stage(transaction, metadata({"delta.enableDeletionVectors": "true"}))
    one, two = (
        add("a", vector=vector(offset=number), stats='{"numRecords": 9}') for number in (1, 2)
    )
    stage(transaction, gone("a"), one, operation="DELETE")
    stage(transaction, one.tombstone(timestamp_ms=1), two, operation="DELETE")
    snapshot = transaction.commit().snapshot
    assert list(snapshot.files.adds()) == [two]
    assert list(snapshot.tombstones) == [("a", None)]
