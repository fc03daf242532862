"""Row tracking is turned on for a table with files, which get row ids, in batches if many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import txlake
from tests.lake.rows import query
from tests.lake.test_drop_feature import handle, operations, table
from txlake.commit import row_tracking
from txlake.errors import ConcurrentDeleteReadException, InvalidRequest, LockTimeout
from txlake.log.snapshot import Snapshot

TRACK = "ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
FILES = 5


@pytest.fixture
def t(row_lake: txlake.Lake) -> txlake.Lake:
    """A table of five files with two rows each; two files are a batch."""
    engine = row_lake._session.engine
    engine.settings = replace(engine.settings, relisted_files_max=2)
    row_lake.sql("CREATE TABLE t (id INT)")
    for number in range(FILES):
        row_lake.sql(f"INSERT INTO t VALUES ({2 * number}), ({2 * number + 1})")
    return row_lake


def ids(now: Snapshot) -> list[int]:
    """The first row id of each file, which all have one, in order."""
    found = [add.base_row_id for add in now.files.adds()]
    assert None not in found
    assert len(set(found)) == len(found)
    return sorted(one for one in found if one is not None)


def test_many_files_get_ids_in_batches(t: txlake.Lake) -> None:
    before = table(t).version
    t.sql(TRACK)
    now = table(t)
    assert operations(t)[before + 1 :] == [
        "SET TBLPROPERTIES",
        *["ROW TRACKING BACKFILL"] * 3,
        "SET TBLPROPERTIES",
    ]
    assert ids(now) == [0, 2, 4, 6, 8]
    assert now.row_id_high_water_mark == 2 * FILES - 1
    assert row_tracking.is_enabled(now.metadata.configuration)
    batches = [handle(t).log.commit(before + number) for number in (2, 3, 4)]
    for commit in batches:
        assert commit is not None
        adds = [one for one in commit.actions if type(one).__name__ == "Add"]
        assert 1 <= len(adds) <= 2
        assert not any(one.data_change for one in adds)  # type: ignore[union-attr]
    t.sql("INSERT INTO t VALUES (99)")
    assert ids(table(t))[-1] == 2 * FILES
    assert len(query(t, "SELECT * FROM t")) == 2 * FILES + 1


def test_few_files_get_ids_in_the_commit_that_turns_it_on(t: txlake.Lake) -> None:
    t.sql("DELETE FROM t WHERE id >= 4")
    before = table(t).version
    t.sql(TRACK)
    assert operations(t)[before + 1 :] == ["SET TBLPROPERTIES"]
    assert len(ids(table(t))) == len(list(table(t).files.adds()))


def test_in_a_transaction_it_is_one_commit(t: txlake.Lake) -> None:
    before = table(t).version
    with t.transaction() as tx:
        tx.sql(TRACK)
    assert table(t).version == before + 1
    assert ids(table(t)) == [0, 2, 4, 6, 8]


def test_it_goes_on_where_it_was_cut_short(t: txlake.Lake) -> None:
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.feature.rowTracking' = 'supported')")
    t.sql("INSERT INTO t VALUES (50), (51)")  # has ids from the start
    t.sql(TRACK)
    assert ids(table(t)) == [0, 2, 4, 6, 8, 10]


def test_what_contradicts_it_is_refused_before_anything_is_written(t: txlake.Lake) -> None:
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.rowTrackingSuspended' = 'true')")
    before = table(t).version
    with pytest.raises(InvalidRequest, match="rowTrackingSuspended"):
        t.sql(TRACK)
    assert table(t).version == before


def test_a_suspension_is_lifted_with_the_first_commit(t: txlake.Lake) -> None:
    """As an interrupted DROP FEATURE rowTracking leaves one: batches give ids only without it."""
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.rowTrackingSuspended' = 'true')")
    t.sql(
        "ALTER TABLE t SET TBLPROPERTIES ('delta.rowTrackingSuspended' = 'FALSE', "
        "'delta.enableRowTracking' = 'true')"
    )
    assert ids(table(t)) == [0, 2, 4, 6, 8]
    assert operations(t)[-2] == "ROW TRACKING BACKFILL"
    assert row_tracking.is_enabled(table(t).metadata.configuration)


def test_a_suspension_between_batches_ends_it(
    t: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that doesn't ask for the lake's locks may do that."""
    from txlake.commands import backfill

    batch = backfill._next_batch
    suspended = {row_tracking.SUSPENDED: "true"}

    def meanwhile(now: Snapshot, at_once: int) -> object:
        metadata = msgspec.structs.replace(
            now.metadata, configuration={**now.metadata.configuration, **suspended}
        )
        return batch(now.apply([metadata]), at_once)

    monkeypatch.setattr(backfill, "_next_batch", meanwhile)
    with pytest.raises(InvalidRequest, match="suspended or dropped while files got row ids"):
        t.sql(TRACK)
    assert not row_tracking.is_enabled(table(t).metadata.configuration)


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ("'delta.nonsense' = 'x'", "delta.nonsense"),
        ("'delta.checkpointPolicy' = 'v9'", "delta.checkpointPolicy"),
        ("'delta.rowTracking.materializedRowIdColumnName' = 'id'", "materializedRowIdColumnName"),
    ],
)
def test_what_cannot_be_set_beside_it_is_refused_first(
    t: txlake.Lake, beside: str, message: str
) -> None:
    before = table(t).version
    with pytest.raises(InvalidRequest, match=message):
        t.sql(TRACK.replace(")", f", {beside})"))
    assert table(t).version == before


def test_a_file_whose_rows_nobody_counted_is_named(t: txlake.Lake) -> None:
    """Another writer left it without statistics, and no batch comes upon it at first."""
    with t.transaction() as tx:
        one = list(table(t).files.adds())[-1]
        part = tx._own.open(handle(t))
        part.stage([msgspec.structs.replace(one, stats=None, data_change=False)], operation="WRITE")
    before = table(t).version
    with pytest.raises(InvalidRequest, match=r"numRecords.*ANALYZE TABLE"):
        t.sql(TRACK)
    assert table(t).version == before
    assert not row_tracking.is_enabled(table(t).metadata.configuration)


def test_a_batch_that_lost_is_made_anew(t: txlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from txlake.commands import backfill

    batch = backfill._next_batch
    lost: list[int] = []

    def losing(now: Snapshot, at_once: int) -> object:
        if len(lost) < 2:
            lost.append(1)
            raise ConcurrentDeleteReadException("another writer was faster")
        return batch(now, at_once)

    monkeypatch.setattr(backfill, "_next_batch", losing)
    t.sql(TRACK)
    assert ids(table(t)) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("writer", ["DELETE FROM {t} WHERE id < 3", "INSERT INTO {t} VALUES (50)"])
def test_a_writer_between_batches_loses_nothing(
    row_lake: txlake.Lake, writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes rows of files that a batch is about to list again, or brings a file."""
    from txlake.commands import backfill

    engine = row_lake._session.engine
    engine.settings = replace(engine.settings, relisted_files_max=2)
    t = f"delta.`{tmp_path / 't'}`"
    row_lake.sql(f"CREATE TABLE {t} (id INT)")
    for number in range(FILES):
        row_lake.sql(f"INSERT INTO {t} VALUES ({2 * number}), ({2 * number + 1})")
    batch = backfill._next_batch
    batches: list[int] = []

    def overtaken(now: Snapshot, at_once: int) -> object:
        made = batch(now, at_once)
        batches.append(now.version)
        if len(batches) == 1:
            with row_lake.session() as other:
                other.sql(writer.format(t=t))
        return made

    monkeypatch.setattr(backfill, "_next_batch", overtaken)
    row_lake.sql(TRACK.replace("TABLE t", f"TABLE {t}"))
    now = txlake.Log(str(tmp_path / "t")).snapshot()
    given = [add["base_row_id"] for add in now.files().to_pylist()]
    assert None not in given
    assert len(set(given)) == len(given)
    kept = set(range(2 * FILES)) - {0, 1, 2} if "DELETE" in writer else {*range(2 * FILES), 50}
    assert {row[0] for row in query(row_lake, f"SELECT * FROM {t}")} == kept
    assert len(batches) > FILES // 2


def test_writers_of_a_lake_wait_for_it(t: txlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every ALTER TABLE: it holds the table's lock from its first commit to its last."""
    from txlake.commands import backfill

    batch = backfill._next_batch
    waited: list[str] = []

    def beside(now: Snapshot, at_once: int) -> object:
        with t.session() as other:
            other.sql("SET LOCK_TIMEOUT 0")
            with pytest.raises(LockTimeout) as caught:
                other.sql("DELETE FROM t WHERE id = 1")
            waited.append(str(caught.value))
        return batch(now, at_once)

    monkeypatch.setattr(backfill, "_next_batch", beside)
    t.sql(TRACK)
    assert waited
    assert ids(table(t)) == [0, 2, 4, 6, 8]
