"""Another engine compacts files while txlake changes rows of them, and its tombstones say where.

No released engine but Databricks writes these tags. Here Delta Spark and delta-rs compact, and what
they did is read from their files and noted in their commit, as Delta Spark is proposed to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

import txlake
from tests.shared_tables.operations import Operation
from tests.shared_tables.workers import Worker
from txlake.errors import Conflict

pytestmark = [
    pytest.mark.broad(keep=1),
    pytest.mark.timeout(900),
    pytest.mark.no_interop("other engines read every table here"),
]
COMPACTION = Operation(kind="optimize", marker="theirs")
WORK = ("DELETE FROM {} WHERE id IN (3, 12)", "UPDATE {} SET n = -n WHERE id IN (5, 14, 15)")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[txlake.Lake]:
    """One lake for all of the tests."""
    with txlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark) as opened:
        yield opened


@pytest.fixture
def folder(lake: txlake.Lake, tmp_path: Path) -> Path:
    """A table of two files with ids 1 to 8 and 11 to 18; a row of each is deleted."""
    place = tmp_path / "t"
    lake.sql(f"CREATE TABLE delta.`{place}` (id BIGINT, n BIGINT)")
    for start in (1, 11):
        ids = pa.array(range(start, start + 8), pa.int64())
        lake.write(pa.table({"id": ids, "n": ids}), str(place), "append")
    lake.sql(f"DELETE FROM delta.`{place}` WHERE id IN (2, 17)")
    return place


def noted(folder: Path) -> list[list[int]]:
    """Note in the newest commit where the rows of its removed files are; the ids of its outputs."""
    path = max((folder / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    outputs = {line["add"]["path"]: ids(folder, line["add"]) for line in lines if "add" in line}
    for line in lines:
        if "remove" in line:
            note(line["remove"], ids(folder, line["remove"]), outputs)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(outputs.values())


def ids(folder: Path, action: dict[str, Any]) -> list[int]:
    """The ids of a file, by position."""
    found: list[int] = pq.read_table(folder / unquote(action["path"]))["id"].to_pylist()
    return found


def note(remove: dict[str, Any], rows: list[int], outputs: dict[str, list[int]]) -> None:
    """Note in a tombstone where the file's live rows are: in one output, in their order."""
    [(path, held)] = [(path, held) for path, held in outputs.items() if set(rows) & set(held)]
    live = [row for row in rows if row in held]
    start = held.index(live[0])
    assert held[start : start + len(live)] == live, "the engine has changed the order"
    remove["tags"] = {
        "compactedInto": json.dumps([path]),
        "compactionInfo": json.dumps(
            [{"rowOffsetInTarget": start, "sourceNumPhysicalRecords": len(rows)}]
        ),
    }


def rows_of(place: Path) -> dict[int, int]:
    """The rows, by delta-rs."""
    table = QueryBuilder().register("t", DeltaTable(place))
    rows = pa.table(table.execute("SELECT id, n FROM t").read_all())
    found = dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


def begun(lake: txlake.Lake, folder: Path) -> list[txlake.Transaction]:
    """Two transactions that have changed rows of both files, and not committed."""
    transactions = []
    for statement in WORK:
        transactions.append(lake.begin())
        transactions[-1].sql(statement.format(f"delta.`{folder}`"))
    return transactions


@pytest.mark.parametrize("engine", ["delta-spark", "delta-rs"])
def test_changes_follow_the_rows(
    lake: txlake.Lake, workers: dict[str, Worker], folder: Path, engine: str
) -> None:
    open_ones = begun(lake, folder)
    workers[engine].apply(folder, COMPACTION)
    [output] = noted(folder)
    assert sorted(output) == [1, *range(3, 9), *range(11, 17), 18]
    for one in open_ones:
        one.commit()
    left = {row: -row if row in (5, 14, 15) else row for row in output if row not in (3, 12)}
    assert rows_of(folder) == left
    expected = [{"id": row, "n": left[row]} for row in sorted(left)]
    version = DeltaTable(folder).version()
    for name in ("txlake", "delta-spark", "polars"):
        [found] = workers[name].read(folder, [version])
        assert sorted(map(json.loads, found), key=lambda row: row["id"]) == expected, name


@pytest.mark.parametrize("engine", ["delta-spark", "delta-rs"])
def test_without_the_tags_it_is_a_conflict(
    lake: txlake.Lake, workers: dict[str, Worker], folder: Path, engine: str
) -> None:
    open_ones = begun(lake, folder)
    workers[engine].apply(folder, COMPACTION)
    for one in open_ones:
        with pytest.raises(Conflict):
            one.commit()
    assert len(rows_of(folder)) == 14


@pytest.mark.parametrize(
    "how", ["OPTIMIZE {}", "OPTIMIZE {} ZORDER BY (n)", "REORG TABLE {} APPLY (PURGE)"]
)
def test_what_txlake_notes_is_where_the_rows_are(lake: txlake.Lake, folder: Path, how: str) -> None:
    """Of a file that was sorted into others it says nothing, or what is true."""
    lake.sql(how.format(f"delta.`{folder}`"))
    path = max((folder / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    outputs = {line["add"]["path"]: ids(folder, line["add"]) for line in lines if "add" in line}
    removed = [line["remove"] for line in lines if "remove" in line]
    assert len(removed) == 2
    tagged = [one for one in removed if "compactedInto" in one.get("tags", {})]
    assert "ZORDER" in how or tagged == removed
    for one in tagged:
        rows, noted_tags = ids(folder, one), dict(one["tags"])
        note(one, rows, outputs)
        assert one["tags"] == {key: json.dumps(json.loads(noted_tags[key])) for key in one["tags"]}
