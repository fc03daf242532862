"""The tokenizer: a SQL text as tokens with positions, and errors that point into the text."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum

from sqlglot import Token as SqlglotToken
from sqlglot import TokenType
from sqlglot.errors import TokenError

from txlake.errors import InvalidRequest
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.sql.dialect import dialect_of
from txlake.sql.statements import QueryReader

_WORD = re.compile(r"\w+")
_WORDS = re.compile(r"\w+(\s+\w+)*")
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[lLsSyYdDfF]|[bB][dD])?")
_DIGITS_MAX = 38
_STRINGS = {
    TokenType.STRING,
    TokenType.RAW_STRING,
    TokenType.NATIONAL_STRING,
}
_SINGLE_SIGNS = {TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN}
_SKIPPED = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/""",
    re.VERBOSE | re.DOTALL,
)
_OPENING = re.compile(r"'|\"|`|/\*")


def words(text: str) -> frozenset[str]:
    """Return the set of the words of a text."""
    return frozenset(text.split())


class Kind(Enum):
    """The kind of a token."""

    WORD = "a word"
    QUOTED = "a name in backquotes"
    STRING = "a string"
    BYTES = "bytes"
    NUMBER = "a number"
    SYMBOL = "a sign"
    END = "the end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token: `text` is the source text from `start` to `end` (exclusive).

    `name`: the identifier of a word or a quoted name. `upper`: a word in capitals, else `text`.
    """

    kind: Kind
    text: str
    start: int
    end: int
    name: str = ""
    upper: str = ""


@dataclass(frozen=True, slots=True)
class SourceText:
    """The SQL to parse, with the mapping of positions to the caller's text.

    Attributes:
        text: the SQL after parameters and other edits.
        original: the caller's SQL.
        edits: (start in `text`, end in `text`, start in `original`, end in `original`) of each
            edit, ascending.
        reader: finds the tables of a query that sqlglot can't parse; None without Spark.
        rules: the session's rules for reading texts.
    """

    text: str
    original: str
    edits: tuple[tuple[int, int, int, int], ...] = ()
    reader: QueryReader | None = None
    rules: TextRules = DEFAULT_RULES

    def original_position(self, position: int) -> int:
        """Return the position in `original` of one in `text`.

        For a parameter, that of its marker.
        """
        shift = 0
        for start, end, original_start, original_end in self.edits:
            if position < start:
                break
            if position < end:
                return original_start
            shift = original_end - end
        return position + shift

    def error(self, problem: str, position: int) -> InvalidRequest:
        """Return an error that shows the position: line, column, the line itself and a caret."""
        offset = self.original_position(position)
        starts = [0, *(match.end() for match in re.finditer(r"\n", self.original))]
        line = bisect_right(starts, offset)
        column = offset - starts[line - 1] + 1
        line_text = self.original[starts[line - 1] :].split("\n", 1)[0].rstrip()
        first = max(0, column - 81)
        window = line_text[first : first + 120].replace("\t", " ")
        cut = "..." if first else ""
        caret = " " * (len(cut) + column - 1 - first) + "^"
        return InvalidRequest(
            f"the SQL is not understood at line {line}, column {column}: {problem}\n"
            f"  {cut}{window}\n  {caret}"
        )


_SURROGATE = re.compile("[\ud800-\udfff]")


def tokenize(source: SourceText) -> tuple[Token, ...]:
    """Split a text into tokens without its comments, closed by a token of kind END.

    Raises:
        InvalidRequest: a string, a quoted name or a comment isn't closed, or the text has a lone
            surrogate, which no encoding can represent.
    """
    text = source.text
    half = _SURROGATE.search(text)
    if half is not None:
        raise source.error(f"{half[0]!r} is half a character", half.start())
    try:
        raw = dialect_of(source.rules).tokenize(text)
    except TokenError as error:
        position = _unclosed_position(text)
        sign = text[position : position + 2] if text[position] == "/" else text[position]
        problem = f"what {sign} opens here is never closed"
        raise source.error(problem, position) from error
    tokens: list[Token] = []
    position = 0
    for token in raw:
        if token.start < position:
            continue  # sqlglot makes a type of a number's suffix, at the number's position
        for converted in _converted(text, token):
            tokens.append(converted)
            position = converted.end
    end = tokens[-1].end if tokens else len(text)
    return (*tokens, Token(Kind.END, "", end, end))


def whole_number(text: str) -> int | None:
    """Return the value of decimal digits; None for another text.

    Also None for more than 38 digits, which no type of SQL has.
    """
    return int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else None


def describe(token: Token) -> str:
    """Return the name of a token in messages, at most 40 characters of its text."""
    if token.kind is Kind.END:
        return "the end of the statement"
    return repr(token.text if len(token.text) <= 40 else token.text[:37] + "...")


def _converted(text: str, token: SqlglotToken) -> list[Token]:
    """Return sqlglot's token as ours; one with several words gives one for each."""
    start, end = token.start, token.end + 1
    piece = text[start:end]
    if token.token_type is TokenType.IDENTIFIER:
        return [Token(Kind.QUOTED, piece, start, end, name=token.text, upper=piece)]
    if token.token_type in _STRINGS:
        return [Token(Kind.STRING, piece, start, end, upper=piece)]
    if token.token_type is TokenType.HEX_STRING:
        return [Token(Kind.BYTES, piece, start, end, upper=piece)]
    if token.token_type is TokenType.NUMBER and _NUMBER.fullmatch(piece):
        return [Token(Kind.NUMBER, piece, start, end, upper=piece)]
    if token.token_type in _SINGLE_SIGNS:
        return [Token(Kind.SYMBOL, piece, start, end, upper=piece)]
    if _WORDS.fullmatch(piece):
        return [
            Token(
                Kind.WORD,
                word[0],
                start + word.start(),
                start + word.end(),
                name=word[0],
                upper=word[0].upper(),
            )
            for word in _WORD.finditer(piece)
        ]
    return [Token(Kind.SYMBOL, piece, start, end, upper=piece)]


def _unclosed_position(text: str) -> int:
    """Return the position of the first quote or comment that is never closed.

    The last position of the text if there is none.
    """
    position = 0
    while True:
        opening = _OPENING.search(text, position)
        comment = text.find("--", position)
        if comment >= 0 and (opening is None or comment < opening.start()):
            line_end = text.find("\n", comment)
            if line_end < 0:
                return comment
            position = line_end
            continue
        if opening is None:
            return max(0, len(text) - 1)
        closed = _SKIPPED.match(text, opening.start())
        if closed is None:
            return opening.start()
        position = closed.end()
