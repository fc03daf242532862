"""The Delta API's update of a table: another engine's commit, or its note of what it published.

A table's definition is in its log, so that what changes it comes as a commit; what a request says
of the definition beside its commit is that commit's business.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import assert_never

from txlake.conflict.locking import LockMode
from txlake.server.answers import Shown, etag_of, loaded, shown
from txlake.server.bodies import (
    CommitTold,
    Requirement,
    TableTold,
    TransactionTold,
    Update,
    UpdateTable,
)
from txlake.server.calls import Answer, Call
from txlake.server.delta import found, table_named
from txlake.server.failures import Failure
from txlake.session.engine import Handle
from txlake.statements import TableName
from txlake.transaction.foreign_commit import (
    Accepted,
    Busy,
    Overtaken,
    Refused,
    Resent,
    Staged,
    Stopped,
)
from txlake.transaction.membership import is_open

_CONFLICT = "CommitVersionConflictException"
_COMMIT, _PUBLISHED = "add-commit", "set-latest-backfilled-version"
# Of a table's definition: the commit that they come with has it.
_DEFINITION = frozenset(
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
_OF_EXTERNAL = "update-metadata-snapshot-version"
_UUID_REQUIRED, _ETAG = "assert-table-uuid", "assert-etag"
_FILE = re.compile(
    r"\d{20}\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.json",
    re.ASCII | re.IGNORECASE,
)


def update(call: Call) -> Answer:
    """Changes a table, all of it or nothing."""
    handle = found(call)
    body = call.body(UpdateTable)
    updates = _by_action(body.updates)
    etag = _check_requirements(handle, body.requirements)
    commit, published = updates.get(_COMMIT), updates.get(_PUBLISHED)
    if commit is None and updates.keys() & _DEFINITION:
        raise Failure(
            "InvalidParameterValueException",
            f"{handle.name}: its definition is changed by a commit; add one ({_COMMIT})",
        )
    table = shown(call.engine, handle) if commit is None or etag or published else None
    if table is not None and not _is_taken(table, commit):
        _check_etag(table, etag)
        if published is not None:
            _check_published(handle, table, published)
    if commit is not None:
        table = _commit_of(call, handle, commit)
    assert table is not None
    return Answer(200, loaded(table))


def _is_taken(table: Shown, update: Update | None) -> bool:
    """Whether a commit can only be one that is sent again, or lose: its version is there.

    What the request asks of the table, beside that, was so before that commit.
    """
    told = None if update is None else update.commit
    return told is not None and told.version <= table.snapshot.version


def _by_action(updates: tuple[Update, ...]) -> dict[str, Update]:
    """The updates by what they do, each at most once."""
    counts = Counter(one.action for one in updates)
    if not counts:
        raise Failure("InvalidParameterValueException", "updates: expected at least one")
    twice = [action for action, count in counts.items() if count > 1]
    if twice:
        raise Failure(
            "InvalidParameterValueException",
            f"updates: {', '.join(sorted(twice))} is there twice",
        )
    if _OF_EXTERNAL in counts:
        raise Failure(
            "InvalidParameterValueException",
            f"updates: {_OF_EXTERNAL} is for tables whose commits this catalog doesn't make",
        )
    unknown = counts.keys() - _DEFINITION - {_COMMIT, _PUBLISHED}
    if unknown:
        raise Failure(
            "InvalidParameterValueException",
            f"updates: unknown action {sorted(unknown)[0]!r:.80}",
        )
    return {one.action: one for one in updates}


def _check_requirements(
    handle: Handle, requirements: tuple[Requirement, ...]
) -> Requirement | None:
    """The etag that the table has to have, if any.

    Raises Failure for another table, and where requirements aren't as they have to be.
    """
    entry = handle.entry
    assert entry is not None
    counts = Counter(one.type for one in requirements)
    if counts[_UUID_REQUIRED] != 1 or counts[_ETAG] > 1:
        raise Failure(
            "InvalidParameterValueException",
            f"requirements: expected {_UUID_REQUIRED} once and {_ETAG} at most once",
        )
    unknown = counts.keys() - {_UUID_REQUIRED, _ETAG}
    if unknown:
        raise Failure(
            "InvalidParameterValueException",
            f"requirements: unknown {sorted(unknown)[0]!r:.80}",
        )
    for one in requirements:
        if one.type == _UUID_REQUIRED and (one.uuid or "").lower() != entry.id:
            raise Failure(
                "UpdateRequirementConflictException",
                f"{handle.name}: its table-uuid is {entry.id}, the request is for {one.uuid!r:.80}",
            )
    return next((one for one in requirements if one.type == _ETAG), None)


def _check_etag(table: Shown, required: Requirement | None) -> None:
    now = etag_of(table)
    if required is not None and required.etag != now:
        raise Failure(
            "UpdateRequirementConflictException",
            f"{table.snapshot.table}: its etag is {now}, the request is for "
            f"{required.etag!r:.80}; load the table again",
        )


def transact(call: Call) -> Answer:
    """Commits of several tables at one instant, all or none; txlake's own, for its client.

    What each commit says of its table's definition counts.
    """
    body = call.body(TransactionTold)
    if not body.tables:
        raise Failure("InvalidParameterValueException", "tables: expected at least one")
    call.check_catalog(body.catalog)
    handles = [_of(call, one) for one in (*body.tables, *body.unchanged)]
    ids = [one.key for one in handles]
    if len(set(ids)) < len(ids):
        raise Failure("InvalidParameterValueException", "tables, unchanged: a table is there twice")
    asked = [
        (handle, one.commit)
        for handle, one in zip(handles[: len(body.tables)], body.tables, strict=True)
    ]
    held = {
        handle.key: (handle, one.version)
        for handle, one in zip(handles[len(body.tables) :], body.unchanged, strict=True)
    }
    _committed(call, asked, held)
    return Answer(200, {})


def _of(call: Call, told: TableTold) -> Handle:
    handle = table_named(call, told.schema, told.table)
    if handle.key != told.uuid.lower():
        raise Failure(
            "UpdateRequirementConflictException",
            f"{handle.name}: its table-uuid is {handle.key}, the request is for {told.uuid!r:.80}",
        )
    return handle


def _commit_of(call: Call, handle: Handle, update: Update) -> Shown:
    told = update.commit
    if told is None:
        raise Failure("InvalidParameterValueException", f"{_COMMIT}: expected a commit")
    entry = handle.entry
    assert entry is not None
    match _committed(call, [(handle, told)], {}):
        case [Accepted(snapshot, is_published)]:
            return Shown(entry, handle.log, snapshot, () if is_published else (_told(told),))
        case _:
            return shown(call.engine, handle)


def _committed(
    call: Call,
    asked: Sequence[tuple[Handle, CommitTold]],
    unchanged: Mapping[str, tuple[Handle, int]],
) -> Sequence[Accepted | Resent]:
    """Makes commits true, all or none; `unchanged` as in `commit_foreign_together`, with tables.

    Raises Failure where nothing happened.
    """
    wanted = [(handle, LockMode.IX) for handle, _ in asked]
    wanted += [(handle, LockMode.SCH_S) for handle, _ in unchanged.values()]
    staged = [_staged(told) for _, told in asked]
    names = {handle.key: handle.name for handle, _ in wanted}
    with call.session.alone([(_name(handle), mode) for handle, mode in wanted]) as context:
        locked = [context.require(_name(handle)) for handle, _ in wanted]
        for handle, now in zip((one for one, _ in wanted), locked, strict=True):
            if now.key != handle.key:
                raise Failure("NoSuchTableException", f"{handle.name} is another table now")
        outcome = context.transaction.commit_foreign(
            list(zip(locked[: len(asked)], staged, strict=True)),
            {key: version for key, (_, version) in unchanged.items()},
            bytes_max=call.served.limits.commit_bytes_max,
        )
    if not isinstance(outcome, Stopped):
        return outcome
    name = names.get(outcome.table, outcome.table)
    versions = {
        now.name: one.version for now, one in zip(locked[: len(staged)], staged, strict=True)
    }
    match outcome.why:
        case Overtaken(version) if versions.get(outcome.table, 0) > version + 1:
            raise Failure(
                "InvalidParameterValueException",
                f"{name}: expected version {version + 1}, the next one, found "
                f"{versions[outcome.table]}",
            )
        case Overtaken(version):
            raise Failure(
                _CONFLICT,
                f"{name}: the table is at version {version}, which the request doesn't follow; "
                "load it again",
            )
        case Refused(reason, is_lasting):
            # A client that is told of a conflict does its work again, on a newer version.
            kind = "InvalidParameterValueException" if is_lasting else _CONFLICT
            raise Failure(kind, f"{name}: it is refused: {reason}")
        case Busy(reason):
            raise Failure("TooManyRequestsException", reason)
        case other:
            assert_never(other)


def _name(handle: Handle) -> TableName:
    entry = handle.entry
    assert entry is not None
    return TableName((entry.database, entry.name))


def _staged(told: CommitTold) -> Staged:
    if not _FILE.fullmatch(told.file_name):
        raise Failure(
            "InvalidParameterValueException",
            f"{_COMMIT}: expected <20 digits>.<uuid>.json as file-name, found "
            f"{told.file_name!r:.120}",
        )
    for field, number in {
        "version": told.version,
        "timestamp": told.timestamp,
        "file-size": told.file_size,
        "file-modification-timestamp": told.file_modification_timestamp,
    }.items():
        if number < 1:
            raise Failure(
                "InvalidParameterValueException",
                f"{_COMMIT}: expected a {field} above 0, found {number}",
            )
    return Staged(
        version=told.version,
        name=told.file_name,
        timestamp_ms=told.timestamp,
        size_bytes=told.file_size,
    )


def _told(commit: CommitTold) -> dict[str, object]:
    return {
        "version": commit.version,
        "timestamp": commit.timestamp,
        "file-name": commit.file_name,
        "file-size": commit.file_size,
        "file-modification-timestamp": commit.file_modification_timestamp,
    }


def _check_published(handle: Handle, table: Shown, update: Update) -> None:
    """What a client published is looked at by the catalog itself, which notes nothing it is told.

    Raises Failure for a version that isn't ratified.
    """
    version = update.latest_published_version
    if version is None or version < 0:
        raise Failure("InvalidParameterValueException", f"{_PUBLISHED}: expected a version")
    if not is_open(table.snapshot.protocol) or version > table.snapshot.version:
        raise Failure(
            "InvalidParameterValueException",
            f"{handle.name}: version {version} isn't one that this catalog ratified",
        )
