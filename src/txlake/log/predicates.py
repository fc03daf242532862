"""Predicates over the rows of a table: the module that others import them from.

Owns binding to a schema, and properties of predicates. The nodes are in `predicate_nodes`, the SQL
in `predicate_parser`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from txlake.errors import InvalidRequest
from txlake.log.coercion import coerce, has_plain_text, instant_in_zone, instant_range, is_canonical
from txlake.log.predicate_nodes import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    LocalTime,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
    StartsWith,
)
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.log.time_zones import TimeZone
from txlake.packages import missing_package
from txlake.protocol.partition_values import PartitionScalar
from txlake.protocol.times import FarTime, is_zoned, micros_of, time_text
from txlake.protocol.types import Field, Primitive, Struct

__all__ = [
    "Always",
    "And",
    "ColumnPath",
    "Comparison",
    "In",
    "IsNull",
    "LiteralValue",
    "LocalTime",
    "Not",
    "Opaque",
    "Operator",
    "Or",
    "Predicate",
    "StartsWith",
    "Zone",
    "bind",
    "columns_of",
    "conjuncts",
    "is_deterministic",
    "has_schema_spelling",
    "path_has_schema_spelling",
    "may_depend_on_zone",
    "parse_or_opaque",
    "parse_predicate",
    "to_text",
]


Zone: TypeAlias = TimeZone | Callable[[], TimeZone] | None
"""A time zone, or a function that returns it; None where it isn't known."""


def parse_predicate(
    text: str, *, aliases: Collection[str] = (), rules: TextRules = DEFAULT_RULES
) -> Predicate:
    """Return the predicate of a SQL condition, not yet bound to a schema.

    `Opaque` where `rules`, those of the session that the text comes from, leave the text to Spark.

    A qualifier that equals one of `aliases`, or the end of one (`t` of `database.t`), is stripped
    from the columns; letter case doesn't count. Raises InvalidRequest, pointing at the place, when
    the text is not one condition, and where sqlglot isn't installed.
    """
    if not rules.agrees_on(text):
        return Opaque(text)
    try:
        from txlake.log import predicate_parser
    except ModuleNotFoundError as error:
        raise InvalidRequest(missing_package(f"the condition {text!r:.80}", error)) from error
    return predicate_parser.parse(text, aliases)


def parse_or_opaque(
    text: str, *, aliases: Collection[str] = (), rules: TextRules = DEFAULT_RULES
) -> Predicate:
    """Return the predicate of a SQL condition that Spark evaluates, as `parse_predicate` does.

    An unparsable text becomes an `Opaque`: Spark knows more SQL (`c !< 5`), and refuses what is no
    condition. Raises InvalidRequest where it is nested too deeply, and where sqlglot isn't
    installed.
    """
    try:
        return parse_predicate(text, aliases=aliases, rules=rules)
    except InvalidRequest as error:
        if isinstance(error.__cause__, RecursionError | ModuleNotFoundError):
            raise
        return Opaque(text)


def has_schema_spelling(predicate: Predicate, schema: Struct, rules: TextRules) -> bool:
    """Return whether a case-sensitive session finds the columns: they have the schema's letter
    case.

    True for other sessions, and for columns that the schema doesn't have.
    """
    return not rules.case_sensitive or all(
        path_has_schema_spelling(path, schema) for path in columns_of(predicate)
    )


def path_has_schema_spelling(path: ColumnPath, schema: Struct) -> bool:
    """Return whether a path has the schema's letter case, as far as its columns exist."""
    level: Struct | None = schema
    for name in path:
        found = None if level is None else level.find(name)
        if found is None:
            return True
        if found.name != name:
            return False
        level = found.type if isinstance(found.type, Struct) else None
    return True


def bind(predicate: Predicate, schema: Struct, *, time_zone: Zone = None) -> Predicate:
    """Return the predicate with columns and literals as the schema has them.

    Columns get the schema's spelling, literals the column's type; a comparison that no literal of
    the column's type can express becomes `Opaque`. `time_zone` is the session's, in which
    timestamps without a zone are read; it is called only if there is one. When it is None, such a
    comparison is only narrowed to what holds in every zone.

    Raises InvalidRequest naming a missing column, and the existing ones.
    """
    match predicate:
        case And(parts):
            return And(tuple(bind(part, schema, time_zone=time_zone) for part in parts))
        case Or(parts):
            return Or(tuple(bind(part, schema, time_zone=time_zone) for part in parts))
        case Not(part):
            return Not(bind(part, schema, time_zone=time_zone))
        case Comparison(column, operator, value):
            found = _resolved(column, schema)
            if found is None:
                return _opaque(predicate)
            return _comparison(found[0], operator, value, found[1], time_zone)
        case In(column, values):
            found = _resolved(column, schema)
            if found is None:
                return _opaque(predicate)
            return _membership(found[0], values, found[1], time_zone)
        case IsNull(column):
            found = _resolved(column, schema)
            return _opaque(predicate) if found is None else IsNull(found[0])
        case StartsWith(column, prefix):
            found = _resolved(column, schema)
            if found is None or not has_plain_text(found[1]):
                return _opaque(predicate)
            return StartsWith(found[0], prefix)
        case Always() | Opaque():
            return predicate


def _resolved(column: ColumnPath, schema: Struct) -> tuple[ColumnPath, Field] | None:
    """Return the column as the schema spells it; None where the path leads into a list or a map.

    Raises InvalidRequest, naming the existing columns, for a column that doesn't exist.
    """
    path: list[str] = []
    level: Struct = schema
    for place, name in enumerate(column):
        found = level.find(name)
        if found is None:
            known = ", ".join(".".join((*path, item)) for item in level.names)
            raise InvalidRequest(f"there is no column {'.'.join(column)!r}: there are {known}")
        path.append(found.name)
        if place == len(column) - 1:
            return tuple(path), found
        if not isinstance(found.type, Struct):
            return None
        level = found.type
    return None


def _comparison(
    column: ColumnPath,
    operator: Operator,
    value: LiteralValue,
    item: Field,
    time_zone: Zone,
) -> Predicate:
    """Return the bound comparison; `Opaque` if no literal of the column's type expresses it."""
    asked = Operator(operator)
    result = coerce(asked, value, item)
    if result is None:
        return _opaque(Comparison(column, asked, value))
    operator, typed = result
    if asked is Operator.SAME and operator is not asked:
        return Always(False)  # `<=>` is never unknown, not for a null either
    if not isinstance(typed, LocalTime):
        return Comparison(column, operator, typed)
    zone = time_zone() if callable(time_zone) else time_zone
    instant = None if zone is None else instant_in_zone(typed, zone)
    if instant is not None:
        return Comparison(column, operator, instant)
    return _in_any_zone(column, operator, typed)


def _in_any_zone(column: ColumnPath, operator: Operator, local: LocalTime) -> Predicate:
    """Return what a comparison with a local time implies in every zone, and an opaque remainder."""
    doubt = _opaque(Comparison(column, operator, local))
    earliest, latest = instant_range(local)
    above = Comparison(column, Operator.GREATER_OR_EQUAL, earliest)
    below = Comparison(column, Operator.LESS_OR_EQUAL, latest)
    match operator:
        case Operator.GREATER | Operator.GREATER_OR_EQUAL:
            return And((above, doubt))
        case Operator.LESS | Operator.LESS_OR_EQUAL:
            return And((below, doubt))
        case Operator.EQUAL | Operator.SAME:
            return And((above, below, doubt))
        case Operator.NOT_EQUAL:
            return doubt


def _membership(
    column: ColumnPath, values: tuple[LiteralValue, ...], item: Field, time_zone: Zone
) -> Predicate:
    """Return the bound IN, or what it comes to; `Opaque` if the column's type doesn't
    express it.
    """
    # IN uses one type for the column and all values, so one value of another kind changes all.
    parts = [_comparison(column, Operator.EQUAL, value, item, time_zone) for value in values]
    if any(isinstance(part, Opaque) for part in parts) or not _keep_type(values, item):
        return _opaque(In(column, values))
    exact: list[PartitionScalar] = []
    for part in parts:
        if not isinstance(part, Comparison) or isinstance(part.value, LocalTime):
            return Or(tuple(parts))
        if part.op is Operator.EQUAL:
            exact.append(part.value)
    # No listed value is of the column's type: false, or unknown for a null.
    return In(column, tuple(dict.fromkeys(exact))) if exact else parts[0]


def _keep_type(values: tuple[LiteralValue, ...], item: Field) -> bool:
    """Return whether comparing with each value alone means the same as IN with all of them."""
    kind = item.type
    if not isinstance(kind, Primitive) or kind.is_string:
        return isinstance(kind, Primitive)
    if not all(is_canonical(value, kind.name) for value in values if isinstance(value, str)):
        return False
    if not any(isinstance(value, float) for value in values):
        return True
    limit = 1 << 53
    return all(-limit < v < limit for v in values if isinstance(v, int | float | Decimal))


def _opaque(predicate: Comparison | In | IsNull | StartsWith) -> Opaque:
    return Opaque(to_text(predicate), frozenset({predicate.column}), True)


def columns_of(predicate: Predicate) -> frozenset[ColumnPath]:
    """Return the columns that the predicate names, as it spells them; of an `Opaque` the known
    ones.
    """
    found: set[ColumnPath] = set()
    for node in _leaves(predicate):
        match node:
            case Comparison(column) | In(column) | IsNull(column) | StartsWith(column):
                found.add(column)
            case Opaque(columns=columns) if columns is not None:
                found.update(columns)
    return frozenset(found)


def _leaves(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the parts of the predicate below AND, OR and NOT."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _leaves(part)
        case Not(part):
            yield from _leaves(part)
        case _:
            yield predicate


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Return the parts whose conjunction is the predicate; the predicate itself if it is no AND."""
    if isinstance(predicate, And):
        return tuple(inner for part in predicate.parts for inner in conjuncts(part))
    return (predicate,)


def is_deterministic(predicate: Predicate) -> bool:
    """Return whether the predicate is a function of a row's plain columns alone.

    False with subqueries, chance, the clock, unknown functions, and for a condition of which only
    the text is known.
    """
    return all(not isinstance(leaf, Opaque) or leaf.deterministic for leaf in _leaves(predicate))


def may_depend_on_zone(predicate: Predicate) -> bool:
    """Return whether the session's time zone may change which rows a bound predicate matches.

    True with a condition that isn't modelled, or a time as a literal.
    """
    return any(
        isinstance(leaf, Opaque)
        or any(isinstance(one, datetime | FarTime) for one in _literals(leaf))
        for leaf in _leaves(predicate)
    )


def _literals(leaf: Predicate) -> tuple[LiteralValue, ...]:
    """Return the values that a part compares a column with; none for other parts."""
    match leaf:
        case Comparison(_, _, value):
            return (value,)
        case In(_, values):
            return values
        case _:
            return ()


_SQL_OPERATOR = {operator: operator.value for operator in Operator}


def to_text(predicate: Predicate) -> str:
    """Return the predicate as SQL, for messages."""
    match predicate:
        case And(parts):
            return " AND ".join(_in_parentheses(part) for part in parts)
        case Or(parts):
            return " OR ".join(_in_parentheses(part) for part in parts)
        case Not(part):
            return f"NOT {_in_parentheses(part)}"
        case Comparison(column, operator, value):
            return f"{_name(column)} {_SQL_OPERATOR[operator]} {_value_text(value)}"
        case In(column, values):
            return f"{_name(column)} IN ({', '.join(_value_text(value) for value in values)})"
        case IsNull(column):
            return f"{_name(column)} IS NULL"
        case StartsWith(column, prefix):
            return f"startswith({_name(column)}, {_value_text(prefix)})"
        case Always(constant):
            return "NULL" if constant is None else str(constant).lower()
        case Opaque(text):
            return text


def _in_parentheses(part: Predicate) -> str:
    text = to_text(part)
    return f"({text})" if isinstance(part, And | Or | Opaque) else text


def _name(column: ColumnPath) -> str:
    """Return the column as SQL, with backquotes around parts that need them."""
    return ".".join(
        part if part.isidentifier() and part.isascii() else f"`{part.replace('`', '``')}`"
        for part in column
    )


def _value_text(value: LiteralValue) -> str:
    """Return the value as a SQL literal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case bytes():
            return f"X'{value.hex()}'"
        case LocalTime(wall):
            return f"TIMESTAMP '{time_text(micros_of(wall), zoned=False)}'"
        case FarTime(micros, zoned):
            return f"TIMESTAMP{'' if zoned else '_NTZ'} '{time_text(micros, zoned=zoned)}'"
        case datetime():
            return f"TIMESTAMP{'' if is_zoned(value) else '_NTZ'} '{value}'"
        case int() | float():
            return repr(value)
        case Decimal():
            return f"{value:f}"
        case date():
            return f"DATE '{value}'"
