"""The functions in the simulation's statements, by name: their types and values.

Owns no syntax. An unknown name is an AssertionError that says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

from tests.simulation.rows import values
from tests.simulation.rows.scopes import Row, TypedExpression
from tests.simulation.rows.values import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    VOID,
    common_type,
    is_decimal,
    is_float,
    is_integer,
    is_number,
)
from txlake.errors import InvalidRequest
from txlake.local.types import type_text
from txlake.protocol.types import Array, DataType, Primitive

Function = Callable[[Sequence[TypedExpression]], TypedExpression]


def convert(one: TypedExpression, wanted: DataType) -> TypedExpression:
    """Return the expression converted to another type."""
    if one.type == wanted:
        return one
    convert, of = values.cast(one.type, wanted), one.of
    return TypedExpression(wanted, lambda row: convert(of(row)))


def common_type_of(types: Iterable[DataType]) -> DataType:
    """Return the type that holds values of all these types."""
    start: DataType = VOID
    return reduce(common_type, types, start)


def call(name: str, args: Sequence[TypedExpression]) -> TypedExpression:
    """Return the function of that name applied to these arguments."""
    name = name.lower()
    assert name in FUNCTIONS, f"function {name} isn't known here"
    return FUNCTIONS[name](args)


def _strict(
    kind: DataType, operation: Callable[..., Any], args: Sequence[TypedExpression]
) -> TypedExpression:
    """Return a function that is NULL for a NULL."""
    of = [one.of for one in args]

    def value(row: Row) -> object:
        given = [one(row) for one in of]
        return None if None in given else operation(*given)

    return TypedExpression(kind, value)


def _on_texts(kind: DataType, operation: Callable[..., Any]) -> Function:
    return lambda args: _strict(kind, operation, [convert(one, STRING) for one in args])


def _coalesce(args: Sequence[TypedExpression]) -> TypedExpression:
    kind = common_type_of(one.type for one in args)
    of = [convert(one, kind).of for one in args]

    def value(row: Row) -> object:
        for one in of:
            found = one(row)
            if found is not None:
                return found
        return None

    return TypedExpression(kind, value)


def _extreme(choose: Callable[[Iterable[Any]], Any]) -> Function:
    def made(args: Sequence[TypedExpression]) -> TypedExpression:
        kind = common_type_of(one.type for one in args)
        of = [convert(one, kind).of for one in args]

        def value(row: Row) -> object:
            known = [found for one in of if (found := one(row)) is not None]
            return choose(known) if known else None

        return TypedExpression(kind, value)

    return made


def _if(args: Sequence[TypedExpression]) -> TypedExpression:
    condition, yes, no = args
    return case([(condition, yes)], no)


def case(
    branches: Sequence[tuple[TypedExpression, TypedExpression]], otherwise: TypedExpression
) -> TypedExpression:
    """Return CASE WHEN ... THEN ... ELSE ... END, which only computes the branch taken."""
    kind = common_type_of([*(made.type for _, made in branches), otherwise.type])
    tests = [(test.of, convert(made, kind).of) for test, made in branches]
    last = convert(otherwise, kind).of

    def value(row: Row) -> object:
        for test, made in tests:
            if test(row) is True:
                return made(row)
        return last(row)

    return TypedExpression(kind, value)


def _nullif(args: Sequence[TypedExpression]) -> TypedExpression:
    left, right = args
    kind = common_type(left.type, right.type)
    one, other = convert(left, kind).of, convert(right, kind).of
    of = left.of
    return TypedExpression(left.type, lambda row: None if one(row) == other(row) else of(row))


def _concat(args: Sequence[TypedExpression]) -> TypedExpression:
    if any(isinstance(one.type, Array) for one in args):
        kind = common_type_of(one.type for one in args)
        lists = [convert(one, kind) for one in args]
        return _strict(kind, lambda *given: [item for one in given for item in one], lists)
    return _strict(STRING, lambda *given: "".join(given), [convert(one, STRING) for one in args])


def _array(args: Sequence[TypedExpression]) -> TypedExpression:
    element = common_type_of(one.type for one in args)
    of = [convert(one, element).of for one in args]
    return TypedExpression(Array(element, True), lambda row: [one(row) for one in of])


def _element(args: Sequence[TypedExpression]) -> DataType:
    kind = args[0].type
    assert isinstance(kind, Array), f"expected an array, found {kind}"
    return kind.element


def _with_element(kind: str, operation: Callable[[list[Any], Any], Any]) -> Function:
    """Return a function of an array and an element, which may be NULL where it is added."""

    def made(args: Sequence[TypedExpression]) -> TypedExpression:
        element = common_type(_element(args), args[1].type)
        items, one = convert(args[0], Array(element, True)).of, convert(args[1], element).of
        if kind == "array":
            return TypedExpression(
                Array(element, True),
                lambda row: None if (found := items(row)) is None else operation(found, one(row)),
            )
        given = [TypedExpression(Array(element, True), items), TypedExpression(element, one)]
        return _strict(BOOLEAN, operation, given)

    return made


def _contains(items: list[Any], wanted: object) -> bool | None:
    if wanted in [one for one in items if one is not None]:
        return True
    return None if None in items else False


def distinct(items: Iterable[Any]) -> list[Any]:
    """Return the items without repetitions."""
    found: list[Any] = []
    for one in items:
        if one not in found:
            found.append(one)
    return found


def _on_arrays(operation: Callable[..., list[Any]]) -> Function:
    def made(args: Sequence[TypedExpression]) -> TypedExpression:
        kind = common_type_of(one.type for one in args)
        return _strict(kind, operation, [convert(one, kind) for one in args])

    return made


def _element_at(args: Sequence[TypedExpression]) -> TypedExpression:
    def value(items: list[Any], place: int) -> object:
        if place == 0 or abs(place) > len(items):
            raise InvalidRequest(f"INVALID_ARRAY_INDEX_IN_ELEMENT_AT: {place} of {len(items)}")
        return items[place - 1 if place > 0 else place]

    return _strict(_element(args), value, args)


def at(args: Sequence[TypedExpression]) -> TypedExpression:
    """Return `items[index]`."""

    def value(items: list[Any], place: int) -> object:
        if not 0 <= place < len(items):
            raise InvalidRequest(f"INVALID_ARRAY_INDEX: {place} of {len(items)}")
        return items[place]

    return _strict(_element(args), value, args)


def _abs(args: Sequence[TypedExpression]) -> TypedExpression:
    return _strict(args[0].type, check_result(args[0].type, abs), args)


def _sort_key(value: object) -> tuple[bool, object]:
    return value is not None, value


def _to(kind: DataType) -> Function:
    return lambda args: convert(args[0], kind)


FUNCTIONS: dict[str, Function] = {
    "abs": _abs,
    "array": _array,
    "array_append": _with_element("array", lambda items, one: [*items, one]),
    "array_contains": _with_element("boolean", _contains),
    "array_distinct": _on_arrays(distinct),
    "array_except": _on_arrays(lambda one, other: distinct(x for x in one if x not in other)),
    "array_max": lambda a: _strict(
        _element(a), lambda x: max((one for one in x if one is not None), default=None), a
    ),
    "array_remove": _with_element("array", lambda items, one: [x for x in items if x != one]),
    "array_size": lambda args: _strict(INTEGER, len, args),
    "array_sort": _on_arrays(lambda x: sorted(x, key=lambda one: (one is None, one))),
    "array_union": _on_arrays(lambda one, other: distinct([*one, *other])),
    "bigint": _to(LONG),
    "boolean": _to(BOOLEAN),
    "cardinality": lambda args: _strict(INTEGER, len, args),
    "char_length": _on_texts(INTEGER, len),
    "coalesce": _coalesce,
    "concat": _concat,
    "contains": _on_texts(BOOLEAN, lambda text, part: part in text),
    "double": _to(DOUBLE),
    "element_at": _element_at,
    "endswith": _on_texts(BOOLEAN, str.endswith),
    "greatest": _extreme(max),
    "if": _if,
    "ifnull": _coalesce,
    "int": _to(INTEGER),
    "isnotnull": lambda args: TypedExpression(BOOLEAN, lambda row: args[0].of(row) is not None),
    "isnull": lambda args: TypedExpression(BOOLEAN, lambda row: args[0].of(row) is None),
    "least": _extreme(min),
    "length": _on_texts(INTEGER, len),
    "lower": _on_texts(STRING, str.lower),
    "mod": lambda args: arithmetic("%", *args),
    "nullif": _nullif,
    "nvl": _coalesce,
    "size": lambda args: _strict(INTEGER, len, args),
    "sort_array": _on_arrays(lambda x: sorted(x, key=_sort_key)),
    "startswith": _on_texts(BOOLEAN, str.startswith),
    "string": _to(STRING),
    "trim": _on_texts(STRING, lambda text: text.strip(" ")),
    "upper": _on_texts(STRING, str.upper),
}


# Operators


def check_result(kind: DataType, operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return the operation with a check that its result is a value of the type."""
    if is_integer(kind):
        assert isinstance(kind, Primitive)

        def whole(*given: object) -> object:
            made = operation(*given)
            if not values.fits(made, kind):
                raise InvalidRequest(f"ARITHMETIC_OVERFLOW: {made} is no {type_text(kind)}")
            return made

        return whole
    if is_decimal(kind):
        return lambda *given: values.rounded(operation(*given), kind)
    return (
        (lambda *given: values.to_float(operation(*given))) if kind == values.FLOAT else operation
    )


def arithmetic(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """Return `left operator right` for one of + - * / %."""
    kinds = [one.type for one in (left, right)]
    if any(map(is_decimal, kinds)):
        kinds = [one.literal or one.type for one in (left, right)]
    kind = values.arithmetic(operator, *kinds)
    if is_decimal(kind):
        operation = values.exact(_DECIMAL[operator])
        sides = [one if is_number(one.type) else convert(one, kind) for one in (left, right)]
    else:
        operation = _PLAIN[operator] if not is_float(kind) else _FLOATING[operator]
        sides = [convert(one, kind) for one in (left, right)]
    return _strict(kind, _divides(operator, check_result(kind, operation)), sides)


def _divides(operator: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    if operator not in {"/", "%", "div"}:
        return operation

    def divided(left: Any, right: Any) -> object:
        if right == 0:
            raise InvalidRequest("DIVIDE_BY_ZERO: division by zero")
        return operation(left, right)

    return divided


def integer_division(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """Return `left div right`."""
    sides = [convert(one, LONG) for one in (left, right)]

    def divided(one: int, other: int) -> int:
        made = abs(one) // abs(other)
        return made if (one < 0) == (other < 0) else -made

    return _strict(LONG, _divides("div", check_result(LONG, divided)), sides)


def negate(one: TypedExpression) -> TypedExpression:
    """Return `-one`."""
    kind = DOUBLE if one.type == STRING else one.type
    return _strict(kind, check_result(kind, lambda value: -value), [convert(one, kind)])


def _remainder(left: int, right: int) -> int:
    made = abs(left) % abs(right)
    return made if left >= 0 else -made


_PLAIN: dict[str, Callable[..., Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "%": _remainder,
}
_FLOATING: dict[str, Callable[..., Any]] = {
    **_PLAIN,
    "/": lambda left, right: left / right,
    "%": math.fmod,
}
_DECIMAL: dict[str, Callable[..., Decimal]] = {
    "+": lambda context, left, right: context.add(left, right),
    "-": lambda context, left, right: context.subtract(left, right),
    "*": lambda context, left, right: context.multiply(left, right),
    "/": lambda context, left, right: context.divide(left, right),
    "%": lambda context, left, right: context.remainder(left, right),
}


# Aggregates: what a function makes of the values of a group that are not NULL.

Aggregate = Callable[[Sequence[Any]], Any]


def aggregate(name: str, kind: DataType) -> tuple[DataType, Aggregate]:
    """Return the type and the function of an aggregate over values of a type."""
    match name:
        case "count":
            return LONG, len
        case "min":
            return kind, lambda found: min(found, default=None)
        case "max":
            return kind, lambda found: max(found, default=None)
        case "sum":
            return _sum(kind)
        case "avg" | "mean":
            assert not is_decimal(kind), "avg of decimals isn't known here"
            return DOUBLE, lambda found: sum(map(float, found)) / len(found) if found else None
        case "collect_list" | "array_agg":
            return Array(kind, False), list
        case "collect_set":
            return Array(kind, False), distinct
        case "any_value" | "first":
            return kind, lambda found: found[0] if found else None
        case "bool_and" | "every":
            return BOOLEAN, lambda found: all(found) if found else None
        case "bool_or" | "any" | "some":
            return BOOLEAN, lambda found: any(found) if found else None
    raise AssertionError(f"aggregate {name} isn't known here")


AGGREGATES = frozenset(
    {
        *("any", "any_value", "array_agg", "avg", "bool_and", "bool_or", "collect_list"),
        *("collect_set", "count", "every", "first", "max", "mean", "min", "some", "sum"),
    }
)


def _sum(kind: DataType) -> tuple[DataType, Aggregate]:
    if is_decimal(kind):
        precision, scale = values.as_decimal(kind)
        made: DataType = values.decimal_type(min(38, precision + 10), scale)
    else:
        made = LONG if is_integer(kind) or kind == VOID else DOUBLE
    total = check_result(made, lambda found: sum(found))
    return made, lambda found: total(found) if found else None
