"""MERGE of few rows by the driver, without a Spark job.

Owns when the driver may: the source is local, the target's files that may have its keys are few,
the ON condition compares plain columns, no clause has a condition, and each value is one that
`log.values` models. Spark handles every other statement, invalid ones included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
import pyarrow as pa

from txlake.datafiles.files import Uploads
from txlake.datafiles.write_task import DELETE, INSERT, UPDATE
from txlake.local import candidate_rows
from txlake.local.assignments import resolve_assignments
from txlake.local.caller_rows import fit_column
from txlake.local.choice import Declined, read_bytes
from txlake.local.control_columns import ACTION, FILE, ROW, ROW_ID, ROW_VERSION
from txlake.local.file_rows import UNREADABLE, decode_each
from txlake.local.key_join import SourceKeys
from txlake.local.merge_keys import LocalSource, equal_columns, resolve_merge_column
from txlake.local.rules import has_rules
from txlake.local.table import LocalTable
from txlake.local.writing import WriteResult, write_arrow
from txlake.log.coercion import has_plain_text
from txlake.log.predicates import Predicate
from txlake.log.value_nodes import ColumnValue, Negated, Operation, Value
from txlake.log.values import compute, parse_value
from txlake.protocol.identity import is_identity
from txlake.protocol.types import Field, Primitive, Struct, from_arrow_type, to_arrow_type
from txlake.sql.statements import (
    Assignment,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedInsert,
    SqlText,
    Star,
)

# Limits up to which the driver is faster than a Spark job.
_BYTES_MAX = 512 * 1024 * 1024
_ROWS_MAX = 250_000
_INTEGERS = frozenset({"byte", "short", "integer", "long"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clauses:
    """The clauses of a MERGE, at most one of each kind, without conditions."""

    update: MatchedUpdate | None = None
    delete: MatchedDelete | None = None
    insert: NotMatchedInsert | None = None

    @classmethod
    def of(cls, statement: Merge) -> _Clauses:
        """Return a statement's clauses. Raises Declined for one with a condition or BY SOURCE, and
        for two of one kind or both UPDATE and DELETE.
        """
        clauses: dict[str, MatchedUpdate | MatchedDelete | NotMatchedInsert] = {}
        for clause in statement.clauses:
            match clause:
                case MatchedUpdate(condition=None):
                    clauses["update"] = clause
                case MatchedDelete(condition=None):
                    clauses["delete"] = clause
                case NotMatchedInsert(condition=None):
                    clauses["insert"] = clause
                case _:
                    raise Declined("a clause has a condition, or is BY SOURCE")
        if len(clauses) < len(statement.clauses) or {"update", "delete"} <= clauses.keys():
            raise Declined("there are several clauses of one kind")
        return cls(**clauses)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Key:
    """A column of the target and one of the source that are equal in matching rows.

    Attributes:
        ours: the target's column.
        theirs: the source's column.
    """

    ours: Field
    theirs: Field


@dataclass(frozen=True, slots=True)
class _Matches:
    """The pairs of rows that match.

    Attributes:
        positions: the target rows' ascending positions, by file ordinal.
        numbers: the numbers of their source rows, in the order of the positions.
    """

    positions: Mapping[int, np.ndarray]
    numbers: np.ndarray


def merge_on_driver(
    work: LocalTable,
    statement: Merge,
    local_source: LocalSource,
    files: pa.Table,
    possible: Predicate,
    uploads: Uploads,
) -> WriteResult:
    """Write the MERGE's new rows from these files of the target; the caller waits for `uploads` and
    commits the result.

    `possible`: a bound predicate that every matching row meets. Raises Declined where Spark has to
    do it, before anything is written; InvalidRequest for a value whose type the column can't store.
    """
    snapshot = work.snapshot
    clauses, keys = _Clauses.of(statement), _keys(work, statement, local_source)
    if statement.schema_evolution:
        raise Declined("the schema may change")
    if read_bytes(work, files) > _BYTES_MAX or local_source.rows.num_rows > _ROWS_MAX:
        raise Declined(f"there are more than {_BYTES_MAX:,} bytes, or {_ROWS_MAX:,} source rows")
    if has_rules(snapshot) or any(is_identity(item) for item in snapshot.schema):
        raise Declined("the table has rules that Spark checks, or identity columns")
    parts = _ClauseRows(work, statement, local_source, files)
    images = None if clauses.update is None else parts.images(clauses.update, keys)
    later = [] if images is None else candidate_rows.stored_fields(work, images.read)
    try:
        matches = _matches(work, local_source, files, keys, possible, later)
    except UNREADABLE as error:
        raise Declined(str(error)) from error
    tables: list[pa.Table] = []
    if images is not None:
        tables.append(parts.updated(images, matches))
    if clauses.delete is not None:
        tables.append(parts.deleted(matches))
    if clauses.insert is not None:
        tables.append(parts.inserted(clauses.insert, matches))
    if len({table.schema for table in tables}) > 1:
        raise Declined("the clauses' values have different types")
    return write_arrow(pa.concat_tables(tables), work.target(), uploads)


# Matching


def _keys(work: LocalTable, statement: Merge, local_source: LocalSource) -> list[_Key]:
    """Return the column pairs that ON says are equal.

    Raises Declined if it says anything else, or compares types whose equality differs in Arrow.
    """
    if not isinstance(statement.on, SqlText) or statement.on.references:
        raise Declined("the ON condition isn't an expression over columns")
    keys = []
    for part in work.on_parts(statement.on.text):
        columns = equal_columns(work, statement, local_source, part)
        if columns is None or not _is_key(columns[0], columns[1]):
            raise Declined("the ON condition is more than equalities of plain columns")
        keys.append(_Key(*columns))
    return keys


def _is_key(ours: Field, theirs: Field) -> bool:
    """Return whether Arrow and Spark agree on which values of the columns are equal."""
    if not isinstance(ours.type, Primitive) or not isinstance(theirs.type, Primitive):
        return False
    if ours.type.name in _INTEGERS and theirs.type.name in _INTEGERS:
        return True
    is_text = ours.type.is_string and has_plain_text(ours) and has_plain_text(theirs)
    return ours.type == theirs.type and (is_text or ours.type.name == "date")


def _matches(
    work: LocalTable,
    local_source: LocalSource,
    files: pa.Table,
    keys: Sequence[_Key],
    possible: Predicate,
    later: Sequence[Field],
) -> _Matches:
    """Return the matching rows of the target and the numbers of their source rows.

    Keys with NULL match nothing. `later` as for `live_values`. Raises Declined if several source
    rows have one key, which Spark must handle, and if more than 250,000 rows match; Declined or one
    of UNREADABLE as `live_values`.
    """
    source = SourceKeys.of([local_source.rows.column(key.theirs.name) for key in keys])
    if not source.is_unique:
        raise Declined("several source rows have one key")
    items = list({key.ours.name: key.ours for key in keys}.values())
    lock, count = Lock(), 0

    def in_file(read: Iterator[tuple[np.ndarray, pa.Table]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the matching positions in one file, and the numbers of their source rows."""
        nonlocal count
        parts = list(read)
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows = pa.concat_tables([part for _, part in parts])
        places, numbers = source.matches([rows.column(key.ours.name) for key in keys])
        with lock:
            count += len(places)
        if count > _ROWS_MAX:
            raise Declined("too many rows match")
        return np.concatenate([file_positions for file_positions, _ in parts])[places], numbers

    reads = candidate_rows.live_values(work, files, items, possible, later)
    results = decode_each(in_file, list(reads))
    positions = {
        ordinal: file_positions
        for ordinal, (file_positions, _) in enumerate(results)
        if len(file_positions)
    }
    return _Matches(
        positions,
        np.concatenate([np.empty(0, np.int64), *(file_numbers for _, file_numbers in results)]),
    )


# New rows


@dataclass(frozen=True, slots=True)
class _PairValue:
    """A value that is computed from a pair of matching rows.

    Attributes:
        columns: by their names in the value, whether the target has the column, and the column.
    """

    value: Value
    columns: Mapping[str, tuple[bool, Field]]

    @property
    def ours(self) -> list[str]:
        """The target's columns that the value depends on."""
        return [column.name for is_ours, column in self.columns.values() if is_ours]


@dataclass(frozen=True, slots=True)
class _Images:
    """What the images of updated rows consist of.

    Attributes:
        assigned: the new values, by the table's column.
        keys: those of the target's columns that are taken from the source, where they are equal.
        read: the other columns of the target that the images depend on, and the control columns.
    """

    assigned: Mapping[str, _PairValue]
    keys: Sequence[_Key]
    read: Sequence[str]


@dataclass(frozen=True, slots=True)
class _ClauseRows:
    """The rows that the clauses write, with their control columns.

    All tables have the table's columns in its order, then the action, file and row, and for row
    tracking the row's id and version.
    """

    work: LocalTable
    statement: Merge
    local_source: LocalSource
    files: pa.Table

    @property
    def _schema(self) -> Struct:
        return self.work.snapshot.schema

    @property
    def _source(self) -> Struct:
        return self.local_source.schema

    def images(self, clause: MatchedUpdate, keys: Sequence[_Key]) -> _Images:
        """Return what the images of the matching rows consist of.

        Raises Declined for a value that needs Spark, and as `_values`.
        """
        assigned = {
            name: self._pair_value(name, value)
            for name, value in self._values(clause.assignments).items()
        }
        kept = [name for name in self._schema.names if name not in assigned]
        needed = {*kept, *(name for value in assigned.values() for name in value.ours)}
        equal = {key.ours.name: key for key in keys if key.ours.name in needed}
        read = [name for name in self._schema.names if name in needed and name not in equal]
        return _Images(
            assigned, list(equal.values()), [*read, *candidate_rows.extra_names(self.work)]
        )

    def updated(self, images: _Images, matches: _Matches) -> pa.Table:
        """Return the images of the matching rows; columns that aren't assigned keep their values.

        Raises Declined for a value that needs Spark, and if the rows can't be read or are too
        large.
        """
        positions = matches.positions
        ours = candidate_rows.arrow_rows_at(self.work, self.files, positions, columns=images.read)
        theirs = self.local_source.rows.take(pa.array(matches.numbers))
        for key in images.keys:
            values = theirs.column(key.theirs.name).cast(to_arrow_type(key.ours.type))
            ours = ours.append_column(key.ours.name, values)
        columns = dict(zip(ours.column_names, ours.columns, strict=True))
        for name, value in images.assigned.items():
            item = self._schema.find(name)
            assert item is not None, "it was resolved"
            columns[item.name] = self._values_of_pairs(value, item, ours, theirs)
        if ROW_VERSION in columns:
            columns[ROW_VERSION] = pa.chunked_array([pa.nulls(ours.num_rows, pa.int64())])
        return self._with_control_columns(columns, UPDATE, ours.num_rows)

    def deleted(self, matches: _Matches) -> pa.Table:
        """Return a row for each match that only says where the deleted row is; its columns are
        null.
        """
        count = len(matches.numbers)
        columns: dict[str, pa.ChunkedArray] = {
            item.name: pa.chunked_array([pa.nulls(count, to_arrow_type(item.type))])
            for item in self._schema
        }
        files = [
            np.full(len(positions), ordinal) for ordinal, positions in matches.positions.items()
        ]
        empty = np.empty(0, np.int64)
        columns[FILE] = pa.chunked_array([pa.array(np.concatenate([empty, *files]), pa.int64())])
        positions = np.concatenate([empty, *matches.positions.values()])
        columns[ROW] = pa.chunked_array([pa.array(positions, pa.int64())])
        return self._with_control_columns(columns, DELETE, count)

    def inserted(self, clause: NotMatchedInsert, matches: _Matches) -> pa.Table:
        """Return the source's unmatched rows as the table's; columns without a value are null.

        Raises Declined for a value that needs Spark, and a NOT NULL column without a value.
        """
        is_new = np.ones(self.local_source.rows.num_rows, dtype=bool)
        is_new[matches.numbers] = False
        theirs = self.local_source.rows.filter(pa.array(is_new))
        values = self._values(clause.assignments)
        columns: dict[str, pa.ChunkedArray] = {}
        for item in self._schema:
            if item.name in values:
                columns[item.name] = self._values_of_source(values[item.name], item, theirs)
            elif item.nullable or not theirs.num_rows:
                nulls = pa.nulls(theirs.num_rows, to_arrow_type(item.type))
                columns[item.name] = pa.chunked_array([nulls])
            else:
                raise Declined(f"no value is given for {item.name}, which is NOT NULL")
        return self._with_control_columns(columns, INSERT, theirs.num_rows)

    def _with_control_columns(
        self, columns: dict[str, pa.ChunkedArray], action: int, count: int
    ) -> pa.Table:
        """Return the rows with all control columns, null where `columns` lacks them; ACTION is
        `action`.

        Adds ACTION to `columns`; its other columns than the table's and the control columns are
        left out.
        """
        control = [ACTION, FILE, ROW]
        if self.work.tracks_rows:
            control += [ROW_ID, ROW_VERSION]
        columns[ACTION] = pa.chunked_array([pa.array(np.full(count, action), pa.int32())])
        nulls = pa.chunked_array([pa.nulls(count, pa.int64())])
        names = [*self._schema.names, *control]
        return pa.table({name: columns.get(name, nulls) for name in names})

    # Values

    def _values(self, assignments: Sequence[Assignment] | Star) -> dict[str, str | Field]:
        """Return the new values by the table's column: the SQL text, or for `*` the source's
        column.

        Raises Declined for a value that isn't SQL text for a whole column, and for `*` if a column
        of the table isn't in the source; InvalidRequest for an unknown column or one assigned
        twice.
        """
        if isinstance(assignments, Star):
            columns = [(item, self._source.find(item.name)) for item in self._schema]
            if any(source is None for _, source in columns):
                raise Declined("a column of the table isn't in the source")
            return {item.name: source for item, source in columns if source is not None}
        resolved = resolve_assignments(self.work, tuple(assignments), self.statement.target_alias)
        values: dict[str, str | Field] = {}
        for name, entries in resolved.items():
            [(path, value), *more] = entries
            if path or more or not isinstance(value, SqlText) or value.references:
                raise Declined(f"the value of {name} isn't an expression over one pair of rows")
            values[name] = value.text
        return values

    def _pair_value(self, target_name: str, value: str | Field) -> _PairValue:
        """Return a column's new value in pairs of matching rows: a source column, or SQL over
        columns of both sides.

        Raises Declined if the driver doesn't know the expression, or if it isn't certain which side
        a column belongs to.
        """
        used: dict[str, tuple[bool, Field]] = {}
        if isinstance(value, Field):
            name = f"theirs.{value.name}"
            return _PairValue(ColumnValue(name), {name: (False, value)})
        parsed = parse_value(value, is_qualified=True, rules=self.work.rules)
        if parsed is None:
            raise Declined(
                f"the value of {target_name} is an expression that the driver doesn't know"
            )
        return _PairValue(self._with_unique_names(parsed, used), used)

    def _values_of_pairs(
        self, pair_value: _PairValue, item: Field, ours: pa.Table, theirs: pa.Table
    ) -> pa.ChunkedArray:
        """Return a column's values, computed from pairs of matching rows, as the column stores
        them.

        Raises Declined if only Spark computes it, and as `_stored`.
        """
        columns = {
            name: (ours if is_ours else theirs).column(column.name)
            for name, (is_ours, column) in pair_value.columns.items()
        }
        if isinstance(pair_value.value, ColumnValue):
            name = pair_value.value.name
            return self._stored(columns[name], pair_value.columns[name][1], item)
        columns[""] = theirs.column(0)  # gives the table its number of rows
        fields = [replace(column, name=name) for name, (_, column) in pair_value.columns.items()]
        schema = Struct((*fields, Field("", Primitive("long"))))
        return self._computed(pair_value.value, item, pa.table(columns), schema)

    def _with_unique_names(self, value: Value, used: dict[str, tuple[bool, Field]]) -> Value:
        """Return the value with unambiguous column names (`ours.x`, `theirs.x`), added to `used`
        as in `_PairValue`.

        Raises Declined if it isn't certain which side a column belongs to.
        """
        match value:
            case ColumnValue(name, qualifier):
                resolved = resolve_merge_column(
                    self.work, self.statement, self.local_source, name, qualifier
                )
                if resolved is None:
                    raise Declined(f"it isn't certain which side {name} belongs to")
                is_ours, column = resolved
                qualified_name = f"{'ours' if is_ours else 'theirs'}.{column.name}"
                used[qualified_name] = resolved
                return ColumnValue(qualified_name)
            case Negated(operand):
                return Negated(self._with_unique_names(operand, used))
            case Operation(operator, first, second):
                left = self._with_unique_names(first, used)
                return Operation(operator, left, self._with_unique_names(second, used))
            case _:
                return value

    def _values_of_source(
        self, source_value: str | Field, item: Field, theirs: pa.Table
    ) -> pa.ChunkedArray:
        """Return a column's values, computed from source rows, as the column stores them.

        `source_value`: a source column, or SQL over source columns. Raises Declined if only Spark
        computes it, and as `_stored`.
        """
        if isinstance(source_value, Field):
            return self._stored(theirs.column(source_value.name), source_value, item)
        alias = self.local_source.alias
        aliases = () if alias is None else (alias,)
        value = parse_value(source_value, aliases=aliases, rules=self.work.rules)
        if value is None:
            raise Declined(
                f"the value of {item.name} is an expression that the driver doesn't know"
            )
        return self._computed(value, item, theirs, self._source)

    def _computed(
        self, value: Value, item: Field, rows: pa.Table, schema: Struct
    ) -> pa.ChunkedArray:
        """Return a value over the rows as the column stores it.

        Raises Declined if only Spark computes it, and as `_stored`.
        """
        values = compute(value, rows, schema)
        if values is None:
            raise Declined(f"the driver can't compute the value of {item.name} exactly")
        return self._stored(values, Field(item.name, from_arrow_type(values.type)), item)

    def _stored(self, values: pa.ChunkedArray, source: Field, item: Field) -> pa.ChunkedArray:
        """Return values of the type of `source` as the column `item` stores them.

        Raises Declined if Spark has to convert them, or to refuse a null; InvalidRequest for a type
        that the column or the session's store assignment policy doesn't take.
        """
        self.work.require_assignable(source.type, item)
        stored = fit_column(values, source, item, self.work.snapshot)
        if stored is None or (stored.null_count and not item.nullable):
            raise Declined(f"the value of {item.name} needs a conversion or a check by Spark")
        return stored
