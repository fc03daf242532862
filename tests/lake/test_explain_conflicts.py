"""EXPLAIN CONFLICTS on the real engine: what statements become, and that nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import txlake
from txlake.conflict.explanation import ConcurrentWriter
from txlake.errors import Conflict, InvalidRequest

Told = dict[tuple[str, str], tuple[str, str | None]]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[txlake.Lake]:
    """A lake with a table of one file, partitioned; and one without deletion vectors."""
    with txlake.connect(str(tmp_path_factory.mktemp("explained")), spark=spark) as opened:
        opened.sql("CREATE TABLE t (id BIGINT, p INT) PARTITIONED BY (p)")
        opened.sql("INSERT INTO t VALUES (1, 1)")
        opened.sql(
            "CREATE TABLE plain (id BIGINT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
        )
        opened.sql("CREATE TABLE other (id BIGINT)")
        opened.sql("CREATE TABLE clustered (id BIGINT) CLUSTER BY (id)")
        yield opened


def told(lake: txlake.Lake, statement: str) -> Told:
    rows = lake.explain_conflicts(statement).collect()
    found = {(row["part"], row["subject"]): (row["answer"], row["detail"]) for row in rows}
    assert len([key for key in found if key[0] == "beside"]) == len(ConcurrentWriter)
    return found


def said(found: Told, subject: str) -> str:
    return found["statement", subject][0]


def beside(found: Told, start: str) -> str:
    [answer] = {
        answer for (part, name), (answer, _) in found.items()
        if part == "beside" and name.startswith(start)
    }  # fmt: skip
    return answer


@pytest.mark.parametrize(
    ("statement", "reads", "does", "grain"),
    [
        ("DELETE FROM t WHERE id = 5", "id = 5", "deletes or changes rows", "row"),
        ("DELETE FROM t", "the whole table", "deletes or changes rows", "row"),
        ("TRUNCATE TABLE t", "the whole table", "deletes or changes rows", "row"),
        ("DELETE FROM plain WHERE id = 5", "id = 5", "deletes or changes rows", "file"),
        ("UPDATE t SET id = 6 WHERE upper(p) = '1'", "upper(p) = '1'", "deletes or changes", "row"),
        ("UPDATE t SET id = 6 WHERE rand() < 0.5", "rand() < 0.5", "deletes or changes", "file"),
        ("INSERT INTO t VALUES (1, 1)", "nothing", "adds rows", "row"),
        ("INSERT INTO t SELECT id, 2 FROM t WHERE p = 1", "p = 1", "adds rows", "row"),
        ("INSERT INTO t SELECT id, 2 FROM other", "nothing", "adds rows", "row"),
        ("INSERT OVERWRITE t VALUES (1, 1)", "the whole table", "replaces files whole", "row"),
        ("INSERT INTO t REPLACE WHERE p = 1 VALUES (1, 1)", "p = 1", "replaces files", "row"),
        (
            "MERGE INTO t USING other s ON t.id = s.id AND t.p = 1 WHEN MATCHED THEN DELETE",
            "t.id = s.id AND t.p = 1",
            "deletes or changes rows",
            "row",
        ),
        ("OPTIMIZE t", "nothing", "moves rows in order", "row"),
        ("OPTIMIZE t ZORDER BY (id)", "nothing", "moves rows to another order", "row"),
        ("OPTIMIZE clustered", "nothing", "moves rows to another order", "row"),
    ],
)
def test_statements(lake: txlake.Lake, statement: str, reads: str, does: str, grain: str) -> None:
    found = told(lake, statement)
    assert said(found, "reads") == reads
    assert said(found, "does").startswith(does)
    assert said(found, "grain") == grain
    assert said(found, "isolation") == "write_serializable"


def test_who_aborts_a_delete(lake: txlake.Lake) -> None:
    found = told(lake, "DELETE FROM t WHERE p = 1")
    assert beside(found, "DELETE of the same rows") == "ConcurrentDeleteDeleteException"
    assert beside(found, "INSERT of rows that it reads") == "both commit"
    assert not [key for key in found if key[0] == "advice"]


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("isolation", ["snapshot", "write_serializable", "serializable"])
@pytest.mark.parametrize(
    ("kind", "winner"),
    [
        (ConcurrentWriter.BLIND_INSERT, "INSERT INTO {met} VALUES (1, 1)"),
        (ConcurrentWriter.READING_INSERT, "INSERT INTO {met} SELECT n, n FROM {met} WHERE id = 2"),
        (ConcurrentWriter.OTHER_INSERT, "INSERT INTO {met} VALUES (9, 9)"),
        (ConcurrentWriter.DELETE_SAME, "DELETE FROM {met} WHERE id = 1"),
        (ConcurrentWriter.UPDATE_SAME, "UPDATE {met} SET n = n + 1 WHERE id = 1"),
        (ConcurrentWriter.SAME_FILES, "DELETE FROM {met} WHERE id = 2"),
        (ConcurrentWriter.OTHER_FILES, "DELETE FROM {met} WHERE id = 5"),
        (ConcurrentWriter.OPTIMIZE, "OPTIMIZE {met}"),
        (ConcurrentWriter.ZORDER, "OPTIMIZE {met} ZORDER BY (id)"),
        (ConcurrentWriter.ALTER, "ALTER TABLE {met} SET TBLPROPERTIES ('a' = 'b')"),
    ],
)
def test_the_answers_come_true(
    lake: txlake.Lake, tmp_path: Path, isolation: str, kind: ConcurrentWriter, winner: str
) -> None:
    met = f"delta.`{tmp_path / 'met'}`"  # which takes no locks: ALTER doesn't wait
    statement = f"UPDATE {met} SET n = 7 WHERE id = 1"
    lake.sql(f"CREATE TABLE {met} (id BIGINT, n BIGINT)")
    lake.sql(f"INSERT INTO {met} VALUES (1, 1), (2, 1), (3, 3)")
    lake.sql(f"INSERT INTO {met} VALUES (5, 5), (6, 6)")
    tx = lake.begin(isolation=isolation)
    rows = tx.sql(f"EXPLAIN CONFLICTS {statement}").collect()
    [answer] = [row["answer"] for row in rows if row["subject"] == kind.value]
    tx.sql(statement)
    lake.sql(winner.format(met=met))
    if answer == "both commit":
        tx.commit()
    else:
        with pytest.raises(getattr(txlake.errors, answer)):
            tx.commit()


def test_advice(lake: txlake.Lake) -> None:
    subjects = {key[1] for key in told(lake, "DELETE FROM plain") if key[0] == "advice"}
    assert subjects == {"delta.enableDeletionVectors", "condition"}
    merge = "MERGE INTO t USING other s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert ("advice", "source") in told(lake, merge)
    with lake.session() as session:
        session.sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        rows = session.sql("EXPLAIN CONFLICTS DELETE FROM t WHERE p = 1").collect()
    assert [row["subject"] for row in rows if row["part"] == "advice"] == ["isolation"]


def test_conflicts_that_were_met_are_a_table(lake: txlake.Lake) -> None:
    first, second = lake.begin(), lake.begin()
    for tx in (first, second):
        tx.sql("DELETE FROM other WHERE id = 1")
        tx.write(pa.table({"id": [1]}), "other", "overwrite")
    first.commit()
    with pytest.raises(Conflict) as caught:
        second.commit()
    text = "SELECT error, advice FROM txlake.conflicts WHERE transaction_id = :id"
    [row] = lake.sql(text, args={"id": second.id}).collect()
    assert row["error"] == type(caught.value).__name__
    assert row["advice"] in str(caught.value)


def test_nothing_is_run_and_nothing_is_read(lake: txlake.Lake) -> None:
    before = lake.table("t").history(1).collect()[0]["version"]
    tx = lake.begin(isolation="serializable")
    tx.sql("EXPLAIN CONFLICTS INSERT INTO t SELECT * FROM t")
    tx.sql("INSERT INTO t VALUES (2, 2)")
    lake.sql("INSERT INTO t VALUES (3, 3)")
    tx.commit()
    assert lake.table("t").history(1).collect()[0]["version"] == before + 2


@pytest.mark.parametrize("statement", ["SELECT 1", "CREATE TABLE x (id INT)", "BEGIN"])
def test_other_statements_are_refused(lake: txlake.Lake, statement: str) -> None:
    with pytest.raises(InvalidRequest, match=r"column 19.*takes INSERT, UPDATE, DELETE"):
        lake.explain_conflicts(statement)
