"""What a query or an expression asks about its session: `@@TRANCOUNT`, `DB_NAME()`.

Owns which names these are and what they take; the session answers them before Spark sees the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from txlake.sql.strings import string_value
from txlake.sql.tokens import Kind, SourceText, Token, words
from txlake.statements import Question

VARIABLES = ("@@SPID", "@@TRANCOUNT")


@dataclass(frozen=True, slots=True)
class _Function:
    """How many arguments it takes; `literal`: texts in quotes, which are read here."""

    least: int
    most: int
    literal: bool = False


_FUNCTIONS = {
    "CURRENT_DATABASE": _Function(0, 0),
    "CURRENT_SCHEMA": _Function(0, 0),
    "DB_ID": _Function(0, 1),
    "DB_NAME": _Function(0, 1),
    "OBJECT_ID": _Function(1, 2, literal=True),
    "OBJECT_NAME": _Function(1, 2),
    "XACT_STATE": _Function(0, 0),
}
# A SELECT list ends, or another list begins.
_CLAUSES = words(
    "SELECT FROM WHERE GROUP HAVING ORDER SORT DISTRIBUTE CLUSTER BY LIMIT OFFSET UNION EXCEPT"
    " MINUS INTERSECT WINDOW QUALIFY VALUES SET ON USING WHEN THEN INSERT"
)
_SPARKS_NAMES = {"CURRENT_DATABASE": "current_schema()", "CURRENT_SCHEMA": "current_schema()"}
_BEFORE_COLUMN = words("SELECT DISTINCT ALL ,")
_AFTER_COLUMN = words(
    ", ) FROM WHERE GROUP HAVING ORDER SORT DISTRIBUTE CLUSTER LIMIT OFFSET UNION EXCEPT MINUS"
    " INTERSECT WINDOW QUALIFY"
)


def questions(source: SourceText, tokens: Sequence[Token]) -> tuple[Question, ...]:
    """What a range of tokens asks, in the order of the text; positions are those of the text.

    Raises InvalidRequest for a variable that isn't known, and for arguments that don't fit.
    """
    found = []
    for index, token in enumerate(tokens):
        if token.text == "@" and _adjacent(tokens, index, 3) and tokens[index + 1].text == "@":
            found.append(_variable(source, tokens, index))
        elif (
            token.kind is Kind.WORD
            and token.upper in _FUNCTIONS
            and _text(tokens, index + 1) == "("
            and _text(tokens, index - 1) != "."
        ):
            found.append(_function(source, tokens, index))
    return tuple(found)


def _variable(source: SourceText, tokens: Sequence[Token], index: int) -> Question:
    name = f"@@{tokens[index + 2].upper}"
    start = tokens[index].start
    if name not in VARIABLES:
        known = " and ".join(VARIABLES)
        raise source.error(f"{name} is not known; of T-SQL's variables there are {known}", start)
    return _named(source, tokens, index, index + 2, Question(name, start, tokens[index + 2].end))


def _function(source: SourceText, tokens: Sequence[Token], index: int) -> Question:
    token = tokens[index]
    takes = _FUNCTIONS[token.upper]
    arguments, last = _arguments(source, tokens, index + 1)
    if not takes.least <= len(arguments) <= takes.most:
        expected = f"{takes.least}"
        if takes.most > takes.least:
            expected += f" or {takes.most}"
        raise source.error(
            f"{token.upper} takes {expected} arguments, found {len(arguments)}", token.start
        )
    found = Question(token.upper, token.start, tokens[last].end)
    if not takes.literal:
        places = tuple((part[0].start, part[-1].end) for part in arguments)
        return _named(source, tokens, index, last, replace(found, operands=places))
    for part in arguments:
        if any(one.kind is not Kind.STRING for one in part):
            raise source.error(
                f"{token.upper} takes names in quotes here, as in {token.upper}('dbo.t')",
                part[0].start,
            )
    texts = tuple(string_value(list(part)) for part in arguments)
    return _named(source, tokens, index, last, replace(found, literals=texts))


def _arguments(
    source: SourceText, tokens: Sequence[Token], opening: int
) -> tuple[list[Sequence[Token]], int]:
    """The tokens of each argument, and the index of the closing parenthesis."""
    parts: list[Sequence[Token]] = []
    depth, first = 0, opening + 1
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text, 0)
        if depth and not (depth == 1 and text == ","):
            continue
        if index > first:
            parts.append(tokens[first:index])
        elif parts or text == ",":
            raise source.error("an argument is missing", tokens[index].start)
        first = index + 1
        if not depth:
            return parts, index
    raise source.error("this ( is never closed", tokens[opening].start)


def _named(
    source: SourceText, tokens: Sequence[Token], first: int, last: int, found: Question
) -> Question:
    """Gives it a column's name as alias where it is a whole column of a SELECT list without one.

    Spark's own functions get the name that Spark gives them, the others their text.
    """
    before, after = _upper(tokens, first - 1), _upper(tokens, last + 1)
    if before not in _BEFORE_COLUMN or (after is not None and after not in _AFTER_COLUMN):
        return found
    depth = 0
    for index in range(first - 1, -1, -1):
        word = tokens[index].upper
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(word, 0)
        if depth < 0:
            return found
        if depth == 0 and word in _CLAUSES:
            if word != "SELECT":
                return found
            own = _SPARKS_NAMES.get(found.name, source.text[found.start : found.end])
            return replace(found, alias=own)
    return found


def _adjacent(tokens: Sequence[Token], index: int, count: int) -> bool:
    """Whether so many tokens follow each other without a space, the last one a word."""
    part = tokens[index : index + count]
    return (
        len(part) == count
        and part[-1].kind is Kind.WORD
        and all(one.end == other.start for one, other in pairwise(part))
    )


def _text(tokens: Sequence[Token], index: int) -> str | None:
    return tokens[index].text if 0 <= index < len(tokens) else None


def _upper(tokens: Sequence[Token], index: int) -> str | None:
    return tokens[index].upper if 0 <= index < len(tokens) else None
