"""The Delta API's update of a table: another engine's commit, or its report of what it published.

A table's definition is in its log, so a commit changes it. What the request says of the definition
beside the commit is ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import assert_never

from txlake.commit.foreign_commit import (
    Accepted,
    AlreadyCommitted,
    Busy,
    Cause,
    Overtaken,
    Refused,
    Rejected,
    StagedFile,
)
from txlake.commit.membership import is_open
from txlake.conflict.locking import LockMode
from txlake.server.api_errors import ApiError
from txlake.server.bodies import (
    Requirement,
    StagedCommit,
    TableReference,
    TransactionBody,
    Update,
    UpdateTable,
)
from txlake.server.calls import ApiResponse, Call
from txlake.server.delta import find_table, requested_table
from txlake.server.responses import TableState, definition_etag, load_response, table_state
from txlake.session.engine import Handle
from txlake.sql.statements import TableName

_CONFLICT = "CommitVersionConflictException"
_ADD_COMMIT, _SET_PUBLISHED = "add-commit", "set-latest-backfilled-version"
# Changes of a table's definition, which the commit beside them makes.
_DEFINITION_ACTIONS = frozenset(
    {
        "set-properties",
        "remove-properties",
        "set-columns",
        "set-table-comment",
        "set-protocol",
        "set-domain-metadata",
        "remove-domain-metadata",
        "set-partition-columns",
    }
)
_EXTERNAL_TABLES_ONLY = "update-metadata-snapshot-version"
_ASSERT_UUID, _ASSERT_ETAG = "assert-table-uuid", "assert-etag"
_STAGED_FILE_NAME = re.compile(
    r"\d{20}\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.json",
    re.ASCII | re.IGNORECASE,
)


def update(call: Call) -> ApiResponse:
    """Change a table: all changes of the request, or none.

    Raises ApiError where nothing is changed. A commit that was made already counts as made.
    """
    handle = requested_table(call)
    body = call.body(UpdateTable)
    updates = _by_action(body.updates)
    etag = _check_requirements(handle, body.requirements)
    commit, published = updates.get(_ADD_COMMIT), updates.get(_SET_PUBLISHED)
    if commit is None and updates.keys() & _DEFINITION_ACTIONS:
        raise ApiError(
            "InvalidParameterValueException",
            f"{handle.name}: its definition is changed by a commit; add one ({_ADD_COMMIT})",
        )
    table = table_state(call.engine, handle) if commit is None or etag or published else None
    if table is not None and not _is_version_taken(table, commit):
        _check_etag(table, etag)
        if published is not None:
            _check_published(handle, table, published)
    if commit is not None:
        table = _commit(call, handle, commit)
    assert table is not None
    return ApiResponse(200, load_response(table))


def _is_version_taken(table: TableState, update: Update | None) -> bool:
    """Return whether the commit's version exists: the request is repeated, or loses. False without
    one.

    The request's etag and report of publication are for the version before it, so they aren't
    checked then.
    """
    commit = None if update is None else update.commit
    return commit is not None and commit.version <= table.snapshot.version


def _by_action(updates: tuple[Update, ...]) -> dict[str, Update]:
    """Return the updates by their action.

    Raises ApiError (400) without any, for an action that is there twice, and for one that is
    unknown or for external tables only.
    """
    counts = Counter(change.action for change in updates)
    if not counts:
        raise ApiError("InvalidParameterValueException", "updates: expected at least one")
    repeated = [action for action, count in counts.items() if count > 1]
    if repeated:
        raise ApiError(
            "InvalidParameterValueException",
            f"updates: {', '.join(sorted(repeated))} is there twice",
        )
    if _EXTERNAL_TABLES_ONLY in counts:
        raise ApiError(
            "InvalidParameterValueException",
            f"updates: {_EXTERNAL_TABLES_ONLY} is for tables whose commits this catalog doesn't "
            "make",
        )
    unknown = counts.keys() - _DEFINITION_ACTIONS - {_ADD_COMMIT, _SET_PUBLISHED}
    if unknown:
        raise ApiError(
            "InvalidParameterValueException",
            f"updates: unknown action {sorted(unknown)[0]!r:.80}",
        )
    return {change.action: change for change in updates}


def _check_requirements(
    handle: Handle, requirements: tuple[Requirement, ...]
) -> Requirement | None:
    """Return the etag requirement; None without one.

    Raises ApiError (409) for another table's id, and (400) for requirements that are unknown,
    repeated or lack the table's id.
    """
    entry = handle.entry
    assert entry is not None
    counts = Counter(requirement.type for requirement in requirements)
    if counts[_ASSERT_UUID] != 1 or counts[_ASSERT_ETAG] > 1:
        raise ApiError(
            "InvalidParameterValueException",
            f"requirements: expected {_ASSERT_UUID} once and {_ASSERT_ETAG} at most once",
        )
    unknown = counts.keys() - {_ASSERT_UUID, _ASSERT_ETAG}
    if unknown:
        raise ApiError(
            "InvalidParameterValueException",
            f"requirements: unknown {sorted(unknown)[0]!r:.80}",
        )
    for requirement in requirements:
        if requirement.type == _ASSERT_UUID and (requirement.uuid or "").lower() != entry.id:
            raise ApiError(
                "UpdateRequirementConflictException",
                f"{handle.name}: its table-uuid is {entry.id}, the request is for "
                f"{requirement.uuid!r:.80}",
            )
    return next(
        (requirement for requirement in requirements if requirement.type == _ASSERT_ETAG), None
    )


def _check_etag(table: TableState, required: Requirement | None) -> None:
    """Raise ApiError (409) if the table's etag isn't the required one; None requires nothing."""
    etag = definition_etag(table)
    if required is not None and required.etag != etag:
        raise ApiError(
            "UpdateRequirementConflictException",
            f"{table.snapshot.table}: its etag is {etag}, the request is for "
            f"{required.etag!r:.80}; load the table again",
        )


def transact(call: Call) -> ApiResponse:
    """Commit several tables at one instant, all or none: an extension of the Delta API.

    Each table's definition is taken from its commit; tables of `unchanged` must be at their
    versions. Sent again, a transaction that was committed counts as committed. Raises ApiError
    where nothing was committed, with the cause of each table.
    """
    body = call.body(TransactionBody)
    if not body.tables:
        raise ApiError("InvalidParameterValueException", "tables: expected at least one")
    call.check_catalog(body.catalog)
    handles = [_referenced_table(call, table) for table in (*body.tables, *body.unchanged)]
    ids = [handle.key for handle in handles]
    if len(set(ids)) < len(ids):
        raise ApiError(
            "InvalidParameterValueException", "tables, unchanged: a table is there twice"
        )
    commits = [
        (handle, table.commit)
        for handle, table in zip(handles[: len(body.tables)], body.tables, strict=True)
    ]
    unchanged = {
        handle.key: (handle, table.version)
        for handle, table in zip(handles[len(body.tables) :], body.unchanged, strict=True)
    }
    if body.transaction_id == "":
        raise ApiError("InvalidParameterValueException", "transaction-id: expected a text")
    _commit_together(call, commits, unchanged, body.transaction_id)
    made = [
        {
            "schema": table.schema,
            "table": table.table,
            "uuid": table.uuid,
            "version": table.commit.version,
        }
        for table in body.tables
    ]
    answer = {} if body.transaction_id is None else {"transaction-id": body.transaction_id}
    return ApiResponse(200, {**answer, "tables": made})


def _referenced_table(call: Call, reference: TableReference) -> Handle:
    """Return the table that a request names.

    Raises ApiError if there is no such table (404), or it has another id (409).
    """
    handle = find_table(call, reference.schema, reference.table)
    if handle.key != reference.uuid.lower():
        raise ApiError(
            "UpdateRequirementConflictException",
            f"{handle.name}: its table-uuid is {handle.key}, the request is for "
            f"{reference.uuid!r:.80}",
        )
    return handle


def _commit(call: Call, handle: Handle, update: Update) -> TableState:
    """Commit one staged commit, and return the table with it.

    A commit that was made already gives the table as it is now. Raises ApiError where nothing was
    committed.
    """
    commit = update.commit
    if commit is None:
        raise ApiError("InvalidParameterValueException", f"{_ADD_COMMIT}: expected a commit")
    entry = handle.entry
    assert entry is not None
    match _commit_together(call, [(handle, commit)], {}, None):
        case [Accepted(snapshot, is_published)]:
            return TableState(
                entry, handle.log, snapshot, () if is_published else (_commit_fields(commit),)
            )
        case _:
            return table_state(call.engine, handle)


def _commit_together(
    call: Call,
    commits: Sequence[tuple[Handle, StagedCommit]],
    unchanged: Mapping[str, tuple[Handle, int]],
    group_id: str | None,
) -> Sequence[Accepted | AlreadyCommitted]:
    """Commit the staged commits, all or none, and return the outcomes in their order.

    `unchanged` maps a table's id to the table and the version that it must still be at. `group_id`
    is the client's transaction, if it names one.

    Raises ApiError where nothing was committed: 409 if a table has a newer version or the commit is
    refused for now, 400 if the commit is invalid or its version isn't the next one, 429 if a table
    is busy, 404 if a name is another table's now. Of several tables' errors it is one with the
    least status, and the details have them all.
    """
    lock_requests = [(handle, LockMode.IX) for handle, _ in commits]
    lock_requests += [(handle, LockMode.SCH_S) for handle, _ in unchanged.values()]
    staged = [_staged(commit) for _, commit in commits]
    names = {handle.key: handle.name for handle, _ in lock_requests}
    with call.session.alone([(_name(handle), mode) for handle, mode in lock_requests]) as context:
        locked = [context.tables.require(_name(handle)) for handle, _ in lock_requests]
        for (handle, _), current in zip(lock_requests, locked, strict=True):
            if current.key != handle.key:
                raise ApiError("NoSuchTableException", f"{handle.name} is another table now")
        outcome = context.transaction.commit_foreign(
            list(zip(locked[: len(commits)], staged, strict=True)),
            {key: version for key, (_, version) in unchanged.items()},
            group_id=group_id,
            bytes_max=call.served_lake.limits.commit_bytes_max,
        )
    if not isinstance(outcome, Rejected):
        return outcome
    versions = {
        handle.name: commit.version
        for handle, commit in zip(locked[: len(staged)], staged, strict=True)
    }
    errors: dict[str, ApiError] = {}
    for table, cause in outcome.causes.items():
        name = names.get(table, table)
        errors[name] = _rejection(name, cause, versions.get(name, 0))
    worst = min(errors.values(), key=lambda error: error.status)
    if len(lock_requests) > 1:
        worst.details = {
            "tables": [
                {"table": name, "type": error.kind, "code": error.status, "message": str(error)}
                for name, error in errors.items()
            ]
        }
    raise worst


def _rejection(table: str, cause: Cause, version: int) -> ApiError:
    """Return the error for a table in the way of a commit; `version` is the one that was to be
    committed, 0 for a table that was only read.
    """
    match cause:
        case Overtaken(newest) if version > newest + 1:
            return ApiError(
                "InvalidParameterValueException",
                f"{table}: expected version {newest + 1}, the next one, found {version}",
            )
        case Overtaken(newest):
            return ApiError(
                _CONFLICT,
                f"{table}: the table is at version {newest}, which the request doesn't follow; "
                "load it again",
            )
        case Refused(reason, is_permanent):
            # On a conflict, a client repeats its work on a newer version.
            kind = "InvalidParameterValueException" if is_permanent else _CONFLICT
            return ApiError(kind, f"{table}: it is refused: {reason}")
        case Busy(reason):
            return ApiError("TooManyRequestsException", reason)
        case other:
            assert_never(other)


def _name(handle: Handle) -> TableName:
    """Return the name of a table of the lake, with its database."""
    entry = handle.entry
    assert entry is not None
    return TableName((entry.database, entry.name))


def _staged(commit: StagedCommit) -> StagedFile:
    """Return the commit as a value. Raises ApiError (400) for an invalid file name or a number
    below 1.
    """
    if not _STAGED_FILE_NAME.fullmatch(commit.file_name):
        raise ApiError(
            "InvalidParameterValueException",
            f"{_ADD_COMMIT}: expected <20 digits>.<uuid>.json as file-name, found "
            f"{commit.file_name!r:.120}",
        )
    for field, number in {
        "version": commit.version,
        "timestamp": commit.timestamp,
        "file-size": commit.file_size,
        "file-modification-timestamp": commit.file_modification_timestamp,
    }.items():
        if number < 1:
            raise ApiError(
                "InvalidParameterValueException",
                f"{_ADD_COMMIT}: expected a {field} above 0, found {number}",
            )
    return StagedFile(
        version=commit.version,
        name=commit.file_name,
        timestamp_ms=commit.timestamp,
        size_bytes=commit.file_size,
    )


def _commit_fields(commit: StagedCommit) -> dict[str, object]:
    """Return a commit in the form of the Delta API."""
    return {
        "version": commit.version,
        "timestamp": commit.timestamp,
        "file-name": commit.file_name,
        "file-size": commit.file_size,
        "file-modification-timestamp": commit.file_modification_timestamp,
    }


def _check_published(handle: Handle, table: TableState, update: Update) -> None:
    """Raise ApiError if the reported version is missing or isn't one that this catalog ratified.

    A table that isn't open has no ratified versions here. The reported version isn't recorded: the
    catalog itself checks what is published.
    """
    version = update.latest_published_version
    if version is None or version < 0:
        raise ApiError("InvalidParameterValueException", f"{_SET_PUBLISHED}: expected a version")
    if not is_open(table.snapshot.protocol) or version > table.snapshot.version:
        raise ApiError(
            "InvalidParameterValueException",
            f"{handle.name}: version {version} isn't one that this catalog ratified",
        )
