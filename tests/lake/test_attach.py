"""Tables become the lake's and path tables again, with nothing rewritten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import txlake
from tests.lake.rows import number, query
from txlake.errors import Conflict, InvalidRequest

pytestmark = pytest.mark.broad(keep=3)

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
    with pytest.raises(InvalidRequest, match="there is no table"):
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


def test_statements_on_its_place_are_the_tables(lake: txlake.Lake, tmp_path: Path) -> None:
    lake.write(ROWS, "t")
    folder = tmp_path / "warehouse" / "t"
    place = f"delta.`{folder}`"
    lake.sql(f"INSERT INTO {place} VALUES (3)")
    merged = lake.sql(
        f"MERGE INTO {place} AS a USING (SELECT id FROM {place} WHERE id < 3) AS b "
        "ON a.id = b.id WHEN MATCHED AND a.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET id = 20"
    ).collect()
    assert merged[0]["num_affected_rows"] == 2
    lake.sql(f"OPTIMIZE {place}")
    assert query(lake, "SELECT * FROM t") == [(20,), (3,)]
    assert number(lake, f"SELECT count(*) FROM {place} VERSION AS OF 1") == 3
    assert number(lake, f"SELECT count(*) FROM {place}@v0") == 2
    assert lake.read(f"file://{folder}/", version=1).count() == 3
    lake.sql(f"RESTORE TABLE {place} TO VERSION AS OF 1")
    lake.sql(f"ALTER TABLE {place} ADD COLUMN x INT; UPDATE {place} SET x = id")
    lake.write(pa.table({"id": [4]}), str(folder), mode="append")
    lake.table(str(folder)).delete("id = 1")
    lake.sql(f"VACUUM {place}")
    assert query(lake, "SELECT * FROM t") == [(2, 2), (3, 3), (4, None)]
    history = query(lake, f"DESCRIBE HISTORY {place}")
    assert len(history) == 11
    assert history == query(lake, "DESCRIBE HISTORY t")
    assert len(query(lake, "SELECT * FROM txlake.commits")) == 11
    with lake.transaction() as tx:
        tx.sql(f"TRUNCATE TABLE {place}")
        assert query(tx, "SELECT * FROM t") == []
    with lake.transaction() as tx:  # both names are one table, so that it is one commit
        tx.sql(f"INSERT INTO t VALUES (7, 7); INSERT INTO {place} VALUES (8, 8)")
    assert lake.table("t").history(1).collect()[0].version == 12


def test_a_place_that_is_written_another_way_is_refused(lake: txlake.Lake, tmp_path: Path) -> None:
    lake.write(ROWS, "t")
    (tmp_path / "link").symlink_to(tmp_path / "warehouse")
    link = f"delta.`{tmp_path / 'link' / 't'}`"
    assert number(lake, f"SELECT count(*) FROM {link}") == 2
    with pytest.raises(InvalidRequest, match=r"default\.t"):
        lake.sql(f"DELETE FROM {link}")
    with pytest.raises(InvalidRequest, match=r"default\.t"):
        txlake.Log(str(tmp_path / "warehouse" / "t")).start_transaction().commit(
            [{"txn": {"appId": "a", "version": 1}}], operation="WRITE"
        )
    assert number(lake, "SELECT count(*) FROM t") == 2
    assert lake.table("t").history().count() == 1


@pytest.mark.parametrize("folder", ["warehouse", "link"])
def test_a_table_has_one_name(lake: txlake.Lake, tmp_path: Path, folder: str) -> None:
    lake.write(ROWS, "t")
    (tmp_path / "link").symlink_to(tmp_path / "warehouse")
    place = tmp_path / folder / "t"
    for ask in (
        lambda: lake.attach(str(place), "second"),
        lambda: lake.sql(f"CREATE TABLE second LOCATION '{place}'"),
        lambda: lake.sql(f"CREATE OR REPLACE TABLE second (x INT) LOCATION '{place}'"),
    ):
        with pytest.raises(InvalidRequest, match=r"lake('s)? already|another table at"):
            ask()
    assert query(lake, "SHOW TABLES") == [("default", "t", False)]
    lake.sql("INSERT INTO t VALUES (3)")
    assert lake.table("t").history(1).collect()[0].version == 1
    assert number(lake, "SELECT count(*) FROM t") == 3


def test_messages_know_a_renamed_table(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    lake.sql("ALTER TABLE t RENAME TO renamed")
    tx = lake.begin()
    tx.sql("DELETE FROM renamed WHERE id = 1")
    lake.sql("DELETE FROM renamed WHERE id = 1")
    with pytest.raises(Conflict) as lost:
        tx.commit()
    assert lost.value.evidence is not None
    assert lost.value.evidence.table == "default.renamed"
    with pytest.raises(InvalidRequest, match=r"default\.renamed: version 9"):
        lake.read("renamed", version=9)


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
