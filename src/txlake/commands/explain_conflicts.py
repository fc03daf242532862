"""EXPLAIN CONFLICTS: what a statement would read and change, and which writers would abort it.

Owns how a statement becomes an intent, and the words of the answer; the rules answer. Nothing is
run, and the transaction that asks has read nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from txlake.commands.data import source_rows
from txlake.conflict.explanation import Doing, Intent, explain
from txlake.conflict.footprint import Read
from txlake.conflict.granularity import PROPERTY as GRANULARITY
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.log.predicates import to_text
from txlake.protocol.clustering import clustered_by
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.command import TableLock, command, giving_rows
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.session.transaction import Transaction
from txlake.statements import (
    Delete,
    ExplainConflicts,
    Explained,
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
from txlake.transaction import change
from txlake.transaction.data_plane import TableData
from txlake.transaction.table_transaction import TableTransaction
from txlake.views.describe import Rows

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


def explain_conflicts(context: Context, asked: ExplainConflicts) -> Rows:
    """Rows of SCHEMA: the statement's reads, changes, level and grain, a row for each kind of
    concurrent writer, and advice.
    """
    statement = asked.statement
    handle = context.require(_target(statement))
    if handle.is_new:
        raise InvalidRequest(
            f"EXPLAIN CONFLICTS: {handle.name} is made by this transaction: until COMMIT nobody "
            "else can write it"
        )
    apart = Transaction(
        id=context.transaction.id,
        engine=context.engine,
        session_number=context.transaction.session_number,
        level=context.transaction.level,
        explicit=False,
    )
    asking = replace(context, transaction=apart)
    try:
        intent = _Asked(asking, asking.require(_target(statement))).intent(statement)
    finally:
        asking.close()
    rows: list[tuple[object, ...]] = [
        ("statement", "reads", _reads(intent), None),
        ("statement", "does", intent.doing.value, None),
        ("statement", "isolation", intent.level.value, None),
        ("statement", "grain", intent.grain.value, _why(intent)),
    ]
    for one in explain(intent):
        if one.conflict is None:
            rows.append(("beside", one.beside.value, "both commit", None))
        else:
            name = one.conflict.error.__name__
            detail = f"{one.conflict.finding}. {one.conflict.evidence.advice}"
            rows.append(("beside", one.beside.value, name, detail))
    rows += [("advice", subject, answer, None) for subject, answer in _advice(intent)]
    if isinstance(statement, Merge):
        rows.append(("advice", "source", _KEYS, None))
    return Rows(schema=SCHEMA, rows=rows)


def _target(statement: Explained) -> Table:
    return statement.target if isinstance(statement, Merge) else statement.table


@dataclass(frozen=True, slots=True)
class _Asked:
    """One table, and a transaction that goes no further."""

    context: Context
    handle: Handle

    @property
    def _table(self) -> TableTransaction:
        return self.context.transaction.open(self.handle)

    @property
    def _work(self) -> TableData:
        return self.context.work_on(self.handle, self._table.view)

    def intent(self, statement: Explained) -> Intent:
        """What the statement would do."""
        match statement:
            case Delete(condition=condition, alias=alias):
                return self._changing(self._work.read(condition, alias))
            case Update(condition=condition, alias=alias):
                values = (one.value for one in statement.assignments)
                looks = any(isinstance(one, SqlText) and one.references for one in values)
                return self._changing(self._work.read(condition, alias), by_row=not looks)
            case Truncate():
                return self._changing(change.Read(takes_all=True))
            case Optimize(zorder_by=zorder_by):
                view = self._table.view
                sorts = zorder_by or clustered_by(view.schema, view.domains, table=view.table)
                return self._intent(Doing.SORTS if sorts else Doing.COMPACTS)
            case Insert():
                return self._inserting(statement)
            case Merge():
                return self._merging(statement)

    def _changing(self, read: change.Read, *, by_row: bool = True) -> Intent:
        return self._intent(Doing.CHANGES, read, by_row=by_row and read.takes_all)

    def _inserting(self, statement: Insert) -> Intent:
        if isinstance(statement.source, Query):
            self.context.query(statement.source.sql)
        if statement.replace_where is not None:
            return self._intent(Doing.REPLACES, self._work.read(statement.replace_where, None))
        if statement.overwrite:
            return self._intent(Doing.REPLACES, change.Read(takes_all=True))
        return self._intent(Doing.APPENDS)

    def _merging(self, statement: Merge) -> Intent:
        source = self._work.given(source_rows(self.context, statement.source), ())
        read = self._work.merge_read(statement, self.context.plane.schema_of(source))
        inserts = all(isinstance(one, NotMatchedInsert) for one in statement.clauses)
        by_row = read.predicate is not None and self._work.by_row(read.predicate)
        return self._intent(Doing.APPENDS if inserts else Doing.CHANGES, read, by_row=by_row)

    def _intent(self, doing: Doing, *reads: change.Read, by_row: bool = True) -> Intent:
        table = self._table
        own = (
            Read(predicate=one.predicate, text=one.text, takes_all=one.takes_all) for one in reads
        )
        return Intent(
            base=table.view,
            doing=doing,
            level=table.level,
            granularity=table.granularity,
            reads=(*table.reads, *own),
            by_row=by_row,
        )


def _reads(intent: Intent) -> str:
    if not intent.reads:
        return "nothing"
    texts = (
        "the whole table" if one.predicate is None else one.text or to_text(one.predicate)
        for one in intent.reads
    )
    return "; ".join(dict.fromkeys(texts))


def _why(intent: Intent) -> str:
    if intent.granularity is not Granularity.ROW:
        return f"{GRANULARITY} of the table, its database or the lake"
    if not intent.base.properties.enable_deletion_vectors:
        return "the table has no deletion vectors"
    if not intent.by_row:
        return "a condition that isn't one of the rows' plain columns alone"
    return "deletion vectors, and conditions over plain columns"


def _advice(intent: Intent) -> list[tuple[str, str]]:
    """What keeps writers apart that would meet now."""
    found: list[tuple[str, str]] = []
    if intent.granularity is not Granularity.ROW:
        found.append((GRANULARITY, "'row' lets writers of different rows both commit"))
    if not intent.base.properties.enable_deletion_vectors:
        found.append(
            ("delta.enableDeletionVectors", "'true' lets writers of different rows both commit")
        )
    if not intent.by_row:
        found.append(
            (
                "condition",
                "compare plain columns with constants: no chance, clock, subquery, struct's field",
            )
        )
    if any(one.predicate is None for one in intent.reads):
        found.append(("condition", "a condition on the table's own columns reads fewer rows"))
    if intent.level is Level.SERIALIZABLE and intent.reads:
        found.append(("isolation", "under WriteSerializable a blind INSERT aborts no other writer"))
    if intent.doing is Doing.SORTS:
        found.append(("size", "beyond 10 million rows it conflicts with changes of its files"))
    return found


def _its_target(asked: ExplainConflicts) -> Sequence[TableLock]:
    return [(_target(asked.statement), LockMode.SCH_S)]


COMMANDS = dict([command(ExplainConflicts, giving_rows(explain_conflicts), _its_target)])
