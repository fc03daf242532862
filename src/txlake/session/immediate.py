"""EXECUTE IMMEDIATE: the text that it evaluates becomes a statement."""

from __future__ import annotations

from txlake.errors import InvalidRequest
from txlake.log.text_rules import TextRules
from txlake.session.scripting import Ground
from txlake.sql import parse
from txlake.statements import ExecuteImmediate, Select, SqlText, Statement


def statement_of(statement: ExecuteImmediate, ground: Ground, rules: TextRules) -> Statement:
    """The statement whose text it evaluates, with the values of its markers, by the rules.

    Raises InvalidRequest for a text that isn't one statement.
    """
    text = ground.text(statement.sql)
    found = parse(text, _arguments(statement), rules)
    if len(found) != 1:
        raise InvalidRequest(
            f"EXECUTE IMMEDIATE takes one statement, found {len(found)} in {text!r}"
        )
    if isinstance(found[0], ExecuteImmediate):
        raise InvalidRequest(f"EXECUTE IMMEDIATE doesn't nest, found {text!r}")
    if statement.into and not isinstance(found[0], Select):
        raise InvalidRequest(f"EXECUTE IMMEDIATE ... INTO takes a query, found {text!r}")
    return found[0]


def _arguments(statement: ExecuteImmediate) -> dict[str, object] | list[object] | None:
    values: list[object] = [SqlText(value.text) for value, _ in statement.using]
    names = [name for _, name in statement.using if name is not None]
    if not names:
        return values or None
    if len(names) < len(values):
        raise InvalidRequest(
            "EXECUTE IMMEDIATE ... USING: expected a name (AS name) for each value or for none"
        )
    if len(set(names)) < len(names):
        raise InvalidRequest(f"EXECUTE IMMEDIATE ... USING: a name is there twice in {names}")
    return dict(zip(names, values, strict=True))
