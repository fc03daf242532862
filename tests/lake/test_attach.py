"""Tables become the lake's and path tables again, with nothing rewritten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest

ROWS = pa.table({"id": [1, 2]})


def files(place: Path) -> set[str]:
    """The data files of a table."""
    return {path.name for path in place.rglob("*.parquet")}


def test_a_path_table_becomes_the_lakes_and_goes_again(lake: txlake.Lake, tmp_path: Path) -> None:
    place = tmp_path / "orders"
    write_deltalake(str(place), ROWS)
    before = files(place)
    assert lake.attach(str(place)) == "default.orders"
    assert files(place) == before
    lake.sql("CREATE TABLE log (id BIGINT)")
    with lake.transaction() as tx:
        tx.sql("INSERT INTO orders VALUES (3); INSERT INTO log VALUES (3)")
    assert DeltaTable(str(place)).to_pyarrow_table().num_rows == 3
    with pytest.raises((DeltaError, Exception), match="txlakeCatalog"):
        write_deltalake(str(place), ROWS, mode="append")
    written = files(place)
    assert lake.detach("orders") == place.as_uri()
    assert files(place) == written
    with pytest.raises(InvalidRequest, match="cannot be found"):
        lake.sql("SELECT * FROM orders")
    write_deltalake(str(place), ROWS, mode="append")
    lake.sql(f"DELETE FROM delta.`{place}` WHERE id = 1")
    assert query(lake, f"SELECT id FROM delta.`{place}`") == [(2,), (2,), (3,)]
    assert lake.attach(str(place), "again") == "default.again"
    assert number(lake, "SELECT count(*) FROM again") == 3


def test_what_cannot_be_attached(lake: txlake.Lake, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        lake.attach(str(tmp_path / "nothing"))
    lake.write(ROWS, "t")
    with pytest.raises(InvalidRequest, match=r"already: default\.t"):
        lake.attach(str(tmp_path / "warehouse" / "t"))
    place = tmp_path / "plain"
    write_deltalake(str(place), ROWS)
    with pytest.raises(InvalidRequest, match="exists already"):
        lake.attach(str(place), "t")
    with pytest.raises(InvalidRequest, match="no database 'd'"):
        lake.attach(str(place), "d.t")
    with pytest.raises(InvalidRequest, match="no table"):
        lake.detach("nope")
    with pytest.raises(InvalidRequest, match="nothing to detach"):
        lake.detach(str(place))
    with txlake.connect(str(tmp_path / "second")) as other:
        other.attach(str(place), "theirs")
        with pytest.raises(InvalidRequest, match="another lake"):
            lake.attach(str(place), "ours")
        with pytest.raises(InvalidRequest, match="catalog"):
            lake.sql(f"INSERT INTO delta.`{place}` VALUES (3)")
        assert number(lake, f"SELECT count(*) FROM delta.`{place}`") == 2
        other.detach("theirs")
    lake.attach(str(place), "ours")


def test_a_table_by_its_place_is_the_lakes_table(lake: txlake.Lake, tmp_path: Path) -> None:
    lake.write(ROWS, "t")
    place = tmp_path / "warehouse" / "t"
    with lake.transaction() as tx:
        tx.sql(f"INSERT INTO delta.`{place}` VALUES (3)")
        assert number(tx, "SELECT count(*) FROM t") == 3
    assert number(lake, "SELECT count(*) FROM t") == 3


def test_create_table_at_the_place_of_a_table_attaches_it(
    lake: txlake.Lake, tmp_path: Path
) -> None:
    place = tmp_path / "plain"
    write_deltalake(str(place), ROWS)
    lake.sql(f"CREATE TABLE t LOCATION '{place}'")
    lake.sql("INSERT INTO t VALUES (3)")
    assert number(lake, "SELECT count(*) FROM t") == 3
    with pytest.raises(Exception, match="txlakeCatalog"):
        write_deltalake(str(place), ROWS, mode="append")
    lake.sql("DROP TABLE t")  # what lies at a place of its own stays there
    write_deltalake(str(place), ROWS, mode="append")
    assert DeltaTable(str(place)).to_pyarrow_table().num_rows == 5
    with pytest.raises(InvalidRequest, match="inside a transaction"), lake.transaction() as tx:
        tx.sql(f"CREATE TABLE t LOCATION '{place}'")
