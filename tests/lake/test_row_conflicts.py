"""Writers of different rows both commit, on the real engine: in one file, and beside a compaction.

Statements run while others are open and commit in orders of the test's choosing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from msgspec.structs import replace
from pyroaring import BitMap64
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import txlake
from tests.lake.rows import query
from txlake.commit.data_plane import Condition
from txlake.conflict.context import FileRows
from txlake.conflict.footprint import Read
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    Conflict,
    SerializableIsolationViolation,
)
from txlake.log.predicates import parse_predicate
from txlake.session.engine import Handle
from txlake.spark.probe import SparkProbe
from txlake.spark.table_access import calls_are_of_the_row
from txlake.sql.statements import SqlText, TablePath

pytestmark = pytest.mark.broad(keep=5)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[txlake.Lake]:
    """One lake for all of the tests."""
    folder = tmp_path_factory.mktemp("rows")
    with txlake.connect(str(folder), spark=spark) as opened:
        yield opened


@pytest.fixture
def place(lake: txlake.Lake, tmp_path: Path) -> str:
    """A table of two files: ids 1 to 6 with `a` to `f`, and 11 to 16."""
    path = str(tmp_path / "t")
    lake.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, s STRING)")
    for start in (1, 11):
        ids = pa.array(range(start, start + 6), pa.int64())
        lake.write(pa.table({"id": ids, "s": list("abcdef")}), path, "append")
    return path


def rows_of(place: str) -> dict[int, str]:
    """The rows, by delta-rs."""
    table = QueryBuilder().register("t", DeltaTable(place))
    rows = pa.table(table.execute("SELECT id, s FROM t").read_all())
    found = dict(zip(rows["id"].to_pylist(), rows["s"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


def begun(lake: txlake.Lake, place: str, *statements: str) -> list[txlake.Transaction]:
    """Transactions that have run these statements on one version."""
    found = []
    for statement in statements:
        tx = lake.begin()
        tx.sql(statement.format(t=f"delta.`{place}`"))
        found.append(tx)
    return found


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_four_writers_and_a_compaction(lake: txlake.Lake, place: str, seed: int) -> None:
    statements = (
        "UPDATE {t} SET s = 'one' WHERE id = 1",
        "UPDATE {t} SET s = 'two' WHERE id = 2",
        "DELETE FROM {t} WHERE id IN (3, 11)",
        "DELETE FROM {t} WHERE s = 'f' AND id < 10",
        "OPTIMIZE {t}",
    )
    before = rows_of(place)
    after = {**before, 1: "one", 2: "two"}
    for gone in (3, 11, 6):
        del after[gone]
    order = list(permutations(begun(lake, place, *statements)))[random.Random(seed).randrange(120)]
    for tx in order:
        tx.commit()
    assert rows_of(place) == after
    assert dict(query(lake, f"SELECT * FROM delta.`{place}`")) == after  # type: ignore[arg-type]
    [last] = lake.table(place).history(1).collect()
    assert (last.version, last.readVersion) == (7, 2)
    assert last.operationMetrics["numRebasedCommits"] == "4"
    assert last.isolationLevel in ("WriteSerializable", "SnapshotIsolation")


@pytest.mark.parametrize("where", [0, 2, 4])
def test_a_compaction_in_between(lake: txlake.Lake, place: str, where: int) -> None:
    *changes, compaction = begun(
        lake,
        place,
        "UPDATE {t} SET s = 'x' WHERE id IN (1, 12)",
        "DELETE FROM {t} WHERE id = 6",
        "UPDATE {t} SET id = 100 WHERE id = 16",
        "DELETE FROM {t} WHERE id = 13",
        "OPTIMIZE {t}",
    )
    for tx in [*changes[:where], compaction, *changes[where:]]:
        tx.commit()
    expected = {1: "x", 2: "b", 3: "c", 4: "d", 5: "e", 11: "a", 12: "x", 14: "d", 15: "e"}
    assert rows_of(place) == {**expected, 100: "f"}


def test_the_same_row_is_a_conflict_that_names_it(lake: txlake.Lake, place: str) -> None:
    first, second = begun(
        lake, place, "DELETE FROM {t} WHERE id = 3", "UPDATE {t} SET s = 'x' WHERE id < 4"
    )
    first.commit()
    with pytest.raises(ConcurrentDeleteDeleteException, match=r"1 rows of .*at positions \(2,\)"):
        second.commit()
    assert 3 not in rows_of(place)


def test_a_row_moved_into_the_condition(lake: txlake.Lake, place: str) -> None:
    first, second = begun(
        lake, place, "UPDATE {t} SET id = 3 WHERE id = 16", "DELETE FROM {t} WHERE id = 3"
    )
    first.commit()
    with pytest.raises(ConcurrentAppendException) as caught:
        second.commit()
    assert caught.value.evidence is not None
    [found] = caught.value.evidence.rows
    assert (found["count"], found["positions"]) == (1, (0,))


MERGE = (
    "MERGE INTO {t} AS t USING (SELECT * FROM VALUES %s AS v (id, s)) AS new ON t.id = new.id "
    "WHEN MATCHED THEN UPDATE SET s = new.s WHEN NOT MATCHED THEN INSERT *"
)


def test_merges_of_other_keys(lake: txlake.Lake, place: str) -> None:
    rows = ("(1L, 'x'), (20L, 'y')", "(2L, 'x'), (21L, 'y')", "(6L, 'x')", "(3L, 'x')")
    merges = begun(lake, place, *(MERGE % one for one in rows))
    for tx in merges:
        tx.commit()
    found = rows_of(place)
    assert {row: found[row] for row in (1, 2, 3, 4, 6, 20, 21)} == {
        1: "x", 2: "x", 3: "x", 4: "d", 6: "x", 20: "y", 21: "y",
    }  # fmt: skip


@pytest.mark.parametrize("rows", ["(1L, 'z')", "(20L, 'z')", "(3L, 'z'), (1L, 'z')"])
def test_merges_of_one_key(lake: txlake.Lake, place: str, rows: str) -> None:
    first, second = begun(lake, place, MERGE % "(1L, 'x'), (20L, 'y')", MERGE % rows)
    first.commit()
    with pytest.raises(ConcurrentAppendException):
        second.commit()


def test_a_merge_that_looks_at_all_rows(lake: txlake.Lake, place: str) -> None:
    by_source = MERGE % "(1L, 'x')" + " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET s = 'w'"
    first, second = begun(lake, place, "INSERT INTO {t} SELECT 99L, s FROM {t} LIMIT 1", by_source)
    first.commit()
    with pytest.raises(ConcurrentAppendException):
        second.commit()


def test_a_merge_that_looks_at_rows_of_its_conditions(lake: txlake.Lake, place: str) -> None:
    by_source = MERGE % "(1L, 'x')" + " WHEN NOT MATCHED BY SOURCE AND t.id = 16 THEN DELETE"
    first, second = begun(lake, place, "UPDATE {t} SET s = 'u' WHERE id = 3", by_source)
    first.commit()
    second.commit()


# Spark looks where the driver can't tell


@pytest.mark.parametrize(
    ("condition", "conflicts"),
    [
        ("upper(s) = 'C'", False),
        ("t.id % 7 = 5", False),
        ("length(s) = 1 AND t.id % 2 = 1", False),
        ("CAST(id AS STRING) LIKE '1%'", False),
        ("upper(s) IN ('X', 'C')", True),
        ("CAST(id AS STRING) LIKE '%2'", True),
        ("NOT (upper(t.s) = 'B')", True),
    ],
)
def test_conditions_that_only_spark_evaluates(
    lake: txlake.Lake, place: str, condition: str, conflicts: bool
) -> None:
    first, second = begun(
        lake,
        place,
        "UPDATE {t} SET s = 'x' WHERE id = 2",
        "UPDATE {t} AS t SET s = 'y' WHERE " + condition,
    )
    first.commit()
    if not conflicts:
        second.commit()
        return
    with pytest.raises(ConcurrentAppendException) as caught:
        second.commit()
    assert caught.value.evidence is not None
    assert caught.value.evidence.rows[0]["positions"] == (0,)


@pytest.mark.parametrize(
    "condition",
    [
        "if(rand() < 2, id = 5, true)",
        "id IN (SELECT 5)",
        "if(current_date() IS NULL, true, id = 5)",
    ],
)
def test_conditions_of_more_than_the_row_are_judged_by_file(
    lake: txlake.Lake, place: str, condition: str
) -> None:
    first, second = begun(
        lake,
        place,
        "DELETE FROM {t} WHERE id = 2",
        "DELETE FROM {t} WHERE " + condition,
    )
    first.commit()
    with pytest.raises(ConcurrentDeleteReadException):
        second.commit()


@pytest.mark.parametrize("condition", ["nested.a = 5", "items[0] = 5", "keys['k'] = 5"])
def test_conditions_on_nested_columns_are_judged_by_file(
    lake: txlake.Lake, tmp_path: Path, condition: str
) -> None:
    place = str(tmp_path / "nested")
    lake.sql(
        f"CREATE TABLE delta.`{place}` "
        "(id BIGINT, nested STRUCT<a: BIGINT>, items ARRAY<BIGINT>, keys MAP<STRING, BIGINT>)"
    )
    lake.sql(
        f"INSERT INTO delta.`{place}` SELECT /*+ COALESCE(1) */ id, named_struct('a', id), "
        "array(id), map('k', id) FROM range(10)"
    )
    first, second = begun(
        lake, place, "DELETE FROM {t} WHERE id = 2", "DELETE FROM {t} WHERE " + condition
    )
    first.commit()
    with pytest.raises(ConcurrentDeleteReadException):
        second.commit()


@pytest.mark.parametrize(
    ("condition", "commits"),
    [
        (lambda: F.col("id") == 5, True),
        (lambda: F.upper("s") == "E", True),
        (lambda: F.expr("id % 7 = 5"), True),
        (lambda: (F.col("id") == 5) | (F.upper("s") == "X"), False),
        (lambda: (F.col("id") == 5) & (F.rand() < 2), False),
        (lambda: (F.col("id") == 5) | F.current_date().isNull(), False),
    ],
    ids=["plain", "function", "text", "matches", "chance", "clock"],
)
def test_conditions_given_as_columns(
    lake: txlake.Lake, place: str, condition: Callable[[], Column], commits: bool
) -> None:
    [first] = begun(lake, place, "UPDATE {t} SET s = 'x' WHERE id = 2")
    second = lake.begin()
    second.table(place).delete(condition())
    first.commit()
    if commits:
        second.commit()
    else:
        with pytest.raises(ConcurrentAppendException):
            second.commit()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=(id, 5)", True),
        ("or(=(upper(s), 'X'), <=>(id, 5))", True),
        ("in(id, 1, 2, 3)", True),
        ("CASE WHEN =(id, 5) THEN true ELSE like(s, 'a(%') END", True),
        ("=(`a b`, 'it\\'s (')", True),
        ("id % 7 = 5", True),
        ("and(=(id, 5), <(rand(123), 2))", False),
        ("or(=(id, 5), isnull(current_date()))", False),
        ("=(mine(id), 1)", False),
        ("=(<lambda>(id), 1)", False),
        ("(id IN (SELECT 5))", False),
        ("=(id, " + "1" * 10_000 + ")", False),
    ],
)
def test_what_spark_says_of_columns(text: str, expected: bool) -> None:
    assert calls_are_of_the_row(text) is expected


class Probed:
    """A table's file, and Spark's look at its rows."""

    def __init__(self, lake: txlake.Lake, place: str) -> None:
        self.engine = lake._session.engine
        self.handle: Handle = self.engine.at(place, TablePath(place))
        self.base = self.handle.log.latest()
        self.file = next(self.base.files.adds())

    def look(self, text: str, *rows: FileRows) -> list[FileRows] | None:
        read = Read(
            predicate=parse_predicate(text), condition=Condition(SqlText(text), "me", "UTC")
        )
        probe = SparkProbe(lambda: self.engine.work(self.handle, self.base))
        found = probe.matching(read, rows)
        return None if found is None else list(found)


def test_what_spark_sees(lake: txlake.Lake, place: str) -> None:
    lake.sql(f"DELETE FROM delta.`{place}` WHERE id = 1")
    table = Probed(lake, place)
    [whole] = [FileRows(file=one) for one in table.base.files.adds() if one.deletion_vector]
    some = FileRows(file=whole.file, positions=BitMap64([1, 2]))
    assert table.look("me.id < 3", whole) == [FileRows(file=whole.file, positions=BitMap64([1]))]
    [other] = [FileRows(file=one) for one in table.base.files.adds() if one != whole.file]
    assert table.look("id >= 3 AND id < 13", some, other) == [
        FileRows(file=whole.file, positions=BitMap64([2])),
        FileRows(file=other.file, positions=BitMap64([0, 1])),
    ]
    assert table.look("id >= 3", whole, some) is None  # one file twice
    assert table.look("id > 3", some) == []
    assert table.look("CAST(s AS INT) = 1", some) is None  # fails
    uncounted = FileRows(file=replace(whole.file, stats=None), positions=BitMap64([1]))
    assert table.look("id = 1", uncounted) is None


def test_spark_is_not_started_for_it(lake: txlake.Lake, place: str) -> None:
    table = Probed(lake, place)
    read = Read(condition=Condition(SqlText("id = 1"), None, "UTC"))
    assert SparkProbe(lambda: None).matching(read, [FileRows(file=table.file)]) is None
    assert SparkProbe(lambda: None).matching(Read(), [FileRows(file=table.file)]) is None


def counted(conflict: Conflict) -> list[tuple[object, object]]:
    assert conflict.evidence is not None
    return [(row["count"], row["positions"]) for row in conflict.evidence.rows]


SELECTS = [
    ("SELECT count(*) FROM {t} WHERE id % 7 = 0", "id % 7 = 0"),
    ("SELECT s, count(*) FROM {t} AS x WHERE x.id % 7 = 0 GROUP BY s ORDER BY s LIMIT 5", "%"),
    ("INSERT INTO other SELECT id FROM {t} WHERE (id % 7) = 0 AND s <> 'WHERE GROUP'", "GROUP"),
]


@pytest.mark.parametrize(("select", "told"), SELECTS)
def test_a_select_whose_condition_only_spark_evaluates(
    lake: txlake.Lake, place: str, select: str, told: str
) -> None:
    lake.sql("CREATE OR REPLACE TABLE other (id BIGINT)")

    def beside(change: str) -> None:
        with lake.transaction("serializable") as tx:
            tx.sql(select.format(t=f"delta.`{place}`"))
            lake.sql(change.format(t=f"delta.`{place}`"))
            tx.sql("INSERT INTO other VALUES (1)")

    beside("DELETE FROM {t} WHERE id = 3")
    beside("INSERT INTO {t} VALUES (22, 'x'), (23, 'y')")
    with pytest.raises(Conflict, match="%") as caught:
        beside("INSERT INTO {t} VALUES (24, 'x'), (35, 'y'), (36, 'z'), (49, 'y')")
    assert counted(caught.value) == [(2, (1, 3))]
    assert told in str(caught.value)
    with pytest.raises(Conflict, match="%") as caught:
        beside("DELETE FROM {t} WHERE id IN (13, 14, 15)")
    assert counted(caught.value) == [(1, (3,))]


def test_a_read_with_a_condition_that_only_spark_evaluates(lake: txlake.Lake, place: str) -> None:
    lake.sql("CREATE OR REPLACE TABLE other (id BIGINT)")
    for where in ("id % 7 = 0", F.col("id") % 7 == 0):
        tx = lake.begin("serializable")
        tx.read(place, where=where).collect()
        lake.sql(f"INSERT INTO delta.`{place}` VALUES (22, 'x')")
        tx.sql("INSERT INTO other VALUES (1)")
        tx.commit()


def test_a_condition_by_chance_or_in_another_time_zone_stays_in_doubt(
    lake: txlake.Lake, place: str, spark: SparkSession
) -> None:
    lake.sql("CREATE OR REPLACE TABLE other (id BIGINT)")
    for where in ("id % 7 = 0", "id > rand() * 1000"):
        tx = lake.begin("serializable")
        tx.sql(f"SELECT * FROM delta.`{place}` WHERE {where}")
        lake.sql(f"INSERT INTO delta.`{place}` VALUES (22, 'x')")
        tx.sql("INSERT INTO other VALUES (1)")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            with pytest.raises(SerializableIsolationViolation) as caught:
                tx.commit()
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        evidence = caught.value.evidence
        assert evidence is not None
        assert [set(row) for row in evidence.rows] == [{"file"}]  # no row is claimed


def test_only_rows_that_match_are_named(lake: txlake.Lake, place: str) -> None:
    lake.sql("CREATE OR REPLACE TABLE other (id BIGINT)")
    tx = lake.begin("serializable")
    tx.sql(f"SELECT * FROM delta.`{place}` WHERE id > 100 OR id % 7 = 0")
    lake.sql(f"INSERT INTO delta.`{place}` VALUES (22, 'x'), (101, 'y')")
    tx.sql("INSERT INTO other VALUES (1)")
    with pytest.raises(SerializableIsolationViolation) as caught:
        tx.commit()
    assert counted(caught.value) == [(1, (1,))]


MERGES = [
    ("id BIGINT", "id", "s.id AS id", "t.id = s.id"),
    ("id BIGINT, t INT, s STRUCT<id: BIGINT>", "id, 0, struct(0L)", "s.id AS id", "t.id = s.id"),
    ("id TIMESTAMP", "timestamp_seconds(id)", "timestamp_seconds(s.id) AS id", "t.id = s.id"),
    ("id BIGINT", "id", "s.id AS a, s.id + 1 AS b", "t.id >= s.a AND t.id < s.b"),
]


@pytest.mark.parametrize(("columns", "row", "key", "on"), MERGES, ids=range(len(MERGES)))
def test_a_merge_meets_changes_of_its_keys_rows_alone(
    lake: txlake.Lake, columns: str, row: str, key: str, on: str
) -> None:
    lake.sql(f"CREATE OR REPLACE TABLE m ({columns}, v INT)")
    lake.sql(f"INSERT INTO m SELECT {row}, 0 FROM range(0, 20, 1, 1)")
    merge = (
        f"MERGE INTO m AS t USING (SELECT {key} FROM (SELECT 5L AS id) AS s) AS s ON {on} "
        "WHEN MATCHED THEN UPDATE SET v = 1"
    )
    row_6, row_5 = (row.replace("id", f"{key_of}L", 1) for key_of in (6, 5))
    with lake.transaction() as tx:
        tx.sql(merge)
        lake.sql(f"INSERT INTO m SELECT {row_6}, 2 FROM m LIMIT 1")
    assert query(lake, "SELECT v, count(*) FROM m GROUP BY v ORDER BY v") == [
        (0, 19),
        (1, 1),
        (2, 1),
    ]
    tx = lake.begin()
    tx.sql(merge)
    lake.sql(f"INSERT INTO m SELECT {row_5}, 2 FROM m LIMIT 1")
    with pytest.raises(ConcurrentAppendException):
        tx.commit()


def test_beside_chance_the_other_parts_of_a_condition_count(lake: txlake.Lake, place: str) -> None:
    half = "DELETE FROM {t} WHERE id = 1 AND rand() < 2"
    for change in ("DELETE FROM {t} WHERE id = 2", "INSERT INTO {t} SELECT id + 90, s FROM {t}"):
        [tx] = begun(lake, place, half)
        lake.sql(change.format(t=f"delta.`{place}`"))
        tx.commit()
        lake.sql(f"INSERT INTO delta.`{place}` VALUES (1, 'a')")
    [tx] = begun(lake, place, half)
    lake.sql(f"INSERT INTO delta.`{place}` SELECT 1, s FROM delta.`{place}` WHERE id = 3")
    with pytest.raises(ConcurrentAppendException):
        tx.commit()
