"""New tables that another engine makes: a place for one, and then its name.

A client asks for an id and a place, writes the first commit there, and asks for the name. Nothing
is kept in between: the place names the id, and the commit holds what the client was asked for.
Source: Unity Catalog's Delta API, "Table Lifecycle"; PROTOCOL.md, "Creating and Dropping
Catalog-managed Tables".
"""

from __future__ import annotations

import uuid

from txlake.conflict.judging import ForeignCommit, refusal_of
from txlake.conflict.locking import LockMode
from txlake.datafiles.vectors import StoredVectors
from txlake.errors import CorruptTable, InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.membership.attachment import new_entry
from txlake.membership.ownership import place_with_id
from txlake.ports import NewTable
from txlake.protocol.features import CATALOG_MANAGED, protocol_of
from txlake.protocol.file_names import commit_path
from txlake.server.answers import loaded, shown
from txlake.server.bodies import NewTableTold, StagingTable
from txlake.server.calls import Answer, Call, check_new_name
from txlake.server.failures import Failure
from txlake.session.engine import Handle
from txlake.statements import TableName, TablePath
from txlake.storage import canonical_url
from txlake.transaction.membership import (
    DOMAIN,
    OPEN_PROPERTIES,
    TABLE_ID,
    Membership,
    membership_text,
)
from txlake.transaction.validation import validated

REQUIRED_FEATURES = frozenset(
    {CATALOG_MANAGED, "deletionVectors", "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""What a client's new table has to support."""

_TOLD_ALONE = frozenset({"delta.checkpointPolicy"})
"""What a client may tell with its request and not write: Delta Kernel in Rust can't write it."""

_SUGGESTED_FEATURES = ("domainMetadata", "rowTracking")
_SUGGESTED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": None,
    "delta.rowTracking.materializedRowCommitVersionColumnName": None,
}


def staged_id(text: str) -> str | None:
    """A table's id as it is written; None for what is none."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def stage(call: Call) -> Answer:
    """An id and a place for a new table, and what its first commit has to hold."""
    database = call.schema()
    name = call.body(StagingTable).name
    _check_free(call, database, name)
    table_id = call.engine.system.new_id()
    place = place_with_id(call.engine, database, name, table_id)
    protocol = protocol_of(REQUIRED_FEATURES)
    lent = {
        "prefix": place,
        "operation": "READ_WRITE",
        "expiration-time-ms": call.engine.system.now_ms(),
        "config": {},
    }
    return Answer(
        200,
        {
            "table-id": table_id,
            "table-type": "MANAGED",
            "location": place,
            # The credentials' own call gives them, where any are needed.
            "storage-credentials": [lent],
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
            "required-properties": _required(call, database, name, table_id),
            "suggested-properties": _SUGGESTED,
        },
    )


def create(call: Call) -> Answer:
    """Gives a table, whose first commit a client wrote, its name in the lake."""
    database = call.schema()
    told = call.body(NewTableTold)
    if told.table_type != "MANAGED":
        raise Failure(
            "NotImplementedException",
            f"a table of type {told.table_type!r:.40} is attached by lake.attach; this server "
            "makes MANAGED ones",
        )
    name = TableName((database, told.name))
    with call.session.alone([(name, LockMode.SCH_M)]) as context:
        place, table_id = _told_place(call, database, told)
        known = call.engine.catalog.of_lake().find(database, told.name)
        if known is not None and known.id == table_id:
            return Answer(200, loaded(shown(call.engine, call.engine.at_entry(known))))
        _check_free(call, database, told.name)
        there = call.engine.at(place, TablePath(place))
        _check_first(call, there, told, _required(call, database, told.name, table_id))
        entry = new_entry(call.engine, database, told.name, place, managed=True)
        named = NewTable(
            id=table_id,
            database=entry.database,
            name=entry.name,
            location=entry.location,
            managed=True,
            head=0,
            number=entry.number,
        )
        context.transaction.make_known()
        context.transaction.change_name(named, {})
        context.transaction.commit()
    made = call.engine.catalog.of_lake().find(database, told.name)
    if made is None:
        raise Failure("NoSuchTableException", f"{database}.{told.name} was dropped already")
    return Answer(200, loaded(shown(call.engine, call.engine.at_entry(made))))


def _check_free(call: Call, database: str, name: str) -> None:
    """Raises Failure where the name is taken, or is none."""
    check_new_name(name)
    catalog = call.engine.catalog.of_lake()
    if catalog.find(database, name) is not None or catalog.views.find(database, name) is not None:
        raise Failure("AlreadyExistsException", f"{database}.{name} exists already")
    try:
        call.engine.place_of(database, name)
    except InvalidRequest as error:
        raise Failure("InvalidParameterValueException", str(error)) from error


def _required(call: Call, database: str, name: str, table_id: str) -> dict[str, str]:
    """The properties that the first commit has to hold, by which the table says whose it is."""
    lake = call.engine.catalog.of_lake().lake_id
    own = Membership(lake=lake, table=table_id, name=str(TableName((database, name))))
    return {**OPEN_PROPERTIES, TABLE_ID: table_id, DOMAIN: membership_text(own)}


def _told_place(call: Call, database: str, told: NewTableTold) -> tuple[str, str]:
    """The place of a new table and its id. Raises Failure for a place that wasn't given out."""
    try:
        place = canonical_url(told.location)
        table_id = staged_id(place[-36:])
        if table_id is not None and place == place_with_id(
            call.engine, database, told.name, table_id
        ):
            return place, table_id
    except InvalidRequest as error:
        raise Failure("InvalidParameterValueException", str(error)) from error
    raise Failure(
        "InvalidParameterValueException",
        f"location {told.location!r:.200}: expected the one that this server gave out for "
        f"{database}.{told.name}",
    )


def _check_first(call: Call, there: Handle, told: NewTableTold, required: dict[str, str]) -> None:
    """Raises Failure unless the place holds one commit, which makes a table as it was asked for."""
    try:
        latest = there.log.latest_or_none()
        commit = None if latest is None else there.log.commit(0)
    except (CorruptTable, UnsupportedFeature, InvalidRequest) as error:
        raise _wrong(there, str(error)) from error
    if latest is None or commit is None:
        raise _wrong(there, f"{commit_path(0)} isn't there: write the first commit first")
    if latest.version != 0:
        raise _wrong(there, f"expected its first commit alone, found version {latest.version}")
    lacking = REQUIRED_FEATURES - latest.features
    if lacking:
        raise _wrong(there, f"it lacks the table features {', '.join(sorted(lacking))}")
    for key, text in required.items():
        found = latest.metadata.configuration.get(key)
        if found is None and key in _TOLD_ALONE:
            found = told.properties.get(key)
        if found != text:
            raise _wrong(there, f"table property {key!r}: expected {text!r}, found {found!r:.200}")
    start = Snapshot.empty(there.name)
    # The commit's own settings are those that it is held against.
    settings = start.apply([latest.protocol, latest.metadata])
    refused = refusal_of(
        ForeignCommit(
            version=0, actions=commit.actions, timestamp_ms=told.last_commit_timestamp_ms
        ),
        settings,
        StoredVectors(there.store, there.log.elsewhere),
    )
    if refused is not None:
        raise _wrong(there, refused.reason)
    try:
        validated(commit.actions, start, operation="CREATE TABLE", is_foreign=True)
    except (InvalidRequest, UnsupportedFeature, CorruptTable) as error:
        raise _wrong(there, str(error)) from error
    there.log.forget()


def _wrong(there: Handle, reason: str) -> Failure:
    return Failure("InvalidParameterValueException", f"{there.store.url}: {reason}")
