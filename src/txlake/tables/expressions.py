"""Conditions, assignments and column names, as Python programs write them, become statement parts.

A text stays as its author wrote it; only the tables that it reads are found, where it has a query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column

from txlake.errors import InvalidRequest
from txlake.sql.references import Scope, expression_text
from txlake.sql.tokens import Kind, SourceText, tokenize
from txlake.statements import Assignment, Expression, NativeColumn, SqlText
from txlake.tables.errors import ArgumentTypeRefused, ArgumentValueRefused, refuse_text, refused

ColumnMapping = Mapping[str, "str | Column"]
Parts = tuple[str, ...]

_PART = re.compile(r"(?:`((?:[^`]|``)+)`|([^.`]+))(\.|$)")
_QUERY_WORDS = frozenset({"SELECT", "FROM", "TABLE", "VALUES"})


def condition_of(
    condition: str | Column | None, scope: Scope, argument: str = "'condition'"
) -> Expression | None:
    """A condition; None for none.

    Raises a TypeError for another type, a ParseException for an empty text, one that ends within a
    quotation, and one with a query that isn't understood.
    """
    if condition is None:
        return None
    found = _expression(condition, scope)
    if found is None:
        raise ArgumentTypeRefused(
            f"{argument} must be a Spark SQL Column or a string (an expression in SQL), found "
            f"{condition!r} of type {type(condition)}"
        )
    return found


def assignments_of(
    mapping: ColumnMapping | None, scope: Scope, argument: str
) -> tuple[Assignment, ...]:
    """The assignments of a dict from columns to values, with the columns' names split at dots.

    Raises a ValueError when there is none; a TypeError for another type, for keys that aren't text
    and values that are neither text nor columns; a ParseException as `condition_of`.
    """
    if mapping is None:
        raise ArgumentValueRefused(f"{argument} cannot be None")
    if not isinstance(mapping, dict):
        raise ArgumentTypeRefused(f"{argument} must be a dict, found to be {type(mapping)}")
    found: list[Assignment] = []
    for name, value in mapping.items():
        if not isinstance(name, str):
            raise ArgumentTypeRefused(
                f"Keys of dict in {argument} must contain only strings with column names, "
                f"found {name!r} of type {type(name)}"
            )
        expression = _expression(value, scope)
        if expression is None:
            raise ArgumentTypeRefused(
                f"Values of dict in {argument} must contain only Spark SQL Columns or strings "
                f"(expressions in SQL) as values, found {value!r} of type {type(value)}"
            )
        found.append(Assignment(column_path(name), expression))
    return tuple(found)


def column_path(name: str) -> Parts:
    """The parts of a column's name, as Spark splits it: at dots outside of backquotes.

    Raises a ParseException for an empty part or a backquote that isn't a pair's.
    """
    parts: list[str] = []
    position = 0
    while True:
        found = _PART.match(name, position)
        if found is None:
            refuse_text(
                InvalidRequest(
                    f"{name!r} is no column's name: expected parts with dots between them, each "
                    f"plain or in backquotes, at character {position + 1}"
                )
            )
        quoted: str | None = found[1]
        parts.append(found[2] if quoted is None else quoted.replace("``", "`"))
        position = found.end()
        if not found[3]:
            return tuple(parts)


def resolved(
    assignments: tuple[Assignment, ...], qualifier: Parts, columns: tuple[str, ...]
) -> tuple[Assignment, ...]:
    """The assignments with columns of the table alone: the table's own name before them is gone.

    As in Spark, a name that starts with the qualifier is the qualifier's column when there is one,
    else a field of the struct of that name.

    Args:
        qualifier: what the table is called, `("t",)` or `("db", "t")`; its last part suffices.
        columns: the table's columns.

    Raises an AnalysisException for a column assigned twice.
    """
    found: list[Assignment] = []
    seen: set[Parts] = set()
    for assignment in assignments:
        path = _unqualified(assignment.column, qualifier, columns)
        key = tuple(part.lower() for part in path)
        if key in seen:
            raise refused(
                "DELTA_CONFLICT_SET_COLUMN",
                f"column {'.'.join(path)} is assigned twice; assign each column once",
            )
        seen.add(key)
        found.append(Assignment(path, assignment.value))
    return tuple(found)


def _unqualified(path: Parts, qualifier: Parts, columns: tuple[str, ...]) -> Parts:
    known = {column.lower() for column in columns}
    folded = tuple(part.lower() for part in path)
    for start in range(len(qualifier)):
        name = tuple(part.lower() for part in qualifier[start:])
        rest = path[len(name) :]
        if not rest or folded[: len(name)] != name:
            continue
        if folded[len(name)] in known or folded[0] not in known:
            return rest
    return path


def _expression(value: object, scope: Scope) -> Expression | None:
    if isinstance(value, Column):
        return NativeColumn(value)
    if not isinstance(value, str):
        return None
    source = SourceText(value, value)
    try:
        tokens = tokenize(source)[:-1]
        if not tokens:
            raise source.error("expected an expression, found nothing", 0)
    except InvalidRequest as error:
        refuse_text(error)
    try:
        return expression_text(source, tokens, scope)
    except InvalidRequest as error:
        if any(token.kind is Kind.WORD and token.upper in _QUERY_WORDS for token in tokens):
            refuse_text(error)
        # No table is read, so nothing needs replacing, and Spark knows its own expressions best.
        return SqlText(value)
