"""The record of a read set: JSON that outlives the transaction and the schema that it read.

Owns the record's form, and how its predicates are bound to another version of the table. A column
is recorded with its physical name, id and type, by which it is found in the other version under
whatever name it has there. What can't be decoded or found counts as more than was read, never less.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from txlake.conflict.footprint import Read, ReadKind
from txlake.conflict.read_set import ReadSet, join_reads
from txlake.log.coercion import has_plain_text
from txlake.log.predicate_codec import JsonValue, predicate_from_json, predicate_to_json
from txlake.log.predicates import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    columns_of,
    to_text,
)
from txlake.log.snapshot import Snapshot
from txlake.protocol.collations import collated_type
from txlake.protocol.types import Field, Struct, type_to_json

VERSION = 1
_TEXT_MAX = 1_000
_Identity: TypeAlias = tuple[tuple[str, ...], int | None, str]
_Columns: TypeAlias = Mapping[ColumnPath, ColumnPath]


def encode_read_set(read_set: ReadSet, snapshot: Snapshot) -> str:
    """Return the record of a read set, ASCII and the same for equal read sets.

    `snapshot` is the version that was read, to whose schema the predicates are bound. The reads are
    joined as in `join_reads`, so that the record's size is limited; `Read.condition`, which belongs
    to the data plane, is left out.
    """
    joined = join_reads((read_set,))
    named = frozenset[ColumnPath]().union(
        *(columns_of(read.predicate) for read in joined.reads if read.predicate is not None)
    )
    record = {
        "version": VERSION,
        "table": snapshot.metadata.id,
        "mapped": _is_mapped(snapshot),
        "columns": [
            [list(path), *_identity(fields)]
            for path in sorted(named)
            if (fields := _fields_at(path, snapshot.schema)) is not None
        ],
        "reads": [_read_to_json(read) for read in joined.reads],
        "files": sorted(joined.read_files),
        "app_ids": sorted(joined.read_app_ids),
        "domains": sorted(joined.read_domains),
        "complete": joined.is_complete,
    }
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


def decode_read_sets(records: Iterable[str], base: Snapshot) -> tuple[ReadSet, ...]:
    """Return the read sets of one line of commits, bound to the version that it started from.

    `records` are in the order of the commits; `base` is the version on which winners are checked.

    A comparison with a column that `base` doesn't have, or has with another type, may have any
    value. A file that `base` doesn't have may hold rows that were moved there: it counts as a read
    of the whole table. So does every read of another table, which replaced this one, a read of a
    table of which columns were mapped and unmapped since, and a predicate that can't be decoded. A
    record of another version is `ReadSet.unknown`.
    """
    sets: list[ReadSet] = []
    was_mapped = _is_mapped(base)
    for text in records:
        try:
            record = _Record(json.loads(text))
        except (ValueError, RecursionError):
            sets.append(ReadSet.unknown())
            was_mapped = True  # it may have been, in a commit of which nothing is known
            continue
        is_known = record.table == base.metadata.id and (record.is_mapped or not was_mapped)
        was_mapped = was_mapped or record.is_mapped
        sets.append(record.bound(base, is_known=is_known))
    return tuple(sets)


class _Record:
    """A decoded record. Raises ValueError for one of another version or shape."""

    def __init__(self, value: JsonValue) -> None:
        match value:
            case {
                "version": int() as version,
                "table": str() as table,
                "mapped": bool() as is_mapped,
                "columns": list() as columns,
                "reads": list() as reads,
                "files": list() as files,
                "app_ids": list() as app_ids,
                "domains": list() as domains,
                "complete": bool() as is_complete,
                **others,
            } if version == VERSION and not others:
                self.table = table
                self.is_mapped = is_mapped
                self.columns = dict(map(_column, columns))
                self.reads = tuple(map(_read_from_json, reads))
                self.files = _names(files)
                self.app_ids = _names(app_ids)
                self.domains = _names(domains)
                self.is_complete = is_complete
            case _:
                raise ValueError(f"no record of reads of version {VERSION}: {value!r:.200}")

    def bound(self, base: Snapshot, *, is_known: bool) -> ReadSet:
        """Return the read set bound to a version; `is_known`: whether its columns can be found."""
        if is_known:
            columns = _found(self.columns, base.schema)
            reads = [_bound_read(read, columns) for read in self.reads]
        else:
            reads = [_of_whole_table(read) for read in self.reads]
        missing = {path for path in self.files if base.files.by_path(path) is None}
        if missing:
            reads.append(Read(text=min(missing)))
        return ReadSet(
            reads=tuple(reads),
            read_files=self.files - missing,
            read_app_ids=self.app_ids,
            read_domains=self.domains,
            is_complete=self.is_complete,
        )


def _is_mapped(snapshot: Snapshot) -> bool:
    return snapshot.column_mapping_mode != "none"


def _read_to_json(read: Read) -> JsonValue:
    """Return a read as JSON."""
    return {
        "kind": read.kind.value,
        "predicate": None if read.predicate is None else predicate_to_json(read.predicate),
        "text": None if read.text is None else read.text[:_TEXT_MAX],
        "files": read.files,
        "deletes_all": read.deletes_all,
        "is_assumed": read.is_assumed,
    }


def _read_from_json(value: JsonValue) -> Read:
    """Return a read, of the whole table if its predicate can't be decoded.

    Raises ValueError for another shape.
    """
    match value:
        case {
            "kind": str() as kind,
            "predicate": predicate,
            "text": (str() | None) as text,
            "files": bool() as files,
            "deletes_all": bool() as deletes_all,
            "is_assumed": bool() as is_assumed,
            **others,
        } if not others:
            read = Read(
                text=text,
                kind=ReadKind(kind),
                files=files,
                deletes_all=deletes_all,
                is_assumed=is_assumed,
            )
            if predicate is None:
                return read
            try:
                return replace(read, predicate=predicate_from_json(predicate))
            except ValueError:
                return replace(read, deletes_all=False)
    raise ValueError(f"no read: {value!r:.200}")


def _names(values: list[JsonValue]) -> frozenset[str]:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"expected texts, found {values!r:.200}")
    return frozenset(cast(list[str], values))


def _column(value: JsonValue) -> tuple[ColumnPath, _Identity]:
    """Return a recorded column's path and identity. Raises ValueError for another shape."""
    match value:
        case [list() as path, list() as physical, (int() | None) as column_id, str() as kind]:
            if all(isinstance(name, str) for name in (*path, *physical)):
                return tuple(path), (tuple(physical), column_id, kind)
    raise ValueError(f"no column: {value!r:.200}")


def _found(columns: Mapping[ColumnPath, _Identity], schema: Struct) -> dict[ColumnPath, ColumnPath]:
    """Return the paths that the recorded columns have in a schema, without those that it lacks.

    A column without an id is found by its name, in a schema without ids. A column with an id that
    the schema has no ids for was mapped later: its physical name is the name that it had.
    """
    found: dict[ColumnPath, ColumnPath] = {}
    for recorded, (physical, column_id, kind) in columns.items():
        fields = _fields_by_physical_name(physical, schema)
        if fields is None:
            continue
        _, own_id, own_kind = _identity(fields)
        if own_id in (None, column_id) and own_kind == kind:
            found[recorded] = tuple(item.name for item in fields)
    return found


def _fields_at(path: ColumnPath, schema: Struct) -> tuple[Field, ...] | None:
    """Return the fields at a path of names, outer first; None if there is none."""
    fields: list[Field] = []
    level: Struct | None = schema
    for name in path:
        item = None if level is None else level.find(name)
        if item is None:
            return None
        fields.append(item)
        level = item.type if isinstance(item.type, Struct) else None
    return tuple(fields)


def _fields_by_physical_name(path: tuple[str, ...], schema: Struct) -> tuple[Field, ...] | None:
    """Return the fields at a path of physical names, outer first; None if there is none."""
    fields: list[Field] = []
    level: Struct | None = schema
    for name in path:
        item = next((one for one in level or () if one.physical_name == name), None)
        if item is None:
            return None
        fields.append(item)
        level = item.type if isinstance(item.type, Struct) else None
    return tuple(fields)


def _identity(fields: tuple[Field, ...]) -> tuple[list[str], int | None, str]:
    """Return a column's physical path, its id if it has one, and how its values compare."""
    leaf = fields[-1]
    kind = [type_to_json(collated_type(leaf)), has_plain_text(leaf)]
    physical = [item.physical_name for item in fields]
    return physical, leaf.column_id, json.dumps(kind, sort_keys=True, separators=(",", ":"))


def _bound_read(read: Read, columns: _Columns) -> Read:
    """Return the read with its columns' other paths."""
    if read.predicate is None:
        return read
    return replace(read, predicate=_bound(read.predicate, columns))


def _of_whole_table(read: Read) -> Read:
    """Return the read without its predicate; what the commit deletes isn't all of that."""
    return replace(read, predicate=None, deletes_all=read.deletes_all and read.predicate is None)


def _bound(predicate: Predicate, columns: _Columns) -> Predicate:
    """Return the predicate with its columns' other paths; `Opaque` where there is none."""
    match predicate:
        case And(parts):
            return And(tuple(_bound(part, columns) for part in parts))
        case Or(parts):
            return Or(tuple(_bound(part, columns) for part in parts))
        case Not(part):
            return Not(_bound(part, columns))
        case Always():
            return predicate
        case Opaque(text, named, deterministic):
            if named is None or not named <= columns.keys():
                return Opaque(text)
            return Opaque(text, frozenset(columns[path] for path in named), deterministic)
        case _ if predicate.column not in columns:
            return Opaque(to_text(predicate))
        case Comparison(column, operator, value):
            return Comparison(columns[column], operator, value)
        case In(column, values):
            return In(columns[column], values)
        case IsNull(column):
            return IsNull(columns[column])
        case StartsWith(column, prefix):
            return StartsWith(columns[column], prefix)
