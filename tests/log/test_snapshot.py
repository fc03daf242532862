from __future__ import annotations

import json

import pytest

from tests.commit.log_of import PROTOCOL, VECTORS, add, metadata, remove, vector
from txlake.errors import CorruptTable
from txlake.log.predicates import bind, parse_predicate
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, CommitInfo, DomainMetadata, Metadata, Protocol, Txn


def _created(**configuration: str) -> Snapshot:
    return Snapshot.empty("t").apply(
        [PROTOCOL, metadata(configuration, ["p"]), add("a")], version=0, timestamp_ms=1_000
    )


def test_empty_is_a_table_before_its_first_commit() -> None:
    empty = Snapshot.empty("t")
    assert (empty.version, len(empty.files), empty.is_created) == (-1, 0, False)
    assert not empty.apply([PROTOCOL]).is_created
    assert empty.apply([PROTOCOL, metadata()]).is_created


def test_what_the_latest_commit_says_counts() -> None:
    first = _created()
    second = first.apply(
        [VECTORS, metadata({"delta.appendOnly": "true"}), add("b"), remove("a")],
        version=1,
        timestamp_ms=2_000,
    )
    assert (second.version, second.timestamp_ms) == (1, 2_000)
    assert "deletionVectors" in second.features
    assert second.properties.append_only
    assert [item.path for item in second.files.adds()] == ["b"]
    assert list(second.tombstones) == [("a", None)]
    assert (first.version, first.partition_columns) == (0, ("p",))
    assert [item.path for item in first.files.adds()] == ["a"]


def test_a_file_is_live_or_a_tombstone() -> None:
    removed = _created().apply([remove("a")], version=1)
    again = removed.apply([add("a")], version=2)
    assert not again.tombstones
    assert ("a", None) in removed.tombstones


def test_another_vector_is_another_file() -> None:
    state = _created().apply([remove("a"), add("a", vector=vector())], version=1)
    assert [item.key for item in state.files.adds()] == [("a", vector().unique_id)]
    assert list(state.tombstones) == [("a", None)]


def test_the_order_within_a_commit_counts() -> None:
    state = _created().apply([add("b"), remove("b"), remove("c"), add("c")], version=1)
    assert [item.path for item in state.files.adds()] == ["a", "c"]
    assert list(state.tombstones) == [("b", None)]


def test_application_ids_and_domains_by_name() -> None:
    state = _created().apply(
        [
            Txn(app_id="x", version=1),
            Txn(app_id="x", version=2),
            Txn(app_id="y", version=7),
            DomainMetadata(domain="d", configuration="1", removed=False),
            DomainMetadata(domain="e", configuration="1", removed=False),
        ],
        version=1,
    )
    later = state.apply([DomainMetadata(domain="d", configuration="1", removed=True)], version=2)
    assert (later.app_version("x"), later.app_version("y"), later.app_version("z")) == (2, 7, None)
    assert list(state.domains) == ["d", "e"]
    assert list(later.domains) == ["e"]


def test_staged_changes_leave_version_and_time() -> None:
    state = _created(**{"delta.enableInCommitTimestamps": "true"})
    state = state.apply([CommitInfo({"inCommitTimestamp": 5_000})], version=1, timestamp_ms=9)
    view = state.apply([add("b"), CommitInfo({"inCommitTimestamp": 8_000})])
    assert (view.version, view.timestamp_ms, view.in_commit_timestamp_ms) == (1, 5_000, 5_000)
    assert len(view.files) == 2


@pytest.mark.parametrize(("enabled", "time"), [("true", 5_000), ("false", 900)])
def test_in_commit_timestamps_count_only_while_they_are_on(enabled: str, time: int) -> None:
    state = _created(**{"delta.enableInCommitTimestamps": enabled})
    state = state.apply([CommitInfo({"inCommitTimestamp": 5_000})], version=1, timestamp_ms=900)
    assert state.timestamp_ms == time
    without = state.apply([add("b")], version=2, timestamp_ms=950)
    assert (without.timestamp_ms, without.in_commit_timestamp_ms) == (950, None)


def test_the_schema_is_that_of_the_metadata() -> None:
    state = _created()
    assert state.schema.names == ("id", "p")
    assert state.arrow_schema.names == ["id", "p"]
    broken = metadata()
    bad = state.apply([type(broken)(id="x", schema_string="{")], version=1)
    with pytest.raises(CorruptTable, match="t: metaData"):
        _ = bad.schema


@pytest.mark.parametrize(
    ("mode", "writer_version", "physical"),
    [
        ("name", 5, "c"),
        ("id", 5, "c"),
        (" Name", 5, "c"),
        ("none", 5, "a"),
        (None, 5, "a"),
        ("name", 2, "a"),
        ("odd", 2, "a"),
    ],
)
def test_physical_names_count_only_where_columns_are_mapped(
    mode: str | None, writer_version: int, physical: str
) -> None:
    about = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c"}
    field = {"name": "a", "type": "long", "nullable": True, "metadata": about}
    found = Snapshot.empty("t").apply(
        [
            Protocol(
                min_reader_version=2 if writer_version > 2 else 1, min_writer_version=writer_version
            ),
            Metadata(
                id="t",
                schema_string=json.dumps({"type": "struct", "fields": [field]}),
                configuration={} if mode is None else {"delta.columnMapping.mode": mode},
            ),
        ]
    )
    assert found.schema.fields[0].physical_name == physical


def test_row_ids_start_below_zero() -> None:
    state = _created()
    assert state.row_id_high_water_mark == -1
    mark = DomainMetadata(
        domain="delta.rowTracking",
        configuration=json.dumps({"rowIdHighWaterMark": 41}),
        removed=False,
    )
    assert state.apply([mark]).row_id_high_water_mark == 41
    for text in ("{}", "no JSON", '{"rowIdHighWaterMark": null}', '{"rowIdHighWaterMark": "x"}'):
        bad = DomainMetadata(domain="delta.rowTracking", configuration=text, removed=False)
        with pytest.raises(CorruptTable, match="rowIdHighWaterMark"):
            _ = state.apply([bad], version=3).row_id_high_water_mark


def test_select_without_a_predicate_gives_all_files() -> None:
    state = _created()
    assert state.select(None).num_rows == 1


def test_select_leaves_out_files_that_can_not_match() -> None:
    def file(path: str, low: int, high: int) -> Add:
        stats = {"numRecords": 1, "minValues": {"id": low}, "maxValues": {"id": high}}
        return add(path, stats=json.dumps({**stats, "nullCount": {"id": 0}}))

    state = Snapshot.empty("t").apply(
        [PROTOCOL, metadata(), file("low", 1, 5), file("high", 6, 9), add("unknown")], version=0
    )
    predicate = bind(parse_predicate("id > 5"), state.schema)
    assert state.select(predicate)["path"].to_pylist() == ["high", "unknown"]


def test_what_is_made_of_the_metadata_is_kept_as_long_as_that_stays() -> None:
    state = _created()
    known = state.properties
    assert state.apply([]) is state
    assert state.apply([add("b")], version=1).properties is known
    appending = state.apply([metadata({"delta.appendOnly": "true"}, ["p"])])
    assert appending.properties.append_only
    assert not known.append_only
    features = state.features
    assert state.apply([Protocol(min_reader_version=1, min_writer_version=4)]).features > features
