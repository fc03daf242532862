"""Apply the session's settings to a statement, or refuse it by the setting that it depends on.

Owns what a statement says of types, stored expressions and PARTITION clauses. How conditions and
values read is decided where they are read: `TextRules.reads`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.text_rules import TextRules, refusal_error
from txlake.protocol.type_text import parse_type, sql_text
from txlake.sql.statements import (
    AddColumns,
    AddConstraint,
    AlterColumn,
    AlterView,
    CheckConstraint,
    ColumnSpec,
    CreateTable,
    CreateView,
    Delete,
    Insert,
    Merge,
    NativeType,
    Query,
    ReadTable,
    ReplaceColumns,
    SqlText,
    Statement,
    Update,
    Write,
)

T = TypeVar("T")

_DEFINITIONS = (AddColumns, AddConstraint, AlterColumn, CreateTable, ReplaceColumns)
_CHANGES = (Delete, Insert, Merge, ReadTable, Update, Write)
_BOUNDED = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)
# As a regular expression such a name may be another column's too.
_ODD_NAME = re.compile(r"`[^`]*[^\w`][^`]*`")


def apply_rules(statement: Statement, rules: TextRules) -> Statement:
    """Return the statement with its types as the session's settings define them.

    Raises InvalidRequest, naming the setting, for a stored expression that means something else in
    other sessions, and for what txlake doesn't do as the setting has it.
    """
    if isinstance(statement, _DEFINITIONS):
        for constraint in _parts_of(statement, CheckConstraint):
            if isinstance(constraint.condition, SqlText):
                rules.check_stored(constraint.condition.text, f"constraint {constraint.name}")
        return _with_definitions(statement, rules)
    if isinstance(statement, CreateView | AlterView):
        rules.check_stored(statement.query.text, f"view {statement.view}")
    elif isinstance(statement, _CHANGES):
        _check_expressions(statement, rules)
    return statement


def _column(part: ColumnSpec, rules: TextRules) -> ColumnSpec:
    """Return a column's definition with its type by the rules. Raises as `apply_rules`."""
    what = f"column {part.name}"
    _check_default(part.default, what, rules)
    if part.generated is not None:
        rules.check_stored(part.generated, f"generated {what}")
    return replace(part, data_type=_type(part.data_type, what, rules))


def _changed_column(part: AlterColumn, rules: TextRules) -> AlterColumn:
    """Return a change of a column's definition by the rules. Raises as `apply_rules`."""
    what = f"column {'.'.join(part.column)}"
    _check_default(part.default, what, rules)
    if part.data_type is None:
        return part
    return replace(part, data_type=_type(part.data_type, what, rules))


def _check_default(default: str | None, what: str, rules: TextRules) -> None:
    """Raise InvalidRequest for a default that the settings refuse, or that isn't portable."""
    if default is None:
        return
    if rules.default_refusal is not None:
        raise refusal_error(f"{what}: DEFAULT {default}", rules.default_refusal)
    rules.check_stored(default, f"the default of {what}")


def _type(kind: str | NativeType, what: str, rules: TextRules) -> str | NativeType:
    """Return a column's type, with TIMESTAMP as the session reads it; an invalid type as it is.

    Raises InvalidRequest for CHAR and VARCHAR where a setting gives them another meaning; `what`
    begins its message.
    """
    shown = str(kind.data_type) if isinstance(kind, NativeType) else kind
    if rules.char_varchar_refusal is not None and _BOUNDED.search(shown):
        raise refusal_error(f"{what}: {shown}", rules.char_varchar_refusal)
    if isinstance(kind, NativeType) or rules.zoned or "timestamp" not in kind.lower():
        return kind
    try:
        return sql_text(parse_type(kind, zoned=False))
    except (InvalidRequest, UnsupportedFeature):
        return kind  # whoever defines the column says what is wrong


def _with_definitions(part: T, rules: TextRules) -> T:
    """Return a part of a statement with every column definition in it replaced.

    Raises as `apply_rules`.
    """
    if isinstance(part, tuple):
        return cast(T, tuple(_with_definitions(one, rules) for one in part))
    if not is_dataclass(part) or isinstance(part, type | SqlText | NativeType):
        return part
    changed = {
        item.name: new
        for item in fields(part)
        if (new := _with_definitions(old := getattr(part, item.name), rules)) is not old
        and new != old
    }
    made: Any = replace(part, **changed) if changed else part
    if isinstance(made, ColumnSpec):
        made = _column(made, rules)
    elif isinstance(made, AlterColumn):
        made = _changed_column(made, rules)
    return cast(T, made)


def _check_expressions(statement: Statement, rules: TextRules) -> None:
    """Raise InvalidRequest for names in backquotes where Spark reads them as patterns."""
    if rules.backquotes_refusal is None:
        return
    for text in _parts_of(statement, SqlText, but=Query):
        found = _ODD_NAME.search(text.text)
        if found is not None:
            raise refusal_error(f"{found[0]} in {text.text!r:.200}", rules.backquotes_refusal)


def _parts_of(part: object, kind: type[T], but: type | tuple[type, ...] = ()) -> Iterator[T]:
    """Yield the values of a type in a statement, except the ones in a value of type `but`.

    Looks into tuples and dataclasses only, and not into a value that it yields.
    """
    if isinstance(part, but):
        return
    if isinstance(part, kind):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _parts_of(one, kind, but)
    elif is_dataclass(part) and not isinstance(part, type):
        for item in fields(part):
            yield from _parts_of(getattr(part, item.name), kind, but)
