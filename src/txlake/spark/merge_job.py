"""The Spark job of a MERGE: the join of target and source, and each row's new values.

Owns name resolution: clauses for matched rows see both sides' columns, the others one side's only,
so that a name of both sides is ambiguous in the former only. A clause's expressions are evaluated
only for its own rows.

A local source is broadcast, and its inserts are left to a job of their own, for the rows that the
first job didn't report. So the target's rows are never shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.datafiles.write_task import (
    DELETE,
    DELETE_BY_SOURCE,
    INSERT,
    KEEP,
    UPDATE,
    UPDATE_BY_SOURCE,
)
from txlake.errors import InvalidRequest
from txlake.local.assignments import resolve_assignments
from txlake.local.control_columns import ACTION, FILE, ROW, ROW_ID, ROW_VERSION, SOURCE_ROW
from txlake.local.rules import GENERATION_EXPRESSION
from txlake.local.types import quote
from txlake.protocol.identity import is_identity
from txlake.protocol.types import DataType, Field, Struct
from txlake.spark import rows
from txlake.spark.dml import assigned_value, null_of, value_types
from txlake.spark.full_names import alias_by_full_name
from txlake.spark.identities import IdentityValues, refuse_assignment, refuse_explicit_values
from txlake.spark.table_access import TableAccess
from txlake.spark.types import delta_schema
from txlake.sql.statements import (
    DEFAULT,
    Assignment,
    BySourceDelete,
    BySourceUpdate,
    Default,
    Expression,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    MergeClause,
    NotMatchedInsert,
    Star,
)

_CLAUSE = "__txlake_clause"
_FROM_SOURCE = "__txlake_from_source"
_ACTIONS = {
    MatchedUpdate: UPDATE,
    MatchedDelete: DELETE,
    NotMatchedInsert: INSERT,
    BySourceUpdate: UPDATE_BY_SOURCE,
    BySourceDelete: DELETE_BY_SOURCE,
}


class _Side(Enum):
    """The sides whose columns the expressions of a clause see."""

    BOTH = "m"
    SOURCE = "s"
    TARGET = "t"


def _side_of(clause: MergeClause) -> _Side:
    """Return the side whose columns a clause sees."""
    match clause:
        case MatchedUpdate() | MatchedDelete():
            return _Side.BOTH
        case NotMatchedInsert():
            return _Side.SOURCE
        case BySourceUpdate() | BySourceDelete():
            return _Side.TARGET


@dataclass(frozen=True, slots=True)
class _ClauseColumns:
    """A clause as columns: its index, its condition, and its values by column."""

    index: int
    condition: Column | None
    values: dict[str, Column]


class MergeJob:
    """The join of target and source, and each row's outcome.

    Every column of either side also has an internal name (`__t0`, `__s0`), by which it can be
    referred to whatever the other columns' names.

    Attributes:
        statement: the MERGE.
        inserts: whether unmatched source rows are inserted.
        changes: whether there is any other clause.
    """

    def __init__(
        self,
        work: TableAccess,
        statement: Merge,
        source: DataFrame,
        target: DataFrame,
        generation: IdentityValues,
        *,
        source_alias: str | None,
    ) -> None:
        """Join `source`, which has SOURCE_ROW if it is local, to `target`.

        `generation` gives the values of identity columns.
        """
        self._work = work
        self._generation = generation
        self.statement = statement
        self._schema = work.snapshot.schema
        self._is_local = SOURCE_ROW in source.columns
        self._source_schema = delta_schema(source.drop(SOURCE_ROW).schema)
        self._source_alias = source_alias
        self._source_names = _names("s", self._source_schema)
        self._target_names = _names("t", self._schema)
        self._source = self._as_source(source)
        self._target = self._as_target(target).select(
            "*", *[F.col(quote(name)).alias(own) for own, name in self._target_names.items()]
        )
        self._groups: dict[_Side, list[_ClauseColumns]] = {}
        for index, clause in enumerate(statement.clauses):
            prepared = self._prepared(index, clause)
            self._groups.setdefault(_side_of(clause), []).append(prepared)
        self.inserts = _Side.SOURCE in self._groups
        self.changes = not self.inserts or len(self._groups) > 1

    def _as_target(self, frame: DataFrame) -> DataFrame:
        """Return the target's rows under the statement's alias, or the table's name."""
        name, owners = self.statement.target_alias, self.statement.target_owners
        if name is None or not owners:
            return self._work.qualified(frame, name)
        return alias_by_full_name(frame, (*owners, name))

    def _as_source(self, frame: DataFrame) -> DataFrame:
        """Return the source's rows under its alias, with _FROM_SOURCE and the internal names."""
        if self._source_alias is not None:
            frame = frame.alias(self._source_alias)
        return frame.select(
            "*",
            F.lit(True).alias(_FROM_SOURCE),
            *[F.col(quote(name)).alias(own) for own, name in self._source_names.items()],
        )

    def images(self) -> DataFrame:
        """Return each row that a clause takes: its new values, then ACTION, FILE, ROW and row ids.

        Of a local source, inserted rows are left out. If the statement inserts from a local source,
        SOURCE_ROW of each source row that matched is reported, even if no clause takes the row:
        ACTION is KEEP then. If it only inserts from a local source, the rows have ACTION and
        SOURCE_ROW alone.
        """
        if self._is_local and not self.changes:
            return self._joined().select(F.lit(KEEP).cast("int").alias(ACTION), F.col(SOURCE_ROW))
        return self._images(self._rows_taken(), self._sides())

    def inserted(self, rest: DataFrame) -> DataFrame:
        """Return the images of the rows of a local source that matched no target row.

        `rest` are these rows, as the caller has found them. Rows that no INSERT clause takes are
        left out.
        """
        sides = (_Side.SOURCE,)
        return self._images(self._with_values(self._as_source(rest), sides), sides)

    def _sides(self) -> tuple[_Side, ...]:
        """Return the sides that have clauses, but for a local source's rows (see `inserted`)."""
        return tuple(s for s in self._groups if not (self._is_local and s is _Side.SOURCE))

    def _images(self, rows_taken: DataFrame, sides: tuple[_Side, ...]) -> DataFrame:
        """Return the table's columns of the rows taken, then their control columns.

        FILE, ROW and row ids are left out where the rows are the source's alone.
        """
        action: Column = F.lit(KEEP).cast("int")
        for index, clause in enumerate(self.statement.clauses):
            code = F.lit(_ACTIONS[type(clause)]).cast("int")
            action = F.when(F.col(_CLAUSE) == index, code).otherwise(action)
        carried = [action.alias(ACTION)]
        if sides != (_Side.SOURCE,):
            file = F.col(FILE)
            if self._is_local and self.inserts:
                file = F.when(F.col(_CLAUSE).isNotNull(), file).alias(FILE)
                carried.append(F.col(SOURCE_ROW))
            carried += [file, F.col(ROW)]
            if self._work.tracks_rows:
                carried += [F.col(ROW_ID), F.lit(None).cast("bigint").alias(ROW_VERSION)]
        values = {}
        for position, item in enumerate(self._schema):
            value = self._value(sides, position, item)
            default_clauses = self._clauses_without_value(item) if _Side.SOURCE in sides else []
            if default_clauses:
                needs_value = F.col(_CLAUSE).isin(default_clauses)
                value = F.when(needs_value, self._generation.block(item)).otherwise(value)
            if value is not None:
                values[item.name] = value
        generated = {item.name for item in self._schema if GENERATION_EXPRESSION in item.metadata}
        partly_generated = generated & values.keys()
        return rows.filled(rows_taken, values, self._work.snapshot, carried, partly_generated)

    def _clauses_without_value(self, item: Field) -> list[int]:
        """Return the indexes of inserting clauses that give an identity column no value."""
        if not is_identity(item):
            return []
        inserts = self._groups.get(_Side.SOURCE, [])
        return [prepared.index for prepared in inserts if item.name not in prepared.values]

    @property
    def generates_uniformly(self) -> bool:
        """Whether each identity column gets values from all inserting clauses, or from none."""
        count = len(self._groups.get(_Side.SOURCE, []))
        return all(len(self._clauses_without_value(item)) in {0, count} for item in self._schema)

    def ambiguity(self) -> str:
        """Return the message for a target row that several source rows change, with that row.

        Runs the join again to find it.
        """
        matched = [prepared.index for prepared in self._groups.get(_Side.BOTH, [])]
        row = F.struct(*[F.col(own).alias(name) for own, name in self._target_names.items()])
        example = (
            self._rows_taken()
            .where(F.col(_CLAUSE).isin(matched))
            .groupBy(FILE, ROW)
            .agg(F.count(F.lit(1)).alias("n"), F.first(F.to_json(row)).alias("row"))
            .where("n > 1")
            .limit(1)
            .collect()
        )
        row_text = example[0]["row"] if example else "(the source gave other rows when read again)"
        number = example[0]["n"] if example else "several"
        return (
            f"MERGE INTO {self._work.snapshot.table}: {number} source rows match the target row "
            f"{row_text}, and it isn't clear which one counts; make the source unique by the "
            "columns of the ON condition. Nothing was written"
        )

    def _joined(self) -> DataFrame:
        """Return the join of both sides, with the unmatched rows that clauses take.

        Of a local source, unmatched rows are always left out. Of any other source, only the
        unmatched rows are returned where clauses only insert.
        """
        on = self._work.column_of(self.statement.on)
        by_source = _Side.TARGET in self._groups
        if self._is_local:
            how = "left_outer" if by_source else "inner"
            return self._target.join(F.broadcast(self._source), on, how)
        if not self.changes:
            return self._source.join(self._target, on, "left_anti")
        how = {
            (False, False): "inner",
            (True, False): "right_outer",
            (False, True): "left_outer",
            (True, True): "full_outer",
        }[self.inserts, by_source]
        return self._target.join(self._source, on, how)

    def _rows_taken(self) -> DataFrame:
        """Return the joined rows that a clause takes, or whose SOURCE_ROW is to be reported."""
        return self._with_values(self._joined(), self._sides())

    def _with_values(self, frame: DataFrame, sides: tuple[_Side, ...]) -> DataFrame:
        """Return the rows that a clause takes: _CLAUSE, and the values of each side's clauses.

        Also the rows whose SOURCE_ROW is to be reported; their _CLAUSE is null.
        """
        joined = sides != (_Side.SOURCE,)
        separate = [side for side in sides if joined and self._is_ambiguous(side)]
        for side in (*(side for side in sides if side not in separate), *separate):
            if side in separate:
                frame = self._with_names_of(frame, side)
            frame = self._with_clauses(frame, side, sides)
        clause = F.coalesce(*[F.col(_clause_of(side)) for side in sides])
        is_taken = F.col(_CLAUSE).isNotNull()
        if self._is_local and self.inserts and sides != (_Side.SOURCE,):
            is_taken = is_taken | F.col(SOURCE_ROW).isNotNull()
        return frame.withColumn(_CLAUSE, clause).where(is_taken)

    def _with_clauses(self, frame: DataFrame, side: _Side, sides: tuple[_Side, ...]) -> DataFrame:
        """Return the rows with the index of the first of the side's clauses that takes them, null
        for none, and with the side's values.
        """
        group = self._groups[side]
        clause: Column = F.lit(None).cast("int")
        for prepared in reversed(group):
            holds = _is_of(side, sides)
            if prepared.condition is not None:
                holds = holds & prepared.condition
            clause = F.when(holds, F.lit(prepared.index)).otherwise(clause)
        frame = frame.withColumn(_clause_of(side), clause)
        values = []
        for position, item in enumerate(self._schema):
            value = self._value_of(side, position, item)
            if value is not None:
                values.append(value.alias(_value_name(side, position)))
        return frame.select("*", *values)

    def _with_names_of(self, frame: DataFrame, side: _Side) -> DataFrame:
        """Return the joined rows in which only one side's columns have their names and alias."""
        internal_names = self._source_names if side is _Side.SOURCE else self._target_names
        originals = {*self._schema.names, *self._source_schema.names}
        other_columns = [name for name in frame.columns if name not in originals]
        named = [F.col(hidden).alias(name) for hidden, name in internal_names.items()]
        result = frame.select(*other_columns, *named)
        if side is _Side.TARGET:
            return self._as_target(result)
        return result if self._source_alias is None else result.alias(self._source_alias)

    def _value(self, sides: tuple[_Side, ...], position: int, item: Field) -> Column | None:
        """Return a column's value in the rows taken; None if it is generated for every row."""
        value: Column | None = None
        for side in sides:
            if self._value_of(side, position, item) is None:
                continue
            is_taken = F.col(_clause_of(side)).isNotNull()
            side_value = F.col(_value_name(side, position))
            value = (
                F.when(is_taken, side_value) if value is None else value.when(is_taken, side_value)
            )
        if value is None and GENERATION_EXPRESSION not in item.metadata:
            return null_of(item)
        return value

    def _value_of(self, side: _Side, position: int, item: Field) -> Column | None:
        """Return a column's value in the rows that the side's clauses take, by clause; None for
        none.

        For a generated column: a struct around the clauses' values, null for clauses without one.
        Columns that a clause doesn't assign keep their value, or get their default in an INSERT.
        """
        generated = GENERATION_EXPRESSION in item.metadata
        value: Column | None = None
        for prepared in self._groups[side]:
            clause = self.statement.clauses[prepared.index]
            if isinstance(clause, MatchedDelete | BySourceDelete):
                continue
            clause_value = prepared.values.get(item.name)
            if generated:
                if clause_value is None:
                    continue
                clause_value = F.struct(clause_value.alias("given"))
            elif clause_value is None:
                if not isinstance(clause, NotMatchedInsert):
                    clause_value = F.col(f"__t{position}")
                else:
                    clause_value = (
                        null_of(item)
                        if is_identity(item)
                        else rows.default_value(item, self._work.snapshot.table)
                    )
            is_taken = F.col(_clause_of(side)) == prepared.index
            value = (
                F.when(is_taken, clause_value)
                if value is None
                else value.when(is_taken, clause_value)
            )
        return value

    def _prepared(self, index: int, clause: MergeClause) -> _ClauseColumns:
        """Return a clause as columns. Raises InvalidRequest for an assignment that doesn't fit."""
        condition = None
        if clause.condition is not None:
            ((condition, _),) = self._resolved([clause.condition], _side_of(clause))
        if isinstance(clause, MatchedDelete | BySourceDelete):
            return _ClauseColumns(index, condition, {})
        if isinstance(clause.assignments, Star):
            return _ClauseColumns(index, condition, self._star(clause))
        return _ClauseColumns(index, condition, self._explicit(clause, clause.assignments))

    def _star(self, clause: MergeClause) -> dict[str, Column]:
        """Return the values of `*` by column: the source's columns of the same names.

        Raises InvalidRequest for a column that the source lacks, unless the schema evolves or the
        column fills itself, and for a type that can't be stored.
        """
        values = {}
        evolves = self.statement.schema_evolution
        places = {name: own for own, name in self._source_names.items()}
        for position, item in enumerate(self._schema):
            source_field = self._source_schema.find(item.name)
            if source_field is None or source_field.name not in places:
                fills_itself = GENERATION_EXPRESSION in item.metadata or is_identity(item)
                if not evolves and not fills_itself:
                    raise InvalidRequest(
                        f"MERGE INTO {self._work.snapshot.table}: the source has no column "
                        f"{item.name!r}, which `*` needs; it has "
                        f"{', '.join(self._source_schema.names)}"
                    )
                continue
            self._check_identity(clause, item)
            self._work.require_assignable(source_field.type, item)
            value = F.col(places[source_field.name])
            if evolves and isinstance(clause, MatchedUpdate):
                values[item.name] = rows.updated_by_name(
                    value, source_field.type, F.col(f"__t{position}"), item, self._work.snapshot
                )
            else:
                values[item.name] = rows.storable(
                    value, source_field.type, item, self._work.snapshot, complete=not evolves
                )
        return values

    def _explicit(
        self, clause: MergeClause, assignments: tuple[Assignment, ...]
    ) -> dict[str, Column]:
        """Return the values of SET, or of an INSERT's columns, by column.

        Raises InvalidRequest for an unknown column, a type that can't be stored, and an identity
        column that can't be assigned.
        """
        assigned = resolve_assignments(self._work, assignments, self.statement.target_alias)
        for item in self._schema:
            if is_identity(item) and item.name in assigned:
                if isinstance(clause, NotMatchedInsert) and assigned[item.name] == [((), DEFAULT)]:
                    del assigned[item.name]
                else:
                    self._check_identity(clause, item)
        expressions = [
            value
            for entries in assigned.values()
            for _, value in entries
            if not isinstance(value, Default)
        ]
        resolved = {
            id(expression): column
            for expression, column in zip(
                expressions, self._resolved(expressions, _side_of(clause)), strict=True
            )
        }
        values = {}
        for position, item in enumerate(self._schema):
            if item.name in assigned:
                inserts = isinstance(clause, NotMatchedInsert)
                current = null_of(item) if inserts else F.col(f"__t{position}")
                values[item.name] = assigned_value(
                    self._work,
                    item,
                    current,
                    assigned[item.name],
                    resolved,
                    complete=not self.statement.schema_evolution,
                )
        return values

    def _check_identity(self, clause: MergeClause, item: Field) -> None:
        """Raise InvalidRequest if the column is an identity column that the clause may
        not assign.
        """
        if not is_identity(item):
            return
        if isinstance(clause, NotMatchedInsert):
            refuse_explicit_values(self._work.snapshot, [item.name])
        else:
            refuse_assignment(self._work.snapshot, [item.name])

    def _resolved(
        self, expressions: list[Expression], side: _Side
    ) -> list[tuple[Column, DataType]]:
        """Return the expressions, resolved among the side's columns, with their types."""
        if not expressions:
            return []
        columns = [self._work.column_of(expression) for expression in expressions]
        types = value_types(self._work, self._frame_of(side), columns)
        return list(zip(columns, types, strict=True))

    def _frame_of(self, side: _Side) -> DataFrame:
        """Return the rows among whose columns a side's expressions are resolved; only to be
        planned.
        """
        match side:
            case _Side.BOTH:
                return self._target.join(self._source, F.lit(True), "inner")
            case _Side.SOURCE:
                return self._source
            case _Side.TARGET:
                return self._target

    def _is_ambiguous(self, side: _Side) -> bool:
        """Return whether an expression of the side is ambiguous among both sides' columns."""
        if side is _Side.BOTH:
            return False
        columns = [
            column
            for prepared in self._groups[side]
            for column in (prepared.condition, *prepared.values.values())
            if column is not None
        ]
        try:
            _ = self._frame_of(_Side.BOTH).select(*_numbered(columns)).schema
        except AnalysisException as error:
            if "AMBIGUOUS" not in (error.getCondition() or ""):
                raise
            return True
        return False


def _is_of(side: _Side, sides: tuple[_Side, ...]) -> Column:
    """Return whether a joined row belongs to the side: matched, or of that side only."""
    if sides == (_Side.SOURCE,):
        return F.lit(True)
    in_target, in_source = F.col(FILE).isNotNull(), F.col(_FROM_SOURCE).isNotNull()
    match side:
        case _Side.BOTH:
            return in_target & in_source
        case _Side.SOURCE:
            return ~in_target
        case _Side.TARGET:
            return ~in_source


def _names(prefix: str, schema: Struct) -> dict[str, str]:
    """Return the columns whose name is unique, ignoring case, by new internal names."""
    folded = [name.lower() for name in schema.names]
    return {
        f"__{prefix}{place}": name
        for place, name in enumerate(schema.names)
        if folded.count(name.lower()) == 1
    }


def _numbered(columns: list[Column]) -> list[Column]:
    return [column.alias(f"c{place}") for place, column in enumerate(columns)]


def _clause_of(side: _Side) -> str:
    return f"{_CLAUSE}_{side.value}"


def _value_name(side: _Side, position: int) -> str:
    return f"__{side.value}v{position}"
