"""SQL expressions as functions of a row, with three-valued logic.

Owns the meaning of each kind of node. Trees are sqlglot's, in txlake's dialect; an unknown node is
an AssertionError that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from tests.simulation.rows import functions, values
from tests.simulation.rows.functions import case, convert
from tests.simulation.rows.scopes import Row, Rows, Scope, TypedExpression
from tests.simulation.rows.values import BOOLEAN, DOUBLE, STRING, VOID, common_type
from txlake.errors import InvalidRequest
from txlake.protocol.types import Array, DataType, Primitive
from txlake.sql.dialect import DIALECT

Subquery = Callable[[Row], Rows]
Inner = Callable[[exp.Expression, Scope], tuple[tuple[DataType, ...], Subquery]]
"""Runs a query inside of an expression: its columns' types, and its rows for a row outside."""

_TYPES = {
    exp.DataType.Type.TINYINT: "byte",
    exp.DataType.Type.SMALLINT: "short",
    exp.DataType.Type.INT: "integer",
    exp.DataType.Type.BIGINT: "long",
    exp.DataType.Type.FLOAT: "float",
    exp.DataType.Type.DOUBLE: "double",
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.TEXT: "string",
    exp.DataType.Type.BINARY: "binary",
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMP: "timestamp",
    exp.DataType.Type.TIMESTAMPTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPNTZ: "timestamp_ntz",
}
_COMPARED: dict[type[exp.Expression], Callable[[Any, Any], bool]] = {
    exp.EQ: lambda one, other: one == other,
    exp.NEQ: lambda one, other: one != other,
    exp.LT: lambda one, other: one < other,
    exp.LTE: lambda one, other: one <= other,
    exp.GT: lambda one, other: one > other,
    exp.GTE: lambda one, other: one >= other,
}
_ARITHMETIC: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> exp.Expression:
    """Return the tree of an expression; it is shared and must not be changed."""
    try:
        tree = parse_one(f"SELECT {text}", dialect=DIALECT)
    except SqlglotError as error:
        raise InvalidRequest(f"not an expression: {text!r}: {error}") from error
    [expression] = tree.expressions
    assert isinstance(expression, exp.Expression)
    return expression


def type_of(node: exp.DataType) -> DataType:
    """Return the type that CAST names."""
    if node.this in _TYPES:
        return Primitive(_TYPES[node.this])
    if node.this == exp.DataType.Type.DECIMAL:
        sizes = [int(item.name) for item in node.expressions] or [10]
        return values.decimal_type(*(*sizes, 0)[:2])
    if node.this == exp.DataType.Type.ARRAY:
        return Array(type_of(node.expressions[0]), True)
    raise AssertionError(f"type {node} isn't known here")


@dataclass(frozen=True)
class Compiler:
    """Compiles expressions in one scope.

    Attributes:
        subquery: returns the columns of a query inside an expression, and its rows for an outer
            row.
        known: values of whole expressions: the groups and aggregates of a grouped query.
    """

    scope: Scope
    subquery: Inner
    known: Mapping[exp.Expression, TypedExpression] = field(default_factory=dict)

    def condition(self, node: exp.Expression) -> Callable[[Row], bool]:
        """Return a function of a row: whether the condition is true, rather than false or
        unknown.
        """
        of = convert(self.typed(node), BOOLEAN).of
        return lambda row: of(row) is True

    def typed(self, node: exp.Expression) -> TypedExpression:
        """Return the expression with its type."""
        if self.known and node in self.known:
            return self.known[node]
        operator = _COMPARED.get(type(node))
        if operator is not None:
            return _compared(self.typed(node.this), self.typed(node.expression), operator)
        symbol = _ARITHMETIC.get(type(node))
        if symbol is not None:
            left, right = self.typed(node.this), self.typed(node.expression)
            return functions.arithmetic(symbol, left, right)
        match node:
            case exp.Column() | exp.Dot():
                place, kind = self.scope.find([part.name for part in node.parts])
                return TypedExpression(kind, lambda row: row[place])
            case exp.Literal():
                return _literal(node)
            case exp.Boolean():
                return constant(bool(node.this), BOOLEAN)
            case exp.Null():
                return constant(None, VOID)
            case exp.HexString():
                return constant(bytes.fromhex(str(node.this)), Primitive("binary"))
            case exp.Paren() | exp.Alias():
                return self.typed(node.this)
            case exp.Neg():
                return functions.negate(self.typed(node.this))
            case exp.IntDiv():
                left, right = self.typed(node.this), self.typed(node.expression)
                return functions.integer_division(left, right)
            case exp.DPipe():
                sides = [self.typed(node.this), self.typed(node.expression)]
                return functions.call("concat", sides)
            case exp.Bracket():
                return functions.at([self.typed(node.this), self.typed(node.expressions[0])])
            case exp.And() | exp.Or():
                return self._joined(node)
            case exp.Not():
                of = convert(self.typed(node.this), BOOLEAN).of
                return TypedExpression(
                    BOOLEAN, lambda row: None if (found := of(row)) is None else not found
                )
            case exp.NullSafeEQ():
                one, other = to_common_type(self.typed(node.this), self.typed(node.expression))
                return TypedExpression(BOOLEAN, lambda row: one.of(row) == other.of(row))
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                value = self.typed(node.this)
                low = _compared(value, self.typed(node.args["low"]), _COMPARED[exp.GTE])
                high = _compared(value, self.typed(node.args["high"]), _COMPARED[exp.LTE])
                return _both(low, high)
            case exp.Like():
                return self._like(node)
            case exp.TryCast():
                return _tried(self.typed(node.this), type_of(node.to))
            case exp.Cast():
                return convert(self.typed(node.this), type_of(node.to))
            case exp.Case():
                return self._case(node)
            case exp.If():
                args = [node.this, node.args["true"], node.args.get("false") or exp.null()]
                return functions.call("if", [self.typed(one) for one in args])
            case exp.Exists():
                _, rows = self.subquery(node.this, self.scope)
                return TypedExpression(BOOLEAN, lambda row: bool(rows(row).rows))
            case exp.Subquery():
                return self._scalar(node.this)
            case exp.Trim() if node.args.keys() <= {"this"} or not node.expression:
                return functions.call("trim", [self.typed(node.this)])
            case exp.Anonymous():
                return functions.call(str(node.this), [self.typed(one) for one in node.expressions])
        raise AssertionError(f"this expression isn't known here: {node!r}")

    def _joined(self, node: exp.And | exp.Or) -> TypedExpression:
        left = convert(self.typed(node.this), BOOLEAN)
        right = convert(self.typed(node.expression), BOOLEAN)
        return _both(left, right) if isinstance(node, exp.And) else _either(left, right)

    def _is(self, node: exp.Is) -> TypedExpression:
        of = self.typed(node.this).of
        if isinstance(node.expression, exp.Null):
            return TypedExpression(BOOLEAN, lambda row: of(row) is None)
        assert isinstance(node.expression, exp.Boolean), f"{node!r}"
        wanted = bool(node.expression.this)
        return TypedExpression(BOOLEAN, lambda row: of(row) is wanted)

    def _in(self, node: exp.In) -> TypedExpression:
        value = self.typed(node.this)
        query = node.args.get("query")
        if query is not None:
            (kind,), found = self.subquery(query.this, self.scope)
            wanted = common_type(value.type, kind)
            of, cast = convert(value, wanted).of, values.cast(kind, wanted)
            return TypedExpression(
                BOOLEAN, lambda row: _among(of(row), [cast(one) for (one,) in found(row).rows])
            )
        members = [self.typed(one) for one in node.expressions]
        wanted = functions.common_type_of([value.type, *(one.type for one in members)])
        of = convert(value, wanted).of
        given = [convert(one, wanted).of for one in members]
        return TypedExpression(BOOLEAN, lambda row: _among(of(row), [one(row) for one in given]))

    def _like(self, node: exp.Like) -> TypedExpression:
        of = convert(self.typed(node.this), STRING).of
        pattern = node.expression
        known = isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.name
        assert known, f"this pattern isn't known here: {node!r}"
        signs = {"%": ".*", "_": "."}
        text = "".join(signs.get(sign) or re.escape(sign) for sign in pattern.name)
        matches = re.compile(text, re.DOTALL).fullmatch
        negated = bool(node.args.get("negate"))

        def value(row: Row) -> object:
            found = of(row)
            return None if found is None else (matches(found) is not None) != negated

        return TypedExpression(BOOLEAN, value)

    def _case(self, node: exp.Case) -> TypedExpression:
        branches = []
        for branch in node.args["ifs"]:
            test = self.typed(branch.this)
            if node.this is not None:
                test = _compared(self.typed(node.this), test, _COMPARED[exp.EQ])
            branches.append((test, self.typed(branch.args["true"])))
        return case(branches, self.typed(node.args.get("default") or exp.null()))

    def _scalar(self, query: exp.Expression) -> TypedExpression:
        (kind, *_), rows = self.subquery(query, self.scope)

        def value(row: Row) -> object:
            found = rows(row).rows
            if len(found) > 1:
                raise InvalidRequest("SCALAR_SUBQUERY_TOO_MANY_ROWS: more than one row")
            return found[0][0] if found else None

        return TypedExpression(kind, value)


def constant(value: object, kind: DataType) -> TypedExpression:
    """Return an expression with the same value for every row."""
    return TypedExpression(kind, lambda _: value)


def _literal(node: exp.Literal) -> TypedExpression:
    text = str(node.this)
    if node.is_string:
        return constant(text, STRING)
    if text.isdecimal():
        number = int(text)
        digits = values.decimal_type(len(text), 0)
        return TypedExpression(values.type_of_integer(number), lambda _: number, digits)
    if "e" in text.lower():
        return constant(float(text), DOUBLE)
    return constant(Decimal(text), values.type_of_decimal(Decimal(text)))


def to_common_type(
    left: TypedExpression, right: TypedExpression
) -> tuple[TypedExpression, TypedExpression]:
    """Return both expressions converted to the type in which they are compared."""
    kind = common_type(left.type, right.type)
    return convert(left, kind), convert(right, kind)


def _compared(
    left: TypedExpression, right: TypedExpression, operator: Callable[[Any, Any], bool]
) -> TypedExpression:
    left, right = to_common_type(left, right)
    one, other = left.of, right.of

    def value(row: Row) -> bool | None:
        first, second = one(row), other(row)
        return None if first is None or second is None else operator(first, second)

    return TypedExpression(BOOLEAN, value)


def _both(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    one, other = left.of, right.of

    def value(row: Row) -> object:
        first = one(row)
        if first is False:
            return False
        second = other(row)
        return second if first or second is False else None

    return TypedExpression(BOOLEAN, value)


def _either(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    one, other = left.of, right.of

    def value(row: Row) -> object:
        first = one(row)
        if first is True:
            return True
        second = other(row)
        return second if first is False or second is True else None

    return TypedExpression(BOOLEAN, value)


def _among(value: object, members: list[Any]) -> bool | None:
    if not members:
        return False
    if value is None:
        return None
    if any(one is not None and one == value for one in members):
        return True
    return None if None in members else False


def _tried(one: TypedExpression, wanted: DataType) -> TypedExpression:
    cast, of = values.cast(one.type, wanted), one.of

    def value(row: Row) -> object:
        try:
            return cast(of(row))
        except InvalidRequest:
            return None

    return TypedExpression(wanted, value)
