"""Evaluation of expressions over single rows, where txlake computes the same as Spark.

Owns which expressions those are: literals, columns, the signs and `+ - * /` of whole numbers and
doubles, and `||` of texts. The result is None for an expression that isn't modelled, or where Spark
would fail or follow its settings (an overflow, a division by zero): Spark must compute it. The SQL
is in `value_parser`, the nodes are in `value_nodes`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from txlake.errors import InvalidRequest
from txlake.log.conversion import convert
from txlake.log.predicate_nodes import LiteralValue
from txlake.log.text_rules import DEFAULT_RULES, StoreAssignment, TextRules
from txlake.log.value_nodes import ColumnValue, Literal, Negated, Operation, Value
from txlake.protocol.types import Struct

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_DECIMAL_DIGITS = 38


class _NotComputable(Exception):
    """Only Spark can compute the expression."""


def parse_value(
    text: str,
    *,
    aliases: Collection[str] = (),
    is_qualified: bool = False,
    rules: TextRules = DEFAULT_RULES,
) -> Value | None:
    """Return the value of a SQL expression; None where it isn't modelled.

    None too where `rules`, those of the session that the text comes from, leave it to Spark.

    `aliases` as in `predicates.parse_predicate`. `is_qualified`: the columns are of several tables,
    and the tables' names before them are kept.
    """
    if rules.case_sensitive or rules.assignment is not StoreAssignment.ANSI:
        return None
    if not rules.agrees_on(text):
        return None
    from txlake.log import value_parser

    try:
        return value_parser.parse(text, aliases, is_qualified=is_qualified)
    except InvalidRequest:
        return None  # Spark reports what is wrong


def compute(value: Value, rows: pa.Table, schema: Struct) -> pa.ChunkedArray | None:
    """Return the value for each row; None where only Spark can compute it.

    `rows` have the schema's columns by logical name. The Arrow type is the one that corresponds to
    the value's type in Spark.
    """
    try:
        return _Rows(rows, schema).compute(value)
    except (_NotComputable, pa.ArrowException):
        return None


@dataclass(frozen=True, slots=True)
class _Rows:
    rows: pa.Table
    schema: Struct

    def compute(self, value: Value) -> pa.ChunkedArray:
        """Return the value for each row. Raises _NotComputable where only Spark computes it, and
        ArrowException for an overflow.
        """
        match value:
            case Literal(constant):
                scalar = _scalar(constant)
                return pa.chunked_array([pa.repeat(scalar, self.rows.num_rows)], scalar.type)
            case ColumnValue(name, qualifier):
                if qualifier is not None:
                    raise _NotComputable
                item = self.schema.find(name)
                if item is None:
                    raise _NotComputable
                return self.rows.column(item.name)
            case Negated(part):
                return _negated(self.compute(part))
            case Operation(operator, left, right):
                return _operated(operator, self.compute(left), self.compute(right))


def _scalar(value: LiteralValue) -> pa.Scalar:
    """Return a literal with Spark's type. Raises _NotComputable for a time, bytes, and numbers that
    are too large.
    """
    match value:
        case None:
            return pa.scalar(None, pa.null())
        case bool() | float() | str():
            return pa.scalar(value)
        case int() if _INT_MIN <= value <= _INT_MAX:
            return pa.scalar(value, pa.int32())
        case int() if _LONG_MIN <= value <= _LONG_MAX:
            return pa.scalar(value, pa.int64())
        case Decimal():
            return _decimal(value)
        case date() if not isinstance(value, datetime):
            return pa.scalar(value, pa.date32())
    raise _NotComputable


def _decimal(value: Decimal) -> pa.Scalar:
    """Return a decimal literal with Spark's type: as many digits as are written.

    Raises _NotComputable for more than 38 digits.
    """
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a literal is a number"
    scale = max(0, -exponent)
    precision = max(len(digits) + max(exponent, 0), scale)
    if precision > _DECIMAL_DIGITS:
        raise _NotComputable
    return pa.scalar(value, pa.decimal128(precision, scale))


def _negated(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the negated values. Raises _NotComputable unless they are whole numbers or doubles,
    and ArrowException for an overflow.
    """
    if pa.types.is_signed_integer(values.type):
        return pc.negate_checked(values)
    if pa.types.is_float64(values.type):
        return pc.negate(values)
    raise _NotComputable


def _operated(operator: str, left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return `left operator right` for each row. Raises _NotComputable for other types and a
    division by zero, ArrowException for an overflow.
    """
    if operator == "||":
        if not (pa.types.is_string(left.type) and pa.types.is_string(right.type)):
            raise _NotComputable
        return pc.binary_join_element_wise(left, right, "")
    wide = _wider(left.type, right.type, divides=operator == "/")
    left, right = _widened(left, wide), _widened(right, wide)
    match operator:
        case "+":
            return pc.add_checked(left, right)
        case "-":
            return pc.subtract_checked(left, right)
        case "*":
            return pc.multiply_checked(left, right)
    assert operator == "/", operator
    if pc.any(pc.equal(right, 0.0)).as_py():
        raise _NotComputable  # an error or null, by Spark's settings
    return pc.divide(left, right)


def _wider(left: pa.DataType, right: pa.DataType, *, divides: bool) -> pa.DataType:
    """Return the type in which Spark computes with both. Raises _NotComputable unless they are
    whole numbers, or one is double and the other a number.
    """
    if pa.types.is_signed_integer(left) and pa.types.is_signed_integer(right):
        return pa.float64() if divides else max(left, right, key=lambda one: one.bit_width)
    if pa.float64() in (left, right) and all(map(_is_number, (left, right))):
        return pa.float64()
    raise _NotComputable


def _is_number(data_type: pa.DataType) -> bool:
    """Return whether the type is of whole numbers, doubles or decimals."""
    t = pa.types
    tests = (t.is_signed_integer, t.is_float64, t.is_decimal)
    return any(test(data_type) for test in tests)


def _widened(values: pa.ChunkedArray, wide: pa.DataType) -> pa.ChunkedArray:
    """Return the values in the wider type. Raises ArrowException for one that it can't hold."""
    if pa.types.is_integer(values.type) and pa.types.is_floating(wide):
        return values.cast(wide, safe=False)  # the nearest double, as in Java
    return convert(values, wide)
