"""Plain queries, which the driver answers as Spark would, without starting Spark.

`SELECT` of columns, or `*`, from one table or one of the lake's own views, with a condition that
the log's predicates decide and a LIMIT; and of whole numbers and texts without a table. Anything
else, and whatever is an error, is Spark's.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

import pyarrow as pa
from sqlglot import exp

from txlake.commit.data_plane import Condition, TableData
from txlake.errors import InvalidRequest
from txlake.log.predicates import Predicate
from txlake.log.text_rules import DEFAULT_RULES
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.context import Context
from txlake.session.filters import condition_of
from txlake.session.views.describe import Rows
from txlake.sql.dialect import parsed_select
from txlake.sql.statements import SqlText, TableName

_PARTS = frozenset({"expressions", "from", "from_", "where", "limit"})
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainQuery:
    """A plain query, parsed.

    Attributes:
        columns: (column, its name in the result), or values without a table; None is `*`.
        reads: whether it reads a table.
        has_condition: whether it has a WHERE.
    """

    columns: tuple[tuple[str | int, str], ...] | None
    reads: bool
    has_condition: bool
    limit: int | None


def plain_answer(context: Context, query: SqlText) -> Rows | None:
    """Return the rows of a query, read in the transaction; None if Spark has to run it.

    Spark runs every query once it is started, as its session may have settings and views of its
    own, and every query that isn't plain, has session functions, or means something else by the
    session's settings. The read is recorded only if the rows are returned.
    """
    plain = _plain_here(context, query)
    if plain is None:
        return None
    if not plain.reads:
        return _constants(plain)
    return _of_view(context, query, plain) or _of_table(context, query, plain)


def plain_schema(context: Context, query: SqlText) -> Struct | None:
    """Return the columns of a query without reading its rows; None if Spark has to find them."""
    plain = _plain_here(context, query)
    if plain is None:
        return None
    if not plain.reads:
        return _constants(plain).schema
    if (rows := _of_view(context, query, plain)) is not None:
        return rows.schema
    handle = context.tables.find(query.references[0].table)
    if handle is None or not context.tables.exists(handle):
        return None
    schema = context.snapshot(handle).schema
    places = _places(plain, schema)
    return None if places is None else _renamed(schema, places)


def _plain_here(context: Context, query: SqlText) -> PlainQuery | None:
    """Return a query's parts; None if it isn't plain, or the session may read it otherwise."""
    if context.plane.is_started or query.session_functions:
        return None
    if context.rules != DEFAULT_RULES or not context.rules.agrees_on(query.text):
        return None
    return _plain(query)


@lru_cache(maxsize=256)
def _plain(query: SqlText) -> PlainQuery | None:
    """Return a query's parts; None unless it is plain, as the module says."""
    if "/*+" in query.text:
        return None  # a hint, which sqlglot may drop
    tree = parsed_select(query.text)
    if tree is None or not _given(tree) <= _PARTS:
        return None
    source = tree.args.get("from_") or tree.args.get("from")
    if len(query.references) != (source is not None):
        return None
    if source is None:
        if _given(tree) != {"expressions"} or '"' in query.text:
            return None  # by a setting of Spark a name stands in double quotes
    elif not _is_table(source.this) or not _names_rows(query):
        return None
    limit = None
    if (given := tree.args.get("limit")) is not None:
        limit = _whole_number(given.expression)
        if limit is None or _given(given) != {"expression"}:
            return None
    columns = _columns(tree.expressions, None if source is None else _qualifiers(source.this))
    if columns == ():
        return None
    return PlainQuery(
        columns=columns,
        reads=source is not None,
        has_condition=tree.args.get("where") is not None,
        limit=limit,
    )


def _given(node: exp.Expression) -> set[str]:
    """Return the names of a node's arguments that have a value."""
    return {name for name, value in node.args.items() if value}


def _names_rows(query: SqlText) -> bool:
    """Return whether the query's one table is read as it is: no time travel, no changes."""
    [reference] = query.references
    return reference.travel is None and reference.description is None and reference.changes is None


def _is_table(source: exp.Expression) -> bool:
    """Return whether a FROM clause is just a name, perhaps with an alias, without a sample."""
    if not isinstance(source, exp.Table):
        return False
    if not _given(source) <= {"this", "db", "catalog", "alias"}:
        return False
    alias = source.args.get("alias")
    return isinstance(source.this, exp.Identifier) and (alias is None or _given(alias) == {"this"})


def _qualifiers(source: exp.Table) -> tuple[tuple[str, ...], ...]:
    """Return what may stand before a column's name: nothing, the alias, or the table's name with
    what the FROM clause has before it.
    """
    if source.alias:
        return (), (source.alias,)
    name = tuple(part.name for part in source.parts)
    return (), *(name[first:] for first in range(len(name)))


def _columns(
    expressions: Sequence[exp.Expression], qualifiers: tuple[tuple[str, ...], ...] | None
) -> tuple[tuple[str | int, str], ...] | None:
    """Return the columns as in `PlainQuery.columns`, None for `*`; an empty tuple if one of them
    isn't plain. `qualifiers`: as `_qualifiers`; None for a query that reads no table.
    """
    reads = qualifiers is not None
    if reads and len(expressions) == 1 and isinstance(expressions[0], exp.Star):
        return () if _given(expressions[0]) else None
    found: list[tuple[str | int, str]] = []
    for one in expressions:
        name = None
        if isinstance(one, exp.Alias):
            name, one = one.alias, one.this
        value: str | int | None = None
        if not reads:
            value = _whole_number(one)
            if isinstance(one, exp.Literal) and one.is_string and one.this.isalnum():
                value = one.this
        elif _is_column(one):
            before = tuple(part.name for part in one.parts[:-1])
            value = one.name if before in (qualifiers or ()) else None
        if value is None:
            return ()
        found.append((value, str(value) if name is None else name))
    return tuple(found)


def _is_column(one: exp.Expression) -> TypeGuard[exp.Column]:
    if not isinstance(one, exp.Column) or not isinstance(one.this, exp.Identifier):
        return False
    return _given(one) <= {"this", "table", "db", "catalog"}


def _whole_number(node: exp.Expression | None) -> int | None:
    """Return the value of an INT literal; None for any other expression."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    text = node.this
    plain = text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
    return int(text) if plain and int(text) <= _INT_MAX else None


def _constants(plain: PlainQuery) -> Rows:
    """Return the one row of a SELECT without a table."""
    assert plain.columns is not None, "* goes with a table"
    fields = tuple(
        Field(name, Primitive("integer" if isinstance(value, int) else "string"), False)
        for value, name in plain.columns
    )
    return Rows(schema=Struct(fields), rows=[tuple(value for value, _ in plain.columns)])


def _of_view(context: Context, query: SqlText, plain: PlainQuery) -> Rows | None:
    """Return the rows of a system view; None for other names, for a query with a WHERE, and for
    columns that the view doesn't have.
    """
    table = query.references[0].table
    if plain.has_condition or not isinstance(table, TableName):
        return None
    if context.tables.find(table) is not None or context.tables.viewed(table) is not None:
        return None
    rows = context.catalog_view(table.parts)
    places = None if rows is None else _places(plain, rows.schema)
    if rows is None or places is None:
        return None
    taken = [tuple(row[place] for place, _ in places) for row in rows.rows[: plain.limit]]
    return Rows(schema=_renamed(rows.schema, places), rows=taken)


def _of_table(context: Context, query: SqlText, plain: PlainQuery) -> Rows | None:
    """Return the rows of a table, and record the read; None, with nothing recorded, if Spark has to
    read them.
    """
    handle = context.tables.find(query.references[0].table)
    if handle is None or not context.tables.exists(handle):
        return None
    snapshot = context.snapshot(handle)
    places = _places(plain, snapshot.schema)
    if places is None:
        return None
    work = context.work_on(handle, snapshot)
    predicate, text, condition = None, None, None
    if plain.has_condition:
        found = _condition(work, query)
        if found is None:
            return None
        predicate, text, condition = found
    names = list(dict.fromkeys(snapshot.schema.names[place] for place, _ in places))
    held = work.plain_rows(work.snapshot.select(predicate), predicate, plain.limit, names)
    taken = [names.index(snapshot.schema.names[place]) for place, _ in places]
    rows = None if held is None else _values(held, taken)
    if rows is None:
        return None
    part = context.transaction.open(handle)
    if context.writes:
        part.read(predicate, text, condition=condition)
    else:
        part.plain_read(predicate, text, condition=condition)
    return Rows(schema=_renamed(snapshot.schema, places), rows=rows)


def _condition(work: TableData, query: SqlText) -> tuple[Predicate, str, Condition | None] | None:
    """Return the predicate of the query's WHERE, which it must have, the WHERE's text, and a row
    condition for conflict checks, None unless the WHERE depends on the row alone.

    None if the driver can't judge the WHERE exactly, as with a subquery or an unknown column.
    """
    found = condition_of(query)
    if found is None or found.own is None:
        return None
    try:
        predicate = work.predicate(found.own, found.alias)
    except InvalidRequest:
        return None
    if predicate is None:
        return None
    return predicate, found.text, work.row_condition(predicate, found.own, found.alias)


def _places(plain: PlainQuery, schema: Struct) -> list[tuple[int, str]] | None:
    """Return the columns' positions and result names; None if one isn't a column of the table.

    Names must have the table's letter case.
    """
    names = list(schema.names)
    if plain.columns is None:
        return list(enumerate(names))
    if not all(name in names for name, _ in plain.columns):
        return None
    return [(names.index(str(name)), shown) for name, shown in plain.columns]


def _renamed(schema: Struct, places: Sequence[tuple[int, str]]) -> Struct:
    """Return the schema of these columns under their result names, without metadata."""
    fields = (schema.fields[place] for place, _ in places)
    shown = zip(fields, (name for _, name in places), strict=True)
    return Struct(tuple(Field(name, item.type, item.nullable) for item, name in shown))


def _values(table: pa.Table, places: Sequence[int]) -> list[tuple[object, ...]] | None:
    """Return the rows as Python values; None if a type has no value in Python."""
    try:
        columns = [[_plain_value(one) for one in table.column(i).to_pylist()] for i in places]
    except (ValueError, OverflowError):
        return None
    return list(zip(*columns, strict=True))


def _plain_value(value: object) -> object:
    """Return a timestamp in UTC, and any other value as it is."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    return value
