"""SQL expressions become values. `values` loads it for the first one."""

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
"""The types to which a literal is cast that its value tells."""

_BY_SETTINGS = ("\\", '"')
"""What they mean in a text depends on Spark's settings."""


def parsed(text: str, aliases: Iterable[str]) -> Value | None:
    """What `values.parse_value` promises. Raises InvalidRequest for no expression."""
    if any(sign in text for sign in _BY_SETTINGS):
        return None
    try:
        return _value(condition_of(text), Reader(aliases))
    except (NotLiteral, RecursionError):
        return None


def _value(node: exp.Expression, reader: Reader) -> Value:
    """Raises NotLiteral for what isn't modelled."""
    match node:
        case exp.Paren():
            return _value(node.this, reader)
        case exp.Column():
            check_plain(node)
            path = reader.column(node)
            if len(path) != 1:
                raise NotLiteral
            return ColumnValue(path[0])
        case exp.Cast() if node.to.this not in _TOLD:
            raise NotLiteral
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return Operation(operator, _value(node.this, reader), _value(node.expression, reader))
    if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Literal):
        return Negated(_value(node.this, reader))
    return Literal(literal_of(node))
