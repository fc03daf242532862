"""A lake's catalog is moved between SQLite, PostgreSQL and a store, while nobody works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import number, query
from txlake.catalog import contents
from txlake.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


def filled(warehouse: str, catalog: str | None, spark: SparkSession) -> txlake.Lake:
    """A lake with what only the catalog knows."""
    lake = txlake.connect(warehouse, catalog=catalog, spark=spark)
    lake.sql("CREATE DATABASE sales")
    lake.sql("ALTER DATABASE sales SET ISOLATION LEVEL SERIALIZABLE")
    lake.write(pa.table({"id": [1, 2]}), "sales.orders")
    lake.sql("CREATE TABLE sales.keys (k BIGINT GENERATED ALWAYS AS IDENTITY, v INT)")
    lake.sql("INSERT INTO sales.keys (v) VALUES (10), (20)")
    lake.sql("CREATE VIEW sales.big AS SELECT id FROM sales.orders WHERE id > 1")
    return lake


def state(lake: txlake.Lake) -> dict[str, object]:
    return {
        "databases": query(lake, "SELECT * FROM stv_db_isolation_level"),
        "commits": query(lake, "SELECT sequence, table, version FROM txlake.commits"),
        "view": query(lake, "SELECT * FROM sales.big"),
        "orders": query(lake, "SELECT * FROM sales.orders"),
    }


@pytest.mark.parametrize("places", ["sqlite store", "store sqlite", "store postgresql store"])
def test_a_moved_catalog_knows_what_it_knew(
    places: str, warehouse: str, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    urls = {"sqlite": f"sqlite:///{tmp_path / 'names.db'}", "store": "warehouse"}
    first, *others = places.split()
    if "postgresql" in places:
        urls["postgresql"] = request.getfixturevalue("postgres_url")
    lake = filled(warehouse, urls[first], spark)
    before = state(lake)
    used = {first}
    for place in others:
        url = (tmp_path / "third").as_uri() if place in used else urls[place]
        used.add(place)
        lake.move_catalog(url)
        lake = txlake.connect(warehouse, catalog=url, spark=spark)
        assert state(lake) == before
    lake.sql("INSERT INTO sales.keys (v) VALUES (30)")
    assert [row[0] for row in query(lake, "SELECT k FROM sales.keys ORDER BY k")] == [1, 2, 3]
    lake.sql("CREATE TABLE more (id INT); INSERT INTO more VALUES (1)")
    lake.close()
    with (
        txlake.connect(warehouse, catalog=urls[first], spark=spark) as old,
        pytest.raises(InvalidRequest, match="was moved to"),
    ):
        old.read("sales.orders")


def test_the_default_goes_along(warehouse: str, spark: SparkSession) -> None:
    lake = filled(warehouse, None, spark)
    before = state(lake)
    lake.move_catalog("warehouse")
    with txlake.connect(warehouse, spark=spark) as moved:
        assert state(moved) == before
    names = {path.name for path in Path(warehouse, "_txlake").iterdir()}
    assert {"catalog", "moved-catalog.db"} <= names
    assert "catalog.db" not in names


def test_it_is_refused_while_somebody_works(warehouse: str, spark: SparkSession) -> None:
    lake = filled(warehouse, None, spark)
    with txlake.connect(warehouse, spark=spark) as other:
        other.sql("INSERT INTO sales.orders VALUES (0)")
        with pytest.raises(InvalidRequest, match=r"while session \d+ .* uses the lake"):
            lake.move_catalog("warehouse")
        assert number(other, "SELECT count(*) FROM sales.orders") == 3
    tx = lake.begin()
    tx.sql("INSERT INTO sales.orders VALUES (3)")
    with pytest.raises(InvalidRequest, match=r"(transaction|session) .* (is open|uses)"):
        lake.move_catalog("warehouse")
    tx.commit()
    assert number(lake, "SELECT count(*) FROM sales.orders") == 4
    lake.close()


def test_it_is_refused_where_tables_are(
    warehouse: str, tmp_path: Path, spark: SparkSession
) -> None:
    lake = filled(warehouse, None, spark)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    filled(str(tmp_path / "second"), other, spark).close()
    with pytest.raises(InvalidRequest, match="it has tables"):
        lake.move_catalog(other)
    with pytest.raises(InvalidRequest, match="'warehouse', or a URL"):
        lake.move_catalog("nonsense")
    assert number(lake, "SELECT count(*) FROM sales.orders") == 2
    lake.close()


def test_a_move_that_fails_leaves_the_old_catalog(
    warehouse: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(warehouse, None, spark)
    before = state(lake)

    def refuse(*_: object) -> None:
        raise Unavailable("the new one is away")

    with monkeypatch.context() as patched:
        patched.setattr(contents.Contents, "replace", refuse)
        with pytest.raises(Unavailable, match="is away"):
            lake.move_catalog("warehouse")
    assert state(lake) == before
    lake.close()
    with txlake.connect(warehouse, spark=spark) as again:
        assert state(again) == before


def test_who_had_the_old_one_open_can_not_go_on(
    warehouse: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(warehouse, None, spark)
    other = txlake.connect(warehouse, spark=spark)
    monkeypatch.setattr("txlake.session.membership.moving._require_unused", lambda *_: None)
    lake.move_catalog((Path(warehouse).parent / "elsewhere").as_uri())
    with pytest.raises(Unavailable, match="connect again"):
        other.sql("INSERT INTO sales.orders VALUES (9)")
    other.close()
