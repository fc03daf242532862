"""Each route against the contract: how the reference describes its API, names and numbers alone.

`contract.json` was derived from it: routes, statuses, required fields, kinds of errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
import pytest

from tests.server.client import CATALOG, OPEN, Client, failed, file
from txlake.protocol.unity_columns import _TYPE_NAMES
from txlake.server import bodies, commits, delta
from txlake.server.api_errors import STATUSES
from txlake.server.app import ENDPOINTS, ICEBERG_ROOT, OWN_ROOT, ROOT

CONTRACT: dict[str, Any] = json.loads(Path(__file__).with_name("contract.json").read_text())
ROUTES = {f"{one['method']} {one['path']}": one for one in (*CONTRACT["delta"], *CONTRACT["unity"])}

REFUSED = "POST /tables"


def test_the_server_has_all_routes_and_no_others() -> None:
    others = (OWN_ROOT, ICEBERG_ROOT)
    of_the_api = [one for one in ENDPOINTS if not one.path.startswith(others)]
    own = {f"{one.method} {one.path.removeprefix(ROOT)}" for one in of_the_api}
    assert own - {REFUSED} == set(ROUTES)


def test_an_external_table_is_refused_with_the_way_to_one_of_the_lake(client: Client) -> None:
    method, _, path = REFUSED.partition(" ")
    told = {"name": "t", "table_type": "EXTERNAL", "storage_location": "file:///elsewhere/t"}
    answer = client.call(method, path, told)
    failed(answer, 501, "UNIMPLEMENTED", "leave out LOCATION")


def test_the_configuration_lists_what_there_is() -> None:
    listed = {one.replace(" /v1/", " /delta/v1/") for one in delta.ENDPOINTS}
    wanted = {f"{one['method']} {one['path']}" for one in CONTRACT["delta"]}
    assert listed == wanted - {"GET /delta/v1/config"}


def test_kinds_of_errors_have_their_statuses() -> None:
    assert CONTRACT["errors"] == STATUSES


def test_all_actions_and_requirements_are_known() -> None:
    known = {
        commits._ADD_COMMIT,
        commits._SET_PUBLISHED,
        commits._EXTERNAL_TABLES_ONLY,
        *commits._DEFINITION_ACTIONS,
    }
    assert sorted(known) == CONTRACT["actions"]
    assert sorted((commits._ASSERT_UUID, commits._ASSERT_ETAG)) == CONTRACT["requirements"]


def test_column_types_are_the_apis() -> None:
    assert set(_TYPE_NAMES.values()) <= set(CONTRACT["column_types"])


BODIES: dict[str, type[msgspec.Struct]] = {
    "DeltaCreateStagingTableRequest": bodies.StagingTable,
    "DeltaCreateTableRequest": bodies.NewTableBody,
    "DeltaUpdateTableRequest": bodies.UpdateTable,
    "DeltaRenameTableRequest": bodies.Rename,
    "DeltaReportMetricsRequest": bodies.Metrics,
    "DeltaCommit": bodies.StagedCommit,
}


@pytest.mark.parametrize("name", BODIES)
def test_requests_are_asked_for_what_they_have_to_hold(name: str) -> None:
    shape = CONTRACT["requests"][name]
    fields = msgspec.structs.fields(BODIES[name])
    required = {one.encode_name for one in fields if one.required}
    assert required <= set(shape["required"])
    assert {one.encode_name for one in fields} <= set(shape["fields"])


def answered(value: Mapping[str, Any], name: str) -> None:
    """The answer has the fields that it has to have, and no others."""
    shape = CONTRACT["answers"][name]
    assert set(shape["required"]) <= value.keys(), name
    assert value.keys() <= set(shape["fields"]), name


def loaded(value: Mapping[str, Any]) -> None:
    answered(value, "DeltaLoadTableResponse")
    answered(value["metadata"], "DeltaTableMetadata")
    for commit in value["commits"]:
        answered(commit, "DeltaCommit")


def lent(value: Mapping[str, Any]) -> None:
    answered(value, "DeltaCredentialsResponse")
    for one in value["storage-credentials"]:
        answered(one, "DeltaStorageCredential")


def staging(value: Mapping[str, Any]) -> None:
    answered(value, "DeltaStagingTableResponse")
    answered(value["required-protocol"], "DeltaProtocol")


def listed(name: str, key: str, of: str) -> Callable[[Mapping[str, Any]], None]:
    def check(value: Mapping[str, Any]) -> None:
        answered(value, name)
        assert value[key]
        for one in value[key]:
            answered(one, of)

    return check


def info(value: Mapping[str, Any]) -> None:
    answered(value, "TableInfo")
    for one in value["columns"]:
        answered(one, "ColumnInfo")
        assert one["type_name"] in CONTRACT["column_types"]


Check = Callable[[Mapping[str, Any]], None]


def nothing(value: Mapping[str, Any]) -> None:
    assert value == {}


# Route: what checks its answer, and what is asked of the table `t`.
ASKED: dict[str, tuple[Check | None, Callable[[Client], httpx.Response]]] = {
    "GET /delta/v1/config": (
        lambda value: answered(value, "DeltaCatalogConfig"),
        lambda c: c.call("GET", f"/delta/v1/config?catalog={CATALOG}&protocol-versions=1.0"),
    ),
    "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/staging-tables": (
        staging,
        lambda c: c.call(
            "POST",
            f"/delta/v1/catalogs/{CATALOG}/schemas/default/staging-tables",
            {"name": "new"},
        ),
    ),
    "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables": (
        loaded,
        lambda c: c.create("new"),
    ),
    "GET /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}": (
        loaded,
        lambda c: c.call("GET", c.url("t")),
    ),
    "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}": (
        loaded,
        lambda c: c.commit("t", c.stage("t", file("x"))),
    ),
    "DELETE /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}": (
        None,
        lambda c: c.call("DELETE", c.url("t")),
    ),
    "HEAD /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}": (
        None,
        lambda c: c.call("HEAD", c.url("t")),
    ),
    "GET /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/credentials": (
        lent,
        lambda c: c.call("GET", f"{c.url('t')}/credentials?operation=READ_WRITE"),
    ),
    "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/metrics": (
        None,
        lambda c: c.call("POST", f"{c.url('t')}/metrics", {"table-id": c.uuid("t")}),
    ),
    "GET /delta/v1/staging-tables/{table_id}/credentials": (
        lent,
        lambda c: c.call("GET", f"/delta/v1/staging-tables/{c.uuid('t')}/credentials"),
    ),
    "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/rename": (
        None,
        lambda c: c.call("POST", f"{c.url('t')}/rename", {"new-name": "u"}),
    ),
    "GET /delta/v1/temporary-path-credentials": (
        lent,
        lambda c: c.call(
            "GET",
            "/delta/v1/temporary-path-credentials?operation=READ"
            f"&location={c.load('t')['metadata']['location']}",
        ),
    ),
    "GET /metastore_summary": (
        lambda value: answered(value, "GetMetastoreSummaryResponse"),
        lambda c: c.call("GET", "/metastore_summary"),
    ),
    "GET /catalogs": (
        listed("ListCatalogsResponse", "catalogs", "CatalogInfo"),
        lambda c: c.call("GET", "/catalogs"),
    ),
    "GET /catalogs/{name}": (
        lambda value: answered(value, "CatalogInfo"),
        lambda c: c.call("GET", f"/catalogs/{CATALOG}"),
    ),
    "GET /schemas": (
        listed("ListSchemasResponse", "schemas", "SchemaInfo"),
        lambda c: c.call("GET", f"/schemas?catalog_name={CATALOG}"),
    ),
    "POST /schemas": (
        lambda value: answered(value, "SchemaInfo"),
        lambda c: c.call("POST", "/schemas", {"name": "more", "catalog_name": CATALOG}),
    ),
    "GET /schemas/{full_name}": (
        lambda value: answered(value, "SchemaInfo"),
        lambda c: c.call("GET", f"/schemas/{CATALOG}.default"),
    ),
    "DELETE /schemas/{full_name}": (
        nothing,
        lambda c: c.call("DELETE", f"/schemas/{CATALOG}.empty"),
    ),
    "GET /tables": (
        listed("ListTablesResponse", "tables", "TableInfo"),
        lambda c: c.call("GET", f"/tables?catalog_name={CATALOG}&schema_name=default"),
    ),
    "GET /tables/{full_name}": (info, lambda c: c.call("GET", f"/tables/{CATALOG}.default.t")),
    "DELETE /tables/{full_name}": (
        nothing,
        lambda c: c.call("DELETE", f"/tables/{CATALOG}.default.t"),
    ),
    "POST /temporary-table-credentials": (
        nothing,
        lambda c: c.call(
            "POST",
            "/temporary-table-credentials",
            {"table_id": c.uuid("t"), "operation": "READ_WRITE"},
        ),
    ),
}


def test_every_route_is_asked() -> None:
    assert ASKED.keys() == ROUTES.keys()


@pytest.mark.parametrize("route", ASKED)
def test_what_a_route_answers(client: Client, route: str) -> None:
    client.lake.sql(
        "CREATE DATABASE empty; CREATE TABLE t (id INT COMMENT 'the key', d DECIMAL(10,2), "
        f"a ARRAY<STRUCT<x: INT>>, m MAP<STRING, INT>) {OPEN}"
    )
    check, ask = ASKED[route]
    answer = ask(client)
    assert answer.status_code in (200, 204), answer.text
    assert answer.status_code in ROUTES[route]["statuses"]
    if check is None:
        assert answer.status_code == 204
        assert answer.content == b""
    else:
        check(answer.json())


PLACEHOLDER = re.compile(r"{\w+}")
WANT_BODY = [one for one in ROUTES if one.startswith("POST")]


def filled(client: Client, route: str, table: str) -> tuple[str, str]:
    """The method and a path of a route."""
    method, path = route.split(" ")
    for name, value in {
        "{catalog}": CATALOG,
        "{schema}": "default",
        "{table}": table,
        "{table_id}": "00000000-0000-4000-8000-000000000000",
        "{name}": CATALOG,
        "{full_name}": f"{CATALOG}.default.{table}",
    }.items():
        path = path.replace(name, value)
    assert not PLACEHOLDER.search(path)
    return method, path


@pytest.mark.parametrize("route", WANT_BODY)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'"x"', b"\xff\xfe", b"null"])
def test_a_body_that_is_none(client: Client, route: str, content: bytes) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    method, path = filled(client, route, "t")
    answer = client.call(method, path, content=content)
    if "/delta/" in path:
        failed(answer, 400, "InvalidParameterValueException")
        answered(answer.json()["error"], "DeltaErrorModel")
    else:
        failed(answer, 400, "INVALID_ARGUMENT")
    assert client.version("t") == 0


@pytest.mark.parametrize("route", [one for one in ROUTES if "{catalog}" in one])
def test_a_catalog_or_a_schema_that_there_is_not(client: Client, route: str) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    method, path = filled(client, route, "t")
    ask = path + ("?operation=READ" if path.endswith("credentials") else "")
    for wrong, kind in (
        (ask.replace(CATALOG, "elsewhere"), "NoSuchCatalogException"),
        (ask.replace("/default/", "/nowhere/"), "NoSuchSchemaException"),
    ):
        answer = client.call(method, wrong, {})
        assert answer.status_code == 404
        if method != "HEAD":
            assert answer.json()["error"]["type"] == kind


@pytest.mark.parametrize("route", [one for one in ROUTES if "{table}" in one])
def test_a_table_that_there_is_not(client: Client, route: str) -> None:
    method, path = filled(client, route, "gone")
    ask = path + ("?operation=READ" if path.endswith("credentials") else "")
    answer = client.call(method, ask, {})
    assert answer.status_code == 404
    if method != "HEAD":
        assert answer.json()["error"]["type"] == "NoSuchTableException"


def test_columns_have_the_apis_names(client: Client) -> None:
    client.lake.sql(
        f"CREATE TABLE t (a ARRAY<STRUCT<x: INT>>, m MAP<STRING, INT> COMMENT 'keys') {OPEN}"
    )
    array, mapping = client.load("t")["metadata"]["columns"]["fields"]
    assert array["type"].keys() == {"type", "element-type", "contains-null"}
    assert array["type"]["element-type"]["fields"][0]["name"] == "x"
    assert mapping["type"].keys() == {"type", "key-type", "value-type", "value-contains-null"}
    assert mapping["metadata"] == {"comment": "keys"}
