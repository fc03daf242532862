"""Parser of SQL expressions into values. `values` imports it for the first expression."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from txlake.log.predicate_parser import NotLiteral, Reader, check_plain, condition_of, literal_of
from txlake.log.value_nodes import ColumnValue, Literal, Negated, Operation, Value

_OPERATORS: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.DPipe: "||",
}

_TOLD = frozenset({exp.DataType.Type.DOUBLE, exp.DataType.Type.DATE})
"""The types of casts of literals that the value's own type expresses."""

_BY_SETTINGS = ("\\", '"')
"""Characters whose meaning in a text depends on Spark's settings."""


def parse(text: str, aliases: Iterable[str], *, is_qualified: bool) -> Value | None:
    """Return the value of a SQL expression; None where it isn't modelled.

    Arguments as those of `values.parse_value`. Raises InvalidRequest for a text that isn't one
    expression.
    """
    if any(sign in text for sign in _BY_SETTINGS):
        return None
    try:
        return _value(condition_of(text), Reader(aliases), 2 if is_qualified else 1)
    except (NotLiteral, RecursionError):
        return None


def _value(node: exp.Expression, reader: Reader, parts_max: int) -> Value:
    """Return the node's value; column names have up to `parts_max` parts.

    Raises NotLiteral for a construct that isn't modelled.
    """
    match node:
        case exp.Paren():
            return _value(node.this, reader, parts_max)
        case exp.Column():
            check_plain(node)
            path = reader.column(node)
            if len(path) > parts_max:
                raise NotLiteral
            return ColumnValue(path[-1], path[0] if len(path) > 1 else None)
        case exp.Cast() if node.to.this not in _TOLD:
            raise NotLiteral
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        left, right = (_value(one, reader, parts_max) for one in (node.this, node.expression))
        return Operation(operator, left, right)
    if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Literal):
        return Negated(_value(node.this, reader, parts_max))
    return Literal(literal_of(node))
