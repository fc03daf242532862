"""Which files a stream reads, from logs without data: order, limits, options, what stops it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import txlake
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, UnsupportedFeature
from txlake.lake.streaming.offsets import Offset
from txlake.lake.streaming.options import (
    Place,
    camel_options,
    place_of,
    place_options,
    sink_options,
    source_options,
)
from txlake.lake.streaming.planning import stream_schema
from txlake.lake.streaming.reader import UnlimitedReader
from txlake.lake.streaming.source import Source
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

pytestmark = pytest.mark.no_interop("the logs name files that aren't there")


class Table:
    """A log that is written by hand, and a stream's source on it."""

    def __init__(self, place: Path, *columns: str, table_id: str = "one") -> None:
        self.place = place
        self.table_id = table_id
        self.log = txlake.Log(place)
        self.commit(self.metadata(*(columns or ("id",))), operation="CREATE TABLE")

    def metadata(self, *columns: str, partitions: tuple[str, ...] = ()) -> dict[str, object]:
        fields = []
        for column in columns:
            name, _, kind = column.partition(":")
            fields.append({"name": name, "type": kind or "long", "nullable": True, "metadata": {}})
        schema = json.dumps({"type": "struct", "fields": fields})
        return {
            "metaData": {
                "id": self.table_id,
                "schemaString": schema,
                "partitionColumns": list(partitions),
                "format": {"provider": "parquet", "options": {}},
                "configuration": {},
                "createdTime": 0,
            }
        }

    def commit(self, *actions: dict[str, object], operation: str = "WRITE") -> int:
        """As another writer would: the file alone."""
        folder = self.place / "_delta_log"
        folder.mkdir(parents=True, exist_ok=True)
        version = len(list(folder.glob("*.json")))
        lines: list[dict[str, object]] = [{"commitInfo": {"operation": operation, "timestamp": 1}}]
        if not version:
            lines.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        text = "\n".join(json.dumps(one) for one in (*lines, *actions))
        (folder / f"{version:020}.json").write_text(text)
        return version

    def add(self, *names: str, **fields: object) -> int:
        return self.commit(*(added(name, **fields) for name in names))

    def source(self, **options: object) -> Source:
        store = open_store(str(self.place))
        log = TableLog(store, System(), Settings(), name="t")
        return Source(log, log.latest(), source_options(camel_options(options)))

    def lose(self, version: int) -> None:
        (self.place / "_delta_log" / f"{version:020}.json").unlink()


def added(name: str, **fields: object) -> dict[str, object]:
    values = {
        "path": name,
        "partitionValues": {},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
    }
    return {"add": {**values, **fields}}


def removed(name: str, **fields: object) -> dict[str, object]:
    return {"remove": {"path": name, "dataChange": True, "deletionTimestamp": 1, **fields}}


def vector(cardinality: int) -> dict[str, object]:
    return {
        "storageType": "u",
        "pathOrInlineDv": f"{cardinality:020}",
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": cardinality,
    }


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "t")


def at(version: int, began: int = 0) -> Offset:
    """The beginning of a version's commit, for a stream that began with the table as it was."""
    return replace(Offset.first("one", began, is_initial=True), version=version, is_initial=False)


def batches(source: Source, start: Offset | None = None) -> list[list[str]]:
    """The files of each micro-batch until there is nothing left."""
    position = source.initial() if start is None else start
    found = []
    while (end := source.latest(position, limited=True)) != position:
        found.append([add.path for add in source.files(position, end)])
        position = end
    return found


def files(source: Source) -> list[str]:
    return [name for batch in batches(source) for name in batch]


# --- order and limits -----------------------------------------------------------------------------


def test_the_whole_table_comes_first_then_each_commit(table: Table) -> None:
    table.add("b", modificationTime=5)
    table.add("c", "a", modificationTime=3)
    source = table.source(max_files_per_trigger=2)
    start = source.initial()
    table.add("z", "y")
    table.add("x")
    assert batches(source, start) == [["a", "c"], ["b", "z"], ["y", "x"]]


def test_the_snapshot_is_pinned_where_the_stream_began(table: Table) -> None:
    table.add("a", "b")
    start = table.source().initial()
    table.commit(removed("a"), added("c"), operation="OVERWRITE")
    end = table.source().latest(start, limited=True)
    assert [add.path for add in table.source().files(start, end)] == ["a", "b"]


def test_equal_places_have_equal_offsets(table: Table) -> None:
    table.add("a")
    table.add("b")
    limited = table.source(max_files_per_trigger=2)
    start = limited.initial()
    end = limited.latest(start, limited=True)
    assert end == limited.newest(start)
    assert end.to_json() == limited.latest(end, limited=True).to_json()
    assert (end.place, end.is_initial, end.began) == ((3, 0), False, (2, True))


def test_a_batch_has_at_least_one_file_and_ends_at_either_limit(table: Table) -> None:
    table.add("a", "b", "c", size=10)
    assert batches(table.source(max_bytes_per_trigger="1")) == [["a"], ["b"], ["c"]]
    assert batches(table.source(max_bytes_per_trigger="15b")) == [["a", "b"], ["c"]]
    both = table.source(max_bytes_per_trigger="1k", max_files_per_trigger=1)
    assert batches(both) == [["a"], ["b"], ["c"]]


def test_a_range_is_the_same_in_another_process_with_other_limits(table: Table) -> None:
    table.add("a", "b", "c")
    table.add("d", "e")
    first = table.source(max_files_per_trigger=2)
    start = first.initial()
    end = first.latest(start, limited=True)
    again = table.source(max_files_per_trigger=1)
    assert [one.path for one in again.files(start, end)] == ["a", "b"]
    assert again.latest(start, limited=False) == first.newest(start)


def test_what_comes_after_the_trigger_is_left_for_the_next_run(table: Table) -> None:
    table.add("a")
    source = table.source()
    source.stop_at_newest()
    table.add("b")
    assert files(source) == ["a"]
    assert source.newest(source.initial()).place == (2, 0)


def test_an_offset_survives_its_json() -> None:
    offset = Offset(table_id="x", version=3, index=4, is_initial=True, began=(2, True))
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    with pytest.raises(InvalidRequest, match="expected one of txlake's source in format 1"):
        Offset.from_json({"reservoirVersion": 3})


def test_a_query_killed_in_its_first_batch_reads_the_same_files_again(table: Table) -> None:
    table.add("a", "b")
    killed = table.source(max_files_per_trigger=1)
    start = killed.initial()
    end = killed.latest(start, limited=True)
    beyond = killed.latest(start, limited=False)
    table.add("c")
    again = table.source()
    anew = again.initial()
    assert anew.version == 2
    assert [add.path for add in again.files(anew, end)] == ["a"]
    assert [add.path for add in again.files(anew, beyond)] == ["a", "b"]
    assert batches(again, end) == [["b", "c"]]


def test_a_query_killed_before_anything_came_begins_where_it_did(table: Table) -> None:
    killed = table.source(starting_version="latest")
    start = killed.initial()
    table.add("a")
    end = killed.latest(start, limited=True)
    table.add("b")
    again = table.source(starting_version="latest")
    assert [add.path for add in again.files(again.initial(), end)] == ["a"]


def test_an_older_pyspark_asks_for_the_end_without_saying_where_it_is(table: Table) -> None:
    """PySpark 4.0: the end is asked for first, and names the beginning of this process alone."""
    table.add("a")
    first = table.source()
    start = first.initial()
    end = first.newest(start)
    table.add("b")
    second = table.source()
    later = second.newest(second.initial())
    assert later.began != end.began
    assert [add.path for add in second.files(end, later)] == ["b"]
    assert second.files(later, later) == []


def test_another_start_at_a_restart_reads_nothing_again(table: Table) -> None:
    """PySpark 4.0: the first batch may end where it begins, and ends name each process's start."""
    table.add("old")
    first = table.source(starting_version="latest")
    start = first.initial()
    assert first.newest(start) == start
    table.add("a")
    table.add("b")
    for version in (0, 3):
        again = table.source(starting_version=version)
        later = again.newest(again.initial())
        assert [add.path for add in again.files(start, later)] == ["a", "b"], version


def test_a_query_goes_on_where_its_first_version_was_cleaned_up(table: Table) -> None:
    """PySpark 4.0 and 4.1 ask for the end alone, in a process that doesn't know how far it is."""
    table.add("a")
    options = {"path": str(table.place), "startingVersion": "1"}
    schema = stream_schema(table.source().own)
    first = UnlimitedReader(options, schema)
    start = first.initialOffset()
    end = first.latestOffset()
    table.add("b")
    table.log.checkpoint()
    for version in (0, 1):
        table.lose(version)
    again = UnlimitedReader(options, schema)
    later = again.latestOffset()
    [part] = again.partitions(end, later)
    assert [Path(one.url).name for one in part.value[1]] == ["b"]
    with pytest.raises(InvalidRequest, match=r"the earliest is that of version 2"):
        again.initialOffset()
    with pytest.raises(TxlakeError, match="version 1"):
        again.partitions(start, later)
    for reader in (first, again):
        reader.stop()


@pytest.mark.parametrize("version", [1, 3])
def test_another_start_leaves_the_first_batch_as_it_was(table: Table, version: int) -> None:
    table.add("a")
    table.add("b")
    killed = table.source(starting_version=2)
    end = killed.latest(killed.initial(), limited=True)
    table.add("c")
    again = table.source(starting_version=version)
    assert [add.path for add in again.files(again.initial(), end)] == ["b"]


# --- where it starts ------------------------------------------------------------------------------


def test_a_starting_version_is_read_itself(table: Table) -> None:
    table.add("a")
    table.add("b")
    assert files(table.source(starting_version=1)) == ["a", "b"]
    assert files(table.source(starting_version=2)) == ["b"]
    assert files(table.source(starting_version=3)) == []


def test_latest_reads_what_comes_next(table: Table) -> None:
    table.add("a")
    source = table.source(starting_version="latest")
    start = source.initial()
    table.add("b")
    assert batches(source, start) == [["b"]]


def test_a_starting_timestamp_is_the_first_commit_from_then_on(table: Table) -> None:
    import os

    for version, name in enumerate("ab", 1):
        table.add(name)
        file = table.place / "_delta_log" / f"{version:020}.json"
        os.utime(file, (version * 1000, version * 1000))
    os.utime(table.place / "_delta_log" / f"{0:020}.json", (0, 0))
    assert files(table.source(starting_timestamp="1970-01-01 00:16:40")) == ["a", "b"]
    assert files(table.source(starting_timestamp="1970-01-01 00:16:40.001")) == ["b"]
    assert files(table.source(starting_timestamp="1970-01-01")) == ["a", "b"]
    with pytest.raises(InvalidRequest, match="is after the newest version, 2; say"):
        table.source(starting_timestamp="1970-01-02").initial()
    with pytest.raises(InvalidRequest, match="expected a text like '2026-01-31'"):
        table.source(starting_timestamp="yesterday").initial()


def test_a_starting_timestamp_is_found_by_the_times_in_commits(table: Table) -> None:
    """Files may have other times: those of a copy of the table are all younger."""
    table.add("a")
    made = table.metadata("id")
    metadata = made["metaData"]
    assert isinstance(metadata, dict)
    metadata["configuration"] = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": "50000",
    }
    features = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp"],
    }
    infos = [
        {"commitInfo": {"operation": "WRITE", "inCommitTimestamp": time}}
        for time in (50_000, 60_000)
    ]
    commits = [[infos[0], {"protocol": features}, made], [infos[1], added("b")]]
    for version, actions in enumerate(commits, 2):
        file = table.place / "_delta_log" / f"{version:020}.json"
        file.write_text("\n".join(map(json.dumps, actions)))
    assert files(table.source(starting_timestamp="1970-01-01 00:00:55")) == ["b"]
    assert files(table.source(starting_timestamp="1970-01-01")) == ["a", "b"]


def test_a_starting_timestamp_before_what_is_kept_is_the_oldest_commit(table: Table) -> None:
    """As in Delta Spark, also where the table as of that commit can't be rebuilt."""
    table.add("a")
    table.add("b")
    table.log.checkpoint()
    table.lose(0)
    assert table.source(starting_timestamp="1970-01-01").initial().place == (1, 0)


@pytest.mark.parametrize("asked", [3, 40])
def test_a_starting_version_beyond_the_next_is_refused(table: Table, asked: int) -> None:
    table.add("a")
    with pytest.raises(InvalidRequest, match=f"startingVersion={asked}: the newest version is 1"):
        table.source(starting_version=asked).initial()


# --- commits that change rows ---------------------------------------------------------------------


def test_a_commit_that_changes_rows_stops_the_stream_and_says_how_to_go_on(table: Table) -> None:
    table.add("a")
    source = table.source()
    start = source.initial()
    table.add("b")
    table.commit(removed("a"), added("c"), operation="UPDATE")
    before = source.latest(start, limited=True)
    assert [add.path for add in source.files(start, before)] == ["a", "b"]
    with pytest.raises(
        InvalidRequest,
        match=r"\[DELTA_SOURCE_TABLE_IGNORE_CHANGES\] .*t: version 3 \(UPDATE\) changed rows .* "
        r"skipChangeCommits=true .*"
        r"ignoreChanges=true .* startingVersion=4",
    ):
        source.latest(before, limited=True)
    with pytest.raises(InvalidRequest, match="version 3"):
        source.files(start, at(4))


@pytest.mark.parametrize(
    ("option", "read"),
    [
        ("skip_change_commits", ["a", "b", "e"]),
        ("ignore_changes", ["a", "b", "c", "a", "b", "e"]),
        ("ignore_file_deletion", ["a", "b", "c", "a", "b", "e"]),
        ("ignore_changes skip_change_commits", ["a", "b", "e"]),
    ],
)
def test_options_pass_over_commits_that_change_rows(
    table: Table, option: str, read: list[str]
) -> None:
    table.add("a")
    table.add("b")
    source = table.source(**dict.fromkeys(option.split(), True))
    start = source.initial()
    table.commit(removed("a"), added("c"), operation="UPDATE")
    table.commit(removed("a"), added("a", deletionVector=vector(2)), operation="DELETE")
    table.commit(removed("b"), added("b", deletionVector=vector(1)), operation="MERGE")
    table.commit(removed("c"), operation="DELETE")
    table.add("e")
    assert [name for batch in batches(source, start) for name in batch] == read


def test_ignore_deletes_passes_over_deletions_alone(table: Table) -> None:
    table.add("a")
    table.add("b", deletionVector=vector(1))
    source = table.source(ignore_deletes=True)
    start = source.latest(source.initial(), limited=True)
    table.commit(removed("a"), operation="DELETE")
    table.commit(
        removed("b", deletionVector=vector(1)),
        added("b", deletionVector=vector(2)),
        operation="DELETE",
    )
    table.add("c")
    assert batches(source, start) == [["c"]]
    table.commit(
        removed("b", deletionVector=vector(2)),
        added("b", deletionVector=vector(1)),
        operation="RESTORE",
    )
    with pytest.raises(InvalidRequest, match=r"version 6 \(RESTORE\) changed rows"):
        source.latest(at(6), limited=True)


def test_what_changes_no_row_is_passed_over(table: Table) -> None:
    table.add("a")
    source = table.source()
    start = source.latest(source.initial(), limited=True)
    compacted = removed("a", dataChange=False), added("b", dataChange=False)
    table.commit(*compacted, operation="OPTIMIZE")
    assert source.latest(start, limited=True).place == (3, 0)
    assert batches(source, start) == [[]]


def test_excluded_files_are_left_out_and_keep_their_places(table: Table) -> None:
    table.add("p=1/a", "p=2/b", "p=1/c")
    assert files(table.source(exclude_regex="p=2")) == ["p=1/a", "p=1/c"]
    source = table.source(max_files_per_trigger=1)
    middle = source.latest(source.initial(), limited=True)
    assert batches(table.source(exclude_regex="p=2"), middle) == [["p=1/c"]]


# --- the table ------------------------------------------------------------------------------------


def test_another_table_at_the_place_stops_the_stream(table: Table, tmp_path: Path) -> None:
    table.add("a")
    start = table.source().initial()
    other = Table(tmp_path / "other", table_id="two").source()
    for ask in (
        lambda: other.latest(start, limited=True),
        lambda: other.files(start, start),
    ):
        with pytest.raises(
            InvalidRequest, match=r"id one, and the one .* id two: .*new checkpointLocation"
        ):
            ask()


def test_a_table_replaced_in_the_middle_stops_the_stream(table: Table) -> None:
    source = table.source()
    start = source.initial()
    table.table_id = "two"
    table.commit(table.metadata("id"), operation="REPLACE TABLE")
    with pytest.raises(InvalidRequest, match="began on the table with id one"):
        source.latest(start, limited=True)


def test_a_version_that_is_gone_stops_the_stream(table: Table) -> None:
    table.add("a")
    start = at(1)
    table.add("b")
    table.log.checkpoint()
    for version in (0, 1):
        table.lose(version)
    with pytest.raises(TxlakeError, match="version"):
        table.source().latest(start, limited=True)
    with pytest.raises(InvalidRequest, match=r"the earliest is that of version 2.*failOnDataLoss"):
        table.source(starting_version=1).initial()
    loose = table.source(starting_version=1, fail_on_data_loss=False)
    assert files(loose) == ["b"]


def test_commits_are_read_whose_versions_cant_be_rebuilt(table: Table) -> None:
    """Another engine cleaned the log up to a commit that is older than its checkpoint."""
    table.add("a")
    table.add("b")
    table.commit(removed("x", dataChange=False), added("y", dataChange=False))
    table.add("c")
    table.log.checkpoint()
    for version in (0, 1):
        table.lose(version)
    assert files(table.source(starting_version=2)) == ["b", "c"]
    assert batches(table.source(), at(3)) == [["c"]]
    assert files(table.source(starting_timestamp="1970-01-01")) == ["b", "c"]


def test_a_schema_that_cant_be_known_stops_the_stream(table: Table) -> None:
    table.add("a")
    table.add("b")
    table.commit(table.metadata("id", "more"), operation="ADD COLUMNS")
    table.add("c")
    table.log.checkpoint()
    for version in (0, 1):
        table.lose(version)
    source = table.source(starting_version=2)
    with pytest.raises(InvalidRequest, match="version 2 was cleaned up"):
        source.latest(source.initial(), limited=True)
    assert files(table.source(starting_version=3)) == ["c"]


def test_a_gap_in_the_middle_stops_the_stream(table: Table) -> None:
    table.add("a")
    table.add("b")
    table.add("c")
    table.log.checkpoint()
    table.lose(2)
    source = table.source(starting_version=1)
    end = source.latest(source.initial(), limited=True)
    assert end.place == (2, 0)
    with pytest.raises(CorruptTable, match=r"version 2 is gone, .*failOnDataLoss=false"):
        source.latest(end, limited=True)
    loose = table.source(starting_version=1, fail_on_data_loss=False)
    assert files(loose) == ["a", "c"]


def test_a_log_behind_the_stream_stops_it(table: Table) -> None:
    table.add("a")
    source = table.source()
    with pytest.raises(CorruptTable, match="read it up to version 4, and its newest version is 1"):
        source.files(source.initial(), at(5))
    with pytest.raises(CorruptTable, match="read it up to version 4, and its newest version is 1"):
        source.latest(at(5), limited=True)
    assert source.latest(at(2), limited=True) == at(2)


# --- the schema -----------------------------------------------------------------------------------


def test_a_column_more_stops_the_stream_until_it_is_started_again(table: Table) -> None:
    table.add("a")
    source = table.source()
    start = source.latest(source.initial(), limited=True)
    table.commit(table.metadata("id", "more"), operation="ADD COLUMNS")
    table.add("b")
    with pytest.raises(InvalidRequest, match=r"version 2 .*'more'.*Start the query again"):
        source.latest(start, limited=True)
    assert batches(table.source(), start) == [["b"]]


def test_a_column_that_was_dropped_since_needs_a_new_query(table: Table) -> None:
    table.commit(table.metadata("id", "more"), operation="ADD COLUMNS")
    table.add("a")
    start = at(2)
    table.commit(table.metadata("id"), operation="DROP COLUMNS")
    with pytest.raises(InvalidRequest, match=r"at version 2 .*'more'.*checkpoint is new"):
        table.source().latest(start, limited=True)


def with_columns(table: Table, lost: str | None = None) -> dict[str, object]:
    """The table's metaData with columns of every shape; one of them without a field."""

    def pair(name: str) -> dict[str, object]:
        fields = [{"name": one, "type": "long", "nullable": True, "metadata": {}} for one in "ab"]
        return {"type": "struct", "fields": fields[:1] if name == lost else fields}

    made = table.metadata("id", *(() if lost == "column" else ("column",)))
    metadata = made["metaData"]
    assert isinstance(metadata, dict)
    schema = json.loads(metadata["schemaString"])
    types = {
        "struct": pair("struct"),
        "list": {"type": "array", "elementType": pair("list"), "containsNull": True},
        "map": {
            "type": "map",
            "keyType": "string",
            "valueType": pair("map"),
            "valueContainsNull": True,
        },
    }
    schema["fields"] += [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in types.items()
    ]
    metadata["schemaString"] = json.dumps(schema)
    return made


@pytest.mark.parametrize("lost", ["column", "struct", "list", "map"])
def test_a_column_dropped_under_a_running_stream_stops_it(table: Table, lost: str) -> None:
    """Its rows would have nulls there."""
    table.commit(with_columns(table), operation="ADD COLUMNS")
    table.add("a")
    assert batches(table.source(starting_version=0)) == [["a"]]  # an older version may lack some
    running = table.source()
    start = running.initial()
    table.commit(with_columns(table, lost), operation="DROP COLUMNS")
    table.add("b")
    end = running.latest(start, limited=True)
    assert [add.path for add in running.files(start, end)] == ["a"]
    with pytest.raises(InvalidRequest, match=r"version 3 .* has no column .*Start the query again"):
        running.latest(end, limited=True)
    assert batches(table.source(), end) == [["b"]]
    with pytest.raises(InvalidRequest, match=r"at version 2 .*checkpoint is new"):
        table.source().latest(start, limited=True)


def test_a_wider_type_reads_what_was_narrower(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", "id:integer")
    table.add("a")
    start = table.source().initial()
    running = table.source()
    table.commit(table.metadata("id:long"), operation="CHANGE COLUMN")
    table.add("b")
    assert batches(table.source(), start) == [["a", "b"]]
    middle = running.latest(start, limited=True)
    assert [add.path for add in running.files(start, middle)] == ["a"]
    with pytest.raises(InvalidRequest, match="'id' is long, and the stream's integer"):
        running.latest(middle, limited=True)


def test_other_partitions_stop_the_stream(table: Table) -> None:
    source = table.source()
    start = source.initial()
    table.commit(table.metadata("id", partitions=("id",)), operation="OVERWRITE")
    with pytest.raises(InvalidRequest, match="is partitioned by id, the stream's table by nothing"):
        source.latest(source.latest(start, limited=True), limited=True)


def test_a_stream_that_starts_behind_a_change_looks_at_the_schema_too(table: Table) -> None:
    source = table.source()
    table.commit(table.metadata("id", "more"), operation="ADD COLUMNS")
    start = source.newest(source.initial())
    table.add("a")
    with pytest.raises(InvalidRequest, match="Start the query again"):
        source.latest(start, limited=True)


def test_a_change_between_the_start_and_the_first_version_to_come_is_seen(table: Table) -> None:
    source = table.source(starting_version="latest")
    table.commit(table.metadata("id", "more"), operation="ADD COLUMNS")
    start = source.initial()
    assert source.latest(start, limited=True) == start
    table.add("a")
    with pytest.raises(InvalidRequest, match=r"'more'.*Start the query again"):
        source.latest(start, limited=True)


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"startingVersion": "1", "startingTimestamp": "2026-01-01"},
            "startingVersion=1 and startingTimestamp='2026-01-01' are given together",
        ),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger='0': expected a whole number above zero"),
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger='much': expected a size"),
        ({"startingVersion": "-1"}, "startingVersion='-1': expected a version, 0 or more, or"),
        ({"ignoreDeletes": "1"}, "ignoreDeletes='1': expected true or false"),
        ({"excludeRegex": "("}, "excludeRegex='(': expected a regular expression"),
        ({"maxFilePerTrigger": "1"}, "did you mean maxFilesPerTrigger"),
        ({"versionAsOf": "1"}, "versionAsOf goes with a read, not with a stream"),
    ],
)
def test_bad_options_say_what_is_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        source_options(options)


@pytest.mark.parametrize("name", ["withEventTimeOrder", "schemaTrackingLocation"])
def test_options_that_txlake_lacks_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=name):
        source_options({name: "true"})


def test_python_options_are_sparks() -> None:
    import datetime

    given = {"max_files_per_trigger": 3, "skip_change_commits": True, "starting_version": "latest"}
    assert camel_options(given) == {
        "maxFilesPerTrigger": "3",
        "skipChangeCommits": "true",
        "startingVersion": "latest",
    }
    moment = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    assert camel_options({"starting_timestamp": moment}) == {
        "startingTimestamp": "2026-01-31T12:00:00+00:00"
    }
    with pytest.raises(InvalidRequest, match="starting_version=None: expected"):
        camel_options({"starting_version": None})


def test_a_place_travels_in_one_option_that_spark_hides() -> None:
    place = Place(
        table="`a`.`b`",
        lake="s3://x",
        catalog="postgresql://u:secret@h/db",
        outside_paths=("/a", "/b"),
        storage_options={"aws_secret_access_key": "secret"},
    )
    options = place_options(place)
    assert place_of(options) == place
    assert [name for name, value in options.items() if "secret" in value] == ["connectionUrl"]
    typed = {"path": "a", "lake": "w", "catalog": "c", "storage.Region": "eu"}
    assert place_of(typed) == Place(
        table="a", lake="w", catalog="c", storage_options={"region": "eu"}
    )
    with pytest.raises(InvalidRequest, match="no table is given"):
        place_of({})


def test_the_catalog_has_a_name_whose_value_spark_hides() -> None:
    """Spark hides the values of options with `url` in their names."""
    secret = "postgresql://u:secret@h/db"
    typed = {"path": "a", "lake": "w", "catalogUrl": secret}
    assert place_of(typed).catalog == place_of({**typed, "catalog": secret}).catalog == secret
    assert source_options(typed) == source_options({})
    assert sink_options({**typed, "checkpointLocation": "c"}).checkpoint == "c"
    with pytest.raises(InvalidRequest, match="say catalogUrl alone") as said:
        place_of({**typed, "catalog": "sqlite://"})
    assert "secret" not in str(said.value)
