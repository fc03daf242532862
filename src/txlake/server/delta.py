"""The Delta API on tables that are there: configuration, load, rename, delete, credentials.

What writes a version is in `commits` and `creation`.
"""

from __future__ import annotations

from collections.abc import Mapping

from txlake.errors import InvalidRequest
from txlake.server.answers import loaded, shown
from txlake.server.bodies import Metrics, Rename
from txlake.server.calls import Answer, Call, check_new_name
from txlake.server.creation import staged_id
from txlake.server.failures import Failure
from txlake.session.engine import Handle
from txlake.statements import DropTable, RenameTable, TableName
from txlake.storage import canonical_url

VERSION = "1.0"
ENDPOINTS = (
    "POST /v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables",
    "GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",
    "DELETE /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",
    "HEAD /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/rename",
    "GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/credentials",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/metrics",
    "GET /v1/staging-tables/{table_id}/credentials",
    "GET /v1/temporary-path-credentials",
)
"""What the server has, as its configuration lists it; below `/delta`."""

OPERATIONS = ("READ", "READ_WRITE")
_LENT_MS = 3_600_000
# Storage options of the lake, under what clients call them.
_LENT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "s3": {
        "s3.access-key-id": ("aws_access_key_id", "access_key_id"),
        "s3.secret-access-key": ("aws_secret_access_key", "secret_access_key"),
        "s3.session-token": ("aws_session_token", "aws_token", "session_token", "token"),
    },
    "abfss": {"azure.sas-token": ("azure_storage_sas_token", "azure_storage_sas_key", "sas_token")},
    "az": {"azure.sas-token": ("azure_storage_sas_token", "azure_storage_sas_key", "sas_token")},
}


def found(call: Call) -> Handle:
    """The table that the path names. Raises Failure where there is none."""
    call.check_catalog(call.path["catalog"])
    return table_named(call, call.path["schema"], call.path["table"])


def table_named(call: Call, database: str, name: str) -> Handle:
    """A table by its names. Raises Failure where there is none."""
    entry = call.engine.catalog.of_lake().find(database, name)
    if entry is None or entry.head is None:
        database = call.database(database)  # raises where there is none
        raise Failure("NoSuchTableException", f"there is no table {database}.{name}")
    return call.engine.at_entry(entry)


def config(call: Call) -> Answer:
    """What the server speaks."""
    call.check_catalog(call.required("catalog"))
    asked = [one.strip() for one in call.required("protocol-versions").split(",")]
    majors = [one.partition(".")[0] for one in asked if one]
    if not majors or not all(one.isdecimal() for one in majors):
        raise Failure(
            "InvalidParameterValueException",
            f"protocol-versions: found {','.join(asked)!r:.80}",
        )
    if VERSION.partition(".")[0] not in majors:
        raise Failure(
            "InvalidParameterValueException",
            f"protocol-versions: this server speaks {VERSION}, the client {','.join(asked)}",
        )
    return Answer(200, {"endpoints": list(ENDPOINTS), "protocol-version": VERSION})


def load(call: Call) -> Answer:
    """The table as it is now."""
    return Answer(200, loaded(shown(call.engine, found(call))))


def exists(call: Call) -> Answer:
    """Whether there is such a table."""
    found(call)
    return Answer(204)


def delete(call: Call) -> Answer:
    """Drops the table; it can come back, as one that SQL dropped."""
    name = _name(found(call))
    call.session.answer_in(None, DropTable(table=name, if_exists=False))
    return Answer(204)


def rename(call: Call) -> Answer:
    """Gives the table another name in its schema."""
    handle = found(call)
    entry = handle.entry
    assert entry is not None
    wanted = call.body(Rename).new_name
    check_new_name(wanted)
    if wanted == entry.name:
        return Answer(204)
    if call.engine.catalog.of_lake().find(entry.database, wanted) is not None:
        raise Failure("AlreadyExistsException", f"{entry.database}.{wanted} exists already")
    call.engine.place_of(entry.database, wanted)  # raises for what can't be a name
    call.session.answer_in(None, RenameTable(_name(handle), TableName((entry.database, wanted))))
    return Answer(204)


def _name(handle: Handle) -> TableName:
    assert handle.entry is not None
    return TableName((handle.entry.database, handle.entry.name))


def metrics(call: Call) -> Answer:
    """Takes a client's report of a commit, which the log tells anyway."""
    handle = found(call)
    assert handle.entry is not None
    told = call.body(Metrics).table_id
    if told.lower() != handle.entry.id:
        raise Failure(
            "InvalidParameterValueException",
            f"{handle.name}: the report is of table {told!r:.80}, and this is {handle.entry.id}",
        )
    return Answer(204)


# Credentials


def credentials(call: Call) -> Answer:
    """What a client needs to read or write a table's files."""
    handle = found(call)
    return _lent(call, handle.store.url, _operation(call))


def staging_credentials(call: Call) -> Answer:
    """What a client needs to write a new table's first commit."""
    table_id = staged_id(call.path["table_id"])
    if table_id is None:
        raise Failure("NoSuchTableException", f"{call.path['table_id']!r:.80} is no table's id")
    warehouse = call.engine.warehouse
    assert warehouse is not None
    return _lent(call, warehouse.url, "READ_WRITE")


def path_credentials(call: Call) -> Answer:
    """What a client needs at a place, which has to be the lake's."""
    warehouse = call.engine.warehouse
    assert warehouse is not None
    try:
        place = canonical_url(call.required("location"))
    except InvalidRequest as error:
        raise Failure("InvalidParameterValueException", str(error)) from error
    if not place.startswith(f"{warehouse.url}/"):
        raise Failure("PermissionDeniedException", f"{place} isn't in this lake's warehouse")
    return _lent(call, place, _operation(call))


def _operation(call: Call) -> str:
    return check_operation(call.required("operation"))


def check_operation(operation: str) -> str:
    """What a client asks credentials for. Raises Failure for what there are none for."""
    if operation not in OPERATIONS:
        raise Failure(
            "InvalidParameterValueException",
            f"operation: expected {' or '.join(OPERATIONS)}, found {operation!r:.80}",
        )
    return operation


def _lent(call: Call, place: str, operation: str) -> Answer:
    """A place's credentials: none are needed for folders, others are the lake's own.

    Those can't be narrowed to reading, so that a caller who may only read gets none of them.
    """
    if call.caller.read_only and operation != "READ":
        raise Failure(
            "PermissionDeniedException", f"{call.caller.name!r} may only read; ask for READ"
        )
    given = _LENT.get(place.partition(":")[0], {})
    config: dict[str, str] = {}
    if given:
        if not call.served.vends_credentials or call.caller.read_only:
            raise Failure(
                "PermissionDeniedException",
                f"this server lends no credentials for {place} to {call.caller.name!r}; "
                "give the client its own",
            )
        own = {key.lower(): text for key, text in call.engine.storage_options.items()}
        for name, keys in given.items():
            text = next((own[key] for key in keys if key in own), None)
            if text is not None:
                config[name] = text
    until = call.engine.system.now_ms() + _LENT_MS
    lent = {
        "prefix": place,
        "operation": operation,
        "expiration-time-ms": until,
        "config": config,
    }
    return Answer(200, {"storage-credentials": [lent]})
