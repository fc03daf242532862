"""A MERGE of few rows that this process joins and writes itself, without a Spark job.

Owns when it may: the source is held, the target's files that its keys may be in are few and on this
machine, both are compared by plain columns, no clause has a condition, and each value is one that
`log.values` models. Whatever else there is, also what is wrong with the statement, is Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txlake.datafiles.write_task import DELETE, INSERT, UPDATE
from txlake.log.coercion import has_plain_text
from txlake.log.predicates import Predicate
from txlake.log.value_nodes import ColumnValue, Negated, Operation, Value
from txlake.log.values import computed, parse_value
from txlake.protocol.identity import is_identity
from txlake.protocol.types import Field, Primitive, Struct, from_arrow_type, to_arrow_type
from txlake.spark import candidate_rows, rows
from txlake.spark.dml import resolve_assignments
from txlake.spark.local_rows import fit_column
from txlake.spark.merge_source import LocalSource, equal_columns, resolve_merge_column
from txlake.spark.reading import FILE, ROW
from txlake.spark.scan import ROW_ID, ROW_VERSION
from txlake.spark.table_access import TableAccess
from txlake.spark.types import delta_schema
from txlake.spark.writing import ACTION, Written, write_arrow
from txlake.statements import (
    Assignment,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedInsert,
    SqlText,
    Star,
)

# Files on this machine that this process reads sooner than a job of Spark's begins to pay.
_BYTES_MAX = 512 * 1024 * 1024
_ROWS_MAX = 250_000
_POSITION, _NUMBER = "__txlake_position", "__txlake_number"
_INTEGERS = frozenset({"byte", "short", "integer", "long"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clauses:
    """What becomes of rows that match, and of those of the source that don't."""

    update: MatchedUpdate | None = None
    delete: MatchedDelete | None = None
    insert: NotMatchedInsert | None = None

    @classmethod
    def of(cls, statement: Merge) -> _Clauses | None:
        """None where there are others, or conditions."""
        found: dict[str, MatchedUpdate | MatchedDelete | NotMatchedInsert] = {}
        for clause in statement.clauses:
            match clause:
                case MatchedUpdate(condition=None):
                    found["update"] = clause
                case MatchedDelete(condition=None):
                    found["delete"] = clause
                case NotMatchedInsert(condition=None):
                    found["insert"] = clause
                case _:
                    return None
        if len(found) < len(statement.clauses) or {"update", "delete"} <= found.keys():
            return None
        return cls(**found)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Key:
    """A column of the target and one of the source, which are equal in rows that match."""

    ours: Field
    theirs: Field


@dataclass(frozen=True, slots=True)
class _Matches:
    """By file ordinal, the positions that match in ascending order, and their source rows."""

    positions: Mapping[int, np.ndarray]
    numbers: np.ndarray


def merge_on_driver(
    work: TableAccess,
    statement: Merge,
    held: LocalSource,
    files: pa.Table,
    possible: Predicate,
) -> Written | None:
    """Carries the MERGE out on these files of the target; None where Spark has to.

    `possible`: what is true of each row that matches, as far as it is known.

    Raises InvalidRequest for a value whose type the column can't store.
    """
    snapshot = work.snapshot
    clauses, keys = _Clauses.of(statement), _keys(work, statement, held)
    if clauses is None or keys is None or statement.schema_evolution:
        return None
    if (pc.sum(files["size"]).as_py() or 0) > _BYTES_MAX or held.rows.num_rows > _ROWS_MAX:
        return None
    if rows.has_rules(snapshot):
        return None
    if any(is_identity(item) for item in snapshot.schema):
        return None
    try:
        matches = _matches(work, held, files, keys, possible, _ROWS_MAX)
    except (pa.ArrowException, OSError, ValueError):
        return None
    if matches is None:
        return None
    parts = _Parts(work, statement, held, files)
    made: list[pa.Table | None] = []
    if clauses.update is not None:
        made.append(parts.updated(clauses.update, matches))
    if clauses.delete is not None:
        made.append(parts.deleted(matches))
    if clauses.insert is not None:
        made.append(parts.inserted(clauses.insert, matches))
    whole = [one for one in made if one is not None]
    if len(whole) < len(made) or len({one.schema for one in whole}) > 1:
        return None
    return write_arrow(pa.concat_tables(whole), work.target())


# Which rows match


def _keys(work: TableAccess, statement: Merge, held: LocalSource) -> list[_Key] | None:
    """The pairs of columns that the ON condition says are equal; None where it says more."""
    if not isinstance(statement.on, SqlText) or statement.on.references:
        return None
    keys = []
    for part in work.on_parts(statement.on.text):
        found = equal_columns(work, statement, held, part)
        if found is None or not _is_key(found[0], found[1]):
            return None
        keys.append(_Key(*found))
    return keys


def _is_key(ours: Field, theirs: Field) -> bool:
    """Whether Arrow finds the columns equal where Spark does."""
    if not isinstance(ours.type, Primitive) or not isinstance(theirs.type, Primitive):
        return False
    if ours.type.name in _INTEGERS and theirs.type.name in _INTEGERS:
        return True
    is_text = ours.type.is_string and has_plain_text(ours) and has_plain_text(theirs)
    return ours.type == theirs.type and (is_text or ours.type.name == "date")


def _matches(
    work: TableAccess,
    held: LocalSource,
    files: pa.Table,
    keys: Sequence[_Key],
    possible: Predicate,
    rows_max: int,
) -> _Matches | None:
    """None where source rows have one key: which of them counts is Spark's to say.

    Raises ValueError where more than `rows_max` rows match, or the files can't be read here.
    """
    names = [str(place) for place in range(len(keys))]
    source = pa.table([_comparable(held.rows.column(key.theirs.name)) for key in keys], names)
    source = source.append_column(_NUMBER, pa.array(np.arange(source.num_rows, dtype=np.int64)))
    source = source.drop_null()  # NULL equals nothing
    if source.group_by(names).aggregate([]).num_rows < source.num_rows:
        return None
    items = list({key.ours.name: key.ours for key in keys}.values())
    lock, count = Lock(), 0

    def in_file(read: Iterator[tuple[np.ndarray, pa.Table]]) -> tuple[np.ndarray, np.ndarray]:
        """The positions in one file, and their source rows."""
        nonlocal count
        parts = list(read)
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows = pa.concat_tables([part for _, part in parts])
        ours = pa.table([_comparable(rows.column(key.ours.name)) for key in keys], names)
        places, numbers = _joined(ours, source, names)
        with lock:
            count += len(places)
        if count > rows_max:
            raise ValueError("they aren't few")
        return np.concatenate([at for at, _ in parts])[places], numbers

    reads = candidate_rows.live_values(work, files, items, possible)
    with ThreadPoolExecutor(candidate_rows.threads_for(files)) as pool:
        found = list(pool.map(in_file, reads))
    positions = {ordinal: at for ordinal, (at, _) in enumerate(found) if len(at)}
    return _Matches(positions, np.concatenate([np.empty(0, np.int64), *(of for _, of in found)]))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def _joined(
    ours: pa.Table, source: pa.Table, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The places of our rows that match, in ascending order, and their source rows' numbers."""
    if len(names) == 1:
        found = pc.index_in(ours.column(0), source.column(0), skip_nulls=True)
        places = np.flatnonzero(found.is_valid().to_numpy())
        numbers = source.column(_NUMBER).take(found.drop_null()).to_numpy()
        return places, numbers
    placed = ours.append_column(_POSITION, pa.array(np.arange(ours.num_rows, dtype=np.int64)))
    pairs = placed.join(source, list(names), join_type="inner").sort_by(_POSITION)
    return pairs.column(_POSITION).to_numpy(), pairs.column(_NUMBER).to_numpy()


# What becomes of them


@dataclass(frozen=True, slots=True)
class _Parts:
    """The rows that clauses make, with the control columns that say what they are."""

    work: TableAccess
    statement: Merge
    held: LocalSource
    files: pa.Table

    @property
    def _schema(self) -> Struct:
        return self.work.snapshot.schema

    @property
    def _source(self) -> Struct:
        return delta_schema(self.held.schema)

    def updated(self, clause: MatchedUpdate, matches: _Matches) -> pa.Table | None:
        """The images of the rows that match."""
        ours = candidate_rows.arrow_rows_at(self.work, self.files, matches.positions)
        if ours is None:
            return None
        theirs = self.held.rows.take(pa.array(matches.numbers))
        columns = dict(zip(ours.column_names, ours.columns, strict=True))
        for name, value in self._values(clause.assignments).items():
            item = self._schema.find(name)
            assert item is not None, "it was resolved"
            made = None if value is None else self._of_pair(value, item, ours, theirs)
            if made is None:
                return None
            columns[item.name] = made
        if ROW_VERSION in columns:
            columns[ROW_VERSION] = pa.chunked_array([pa.nulls(ours.num_rows, pa.int64())])
        return self._told(columns, UPDATE, ours.num_rows)

    def deleted(self, matches: _Matches) -> pa.Table | None:
        """The rows that match, without what they hold."""
        count = len(matches.numbers)
        columns: dict[str, pa.ChunkedArray] = {
            item.name: pa.chunked_array([pa.nulls(count, to_arrow_type(item.type))])
            for item in self._schema
        }
        files = [np.full(len(at), ordinal) for ordinal, at in matches.positions.items()]
        empty = np.empty(0, np.int64)
        columns[FILE] = pa.chunked_array([pa.array(np.concatenate([empty, *files]), pa.int64())])
        positions = np.concatenate([empty, *matches.positions.values()])
        columns[ROW] = pa.chunked_array([pa.array(positions, pa.int64())])
        return self._told(columns, DELETE, count)

    def inserted(self, clause: NotMatchedInsert, matches: _Matches) -> pa.Table | None:
        """The source's rows that matched nothing, as the table's."""
        is_new = np.ones(self.held.rows.num_rows, dtype=bool)
        is_new[matches.numbers] = False
        theirs = self.held.rows.filter(pa.array(is_new))
        values = self._values(clause.assignments)
        columns: dict[str, pa.ChunkedArray] = {}
        for item in self._schema:
            if item.name in values:
                value = values[item.name]
                made = None if value is None else self._of_source(value, item, theirs)
            else:
                nulls = pa.chunked_array([pa.nulls(theirs.num_rows, to_arrow_type(item.type))])
                made = nulls if item.nullable or not theirs.num_rows else None
            if made is None:
                return None
            columns[item.name] = made
        return self._told(columns, INSERT, theirs.num_rows)

    def _told(self, columns: dict[str, pa.ChunkedArray], action: int, count: int) -> pa.Table:
        """The rows with all control columns, in one order."""
        control = [ACTION, FILE, ROW]
        if self.work.tracks_rows:
            control += [ROW_ID, ROW_VERSION]
        columns[ACTION] = pa.chunked_array([pa.array(np.full(count, action), pa.int32())])
        nulls = pa.chunked_array([pa.nulls(count, pa.int64())])
        names = [*self._schema.names, *control]
        return pa.table({name: columns.get(name, nulls) for name in names})

    # Values

    def _values(self, assignments: Sequence[Assignment] | Star) -> dict[str, str | Field | None]:
        """By column the text of its new value, or the source's column; None: it isn't seen through.

        Of `*` there may be no column of that name: that is None too.
        """
        if isinstance(assignments, Star):
            return {item.name: self._source.find(item.name) for item in self._schema}
        resolved = resolve_assignments(self.work, tuple(assignments), self.statement.target_alias)
        values: dict[str, str | Field | None] = {}
        for name, entries in resolved.items():
            [(path, value), *more] = entries
            is_seen = not path and not more and isinstance(value, SqlText) and not value.references
            values[name] = value.text if is_seen and isinstance(value, SqlText) else None
        return values

    def _of_pair(
        self, told: str | Field, item: Field, ours: pa.Table, theirs: pa.Table
    ) -> pa.ChunkedArray | None:
        """A value of a row of both sides."""
        if isinstance(told, Field):
            return self._stored(theirs.column(told.name), told, item)
        value = parse_value(told, is_qualified=True, rules=self.work.rules)
        used: dict[str, tuple[Field, pa.ChunkedArray]] = {}
        named = None if value is None else self._named(value, ours, theirs, used)
        if named is None:
            return None
        if isinstance(named, ColumnValue):
            column, values = used[named.name]
            return self._stored(values, column, item)
        used[""] = (Field("", Primitive("long")), theirs.column(0))  # so that it has its rows
        both = pa.table({name: values for name, (_, values) in used.items()})
        schema = Struct(tuple(replace(one, name=name) for name, (one, _) in used.items()))
        return self._computed(named, item, both, schema)

    def _named(
        self,
        value: Value,
        ours: pa.Table,
        theirs: pa.Table,
        used: dict[str, tuple[Field, pa.ChunkedArray]],
    ) -> Value | None:
        """The value with names of its columns that no two of both sides have; they are `used`.

        None where it isn't certain whose a column is.
        """
        match value:
            case ColumnValue(name, qualifier):
                found = resolve_merge_column(self.work, self.statement, self.held, name, qualifier)
                if found is None:
                    return None
                is_ours, column = found
                own = f"{'ours' if is_ours else 'theirs'}.{column.name}"
                used[own] = (column, (ours if is_ours else theirs).column(column.name))
                return ColumnValue(own)
            case Negated(part):
                inner = self._named(part, ours, theirs, used)
                return None if inner is None else Negated(inner)
            case Operation(operator, first, second):
                left = self._named(first, ours, theirs, used)
                right = self._named(second, ours, theirs, used)
                return None if left is None or right is None else Operation(operator, left, right)
            case _:
                return value

    def _of_source(
        self, told: str | Field, item: Field, theirs: pa.Table
    ) -> pa.ChunkedArray | None:
        """A value of a row of the source alone."""
        if isinstance(told, Field):
            return self._stored(theirs.column(told.name), told, item)
        alias = self.held.alias
        aliases = () if alias is None else (alias,)
        value = parse_value(told, aliases=aliases, rules=self.work.rules)
        return None if value is None else self._computed(value, item, theirs, self._source)

    def _computed(
        self, value: Value, item: Field, rows: pa.Table, schema: Struct
    ) -> pa.ChunkedArray | None:
        made = computed(value, rows, schema)
        if made is None:
            return None
        return self._stored(made, Field(item.name, from_arrow_type(made.type)), item)

    def _stored(
        self, values: pa.ChunkedArray, source: Field, item: Field
    ) -> pa.ChunkedArray | None:
        self.work.require_assignable(source.type, item)
        stored = fit_column(values, source, item, self.work.snapshot)
        return None if stored is None or (stored.null_count and not item.nullable) else stored
