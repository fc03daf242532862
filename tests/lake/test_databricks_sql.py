"""Databricks' words: IDENTIFIER, WITH before a change, DESCRIBE in a query, and the like."""

from __future__ import annotations

from pathlib import Path

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=2)


@pytest.fixture
def items(lake: txlake.Lake) -> txlake.Lake:
    """A lake with the tables `items` (id, name) and `news` (id, name), of three and two rows."""
    lake.sql("CREATE TABLE items (id BIGINT, name STRING)")
    lake.sql("INSERT INTO items VALUES (1, 'one'), (2, 'two'), (3, NULL)")
    lake.sql("CREATE TABLE news (id BIGINT, name STRING)")
    lake.sql("INSERT INTO news VALUES (2, 'zwei'), (4, 'vier')")
    return lake


def test_identifier_reads_and_changes_the_lake(items: txlake.Lake) -> None:
    items.sql(
        "UPDATE IDENTIFIER(:t) SET IDENTIFIER('na' || 'me') = 'x' WHERE id = 1", {"t": "items"}
    )
    found = items.sql(
        "SELECT IDENTIFIER(:c) FROM IDENTIFIER('default.' || :t)", {"c": "name", "t": "items"}
    )
    assert sorted(row.name or "" for row in found.collect()) == ["", "two", "x"]


def test_with_before_changes(items: txlake.Lake) -> None:
    items.sql("WITH n AS (SELECT id FROM news) DELETE FROM items WHERE id IN (SELECT id FROM n)")
    assert query(items, "SELECT id FROM items") == [(1,), (3,)]
    items.sql(
        "WITH n AS (SELECT max(id) AS top FROM news), m AS (SELECT top + 1 AS top FROM n) "
        "UPDATE items SET id = (SELECT top FROM m) WHERE id > 2"
    )
    assert query(items, "SELECT id FROM items") == [(1,), (5,)]
    items.sql(
        "WITH n AS (SELECT id, upper(name) AS name FROM news WHERE id > 3) MERGE INTO items t "
        "USING n ON t.id = n.id WHEN NOT MATCHED THEN INSERT *"
    )
    assert query(items, "SELECT id, name FROM items WHERE id = 4") == [(4, "VIER")]


def test_with_before_a_change_counts_as_read(items: txlake.Lake) -> None:
    transaction = items.begin(isolation="serializable")
    transaction.sql(
        "WITH n AS (SELECT id FROM news) DELETE FROM items WHERE id IN (SELECT id FROM n)"
    )
    items.sql("INSERT INTO news VALUES (1, 'eins')")
    with pytest.raises(txlake.errors.Conflict):
        transaction.commit()


def test_a_query_reads_what_describe_shows(items: txlake.Lake) -> None:
    text = "SELECT operation FROM (DESCRIBE HISTORY items) WHERE version > 0"
    assert query(items, text) == [("WRITE",)]
    assert query(items, "SELECT count(*) FROM (DESC HISTORY default.items LIMIT 1) AS h, news") == [
        (2,)
    ]
    assert query(items, "SELECT numFiles > 0, format FROM (DESCRIBE DETAIL items)") == [
        (True, "delta")
    ]
    assert query(items, "SELECT col_name FROM (DESCRIBE TABLE items)") == [("id",), ("name",)]
    items.sql("CREATE TABLE operations AS SELECT version FROM (DESCRIBE HISTORY items)")
    assert query(items, "SELECT * FROM operations") == [(0,), (1,)]
    with pytest.raises(InvalidRequest, match="there is no table 'nothing'"):
        items.sql("SELECT * FROM (DESCRIBE HISTORY nothing)")


def test_refresh_table(items: txlake.Lake) -> None:
    items.sql("REFRESH TABLE items")
    items.sql("CREATE TEMPORARY VIEW seen AS SELECT 1; REFRESH TABLE seen")
    with pytest.raises(InvalidRequest, match="there is no table 'nothing'"):
        items.sql("REFRESH TABLE nothing")


def test_analyze_table(items: txlake.Lake, tmp_path: Path) -> None:
    items.sql("ANALYZE TABLE items COMPUTE STATISTICS NOSCAN")
    items.sql("ANALYZE TABLE items COMPUTE STATISTICS FOR COLUMNS id, name")
    items.sql("ANALYZE TABLE items COMPUTE DELTA STATISTICS")
    assert number(items, "SELECT max(version) FROM (DESCRIBE HISTORY items)") == 1
    with pytest.raises(InvalidRequest, match="there is no column 'nothing'"):
        items.sql("ANALYZE TABLE items COMPUTE STATISTICS FOR COLUMNS nothing")
    with pytest.raises(InvalidRequest, match="there is no table 'nothing'"):
        items.sql("ANALYZE TABLE nothing COMPUTE STATISTICS")
