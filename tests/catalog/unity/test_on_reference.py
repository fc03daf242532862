"""txlake as the client of Unity Catalog's own server (tools/unity_server.sh builds it)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import pytest

import txlake
from tests.catalog.unity.reference import started
from tests.catalog.unity.served import run
from txlake.errors import Conflict, InvalidRequest

pytestmark = [
    pytest.mark.peer("unity-server"),
    pytest.mark.no_interop("other engines read its tables through their catalog"),
]
CATALOG, API = "main", "/api/2.1/unity-catalog"


@dataclass(frozen=True)
class Reference:
    """The server."""

    url: str

    def request(self, path: str, body: object = None) -> Any:
        """Return the response to a request that isn't txlake's."""
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}{API}{path}", content, {"content-type": "application/json"})
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def loaded(self, table: str) -> Any:
        """Return the server's response about a table."""
        return self.request(f"/delta/v1/catalogs/{CATALOG}/schemas/default/tables/{table}")

    def client(self, **options: Any) -> txlake.Lake:
        """A client."""
        return txlake.connect(catalog=f"uc+{self.url}", **options)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """The server, with a catalog and a schema."""
    with started(tmp_path_factory.mktemp("reference") / "server") as url:
        made = Reference(url)
        made.request("/catalogs", {"name": CATALOG})
        made.request("/schemas", {"name": "default", "catalog_name": CATALOG})
        yield made


@pytest.fixture
def uc(reference: Reference) -> Iterator[txlake.Lake]:
    """A client, and a table `t` of two rows."""
    with reference.client() as made:
        run(made, "CREATE TABLE t (id INT, n INT)")
        run(made, "INSERT INTO t VALUES (1, 10), (2, 20)")
        yield made
    with reference.client() as last:
        run(last, "DROP TABLE t")


def rows(lake: txlake.Lake, table: str = "t") -> list[tuple[object, ...]]:
    """A table's rows."""
    return sorted(run(lake, f"SELECT * FROM {table}"))


def test_statements_change_a_table(uc: txlake.Lake, reference: Reference) -> None:
    run(uc, "UPDATE t SET n = n + 1 WHERE id = 1")
    run(uc, "DELETE FROM t WHERE id = 2")
    run(uc, "INSERT INTO t (id) VALUES (3)")
    run(uc, "OPTIMIZE t")
    assert rows(uc) == [(1, 11), (3, None)]
    found = reference.loaded("t")
    assert found["latest-table-version"] == 5
    assert found["commits"] == []  # all is published, and the server knows


def test_a_definition_changes_with_a_commit(uc: txlake.Lake, reference: Reference) -> None:
    run(uc, "ALTER TABLE t ADD COLUMN (s STRING)")
    run(uc, "ALTER TABLE t SET TBLPROPERTIES ('own' = 'x')")
    run(uc, "COMMENT ON TABLE t IS 'of a test'")
    run(uc, "INSERT INTO t VALUES (3, 30, 'c')")
    told = reference.loaded("t")["metadata"]
    assert [one["name"] for one in told["columns"]["fields"]] == ["id", "n", "s"]
    assert told["properties"]["own"] == "x"
    run(uc, "ALTER TABLE t UNSET TBLPROPERTIES ('own')")
    assert "own" not in reference.loaded("t")["metadata"]["properties"]
    assert rows(uc) == [(1, 10, None), (2, 20, None), (3, 30, "c")]


def test_a_transaction_is_one_version(uc: txlake.Lake, reference: Reference) -> None:
    before = reference.loaded("t")["latest-table-version"]
    run(uc, "BEGIN; INSERT INTO t VALUES (3, 30); UPDATE t SET n = 0 WHERE id = 3; COMMIT")
    assert rows(uc) == [(1, 10), (2, 20), (3, 0)]
    assert reference.loaded("t")["latest-table-version"] == before + 1


def test_a_lost_race_is_decided_row_by_row(uc: txlake.Lake, reference: Reference) -> None:
    with reference.client() as other:
        run(uc, "BEGIN; UPDATE t SET n = 11 WHERE id = 1")
        run(other, "UPDATE t SET n = 21 WHERE id = 2")
        run(uc, "COMMIT")
        assert rows(uc) == [(1, 11), (2, 21)]
        run(uc, "BEGIN; UPDATE t SET n = 12 WHERE id = 1")
        run(other, "UPDATE t SET n = 13 WHERE id = 1")
        with pytest.raises(Conflict, match="t"):
            run(uc, "COMMIT")
    assert rows(uc) == [(1, 13), (2, 21)]


def test_more_commits_than_the_server_keeps(uc: txlake.Lake, reference: Reference) -> None:
    """It takes no more than ten that nobody published."""
    for number in range(12):
        run(uc, f"INSERT INTO t VALUES ({100 + number}, 0)")
    assert len(rows(uc)) == 14
    with reference.client() as other:
        assert len(rows(other)) == 14


def test_what_another_client_did_not_publish_is_read(
    uc: txlake.Lake, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = type(uc._session.engine.catalog.ledger)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "record_publication", lambda *told: None)
        patch.setattr(ledger, "record_publication_soon", lambda *told: None)
        run(uc, "INSERT INTO t VALUES (3, 30)")
    [pending] = [one["version"] for one in reference.loaded("t")["commits"]][:1]
    assert pending == reference.loaded("t")["latest-table-version"]
    with reference.client() as other:
        assert (3, 30) in rows(other)
        run(other, "INSERT INTO t VALUES (4, 40)")
    assert len(rows(uc)) == 4


def test_names_come_and_go(uc: txlake.Lake) -> None:
    run(uc, "CREATE TABLE made (id INT, s STRING) PARTITIONED BY (s)")
    run(uc, "INSERT INTO made VALUES (1, 'a')")
    with pytest.raises(InvalidRequest, match="exists"):
        run(uc, "CREATE TABLE made (id INT)")
    run(uc, "ALTER TABLE made RENAME TO other")
    assert rows(uc, "other") == [(1, "a")]
    run(uc, "DROP TABLE other")
    with pytest.raises(InvalidRequest, match="no table 'other'"):
        run(uc, "SELECT * FROM other")


def test_a_database_is_dropped_with_its_tables(uc: txlake.Lake) -> None:
    """The server says in plain text that it is done."""
    run(uc, "CREATE DATABASE more; CREATE TABLE more.t (id INT); INSERT INTO more.t VALUES (1)")
    with pytest.raises(InvalidRequest, match="more"):
        run(uc, "DROP DATABASE more")
    run(uc, "DROP DATABASE more CASCADE")
    assert run(uc, "SHOW DATABASES") == [("default",)]


def test_several_tables_are_refused_by_name(uc: txlake.Lake) -> None:
    run(uc, "CREATE TABLE u (id INT)")
    run(uc, "BEGIN; INSERT INTO t VALUES (3, 30); INSERT INTO u VALUES (1)")
    with pytest.raises(InvalidRequest, match="one table at a time"):
        run(uc, "COMMIT")
    assert (len(rows(uc)), rows(uc, "u")) == (2, [])
    run(uc, "DROP TABLE u")
