"""New tables of other engines: a location first, then a name.

A client asks for an id and a location, writes the first commit there, and asks for the name. The
server keeps nothing in between: the location contains the id, and the commit holds the properties
that the client was told. Source: Unity Catalog's Delta API, "Table Lifecycle"; PROTOCOL.md,
"Creating and Dropping Catalog-managed Tables".
"""

from __future__ import annotations

import uuid

from txlake.commit.membership import (
    DOMAIN,
    OPEN_PROPERTIES,
    TABLE_ID,
    Membership,
    membership_text,
)
from txlake.commit.validation import validate
from txlake.conflict.foreign_rules import ForeignCommit, find_refusal
from txlake.conflict.locking import LockMode
from txlake.datafiles.vectors import VectorCache
from txlake.errors import CorruptTable, InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.ports import NewTable
from txlake.protocol.features import CATALOG_MANAGED, protocol_of
from txlake.protocol.file_names import commit_path
from txlake.server.api_errors import ApiError
from txlake.server.bodies import NewTableBody, StagingTable
from txlake.server.calls import ApiResponse, Call, check_new_name
from txlake.server.responses import load_response, table_state
from txlake.session.engine import Handle
from txlake.session.membership.attachment import new_entry
from txlake.session.membership.ownership import place_with_id
from txlake.sql.statements import TableName, TablePath
from txlake.storage import canonical_url

REQUIRED_FEATURES = frozenset(
    {CATALOG_MANAGED, "deletionVectors", "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""The table features that a client's new table must support."""

_BODY_ONLY_PROPERTIES = frozenset({"delta.checkpointPolicy"})
"""Properties accepted from the request's body alone: Delta Kernel in Rust can't write them."""

_SUGGESTED_FEATURES = ("domainMetadata", "rowTracking")
_SUGGESTED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": None,
    "delta.rowTracking.materializedRowCommitVersionColumnName": None,
}


def parse_table_id(text: str) -> str | None:
    """Return a table's id in canonical form; None for a text that isn't a UUID."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def stage(call: Call) -> ApiResponse:
    """Return an id and a location for a new table, and what its first commit must hold.

    Nothing is kept of it. Raises ApiError if the name is taken (409) or invalid (400).
    """
    database = call.schema()
    name = call.body(StagingTable).name
    _check_free(call, database, name)
    table_id = call.engine.system.new_id()
    location = place_with_id(call.engine, database, name, table_id)
    protocol = protocol_of(REQUIRED_FEATURES)
    credentials = {
        "prefix": location,
        "operation": "READ_WRITE",
        "expiration-time-ms": call.engine.system.now_ms(),
        "config": {},
    }
    return ApiResponse(
        200,
        {
            "table-id": table_id,
            "table-type": "MANAGED",
            "location": location,
            # The call for credentials returns them, where any are needed.
            "storage-credentials": [credentials],
            "required-protocol": {
                "min-reader-version": protocol.min_reader_version,
                "min-writer-version": protocol.min_writer_version,
                "reader-features": list(protocol.reader_features or ()),
                "writer-features": list(protocol.writer_features or ()),
            },
            "suggested-protocol": {
                "reader-features": [],
                "writer-features": list(_SUGGESTED_FEATURES),
            },
            "required-properties": _required_properties(call, database, name, table_id),
            "suggested-properties": _SUGGESTED,
        },
    )


def create(call: Call) -> ApiResponse:
    """Name a table in the lake whose first commit a client wrote.

    A repeated request returns the table that it named before. Raises ApiError for a name that is
    taken (409), a location not given out here and an invalid first commit (400), and a table that
    isn't MANAGED (501).
    """
    database = call.schema()
    body = call.body(NewTableBody)
    if body.table_type != "MANAGED":
        raise ApiError(
            "NotImplementedException",
            f"a table of type {body.table_type!r:.40} is attached by lake.attach; this server "
            "makes MANAGED ones",
        )
    name = TableName((database, body.name))
    with call.session.alone([(name, LockMode.SCH_M)]) as context:
        location, table_id = _reserved_location(call, database, body)
        existing = call.engine.catalog.of_lake().find(database, body.name)
        if existing is not None and existing.id == table_id:
            return ApiResponse(
                200, load_response(table_state(call.engine, call.engine.at_entry(existing)))
            )
        _check_free(call, database, body.name)
        handle = call.engine.at(location, TablePath(location))
        _check_first_commit(
            call, handle, body, _required_properties(call, database, body.name, table_id)
        )
        entry = new_entry(call.engine, database, body.name, location, managed=True)
        new_table = NewTable(
            id=table_id,
            database=entry.database,
            name=entry.name,
            location=entry.location,
            managed=True,
            head=0,
            number=entry.number,
        )
        context.transaction.registration.make()
        context.transaction.change_name(new_table, {})
        context.transaction.commit()
    created = call.engine.catalog.of_lake().find(database, body.name)
    if created is None:
        raise ApiError("NoSuchTableException", f"{database}.{body.name} was dropped already")
    return ApiResponse(200, load_response(table_state(call.engine, call.engine.at_entry(created))))


def _check_free(call: Call, database: str, name: str) -> None:
    """Raise ApiError if a table or view has the name (409), or it is invalid (400)."""
    check_new_name(name)
    catalog = call.engine.catalog.of_lake()
    if catalog.find(database, name) is not None or catalog.views.find(database, name) is not None:
        raise ApiError("AlreadyExistsException", f"{database}.{name} exists already")
    try:
        call.engine.place_of(database, name)
    except InvalidRequest as error:
        raise ApiError("InvalidParameterValueException", str(error)) from error


def _required_properties(call: Call, database: str, name: str, table_id: str) -> dict[str, str]:
    """Return the properties that the first commit must hold, by which the table names its lake."""
    lake = call.engine.catalog.of_lake().lake_id
    membership = Membership(lake=lake, table=table_id, name=str(TableName((database, name))))
    return {**OPEN_PROPERTIES, TABLE_ID: table_id, DOMAIN: membership_text(membership)}


def _reserved_location(call: Call, database: str, body: NewTableBody) -> tuple[str, str]:
    """Return the new table's location and id. Raises ApiError for a location not given out here."""
    try:
        location = canonical_url(body.location)
        table_id = parse_table_id(location[-36:])
        if table_id is not None and location == place_with_id(
            call.engine, database, body.name, table_id
        ):
            return location, table_id
    except InvalidRequest as error:
        raise ApiError("InvalidParameterValueException", str(error)) from error
    raise ApiError(
        "InvalidParameterValueException",
        f"location {body.location!r:.200}: expected the one that this server gave out for "
        f"{database}.{body.name}",
    )


def _check_first_commit(
    call: Call, handle: Handle, body: NewTableBody, required: dict[str, str]
) -> None:
    """Raise ApiError unless the location holds one commit, which makes the table as required.

    Of the `required` properties, those in _BODY_ONLY_PROPERTIES may be in `body` alone.
    """
    try:
        latest = handle.log.latest_or_none()
        commit = None if latest is None else handle.log.commit(0)
    except (CorruptTable, UnsupportedFeature, InvalidRequest) as error:
        raise _invalid_table(handle, str(error)) from error
    if latest is None or commit is None:
        raise _invalid_table(handle, f"{commit_path(0)} isn't there: write the first commit first")
    if latest.version != 0:
        raise _invalid_table(
            handle, f"expected its first commit alone, found version {latest.version}"
        )
    missing = REQUIRED_FEATURES - latest.features
    if missing:
        raise _invalid_table(handle, f"it lacks the table features {', '.join(sorted(missing))}")
    for key, text in required.items():
        value = latest.metadata.configuration.get(key)
        if value is None and key in _BODY_ONLY_PROPERTIES:
            value = body.properties.get(key)
        if value != text:
            raise _invalid_table(
                handle, f"table property {key!r}: expected {text!r}, found {value!r:.200}"
            )
    start = Snapshot.empty(handle.name)
    # The commit is checked against its own settings.
    settings = start.apply([latest.protocol, latest.metadata])
    refusal = find_refusal(
        ForeignCommit(
            version=0, actions=commit.actions, timestamp_ms=body.last_commit_timestamp_ms
        ),
        settings,
        VectorCache(handle.store, handle.log.external_vectors),
    )
    if refusal is not None:
        raise _invalid_table(handle, refusal.reason)
    try:
        validate(commit.actions, start, operation="CREATE TABLE", is_foreign=True)
    except (InvalidRequest, UnsupportedFeature, CorruptTable) as error:
        raise _invalid_table(handle, str(error)) from error
    handle.log.forget()


def _invalid_table(handle: Handle, reason: str) -> ApiError:
    """Return the error for a first commit that can't become a table of the lake."""
    return ApiError("InvalidParameterValueException", f"{handle.store.url}: {reason}")
