"""The Delta API on existing tables: configuration, load, rename, delete, credentials.

Requests that write a version are in `commits` and `creation`.
"""

from __future__ import annotations

from collections.abc import Mapping

from txlake.errors import InvalidRequest
from txlake.server.api_errors import ApiError
from txlake.server.bodies import Metrics, Rename
from txlake.server.calls import ApiResponse, Call, check_new_name
from txlake.server.creation import parse_table_id
from txlake.server.responses import load_response, table_state
from txlake.session.engine import Handle
from txlake.sql.statements import DropTable, RenameTable, TableName
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
"""The endpoints that the configuration lists, below `/delta`."""

OPERATIONS = ("READ", "READ_WRITE")
_CREDENTIALS_MS = 3_600_000
# The lake's storage options, by the clients' names for them.
_CREDENTIAL_OPTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "s3": {
        "s3.access-key-id": ("aws_access_key_id", "access_key_id"),
        "s3.secret-access-key": ("aws_secret_access_key", "secret_access_key"),
        "s3.session-token": ("aws_session_token", "aws_token", "session_token", "token"),
    },
    "abfss": {"azure.sas-token": ("azure_storage_sas_token", "azure_storage_sas_key", "sas_token")},
    "az": {"azure.sas-token": ("azure_storage_sas_token", "azure_storage_sas_key", "sas_token")},
}


def requested_table(call: Call) -> Handle:
    """Return the table that the path names. Raises ApiError (404) without such a catalog or
    table.
    """
    call.check_catalog(call.path["catalog"])
    return find_table(call, call.path["schema"], call.path["table"])


def find_table(call: Call, database: str, name: str) -> Handle:
    """Return a table by its names.

    Raises ApiError (404) without such a schema or table; one that is still being made doesn't
    count.
    """
    entry = call.engine.catalog.of_lake().find(database, name)
    if entry is None or entry.head is None:
        database = call.database(database)  # raises where there is none
        raise ApiError("NoSuchTableException", f"there is no table {database}.{name}")
    return call.engine.at_entry(entry)


def config(call: Call) -> ApiResponse:
    """Return the API's version and endpoints.

    Raises ApiError (400) for a client of other major versions only, or without valid ones, and
    (404) for another catalog.
    """
    call.check_catalog(call.required("catalog"))
    client_versions = [version.strip() for version in call.required("protocol-versions").split(",")]
    majors = [version.partition(".")[0] for version in client_versions if version]
    if not majors or not all(major.isdecimal() for major in majors):
        raise ApiError(
            "InvalidParameterValueException",
            f"protocol-versions: found {','.join(client_versions)!r:.80}",
        )
    if VERSION.partition(".")[0] not in majors:
        raise ApiError(
            "InvalidParameterValueException",
            f"protocol-versions: this server speaks {VERSION}, the client "
            f"{','.join(client_versions)}",
        )
    return ApiResponse(200, {"endpoints": list(ENDPOINTS), "protocol-version": VERSION})


def load(call: Call) -> ApiResponse:
    """Return the table as it is now. Raises ApiError without such a table."""
    return ApiResponse(200, load_response(table_state(call.engine, requested_table(call))))


def exists(call: Call) -> ApiResponse:
    """Answer 204 if the table exists. Raises ApiError without such a table."""
    requested_table(call)
    return ApiResponse(204)


def delete(call: Call) -> ApiResponse:
    """Drop the table, which can be undropped like a table that SQL dropped.

    Raises ApiError (404) without such a table.
    """
    name = _name(requested_table(call))
    call.session.answer_in(None, DropTable(table=name, if_exists=False))
    return ApiResponse(204)


def rename(call: Call) -> ApiResponse:
    """Rename the table within its schema. Does nothing if that is its name.

    Raises ApiError for a name that is taken (409) or has a forbidden character (400), and
    InvalidRequest for one that is invalid otherwise.
    """
    handle = requested_table(call)
    entry = handle.entry
    assert entry is not None
    new_name = call.body(Rename).new_name
    check_new_name(new_name)
    if new_name == entry.name:
        return ApiResponse(204)
    if call.engine.catalog.of_lake().find(entry.database, new_name) is not None:
        raise ApiError("AlreadyExistsException", f"{entry.database}.{new_name} exists already")
    call.engine.place_of(entry.database, new_name)  # raises for what can't be a name
    call.session.answer_in(None, RenameTable(_name(handle), TableName((entry.database, new_name))))
    return ApiResponse(204)


def _name(handle: Handle) -> TableName:
    assert handle.entry is not None
    return TableName((handle.entry.database, handle.entry.name))


def metrics(call: Call) -> ApiResponse:
    """Discard a client's report of a commit, whose facts are in the log.

    Raises ApiError (400) if the report has another table's id.
    """
    handle = requested_table(call)
    assert handle.entry is not None
    table_id = call.body(Metrics).table_id
    if table_id.lower() != handle.entry.id:
        raise ApiError(
            "InvalidParameterValueException",
            f"{handle.name}: the report is of table {table_id!r:.80}, and this is "
            f"{handle.entry.id}",
        )
    return ApiResponse(204)


# Credentials


def credentials(call: Call) -> ApiResponse:
    """Return what a client needs to read or write a table's files.

    Raises ApiError as `_credentials`.
    """
    handle = requested_table(call)
    return _credentials(call, handle.store.url, _operation(call))


def staging_credentials(call: Call) -> ApiResponse:
    """Return what a client needs to write a new table's first commit.

    It is for the whole warehouse, as the id isn't kept. Raises ApiError as `_credentials`, and for
    an id that isn't a UUID.
    """
    table_id = parse_table_id(call.path["table_id"])
    if table_id is None:
        raise ApiError("NoSuchTableException", f"{call.path['table_id']!r:.80} is no table's id")
    warehouse = call.engine.warehouse
    assert warehouse is not None
    return _credentials(call, warehouse.url, "READ_WRITE")


def path_credentials(call: Call) -> ApiResponse:
    """Return what a client needs at a location inside the lake's warehouse.

    Raises ApiError for a location elsewhere and for the warehouse itself (403), for an invalid one
    (400), and as `_credentials`.
    """
    warehouse = call.engine.warehouse
    assert warehouse is not None
    try:
        location = canonical_url(call.required("location"))
    except InvalidRequest as error:
        raise ApiError("InvalidParameterValueException", str(error)) from error
    if not location.startswith(f"{warehouse.url}/"):
        raise ApiError("PermissionDeniedException", f"{location} isn't in this lake's warehouse")
    return _credentials(call, location, _operation(call))


def _operation(call: Call) -> str:
    return check_operation(call.required("operation"))


def check_operation(operation: str) -> str:
    """Return the operation that credentials are for. Raises ApiError for an unknown one."""
    if operation not in OPERATIONS:
        raise ApiError(
            "InvalidParameterValueException",
            f"operation: expected {' or '.join(OPERATIONS)}, found {operation!r:.80}",
        )
    return operation


def lent_options(
    call: Call,
    location: str,
    names: Mapping[str, Mapping[str, tuple[str, ...]]] = _CREDENTIAL_OPTIONS,
) -> Mapping[str, str]:
    """Return the lake's own credentials for a location, by the clients' names; none where a client
    needs none.

    `names`: by scheme of the location, the clients' name and the lake's names of each option.
    """
    lake_options = {key.lower(): text for key, text in call.engine.storage_options.items()}
    found: dict[str, str] = {}
    for name, keys in names.get(location.partition(":")[0], {}).items():
        text = next((lake_options[key] for key in keys if key in lake_options), None)
        if text is not None:
            found[name] = text
    return found


def _credentials(call: Call, location: str, operation: str) -> ApiResponse:
    """Return a location's credentials: the lake's own for S3 and Azure, an empty set elsewhere.

    Raises ApiError if a read-only caller asks for more than READ. For S3 and Azure also raises it
    to every read-only caller, as the lake's own credentials can't be narrowed to reading, and if
    the server lends none.
    """
    if call.caller.read_only and operation != "READ":
        raise ApiError(
            "PermissionDeniedException", f"{call.caller.name!r} may only read; ask for READ"
        )
    config: Mapping[str, str] = {}
    if location.partition(":")[0] in _CREDENTIAL_OPTIONS:
        if not call.served_lake.vends_credentials or call.caller.read_only:
            raise ApiError(
                "PermissionDeniedException",
                f"this server lends no credentials for {location} to {call.caller.name!r}; "
                "give the client its own",
            )
        config = lent_options(call, location)
    expires_ms = call.engine.system.now_ms() + _CREDENTIALS_MS
    credentials = {
        "prefix": location,
        "operation": operation,
        "expiration-time-ms": expires_ms,
        "config": config,
    }
    return ApiResponse(200, {"storage-credentials": [credentials]})
