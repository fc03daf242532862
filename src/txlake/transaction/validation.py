"""Whether a list of actions may be staged on a snapshot, and what it still lacks.

Owns the checks of a statement's actions before anything is written: `settings_rules` owns those of
metadata and protocol. Everything found wrong is an InvalidRequest that says what to change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.ports import System
from txlake.protocol.actions import (
    Action,
    Add,
    Cdc,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from txlake.protocol.features import check_writable
from txlake.protocol.paths import decode_path
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Struct
from txlake.transaction import column_mapping, row_tracking
from txlake.transaction.settings_rules import check_metadata, protocol_to_set

_Setting = TypeVar("_Setting", Metadata, Protocol)
_STAGEABLE = (Add, Remove, Metadata, Protocol, Txn, DomainMetadata, Cdc)


def completed(actions: Sequence[Action], snapshot: Snapshot, system: System) -> tuple[Action, ...]:
    """The actions with what a caller may leave out: column ids, hidden columns, the protocol.

    Raises InvalidRequest for metadata or a protocol that can't be.
    """
    given = _only(actions, Metadata, snapshot)
    protocol = _only(actions, Protocol, snapshot)
    previous = snapshot.metadata if snapshot.has_metadata else None
    if given is None and previous is None:
        raise InvalidRequest(
            f"{snapshot.table}: there is no table yet: the first commit needs a metaData action"
        )
    metadata = given
    if given is not None:
        metadata = column_mapping.assign(given, previous, system.new_id)
        metadata = row_tracking.with_columns(metadata, iter(system.new_id, None))
        check_metadata(metadata, previous, table=snapshot.table)
    wanted = None
    if metadata is not None or protocol is not None:
        current = snapshot.protocol if snapshot.has_protocol else None
        after = metadata or snapshot.metadata
        wanted = protocol_to_set(after, protocol, current, table=snapshot.table)
    rest = [action for action in actions if not isinstance(action, Metadata | Protocol)]
    settings: list[Action] = [action for action in (wanted, metadata) if action is not None]
    return (*settings, *rest)


def _only(actions: Sequence[Action], kind: type[_Setting], snapshot: Snapshot) -> _Setting | None:
    found = [action for action in actions if isinstance(action, kind)]
    if len(found) > 1:
        name = "metaData" if kind is Metadata else "protocol"
        raise InvalidRequest(
            f"{snapshot.table}: expected at most one {name} action, found {len(found)}"
        )
    return found[0] if found else None


def validated(actions: Sequence[Action], snapshot: Snapshot) -> None:
    """Raises InvalidRequest or UnsupportedFeature unless the actions may follow the snapshot."""
    for action in actions:
        if not isinstance(action, _STAGEABLE):
            raise InvalidRequest(
                f"{snapshot.table}: {type(action).__name__} is txlake's to write; leave it out"
            )
    after = snapshot.apply([a for a in actions if isinstance(a, Metadata | Protocol)])
    check_writable(after.protocol, after.metadata, table=snapshot.table)
    for rule in _RULES:
        rule(actions, snapshot, after)


_Rule = Callable[[Sequence[Action], Snapshot, Snapshot], None]


def _app_ids_once(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    ids = [action.app_id for action in actions if isinstance(action, Txn)]
    _refuse_twice(ids, "application id", snapshot)


def _domains(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    domains = [action for action in actions if isinstance(action, DomainMetadata)]
    _refuse_twice([domain.domain for domain in domains], "metadata domain", snapshot)
    if domains and "domainMetadata" not in after.features:
        raise UnsupportedFeature(
            f"{snapshot.table}: metadata domain {domains[0].domain!r}: the table lacks the feature "
            "domainMetadata; set delta.feature.domainMetadata = 'supported' first"
        )


def _refuse_twice(names: Sequence[str], what: str, snapshot: Snapshot) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidRequest(f"{snapshot.table}: {what} {name!r} is set twice")
        seen.add(name)


def _files_once(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    for kind, name in ((Add, "added"), (Remove, "removed")):
        seen: set[str] = set()
        for action in actions:
            if isinstance(action, kind):
                if action.path in seen:
                    raise InvalidRequest(
                        f"{snapshot.table}: file {decode_path(action.path)!r} is {name} twice"
                    )
                seen.add(action.path)


def _removed_are_live(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    for action in actions:
        if isinstance(action, Remove) and action.key not in snapshot.files:
            raise InvalidRequest(
                f"{snapshot.table} at version {snapshot.version}: file "
                f"{decode_path(action.path)!r} can't be removed: it isn't in the table"
            )


def _added_are_new(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    removed = {action.key for action in actions if isinstance(action, Remove)}
    for action in actions:
        if not isinstance(action, Add) or action.key in snapshot.files:
            continue
        live = snapshot.files.by_path(action.path)
        if live is not None and live.key not in removed:
            raise InvalidRequest(
                f"{snapshot.table}: file {decode_path(action.path)!r} is in the table with another "
                "deletion vector; remove that entry in the same commit"
            )


def _partition_values(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    wanted = {item.physical_name for item in after.schema if item.name in after.partition_columns}
    for action in actions:
        if isinstance(action, Add) and set(action.partition_values) != wanted:
            raise InvalidRequest(
                f"{snapshot.table}: file {decode_path(action.path)!r} has values for the partition "
                f"columns {sorted(action.partition_values)}, expected {sorted(wanted)}"
            )


def _append_only(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    if not after.properties.append_only or "appendOnly" not in after.features:
        return
    if any(isinstance(action, Remove) and action.data_change for action in actions):
        raise InvalidRequest(
            f"{snapshot.table}: the table only takes appends (delta.appendOnly = true); rows can't "
            "be deleted or updated"
        )


def _vectors_allowed(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    if "deletionVectors" in after.features:
        return
    for action in actions:
        if isinstance(action, Add) and action.deletion_vector is not None:
            raise UnsupportedFeature(
                f"{snapshot.table}: file {decode_path(action.path)!r} has a deletion vector, but "
                "the table lacks the feature deletionVectors; set delta.enableDeletionVectors first"
            )


def _not_null(actions: Sequence[Action], snapshot: Snapshot, after: Snapshot) -> None:
    """A NULL that statistics or partition values show in a column that takes none."""
    required = [item for item in after.schema if not item.nullable]
    if not required:
        return
    for action in actions:
        if not isinstance(action, Add) or not action.data_change:
            continue
        counts = FileStatistics.from_json(action.stats).null_count
        for item in required:
            is_partition = item.name in after.partition_columns
            null = (
                not action.partition_values.get(item.physical_name)
                if is_partition
                else bool(counts.get(item.physical_name)) and not isinstance(item.type, Struct)
            )
            if null and action.deletion_vector is None:
                raise InvalidRequest(
                    f"{snapshot.table}: NOT NULL of column {item.name!r} is violated in file "
                    f"{decode_path(action.path)!r}; nothing was written"
                )


_RULES: tuple[_Rule, ...] = (
    _app_ids_once,
    _domains,
    _files_once,
    _removed_are_live,
    _added_are_new,
    _partition_values,
    _append_only,
    _vectors_allowed,
    _not_null,
)
