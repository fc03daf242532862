"""Catalogs, schemas and tables by name, renames, reports and credentials."""

from __future__ import annotations

import pytest

from tests.lake.rows import query
from tests.server.client import CATALOG, OPEN, Client, failed
from tests.simulation.rows.lake import RowLake
from txlake.server.api_errors import ApiError
from txlake.server.calls import Call
from txlake.server.delta import _credentials
from txlake.server.tokens import ANYONE, Caller

INVALID, OLDER_INVALID = "InvalidParameterValueException", "INVALID_ARGUMENT"
TAKEN, DENIED = "AlreadyExistsException", "PermissionDeniedException"


@pytest.fixture(autouse=True)
def tables(client: Client) -> None:
    """Three tables of the default schema."""
    for name in "abc":
        client.lake.sql(f"CREATE TABLE {name} (id INT) {OPEN if name == 'a' else ''}")


def listing(client: Client, path: str, key: str) -> list[str]:
    """The names of a listing, page after page of two."""
    names: list[str] = []
    token = ""
    while True:
        page = client.call("GET", f"{path}&max_results=2&page_token={token}").json()
        assert len(page[key]) <= 2
        names += [one["name"] for one in page[key]]
        token = page["next_page_token"]
        if token is None:
            return names


def test_listings_come_in_pages(client: Client) -> None:
    client.lake.sql("CREATE DATABASE x; CREATE DATABASE y")
    path = f"/tables?catalog_name={CATALOG}&schema_name=default"
    assert listing(client, path, "tables") == ["a", "b", "c"]
    assert listing(client, f"/schemas?catalog_name={CATALOG}", "schemas") == ["default", "x", "y"]
    for wrong in ("max_results=x", "page_token=-1", "max_results=-2"):
        failed(client.call("GET", f"{path}&{wrong}"), 400, OLDER_INVALID)
    failed(client.call("GET", "/schemas"), 400, OLDER_INVALID, "'catalog_name' is missing")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a/b", "a\tb", "a\x00b"])
def test_a_name_that_requests_would_take_apart_is_refused(client: Client, name: str) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    answer = client.call("POST", "/schemas", {"name": name, "catalog_name": CATALOG})
    failed(answer, 400, OLDER_INVALID, "expected a name without periods")
    for answer in (
        client.call("POST", client.url("t").replace("tables/t", "staging-tables"), {"name": name}),
        client.call("POST", f"{client.url('t')}/rename", {"new-name": name}),
    ):
        failed(answer, 400, INVALID, "expected a name without periods")
    assert client.version("t") == 0


def test_a_tables_own_name_is_no_other_one(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    answer = client.call("POST", f"{client.url('t')}/rename", {"new-name": "t"})
    assert answer.status_code == 204
    assert client.version("t") == 0


def test_schemas_come_and_go(client: Client) -> None:
    told = {"name": "s", "catalog_name": CATALOG, "comment": "c", "properties": {"k": "v"}}
    made = client.call("POST", "/schemas", told).json()
    assert (made["name"], made["comment"], made["properties"]) == ("s", "c", {"k": "v"})
    failed(client.call("POST", "/schemas", told), 400, "SCHEMA_ALREADY_EXISTS")
    client.lake.sql("CREATE TABLE s.t (id INT)")
    failed(client.call("DELETE", f"/schemas/{CATALOG}.s"), 400, OLDER_INVALID, "drop them first")
    assert client.call("DELETE", f"/schemas/{CATALOG}.s?force=true").status_code == 200
    failed(client.call("GET", f"/schemas/{CATALOG}.s"), 404, "SCHEMA_NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/catalogs/elsewhere", 404, "CATALOG_NOT_FOUND"),
        ("/schemas/default", 400, OLDER_INVALID),
        (f"/schemas/{CATALOG}.a.b", 400, OLDER_INVALID),
        ("/schemas/elsewhere.default", 404, "CATALOG_NOT_FOUND"),
        ("/tables/a", 400, OLDER_INVALID),
        (f"/tables/{CATALOG}.default.gone", 404, "TABLE_NOT_FOUND"),
        (f"/tables/{CATALOG}.gone.a", 404, "SCHEMA_NOT_FOUND"),
        ("/delta/v1/config", 400, INVALID),
        (f"/delta/v1/config?catalog={CATALOG}&protocol-versions=x", 400, INVALID),
        (f"/delta/v1/config?catalog={CATALOG}&protocol-versions=2.0", 400, INVALID),
        ("/delta/v1/config?catalog=no&protocol-versions=1.0", 404, "NoSuchCatalogException"),
        ("/nowhere", 404, "NOT_FOUND"),
    ],
)
def test_names_that_are_none(client: Client, path: str, status: int, kind: str) -> None:
    failed(client.call("GET", path), status, kind)


def test_another_major_version_beside_ours_is_fine(client: Client) -> None:
    path = f"/delta/v1/config?catalog={CATALOG}&protocol-versions=1.3,2.0"
    assert client.call("GET", path).json()["protocol-version"] == "1.0"


def test_a_method_that_there_is_not(client: Client) -> None:
    failed(client.call("PUT", client.url("a")), 501, "NotImplementedException")


def test_a_rename(client: Client) -> None:
    path = f"{client.url('a')}/rename"
    failed(client.call("POST", path, {"new-name": "b"}), 409, TAKEN)
    failed(client.call("POST", path, {"new-name": "../x"}), 400, INVALID)
    assert client.call("POST", path, {"new-name": "d"}).status_code == 204
    assert query(client.lake, "SELECT * FROM d") == []
    failed(client.call("POST", path, {"new-name": "e"}), 404, "NoSuchTableException")


def test_a_report_of_another_table(client: Client) -> None:
    path = f"{client.url('a')}/metrics"
    failed(client.call("POST", path, {"table-id": client.uuid("b")}), 400, INVALID)


def test_credentials_are_for_what_is_the_lakes(client: Client) -> None:
    table = f"{client.url('a')}/credentials"
    [lent] = client.call("GET", f"{table}?operation=READ").json()["storage-credentials"]
    assert lent["prefix"] == client.store("a").url
    assert lent["config"] == {}
    failed(client.call("GET", f"{table}?operation=ADMIN"), 400, INVALID)
    failed(client.call("GET", table), 400, INVALID)
    path = "/delta/v1/temporary-path-credentials?operation=READ&location="
    failed(client.call("GET", f"{path}file:///etc"), 403, DENIED)
    failed(
        client.call("GET", "/delta/v1/staging-tables/x/credentials"), 404, "NoSuchTableException"
    )
    asked = {"table_id": "gone", "operation": "READ"}
    failed(client.call("POST", "/temporary-table-credentials", asked), 404, "TABLE_NOT_FOUND")


KEYS = {"aws_access_key_id": "key", "AWS_SECRET_ACCESS_KEY": "secret", "aws_region": "here"}


def lent(client: Client, caller: Caller, operation: str = "READ") -> object:
    """The keys of a bucket that a server lends."""
    session = client.served.sessions._make()
    call = Call(served_lake=client.served, session=session, caller=caller)
    answer = _credentials(call, "s3://bucket/t", operation).body
    assert isinstance(answer, dict)
    [one] = answer["storage-credentials"]
    return one["config"]


def test_the_lakes_own_keys_are_lent_only_where_that_is_asked_for(row_lake: RowLake) -> None:
    row_lake._session.engine.storage_options = KEYS
    with Client(row_lake) as careful, pytest.raises(ApiError, match="lends no credentials"):
        lent(careful, ANYONE)
    with Client(row_lake, vends_credentials=True) as client:
        found = lent(client, ANYONE, "READ_WRITE")
        assert found == {"s3.access-key-id": "key", "s3.secret-access-key": "secret"}
        # Keys that write can't be narrowed.
        with pytest.raises(ApiError, match="lends no credentials"):
            lent(client, Caller("reader", read_only=True))


def test_a_table_says_what_it_is_clustered_by_and_that_it_is_no_more(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT, s STRUCT<a: INT>) {OPEN} CLUSTER BY (id, s.a)")
    told = [client.load("t")["metadata"]["properties"]["delta.clusteringColumns"]]
    client.lake.sql("ALTER TABLE t CLUSTER BY NONE")
    told.append(client.load("t")["metadata"]["properties"]["delta.clusteringColumns"])
    assert told == ['[["id"], ["s", "a"]]', "[]"]
    answer = client.call("GET", f"/tables/{CATALOG}.default.t")
    assert answer.json()["properties"]["clusteringColumns"] == "[]"
