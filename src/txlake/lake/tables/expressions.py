"""Turn conditions, assignments and column names of Python programs into parts of statements.

A SQL text stays as it was written; only the tables that its queries read are resolved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column

from txlake.errors import InvalidRequest
from txlake.lake.tables.errors import (
    ArgumentTypeRefused,
    ArgumentValueRefused,
    raise_parse_error,
    refusal,
)
from txlake.sql.references import Scope, expression_text
from txlake.sql.statements import Assignment, Expression, NativeColumn, SqlText
from txlake.sql.tokens import Kind, SourceText, tokenize

ColumnMapping = Mapping[str, "str | Column"]
Parts = tuple[str, ...]

_PART = re.compile(r"(?:`((?:[^`]|``)+)`|([^.`]+))(\.|$)")
_QUERY_WORDS = frozenset({"SELECT", "FROM", "TABLE", "VALUES"})


def condition_of(
    condition: str | Column | None, scope: Scope, argument: str = "'condition'"
) -> Expression | None:
    """Return a condition as an expression; None for None.

    Raises a TypeError for another type, a ParseException for an empty text, one that ends within a
    quotation, and one with a query that can't be parsed.
    """
    if condition is None:
        return None
    expression = _expression(condition, scope)
    if expression is None:
        raise ArgumentTypeRefused(
            f"{argument} must be a Spark SQL Column or a string (an expression in SQL), found "
            f"{condition!r} of type {type(condition)}"
        )
    return expression


def assignments_of(
    mapping: ColumnMapping | None, scope: Scope, argument: str
) -> tuple[Assignment, ...]:
    """Return the assignments of a dict from columns to values, column names split at dots.

    Raises a ValueError for None; a TypeError for another type, for keys that aren't text and values
    that are neither text nor columns; a ParseException as `condition_of`.
    """
    if mapping is None:
        raise ArgumentValueRefused(f"{argument} cannot be None")
    if not isinstance(mapping, dict):
        raise ArgumentTypeRefused(f"{argument} must be a dict, found to be {type(mapping)}")
    assignments: list[Assignment] = []
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
        assignments.append(Assignment(column_path(name), expression))
    return tuple(assignments)


def column_path(name: str) -> Parts:
    """Return the parts of a column's name, split at dots outside backquotes as Spark does.

    Raises a ParseException for an empty part or an unpaired backquote.
    """
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(name, position)
        if match is None:
            raise_parse_error(
                InvalidRequest(
                    f"{name!r} is no column's name: expected parts with dots between them, each "
                    f"plain or in backquotes, at character {position + 1}"
                )
            )
        quoted: str | None = match[1]
        parts.append(match[2] if quoted is None else quoted.replace("``", "`"))
        position = match.end()
        if not match[3]:
            return tuple(parts)


def resolve_assignments(
    assignments: tuple[Assignment, ...], qualifier: Parts, columns: tuple[str, ...]
) -> tuple[Assignment, ...]:
    """Return the assignments with the table's own name removed from their columns.

    As in Spark, a name that starts with the qualifier is a column of the qualifier if it has that
    column, else a field of the struct of that name.

    Args:
        qualifier: the table's name, `("t",)` or `("db", "t")`; its last part suffices.
        columns: the table's columns.

    Raises an AnalysisException for a column that is assigned twice.
    """
    resolved: list[Assignment] = []
    assigned: set[Parts] = set()
    for assignment in assignments:
        path = _without_qualifier(assignment.column, qualifier, columns)
        key = tuple(part.lower() for part in path)
        if key in assigned:
            raise refusal(
                "DELTA_CONFLICT_SET_COLUMN",
                f"column {'.'.join(path)} is assigned twice; assign each column once",
            )
        assigned.add(key)
        resolved.append(Assignment(path, assignment.value))
    return tuple(resolved)


def _without_qualifier(path: Parts, qualifier: Parts, columns: tuple[str, ...]) -> Parts:
    """Return a column's path without the table's name, as `resolve_assignments` says."""
    column_names = {column.lower() for column in columns}
    lower_path = tuple(part.lower() for part in path)
    for start in range(len(qualifier)):
        name = tuple(part.lower() for part in qualifier[start:])
        unqualified = path[len(name) :]
        if not unqualified or lower_path[: len(name)] != name:
            continue
        if lower_path[len(name)] in column_names or lower_path[0] not in column_names:
            return unqualified
    return path


def _expression(value: object, scope: Scope) -> Expression | None:
    """Return a Column or SQL text as an expression; None for any other type.

    Raises a ParseException for an empty text, one that ends within a quotation, and one with a
    query that can't be parsed. Any other text is left to Spark.
    """
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
        raise_parse_error(error)
    try:
        return expression_text(source, tokens, scope)
    except InvalidRequest as error:
        if any(token.kind is Kind.WORD and token.upper in _QUERY_WORDS for token in tokens):
            raise_parse_error(error)
        # No table is read, so nothing needs replacing, and Spark knows its own expressions best.
        return SqlText(value)
