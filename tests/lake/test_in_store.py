"""A lake whose catalog is in the warehouse's own store, for several processes and hosts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlake
from tests.lake.programs import together
from tests.lake.rows import number, query
from tests.lake.test_many_tables import (  # the fixture and the tests run on this file's lake
    bank,
    test_a_row_of_one_of_the_tables_is_enough_to_lose,
    test_all_tables_commit_at_one_instant,
    test_different_rows_of_both_tables_commit,
    test_one_instant_of_the_lake_is_read,
    test_what_fails_changes_no_table,
    test_write_skew_over_two_tables,
)
from tests.lake.test_on_postgresql import WORK
from txlake.errors import InvalidRequest, LockTimeout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "bank",
    "test_a_row_of_one_of_the_tables_is_enough_to_lose",
    "test_all_tables_commit_at_one_instant",
    "test_different_rows_of_both_tables_commit",
    "test_one_instant_of_the_lake_is_read",
    "test_what_fails_changes_no_table",
    "test_write_skew_over_two_tables",
]


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def lake(warehouse: str, spark: SparkSession) -> Iterator[txlake.Lake]:
    """An empty lake; takes the place of the one on SQLite."""
    with txlake.connect(warehouse, catalog="warehouse", spark=spark) as opened:
        yield opened


def test_two_processes_write_two_tables(lake: txlake.Lake, warehouse: str) -> None:
    lake.sql("CREATE DATABASE other")
    for table in ("orders", "other.log"):
        lake.sql(f"CREATE TABLE {table} (worker BIGINT, number BIGINT)")
    together(WORK, [(warehouse, "warehouse", worker, 5) for worker in range(2)])
    expected = [(worker, number) for worker in range(2) for number in range(5)]
    for table in ("orders", "other.log"):
        assert query(lake, f"SELECT * FROM {table}") == expected
    assert lake.transactions().count() == 0


def test_a_warehouse_is_opened_with_the_catalog_that_it_has(
    lake: txlake.Lake, warehouse: str, spark: SparkSession, tmp_path: Path
) -> None:
    lake.write(pa.table({"id": [1]}), "t")
    with txlake.connect(warehouse, spark=spark) as again:
        assert number(again, "SELECT count(*) FROM t") == 1
    assert not Path(warehouse, "_txlake", "catalog.db").exists()
    folder = Path(warehouse, "_txlake", "catalog").as_uri()
    with txlake.connect(warehouse, catalog=folder, spark=spark) as again:
        assert number(again, "SELECT count(*) FROM t") == 1
    with txlake.connect(str(tmp_path / "other"), spark=spark) as on_sqlite:
        on_sqlite.write(pa.table({"id": [1]}), "t")
    with (
        txlake.connect(str(tmp_path / "other"), catalog="warehouse", spark=spark) as wrong,
        pytest.raises(InvalidRequest, match=r"is new, and .*is the warehouse of lake"),
    ):
        wrong.read("t")


def test_views_and_locks_are_of_all_processes(
    lake: txlake.Lake, warehouse: str, spark: SparkSession
) -> None:
    lake.write(pa.table({"id": [1]}), "t")
    with txlake.connect(warehouse, spark=spark) as other:
        tx = other.begin()
        tx.sql("INSERT INTO t VALUES (2)")
        assert "IX" in {row.request_mode for row in lake.locks().collect()}
        assert lake.transactions().count() == 1
        lake.sql("SET LOCK_TIMEOUT 0")
        with pytest.raises(LockTimeout, match="was not granted"):
            lake.sql("ALTER TABLE t ADD COLUMN note STRING")
        tx.commit()
        assert lake.locks().count() == 0
        lake.sql("ALTER TABLE t ADD COLUMN note STRING")
        assert other.read("t").columns == ["id", "note"]


def test_a_lost_catalog_is_rebuilt(lake: txlake.Lake, warehouse: str, spark: SparkSession) -> None:
    lake.sql("CREATE DATABASE sales")
    lake.write(pa.table({"id": [1, 2]}), "sales.orders")
    lake.close()
    shutil.rmtree(Path(warehouse, "_txlake", "catalog"))
    with txlake.connect(warehouse, catalog="warehouse", spark=spark) as again:
        with pytest.raises(InvalidRequest, match=r"lake\.recover"):
            again.read("sales.orders")
        again.recover()
        assert number(again, "SELECT count(*) FROM sales.orders") == 2
        again.sql("INSERT INTO sales.orders VALUES (3)")
    with txlake.connect(warehouse, spark=spark) as last:
        assert query(last, "SELECT id FROM sales.orders") == [(1,), (2,), (3,)]
