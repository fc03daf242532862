"""MERGE as a change of a table whose rows this process holds.

Owns the join and the choice of a clause for each row. The read of the target is planned by the
engine: by the ON condition on the target and the keys of the source's rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from tests.simulation.rows import fitting, values
from tests.simulation.rows.changes import (
    RowExpressions,
    assigned_values,
    keep_row_ids,
    with_identities,
)
from tests.simulation.rows.files import RowAccess, columns_of, live_rows, write_images, write_rows
from tests.simulation.rows.scopes import ColumnName, Row, Rows, Scope, TypedExpression
from txlake.commit.change import Change
from txlake.commit.data_plane import EvolveSchema
from txlake.conflict.footprint import Read
from txlake.datafiles.write_task import INSERT, UPDATE, UPDATE_BY_SOURCE
from txlake.errors import InvalidRequest
from txlake.local.merge_keys import LocalSource
from txlake.local.rules import GENERATION_EXPRESSION
from txlake.log.files import adds_of
from txlake.protocol.actions import Action
from txlake.protocol.identity import is_identity
from txlake.protocol.types import Struct, to_arrow_type
from txlake.spark import merge as of_spark
from txlake.spark.deletions import delete_positions
from txlake.spark.dml import update_origins
from txlake.spark.identities import (
    IdentityValues,
    identity_values,
    refuse_assignment,
    refuse_explicit_values,
)
from txlake.spark.merge_job import _ACTIONS
from txlake.spark.merge_source import _needs_single_time
from txlake.sql.statements import (
    BySourceDelete,
    BySourceUpdate,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedInsert,
    Star,
)
from txlake.sql.statements.data import MergeClause

_CHANGED = (UPDATE, UPDATE_BY_SOURCE)


@dataclass(frozen=True)
class _Clause:
    """A clause over joined rows: whether it applies to a row, and the values that it assigns."""

    action: int
    is_match: Callable[[Row], bool]
    given: Mapping[str, fitting.Value]


def merge(work: RowAccess, statement: Merge, source: Any, evolve: EvolveSchema) -> Change:
    """Change the target by the first clause that applies to each row."""
    of_spark.check_clauses(statement)
    given: Rows = source.content
    rows = Rows(given.visible, given.rows).qualified(statement.source_alias)
    schema_actions: tuple[Action, ...] = ()
    if statement.schema_evolution:
        wanted = of_spark._evolved_schema(work, statement, rows.schema)
        if wanted != work.snapshot.schema:
            schema_actions = evolve(wanted)
            work = work.after(schema_actions)
    read = _read(work, statement, rows)
    files = work.snapshot.select(read.predicate)
    job = _MergeJob(work, statement, rows)
    job.run(files)
    with identity_values(work) as generation:
        images = write_images(work, job.images(changed=True), job.changed_at)
        adds = (*images.adds, *write_rows(work, job.inserted(generation)))
        written = replace(images, adds=adds, replaced=job.replaced, actions=job.actions)
        written = generation.with_marks(written)
    deletions = delete_positions(work, files, job.replaced)
    distinct, origins = of_spark._replaced_count(written), update_origins(files, written)
    return of_spark.merge_change(
        statement, read, written, distinct, deletions, schema_actions, origins
    )


def _read(work: RowAccess, statement: Merge, source: Rows) -> Read:
    """Return what the statement reads: for a local source, only rows of its keys."""
    read = of_spark.target_read(work, statement, source.schema)
    if _needs_single_time(statement, work.snapshot.schema):
        return read
    held = LocalSource(_table(source), source.schema, statement.source_alias)
    return of_spark.narrowed_read(work, statement, read, held)


def _table(source: Rows) -> pa.Table:
    columns = [
        pa.array([row[place] for row in source.rows], to_arrow_type(one.type))
        for place, one in enumerate(source.names)
    ]
    return pa.Table.from_arrays(columns, names=[one.name for one in source.names])


class _MergeJob:
    """The join, and the outcome of each row."""

    def __init__(self, work: RowAccess, statement: Merge, source: Rows) -> None:
        self._work, self._statement, self._source = work, statement, source
        target = columns_of(work, statement.target_alias or work.name)
        self._width = len(target)
        self._both = Scope((*target, *source.names))
        # Clauses for rows of one side can't name the other side's columns.
        self._target = Scope((*target, *map(_unseen, source.names)))
        self._of_source = Scope((*map(_unseen, target), *source.names))
        self._matched = self._clauses((MatchedUpdate, MatchedDelete), self._both)
        self._inserts = self._clauses((NotMatchedInsert,), self._of_source)
        self._by_source = self._clauses((BySourceUpdate, BySourceDelete), self._target)
        self.replaced: dict[int, BitMap64] = {}
        self.actions: dict[int, int] = {}
        self._taken: list[tuple[_Clause, Row]] = []
        self.changed_at: list[tuple[int, int]] = []

    def run(self, files: pa.Table) -> None:
        """Decide on every row. Raises InvalidRequest for a row that several source rows change."""
        matches = RowExpressions(self._work, scope=self._both).condition(self._statement.on)
        met: set[int] = set()
        nothing = (None,) * len(self._source.names)
        for ordinal, add in enumerate(adds_of(files)):
            for place, row in live_rows(self._work, add):
                partners = [
                    (number, (*row, *other))
                    for number, other in enumerate(self._source.rows)
                    if matches((*row, *other))
                ]
                met.update(number for number, _ in partners)
                if partners:
                    taken = [
                        found for _, pair in partners if (found := _first(self._matched, pair))
                    ]
                    if len(taken) > 1 and not of_spark._only_deletes(self._statement):
                        raise self._ambiguous(len(taken), row)
                    taken = taken[:1]
                else:
                    found = _first(self._by_source, (*row, *nothing))
                    taken = [found] if found else []
                for one in taken:
                    self._take(*one)
                    if one[0].action in _CHANGED:
                        self.changed_at.append((ordinal, place))
                    self.replaced.setdefault(ordinal, BitMap64()).add(place)
        nobody = (None,) * self._width
        for number, other in enumerate(self._source.rows):
            if number not in met:
                inserted = _first(self._inserts, (*nobody, *other))
                if inserted is not None:
                    self._take(*inserted)

    def _take(self, clause: _Clause, row: Row) -> None:
        self._taken.append((clause, row))
        self.actions[clause.action] = self.actions.get(clause.action, 0) + 1

    def inserted(self, generation: IdentityValues) -> list[Row]:
        """Return the inserted rows, with values in identity columns."""
        rows = self.images(changed=False)
        given = {name for clause in self._inserts for name in clause.given}
        return with_identities(rows, generation, generation.missing(given), self._work.snapshot)

    def images(self, *, changed: bool) -> list[Row]:
        """Return the images of changed rows, or the rows to insert."""
        wanted = _CHANGED if changed else (INSERT,)
        taken = [(clause, row) for clause, row in self._taken if clause.action in wanted]
        snapshot = self._work.snapshot
        images = [fitting.fill_columns([row], clause.given, snapshot)[0] for clause, row in taken]
        fitting.check(images, snapshot)
        return keep_row_ids(self._work, [row for _, row in taken], images) if changed else images

    def _ambiguous(self, number: int, row: Row) -> InvalidRequest:
        table, names = self._work.snapshot.table, self._work.snapshot.schema.names
        shown = json.dumps(dict(zip(names, map(values.json_of, row), strict=True)))
        return InvalidRequest(
            f"MERGE INTO {table}: {number} source rows match the target row {shown}, and it isn't "
            "clear which one counts. Nothing was written"
        )

    # Clauses

    def _clauses(self, kinds: tuple[type[MergeClause], ...], scope: Scope) -> list[_Clause]:
        return [
            self._clause(clause, scope)
            for clause in self._statement.clauses
            if isinstance(clause, kinds)
        ]

    def _clause(self, clause: MergeClause, scope: Scope) -> _Clause:
        is_match = RowExpressions(self._work, scope=scope).condition(clause.condition)
        action = _ACTIONS[type(clause)]
        if isinstance(clause, MatchedDelete | BySourceDelete):
            return _Clause(action, is_match, {})
        if isinstance(clause.assignments, Star):
            given = self._star(clause)
        else:
            expressions, alias = (
                RowExpressions(self._work, scope=scope),
                self._statement.target_alias,
            )
            given = assigned_values(self._work, expressions, clause.assignments, alias)
        if isinstance(clause, NotMatchedInsert):
            refuse_explicit_values(self._work.snapshot, given)
        else:
            refuse_assignment(self._work.snapshot, given)
        if not isinstance(clause, NotMatchedInsert):
            kept = {
                item.name: _at(place)
                for place, item in enumerate(self._work.snapshot.schema)
                if GENERATION_EXPRESSION not in item.metadata
            }
            given = {**kept, **given}
        return _Clause(action, is_match, given)

    def _star(self, clause: MergeClause) -> dict[str, fitting.Value]:
        schema: Struct = self._source.schema
        given: dict[str, fitting.Value] = {}
        for item in self._work.snapshot.schema:
            found = schema.find(item.name)
            if found is None:
                if not (self._statement.schema_evolution or is_identity(item)):
                    raise InvalidRequest(
                        f"MERGE INTO {self._work.snapshot.table}: the source has no column "
                        f"{item.name!r}, which `*` needs; it has {', '.join(schema.names)}"
                    )
                continue
            place = self._width + schema.names.index(found.name)
            value = TypedExpression(found.type, _at(place))
            given[item.name] = fitting.to_column_value(value, item, self._work.snapshot)
        return given


def _first(clauses: Sequence[_Clause], row: Row) -> tuple[_Clause, Row] | None:
    for clause in clauses:
        if clause.is_match(row):
            return clause, row
    return None


def _unseen(one: ColumnName) -> ColumnName:
    return replace(one, name="\0", qualifier=None, hidden=True)


def _at(place: int) -> fitting.Value:
    return lambda row: row[place]
