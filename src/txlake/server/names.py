"""The older API's calls for browsing: catalogs, schemas and tables by name.

The lake is one catalog, its databases are the schemas. Source: Unity Catalog's API, "Catalogs",
"Schemas", "Tables".
"""

from __future__ import annotations

from txlake.catalog import DatabaseEntry
from txlake.server.api_errors import ApiError
from txlake.server.bodies import NewSchema, TableCredentials
from txlake.server.calls import ApiResponse, Call, check_new_name
from txlake.server.delta import check_operation, find_table
from txlake.server.responses import table_info, table_state
from txlake.sql.statements import CreateDatabase, DropDatabase, DropTable, TableName


def summary(call: Call) -> ApiResponse:
    """Return the metastore: the lake."""
    return ApiResponse(200, {"metastore_id": call.engine.catalog.of_lake().lake_id})


def catalogs(call: Call) -> ApiResponse:
    """Return the lake, as the only catalog."""
    return ApiResponse(200, {"catalogs": [_catalog(call)], "next_page_token": None})


def catalog(call: Call) -> ApiResponse:
    """Return the lake's catalog. Raises ApiError for another name."""
    call.check_catalog(call.path["name"])
    return ApiResponse(200, _catalog(call))


def _catalog(call: Call) -> dict[str, object]:
    """Return the lake as a catalog of the older API."""
    return {
        "name": call.served_lake.catalog_name,
        "id": call.engine.catalog.of_lake().lake_id,
        "properties": {},
    }


def schemas(call: Call) -> ApiResponse:
    """Return a page of the databases."""
    call.check_catalog(call.required("catalog_name"))
    entries = list(call.engine.catalog.databases())
    start, end, next_token = call.page(len(entries))
    listed = [_schema(call, entry) for entry in entries[start:end]]
    return ApiResponse(200, {"schemas": listed, "next_page_token": next_token})


def schema(call: Call) -> ApiResponse:
    """Return a database. Raises ApiError without such a database."""
    return ApiResponse(200, _schema(call, _database(call)))


def create_schema(call: Call) -> ApiResponse:
    """Create a database, and return it.

    Raises ApiError (400) if it exists, or its name has a forbidden character, and (404) for another
    catalog.
    """
    body = call.body(NewSchema)
    call.check_catalog(body.catalog_name)
    check_new_name(body.name)
    if call.engine.catalog.database(body.name) is not None:
        raise ApiError("AlreadyExistsException", f"schema {body.name!r} exists already")
    statement = CreateDatabase(
        name=body.name, comment=body.comment, properties=tuple((body.properties or {}).items())
    )
    call.session.answer_in(None, statement)
    entry = call.engine.catalog.database(body.name)
    if entry is None:
        raise ApiError("NoSuchSchemaException", f"schema {body.name!r} was dropped already")
    return ApiResponse(200, _schema(call, entry))


def delete_schema(call: Call) -> ApiResponse:
    """Drop a database. Raises as `drop_database`: `force` is its CASCADE."""
    entry = _database(call)
    force = call.query.get("force", "false").lower() == "true"
    call.session.answer_in(None, DropDatabase(name=entry.name, cascade=force))
    return ApiResponse(200, {})


def _database(call: Call) -> DatabaseEntry:
    """Return the database that the path names.

    Raises ApiError for a name that isn't catalog.schema, and without such a database.
    """
    owner, name = _split_schema_name(call.path["full_name"])
    call.check_catalog(owner)
    entry = call.engine.catalog.database(name)
    if entry is None:
        raise ApiError("NoSuchSchemaException", f"there is no schema {name!r}")
    return entry


def _schema(call: Call, entry: DatabaseEntry) -> dict[str, object]:
    """Return a database as a schema of the older API."""
    catalog = call.served_lake.catalog_name
    return {
        "name": entry.name,
        "catalog_name": catalog,
        "full_name": f"{catalog}.{entry.name}",
        "comment": entry.comment,
        "properties": dict(entry.properties),
        "created_at": entry.created_ms,
        "updated_at": entry.created_ms,
        "schema_id": entry.id,
    }


def tables(call: Call) -> ApiResponse:
    """Return a page of a database's tables, without those that are just being created."""
    call.check_catalog(call.required("catalog_name"))
    database = call.database(call.required("schema_name"))
    entries = [entry for entry in call.engine.catalog.tables(database) if entry.head is not None]
    start, end, next_token = call.page(len(entries))
    catalog = call.served_lake.catalog_name
    listed = [
        table_info(catalog, table_state(call.engine, call.engine.at_entry(entry)))
        for entry in entries[start:end]
    ]
    return ApiResponse(200, {"tables": listed, "next_page_token": next_token})


def create_table(call: Call) -> ApiResponse:
    """Raise ApiError: commits of a table at a location of its own don't go through a catalog."""
    raise ApiError(
        "NotImplementedException",
        "this server makes no EXTERNAL tables, whose commits don't go through a catalog: leave out "
        "LOCATION, so that the table is made by the Delta API, or take the one that is there in by "
        "lake.attach",
    )


def table(call: Call) -> ApiResponse:
    """Return a table. Raises ApiError without such a table."""
    state = table_state(call.engine, find_table(call, *_table_names(call)))
    return ApiResponse(200, table_info(call.served_lake.catalog_name, state))


def delete_table(call: Call) -> ApiResponse:
    """Drop a table. It can be undropped, like a table that SQL dropped."""
    entry = find_table(call, *_table_names(call)).entry
    assert entry is not None
    name = TableName((entry.database, entry.name))
    call.session.answer_in(None, DropTable(table=name, if_exists=False))
    return ApiResponse(200, {})


def table_credentials(call: Call) -> ApiResponse:
    """Return no credentials: a client needs none for files in a folder, and for other stores its
    own.

    Raises ApiError for an unknown table or operation, and where a read-only caller asks to write.
    """
    body = call.body(TableCredentials)
    check_operation(body.operation)
    if call.caller.read_only and body.operation != "READ":
        raise ApiError("PermissionDeniedException", f"{call.caller.name!r} may only read")
    if call.engine.catalog.of_lake().ledger.head(body.table_id) is None:
        raise ApiError(
            "NoSuchTableException", f"there is no table with the id {body.table_id!r:.80}"
        )
    return ApiResponse(200, {})


def _table_names(call: Call) -> tuple[str, str]:
    """Return the database and the table that the path names.

    Raises ApiError for a name that isn't catalog.schema.table, and without such a database.
    """
    parts = call.path["full_name"].split(".")
    if len(parts) != 3:
        raise ApiError(
            "InvalidParameterValueException",
            f"expected catalog.schema.table, found {call.path['full_name']!r:.120}",
        )
    call.check_catalog(parts[0])
    return call.database(parts[1]), parts[2]


def _split_schema_name(full_name: str) -> tuple[str, str]:
    """Return the names of the catalog and the schema. Raises ApiError for another form."""
    owner, dot, name = full_name.partition(".")
    if not dot or not name or "." in name:
        raise ApiError(
            "InvalidParameterValueException",
            f"expected catalog.schema, found {full_name!r:.120}",
        )
    return owner, name
