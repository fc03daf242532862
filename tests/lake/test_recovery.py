"""A lost catalog, two catalogs on one warehouse, and what the logs can tell."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest
from txlake.session.membership.recovery import Recovered

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def lost(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    """A lake of three tables, one of them elsewhere, whose catalog is lost."""
    place = tmp_path / "warehouse"
    with txlake.connect(str(place), spark=spark) as lake:
        lake.sql("CREATE DATABASE sales ISOLATION LEVEL SERIALIZABLE")
        lake.write(ROWS, "t")
        lake.write(ROWS, "sales.orders")
        lake.sql("ALTER TABLE t RENAME TO renamed; DELETE FROM renamed WHERE id = 1")
        lake.sql("CREATE TABLE dropped (id INT); DROP TABLE dropped")
        write_deltalake(str(tmp_path / "elsewhere"), ROWS)
        lake.attach(str(tmp_path / "elsewhere"), "sales.outside")
    for file in (place / "_txlake").glob("catalog.db*"):
        file.unlink()
    write_deltalake(str(place / "plain"), ROWS)
    with txlake.connect(str(place), spark=spark) as lake:
        yield lake


def test_the_catalog_is_rebuilt_from_the_logs(lost: txlake.Lake, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="recover"):
        lost.sql("SELECT 1")
    report = lost.recover(str(tmp_path / "elsewhere"))
    assert report.tables == ("default.renamed", "sales.orders", "sales.outside")
    assert any("isolation levels" in one for one in report.unknown)
    assert any("plain" in one and "attach" in one for one in report.unknown)
    assert query(lost, "SELECT * FROM renamed") == [(2,)]
    with lost.transaction() as tx:
        tx.sql("INSERT INTO renamed VALUES (5); INSERT INTO sales.outside VALUES (5)")
    assert number(lost, "SELECT count(*) FROM sales.outside") == 3
    assert lost.recover() == Recovered((), (), ())  # nothing is at odds
    with txlake.connect(str(tmp_path / "warehouse")) as again:
        assert number(again, "SELECT count(*) FROM renamed") == 2


def test_two_catalogs_on_one_warehouse(tmp_path: Path, spark: SparkSession) -> None:
    place = str(tmp_path / "warehouse")
    with txlake.connect(place, spark=spark) as lake:
        lake.write(ROWS, "t")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    with (
        txlake.connect(place, catalog=other, spark=spark) as wrong,
        pytest.raises(InvalidRequest, match="is the warehouse of lake"),
    ):
        wrong.write(ROWS, "u")
    with txlake.connect(str(tmp_path / "second"), catalog=other, spark=spark) as second:
        second.write(ROWS, "u")
    with pytest.raises(InvalidRequest, match="connect with the warehouse's own catalog"):
        txlake.connect(place, catalog=other, spark=spark)


def test_a_marker_that_cannot_be_read(tmp_path: Path, spark: SparkSession) -> None:
    place = tmp_path / "warehouse"
    txlake.connect(str(place), spark=spark).close()
    (place / "_txlake" / "lake.json").write_text("{}")
    with pytest.raises(txlake.errors.CorruptTable, match=r"lake\.json"):
        txlake.connect(str(place), spark=spark)
    shutil.rmtree(place)
    txlake.connect(str(place), spark=spark).close()
