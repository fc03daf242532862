"""When versions are published as Iceberg metadata, at what cost, and what failures leave."""

from __future__ import annotations

import logging

import msgspec
import pytest

from tests.commit.log_of import DAY, HOUR
from tests.iceberg.tables import PROPERTIES, IcebergTable, file, removed
from tests.session.tables import T, environment, specs, table
from txlake import packages
from txlake.commit.checkpointing import after_commit
from txlake.commit.iceberg_publication import publish_after
from txlake.commit.vacuum import plan_vacuum
from txlake.ddl.alter import alter
from txlake.errors import InvalidRequest, Unavailable
from txlake.iceberg.metadata_files import HINT_PATH, metadata_path, newest_number
from txlake.iceberg.table_metadata import METADATA_FILES_KEPT
from txlake.ports import PutOutcome
from txlake.protocol.actions import CommitInfo
from txlake.sql.statements import AddColumns, AddedColumn, DropColumns, RenameColumn, SetProperties


def of_metadata(made: IcebergTable) -> set[str]:
    return {path for path in made.files.paths if path.startswith("metadata/")}


def test_a_commit_writes_what_it_changes_and_nothing_more() -> None:
    made = IcebergTable()
    made.commit(*(file(f"f{n}", of=made.snapshot) for n in range(5)))
    made.publish()
    before = of_metadata(made)
    made.commit(file("g", of=made.snapshot))
    made.publish()
    new = of_metadata(made) - before
    assert len(new) == 3  # one manifest, the manifest list, the table's metadata
    assert next(e.data_file.file_path.rpartition("/")[2] for e in made.entries(2)) == "g"
    before = of_metadata(made)
    made.publish()
    assert of_metadata(made) == before
    hint = made.files.store.files[HINT_PATH][0]
    assert hint == str(newest_number(made.files.store)).encode()


def test_a_delete_rewrites_the_manifests_of_its_files_alone() -> None:
    made = IcebergTable()
    first = [file(f"f{n}", of=made.snapshot) for n in range(3)]
    made.commit(*first)
    made.publish()
    made.commit(file("g", of=made.snapshot))
    made.publish()
    before = of_metadata(made)
    made.commit(removed(first[0]))
    made.publish()
    assert len(of_metadata(made) - before) == 4  # what stays, what went, the list, the metadata
    assert made.live(3) == ["f1", "f2", "g"]
    gone = [e for e in made.entries(3, live=False) if e.status.name == "DELETED"]
    assert [e.data_file.file_path.rpartition("/")[2] for e in gone] == ["f0"]
    made.commit()
    made.publish()
    assert not [e for e in made.entries(4, live=False) if e.status.name == "DELETED"]
    kept = {e.data_file.file_path: e.snapshot_id for e in made.entries(4)}
    assert set(kept.values()) == {made.iceberg_snapshot(v).snapshot_id for v in (1, 2)}


def test_each_version_has_its_columns() -> None:
    made = IcebergTable("a INT, b STRING", partition_by=())
    made.publish()
    made.alter(RenameColumn(T, ("b",), "c"))
    made.alter(AddColumns(T, (AddedColumn(column=specs("d int")[0]),)))
    made.alter(DropColumns(T, (("a",),)))
    made.publish()
    names = [
        made.iceberg.schema_by_id(made.iceberg_snapshot(v).schema_id or 0).column_names  # type: ignore[union-attr]
        for v in range(4)
    ]
    assert names == [["a", "b"], ["a", "c"], ["a", "c", "d"], ["c", "d"]]
    assert made.iceberg.schema().find_field("c").field_id == 2
    assert made.iceberg.last_column_id == 3


def test_a_partition_column_keeps_its_field_and_has_its_present_name() -> None:
    made = IcebergTable(properties={"delta.enableIcebergCompatV2": "true"})
    made.publish()
    (spec,) = made.iceberg.partition_specs
    assert [(f.source_id, f.field_id, f.name) for f in spec.fields] == [(2, 1000, "p")]


def test_properties_of_uniform() -> None:
    made = IcebergTable(
        properties={"delta.universalFormat.config.iceberg.write.format.default": "parquet"}
    )
    made.publish()
    made.commit()
    made.publish()
    found = made.iceberg.properties
    assert found["delta-version"] == found["converted_delta_version"] == "1"
    assert found["delta-timestamp"] == str(made.snapshot.timestamp_ms)
    assert found["base-delta-version"] == "0"
    assert found["write.format.default"] == "parquet"


def test_another_process_goes_on_where_one_was_killed() -> None:
    made = IcebergTable()
    made.publish()
    made.commit(file("f", of=made.snapshot))  # and its process was killed here
    made.commit(file("g", of=made.snapshot))
    made.publish(made.files.open())
    assert made.live(1) == ["f"]
    assert made.live(2) == ["f", "g"]


def test_a_process_that_is_killed_while_it_publishes_leaves_nothing_that_is_read() -> None:
    made = IcebergTable()
    made.publish()
    made.commit(file("f", of=made.snapshot))
    store = made.files.store
    store.failing.add(metadata_path(2))
    with pytest.raises(Unavailable):
        made.publish()
    store.failing.clear()
    assert newest_number(store) == 1
    made.publish(made.files.open())
    assert made.live(1) == ["f"]


def test_of_two_publishers_the_loser_goes_on_from_the_winners_metadata() -> None:
    made = IcebergTable()
    made.publish()
    slow = made.files.open()
    made.publish(slow)  # it knows the first metadata file
    made.commit(file("f", of=made.snapshot))
    made.publish()
    made.commit(file("g", of=made.snapshot))
    made.publish(slow)  # puts v2, which exists, and reads it
    assert newest_number(made.files.store) == 3
    assert made.live(2) == ["f", "g"]


def test_the_hint_that_is_written_last_names_the_newest_file() -> None:
    made = IcebergTable()
    made.publish()
    store = made.files.store
    put = store.put

    def is_overtaken(path: str, data: bytes) -> None:
        if path == HINT_PATH:
            store.put = put  # type: ignore[method-assign]
            made.commit(file("g", of=made.snapshot))
            made.publish(made.files.open())
        put(path, data)

    made.commit(file("f", of=made.snapshot))
    store.put = is_overtaken  # type: ignore[method-assign]
    made.publish()
    assert store.files[HINT_PATH][0] == b"3"
    put(HINT_PATH, b"2")  # as a process leaves it that was killed before it looked again
    made.publish(made.files.open())
    assert store.files[HINT_PATH][0] == b"3"


def test_a_lost_reply_is_looked_up() -> None:
    made = IcebergTable()
    store = made.files.store
    put = store.put_if_absent

    def loses_replies(path: str, data: bytes) -> PutOutcome:
        put(path, data)
        return PutOutcome.UNKNOWN

    store.put_if_absent = loses_replies  # type: ignore[method-assign]
    made.publish()
    assert newest_number(store) == 1
    assert made.live(0) == []


def test_commits_that_were_cleaned_up_are_made_up_for_by_the_whole_version() -> None:
    made = IcebergTable()
    first = file("f", of=made.snapshot)
    made.commit(first)
    made.publish()
    made.commit(file("g", of=made.snapshot))
    made.commit(removed(first))
    newest = made.log.latest()
    made.files.remove_file("_delta_log/00000000000000000002.json")
    log = made.files.open()
    log.adopt(newest)
    made.publish(log)
    assert made.live(3) == ["g"]
    assert made.live(1) == ["f"]
    assert made.iceberg_snapshot(3).summary.operation.value == "overwrite"  # type: ignore[union-attr]
    assert "base-delta-version" not in made.iceberg.properties


def test_metadata_with_other_files_than_the_table_is_replaced() -> None:
    made = IcebergTable()
    add = file("f", of=made.snapshot)
    made.commit(add)
    made.publish()
    # A file of the table listed again as if it were new, as other writers may.
    made.commit(msgspec.structs.replace(add, stats='{"numRecords": 1, "nullCount": {}}'))
    made.publish()
    assert made.live(2) == ["f"]


def test_snapshots_are_expired_with_the_log() -> None:
    made = IcebergTable(properties={"delta.logRetentionDuration": "interval 1 days"})
    made.publish()
    made.commit(file("f", of=made.snapshot))
    made.files.clock.time_ms += 2 * DAY
    made.commit(file("g", of=made.snapshot))
    made.publish()
    # Version 1 was the current one a day before version 2.
    assert [s.summary["delta-version"] for s in made.iceberg.snapshots] == ["1", "2"]  # type: ignore[index]
    assert len(made.iceberg.snapshot_log) == 2


@pytest.mark.parametrize(("hours", "kept"), [(0, ["3"]), (3, ["1", "2", "3"]), (1, ["2", "3"])])
def test_vacuum_expires_the_snapshots_whose_files_it_deletes(hours: int, kept: list[str]) -> None:
    made = IcebergTable()
    made.publish()
    for version in (1, 2):
        made.files.clock.time_ms += HOUR
        made.commit(file(f"f{version}", of=made.snapshot))
    made.files.clock.time_ms += HOUR
    parameters = {"specifiedRetentionMillis": str(hours * HOUR), "defaultRetentionMillis": "1"}
    info = {"timestamp": made.files.clock.time_ms, "operation": "VACUUM START"}
    made.commit(CommitInfo({**info, "operationParameters": parameters}))
    made.publish()
    found = [s.summary["delta-version"] for s in made.iceberg.snapshots]  # type: ignore[index]
    assert found == kept or (hours == 3 and found == ["0", *kept])


def test_vacuum_keeps_what_readers_need_and_deletes_the_rest() -> None:
    made = IcebergTable(properties={"delta.logRetentionDuration": "interval 1 days"})
    made.publish()
    gone = {p for p in of_metadata(made) if "snap-" in p}
    made.commit(file("f", of=made.snapshot))
    made.publish()
    made.files.clock.time_ms += 40 * DAY
    made.commit(file("g", of=made.snapshot))
    made.publish()
    made.files.clock.time_ms += 10 * DAY
    store = made.files.store
    store.files["metadata/of-a-killed-process-m0.avro"] = (b"", store.files[HINT_PATH][1])
    store.files["metadata/being-written-m0.avro"] = (b"", made.files.clock.time_ms)
    planned = set(plan_vacuum(made.log).paths)
    assert planned == {*gone, "metadata/of-a-killed-process-m0.avro"}
    # Without the property they are files that nothing needs.
    made.alter(SetProperties(T, (("delta.universalFormat.enabledFormats", ""),)))
    assert {*gone, HINT_PATH} <= set(plan_vacuum(made.log).paths)


def test_vacuum_keeps_all_metadata_that_it_cant_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made = IcebergTable()
    made.publish()
    made.files.clock.time_ms += 40 * DAY
    monkeypatch.setattr("txlake.commit.iceberg_publication.has_pyiceberg", lambda: False)
    assert not plan_vacuum(made.log).paths
    monkeypatch.undo()
    made.files.store.files[metadata_path(1)] = (b"{", 0)
    assert not plan_vacuum(made.log).paths


def test_old_metadata_files_are_deleted() -> None:
    made = IcebergTable()
    for _ in range(METADATA_FILES_KEPT + 3):
        made.commit()
        made.publish()
    found = [p for p in of_metadata(made) if p.endswith(".json")]
    assert len(found) == METADATA_FILES_KEPT
    assert len(made.iceberg.metadata_log) == METADATA_FILES_KEPT
    made.publish(made.files.open())


def test_a_table_of_another_writer_in_the_folder_is_left_alone() -> None:
    made = IcebergTable()
    made.files.store.files[metadata_path(3)] = (b'{"format-version": 1}', 0)
    with pytest.raises(InvalidRequest, match=r"v3\.metadata\.json: .* that of another writer"):
        made.publish()
    made.files.store.files.pop(metadata_path(3))
    made.publish()
    foreign = made.iceberg.model_copy(update={"properties": {}})
    made.files.store.files[metadata_path(2)] = (foreign.model_dump_json().encode(), 0)
    with pytest.raises(InvalidRequest, match="that of another writer"):
        made.publish(made.files.open())


def test_another_table_in_the_same_place_begins_anew() -> None:
    made = IcebergTable()
    made.commit(file("f", of=made.snapshot))
    made.publish()
    old = made.iceberg.table_uuid
    metadata = msgspec.structs.replace(
        made.snapshot.metadata, id="11111111-1111-1111-1111-111111111111"
    )
    made.commit(metadata)
    made.publish()
    assert made.iceberg.table_uuid != old
    assert made.live(2) == ["f"]
    assert len(made.iceberg.snapshots) == 1


def test_after_a_commit_failures_are_logged_and_tables_that_dont_ask_are_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = IcebergTable()
    made.files.store.failing.add(metadata_path(1))
    with caplog.at_level(logging.WARNING):
        after_commit(made.log, made.snapshot)
    assert "stays behind until the next commit or REPAIR TABLE ... SYNC METADATA" in caplog.text
    made.files.store.failing.clear()
    after_commit(made.log, made.snapshot)
    assert made.live(0) == []
    plain = IcebergTable()
    plain.alter(SetProperties(T, (("delta.universalFormat.enabledFormats", ""),)))
    publish_after(plain.log, plain.snapshot)
    assert not of_metadata(plain)


def test_without_pyiceberg_the_property_is_refused_and_commits_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = IcebergTable()
    plain = table("a int", properties={"delta.enableIcebergCompatV2": "true"})
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    on = SetProperties(T, tuple(PROPERTIES.items()))
    with pytest.raises(InvalidRequest, match=r"^t: Iceberg metadata .*txlake\[iceberg\]"):
        alter(on, plain, environment())
    for snapshot in (made.snapshot, plain):
        alter(SetProperties(T, (("mine", "1"),)), snapshot, environment())
    with caplog.at_level(logging.WARNING):
        after_commit(made.log, made.snapshot)
    assert "pip install 'txlake[iceberg]'" in caplog.text
    assert not of_metadata(made)
    monkeypatch.undo()
    made.publish()
    assert made.live(0) == []
