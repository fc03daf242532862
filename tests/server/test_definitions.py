"""Since which version a table is defined as it is, by what clients are told of it."""

from __future__ import annotations

import pytest

from tests.server.client import CATALOG, OPEN, Client, file
from txlake.server import definitions


def told(client: Client, table: str = "t") -> int | None:
    """The version, as all places have it."""
    metadata = client.load(table)["metadata"]
    older = client.call("GET", f"/tables/{CATALOG}.default.{table}").json()["properties"]
    found = metadata.get("last-commit-version")
    for properties in (metadata["properties"], older):
        assert properties.get("delta.lastUpdateVersion") == (None if found is None else str(found))
    assert ("last-commit-timestamp-ms" in metadata) == (found is not None)
    return None if found is None else int(found)


def test_rows_define_nothing(client: Client) -> None:
    assert client.create("t").status_code == 200
    assert told(client) == 0
    answer = client.commit("t", client.stage("t", file("x")))
    assert answer.json()["metadata"]["last-commit-version"] == 0
    client.lake.sql("INSERT INTO t VALUES (1)")
    assert told(client) == 0
    client.lake.sql("ALTER TABLE t ADD COLUMN (more INT)")
    at = client.load("t")["metadata"]
    assert told(client) == client.version("t") == 3
    client.lake.sql("INSERT INTO t VALUES (2, 3)")
    assert (told(client), client.version("t")) == (3, 4)
    again = client.load("t")["metadata"]
    for key in ("last-commit-timestamp-ms", "properties", "etag"):
        assert again[key] == at[key]
    assert client.load("t")["latest-table-version"] == 4


def test_the_mark_of_row_ids_is_no_definition(client: Client) -> None:
    client.lake.sql(
        "CREATE TABLE t (id INT) TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported', "
        "'delta.enableRowTracking' = 'true'); INSERT INTO t VALUES (1)"
    )
    assert told(client) == 0


def test_what_was_long_ago_is_left_out(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "_COMMITS_MAX", 3)
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    for number in range(3):
        client.lake.sql(f"INSERT INTO t VALUES ({number})")
    assert told(client) is None
    client.lake.sql("COMMENT ON TABLE t IS 'told anew'")
    assert told(client) == 4
    for number in range(4):
        client.lake.sql(f"INSERT INTO t VALUES ({number})")
    assert told(client) == 4  # which is remembered


def test_a_definition_that_came_back_is_a_new_one(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    assert told(client) == 0
    client.lake.sql("COMMENT ON TABLE t IS 'for now'; COMMENT ON TABLE t IS NULL")
    client.lake.sql("INSERT INTO t VALUES (1)")
    assert told(client) == 2
