"""Iceberg's REST catalog, to read: databases are namespaces, tables that are published tables.

A table is listed if its versions are published as Iceberg metadata (`commit.iceberg_publication`).
Whatever would write is refused: the tables are Delta tables. Source: Iceberg's REST catalog
specification, `open-api/rest-catalog-open-api.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from txlake.catalog import DatabaseEntry
from txlake.commit.iceberg_publication import publish_iceberg
from txlake.packages import WITHOUT_PYICEBERG, has_pyiceberg
from txlake.protocol.iceberg import maintains_iceberg
from txlake.server.api_errors import ApiError
from txlake.server.calls import ApiResponse, Call
from txlake.server.delta import lent_options
from txlake.server.responses import TableState, table_state
from txlake.session.engine import Handle

_NAMESPACE = "/v1/{prefix}/namespaces/{namespace}"
ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    f"GET {_NAMESPACE}",
    f"HEAD {_NAMESPACE}",
    f"GET {_NAMESPACE}/tables",
    f"GET {_NAMESPACE}/tables/{{table}}",
    f"HEAD {_NAMESPACE}/tables/{{table}}",
    f"POST {_NAMESPACE}/tables/{{table}}/metrics",
)
"""The endpoints that the configuration lists."""

_PLACES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "s3": {
        "s3.endpoint": ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
        "client.region": ("aws_region", "region", "aws_default_region", "default_region"),
    }
}
_LEVELS = "\x1f"  # between the levels of a namespace
Item = TypeVar("Item")


def config(call: Call) -> ApiResponse:
    """Return the endpoints. Raises ApiError for another warehouse (404), and without the extra
    `iceberg` (501).
    """
    if not has_pyiceberg():
        raise ApiError("NotImplementedException", WITHOUT_PYICEBERG)
    warehouse = call.query.get("warehouse")
    if warehouse and warehouse.lower() not in call.served_lake.catalog_names:
        raise ApiError(
            "NoSuchWarehouseException",
            f"there is no warehouse {warehouse!r:.120} here; this is "
            f"{call.served_lake.catalog_name!r}",
            status=404,
        )
    return ApiResponse(200, {"defaults": {}, "overrides": {}, "endpoints": list(ENDPOINTS)})


def namespaces(call: Call) -> ApiResponse:
    """Return a page of the databases; none are inside of a database. Raises ApiError (404)."""
    parent = call.query.get("parent")
    names: list[str] = []
    if parent:
        _database(call, parent)
    else:
        names = [entry.name for entry in call.engine.catalog.of_lake().databases()]
    page, token = _page(call, names)
    return ApiResponse(200, {"namespaces": [[name] for name in page], "next-page-token": token})


def namespace(call: Call) -> ApiResponse:
    """Return a database. Raises ApiError (404)."""
    entry = _database(call, call.path["namespace"])
    properties = dict(entry.properties)
    if entry.comment is not None:
        properties["comment"] = entry.comment
    return ApiResponse(200, {"namespace": [entry.name], "properties": properties})


def namespace_exists(call: Call) -> ApiResponse:
    """Answer 204 if the database exists. Raises ApiError (404)."""
    _database(call, call.path["namespace"])
    return ApiResponse(204)


def tables(call: Call) -> ApiResponse:
    """Return a page of a database's tables that are published as Iceberg metadata.

    Raises ApiError (404) without such a database.
    """
    database = _database(call, call.path["namespace"]).name
    entries = [entry for entry in call.engine.catalog.tables(database) if entry.head is not None]
    page, token = _page(call, entries)
    listed = [
        {"namespace": [database], "name": entry.name}
        for entry in page
        if _is_published(call.engine.at_entry(entry))
    ]
    return ApiResponse(200, {"identifiers": listed, "next-page-token": token})


def table(call: Call) -> ApiResponse:
    """Return a table's newest metadata, which shows its newest version.

    Versions that aren't published yet are published first. With the query parameter
    `snapshots=refs` only the current snapshot is in it. Raises ApiError (404) without such a table.
    """
    state = _table(call)
    published = publish_iceberg(state.log, state.snapshot)
    metadata = state.log.store.get(published.path)
    if call.query.get("snapshots") == "refs":
        metadata = _with_current_snapshot(metadata)
    body = {
        "metadata-location": published.location,
        "metadata": msgspec.Raw(metadata),
        "config": _config(call, state),
    }
    return ApiResponse(200, body)


def _with_current_snapshot(metadata: bytes) -> bytes:
    """Return the metadata's JSON without the snapshots that no reference names."""
    found = msgspec.json.decode(metadata)
    current = found.get("current-snapshot-id")
    found["snapshots"] = [one for one in found["snapshots"] if one["snapshot-id"] == current]
    return msgspec.json.encode(found)


def table_exists(call: Call) -> ApiResponse:
    """Answer 204 if the table exists and is published. Raises ApiError (404)."""
    _table(call)
    return ApiResponse(204)


def metrics(call: Call) -> ApiResponse:
    """Discard a client's report of a scan. Raises ApiError (404) without such a table."""
    _table(call)
    return ApiResponse(204)


def refuse(call: Call) -> ApiResponse:
    """Raise ApiError (406): whatever writes."""
    raise ApiError(
        "UnsupportedOperationException",
        "this catalog is to read: its tables are Delta tables, which txlake's SQL writes, and "
        "engines of Delta by the Delta API",
        status=406,
    )


def _database(call: Call, name: str) -> DatabaseEntry:
    """Return a database. Raises ApiError (404); also for a namespace of several levels."""
    entry = None if _LEVELS in name else call.engine.catalog.of_lake().database(name)
    if entry is None:
        shown = name.replace(_LEVELS, ".")
        raise ApiError(
            "NoSuchNamespaceException", f"there is no namespace {shown!r:.120}", status=404
        )
    return entry


def _table(call: Call) -> TableState:
    """Return the published table that the path names.

    Raises ApiError (404) of one kind for a missing namespace and a missing table: Iceberg's clients
    look for a metadata table `db.table.snapshots` by the first error.
    """
    database, name = call.path["namespace"].replace(_LEVELS, "."), call.path["table"]
    entry = call.engine.catalog.of_lake().find(database, name)
    if entry is None or entry.head is None:
        raise ApiError("NoSuchTableException", f"there is no table {database:.120}.{name:.120}")
    state = table_state(call.engine, call.engine.at_entry(entry))
    if not maintains_iceberg(state.snapshot.metadata):
        raise ApiError(
            "NoSuchTableException",
            f"{database}.{name} isn't published for Iceberg's readers; ALTER TABLE ... SET "
            "TBLPROPERTIES ('delta.universalFormat.enabledFormats' = 'iceberg') does it",
        )
    return state


def _is_published(handle: Handle) -> bool:
    return maintains_iceberg(handle.log.latest().metadata)


def _config(call: Call, state: TableState) -> dict[str, str]:
    """Return the place of a table's store, and the lake's credentials if they are lent."""
    url = state.log.store.url
    found = dict(lent_options(call, url, _PLACES))
    if call.served_lake.vends_credentials and not call.caller.read_only:
        found |= lent_options(call, url)
    return found


def _page(call: Call, items: Sequence[Item]) -> tuple[Sequence[Item], str | None]:
    """Return a page of the items and the next page's token; all of them without `pageSize`.

    Raises ApiError (400) for invalid parameters.
    """
    token, size = call.query.get("pageToken") or "0", call.query.get("pageSize") or ""
    if not token.isdecimal() or not (size.isdecimal() or not size):
        raise ApiError("BadRequestException", f"invalid page: {token!r:.80}, {size!r:.80}")
    start = int(token)
    end = start + (int(size or 0) or len(items))
    return items[start:end], str(end) if end < len(items) else None
