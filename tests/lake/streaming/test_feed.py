"""The change data feed as a stream, without Spark: its files, its batches, and their rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from pyroaring import BitMap64

from tests.lake.streaming.test_source import Table, added, at, removed, vector
from tests.simulation.rows import RowEngine, RowSession
from tests.simulation.rows.test_change_feed import TABLES, Program, create, newest
from txlake.catalog import Catalog
from txlake.commit.change_feed import FeedFile
from txlake.datafiles.stream_task import StreamTask
from txlake.errors import InvalidRequest
from txlake.lake.streaming.offsets import Offset
from txlake.lake.streaming.options import camel_options, source_options
from txlake.lake.streaming.planning import FeedPlan, feed_schema
from txlake.lake.streaming.source import Source
from txlake.protocol.deletion_vectors import inline
from txlake.settings import Settings
from txlake.sql.statements import TableName
from txlake.storage import open_store
from txlake.system import System

pytestmark = pytest.mark.no_interop("some logs name files that aren't there")

FEED = {"delta.enableChangeDataFeed": "true"}
Change = tuple[str, str | None, int]


def cdc(name: str, size: int = 10) -> dict[str, object]:
    return {"cdc": {"path": name, "partitionValues": {}, "size": size, "dataChange": False}}


def setting(table: Table, *columns: str, **properties: str) -> dict[str, object]:
    """The table's metaData with these properties."""
    made = table.metadata(*(columns or ("id",)))
    metadata = made["metaData"]
    assert isinstance(metadata, dict)
    metadata["configuration"] = properties
    return made


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table whose versions from 1 on have a feed."""
    made = Table(tmp_path / "t")
    made.commit(setting(made, **FEED), operation="SET TBLPROPERTIES")
    return made


def feed(table: Table, **options: object) -> Source:
    return table.source(read_change_feed=True, **options)


def shown(told: Sequence[FeedFile]) -> list[Change]:
    return [(one.file.path, one.change_type, one.version) for one in told]


def batches(source: Source, start: Offset | None = None) -> list[list[Change]]:
    """The changes of each micro-batch until there is nothing left."""
    position = source.initial() if start is None else start
    found = []
    while (end := source.latest(position, limited=True)) != position:
        found.append(shown(source.changes(position, end)))
        position = end
    return found


# --- what is told ---------------------------------------------------------------------------------


def test_the_whole_table_comes_as_inserts_then_each_change(table: Table) -> None:
    table.add("b", modificationTime=5)
    table.add("a", modificationTime=3)
    source = feed(table)
    start = source.initial()
    table.commit(cdc("c"), removed("a", size=10, partitionValues={}), operation="UPDATE")
    table.commit(removed("b", size=10, partitionValues={}), added("d"), operation="WRITE")
    table.commit(removed("d", dataChange=False), added("e", dataChange=False), operation="OPTIMIZE")
    assert batches(source, start) == [
        [
            ("a", "insert", 3),
            ("b", "insert", 3),
            ("c", None, 4),
            ("b", "delete", 5),
            ("d", "insert", 5),
        ]
    ]


def test_a_start_tells_changes_alone(table: Table) -> None:
    table.add("a")
    table.commit(cdc("c"), operation="UPDATE")
    assert batches(feed(table, starting_version=3)) == [[("c", None, 3)]]
    source = feed(table, starting_version="latest")
    start = source.initial()
    table.add("b")
    assert batches(source, start) == [[("b", "insert", 4)]]


def test_a_merge_that_changed_nothing_tells_nothing(table: Table) -> None:
    metrics = dict.fromkeys(
        ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0"
    )
    table.add("a")
    source = feed(table)
    start = source.latest(source.initial(), limited=True)
    info = {"commitInfo": {"operation": "MERGE", "timestamp": 1, "operationMetrics": metrics}}
    folder = table.place / "_delta_log"
    actions = [info, removed("a", size=10, partitionValues={}), added("b")]
    (folder / f"{3:020}.json").write_text("\n".join(map(json.dumps, actions)))
    assert batches(feed(table), start) == [[]]


def test_options_that_skip_changes_mean_nothing(table: Table) -> None:
    """As in Delta Spark, whose source doesn't look at them then."""
    table.add("a")
    for name in ("skip_change_commits", "ignore_deletes", "ignore_changes"):
        source = feed(table, **{name: True})
        start = source.latest(source.initial(), limited=True)
        version = table.commit(cdc(name), operation="UPDATE")
        assert batches(source, start) == [[(name, None, version)]]


def test_excluded_files_tell_nothing_and_keep_their_places(table: Table) -> None:
    table.add("a", "x", "b")
    source = feed(table, exclude_regex="x", max_files_per_trigger=1)
    start = source.initial()
    table.commit(cdc("x"), cdc("c"), operation="UPDATE")
    assert [[name for name, *_ in one] for one in batches(source, start)] == [["a"], ["b"], ["c"]]


# --- limits ---------------------------------------------------------------------------------------


def test_change_files_of_a_version_are_in_one_batch(table: Table) -> None:
    table.add("a", "b", "c")
    source = feed(table, max_files_per_trigger=2)
    start = source.initial()
    table.commit(cdc("d"), cdc("e"), cdc("f"), operation="UPDATE")
    table.add("g")
    table.commit(cdc("h"), cdc("i"), operation="UPDATE")
    table.add("j", "k", "l")
    found = [[name for name, *_ in one] for one in batches(source, start)]
    assert found == [["a", "b"], ["c"], ["d", "e", "f"], ["g"], ["h", "i"], ["j", "k"], ["l"]]


def test_bytes_part_files_but_not_the_changes_of_a_version(table: Table) -> None:
    table.add("a", size=10)
    source = feed(table, max_bytes_per_trigger="25b")
    start = source.initial()
    table.commit(cdc("b"), cdc("c"), operation="UPDATE")
    table.commit(cdc("d", 100), operation="UPDATE")
    table.add("e", "f", size=20)
    found = [[name for name, *_ in one] for one in batches(source, start)]
    assert found == [["a"], ["b", "c", "d"], ["e", "f"]]


def test_a_version_with_vectors_is_in_one_batch(table: Table) -> None:
    encoded = inline(BitMap64([1, 3]))
    deleted = {
        "storageType": "i",
        "pathOrInlineDv": encoded.path_or_inline_dv,
        "sizeInBytes": encoded.size_in_bytes,
        "cardinality": 2,
    }
    table.add("a", "b", "c")
    source = feed(table, max_files_per_trigger=1)
    start = source.newest(source.initial())
    gone = {"size": 10, "partitionValues": {}}
    table.commit(removed("a", **gone), added("a", deletionVector=deleted), operation="DELETE")
    table.commit(removed("b", **gone), removed("c", **gone), added("d"), operation="WRITE")
    table.commit(removed("d", **gone), added("d"), operation="WRITE")  # two listings of one file
    table.add("e", deletionVector=vector(1))
    position, ends = start, []
    while (end := source.latest(position, limited=True)) != position:
        ends.append((end.place, shown(source.changes(position, end))))
        for one in source.changes(position, end):
            assert list(one.only or ()) == ([1, 3] if one.file.path == "a" else [])
        position = end
    assert ends == [
        ((4, 0), [("a", "delete", 3)]),
        ((4, 1), [("b", "delete", 4)]),
        ((4, 2), [("c", "delete", 4)]),
        ((5, 0), [("d", "insert", 4)]),
        ((6, 0), []),
        ((7, 0), [("e", "insert", 6)]),
    ]


# --- what stops it --------------------------------------------------------------------------------


def test_a_version_without_a_feed_stops_the_stream(table: Table) -> None:
    said = r"DELTA_MISSING_CHANGE_DATA.*version {} recorded no changes.*new checkpoint"
    early = feed(table, starting_version=0)
    with pytest.raises(InvalidRequest, match=said.format(0)):
        early.latest(early.initial(), limited=True)
    running = feed(table)
    start = running.initial()
    table.add("a")
    table.commit(setting(table), operation="UNSET TBLPROPERTIES")
    table.add("b")
    end = running.latest(start, limited=True)
    assert shown(running.changes(start, end)) == [("a", "insert", 2)]
    with pytest.raises(InvalidRequest, match=said.format(3)):
        running.latest(end, limited=True)
    table.commit(setting(table, **FEED), operation="SET TBLPROPERTIES")
    with pytest.raises(InvalidRequest, match=said.format(3)):
        feed(table).latest(end, limited=True)
    assert batches(feed(table, starting_version=5)) == [[]]


def test_versions_that_are_gone_may_have_turned_it_off(table: Table) -> None:
    table.add("a")
    source = feed(table)
    start = source.newest(source.initial())
    table.commit(setting(table), operation="UNSET TBLPROPERTIES")
    table.add("b")
    table.log.checkpoint()
    table.commit(setting(table, **FEED), operation="SET TBLPROPERTIES")
    table.lose(3)
    again = feed(table, fail_on_data_loss=False)
    gap = again.latest(start, limited=True)
    with pytest.raises(InvalidRequest, match="version 4 recorded no changes"):
        again.latest(gap, limited=True)


def test_a_replaced_table_and_another_schema_stop_it_as_any_stream(table: Table) -> None:
    source = feed(table)
    start = source.latest(source.initial(), limited=True)
    table.commit(setting(table, "id", "more", **FEED), operation="ADD COLUMNS")
    table.commit(cdc("c"), operation="UPDATE")
    with pytest.raises(InvalidRequest, match=r"version 2 .*'more'.*Start the query again"):
        source.latest(start, limited=True)
    assert batches(feed(table), start) == [[("c", None, 3)]]
    table.table_id = "two"
    table.commit(setting(table, **FEED), operation="REPLACE TABLE")
    with pytest.raises(InvalidRequest, match="began on the table with id one"):
        feed(table).latest(start, limited=True)


def test_rows_of_former_columns_that_went_with_them_stop_it(table: Table) -> None:
    table.add("a")
    gone = removed("a", size=10, partitionValues={})
    table.commit(setting(table, "name:string", **FEED), gone, added("b"), operation="WRITE")
    source = feed(table, starting_version=3)
    with pytest.raises(InvalidRequest, match="at version 2 it has the column 'id'"):
        source.latest(source.initial(), limited=True)
    told = table.commit(cdc("c"), operation="UPDATE")
    assert batches(feed(table, starting_version=told)) == [[("c", None, told)]]


def test_a_checkpoint_is_that_of_a_feed_or_not(table: Table) -> None:
    table.add("a")
    for began, goes_on, said in (
        (feed(table), table.source(), "began with readChangeFeed, and goes on without"),
        (table.source(), feed(table), "began without readChangeFeed, and goes on with it"),
    ):
        start = began.initial()
        assert Offset.from_json(start.to_json()) == start
        asks: tuple[Callable[[], object], ...] = (
            partial(goes_on.latest, start, limited=True),
            partial(goes_on.files, start, start),
        )
        for ask in asks:
            with pytest.raises(InvalidRequest, match=said):
                ask()
    assert "readsChangeFeed" not in at(1).to_json()


def test_both_names_of_the_option_and_its_values() -> None:
    for name in ("readChangeFeed", "readChangeData", "READCHANGEFEED"):
        assert source_options({name: "true"}).read_change_feed
        assert not source_options({name: "false"}).read_change_feed
        with pytest.raises(InvalidRequest, match="expected true or false"):
            source_options({"readChangeFeed": "true", name: "yes"})


# --- the rows -------------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path) -> Iterator[RowSession]:
    warehouse = open_store(str(tmp_path / "lake"), {})
    system = System()
    catalog = Catalog("sqlite://", system)
    engine = RowEngine(system=system, settings=Settings(), warehouse=warehouse, catalog=catalog)
    yield RowSession(engine)
    engine.close()


def source_of(session: RowSession, **options: object) -> tuple[Source, FeedPlan]:
    handle = session.engine.find(TableName(("t",)), "default")
    assert handle is not None
    own = handle.log.latest()
    given = source_options(camel_options({"read_change_feed": True, **options}))
    return Source(handle.log, own, given), FeedPlan(own, {}, feed_schema(own))


def streamed(
    session: RowSession, source: Source, plan: FeedPlan, start: Offset, end: Offset
) -> list[dict[str, object]]:
    """The rows that tasks give Spark."""
    handle = session.engine.find(TableName(("t",)), "default")
    assert handle is not None
    found: list[dict[str, object]] = []
    for task, files in plan.parts(source.changes(start, end), session.engine.reach(handle)):
        assert isinstance(task, StreamTask)
        found += [row for batch in task.rows(files) for row in batch.to_pylist()]
    return found


def told_in_batches(session: RowSession, sql: str) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in session.rows(sql))


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", TABLES)
def test_a_stream_tells_what_table_changes_tells(session: RowSession, kind: str, seed: int) -> None:
    """Whatever the limits, and the whole table where it begins."""
    create(session, kind)
    program = Program(seed)
    session.rows(f"INSERT INTO t VALUES {program.values(8)}")
    for statement in (program.update(), program.delete()):
        session.rows(statement)
    source, plan = source_of(session, max_files_per_trigger=1 + seed)
    start = position = source.initial()
    began = start.version
    expected = told_in_batches(session, "SELECT *, 'insert' FROM t")
    for _ in range(8):
        for statement in program.statements([1] if kind == "tracked rows" else [1, 2, 4]):
            session.rows(statement)
    found: list[dict[str, object]] = []
    while (end := source.latest(position, limited=True)) != position:
        batch = streamed(session, source, plan, position, end)
        for version in {row["_commit_version"] for row in batch}:
            images = Counter(
                row["_change_type"] for row in found if row["_commit_version"] == version
            )
            assert images.keys() <= {"insert", "delete"}, "an update is in one batch"
        found += batch
        position = end
    first = [row for row in found if row["_commit_version"] == began]
    assert Counter(tuple(row.values())[:4] for row in first) == expected
    later = Counter(tuple(row.values()) for row in found if row["_commit_version"] != began)
    if newest(session) > began:
        assert later == told_in_batches(session, f"SELECT * FROM table_changes('t', {began + 1})")
    assert sorted(map(str, streamed(session, source, plan, start, position))) == sorted(
        map(str, found)
    )


def test_rows_of_a_key_come_in_the_order_of_their_commits(session: RowSession) -> None:
    """Some versions tell in change data files, some by what they add and remove."""
    session.rows(
        "CREATE TABLE t (id BIGINT, v BIGINT) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    for statement in (
        "INSERT INTO t VALUES (1, 0), (2, 0)",
        "UPDATE t SET v = 1 WHERE id = 1",
        "INSERT INTO t VALUES (3, 0), (4, 0)",
        "UPDATE t SET v = 2 WHERE id = 3",
        "DELETE FROM t",
    ):
        session.rows(statement)
    source, plan = source_of(session, starting_version=0)
    start = source.initial()
    found = streamed(session, source, plan, start, source.latest(start, limited=True))
    versions = [row["_commit_version"] for row in found]
    assert versions == sorted(versions)  # type: ignore[type-var]
    assert set(versions) == {1, 2, 3, 4, 5}


def test_a_feed_that_isnt_there_is_refused_at_once(session: RowSession) -> None:
    session.rows("CREATE TABLE t (id BIGINT)")
    with pytest.raises(InvalidRequest, match=r"version 0 recorded no changes, as delta.enable"):
        source_of(session)
