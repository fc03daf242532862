"""Queries that the command line answers without Spark: the same as with it, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from txlake.cli.worker import LakeWorker
from txlake.errors import Conflict
from txlake.lake.lake import Lake, open_session
from txlake.session.views.results import Result

TABLES = """
CREATE TABLE kinds (b BYTE, s SHORT, i INT, l BIGINT, f FLOAT, d DOUBLE, o BOOLEAN, t STRING,
    x BINARY, day DATE, at TIMESTAMP, n TIMESTAMP_NTZ, m DECIMAL(20, 3), v VARCHAR(9));
INSERT INTO kinds VALUES
    (1, 2, 3, 4, 0.1, 0.1, true, 'ä "1"', X'00FF', DATE'0001-01-01',
        TIMESTAMP'2026-01-31 12:00:00Z', TIMESTAMP_NTZ'1500-03-01 00:00:00.000001', 1.5, 'v'),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (-128, -32768, -2147483648, -9223372036854775808, 1e-30, 1e300, false, '', X'',
        DATE'9999-12-31', TIMESTAMP'1969-12-31 23:59:59.999999Z',
        TIMESTAMP_NTZ'9999-12-31 23:59:59', -0.001, '');
CREATE TABLE parts (id INT, `a b` STRING, p DATE) PARTITIONED BY (p)
    TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = true);
INSERT INTO parts VALUES (1, 'x', DATE'2026-01-01'), (2, NULL, NULL), (3, 'z', DATE'2026-01-01');
INSERT INTO parts VALUES (4, 'y', DATE'2026-01-02'), (5, NULL, NULL);
DELETE FROM parts WHERE id = 3;
DELETE FROM parts WHERE id = 4;
ALTER TABLE parts RENAME COLUMN id TO number;
ALTER TABLE parts ADD COLUMN more INT;
CREATE TABLE padded (c CHAR(5), i INT);
INSERT INTO padded VALUES ('a', 1);
CREATE TABLE nested (p STRUCT<x: INT>, i INT, q STRING) PARTITIONED BY (q);
INSERT INTO nested VALUES (named_struct('x', 1), 2, 'u'), (NULL, 3, NULL);
CREATE VIEW seen AS SELECT l FROM kinds
"""
WITHOUT_SPARK = (
    "SELECT 1",
    "SELECT 0 AS n, 'b'",
    "SELECT @@TRANCOUNT",
    "SELECT * FROM kinds",
    "select t, l as L, t from kinds limit 2",
    "SELECT * FROM kinds LIMIT 0",
    "SELECT l FROM default.kinds WHERE l > 3 AND t IS NOT NULL",
    "SELECT x, at FROM kinds WHERE i <= -2147483648",
    "SELECT * FROM parts",
    "SELECT `a b`, p FROM parts WHERE number = 1 -- one",
    "SELECT number FROM parts WHERE number IN (3, 4)",
    "SELECT number FROM parts WHERE number = 7 LIMIT 1",
    "SELECT i, q, i AS again FROM nested",
    "SELECT q FROM nested WHERE i = 3",
    "SELECT i FROM padded",
    "SELECT k.l FROM kinds k",
    "SELECT kinds.l FROM kinds",
    "SELECT * FROM sys.dm_tran_locks",
    "SELECT name, database_id FROM sys.databases LIMIT 1",
    "SELECT * FROM txlake.conflicts",
)
BY_SPARK = (
    "SELECT number FROM parts WHERE p = DATE'2026-01-01'",
    "SELECT 01",
    "SELECT 2147483648",
    "SELECT 1.0, -1",
    "SELECT 'it''s'",
    "SELECT 1 WHERE false",
    "SELECT 1 LIMIT 0",
    "SELECT L FROM kinds",
    "SELECT kinds.l FROM kinds k",
    "SELECT DISTINCT i FROM kinds",
    "SELECT * EXCEPT (l) FROM kinds",
    "SELECT count(*) FROM kinds",
    "SELECT l + 1 FROM kinds",
    "SELECT l FROM kinds ORDER BY l",
    "SELECT l FROM kinds LIMIT 1 + 1",
    "SELECT l FROM kinds LIMIT 1 OFFSET 1",
    "SELECT l FROM kinds WHERE l IN (SELECT 4)",
    "SELECT l FROM kinds WHERE abs(l) = 4",
    "SELECT l FROM kinds VERSION AS OF 1",
    "SELECT /*+ REPARTITION(2) */ l FROM kinds WHERE l = 4",
    "SELECT l FROM kinds UNION ALL SELECT 1",
    "SELECT a.l FROM kinds a, kinds b WHERE a.l = b.l",
    "SELECT name FROM sys.databases WHERE database_id = 1",
    "SELECT * FROM padded",
    "SELECT * FROM nested",
    "SELECT p FROM nested WHERE i = 3",
    "SELECT i FROM padded WHERE c = 'a'",
    "SELECT * FROM seen",
    "SELECT nothing FROM kinds",
    "SELECT * FROM nowhere",
    "SELECT _metadata FROM kinds",
)


class Started(Exception):
    """Spark was asked for."""


def _no_spark() -> SparkSession:
    raise Started


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> str:
    """A warehouse with the tables; no test changes rows of `parts` with a number up to 5."""
    where = str(tmp_path_factory.mktemp("plain") / "wh")
    with Lake(open_session(where, make_spark=lambda: spark)) as lake:
        for text in TABLES.split(";"):
            lake.sql(text)
    return where


@pytest.fixture
def alone(place: str) -> Iterator[LakeWorker]:
    with Lake(open_session(place, make_spark=_no_spark)) as lake:
        yield LakeWorker(lake, lake._session)
        assert not lake._session.engine.plane.is_started


def _sorted(result: Result) -> list[str]:
    return sorted(repr(row) for row in result.rows)


def test_answers_without_spark_are_those_with_it(
    place: str, alone: LakeWorker, spark: SparkSession
) -> None:
    with Lake(open_session(place, make_spark=lambda: spark)) as lake:
        assert lake._session.spark is spark
        worker = LakeWorker(lake, lake._session)
        for text in WITHOUT_SPARK:
            found, expected = alone.run(text, None), worker.run(text, None)
            assert found.columns == expected.columns, text
            assert found.total == expected.total, text
            if "LIMIT" not in text.upper() or not expected.rows:
                assert _sorted(found) == _sorted(expected), text


def test_what_is_not_plain_is_left_to_spark(alone: LakeWorker) -> None:
    for text in BY_SPARK:
        with pytest.raises(Started):
            alone.run(text, None)


def test_a_cut_result_is_counted(alone: LakeWorker) -> None:
    result = alone.run("SELECT number FROM parts WHERE number <= 5", 1)
    assert (len(result.rows), result.total) == (1, 3)


def test_a_transaction_reads_its_own_rows_and_has_read_them(
    place: str, alone: LakeWorker, spark: SparkSession
) -> None:
    alone.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", None)
    alone.run("BEGIN", None)
    alone.run("INSERT INTO parts VALUES (9, NULL, NULL, 1)", None)
    assert alone.run("SELECT number FROM parts WHERE number > 8", None).rows == [(9,)]
    assert alone.run("SELECT l FROM kinds WHERE l = 77", None).rows == []
    with Lake(open_session(place, make_spark=lambda: spark)) as other:
        other.sql("INSERT INTO kinds (l) VALUES (77)")
    with pytest.raises(Conflict, match="kinds"):
        alone.run("COMMIT", None)


def test_small_statements_of_the_command_start_no_jvm_and_load_no_migrations(place: str) -> None:
    script = (
        "SELECT 1; SELECT * FROM parts LIMIT 2; SELECT * FROM sys.dm_tran_locks; SHOW TABLES; "
        "DESCRIBE HISTORY parts; INSERT INTO parts VALUES (6, 'n', NULL, 1); "
        "UPDATE parts SET more = 2 WHERE number = 6"
    )
    program = (
        "import subprocess, sys\n"
        "def refused(*args, **kwargs): raise AssertionError(f'started {args}')\n"
        "subprocess.Popen.__init__ = refused\n"
        "from txlake.cli.app import app\n"
        "try: app(['sql', sys.argv[1]], prog_name='txlake')\n"
        "finally: print('loaded', {'alembic', 'polars', 'prompt_toolkit', 'pyspark.pandas'}\n"
        "    & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TXLAKE_LAKE": place},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("loaded set()")


def test_connecting_loads_neither_pandas_nor_migrations(place: str) -> None:
    program = (
        "import sys, txlake\n"
        "with txlake.connect(sys.argv[1]): pass\n"
        "print({'pandas', 'polars', 'alembic', 'typer', 'pyspark.pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "set()\n", done.stderr
