"""EXECUTE IMMEDIATE: the text that it evaluates becomes a statement."""

from __future__ import annotations

import re

from txlake.commands.scripting import ScriptEnvironment
from txlake.errors import InvalidRequest
from txlake.log.text_rules import TextRules
from txlake.sql import has_named_markers, parse
from txlake.sql.statements import ExecuteImmediate, Select, SqlText, Statement


def statement_of(
    statement: ExecuteImmediate, environment: ScriptEnvironment, rules: TextRules
) -> Statement:
    """Parse the text that EXECUTE IMMEDIATE evaluates, with constants for its markers.

    The statement may be another EXECUTE IMMEDIATE. Raises InvalidRequest for a text that isn't one
    statement, and with INTO for one that isn't a query.
    """
    text = environment.text(statement.sql)
    found = parse(text, _arguments(statement, text, environment), rules)
    if len(found) != 1:
        raise InvalidRequest(
            f"EXECUTE IMMEDIATE takes one statement, found {len(found)} in {text!r}"
        )
    if statement.into and not isinstance(found[0], Select):
        raise InvalidRequest(f"EXECUTE IMMEDIATE ... INTO takes a query, found {text!r}")
    return found[0]


def _arguments(
    statement: ExecuteImmediate, text: str, environment: ScriptEnvironment
) -> dict[str, object] | list[object] | None:
    """Return the values of the markers: a list for `?`, by name for `:name`; None without USING.

    A value without a name that is a variable has the variable's, as in Spark. Raises InvalidRequest
    if a name is missing or used twice.
    """
    if not statement.using:
        return None
    values: list[object] = [environment.constant(value) for value, _ in statement.using]
    if not has_named_markers(text):
        return values
    names = [name or _variable(value) for value, name in statement.using]
    if None in names:
        raise InvalidRequest(
            "EXECUTE IMMEDIATE ... USING: expected a name (AS name) for each value or for none"
        )
    if len(set(names)) < len(names):
        raise InvalidRequest(f"EXECUTE IMMEDIATE ... USING: a name is there twice in {names}")
    return {str(name): value for name, value in zip(names, values, strict=True)}


def _variable(value: SqlText) -> str | None:
    return value.text if re.fullmatch(r"[^\W\d]\w*", value.text.strip()) else None
