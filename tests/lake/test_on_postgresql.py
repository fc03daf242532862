"""A lake whose catalog is a PostgreSQL server: the same transactions, and a server that stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from sqlalchemy.engine import make_url

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
from tests.postgresql import postgres_server
from txlake.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

__all__ = [
    "bank",
    "test_a_row_of_one_of_the_tables_is_enough_to_lose",
    "test_all_tables_commit_at_one_instant",
    "test_different_rows_of_both_tables_commit",
    "test_one_instant_of_the_lake_is_read",
    "test_what_fails_changes_no_table",
    "test_write_skew_over_two_tables",
]

PASSWORD = "never-shown"


@pytest.fixture
def lake(tmp_path: Path, postgres_url: str, spark: SparkSession) -> Iterator[txlake.Lake]:
    """An empty lake; takes the place of the one on SQLite."""
    with txlake.connect(str(tmp_path / "warehouse"), catalog=postgres_url, spark=spark) as opened:
        yield opened


# Each transaction adds a row to both tables, and says how many rows they had together.
WORK = """
import sys
import pyarrow as pa
import txlake

warehouse, catalog, worker, count = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
lake = txlake.connect(warehouse, catalog=catalog)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    def work(tx):
        for table in ("orders", "other.log"):
            rows = pa.table({"worker": [worker], "number": [number]})
            tx.write(rows, table, "append")
    lake.run(work, attempts=20)
lake.close()
"""


def test_two_processes_write_two_tables(
    lake: txlake.Lake, tmp_path: Path, postgres_url: str
) -> None:
    lake.sql("CREATE DATABASE other")
    for table in ("orders", "other.log"):
        lake.sql(f"CREATE TABLE {table} (worker BIGINT, number BIGINT)")
    together(WORK, [(tmp_path / "warehouse", postgres_url, worker, 5) for worker in range(2)])
    expected = [(worker, number) for worker in range(2) for number in range(5)]
    for table in ("orders", "other.log"):
        assert query(lake, f"SELECT * FROM {table}") == expected
        versions = [row.version for row in lake.table(table).history().collect()]
        assert sorted(versions) == list(range(11))
    together_at = (
        "SELECT sequence FROM txlake.commits WHERE operation = 'WRITE' "
        "GROUP BY sequence HAVING count(DISTINCT table) = 2"
    )
    assert len(query(lake, together_at)) == 10
    assert lake.transactions().count() == 0


def test_a_catalog_that_stops_and_comes_back(tmp_path: Path, spark: SparkSession) -> None:
    def transfer(tx: txlake.Transaction | txlake.Lake) -> None:
        for table in ("one", "two"):
            tx.sql(f"INSERT INTO {table} VALUES (2)")

    pytest.importorskip("pgserver", reason="there is no PostgreSQL server for this Python")
    with postgres_server(tmp_path / "its own") as server:
        url = make_url(server.make_schema("lake")).set(password=PASSWORD)
        catalog = url.render_as_string(hide_password=False)
        lake = txlake.connect(str(tmp_path / "warehouse"), catalog=catalog, spark=spark)
        lake.sql("CREATE TABLE one AS SELECT 1L AS id; CREATE TABLE two AS SELECT 1L AS id")
        tx, other = lake.begin(), lake.begin()
        transfer(tx)
        number(other, "SELECT count(*) FROM one")
        need_it: tuple[Callable[[], object], ...] = (
            tx.commit,
            lambda: number(other, "SELECT count(*) FROM two"),
            lambda: lake.sql("INSERT INTO one VALUES (3)"),
            lambda: lake.sql("SELECT * FROM one"),
            lambda: txlake.connect(str(tmp_path / "warehouse"), catalog=catalog, spark=spark),
        )
        server.stop()
        for fails in need_it:
            with pytest.raises(Unavailable, match=r"catalog postgresql.*\*\*\*.*try again") as met:
                fails()
            assert PASSWORD not in str(met.value)
        assert (tx.state, other.state) == ("rolled back", "failed")
        for table in ("one", "two"):  # what is published is read all the same
            place = tmp_path / "warehouse" / table
            published = QueryBuilder().register("t", DeltaTable(str(place)))
            found = published.execute("SELECT id FROM t").read_all()
            assert pa.table(found).to_pydict() == {"id": [1]}
        server.start()
        assert lake.transactions().count() == 0
        assert lake.locks().count() == 0
        assert query(lake, "SELECT * FROM one JOIN two ON one.id = two.id") == [(1, 1)]
        lake.run(transfer)
        assert query(lake, "SELECT one.id FROM one JOIN two ON one.id = two.id") == [(1,), (2,)]
        lake.close()
