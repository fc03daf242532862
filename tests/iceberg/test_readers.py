"""Iceberg's readers see the rows of every version of random histories: pyiceberg, DuckDB."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
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
    """Reads tables with DuckDB's Iceberg extension, in the environment of tools/duckdb_venv.sh."""

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
