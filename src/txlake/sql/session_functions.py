"""Functions and variables of the session in a SQL text: `@@TRANCOUNT`, `DB_NAME()`.

Owns their names and arguments; the session replaces them by values before Spark sees the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from txlake.sql.statements import SessionFunction
from txlake.sql.strings import string_value
from txlake.sql.tokens import Kind, SourceText, Token, words

VARIABLES = ("@@SPID", "@@TRANCOUNT")


@dataclass(frozen=True, slots=True)
class _Function:
    """The signature of a function; `literal`: its arguments are string literals."""

    arguments_min: int
    arguments_max: int
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
# Words that end a SELECT list or begin another list.
_CLAUSES = words(
    "SELECT FROM WHERE GROUP HAVING ORDER SORT DISTRIBUTE CLUSTER BY LIMIT OFFSET UNION EXCEPT"
    " MINUS INTERSECT WINDOW QUALIFY VALUES SET ON USING WHEN THEN INSERT"
)
_SPARK_COLUMN_NAMES = {"CURRENT_DATABASE": "current_schema()", "CURRENT_SCHEMA": "current_schema()"}
_BEFORE_COLUMN = words("SELECT DISTINCT ALL ,")
_AFTER_COLUMN = words(
    ", ) FROM WHERE GROUP HAVING ORDER SORT DISTRIBUTE CLUSTER LIMIT OFFSET UNION EXCEPT MINUS"
    " INTERSECT WINDOW QUALIFY"
)


def find_session_functions(
    source: SourceText, tokens: Sequence[Token]
) -> tuple[SessionFunction, ...]:
    """Return the uses of session functions in a range of tokens, in order; positions in the text.

    Raises InvalidRequest for an unknown variable and for arguments that don't fit.
    """
    uses = []
    for index, token in enumerate(tokens):
        if token.text == "@" and _adjacent(tokens, index, 3) and tokens[index + 1].text == "@":
            uses.append(_variable(source, tokens, index))
        elif (
            token.kind is Kind.WORD
            and token.upper in _FUNCTIONS
            and _text(tokens, index + 1) == "("
            and _text(tokens, index - 1) != "."
        ):
            uses.append(_function(source, tokens, index))
    return tuple(uses)


def _variable(source: SourceText, tokens: Sequence[Token], index: int) -> SessionFunction:
    """Return the use of the variable `@@name` at an index.

    Raises InvalidRequest for an unknown one.
    """
    name = f"@@{tokens[index + 2].upper}"
    start = tokens[index].start
    if name not in VARIABLES:
        known = " and ".join(VARIABLES)
        raise source.error(f"{name} is not known; of T-SQL's variables there are {known}", start)
    return _with_alias(
        source, tokens, index, index + 2, SessionFunction(name, start, tokens[index + 2].end)
    )


def _function(source: SourceText, tokens: Sequence[Token], index: int) -> SessionFunction:
    """Return the use of the function at an index.

    Raises InvalidRequest for arguments that don't fit.
    """
    token = tokens[index]
    signature = _FUNCTIONS[token.upper]
    arguments, last = _arguments(source, tokens, index + 1)
    if not signature.arguments_min <= len(arguments) <= signature.arguments_max:
        expected = f"{signature.arguments_min}"
        if signature.arguments_max > signature.arguments_min:
            expected += f" or {signature.arguments_max}"
        raise source.error(
            f"{token.upper} takes {expected} arguments, found {len(arguments)}", token.start
        )
    use = SessionFunction(token.upper, token.start, tokens[last].end)
    if not signature.literal:
        operands = tuple((part[0].start, part[-1].end) for part in arguments)
        return _with_alias(source, tokens, index, last, replace(use, operands=operands))
    for part in arguments:
        if any(word.kind is not Kind.STRING for word in part):
            raise source.error(
                f"{token.upper} takes names in quotes here, as in {token.upper}('dbo.t')",
                part[0].start,
            )
    texts = tuple(string_value(list(part)) for part in arguments)
    return _with_alias(source, tokens, index, last, replace(use, literals=texts))


def _arguments(
    source: SourceText, tokens: Sequence[Token], opening: int
) -> tuple[list[Sequence[Token]], int]:
    """Return the tokens of each argument, and the index of the closing parenthesis.

    Raises InvalidRequest for a missing argument or parenthesis.
    """
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


def _with_alias(
    source: SourceText, tokens: Sequence[Token], first: int, last: int, use: SessionFunction
) -> SessionFunction:
    """Return the use with a column alias where it is a column of a SELECT list without an alias.

    Functions that Spark has too get Spark's column name, others their text.
    """
    before, after = _upper(tokens, first - 1), _upper(tokens, last + 1)
    if before not in _BEFORE_COLUMN or (after is not None and after not in _AFTER_COLUMN):
        return use
    depth = 0
    for index in range(first - 1, -1, -1):
        word = tokens[index].upper
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(word, 0)
        if depth < 0:
            return use
        if depth == 0 and word in _CLAUSES:
            if word != "SELECT":
                return use
            alias = _SPARK_COLUMN_NAMES.get(use.name, source.text[use.start : use.end])
            return replace(use, alias=alias)
    return use


def _adjacent(tokens: Sequence[Token], index: int, count: int) -> bool:
    """Return whether `count` tokens follow each other without a space, the last one a word."""
    part = tokens[index : index + count]
    return (
        len(part) == count
        and part[-1].kind is Kind.WORD
        and all(first.end == second.start for first, second in pairwise(part))
    )


def _text(tokens: Sequence[Token], index: int) -> str | None:
    return tokens[index].text if 0 <= index < len(tokens) else None


def _upper(tokens: Sequence[Token], index: int) -> str | None:
    return tokens[index].upper if 0 <= index < len(tokens) else None
