"""ORDER BY, LIMIT and DISTINCT on the rows of a query."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from tests.simulation.rows.expressions import Compiler, Inner
from tests.simulation.rows.scopes import ColumnName, Row, Rows, Scope, TypedExpression


def with_order_keys(
    node: exp.Select, after: Compiler, made: Rows, inputs: Rows, outer: Row
) -> tuple[Rows, Rows | None]:
    """Return the groups with the values by which `order_rows` orders them."""
    order = node.args.get("order")
    if order is None:
        return made, inputs
    names = [name.name.lower() for name in made.names]
    columns = []
    for one in order.expressions:
        key = one.this
        if isinstance(key, exp.Literal) or (
            isinstance(key, exp.Column) and key.name.lower() in names
        ):
            continue
        columns.append((key, after.typed(key)))
    extra = tuple(ColumnName(key.sql(), typed.type, hidden=True) for key, typed in columns)
    rows = [tuple(typed.of((*outer, *row)) for _, typed in columns) for row in inputs.rows]
    return made, Rows(extra, rows)


def order_rows(
    inner: Inner, node: exp.Expression, made: Rows, inputs: Rows | None, scope: Scope, outer: Row
) -> Rows:
    order = node.args.get("order")
    if order is None:
        return made
    before = inputs or Rows((), [()] * len(made.rows))
    seen = [one.name.lower() for one in made.names]
    behind = list(before.names)
    names = (
        *made.names,
        *(ColumnName(n.name, n.type, n.qualifier, hidden=n.name.lower() in seen) for n in behind),
    )
    known = {}
    start = len(outer) + len(made.names)
    for place, name in enumerate(before.names):
        if name.hidden:
            for one in order.expressions:
                if one.this.sql() == name.name:
                    known[one.this] = TypedExpression(name.type, value_at(start + place))
    visible = Scope(tuple(n for n in made.names), scope)
    whole = Scope(names, scope)
    rows = [(a, (*outer, *a, *b)) for a, b in zip(made.rows, before.rows, strict=True)]
    for one in reversed(order.expressions):
        key = one.this
        if isinstance(key, exp.Literal) and not key.is_string:
            of = value_at(len(outer) + int(key.name) - 1)
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() in seen:
            of = Compiler(visible, inner).typed(key).of
        else:
            of = Compiler(whole, inner, known).typed(key).of
        descending = bool(one.args.get("desc"))
        nulls_first = bool(one.args.get("nulls_first"))
        rows.sort(key=lambda row: _key(of(row[1])), reverse=descending)
        rows.sort(key=lambda row: (of(row[1]) is None) != nulls_first)
    return Rows(made.names, [row for row, _ in rows])


def _key(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, list):
        return (1, [_key(one) for one in value])
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def limit_rows(inner: Inner, node: exp.Expression, made: Rows, scope: Scope, outer: Row) -> Rows:
    limit, offset = node.args.get("limit"), node.args.get("offset")
    expressions = Compiler(scope, inner)
    first = 0 if offset is None else expressions.typed(offset.expression).of(outer)
    last = None if limit is None else first + expressions.typed(limit.expression).of(outer)
    return made if limit is None and offset is None else Rows(made.names, made.rows[first:last])


def to_hashable(value: Any) -> Any:
    return ("list", *map(to_hashable, value)) if isinstance(value, list) else value


def without_duplicates(rows: Sequence[Row]) -> list[Row]:
    found = {tuple(map(to_hashable, row)): row for row in reversed(rows)}
    return list(reversed(found.values()))


def value_at(place: int) -> Callable[[Row], Any]:
    """Return a function that returns the value at an index of a row."""
    return lambda row: row[place]
