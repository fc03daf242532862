"""Iceberg's readers see the rows of every version of random histories: pyiceberg, DuckDB."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo, IsNull, Reference

import txlake
import txlake.dbapi
from tests.iceberg.histories import NESTED, PRIMITIVES, PublishedTable, identity, plain, steps_of
from tests.peers import need
from tests.server.process import ServerProcess

SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
PROGRAM = Path(__file__).with_name("duckdb_program.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tuple[txlake.Lake, txlake.dbapi.Connection, Path]]:
    """A lake, a connection to it, and the folder of its tables."""
    warehouse = tmp_path / "lake"
    with (
        txlake.connect(str(warehouse)) as opened,
        txlake.dbapi.connect(str(warehouse), autocommit=True) as connection,
    ):
        yield opened, connection, warehouse


def history(
    lake: tuple[txlake.Lake, txlake.dbapi.Connection, Path],
    steps: list[str | pa.Table],
    columns: dict[str, Any],
    by: str,
) -> PublishedTable:
    """A table after these steps."""
    opened, connection, warehouse = lake
    folder = warehouse / f"t{uuid.uuid4().hex}"
    made = PublishedTable(opened, connection, folder, columns, by=by)
    for number, step in enumerate(steps):
        made.step(step, number)
    return made


BY = st.sampled_from(["", "PARTITIONED BY (p)", "PARTITIONED BY (p)"])


@settings(max_examples=4, suppress_health_check=SHARED)
@given(steps=steps_of(PRIMITIVES), by=BY)
def test_pyiceberg_reads_every_version(
    lake: tuple[txlake.Lake, txlake.dbapi.Connection, Path], steps: list[str | pa.Table], by: str
) -> None:
    made = history(lake, steps, PRIMITIVES, by)
    table = made.iceberg
    assert len(table.snapshots()) == made.version + 1
    for version in range(made.version + 1):
        read = table.scan(snapshot_id=identity(table, version)).to_arrow()
        assert plain(read) == plain(made.rows(version)), f"version {version}"


@pytest.mark.broad
@settings(max_examples=15, suppress_health_check=SHARED)
@given(steps=steps_of({"i": PRIMITIVES["i"], **NESTED}), by=BY)
def test_pyiceberg_reads_nested_columns(
    lake: tuple[txlake.Lake, txlake.dbapi.Connection, Path], steps: list[str | pa.Table], by: str
) -> None:
    appended = [step for step in steps if isinstance(step, pa.Table) or "UPDATE" not in step]
    made = history(lake, appended, {"i": PRIMITIVES["i"], **NESTED}, by)
    table = made.iceberg
    for version in range(made.version + 1):
        read = table.scan(snapshot_id=identity(table, version)).to_arrow()
        assert plain(read) == plain(made.rows(version)), f"version {version}"


@pytest.mark.broad
@settings(max_examples=30, suppress_health_check=SHARED)
@given(steps=steps_of(PRIMITIVES).map(lambda s: [x for x in s if not isinstance(x, str)]), by=BY)
def test_no_row_is_skipped_by_bounds(
    lake: tuple[txlake.Lake, txlake.dbapi.Connection, Path], steps: list[str | pa.Table], by: str
) -> None:
    """Files are planned by conditions that pyiceberg evaluates on bounds, and then on the rows."""
    made = history(lake, steps, PRIMITIVES, by)
    table = made.iceberg
    rows = table.scan().to_arrow()
    for row in rows.to_pylist():
        for name in ("id", "v", "p", "i", "l", "y", "t", "d", "a", "b", "n", "z"):
            if row[name] is None:
                found = table.scan(row_filter=IsNull(term=Reference(name))).to_arrow()
            else:
                found = table.scan(
                    row_filter=EqualTo(term=Reference(name), value=row[name])
                ).to_arrow()
            assert plain(pa.Table.from_pylist([row], rows.schema))[0] in plain(found), (name, row)


class DuckDBReader:
    """Reads tables with DuckDB's Iceberg extension, in the environment .cache/duckdb-delta."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._target = folder / "rows.parquet"
        self._process = subprocess.Popen(
            [python, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rows(self, table: Path, snapshot: int) -> pa.Table:
        """The rows of a snapshot."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(table), snapshot, str(self._target)]) + "\n")
        self._process.stdin.flush()
        problem = json.loads(self._process.stdout.readline())
        assert problem is None, problem
        return pq.read_table(self._target)

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture
def duckdb(tmp_path: Path) -> Iterator[DuckDBReader]:
    python = ROOT / ".cache/duckdb-delta/bin/python"
    need("duckdb", found=python.exists())
    reader = DuckDBReader(python, tmp_path)
    yield reader
    reader.close()


@pytest.mark.peer("duckdb")
@settings(max_examples=12, suppress_health_check=SHARED)
@given(steps=steps_of(PRIMITIVES), by=BY)
def test_duckdb_reads_every_version(
    duckdb: DuckDBReader,
    lake: tuple[txlake.Lake, txlake.dbapi.Connection, Path],
    steps: list[str | pa.Table],
    by: str,
) -> None:
    made = history(lake, steps, PRIMITIVES, by)
    table = made.iceberg
    for version in range(made.version + 1):
        read = duckdb.rows(made.folder, identity(table, version))
        assert plain(read) == plain(made.rows(version)), f"version {version}"


FIRST_ROWS = (
    "INSERT INTO t (id, v, p, i, t, d, a) VALUES "
    "(1, 10, '1', 5, 'x', 1.25, DATE '2026-01-01'), (3, 30, '1', NULL, 'y', NULL, NULL), "
    "(4, 40, '2', 7, NULL, -1.5, DATE '1969-12-31')"
)
SPARK_STEPS = (
    FIRST_ROWS,
    "INSERT INTO t (id, v, p) VALUES (5, NULL, NULL)",
    "DELETE FROM t WHERE id > 4",
    "UPDATE t SET v = 1 WHERE id > 2",
    "ALTER TABLE t ADD COLUMN c INT",
    "INSERT INTO t (id, c, p) VALUES (6, 60, '1')",
    "OPTIMIZE t",
    "ALTER TABLE t RENAME COLUMN v TO w",
    "ALTER TABLE t ALTER COLUMN w TYPE BIGINT",
    "ALTER TABLE t DROP COLUMN c",
    "RESTORE TABLE t TO VERSION AS OF 3",
)


@pytest.mark.peer("iceberg-spark")
def test_icebergs_own_library_reads_every_version_of_a_served_table(
    lake: tuple[txlake.Lake, txlake.dbapi.Connection, Path], tmp_path: Path
) -> None:
    python = ROOT / ".cache/pyspark-4.1.4/bin/python"
    jars = list((ROOT / ".cache/iceberg-spark").glob("iceberg-spark-runtime-*.jar"))
    need("iceberg-spark", found=python.exists() and bool(jars))
    opened, connection, warehouse = lake
    columns = {name: PRIMITIVES[name] for name in "itda"}
    made = PublishedTable(opened, connection, warehouse / "t", columns)
    for number, step in enumerate(SPARK_STEPS):
        made.step(step, number)
    assert made.version == len(SPARK_STEPS)
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"token": "the-token-of-spark", "name": "spark"}]))
    with ServerProcess(warehouse, "--token-file", str(tokens)) as server:
        arguments = [str(jars[0]), f"{server.url}/iceberg", "the-token-of-spark", "t"]
        ran = subprocess.run(
            [python, PROGRAM.with_name("spark_program.py"), *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": ""},
        )
        assert ran.returncode == 0, ran.stderr
        tables, *snapshots, refused, selected = map(json.loads, ran.stdout.splitlines())
        assert server.stop() in (0, -15)
    assert tables == ["t"]
    table = made.iceberg
    assert [each[0] for each in snapshots] == [
        identity(table, version) for version in range(made.version + 1)
    ]
    for version, (_, rows) in enumerate(snapshots):
        expected = [as_json(row) for row in made.rows(version).to_pylist()]
        assert sorted(map(repr, rows)) == sorted(map(repr, expected)), f"version {version}"
    assert "does not support endpoint: POST" in refused
    newest = made.rows(made.version).to_pylist()
    assert selected == [as_json(row) for row in newest if row["id"] == 3]


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Spark's toJSON has it: without nulls."""
    values = {name: value for name, value in row.items() if value is not None}
    return {name: _json(value) for name, value in values.items()}


def _json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, dt.date) else value
