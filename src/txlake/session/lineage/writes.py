"""What a statement's texts say of the columns that it writes.

What the names mean is noted when the statement has run; the texts are read later, in the thread
that sends the events. What isn't certain is left out.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txlake.session.lineage.columns import (
    NONE,
    BaseTable,
    Origins,
    Relation,
    Scope,
    Text,
    Unsure,
    indirect,
    through,
)
from txlake.session.lineage.datasets import dataset_of_table
from txlake.sql.statements import (
    Assignment,
    BySourceUpdate,
    ComputedValues,
    CreateTable,
    Default,
    Delete,
    Expression,
    Insert,
    MatchedUpdate,
    Merge,
    NotMatchedInsert,
    Optimize,
    Query,
    Reference,
    SqlText,
    Statement,
    TableName,
    Truncate,
    Update,
    Values,
)

if TYPE_CHECKING:
    from txlake.session.context import Context
    from txlake.session.engine import Handle
    from txlake.session.view_queries import Viewed

_logger = logging.getLogger(__name__)
_TOKEN = "txlake_lineage_"
_VIEWS_MAX = 50
_TEXT_MAX = 50_000
_READING_S = 5.0
WRITES_MAX = 500
"""Statements of a transaction whose texts are kept; with more its columns aren't told."""


@dataclass(frozen=True, slots=True)
class ColumnOrigins:
    """What columns are made of.

    Attributes:
        columns: by name, of those that a statement assigns.
        whole: what decides which rows are written; None if that isn't certain.
    """

    columns: Mapping[str, Origins]
    whole: Origins | None = NONE


Reading = Callable[[], ColumnOrigins]
"""Reads a statement's texts. Raises Unsure."""
_NOTHING = ColumnOrigins({})


def nothing() -> ColumnOrigins:
    """Return the origins of a statement that gives no column a value from another one."""
    return _NOTHING


def together(readings: Sequence[Reading | None], names: Sequence[str]) -> ColumnOrigins | None:
    """Return what the columns of a table are made of, by the statements that wrote it.

    None if that isn't certain, if it takes longer than five seconds, and if there is nothing to
    tell. `names`: the table's columns.
    """
    columns: dict[str, Origins] = {}
    whole: Origins | None = NONE
    end = time.monotonic() + _READING_S
    try:
        for reading in dict.fromkeys(readings):  # a statement may write in several steps
            if reading is None or time.monotonic() > end:
                return None
            made = reading()
            for name, origins in made.columns.items():
                columns[name] = columns.get(name, NONE) | origins
            whole = None if whole is None or made.whole is None else whole | made.whole
    except Unsure:
        return None
    except Exception:
        _logger.debug("the lineage of columns isn't told", exc_info=True)
        return None
    if not columns.keys() <= set(names):
        return None
    columns = {name: columns[name] for name in names if columns.get(name)}
    return ColumnOrigins(columns, whole) if columns else None


def reading_of(context: Context, statement: Statement) -> Reading | None:
    """Return what reads the texts of a statement that has run; None for one that isn't understood.

    Raises nothing.
    """
    try:
        return _Noting(context).reading(statement)
    except Unsure:
        return None
    except Exception:
        _logger.debug("the lineage of a statement's columns isn't told", exc_info=True)
        return None


class _Noting:
    """Notes what the names in one statement's texts mean."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._views = 0

    def reading(self, statement: Statement) -> Reading:
        """Return what reads the statement's texts. Raises Unsure."""
        if isinstance(statement, Delete | Truncate | Optimize):
            return nothing
        if isinstance(statement, Insert):
            return self._insert(statement)
        if isinstance(statement, CreateTable):
            return self._create(statement)
        if isinstance(statement, Update):
            return self._update(statement)
        if isinstance(statement, Merge):
            return self._merge(statement)
        raise Unsure

    def _insert(self, statement: Insert) -> Reading:
        if isinstance(statement.source, Values) or (
            isinstance(statement.source, ComputedValues)
            and all(isinstance(c, Default) or not c.references for c in _cells(statement.source))
        ):
            return nothing
        if not isinstance(statement.source, Query):
            raise Unsure
        _, names = self._target(statement.table)
        static = {one.column.lower() for one in statement.partition or () if not one.dynamic}
        targets = statement.columns or tuple(one for one in names if one.lower() not in static)
        return partial(
            _inserted,
            self._text(self._context, statement.source.sql),
            _spelled(targets, names),
            by_name=statement.by_name,
        )

    def _create(self, statement: CreateTable) -> Reading:
        if statement.query is None:
            return nothing
        table, names = self._target(statement.table)
        text = self._text(self._context, statement.query)
        if table.dataset in _datasets(text):
            raise Unsure  # it is read as it was before it was replaced
        return partial(_created, text, names)

    def _update(self, statement: Update) -> Reading:
        table, names = self._target(statement.table)
        alias = _alias(statement.alias, statement.table)
        return partial(
            _updated,
            {alias: table},
            self._assigned(statement.assignments, names, alias),
            self._conditions([statement.condition]),
        )

    def _merge(self, statement: Merge) -> Reading:
        if not isinstance(statement.source, Query):
            raise Unsure
        table, names = self._target(statement.target)
        target = _alias(statement.target_alias, statement.target)
        clauses = []
        for clause in statement.clauses:
            sides = {"target", "source"}
            assigned: _Assigned | None = ()
            if isinstance(clause, NotMatchedInsert):
                sides = {"source"}
            elif isinstance(clause, BySourceUpdate):
                sides = {"target"}
            if isinstance(clause, MatchedUpdate | NotMatchedInsert | BySourceUpdate):
                assigned = None
                if isinstance(clause.assignments, tuple):
                    assigned = self._assigned(clause.assignments, names, target)
            clauses.append((frozenset(sides), assigned, self._conditions([clause.condition])))
        [on] = self._conditions([statement.on])
        source = self._text(self._context, statement.source.sql)
        name = None if statement.source_alias is None else statement.source_alias.lower()
        return partial(_merged, (target, table), (name, source), on, clauses, names)

    # Parts of statements

    def _target(self, table: object) -> tuple[BaseTable, tuple[str, ...]]:
        handle = self._context.tables.find(table)  # type: ignore[arg-type]
        if handle is None:
            raise Unsure
        made = self._base(handle)
        return made, made.columns

    def _base(self, handle: Handle) -> BaseTable:
        """Return a table as the transaction sees it, which has opened it."""
        part = self._context.transaction.tables.get(handle)
        if part is None or not part.view.has_metadata:
            raise Unsure
        namespace, name = dataset_of_table(self._context.engine, handle)
        return BaseTable(namespace, name, tuple(part.view.schema.names))

    def _assigned(
        self, assignments: Iterable[Assignment], names: Sequence[str], alias: str
    ) -> _Assigned:
        made: list[tuple[str, bool, Text | None]] = []
        for one in assignments:
            path = one.column
            if len(path) > 1 and path[0].lower() == alias:
                if alias in {name.lower() for name in names}:
                    raise Unsure  # a column of the table, or a field of a column of that name
                path = path[1:]
            [name] = _spelled(path[:1], names)
            value = None if isinstance(one.value, Default) else self._expression(one.value)
            made.append((name, len(path) > 1, value))
        return tuple(made)

    def _conditions(self, conditions: Iterable[Expression | None]) -> tuple[Text | None, ...]:
        """Return conditions; None for one that can't be read."""
        made: list[Text | None] = []
        for condition in conditions:
            if condition is not None:
                try:
                    made.append(self._expression(condition))
                except Unsure:
                    made.append(None)
        return tuple(made)

    def _expression(self, expression: Expression) -> Text:
        if not isinstance(expression, SqlText):
            raise Unsure
        return self._text(self._context, expression)

    def _text(self, context: Context, sql: SqlText) -> Text:
        """Return a text whose tables have names of their own. Raises Unsure for one that the
        session reads in its own way, and one that reads anything but tables and views.
        """
        rules = context.rules
        is_usual = rules.agrees_on(sql.text) and not rules.case_sensitive
        if not is_usual or rules.names_in_double_quotes or sql.session_functions:
            raise Unsure
        if "|>" in sql.text or _TOKEN in sql.text.lower() or len(sql.text) > _TEXT_MAX:
            raise Unsure
        sources: dict[str, BaseTable | Text] = {}

        def replaced(reference: Reference) -> str:
            """Return the own name of a table in the text."""
            name = f"{_TOKEN}{len(sources)}"
            sources[name] = self._source(context, reference)
            return name

        return Text(sql.in_database(context.tables.is_same).rewritten(replaced), sources)

    def _source(self, context: Context, reference: Reference) -> BaseTable | Text:
        if reference.travel is not None or reference.description or reference.changes:
            raise Unsure
        handle = context.tables.find(reference.table)
        if handle is not None:
            return self._base(handle)
        if not isinstance(reference.table, TableName):
            raise Unsure
        view = context.tables.viewed(reference.table)
        inside = None if view is None else context.within(view)
        self._views += 1
        if view is None or inside is None or self._views > _VIEWS_MAX:
            raise Unsure
        text = self._text(inside, view.query)
        return Text(text.text, text.sources, *_view_names(view))


_Assigned = tuple[tuple[str, bool, Text | None], ...]
_Clause = tuple[frozenset[str], "_Assigned | None", tuple[Text | None, ...]]


def _view_names(view: Viewed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a view gives its query's columns, and those that the query has to have:
    a view may also take them by name.
    """
    if view.schema is None:
        return view.columns, ()
    if view.schema.mode == "evolution":
        return (), ()
    fields = json.loads(view.schema.columns)["fields"]
    return (), tuple(str(one["name"]) for one in fields)


def _cells(values: ComputedValues) -> Iterable[SqlText | Default]:
    return (cell for row in values.rows for cell in row)


def _alias(alias: str | None, table: object) -> str:
    """Return the name by which expressions call a statement's table."""
    if alias is None and isinstance(table, TableName):
        alias = table.name
    return (alias or "").lower()


def _spelled(columns: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return columns as the table spells them. Raises Unsure if it lacks one."""
    spelled = {name.lower(): name for name in names}
    try:
        return tuple(spelled[one.lower()] for one in columns)
    except KeyError as error:
        raise Unsure from error


def _datasets(text: Text) -> set[str]:
    """Return the names of the datasets that a text reads."""
    found: set[str] = set()
    for source in text.sources.values():
        found |= {source.dataset} if isinstance(source, BaseTable) else _datasets(source)
    return found


# What is read later


def _inserted(text: Text, names: Sequence[str], *, by_name: bool) -> ColumnOrigins:
    """Return the origins of columns that a query's columns become, in order or by name."""
    rows = text.relation()
    if not by_name:
        if len(rows.columns) != len(names):
            raise Unsure
        pairs = zip(names, rows.columns, strict=True)
        return ColumnOrigins({name: origins for name, (_, origins) in pairs}, rows.whole)
    given = [name for name, _ in rows.columns]
    if None in given or len(set(given)) != len(given):
        raise Unsure
    targets = _spelled([name for name in given if name is not None], names)
    pairs = zip(targets, rows.columns, strict=True)
    return ColumnOrigins({name: origins for name, (_, origins) in pairs}, rows.whole)


def _created(text: Text, names: Sequence[str]) -> ColumnOrigins:
    """Return the origins of a new table's columns, which have the names that the query gives."""
    for name, (given, _) in zip(names, text.relation().columns):
        if given not in (None, name.lower()):
            raise Unsure
    return _inserted(text, names, by_name=False)


def _updated(
    tables: Mapping[str, BaseTable], assigned: _Assigned, conditions: Sequence[Text | None]
) -> ColumnOrigins:
    scope = Scope(None, [(alias, table.relation()) for alias, table in tables.items()])
    return ColumnOrigins(_values(assigned, scope), _deciding(conditions, scope, "FILTER"))


def _merged(
    target: tuple[str, BaseTable],
    source: tuple[str | None, Text],
    on: Text | None,
    clauses: Sequence[_Clause],
    names: Sequence[str],
) -> ColumnOrigins:
    rows = {"target": target[1].relation(), "source": source[1].relation()}
    aliases = {"target": target[0], "source": source[0]}
    columns: dict[str, Origins] = {}
    both = Scope(None, [(aliases[side], rows[side]) for side in rows])
    wholes = [rows["source"].whole, _deciding([on], both, "JOIN")]
    for sides, assigned, conditions in clauses:
        scope = Scope(None, [(aliases[side], rows[side]) for side in rows if side in sides])
        made = _by_name(rows["source"], names) if assigned is None else _values(assigned, scope)
        for name, origins in made.items():
            columns[name] = columns.get(name, NONE) | origins
        wholes.append(_deciding(conditions, scope, "FILTER"))
    certain = [one for one in wholes if one is not None]
    whole = frozenset().union(*certain) if len(certain) == len(wholes) else None
    return ColumnOrigins(columns, whole)


def _by_name(source: Relation, names: Sequence[str]) -> Mapping[str, Origins]:
    """Return the origins of the columns that `*` assigns: those that the source has too."""
    given = [name for name, _ in source.columns]
    if None in given or len(set(given)) != len(given):
        raise Unsure
    spelled = {name.lower(): name for name in names}
    return {spelled[name]: origins for name, origins in source.columns if name and name in spelled}


def _values(assigned: _Assigned, scope: Scope) -> dict[str, Origins]:
    """Return the origins of assigned columns; of a column whose field is, the field's."""
    columns: dict[str, Origins] = {}
    for name, is_field, text in assigned:
        if text is not None:
            made = text.origins(scope)
            made = through(made, "TRANSFORMATION") if is_field else made
            columns[name] = columns.get(name, NONE) | made
    return columns


def _deciding(conditions: Sequence[Text | None], scope: Scope, subtype: str) -> Origins | None:
    """Return what conditions read; None if that isn't certain."""
    try:
        found: Origins = NONE
        for text in conditions:
            if text is None:
                return None
            found |= indirect(text.origins(scope), subtype)
        return found
    except Unsure:
        return None
