"""EXPLAIN CONFLICTS: what a statement would read and change, and which writers would abort it.

Turns a statement into a `PlannedStatement`, which the conflict rules judge, and words the result.
The statement isn't run, and no reads are added to the calling transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txlake.commands.data import source_rows
from txlake.commit.data_plane import TableData
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.explanation import Effect, PlannedStatement, explain
from txlake.conflict.footprint import Read
from txlake.conflict.granularity import PROPERTY as GRANULARITY
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.log.predicates import to_text
from txlake.protocol.clustering import clustered_by
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.command import TableLock, command, giving_rows, served
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.session.transaction import Transaction
from txlake.session.views.describe import Rows
from txlake.sql.statements import (
    Delete,
    ExplainableStatement,
    ExplainConflicts,
    Insert,
    Merge,
    NotMatchedInsert,
    Optimize,
    Query,
    SqlText,
    Table,
    Truncate,
    Update,
)

_TEXT = Primitive("string")
_KEYS = "a source of some megabytes whose ON compares plain columns reads rows of its keys alone"
SCHEMA = Struct(
    (
        Field("part", _TEXT, False),
        Field("subject", _TEXT, False),
        Field("answer", _TEXT, False),
        Field("detail", _TEXT, True),
    )
)


def explain_conflicts(context: Context, request: ExplainConflicts) -> Rows:
    """Carry out EXPLAIN CONFLICTS.

    Return rows of SCHEMA: the statement's reads, changes, isolation level and granularity, a row
    for each kind of concurrent writer, and advice. Raises InvalidRequest for an unknown table, and
    for one that this transaction creates.
    """
    statement = request.statement
    handle = context.tables.require(_target(statement))
    if handle.is_new:
        raise InvalidRequest(
            f"EXPLAIN CONFLICTS: {handle.name} is made by this transaction: until COMMIT nobody "
            "else can write it"
        )
    scratch = Transaction(
        id=context.transaction.id,
        engine=context.engine,
        session_number=context.transaction.session_number,
        level=context.transaction.level,
        explicit=False,
    )
    analysis_context = context.in_transaction(scratch)
    try:
        target = analysis_context.tables.require(_target(statement))
        intent = _Analysis(analysis_context, target).intent(statement)
    finally:
        analysis_context.close()
    rows: list[tuple[object, ...]] = [
        ("statement", "reads", _reads_text(intent), None),
        ("statement", "does", intent.effect.value, None),
        ("statement", "isolation", intent.level.value, None),
        ("statement", "grain", intent.grain.value, _granularity_reason(intent)),
    ]
    for verdict in explain(intent):
        if verdict.conflict is None:
            rows.append(("beside", verdict.writer.value, "both commit", None))
        else:
            name = verdict.conflict.error.__name__
            detail = f"{verdict.conflict.finding}. {verdict.conflict.evidence.advice}"
            rows.append(("beside", verdict.writer.value, name, detail))
    rows += [("advice", subject, answer, None) for subject, answer in _advice(intent)]
    if isinstance(statement, Merge):
        rows.append(("advice", "source", _KEYS, None))
    return Rows(schema=SCHEMA, rows=rows)


def _target(statement: ExplainableStatement) -> Table:
    return statement.target if isinstance(statement, Merge) else statement.table


@dataclass(frozen=True, slots=True)
class _Analysis:
    """The target table in a scratch transaction that is never committed."""

    context: Context
    handle: Handle

    @property
    def _table(self) -> TableTransaction:
        return self.context.transaction.open(self.handle)

    @property
    def _work(self) -> TableData:
        return self.context.work_on(self.handle, self._table.view)

    def intent(self, statement: ExplainableStatement) -> PlannedStatement:
        """Return what the statement would read and change."""
        match statement:
            case Delete(condition=condition, alias=alias):
                return self._changing(self._work.read(condition, alias))
            case Update(condition=condition, alias=alias):
                values = (assignment.value for assignment in statement.assignments)
                has_query = any(isinstance(value, SqlText) and value.references for value in values)
                return self._changing(self._work.read(condition, alias), by_row=not has_query)
            case Truncate():
                return self._changing(Read(deletes_all=True))
            case Optimize(zorder_by=zorder_by):
                view = self._table.view
                sorts = zorder_by or clustered_by(view.schema, view.domains, table=view.table)
                return self._intent(Effect.SORTS if sorts else Effect.COMPACTS)
            case Insert():
                return self._inserting(statement)
            case Merge():
                return self._merging(statement)

    def _changing(self, read: Read, *, by_row: bool = True) -> PlannedStatement:
        return self._intent(Effect.CHANGES, read, by_row=by_row and read.deletes_all)

    def _inserting(self, statement: Insert) -> PlannedStatement:
        """Return the plan of an INSERT; its query is planned for the tables that it reads."""
        if isinstance(statement.source, Query):
            self.context.query(statement.source.sql)
        if statement.replace_where is not None:
            return self._intent(Effect.REPLACES, self._work.read(statement.replace_where, None))
        if statement.overwrite:
            return self._intent(Effect.REPLACES, Read(deletes_all=True))
        return self._intent(Effect.APPENDS)

    def _merging(self, statement: Merge) -> PlannedStatement:
        """Return the plan of a MERGE; its source is planned, not read."""
        source = self._work.to_frame(source_rows(self.context, statement.source), ())
        read = self._work.merge_read(statement, self.context.plane.schema_of(source))
        inserts = all(isinstance(clause, NotMatchedInsert) for clause in statement.clauses)
        by_row = read.predicate is not None and self._work.by_row(read.predicate)
        return self._intent(Effect.APPENDS if inserts else Effect.CHANGES, read, by_row=by_row)

    def _intent(self, effect: Effect, *reads: Read, by_row: bool = True) -> PlannedStatement:
        """Return the plan with these reads and the ones so far.

        `by_row`: whether conflicts can be found by rows.
        """
        table = self._table
        own = (
            Read(predicate=read.predicate, text=read.text, deletes_all=read.deletes_all)
            for read in reads
        )
        return PlannedStatement(
            base=table.view,
            effect=effect,
            level=table.level,
            granularity=table.granularity,
            reads=(*table.reads, *own),
            by_row=by_row,
        )


def _reads_text(intent: PlannedStatement) -> str:
    """Return the conditions that are read, each once, in words."""
    if not intent.reads:
        return "nothing"
    texts = (
        "the whole table" if read.predicate is None else read.text or to_text(read.predicate)
        for read in intent.reads
    )
    return "; ".join(dict.fromkeys(texts))


def _granularity_reason(intent: PlannedStatement) -> str:
    """Return why conflicts are found at this granularity."""
    if intent.granularity is not Granularity.ROW:
        return f"{GRANULARITY} of the table, its database or the lake"
    if not intent.base.properties.enable_deletion_vectors:
        return "the table has no deletion vectors"
    if not intent.by_row:
        return "a condition that isn't one of the rows' plain columns alone"
    return "deletion vectors, and conditions over plain columns"


def _advice(intent: PlannedStatement) -> list[tuple[str, str]]:
    """Return (subject, advice) of changes that would avoid conflicts."""
    advice: list[tuple[str, str]] = []
    if intent.granularity is not Granularity.ROW:
        advice.append((GRANULARITY, "'row' lets writers of different rows both commit"))
    if not intent.base.properties.enable_deletion_vectors:
        advice.append(
            ("delta.enableDeletionVectors", "'true' lets writers of different rows both commit")
        )
    if not intent.by_row:
        advice.append(
            (
                "condition",
                "compare plain columns with constants: no chance, clock, subquery, struct's field",
            )
        )
    if any(read.predicate is None for read in intent.reads):
        advice.append(("condition", "a condition on the table's own columns reads fewer rows"))
    if intent.level is Level.SERIALIZABLE and intent.reads:
        advice.append(
            ("isolation", "under WriteSerializable a blind INSERT aborts no other writer")
        )
    if intent.effect is Effect.SORTS:
        advice.append(("size", "beyond 10 million rows it conflicts with changes of its files"))
    return advice


def _locks(request: ExplainConflicts) -> Sequence[TableLock]:
    return [(_target(request.statement), LockMode.SCH_S)]


COMMANDS = served(command(ExplainConflicts, giving_rows(explain_conflicts), _locks, writes=False))
