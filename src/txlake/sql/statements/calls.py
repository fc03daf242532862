"""Checks of untrusted SQL text by the functions that it calls, without parsing it.

Owns the checks of expressions that a table stores (`stored_expression_problem`) and of SQL that is
served to others (`served_text_problem`). A call is a name before an opening parenthesis, so Spark's
tokens suffice to find every call; a text that can't be split into tokens is refused. Source:
SqlBaseLexer.g4 of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from txlake.errors import InvalidRequest
from txlake.sql.statements.functions import REFUSED, why_refused

SIZE_MAX = 1_000_000
"""The largest result, in characters or elements, that a served call may request by a literal."""

NO_PLACES = "a table is served by its name in the lake, not by a path or a LOCATION"

_PLACE = re.compile(r"[/\\:]")
_TOKEN = re.compile(
    r"""
      (?P<space>\s+ | --(?:\\\n|[^\r\n])*+ | /\*\+ | /\*(?:(?!/\*|\*/).)*+\*/)
    | (?P<text>[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]++|\\.)*+')
    | (?P<double>"(?:[^"\\]++|\\.)*+")
    | (?P<quoted>`(?:[^`]++|``)*+`)
    | (?P<word>\w+)
    | (?P<sign>[-+*/%=<>!&|^~.,:;?@()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_DOUBTFUL = {":": "://", "/": "/*"}
_DIGITS_MAX = 30
_SUBSTITUTED = "${"

# Words of Spark's grammar that may precede a parenthesis in an expression without being a call.
_SYNTAX_WORDS = """
    all and any as between by case char character dec decimal distinct div else end escape from
    ilike in interval is like not numeric on or regexp rlike some then varchar when
    cast try_cast extract overlay position substr substring timestamp timestampadd timestampdiff
    trim struct named_struct array map
"""
_SYNTAX = frozenset(_SYNTAX_WORDS.split())
_QUERY_STARTS = frozenset({"select", "with", "values", "table", "from", "map", "reduce"})
_NO_CALL_AFTER = frozenset({"into", "table", "update"})  # there, a table's columns follow its name
_NAMED_AFTER = frozenset({"as", "with", "recursive"})  # as in `AS t(a, b)`
# By function, the position of the argument that states the size of the result.
_SIZE_ARGUMENTS = {
    "array_repeat": 1,
    "histogram_numeric": 1,
    "lpad": 1,
    "randstr": 0,
    "repeat": 1,
    "rpad": 1,
    "space": 0,
}


class _Kind(Enum):
    TEXT = "text"
    DOUBLE = "double"
    QUOTED = "quoted"
    WORD = "word"
    SIGN = "sign"


_NAMES = frozenset({_Kind.WORD, _Kind.QUOTED, _Kind.DOUBLE})


@dataclass(frozen=True, slots=True)
class _Token:
    """A token; `value` is a name in lower case without its quotes, or the sign."""

    kind: _Kind
    value: str


_OPENING = _Token(_Kind.SIGN, "(")
_CLOSING = _Token(_Kind.SIGN, ")")
_COMMA = _Token(_Kind.SIGN, ",")
_PERIOD = _Token(_Kind.SIGN, ".")
_USING = _Token(_Kind.WORD, "using")


@dataclass(frozen=True, slots=True)
class Call:
    """A name before a parenthesis, its parts joined by periods.

    Attributes:
        before: the word or sign before the name.
        numbers: its arguments, as far as they are whole numbers, and None for the others.
        is_word: whether it is written without quotes, and so may be a word of the grammar.
    """

    name: str
    before: str
    numbers: Sequence[int | None]
    is_word: bool


@dataclass(slots=True)
class _OpenParenthesis:
    """A parenthesis that isn't closed yet; `name` is None where it is no call."""

    name: str | None
    before: str
    is_word: bool
    argument: list[_Token] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)

    def next_argument(self) -> None:
        self.numbers.append(_number(self.argument))
        self.argument = []

    def close(self) -> Call:
        """End the last argument and return the call, which has to have a name."""
        assert self.name is not None
        self.next_argument()
        return Call(self.name, self.before, tuple(self.numbers), self.is_word)


def function_calls(text: str) -> list[Call]:
    """Return the possible calls of a text, inner calls first; `t(a, b)` of a column list included.

    Raises InvalidRequest for a text that can't be split into tokens with certainty.
    """
    return _calls(_tokens(text))


def stored_expression_problem(text: str) -> str | None:
    """Return why a stored expression isn't evaluated; None where it may be.

    A stored expression may call only Spark's pure functions: no other function, query or program,
    no session setting or environment variable.
    """
    try:
        tokens = _tokens(text)
    except InvalidRequest as error:
        return str(error)
    if _SUBSTITUTED in text:
        return "it has ${...}, which Spark replaces by settings and variables of the environment"
    for place, token in enumerate(tokens):
        if token.kind is _Kind.WORD and token.value in {"select", "using"}:
            return f"it has the word {token.value.upper()}, and reads more than the row"
        if token == _OPENING and _starts_query(tokens[place + 1 : place + 3]):
            return "it has a query, and reads more than the row"
    for call in _calls(tokens):
        if call.is_word and call.name in _SYNTAX:
            continue
        reason = why_refused(call.name)
        if reason is not None:
            return f"it calls {call.name}(): {reason}"
    return None


def served_text_problem(text: str) -> str | None:
    """Return why a caller's SQL text isn't served; None where no function is refused by name.

    Unknown names pass, as they may be tables; the session that runs the text resolves only pure
    functions (`txlake.spark.served`). What Spark evaluates while it still resolves names is bounded
    here: computed names (IDENTIFIER) and literal sizes.
    """
    try:
        tokens = _tokens(text)
    except InvalidRequest as error:
        return str(error)
    for token, following in pairwise(tokens):
        if token == _USING and following.kind in {_Kind.TEXT, _Kind.DOUBLE}:
            return "TRANSFORM ... USING isn't served: it runs a program on the server"
        if token == _PERIOD and following.kind in _NAMES and _PLACE.search(following.value):
            return NO_PLACES
    for call in _calls(tokens):
        if call.is_word and call.name == "identifier":
            return "IDENTIFIER(...) isn't served but with one string: write the name itself"
        if call.before in _NO_CALL_AFTER:
            continue
        owner, _, last = call.name.rpartition(".")
        reason = why_refused(call.name) if owner or last in REFUSED else None
        if reason is not None:
            return f"{call.name}() isn't served: {reason}"
        size = _result_size(call)
        if size > SIZE_MAX:
            return (
                f"{call.name}(...) would make {size} characters or elements; a call of a served "
                f"statement makes at most {SIZE_MAX}"
            )
    return None


def served_expression_problem(text: str) -> str | None:
    """Return why a served expression isn't evaluated; None where it may be.

    Stricter than `served_text_problem`: in an expression a name before a parenthesis is a function,
    except for a subquery's column list, so each has to be one of Spark's pure functions.
    """
    reason = served_text_problem(text)
    if reason is not None:
        return reason
    for call in function_calls(text):
        if call.before in _NAMED_AFTER or (call.is_word and call.name in _SYNTAX):
            continue
        reason = why_refused(call.name)
        if reason is not None:
            return f"it calls {call.name}(): {reason}"
    return None


def _tokens(text: str) -> list[_Token]:
    return list(_each_token(text))


def _each_token(text: str) -> Iterator[_Token]:
    """Yield the tokens as Spark's lexer splits them.

    Raises InvalidRequest where that isn't certain.
    """
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        # Spark's lexer reads the text around `://` as one name, and an unclosed or nested comment
        # as signs.
        if match is None or (
            match[0] in _DOUBTFUL and text.startswith(_DOUBTFUL[match[0]], position)
        ):
            raise _unclear_text(text, position)
        position = match.end()
        if match.lastgroup == "space":
            continue
        kind = _Kind(match.lastgroup)
        value = match[0]
        if kind is _Kind.WORD:
            value = value.lower()
        elif kind is not _Kind.SIGN:
            value = value[1:-1].lower()
        yield _Token(kind, value)


def _unclear_text(text: str, position: int) -> InvalidRequest:
    """Return the error for a text that can't be split into tokens at a position."""
    return InvalidRequest(
        f"{text[position : position + 20]!r} isn't understood, so that it can't be known which "
        "functions the text calls"
    )


def _calls(tokens: Sequence[_Token]) -> list[Call]:
    """Return the calls in the order of their closing parentheses."""
    calls: list[Call] = []
    open_calls: list[_OpenParenthesis] = []
    for place, token in enumerate(tokens):
        if token == _OPENING:
            open_calls.append(_OpenParenthesis(*_callee(tokens, place)))
            continue
        inner = open_calls[-1] if open_calls else None
        if inner is None:
            continue
        if token == _CLOSING:
            open_calls.pop()
            if inner.name is not None:
                calls.append(inner.close())
            elif open_calls:  # `(7)` is 7
                open_calls[-1].argument += inner.argument
        elif token == _COMMA:
            inner.next_argument()
        else:
            inner.argument.append(token)
    calls += [call.close() for call in open_calls if call.name is not None]
    return calls


def _callee(tokens: Sequence[_Token], opening: int) -> tuple[str | None, str, bool]:
    """Return the name before a parenthesis, the token before that, and whether it is one word.

    The name is None where it is no call.
    """
    place = opening - 1
    if place < 0 or tokens[place].kind not in _NAMES:
        return None, "", False
    parts, first = [tokens[place].value], place
    while first >= 2 and tokens[first - 1] == _PERIOD and tokens[first - 2].kind in _NAMES:
        first -= 2
        parts.insert(0, tokens[first].value)
    is_word = tokens[place].kind is _Kind.WORD and len(parts) == 1
    return ".".join(parts), tokens[first - 1].value if first else "", is_word


def _starts_query(tokens: Sequence[_Token]) -> bool:
    """Return whether the two tokens after a parenthesis begin a query."""
    if len(tokens) < 2 or tokens[0].kind is not _Kind.WORD or tokens[0].value not in _QUERY_STARTS:
        return False
    first, second = tokens
    # `(map(...)` is a function and `(table)` a column; otherwise the word begins a query.
    is_call = second == _OPENING and first.value in {"map", "reduce"}
    return (second.kind in _NAMES or second == _OPENING) and not is_call


def _result_size(call: Call) -> int:
    """Return how many characters, elements or repetitions a call's literal arguments ask for; 0
    where they don't say.
    """
    numbers = call.numbers
    name = call.name.rpartition(".")[2]
    if name == "sequence" and len(numbers) >= 2:
        first, last = numbers[:2]
        step = (numbers[2] if len(numbers) > 2 else 1) or 1
        return 0 if first is None or last is None else abs(last - first) // abs(step) + 1
    at = _SIZE_ARGUMENTS.get(name)
    if at is None or at >= len(numbers):
        return 0
    return numbers[at] or 0


def _number(tokens: Sequence[_Token]) -> int | None:
    """Return the value of an argument that is a whole number; None for any other."""
    sign = 1
    if tokens and tokens[0].value in {"-", "+"}:
        sign = -1 if tokens[0].value == "-" else 1
        tokens = tokens[1:]
    if len(tokens) != 1 or tokens[0].kind is not _Kind.WORD:
        return None
    digits = tokens[0].value.rstrip("lsy")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    return sign * int(digits) if is_number else None
