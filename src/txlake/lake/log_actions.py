"""Actions as engine authors give them: plain dictionaries, with what can be left out filled in.

Owns the way from the log's JSON form to values, and the finding of files by path. What may be
committed is `commit.validation`'s.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

import msgspec

from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.ports import System
from txlake.protocol.actions import (
    WIRE_NAMES,
    Action,
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    JsonObject,
    Sidecar,
    TransactionGroup,
    actions_from_object,
)
from txlake.protocol.mapping_change import schema_by_metadata
from txlake.protocol.paths import decode_path, encode_path
from txlake.protocol.reach import has_dot_parts

_NO_JSON = "it can't be written as JSON"
# What a path in the log may hold as it is; `%` starts an escape already.
_IN_LOG = "/!$&'()*+,;=:@-._~%"


def actions_of(
    lines: Iterable[Mapping[str, object]], snapshot: Snapshot, system: System
) -> tuple[Action, ...]:
    """Return the actions of these lines, in order; `snapshot` is the state that they change.

    A `remove` that gives only its path is completed from the snapshot; times and the table's id
    are filled in where they are missing. Raises InvalidRequest for what is no action, for fields
    that are missing or of a wrong type, and for actions that the library writes itself.
    """
    if not isinstance(lines, Iterable):
        raise InvalidRequest(
            f"{snapshot.table}: expected a list of actions, found {reprlib.repr(lines)}"
        )
    return tuple(
        action
        for place, line in enumerate(lines)
        for action in _actions_of_line(line, place, snapshot, system)
    )


def _actions_of_line(
    line: object, place: int, snapshot: Snapshot, system: System
) -> Iterator[Action]:
    """Yield the actions of one dictionary. Raises InvalidRequest as `actions_of`."""
    where = f"{snapshot.table}: action {place}"
    if not isinstance(line, Mapping) or not line:
        raise InvalidRequest(
            f'{where}: expected a dictionary like {{"add": {{...}}}}, found {line!r:.80}'
        )
    for name, fields in line.items():
        kind = WIRE_NAMES.get(name)
        if kind is None:
            raise InvalidRequest(
                f"{where}: there is no action {name!r}; there are {', '.join(_GIVEN)}"
            )
        if kind in (CommitInfo, TransactionGroup, CheckpointMetadata, Sidecar):
            raise InvalidRequest(f"{where}: {name} is written by txlake itself; leave it out")
        if not isinstance(fields, Mapping):
            raise InvalidRequest(f"{where}: {name}: expected a dictionary, found {fields!r:.80}")
        _require_json(fields, f"{where}: {name}")
        given: JsonObject = {str(key): value for key, value in fields.items()}
        with_defaults = _FILLED[name](given, snapshot, system) if name in _FILLED else given
        try:
            parsed = tuple(actions_from_object({name: with_defaults}, file=where))
        except CorruptTable as error:
            raise InvalidRequest(str(error)) from error
        for action in parsed:
            _check(action, where)
            yield action


def require_texts(
    table: str, operation: object, parameters: object, tags: object, user_metadata: object
) -> None:
    """Raise InvalidRequest for fields that a `commitInfo` can't have."""
    if not isinstance(operation, str):
        raise InvalidRequest(
            f"{table}: operation: expected a text, found {reprlib.repr(operation)}"
        )
    if not isinstance(user_metadata, str | None):
        raise InvalidRequest(
            f"{table}: user_metadata: expected a text, found {reprlib.repr(user_metadata)}"
        )
    if not isinstance(tags, Mapping | None) or not all(
        isinstance(text, str) for pair in (tags or {}).items() for text in pair
    ):
        raise InvalidRequest(f"{table}: tags: expected texts by name, found {reprlib.repr(tags)}")
    if not isinstance(parameters, Mapping | None) or not all(
        isinstance(name, str) for name in parameters or {}
    ):
        raise InvalidRequest(
            f"{table}: parameters: expected values by name, found {reprlib.repr(parameters)}"
        )
    _require_json([operation, user_metadata, tags], f"{table}: operation, user_metadata, tags")
    try:
        json.dumps(parameters, ensure_ascii=False, default=str).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{table}: parameters: {_NO_JSON}: {error}") from error


def require_partitions(before: Snapshot, after: Snapshot) -> None:
    """Raise InvalidRequest when the partition columns were changed and old files remain."""
    if _partition_keys(before) == _partition_keys(after):
        return
    left = next((file for file in before.files.adds() if file.key in after.files), None)
    if left is not None:
        raise InvalidRequest(
            f"{before.table} at version {before.version}: file {decode_path(left.path)!r}: it "
            "would stay in a table that is partitioned by other columns now; remove it, and add "
            "its rows in files of the new partitions"
        )


def _partition_keys(snapshot: Snapshot) -> frozenset[str]:
    """Return the physical names of the partition columns."""
    schema = schema_by_metadata(snapshot.metadata)
    return frozenset(
        item.physical_name for item in schema if item.name in snapshot.partition_columns
    )


def _require_json(value: object, where: str) -> None:
    """Raise InvalidRequest for a value that can't be written as JSON.

    msgspec writes it: NaN as null, sets as lists, bytes as base64.
    """
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{where}: {_NO_JSON}: {error}") from error


def _check(action: Action, where: str) -> None:
    """Raise InvalidRequest for an action that readers can't use or only the system may write."""
    if isinstance(action, Add):
        _check_add(action, where)
    if isinstance(action, DomainMetadata) and action.domain.startswith("delta."):
        raise InvalidRequest(
            f"{where}: domainMetadata {action.domain!r}: domains that start with delta. are the "
            "system's; choose another name"
        )
    if isinstance(action, Cdc) and has_dot_parts(action.path):
        raise InvalidRequest(
            f"{where}: cdc: expected a path without '.' and '..', found {action.path!r}"
        )


def _check_add(file: Add, where: str) -> None:
    """Raise InvalidRequest for a path with `.` or `..`, or an unknown kind of deletion vector."""
    if has_dot_parts(file.path):
        raise InvalidRequest(
            f"{where}: add: expected a path without '.' and '..', found {file.path!r}"
        )
    vector = file.deletion_vector
    if vector is not None and vector.storage_type not in _VECTOR_TYPES:
        raise InvalidRequest(
            f"{where}: add: deletionVector.storageType: expected one of "
            f"{', '.join(_VECTOR_TYPES)}, found {vector.storage_type!r}"
        )


def _filled_add(given: JsonObject, snapshot: Snapshot, system: System) -> JsonObject:
    """Return an add's fields, changed in place: the path encoded, missing fields with defaults."""
    path = given.get("path")
    if isinstance(path, str):
        given["path"] = _as_in_log(path)
    given.setdefault("partitionValues", {})
    given.setdefault("modificationTime", system.now_ms())
    given.setdefault("dataChange", True)
    return given


def _filled_change(given: JsonObject, snapshot: Snapshot, system: System) -> JsonObject:
    """Return a cdc's fields, changed in place: the path encoded, missing fields with defaults."""
    path = given.get("path")
    if isinstance(path, str):
        given["path"] = _as_in_log(path)
    given.setdefault("partitionValues", {})
    given.setdefault("dataChange", False)
    return given


def _filled_remove(given: JsonObject, snapshot: Snapshot, system: System) -> JsonObject:
    """Return a remove's fields, changed in place and completed from the live file of its path.

    The path becomes that of the log; other fields that are given stay. Without such a file only the
    time and `dataChange` are added. Fields without a path are returned as they are.
    """
    path = given.get("path")
    if not isinstance(path, str):
        return given
    live = find_file(snapshot, path)
    given.setdefault("dataChange", True)
    if given.get("deletionTimestamp") is None:
        given["deletionTimestamp"] = system.now_ms()
    if live is None:
        given["path"] = _as_in_log(path)
        return given
    given["path"] = live.path
    whole: JsonObject = {
        "extendedFileMetadata": True,
        "partitionValues": live.partition_values,
        "size": live.size,
        "stats": live.stats,
        "tags": live.tags,
        "deletionVector": None
        if live.deletion_vector is None
        else msgspec.to_builtins(live.deletion_vector),
        "baseRowId": live.base_row_id,
        "defaultRowCommitVersion": live.default_row_commit_version,
    }
    vector = whole["deletionVector"]
    if isinstance(vector, dict):
        whole["deletionVector"] = {k: v for k, v in vector.items() if k in _VECTOR_FIELDS}
    for key, value in whole.items():
        if value is not None and given.get(key) is None:
            given[key] = value
    return given


def _filled_metadata(given: JsonObject, snapshot: Snapshot, system: System) -> JsonObject:
    """Return a metaData's fields, filled in place.

    A missing id and creation time are the table's, or new for a new table. A missing format is
    Parquet; missing partition columns and properties are empty, even if the table has some.
    """
    if given.get("id") is None:
        given["id"] = snapshot.metadata.id if snapshot.has_metadata else system.new_id()
    if given.get("createdTime") is None:
        known = snapshot.metadata.created_time if snapshot.has_metadata else None
        given["createdTime"] = system.now_ms() if known is None else known
    given.setdefault("format", {"provider": "parquet", "options": {}})
    given.setdefault("partitionColumns", [])
    given.setdefault("configuration", {})
    return given


_FILLED = {
    "add": _filled_add,
    "cdc": _filled_change,
    "remove": _filled_remove,
    "metaData": _filled_metadata,
}
_GIVEN = ("add", "remove", "cdc", "metaData", "protocol", "txn", "domainMetadata")
_VECTOR_TYPES = ("u", "i", "p")
_VECTOR_FIELDS = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


def find_file(snapshot: Snapshot, path: str) -> Add | None:
    """Return the live file with a path, given as in the log or decoded; None without one."""
    for spelled in (path, _as_in_log(path), encode_path(path)):
        found = snapshot.files.by_path(spelled)
        if found is not None:
            return found
    if decode_path(path) == path and "%" not in path and path.isascii():
        return None
    return next((add for add in snapshot.files.adds() if decode_path(add.path) == path), None)


def _as_in_log(path: str) -> str:
    """Return the path with the characters that a URI can't have encoded; escapes stay."""
    return quote(path, safe=_IN_LOG)
