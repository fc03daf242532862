"""The actions of the Delta log as values, and their JSON.

Owns the shape of one line of a commit file; knows nothing of files, versions or state. Names are
snake_case here and camelCase on the wire. Source: PROTOCOL.md, "Actions".

Unknown fields are kept in `extra` and written again, so that a newer writer's additions survive a
checkpoint rewrite.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, TypeAlias, cast

import msgspec

from txlake.errors import CorruptTable

# The wire's long and int; Count and SmallCount can't be negative. No Delta writer exceeds them.
Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
SmallCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Json: TypeAlias = object
JsonObject: TypeAlias = dict[str, object]
# A name that no writer uses: unknown fields are spread beside the known ones, never nested.
EXTRA = "\u2205extra"
_TIME_END_MS = 2**63 - 1


class ActionStruct(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """Base of all actions: frozen, keyword-only, camelCase on the wire, None and defaults left out.

    Rejects unknown fields: the decoder then falls back to a slower path that keeps them in `extra`.
    Excluded from garbage collection, since values from JSON hold no cycles: the collector would
    take five times as long as decoding.
    """

    extra: dict[str, object] = msgspec.field(default_factory=dict, name=EXTRA)


class Format(ActionStruct, frozen=True, kw_only=True, omit_defaults=False):
    """The encoding of the data files: always Parquet."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Protocol(ActionStruct, frozen=True, kw_only=True):
    """The versions and features that a client must know to read and write the table.

    Source: "Protocol Evolution".
    """

    min_reader_version: SmallCount
    min_writer_version: SmallCount
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Metadata(ActionStruct, frozen=True, kw_only=True, omit_defaults=False):
    """The table's identity, schema and properties. `schema_string` is the schema's JSON."""

    id: str
    format: Format = msgspec.field(default_factory=Format)
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str] = {}
    name: str | None = None
    description: str | None = None
    created_time: Long | None = None


class DeletionVector(ActionStruct, frozen=True, kw_only=True):
    """The place of a file's deleted positions. Source: "Deletion Vector Descriptor Schema".

    `storage_type`: `u` relative file by id, `i` inline, `p` absolute path. Sizes in bytes.
    """

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: SmallCount
    cardinality: Count
    offset: SmallCount | None = None

    @property
    def unique_id(self) -> str:
        """The id that, with the file's path, names a logical file."""
        start = f"{self.storage_type}{self.path_or_inline_dv}"
        return start if self.offset is None else f"{start}@{self.offset}"


class Add(ActionStruct, frozen=True, kw_only=True):
    """A data file is added to the table. `path` as in the log: percent-encoded, relative or
    absolute.
    """

    path: str
    partition_values: dict[str, str | None]
    size: Count
    modification_time: Long
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None

    @property
    def key(self) -> FileKey:
        """(path, deletion vector id): the identity of a logical file."""
        vector = self.deletion_vector
        return (self.path, None if vector is None else vector.unique_id)

    def tombstone(self, *, timestamp_ms: int, data_change: bool = True) -> Remove:
        """Return the tombstone of this logical file, removed at `timestamp_ms`.

        `data_change`: whether its rows are deleted, rather than moved to other files. Unknown
        fields aren't carried over.
        """
        return Remove(
            path=self.path,
            data_change=data_change,
            deletion_timestamp=timestamp_ms,
            extended_file_metadata=True,
            partition_values=self.partition_values,
            size=self.size,
            stats=self.stats,
            tags=self.tags,
            deletion_vector=self.deletion_vector,
            base_row_id=self.base_row_id,
            default_row_commit_version=self.default_row_commit_version,
        )


class Remove(ActionStruct, frozen=True, kw_only=True):
    """A data file is removed from the table; a tombstone until retention ends."""

    path: str
    data_change: bool
    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None

    @property
    def key(self) -> FileKey:
        """(path, deletion vector id): the identity of a logical file."""
        vector = self.deletion_vector
        return (self.path, None if vector is None else vector.unique_id)


class Cdc(ActionStruct, frozen=True, kw_only=True):
    """A change data file. Source: "Add CDC File"."""

    path: str
    partition_values: dict[str, str | None]
    size: Long
    data_change: bool
    tags: dict[str, str | None] | None = None


class Txn(ActionStruct, frozen=True, kw_only=True):
    """The newest version that an application has written. Source: "Transaction Identifiers"."""

    app_id: str
    version: Long
    last_updated: Long | None = None


class DomainMetadata(ActionStruct, frozen=True, kw_only=True):
    """A named configuration, `delta.` domains are the system's. Source: "Domain Metadata"."""

    domain: str
    configuration: str
    removed: bool


class CommitInfo(msgspec.Struct, frozen=True):
    """Provenance of a commit: a free JSON object, kept unchanged. Times in milliseconds."""

    values: dict[str, object]

    def text(self, key: str) -> str | None:
        """Return the value of `key` if it is text, else None."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """Return the value of `key` if it is a whole number, else None."""
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def in_commit_timestamp_ms(self) -> int | None:
        """The commit's in-commit timestamp; None when it has none, or an impossible one."""
        time = self.number("inCommitTimestamp")
        return time if time is not None and 0 <= time < _TIME_END_MS else None

    def flag(self, key: str) -> bool | None:
        """Return the value of `key` if it is a boolean, else None."""
        value = self.values.get(key)
        return value if isinstance(value, bool) else None


class TransactionGroup(msgspec.Struct, frozen=True):
    """The transaction over several tables that a commit is part of: a JSON object, kept unchanged.

    It says nothing of the table's state, so no checkpoint has it. Source: Delta's RFC of
    multi-table transactions (delta-io/delta, pull request 7438), which isn't accepted yet.
    """

    values: dict[str, object]

    @staticmethod
    def of(
        transaction_id: str, participants: Iterable[tuple[str, int]], catalog: str
    ) -> TransactionGroup:
        """Return the group of the versions that a transaction proposes, as (table id, version).

        `catalog`: the id of the catalog that ratifies them.
        """
        listed = [
            {"tableId": table_id, "proposedVersion": version}
            for table_id, version in sorted(participants)
        ]
        return TransactionGroup(
            {
                "transactionId": transaction_id,
                "participants": listed,
                "coordinatingCatalog": catalog,
            }
        )

    @property
    def transaction_id(self) -> str | None:
        """The id that all commits of the transaction share; None if it isn't a text."""
        found = self.values.get("transactionId")
        return found if isinstance(found, str) and found else None

    @property
    def catalog(self) -> str | None:
        """The id of the catalog that ratifies the transaction; None if it isn't a text."""
        found = self.values.get("coordinatingCatalog")
        return found if isinstance(found, str) and found else None

    @property
    def participants(self) -> frozenset[tuple[str, int]] | None:
        """The table ids and proposed versions of all commits of the transaction.

        None if they aren't a list of these, or one is there twice.
        """
        listed = self.values.get("participants")
        found: set[tuple[str, int]] = set()
        for one in listed if isinstance(listed, list) else ():
            match one:
                case {"tableId": str(table_id), "proposedVersion": int(version)} if (
                    version is not True and version is not False
                ):
                    found.add((table_id, version))
                case _:
                    return None
        return frozenset(found) if isinstance(listed, list) and len(found) == len(listed) else None


class CheckpointMetadata(ActionStruct, frozen=True, kw_only=True):
    """The version of a V2 checkpoint, only in these. Source: "Checkpoint Metadata"."""

    version: Long
    tags: dict[str, str | None] | None = None


class Sidecar(ActionStruct, frozen=True, kw_only=True):
    """A file in `_delta_log/_sidecars` with more actions of a V2 checkpoint, only in these."""

    path: str
    size_in_bytes: Long
    modification_time: Long
    tags: dict[str, str | None] | None = None


FileKey: TypeAlias = tuple[str, str | None]
Action: TypeAlias = (
    Add
    | Remove
    | Metadata
    | Protocol
    | Txn
    | DomainMetadata
    | Cdc
    | CommitInfo
    | TransactionGroup
    | CheckpointMetadata
    | Sidecar
)

# The action's name on the wire, in the order in which a commit lists them.
WIRE_NAMES: Mapping[str, type[Action]] = {
    "commitInfo": CommitInfo,
    "transactionGroup": TransactionGroup,
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "remove": Remove,
    "add": Add,
    "cdc": Cdc,
    "checkpointMetadata": CheckpointMetadata,
    "sidecar": Sidecar,
}
_NAME_OF = {kind: name for name, kind in WIRE_NAMES.items()}


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One line, decoded strictly: an unknown action or field fails, and the slower path
    takes over.
    """

    add: Add | None = None
    remove: Remove | None = None
    commitInfo: dict[str, object] | None = None  # noqa: N815 - the wire's name
    transactionGroup: dict[str, object] | None = None  # noqa: N815 - the wire's name
    metaData: Metadata | None = None  # noqa: N815 - the wire's name
    protocol: Protocol | None = None
    txn: Txn | None = None
    domainMetadata: DomainMetadata | None = None  # noqa: N815 - the wire's name
    cdc: Cdc | None = None
    checkpointMetadata: CheckpointMetadata | None = None  # noqa: N815 - the wire's name
    sidecar: Sidecar | None = None


_PIECE_BYTES = 8 * 1024 * 1024
_SPACE = re.compile(r"\s+")
_LINE = msgspec.json.Decoder(_Line)
_ENCODER = msgspec.json.Encoder()


def decode_actions(data: bytes, *, file: str) -> list[Action]:
    """Return the actions of a commit, a log compaction or a JSON checkpoint, in order.

    `file` is named in errors. Unknown actions are skipped, unknown fields kept in `extra`. Raises
    CorruptTable when the bytes are not whole JSON objects or a known field has a wrong type.
    Decodes a bounded piece at a time: lines without an action take no memory.
    """
    try:
        if len(data) <= _PIECE_BYTES:
            return _decode_piece(data, file)
        return [action for piece in _pieces(data) for action in _decode_piece(piece, file)]
    except _MultiLineValue:
        return _decode_whole(data, file)
    except RecursionError as error:
        raise CorruptTable(f"{file}: JSON that is nested too deeply") from error


class _MultiLineValue(Exception):
    """A value spans several lines, or a line is damaged."""


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield the data in pieces of whole lines."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + _PIECE_BYTES) + 1 or len(data)
        yield data[start:end]
        start = end


def _decode_piece(data: bytes, file: str) -> list[Action]:
    """Decode whole lines at once, or one by one where the strict decoder fails.

    Raises _MultiLineValue as `_decode_each_line` does, and CorruptTable for a field of a wrong
    type.
    """
    try:
        lines = _LINE.decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _decode_each_line(data, file)
    return _actions_of(lines)


def _actions_of(lines: Iterable[_Line]) -> list[Action]:
    """Return the lines' actions in order; within a line, an add and a remove come first."""
    actions: list[Action] = []
    for line in lines:
        add, remove = line.add, line.remove
        if add is not None:
            actions.append(add)
        if remove is not None:
            actions.append(remove)
        if (add is None and remove is None) or not _is_alone(line):
            actions.extend(_other_actions(line))
    return actions


def _is_alone(line: _Line) -> bool:
    """Return whether a file action is the only action of its line, as the protocol demands."""
    return (
        line.commitInfo is None
        and line.transactionGroup is None
        and line.metaData is None
        and line.protocol is None
        and line.txn is None
        and line.domainMetadata is None
        and line.cdc is None
    )


def _other_actions(line: _Line) -> Iterator[Action]:
    """Yield the line's actions except files, in a fixed order."""
    if line.commitInfo is not None:
        yield CommitInfo(line.commitInfo)
    if line.transactionGroup is not None:
        yield TransactionGroup(line.transactionGroup)
    for action in (
        line.protocol,
        line.metaData,
        line.txn,
        line.domainMetadata,
        line.cdc,
        line.checkpointMetadata,
        line.sidecar,
    ):
        if action is not None:
            yield action


def _decode_each_line(data: bytes, file: str) -> list[Action]:
    """Decode line by line; only lines with unknown parts take the slower path that keeps them.

    Raises _MultiLineValue for a line that isn't whole objects: it is damaged, or part of a value
    that spans several lines.
    """
    actions: list[Action] = []
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            actions += _actions_of((_LINE.decode(line),))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            try:
                values = _json_values(line.decode("utf-8"))
            except ValueError as error:
                raise _MultiLineValue from error
            actions += _actions_of_values(values, file)
    return actions


def _decode_whole(data: bytes, file: str) -> list[Action]:
    """Return the actions of objects that are separated by any white space. Raises CorruptTable for
    other content.
    """
    try:
        values = _json_values(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CorruptTable(f"{file}: not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise CorruptTable(
            f"{file}: broken JSON in line {error.lineno}; the file is damaged or truncated"
        ) from error
    except ValueError as error:
        raise CorruptTable(f"{file}: {error}") from error
    return _actions_of_values(values, file)


def _json_values(text: str) -> list[Json]:
    """Return the JSON values of a text, separated by any white space.

    Raises ValueError if it holds anything else, or a lone surrogate.
    """
    decoder = json.JSONDecoder()
    values: list[Json] = []
    position = _skip_white_space(text, 0)
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        _require_text(value)
        values.append(value)
        position = _skip_white_space(text, position)
    return values


def _require_text(value: Json) -> None:
    """Raise ValueError for a lone surrogate, which no text can hold. msgspec refuses it itself."""
    json.dumps(value, ensure_ascii=False).encode()


def _actions_of_values(values: Iterable[Json], file: str) -> list[Action]:
    """Return the actions of decoded lines.

    Raises CorruptTable for a value that isn't an object, and as `actions_from_object`.
    """
    actions: list[Action] = []
    for value in values:
        if not isinstance(value, dict):
            raise CorruptTable(
                f"{file}: expected a JSON object an action, found {reprlib.repr(value)}"
            )
        actions.extend(actions_from_object(cast(JsonObject, value), file=file))
    return actions


def _skip_white_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return position if found is None else found.end()


def actions_from_object(line: Mapping[str, Json], *, file: str) -> Iterator[Action]:
    """Yield the actions of one line given as a dictionary, camelCase as in the log.

    Unknown actions are skipped. Raises CorruptTable naming `file` when a field has a wrong type.
    """
    for name, value in line.items():
        kind = WIRE_NAMES.get(name)
        if kind is None or value is None:
            continue
        if not isinstance(value, dict):
            raise CorruptTable(f"{file}: {name}: expected an object, found {reprlib.repr(value)}")
        if kind is CommitInfo or kind is TransactionGroup:
            yield kind(value)
        else:
            yield _struct_from(kind, value, name, file)


def _struct_from(kind: type[Action], value: JsonObject, name: str, file: str) -> Action:
    """Return an action from its JSON object, unknown fields in `extra`, also those of a deletion
    vector.

    Unknown fields of `format` are dropped. Raises CorruptTable for a field of a wrong type.
    """
    known, extra = _split(kind, value)
    vector = known.get("deletionVector")
    if isinstance(vector, dict):
        known_vector, extra_vector = _split(DeletionVector, vector)
        known["deletionVector"] = {**known_vector, EXTRA: extra_vector}
    form = known.get("format")
    if isinstance(form, dict):
        known["format"] = _split(Format, form)[0]
    try:
        return msgspec.convert({**known, EXTRA: extra}, kind)
    except msgspec.ValidationError as error:
        raise CorruptTable(f"{file}: {name}: {error}") from error


@cache
def _wire_fields(kind: type) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind)) - {EXTRA}


def _split(kind: type, value: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return (known fields, unknown fields) of an object that stands for an action of this kind."""
    names = _wire_fields(kind)
    known = {key: item for key, item in value.items() if key in names}
    return known, {key: item for key, item in value.items() if key not in names}


def action_to_object(action: Action) -> JsonObject:
    """Return the action as its line in the log: `{"add": {...}}`, camelCase, without nulls."""
    name = _NAME_OF[type(action)]
    if isinstance(action, CommitInfo | TransactionGroup):
        return {name: action.values}
    fields = cast(JsonObject, msgspec.to_builtins(action))
    vector = fields.get("deletionVector")
    if isinstance(vector, dict):
        fields["deletionVector"] = _flat(vector)
    form = fields.get("format")
    if isinstance(form, dict):
        fields["format"] = _flat(form)
    return {name: _flat(fields)}


def _flat(fields: JsonObject) -> JsonObject:
    """Return the fields with those of `extra` beside them, without nulls, tuples as lists."""
    extra = fields.pop(EXTRA, None)
    flat: JsonObject = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in fields.items()
        if value is not None
    }
    return {**flat, **extra} if isinstance(extra, dict) else flat


def encode_actions(actions: Iterable[Action]) -> bytes:
    """Return the actions as newline-terminated JSON lines, in the order given."""
    return b"".join(_ENCODER.encode(action_to_object(action)) + b"\n" for action in actions)
