"""GROUP BY: the aggregates in expressions, and their values for a group's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sqlglot import exp

from tests.simulation.rows import functions, values
from tests.simulation.rows.expressions import Compiler
from tests.simulation.rows.scopes import Row, TypedExpression


class Aggregated:
    """One aggregate, a function of a group's rows."""

    def __init__(self, expressions: Compiler, call: exp.Expression) -> None:
        self._keep: Callable[[Row], bool] = always
        if isinstance(call, exp.Filter):
            self._keep = expressions.condition(call.expression.this)
            call = call.this
        name = str(call.this).lower()
        [argument] = call.expressions or [exp.Star()]
        self._distinct = isinstance(argument, exp.Distinct)
        if isinstance(argument, exp.Distinct):
            [argument] = argument.expressions
        if isinstance(argument, exp.Star):
            value = TypedExpression(values.INTEGER, lambda _: 1)
        else:
            value = expressions.typed(argument)
        self._of = value.of
        self.type, self._function = functions.aggregate(name, value.type)

    def of(self, rows: Iterable[Row]) -> Any:
        """Return the aggregate of these rows."""
        found = [self._of(row) for row in rows if self._keep(row)]
        known = [one for one in found if one is not None]
        return self._function(functions.distinct(known) if self._distinct else known)


def aggregates_in(node: exp.Expression) -> list[exp.Expression]:
    """Return the aggregates in an expression, without those in its subqueries."""
    if isinstance(node, exp.Query):
        return []
    if isinstance(node, exp.Filter):
        return [node]
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in functions.AGGREGATES:
        return [node]
    return [call for inner in node.iter_expressions() for call in aggregates_in(inner)]


def group_keys(node: exp.Select) -> list[exp.Expression]:
    group = node.args.get("group")
    if group is None:
        return []
    others = {name: value for name, value in group.args.items() if name != "expressions"}
    assert not any(others.values()), f"{group!r}"
    return list(group.expressions)


def always(_: Row) -> bool:
    return True
