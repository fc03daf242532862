"""Streams of a branch: its own versions and tables, and checkpoints that belong to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import txlake
from txlake.errors import InvalidRequest
from txlake.lake import streams
from txlake.lake.micro_batches import BatchWork, TableSink
from txlake.lake.server_batches import _engine
from txlake.lake.streaming.offsets import Offset
from txlake.lake.streaming.opening import open_session
from txlake.lake.streaming.options import Place, place_of, place_options, source_options
from txlake.lake.streaming.progress import FOLDER
from txlake.lake.streaming.reader import UnlimitedReader, stream_columns
from txlake.lake.streaming.source import Source
from txlake.lake.streaming.writer import stream_writer
from txlake.session.branch_use import BranchMark, mark_of
from txlake.sql.statements import table_of

QUERY = "0000-1111"
BATCH: Any = pa.table({"id": [1, 2]})


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[txlake.Lake]:
    """A lake with a table of one row, and a branch with one more."""
    with txlake.connect(str(tmp_path / "lake")) as opened:
        opened.write(ids(1), "t")
        opened.branch("x", create=True).write(ids(2), "t", "append")
        yield opened


def reader(lake: txlake.Lake, branch: str | None = "x", **options: str) -> UnlimitedReader:
    warehouse = lake._session.engine.warehouse
    assert warehouse is not None
    named = {} if branch is None else {"branch": branch}
    given = {"path": "t", "lake": warehouse.url, **named, **options}
    return UnlimitedReader(given, stream_columns(given))


def read(made: UnlimitedReader, start: Any, end: Any) -> list[int]:
    tables = [
        batch for part in made.partitions(start, end) if part.value for batch in made.read(part)
    ]
    return sorted(n for batch in tables for n in batch["id"].to_pylist())


def test_a_stream_has_the_branchs_own_versions(lake: txlake.Lake) -> None:
    on_branch, on_main = reader(lake), reader(lake, None)
    first = on_branch.initialOffset()
    then = on_branch.latestOffset()
    assert read(on_branch, first, then) == [1, 2]
    assert read(on_main, on_main.initialOffset(), on_main.latestOffset()) == [1]
    lake.write(ids(8), "t", "append")
    lake.branch("x").write(ids(3), "t", "append")
    assert read(on_branch, then, on_branch.latestOffset()) == [3]
    on_branch.stop()
    on_main.stop()


def test_a_stream_begins_anywhere_on_the_branch(lake: txlake.Lake) -> None:
    """Also at the versions that the branch has of main."""
    for version, found in ((0, [1, 2]), (1, [2]), (2, [])):
        made = reader(lake, startingVersion=str(version))
        assert read(made, made.initialOffset(), made.latestOffset()) == found
        made.stop()


def offset_on(lake: txlake.Lake, branch: str | None) -> dict[str, object]:
    made = reader(lake, branch)
    found = made.latestOffset()
    made.stop()
    return found


def goes_on(lake: txlake.Lake, branch: str | None, offset: dict[str, object]) -> None:
    made = reader(lake, branch)
    try:
        made.partitions(offset, offset)
    finally:
        made.stop()


ENDS: dict[str, Callable[[txlake.Branch], object]] = {
    "publish": lambda b: b.publish(),
    "drop": lambda b: b.drop(),
    "rebase": lambda b: b.rebase(),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_source_checkpoint_belongs_to_its_branch(lake: txlake.Lake, end: str) -> None:
    of_main, of_x = offset_on(lake, None), offset_on(lake, "x")
    lake.branch("y", create=True)
    goes_on(lake, "x", of_x)
    goes_on(lake, "main", of_main)
    way_out = "skipped, or read twice. Use a new checkpointLocation, and startingVersion"
    for branch, offset, said in (
        (None, of_x, "reads branch 'x', and this one reads main"),
        ("x", of_main, "reads main, and this one reads branch 'x'"),
        ("y", of_x, "reads branch 'x', and this one reads branch 'y'"),
    ):
        with pytest.raises(InvalidRequest, match=f"{said}.*{way_out}"):
            goes_on(lake, branch, offset)
    ENDS[end](lake.branch("x"))
    with pytest.raises(InvalidRequest, match="reads branch 'x', and this one reads main"):
        goes_on(lake, None, of_x)
    lake.branch("x", create=True)
    with pytest.raises(InvalidRequest, match="'x' as it is now: that one was published"):
        goes_on(lake, "x", of_x)


@pytest.mark.parametrize("end", ENDS)
def test_a_stream_that_runs_is_told_that_its_branch_ended(lake: txlake.Lake, end: str) -> None:
    made = reader(lake)
    first = made.initialOffset()
    ENDS[end](lake.branch("x"))
    for ask in (made.latestOffset, made.initialOffset, lambda: made.partitions(first, first)):
        with pytest.raises(InvalidRequest, match="branch 'x' has ended"):
            ask()
    made.stop()


def test_a_stream_that_runs_is_told_that_its_branch_expired(
    lake: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sql("CREATE BRANCH short RETAIN 1 HOUR")
    made = reader(lake, "short")
    made.initialOffset()
    now_ms = txlake.system.System.now_ms
    monkeypatch.setattr(txlake.system.System, "now_ms", lambda self: now_ms(self) + 3_600_001)
    with pytest.raises(InvalidRequest, match="branch 'short' has expired"):
        made.latestOffset()
    with pytest.raises(InvalidRequest, match="no branch 'short'"):
        reader(lake, "short")
    made.stop()


def test_a_branch_is_known_by_its_id(lake: txlake.Lake) -> None:
    """Where a program's stream goes on in another process."""
    place = streams._place(lake.branch("x")._session, table_of("t"))
    assert place_of(place_options(place)) == place
    with open_session(place) as session:
        assert mark_of(session.engine) == BranchMark(str(place.branch_id), "x")
    outside = streams._place(lake.branch("x")._session, table_of("/somewhere/else"))
    assert outside.branch is None
    lake.branch("x").rebase()
    with (
        pytest.raises(InvalidRequest, match=r"branch 'x' has ended.* Make the stream anew"),
        open_session(place),
    ):
        pass


def test_no_branch_of_no_lake(tmp_path: Path, lake: txlake.Lake) -> None:
    with (
        pytest.raises(InvalidRequest, match="a branch is of a lake, and no lake is given"),
        open_session(Place(table=str(tmp_path / "t"), branch="x")),
    ):
        pass
    with pytest.raises(InvalidRequest, match="no branch 'nowhere'"):
        reader(lake, "nowhere")


@pytest.mark.parametrize(
    "change", [{"format": 1}, {"branchId": None}, {"format": 3}], ids=["older", "no id", "newer"]
)
def test_an_offset_of_a_branch_is_no_older_format(
    lake: txlake.Lake, change: dict[str, object]
) -> None:
    """An older txlake would go on with main's versions."""
    found = offset_on(lake, "x")
    assert Offset.from_json(json.loads(json.dumps(found))).to_json() == found
    wrong = {key: value for key, value in {**found, **change}.items() if value is not None}
    with pytest.raises(InvalidRequest, match="in format 1 or 2"):
        Offset.from_json(wrong)


# Sinks


def work(tx: Any, batch: Any) -> None:
    for name in ("one", "two"):
        tx.write(batch, name, "append")


SINKS: dict[str, TableSink | BatchWork] = {
    "table": TableSink(table="one", checkpoint="", output_mode="append"),
    "work": BatchWork(work=work, checkpoint=""),
}


def commit(session: txlake.LakeSession, number: int, sink: str) -> None:
    with session._session_on(session._session.engine) as own:
        SINKS[sink].commit(own, QUERY, number, BATCH)


def files(session: txlake.LakeSession) -> int:
    """How often the batch was added: each time is a file."""
    return len(list(session._session.snapshot(table_of("one")).files.adds()))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_writes_a_batch_of_the_branch_once(lake: txlake.Lake, sink: str, end: str) -> None:
    for name in ("one", "two"):
        lake.write(ids(), name)
    x = lake.branch("x", create=True)
    x.rebase()
    for number in (0, 0, 1, 0, 1):
        commit(x, number, sink)
    assert (files(x), files(lake)) == (2, 0)
    said = "writes to branch 'x', and has read its source so far; this one writes to"
    with pytest.raises(InvalidRequest, match=f"{said} main.*checkpoint of its own"):
        commit(lake, 2, sink)
    with pytest.raises(InvalidRequest, match=f"{said} branch 'y'"):
        commit(lake.branch("y", create=True), 2, sink)
    ENDS[end](lake.branch("x"))
    with pytest.raises(InvalidRequest, match="branch 'x' has ended"):
        commit(x, 2, sink)
    with pytest.raises(InvalidRequest, match=f"{said} main.*after a branch was published"):
        commit(lake, 2, sink)
    with pytest.raises(InvalidRequest, match=f"{said} branch 'x' as it is now: that one was pub"):
        commit(lake.branch("x", create=True), 2, sink)
    assert files(lake) == (2 if end == "publish" else 0)


@pytest.mark.parametrize("sink", SINKS)
def test_a_query_of_main_does_not_go_on_on_a_branch(lake: txlake.Lake, sink: str) -> None:
    """Its rows are in the branch's table up to the fork, and so are its numbers."""
    for name in ("one", "two"):
        lake.write(ids(), name)
    commit(lake, 0, sink)
    x = lake.branch("of_later", create=True)
    with pytest.raises(InvalidRequest, match=r"writes to main, .* this one writes to branch 'of_l"):
        commit(x, 1, sink)
    assert files(x) == files(lake) == 1
    commit(lake, 1, sink)


def test_the_formats_sink_writes_to_a_branch(lake: txlake.Lake, tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    warehouse = lake._session.engine.warehouse
    assert warehouse is not None

    def batch(number: int, **options: str) -> None:
        given = {"path": "t", "lake": warehouse.url, "checkpointlocation": str(tmp_path)}
        made: Any = stream_writer({**given, **options}, StructType().add("id", "long"), False)
        made.commit([made.write(iter(ids(5).to_batches()))], number)

    for number in (0, 1, 0, 1):
        batch(number, branch="x")
    x = lake.branch("x")
    found = [len(list(one._session.snapshot(table_of("t")).files.adds())) for one in (x, lake)]
    assert found == [4, 1]
    record = json.loads((tmp_path / "lake" / FOLDER / f"{QUERY}.json").read_text())
    assert record["branch"]["name"] == "x"
    with pytest.raises(InvalidRequest, match="writes to branch 'x'"):
        batch(2)


def test_the_servers_engine_is_the_branchs(
    lake: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "txlake.lake.server_batches"
    monkeypatch.setattr(f"{module}.engine_of_batches", lambda engine, spark: engine)
    monkeypatch.setattr(f"{module}._engines", {})
    monkeypatch.setattr(f"{module}.is_same", lambda one, other: one is other)
    spark: Any = object()
    mark = mark_of(lake.branch("x")._session.engine)
    for wanted in (None, mark, mark, None):
        assert mark_of(_engine(lake, QUERY, spark, wanted)) == wanted
    lake.branch("x").rebase()
    with pytest.raises(InvalidRequest, match="branch 'x' has ended"):
        _engine(lake, QUERY, spark, mark)


def test_a_source_of_main_is_as_before(lake: txlake.Lake) -> None:
    handle = lake._session.engine.find(table_of("t"), "default")
    assert handle is not None
    made = Source(handle.log, handle.log.latest(), source_options({}))
    assert "branchId" not in made.initial().to_json()
    assert made.initial().to_json()["format"] == 1


# Branches of path tables


@pytest.fixture
def path_table(lake: txlake.Lake, tmp_path: Path) -> str:
    """A path table of one row, with a branch that has one more."""
    place = str(tmp_path / "outside")
    lake.write(ids(1), place)
    lake.sql(f"CREATE BRANCH b FOR TABLE delta.`{place}`")
    lake.write(ids(2), f"{place}@branch:b", "append")
    return place


def test_a_checkpoint_belongs_to_a_path_tables_branch(lake: txlake.Lake, path_table: str) -> None:
    def opened(place: str) -> UnlimitedReader:
        return UnlimitedReader({"path": place}, stream_columns({"path": place}))

    on_branch, on_main = opened(f"{path_table}@branch:b"), opened(path_table)
    of_branch, of_main = on_branch.latestOffset(), on_main.latestOffset()
    assert read(on_branch, on_branch.initialOffset(), of_branch) == [1, 2]
    assert read(on_main, on_main.initialOffset(), of_main) == [1]
    with pytest.raises(InvalidRequest, match="reads branch 'b', and this one reads main"):
        on_main.partitions(of_branch, of_branch)
    with pytest.raises(InvalidRequest, match="reads main, and this one reads branch 'b'"):
        on_branch.partitions(of_main, of_main)
    lake.sql(f"PUBLISH BRANCH b FOR TABLE delta.`{path_table}`")
    with pytest.raises(InvalidRequest, match="branch 'b' has ended: it was published"):
        on_branch.latestOffset()
    lake.sql(f"CREATE BRANCH b FOR TABLE delta.`{path_table}`")
    with pytest.raises(InvalidRequest, match="branch 'b' has ended, and this is another one"):
        on_branch.latestOffset()
    on_branch.stop()
    on_main.stop()


def test_a_sink_belongs_to_a_path_tables_branch(lake: txlake.Lake, path_table: str) -> None:
    def put(place: str, number: int) -> None:
        sink = TableSink(table=place, checkpoint="", output_mode="append")
        with lake.session() as own:
            sink.commit(own, QUERY, number, BATCH)

    for _ in range(2):
        put(f"{path_table}@branch:b", 0)
    with pytest.raises(InvalidRequest, match=r"writes to branch 'b', .* writes to main"):
        put(path_table, 1)
    lake.sql(f"PUBLISH BRANCH b FOR TABLE delta.`{path_table}`")
    with pytest.raises(InvalidRequest, match=r"writes to branch 'b', .* writes to main"):
        put(path_table, 1)
