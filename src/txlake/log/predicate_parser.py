"""Parser of SQL conditions into predicates. `predicates` imports it for the first condition.

Owns which SQL is modelled: comparisons of one column with literals, IN, BETWEEN, LIKE with a
prefix, null tests, boolean columns, and AND, OR, NOT of those. All other valid SQL becomes an
`Opaque`. No schema is known here; `predicates.bind` gives columns and literals their types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import cast

from sqlglot import exp
from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import ParseError, SqlglotError

from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.coercion import as_date, as_timestamp, as_wall_time, day_start
from txlake.log.predicate_nodes import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
    StartsWith,
)
from txlake.log.spark_dialect import SparkSql
from txlake.protocol.partition_values import parse_value
from txlake.protocol.types import Primitive

_OPERATORS: dict[type[exp.Expression], Operator] = {
    exp.EQ: Operator.EQUAL,
    exp.NEQ: Operator.NOT_EQUAL,
    exp.LT: Operator.LESS,
    exp.LTE: Operator.LESS_OR_EQUAL,
    exp.GT: Operator.GREATER,
    exp.GTE: Operator.GREATER_OR_EQUAL,
    exp.NullSafeEQ: Operator.SAME,
}
_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}
_INTEGERS = {
    exp.DataType.Type.TINYINT: 8,
    exp.DataType.Type.SMALLINT: 16,
    exp.DataType.Type.INT: 32,
    exp.DataType.Type.BIGINT: 64,
}
_DECIMAL_DIGITS = 38
# Expressions that are no function of the row alone, or not of plain columns.
_UNSTABLE = (
    exp.Query,
    exp.Exists,
    exp.Window,
    exp.AggFunc,
    exp.Lambda,
    exp.Anonymous,
    exp.Rand,
    exp.Randn,
    exp.Uuid,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.Placeholder,
    exp.Parameter,
)


class NotLiteral(Exception):
    """The expression is no literal, or no construct, that is modelled."""


def parse(text: str, aliases: Iterable[str]) -> Predicate:
    """Return the predicate of a SQL condition; `aliases` as in `predicates.parse_predicate`.

    Raises InvalidRequest for a text that isn't one condition, and for one that is nested too
    deeply.
    """
    try:
        return Reader(aliases).predicate(condition_of(text))
    except RecursionError as error:
        raise InvalidRequest(f"a condition that is nested too deeply: {text:.80}...") from error


@lru_cache(maxsize=256)
def condition_of(text: str) -> exp.Expression:
    """Return the text as sqlglot parses it. Raises InvalidRequest where it isn't one expression,
    and RecursionError where it is nested too deeply.
    """
    dialect = SparkSql()
    try:
        found = dialect.parser().parse_into(exp.Condition, dialect.tokenize(text), text)
    except ParseError as error:
        raise InvalidRequest(_explained(text, error)) from error
    except SqlglotError as error:
        raise InvalidRequest(f"not a condition: {text!r}: {error}") from error
    conditions = [item for item in found if item is not None]
    if len(conditions) != 1 or not text.strip():
        raise InvalidRequest(f"expected one condition, found {len(conditions)}: {text!r}")
    return cast(exp.Expression, conditions[0])


def _explained(text: str, error: ParseError) -> str:
    """Return the message for a parse error, with its line and column if they are known."""
    for place in error.errors:
        line, column = place.get("line"), place.get("col")
        if line is not None:
            reason = str(place.get("description") or "can't be parsed").rstrip(".")
            return f"not a condition: {text!r}: {reason} at line {line}, column {column}"
    return f"not a condition: {text!r}"


class Reader:
    """A parser of one condition; knows the qualifiers that mean the table itself."""

    def __init__(self, aliases: Iterable[str]) -> None:
        self._qualifiers: list[ColumnPath] = []
        for alias in aliases:
            parts = tuple(part.strip("`").lower() for part in alias.split("."))
            self._qualifiers += [parts[start:] for start in range(len(parts))]

    def predicate(self, node: exp.Expression) -> Predicate:
        """Return the predicate of a parsed condition; `Opaque` for what isn't modelled."""
        match node:
            case exp.Paren():
                return self.predicate(node.this)
            case exp.And():
                return And(tuple(self.predicate(part) for part in _operands(node)))
            case exp.Or():
                return Or(tuple(self.predicate(part) for part in _operands(node)))
            case exp.Not():
                return Not(self.predicate(node.this))
            case exp.Boolean():
                return Always(bool(node.this))
            case exp.Null():
                return Always(None)
        try:
            return self._simple(node)
        except NotLiteral:
            return self._opaque(node)

    def _simple(self, node: exp.Expression) -> Predicate:
        """Return the predicate of a node without AND, OR and NOT. Raises NotLiteral if it isn't
        modelled.
        """
        check_plain(node)
        operator = _OPERATORS.get(type(node))
        if operator is not None:
            return self._comparison(node, operator)
        match node:
            case exp.Column() | exp.Dot():
                return Comparison(self.column(node), Operator.EQUAL, True)
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                return self._between(node)
            case exp.Like():
                like = self._like(node)
                return Not(like) if node.args.get("negate") else like
            case exp.StartsWith():
                prefix = literal_of(node.expression)
                if isinstance(prefix, str):
                    return StartsWith(self.column(node.this), prefix)
            case exp.Anonymous() if len(node.expressions) == 1:
                name = str(node.this).lower()
                if name in ("isnull", "isnotnull"):
                    test = IsNull(self.column(node.expressions[0]))
                    return test if name == "isnull" else Not(test)
        raise NotLiteral

    def _comparison(self, node: exp.Expression, operator: Operator) -> Predicate:
        """Return the comparison of a column with a literal, or of two literals. Raises NotLiteral
        for others.
        """
        left, right = _bare(node.this), _bare(node.expression)
        if not isinstance(left, exp.Column | exp.Dot):
            left, right = right, left
            operator = _MIRRORED.get(operator, operator)
        if not isinstance(left, exp.Column | exp.Dot):
            return _constant(literal_of(right), operator, literal_of(left))
        return _compared(self.column(left), operator, literal_of(right))

    def _is(self, node: exp.Is) -> Predicate:
        """Return the predicate of IS NULL, TRUE or FALSE. Raises NotLiteral for anything else."""
        column, value = self.column(node.this), literal_of(node.expression)
        if value is None:
            return IsNull(column)
        if isinstance(value, bool):
            return Comparison(column, Operator.SAME, value)
        raise NotLiteral

    def _in(self, node: exp.In) -> Predicate:
        """Return the predicate of IN with literals; unknown instead of false if one is NULL.

        Raises NotLiteral for anything else, a query among it.
        """
        column = self.column(node.this)
        values = [literal_of(item) for item in node.expressions]
        if not values:
            raise NotLiteral
        known = tuple(value for value in values if value is not None)
        if len(known) == len(values):
            return In(column, known)
        return Or((In(column, known), Always(None))) if known else Always(None)

    def _between(self, node: exp.Between) -> Predicate:
        """Return the predicate of BETWEEN with literals. Raises NotLiteral for anything else."""
        column = self.column(node.this)
        low, high = literal_of(node.args["low"]), literal_of(node.args["high"])
        return And(
            (
                _compared(column, Operator.GREATER_OR_EQUAL, low),
                _compared(column, Operator.LESS_OR_EQUAL, high),
            )
        )

    def _like(self, node: exp.Like) -> Predicate:
        """Return the predicate of LIKE with a pattern; all after its first wildcard is opaque.

        Raises NotLiteral for a pattern with a backslash, or that isn't a literal.
        """
        column, pattern = self.column(node.this), literal_of(node.expression)
        if not isinstance(pattern, str) or "\\" in pattern:
            raise NotLiteral
        prefix = re.split("[%_]", pattern, maxsplit=1)[0]
        if prefix == pattern:
            # The prefix too: it makes a column of another type opaque, since LIKE compares texts.
            return And((StartsWith(column, prefix), Comparison(column, Operator.EQUAL, prefix)))
        starts = StartsWith(column, prefix)
        if pattern == f"{prefix}%":
            return starts
        return And((starts, Opaque(f"... LIKE {pattern!r}", frozenset({column}), True)))

    def column(self, node: exp.Expression) -> ColumnPath:
        """Return the column's path without a qualifier. Raises NotLiteral for anything else."""
        parts = _parts(_bare(node))
        folded = tuple(part.lower() for part in parts)
        for qualifier in self._qualifiers:
            size = len(qualifier)
            if folded[:size] == qualifier and len(parts) > size:
                return parts[size:]
        return parts

    def _opaque(self, node: exp.Expression) -> Opaque:
        """Return the node as a condition that isn't modelled, with the columns that it names if
        they are known.
        """
        unstable = node.find(*_UNSTABLE) is not None
        try:
            found = frozenset(self.column(column) for column in node.find_all(exp.Column))
            columns = None if node.find(exp.Query, exp.Lambda, exp.Star) else found
        except NotLiteral:
            columns = None
        return Opaque(node.sql(dialect=Databricks), columns, not unstable)


def _operands(chain: exp.Connector) -> Iterable[exp.Expression]:
    """Return all operands of a chain of AND or OR, without their parentheses: a chain may
    be long.
    """
    return cast("Iterable[exp.Expression]", chain.flatten())


# The arguments of modelled nodes. A node with others means more than is modelled.
_PARTS = frozenset({"this", "expression", "expressions", "low", "high", "to"})


def check_plain(node: exp.Expression) -> None:
    """Raise NotLiteral for a node that has arguments which aren't modelled."""
    known = _PARTS | {"negate"} if isinstance(node, exp.Like) else _PARTS
    if isinstance(node, exp.Column):
        known |= {"table", "db", "catalog"}
    if any(value for name, value in node.args.items() if name not in known):
        raise NotLiteral


def _bare(node: exp.Expression) -> exp.Expression:
    """Return the node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _parts(node: exp.Expression) -> ColumnPath:
    """Return the names of a column's path as written. Raises NotLiteral for anything but a
    column.
    """
    match node:
        case exp.Column() if not isinstance(node.this, exp.Star):
            return tuple(part.name for part in node.parts)
        case exp.Dot(this=inner, expression=exp.Identifier() as last):
            return (*_parts(inner), last.name)
    raise NotLiteral


def _compared(column: ColumnPath, operator: Operator, value: LiteralValue) -> Predicate:
    """Return the comparison of a column with a literal: a null test or unknown for NULL."""
    if value is None:
        return IsNull(column) if operator is Operator.SAME else Always(None)
    return Comparison(column, operator, value)


def _constant(left: LiteralValue, operator: Operator, right: LiteralValue) -> Predicate:
    """Return the value of a comparison of two literals of one plain kind, such as `1 = 1`.

    Raises NotLiteral for others, and for operators of order.
    """
    plain = isinstance(left, int | str) and type(left) is type(right)
    if not plain or operator not in (Operator.EQUAL, Operator.NOT_EQUAL, Operator.SAME):
        raise NotLiteral
    return Always((left == right) != (operator is Operator.NOT_EQUAL))


def literal_of(node: exp.Expression) -> LiteralValue:
    """Return the value of a literal, which may be negated or cast. Raises NotLiteral for anything
    else.
    """
    match _bare(node):
        case exp.Literal() as literal:
            return str(literal.this) if literal.is_string else _number(str(literal.this))
        case exp.RawString() as raw:
            return str(raw.this)
        case exp.Boolean() as boolean:
            return bool(boolean.this)
        case exp.Null():
            return None
        case exp.Neg() as negative:
            value = literal_of(negative.this)
            if isinstance(value, Decimal):
                return value.copy_negate()  # a minus sign would round to 28 digits
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        case exp.HexString() as text:
            return _hex(str(text.this))
        case exp.TryCast():
            raise NotLiteral
        case exp.Cast() as made:
            check_plain(made)
            return _cast(literal_of(made.this), made.to)
    raise NotLiteral


def _hex(digits: str) -> bytes:
    """Return the bytes of a hexadecimal literal. Raises NotLiteral for other digits."""
    try:
        return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
    except ValueError as error:
        raise NotLiteral from error


def _number(text: str) -> int | float | Decimal:
    """Return a number as Spark reads it. Raises NotLiteral if it is too large for Spark."""
    if "e" in text.lower():
        number = float(text)
        if math.isinf(number):
            raise NotLiteral
        return number
    whole, _, fraction = text.partition(".")
    if len(whole.lstrip("0")) + len(fraction) > _DECIMAL_DIGITS:
        raise NotLiteral
    return int(text) if text.isdecimal() else Decimal(text)


def _cast(value: LiteralValue, to: exp.DataType) -> LiteralValue:
    """Return a literal cast to a type; None stays None.

    Raises NotLiteral for an invalid value, and for a cast that isn't modelled.
    """
    kind = to.this
    if value is None:
        return None
    if kind in _INTEGERS:
        return _as_integer(value, _INTEGERS[kind])
    if kind == exp.DataType.Type.DOUBLE and isinstance(value, int | float | Decimal):
        return float(value)
    if kind == exp.DataType.Type.DECIMAL:
        return _as_decimal(value, to)
    if kind == exp.DataType.Type.TEXT and isinstance(value, bytes):
        return _decoded(value)
    if kind in (exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR) and isinstance(value, str):
        return value if not to.expressions else _fail()
    if kind == exp.DataType.Type.DATE and isinstance(value, str):
        return as_date(value) or _fail()
    if kind == exp.DataType.Type.TIMESTAMPNTZ and isinstance(value, str):
        return as_wall_time(value) or _fail()
    if kind in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMP):
        if isinstance(value, date) and not isinstance(value, datetime):
            return day_start(value)
        if isinstance(value, str):
            return as_timestamp(value) or _fail()
    return _fail()


def _decoded(value: bytes) -> str:
    """Return bytes that a literal casts to text. Raises NotLiteral unless they are UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise NotLiteral from error


def _fail() -> LiteralValue:
    raise NotLiteral


def _as_integer(value: LiteralValue, bits: int) -> LiteralValue:
    """Return a whole number, or the text of one, of that many bits. Raises NotLiteral for anything
    else.
    """
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotLiteral
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else _fail()


def _as_decimal(value: LiteralValue, to: exp.DataType) -> LiteralValue:
    """Return a literal cast to DECIMAL, (10, 0) by default. Raises NotLiteral if it can't be."""
    sizes = [int(item.name) for item in to.expressions]
    precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise NotLiteral
    try:
        return parse_value(str(value), Primitive(f"decimal({precision},{scale})"))
    except CorruptTable as error:
        raise NotLiteral from error
