"""A session whose data plane is rows of this process: the same statements, without Spark.

Owns which statements are carried out here. All others, and everything else of a session, are the
engine's own: transactions, locks, names, footprints, commits, recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, TypeGuard
from urllib.parse import unquote

from tests.simulation.rows import changes, merging, queries
from tests.simulation.rows.files import RowWork
from tests.simulation.rows.frames import RowColumn, RowFrame, RowSpark, frame_of
from tests.simulation.rows.scopes import Name, Rows, Scope
from tests.simulation.rows.values import LONG
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.types import DataType, Struct, from_arrow_schema
from txlake.session import data as of_data
from txlake.session import definitions, upkeep
from txlake.session.alter import alter
from txlake.session.clone import Copy, clone
from txlake.session.context import Context
from txlake.session.create import check_same_definition, create
from txlake.session.dispatch import Answer, run
from txlake.session.engine import Engine, Handle
from txlake.session.environment import Environment
from txlake.session.evolution import schema_actions
from txlake.session.growth import grown
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.spark import held
from txlake.spark.inserts import Placement
from txlake.spark.rows import unknown_column
from txlake.spark.work import Work
from txlake.sql import parse
from txlake.statements import (
    AlterStatement,
    Clone,
    CopyInto,
    CreateTable,
    Delete,
    Expression,
    Insert,
    Merge,
    NativeFrame,
    NotMatchedInsert,
    Optimize,
    PartitionValue,
    Query,
    RenameTable,
    Reorg,
    Select,
    Source,
    SparkCommand,
    SqlText,
    Statement,
    TableName,
    Truncate,
    Update,
    Values,
    Write,
)
from txlake.transaction.change import Change


def _no_spark() -> Any:
    raise AssertionError("there is no Spark here")


@dataclass(kw_only=True)
class RowEngine(Engine):
    """An engine whose tables are read and written as rows; no Spark is ever started."""

    make_spark: Any = _no_spark

    @cached_property
    def _rows(self) -> RowSpark:
        return RowSpark()

    @property
    def spark(self) -> Any:
        """What stands for the Spark session."""
        return self._rows

    @property
    def has_spark(self) -> bool:
        """Conditions can be looked at row by row at any time."""
        return True

    def spark_setting(self, key: str, default: str) -> str:
        return self._rows.conf.get(key, default) or default

    def work(self, handle: Handle, snapshot: Snapshot) -> Work:
        """The means to read and write a table's rows as they were at a snapshot."""
        return RowWork(
            start=lambda: self.spark,
            manifests=self.manifests,
            system=self.system,
            settings=self.settings,
            snapshot=snapshot,
            store=handle.store,
            storage_options=self.storage_options,
            column_of=_column_of,
            name=handle.qualifier,
            store_at=self.store_at,
        )


def _column_of(expression: Expression) -> Any:
    assert isinstance(expression, SqlText), "conditions are SQL here"
    return RowColumn(expression.rewritten(lambda _: None))


@dataclass(kw_only=True)
class RowContext(Context):
    """A statement's context, whose expressions and queries are looked at row by row."""

    _tables: dict[str, Rows] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Context) -> RowContext:
        """The same statement's context."""
        return cls(
            engine=context.engine,
            transaction=context.transaction,
            database=context.database,
            writes=context.writes,
            lock_timeout_ms=context.lock_timeout_ms,
            _meanings=context._meanings,
        )

    def text_of(self, expression: Expression) -> tuple[str, Mapping[str, Rows]]:
        """An expression as text, with names for the tables that it reads, and their rows."""
        assert isinstance(expression, SqlText), "expressions are SQL here"
        return expression.rewritten(self._view), self._tables

    def column_of(self, expression: Expression) -> Any:
        return RowColumn(*self.text_of(expression))

    def view_of(self, frame: Any) -> str:
        name = f"txlake_{len(self._tables)}"
        self._tables[name] = frame.found
        return name


@lru_cache(maxsize=8192)
def _parsed(sql: str) -> tuple[Statement, ...]:
    return parse(sql)


class RowSession(Session):
    """A session that answers with rows."""

    def rows(self, sql: str) -> list[dict[str, object]]:
        """Carries out one statement, or several; the last one's rows, or its counts."""
        return self._carried_out(None, sql)

    def within(self, transaction: Transaction, sql: str) -> list[dict[str, object]]:
        """As `rows`, in a transaction that isn't the session's own."""
        return self._carried_out(transaction, sql)

    def _carried_out(self, transaction: Transaction | None, sql: str) -> list[dict[str, object]]:
        try:
            statements = _parsed(sql)
        except BaseException as error:
            failed = transaction or self.current
            if failed is not None:
                failed.fail(error)
            raise
        found: list[dict[str, object]] = []
        for statement in statements:
            if transaction is None:
                frame: Any = self.execute(statement)
            else:
                frame = self.execute_in(transaction, statement)
            found = frame.dicts()
        return found

    def _run(self, context: Context, statement: Statement) -> Answer:
        ours = RowContext.of(context)
        match statement:
            case Delete():
                return _counts(_delete(ours, statement))
            case Update():
                return _counts(_update(ours, statement))
            case Insert():
                return _counts(_insert(ours, statement))
            case Merge():
                return _counts(_merge(ours, statement))
            case Truncate():
                _truncate(ours, statement)
                return _nothing
            case Optimize() | Reorg():
                return _optimize(ours, statement)
            case CreateTable():
                _create_table(ours, statement)
                return _nothing
            case Clone():
                counts = _clone(ours, statement)
                return _counts(counts) if counts else _nothing
            case _ if _changes_table(statement):
                _alter(ours, statement)
                return _nothing
            case Write() | CopyInto() | SparkCommand():
                raise AssertionError(f"{type(statement).__name__} isn't known here")
            case Select(query):
                frame = ours.query(query)
                return lambda _: frame
        return run(ours, statement)


def _changes_table(statement: Statement) -> TypeGuard[AlterStatement]:
    return isinstance(statement, AlterStatement) and not isinstance(statement, RenameTable)


# Answers


def _counts(counts: Mapping[str, int]) -> Answer:
    names = tuple(Name(name, LONG) for name in counts)
    frame: Any = RowFrame(Rows(names, [tuple(counts.values())]))
    return lambda _: frame


def _nothing(_: object) -> Any:
    return frame_of([], Struct(()))


# Data


def _staged(context: RowContext, handle: Handle, change: Change) -> Mapping[str, int]:
    context.transaction.stage(handle, change)
    return change.affected


def _delete(context: RowContext, statement: Delete) -> Mapping[str, int]:
    handle = context.require(statement.table)
    work = context.work(handle, removes_rows=True)
    change = changes.delete(work, context.text_of, statement.condition, statement.alias)
    return _staged(context, handle, change)


def _truncate(context: RowContext, statement: Truncate) -> None:
    handle = context.require(statement.table)
    work = context.work(handle, removes_rows=True)
    deleted = changes.delete(work, context.text_of, None, None)
    _staged(context, handle, replace(deleted, operation="TRUNCATE", parameters={}))


def _update(context: RowContext, statement: Update) -> Mapping[str, int]:
    handle = context.require(statement.table)
    work = context.work(handle, removes_rows=True)
    change = changes.update(
        work, context.text_of, statement.assignments, statement.condition, statement.alias
    )
    return _staged(context, handle, change)


def _merge(context: RowContext, statement: Merge) -> Mapping[str, int]:
    handle = context.require(statement.target)
    removes = any(not isinstance(clause, NotMatchedInsert) for clause in statement.clauses)
    work = context.work(handle, removes_rows=removes)
    source, _ = _source_rows(context, statement.source)
    environment = _environment(context)
    evolve = partial(schema_actions, work.snapshot, environment=environment)
    change = merging.merge(work, context.text_of, statement, source, evolve)
    return _staged(context, handle, change)


def _insert(context: RowContext, statement: Insert) -> Mapping[str, int]:
    handle = context.require(statement.table)
    replaces = statement.overwrite or statement.replace_where is not None
    work = context.work(handle, removes_rows=replaces)
    placement = Placement(by_name=statement.by_name, columns=statement.columns)
    if isinstance(statement.source, Values) and statement.partition is None:
        rows, placement = _values(work, statement.source, placement)
    else:
        rows, _ = _source_rows(context, statement.source)
        if statement.schema_evolution:
            work = grown(context, handle, work, rows.schema)
    condition = statement.replace_where
    dynamic = statement.overwrite and of_data._is_dynamic(context)
    if statement.partition is not None:
        rows, placement = _with_partition(work, rows, placement, statement.partition)
        static = [one for one in statement.partition if not one.dynamic]
        dynamic = dynamic or (statement.overwrite and not static)
        if statement.overwrite and static:
            condition = SqlText(" AND ".join(map(of_data._equals, static)))
        if statement.if_not_exists and of_data._has_rows(work, condition):
            return {"num_affected_rows": 0, "num_inserted_rows": 0}
    if condition is not None:
        change = changes.replace_where(work, context.text_of, rows, placement, condition)
    elif dynamic:
        change = changes.overwrite_partitions(work, rows, placement)
    elif statement.overwrite:
        change = changes.overwrite(work, rows, placement)
    else:
        change = changes.insert(work, rows, placement)
    return _staged(context, handle, change)


def _source_rows(context: RowContext, source: Source) -> tuple[Rows, bool]:
    """The rows of a statement's source, and whether they are constants."""
    match source:
        case Query(sql):
            frame: Any = context.query(sql)
            return frame.found, False
        case Values():
            names = [f"col{place}" for place in range(1, len(source.rows[0]) + 1)]
            return _constants(source, names), True
        case NativeFrame():
            raise AssertionError("frames aren't known here")


def _constants(source: Values, names: list[str]) -> Rows:
    table, defaults = held.table_of_values(source, names, lambda: "UTC")
    assert not defaults
    schema = from_arrow_schema(table.schema)
    columns = [column.to_pylist() for column in table.columns]
    kinds = tuple(Name(item.name, item.type) for item in schema)
    return Rows(kinds, list(zip(*columns, strict=True)))


def _values(work: Work, source: Values, placement: Placement) -> tuple[Rows, Placement]:
    """Constants as named columns."""
    snapshot = work.snapshot
    names = list(placement.columns or snapshot.schema.names)
    width = len(source.rows[0])
    if width != len(names):
        raise InvalidRequest(
            f"{snapshot.table}: expected {len(names)} values a row ({', '.join(names)}), "
            f"found {width}"
        )
    for name in names:
        if snapshot.schema.find(name) is None:
            raise unknown_column(name, snapshot)
    return _constants(source, names), Placement(by_name=True)


def _with_partition(
    work: Work, rows: Rows, placement: Placement, partition: tuple[PartitionValue, ...]
) -> tuple[Rows, Placement]:
    """The rows with the PARTITION clause's constants as columns; the source has the others."""
    snapshot = work.snapshot
    partitions = {name.lower() for name in snapshot.partition_columns}
    for one in partition:
        if one.column.lower() not in partitions:
            raise InvalidRequest(
                f"{snapshot.table}: PARTITION names {one.column!r}, which is no partition column"
            )
    named = {one.column.lower() for one in partition}
    rest = [name for name in snapshot.schema.names if name.lower() not in named]
    names = placement.columns or (*rest, *(one.column for one in partition if one.dynamic))
    if placement.by_name:
        names = tuple(one.name for one in rows.names)
    if len(names) != len(rows.names):
        raise InvalidRequest(
            f"{snapshot.table}: expected {len(names)} columns ({', '.join(names)}), "
            f"found {len(rows.names)}"
        )
    columns = [Name(name, one.type) for name, one in zip(names, rows.names, strict=True)]
    made = [tuple(row) for row in rows.rows]
    for one in partition:
        item = snapshot.schema.find(one.column)
        if item is None:
            raise unknown_column(one.column, snapshot)
        if one.dynamic:
            continue
        constant = _constants(Values(((one.value,),)), ["value"])
        source = constant.names[0].type
        value = queries.values.cast(source, item.type)(constant.rows[0][0])
        columns.append(Name(item.name, item.type))
        made = [(*row, value) for row in made]
    return Rows(tuple(columns), made), Placement(by_name=True)


def _optimize(context: RowContext, statement: Optimize | Reorg) -> Answer:
    handle = context.require(statement.table)
    work = context.work(handle)
    if isinstance(statement, Optimize) and statement.zorder_by:
        change = changes.zorder(work, statement.zorder_by, statement.where)
    else:
        change = changes.compact(work, statement.where, purge=isinstance(statement, Reorg))
    _staged(context, handle, change)
    return upkeep.Optimized(handle, upkeep._considered(work, statement.where), change)


# Definitions whose rows the engine would give to Spark


def _environment(context: RowContext, handle: Handle | None = None) -> Environment:
    return replace(
        definitions.environment_of(context),
        violating_row=partial(_violating_row, context, handle) if handle else definitions._no_row,
        type_of=_type_of,
    )


def _violating_row(
    context: RowContext, handle: Handle | None, condition: str
) -> Mapping[str, object] | None:
    assert handle is not None
    work = context.work(handle)
    frame: Any = work.scan(work.snapshot.select(None))
    holds = queries.condition(condition, Scope(frame.alias(work.name or "").found.names), {})
    for row in frame.found.rows:
        if not holds(row):
            return dict(zip(frame.columns, row, strict=True))
    return None


def _type_of(text: str, schema: Struct) -> DataType:
    names = tuple(Name(item.name, item.type) for item in schema)
    return queries.expression(text, Scope(names), {}).type


def _create_table(context: RowContext, statement: CreateTable) -> None:
    """As `definitions.create_table`."""
    handle = definitions.place(context, statement.table, statement.location)
    existing = definitions._existing(context, handle)
    managed = isinstance(statement.table, TableName) and statement.location is None
    unnamed = handle.entry is None and isinstance(statement.table, TableName)
    if existing is not None and unnamed and statement.mode in ("create", "if_not_exists"):
        if statement.query is not None:
            raise InvalidRequest(f"{statement.table}: {handle.store.url} holds a table already")
        check_same_definition(statement, existing, _environment(context))
        definitions.adopted(context, handle, managed=managed)
        return
    handle = definitions.adopted(context, handle, managed=managed)
    found = None
    if statement.query is not None:
        frame: Any = context.query(statement.query)
        found = frame.found
    change = create(
        statement,
        existing,
        _environment(context),
        query_schema=None if found is None else found.schema,
        managed=managed,
    )
    if change is None:
        return
    context.transaction.stage(handle, change)
    if found is not None:
        written = changes.insert(context.work(handle), found, Placement(by_name=True))
        context.transaction.stage(
            handle,
            Change(
                operation=change.operation,
                parameters=change.parameters,
                actions=written.actions,
                metrics=written.metrics,
            ),
        )
    definitions.register(context, handle, change.operation)


def _alter(context: RowContext, statement: AlterStatement) -> None:
    """As `definitions.alter_table`."""
    handle = context.require(statement.table)
    change = alter(statement, context.snapshot(handle), _environment(context, handle))
    context.transaction.stage(handle, change)


def _clone(context: RowContext, statement: Clone) -> Mapping[str, int]:
    """As `definitions.clone_table`, one file after the other."""
    origin = context.require(statement.source)
    handle = definitions.place(context, statement.table, statement.location)

    def copy(copies: list[Copy]) -> None:
        handle.store.ensure_safe()
        for one in copies:
            folder, _, name = one.source.rpartition("/")
            handle.store.put(one.target, context.engine.store_at(folder).get(unquote(name)))

    change = clone(
        statement,
        context.snapshot(origin, statement.travel),
        definitions._existing(context, handle),
        _environment(context),
        source_url=origin.store.url,
        target_url=handle.store.url,
        copy=copy,
    )
    if change is None:
        return {}
    context.transaction.stage(handle, change)
    definitions.register(context, handle, change.operation)
    return change.affected
