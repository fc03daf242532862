"""The grammar of time travel: AS OF clauses and `@` suffixes in a query's tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from txlake.errors import InvalidRequest
from txlake.sql.statements import TimeTravel
from txlake.sql.statements.branches import branch_name
from txlake.sql.strings import string_value
from txlake.sql.tokens import Kind, SourceText, Token, describe, whole_number, words

_VERSION = frozenset({"VERSION", "SYSTEM_VERSION"})
_TIMESTAMP = frozenset({"TIMESTAMP", "SYSTEM_TIME"})
_PATH_SUFFIX = re.compile(r"(.+)@(?:v(\d{1,38})|(\d{17}))", re.DOTALL | re.IGNORECASE)
_NOT_TABLE_NAMES = words("SELECT DISTINCT ALL WHERE AND OR NOT ON BY HAVING WHEN THEN ELSE")
_ENDS = words(
    "ANTI AS CLUSTER CROSS DISTRIBUTE EXCEPT FULL GROUP HAVING INNER INTERSECT JOIN LATERAL LEFT"
    " LIMIT MINUS NATURAL OFFSET ON ORDER PIVOT QUALIFY RIGHT SEMI SET SORT TABLESAMPLE UNION"
    " UNPIVOT USING WHEN WHERE WINDOW WITH"
)
_OPERATORS = frozenset({"+", "-", "*", "/", "%", "||", "|", "&", "^", "~", "::", "."})
_UNITS = re.compile(r"(?:YEAR|QUARTER|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND|MILLISECOND|MICROSECOND)S?")


@dataclass(frozen=True, slots=True)
class Clause:
    """A time travel clause.

    Attributes:
        after: the end of the table's name before the clause.
        start, end: the clause's positions, `end` exclusive.
    """

    travel: TimeTravel
    after: int
    start: int
    end: int


def find_clauses(source: SourceText, tokens: Sequence[Token]) -> list[Clause]:
    """Return the time travel clauses of a query, in order. `tokens` has no END."""
    result: list[Clause] = []
    index = 1
    while index < len(tokens):
        clause = _clause(source, tokens, index)
        index += 1
        if clause is not None:
            result.append(clause)
            while index < len(tokens) and tokens[index].start < clause.end:
                index += 1
    return result


def parse_clause(
    source: SourceText, tokens: Sequence[Token], index: int
) -> tuple[TimeTravel, int] | None:
    """Parse [FOR] { VERSION | TIMESTAMP } AS OF moment at `index`.

    Return it and the index after it; None if no such clause is there. Raises InvalidRequest for an
    invalid moment.
    """
    start = index
    if _upper(tokens, index) == "FOR":
        index += 1
    kind = _upper(tokens, index)
    if kind not in _VERSION | _TIMESTAMP:
        return None
    if _upper(tokens, index + 1) != "AS" or _upper(tokens, index + 2) != "OF":
        return None
    index += 3
    if index >= len(tokens) or tokens[index].text == "," or _upper(tokens, index) in {"FROM", "AS"}:
        return None  # `SELECT x version AS of FROM t` is an alias
    value = tokens[index]
    if kind in _VERSION:
        return _version(source, value), index + 1
    end = _expression_end(tokens, index)
    if end == index:
        raise source.error("expected a timestamp", tokens[start].start)
    if any(token.upper == "SELECT" for token in tokens[index:end]):
        raise source.error("the timestamp of a time travel is a constant, no query", value.start)
    if end == index + 1 and value.kind is Kind.STRING:
        return TimeTravel(timestamp=string_value([value])), end
    text = source.text[value.start : tokens[end - 1].end]
    return TimeTravel(timestamp_expression=text), end


def _version(source: SourceText, token: Token) -> TimeTravel:
    """Return the version, branch or tag that a token after VERSION AS OF names.

    A string of digits is a version, any other one the name of a branch or a tag. Raises
    InvalidRequest if it is neither.
    """
    text = string_value([token]) if token.kind is Kind.STRING else token.text
    version = whole_number(text) if token.kind in {Kind.STRING, Kind.NUMBER} else None
    if version is not None:
        return TimeTravel(version=version)
    expected = "a version is a whole number, 0 or more, or the name of a branch or a tag in quotes"
    if token.kind is not Kind.STRING:
        raise source.error(f"{expected}, found {describe(token)}", token.start)
    try:
        return TimeTravel(branch_or_tag=branch_name(text))
    except InvalidRequest as error:
        raise source.error(f"{expected}: {error}", token.start) from error


def path_suffix(location: str) -> tuple[str, TimeTravel | None]:
    """Return a location without its `@v3` or `@20260101000000000`, and the version or time that
    this suffix gives; None without a suffix.
    """
    match = _PATH_SUFFIX.fullmatch(location)
    if match is None:
        return location, None
    return match[1], _time_travel(match[2], match[3])


def _clause(source: SourceText, tokens: Sequence[Token], index: int) -> Clause | None:
    """Return the clause or suffix at `index`; None where the token before it is no table's name."""
    name = tokens[index - 1]
    if name.kind is not Kind.QUOTED and (
        name.kind is not Kind.WORD or name.upper in _NOT_TABLE_NAMES
    ):
        return None
    suffix = _suffix(tokens, index)
    if suffix is not None:
        return suffix
    parsed = parse_clause(source, tokens, index)
    if parsed is None:
        return None
    travel, end = parsed
    return Clause(travel, name.end, tokens[index].start, tokens[end - 1].end)


def _suffix(tokens: Sequence[Token], index: int) -> Clause | None:
    """Return the suffix `@v3` or `@20260101000000000` at `index`, joined to the name; None without
    one.
    """
    if tokens[index].text != "@" or index + 1 >= len(tokens):
        return None
    name, sign, moment = tokens[index - 1], tokens[index], tokens[index + 1]
    if name.end != sign.start or sign.end != moment.start:
        return None
    match = re.fullmatch(r"v(\d{1,38})|(\d{17})", moment.text, re.IGNORECASE)
    if match is None:
        return None
    return Clause(_time_travel(match[1], match[2]), name.end, sign.start, moment.end)


def _time_travel(version: str | None, digits: str) -> TimeTravel:
    """Return the version, or the timestamp of 17 digits (yyyyMMddHHmmssSSS), exactly one of which
    is given.
    """
    if version is not None:
        return TimeTravel(version=int(version))
    day = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
    return TimeTravel(
        timestamp=f"{day} {digits[8:10]}:{digits[10:12]}:{digits[12:14]}.{digits[14:]}"
    )


def _expression_end(tokens: Sequence[Token], index: int) -> int:
    """Return the index after an expression, which ends before a clause's keyword, a comma, `;`,
    `|>`, a closing parenthesis, or a word that can only be an alias.
    """
    depth = 0
    complete = False  # an operand just ended, so only an operator continues the value
    while index < len(tokens):
        token = tokens[index]
        word = token.kind is Kind.WORD
        if token.text in {"(", "["}:
            depth += 1
        elif token.text in {")", "]"}:
            if depth == 0:
                break
            depth -= 1
        elif depth == 0:
            if token.text in {",", ";", "|>"} or (word and token.upper in _ENDS):
                break
            if word and token.upper in {"DATE", "TIMESTAMP", "INTERVAL", "TIMESTAMP_NTZ"}:
                complete = False
                index += 1
                continue
            if word and complete and token.upper == "DIV":
                complete = False
                index += 1
                continue
            if complete and (word or token.kind is Kind.QUOTED):
                interval = any(t.upper == "INTERVAL" for t in tokens[max(0, index - 4) : index])
                if not (interval and _UNITS.fullmatch(token.upper)):
                    break
        if depth == 0:
            complete = token.text not in _OPERATORS
        index += 1
    return index


def _upper(tokens: Sequence[Token], index: int) -> str | None:
    """Return the word at an index, in capitals; None for another kind of token, and beyond the
    last.
    """
    if index >= len(tokens) or tokens[index].kind is not Kind.WORD:
        return None
    return tokens[index].upper
