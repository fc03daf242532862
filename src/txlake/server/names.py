"""The older API's calls with which clients find their way: catalogs, schemas and tables by name.

The lake is one catalog, its databases are the schemas. Source: Unity Catalog's API, "Catalogs",
"Schemas", "Tables".
"""

from __future__ import annotations

from txlake.catalog import DatabaseEntry
from txlake.server.answers import shown, table_info
from txlake.server.bodies import NewSchema, TableCredentials
from txlake.server.calls import Answer, Call, check_new_name
from txlake.server.delta import check_operation, table_named
from txlake.server.failures import Failure
from txlake.statements import CreateDatabase, DropDatabase, DropTable, TableName


def summary(call: Call) -> Answer:
    """Which metastore this is: the lake."""
    return Answer(200, {"metastore_id": call.engine.catalog.of_lake().lake_id})


def catalogs(call: Call) -> Answer:
    """The lake, as the only catalog."""
    return Answer(200, {"catalogs": [_catalog(call)], "next_page_token": None})


def catalog(call: Call) -> Answer:
    """The lake."""
    call.check_catalog(call.path["name"])
    return Answer(200, _catalog(call))


def _catalog(call: Call) -> dict[str, object]:
    return {
        "name": call.served.catalog_name,
        "id": call.engine.catalog.of_lake().lake_id,
        "properties": {},
    }


def schemas(call: Call) -> Answer:
    """The databases."""
    call.check_catalog(call.required("catalog_name"))
    entries = list(call.engine.catalog.databases())
    start, end, following = call.page(len(entries))
    listed = [_schema(call, entry) for entry in entries[start:end]]
    return Answer(200, {"schemas": listed, "next_page_token": following})


def schema(call: Call) -> Answer:
    """A database."""
    return Answer(200, _schema(call, _database(call)))


def create_schema(call: Call) -> Answer:
    """A new database."""
    told = call.body(NewSchema)
    call.check_catalog(told.catalog_name)
    check_new_name(told.name)
    if call.engine.catalog.database(told.name) is not None:
        raise Failure("AlreadyExistsException", f"schema {told.name!r} exists already")
    statement = CreateDatabase(
        name=told.name, comment=told.comment, properties=tuple((told.properties or {}).items())
    )
    call.session.answer_in(None, statement)
    made = call.engine.catalog.database(told.name)
    if made is None:
        raise Failure("NoSuchSchemaException", f"schema {told.name!r} was dropped already")
    return Answer(200, _schema(call, made))


def delete_schema(call: Call) -> Answer:
    """Drops a database; one that holds tables only where that is forced."""
    entry = _database(call)
    force = call.query.get("force", "false").lower() == "true"
    call.session.answer_in(None, DropDatabase(name=entry.name, cascade=force))
    return Answer(200, {})


def _database(call: Call) -> DatabaseEntry:
    owner, name = _two(call.path["full_name"])
    call.check_catalog(owner)
    found = call.engine.catalog.database(name)
    if found is None:
        raise Failure("NoSuchSchemaException", f"there is no schema {name!r}")
    return found


def _schema(call: Call, entry: DatabaseEntry) -> dict[str, object]:
    catalog = call.served.catalog_name
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


def tables(call: Call) -> Answer:
    """A database's tables."""
    call.check_catalog(call.required("catalog_name"))
    database = call.database(call.required("schema_name"))
    entries = [one for one in call.engine.catalog.tables(database) if one.head is not None]
    start, end, following = call.page(len(entries))
    catalog = call.served.catalog_name
    listed = [
        table_info(catalog, shown(call.engine, call.engine.at_entry(entry)))
        for entry in entries[start:end]
    ]
    return Answer(200, {"tables": listed, "next_page_token": following})


def create_table(call: Call) -> Answer:
    """Raises Failure: a table at a place of its own isn't one whose commits a lake makes."""
    raise Failure(
        "NotImplementedException",
        "this server makes no EXTERNAL tables, whose commits don't go through a catalog: leave out "
        "LOCATION, so that the table is made by the Delta API, or take the one that is there in by "
        "lake.attach",
    )


def table(call: Call) -> Answer:
    """A table."""
    handle = table_named(call, *_names(call))
    return Answer(200, table_info(call.served.catalog_name, shown(call.engine, handle)))


def delete_table(call: Call) -> Answer:
    """Drops a table; it can come back, as one that SQL dropped."""
    entry = table_named(call, *_names(call)).entry
    assert entry is not None
    name = TableName((entry.database, entry.name))
    call.session.answer_in(None, DropTable(table=name, if_exists=False))
    return Answer(200, {})


def table_credentials(call: Call) -> Answer:
    """What a client needs to read or write a table's files in a folder: nothing."""
    told = call.body(TableCredentials)
    check_operation(told.operation)
    if call.caller.read_only and told.operation != "READ":
        raise Failure("PermissionDeniedException", f"{call.caller.name!r} may only read")
    if call.engine.catalog.of_lake().ledger.head(told.table_id) is None:
        raise Failure(
            "NoSuchTableException", f"there is no table with the id {told.table_id!r:.80}"
        )
    return Answer(200, {})


def _names(call: Call) -> tuple[str, str]:
    parts = call.path["full_name"].split(".")
    if len(parts) != 3:
        raise Failure(
            "InvalidParameterValueException",
            f"expected catalog.schema.table, found {call.path['full_name']!r:.120}",
        )
    call.check_catalog(parts[0])
    return call.database(parts[1]), parts[2]


def _two(full_name: str) -> tuple[str, str]:
    owner, dot, name = full_name.partition(".")
    if not dot or not name or "." in name:
        raise Failure(
            "InvalidParameterValueException",
            f"expected catalog.schema, found {full_name!r:.120}",
        )
    return owner, name
