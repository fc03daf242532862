"""Judge a SQL text by the functions that it calls, without parsing it.

Owns the one judgement of texts of other people: expressions that a table keeps
(`refusal_of_stored`) and SQL that is served (`refusal_of_served`). A call is a name before an
opening parenthesis, so the tokens of Spark's grammar are enough to find all of them, and a text
that can't be split into tokens is refused. Source: SqlBaseLexer.g4 of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from txlake.errors import InvalidRequest
from txlake.statements.functions import REFUSED, why_refused

SIZE_MAX = 1_000_000
"""Characters or elements that one call of a served statement may be given as a number to make."""

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

# Words of the grammar that may stand before a parenthesis in an expression, and call nothing.
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
# Where a call's arguments have the size of what it makes.
_SIZES = {
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
class _Open:
    """A parenthesis that isn't closed yet; `name` is None where nothing is called."""

    name: str | None
    before: str
    is_word: bool
    argument: list[_Token] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)

    def next_argument(self) -> None:
        self.numbers.append(_number(self.argument))
        self.argument = []

    def ended(self) -> Call:
        assert self.name is not None
        self.next_argument()
        return Call(self.name, self.before, tuple(self.numbers), self.is_word)


def calls_in(text: str) -> list[Call]:
    """Return what a text may call, each after what it has inside; tables before columns included.

    Raises InvalidRequest for a text that can't be taken apart with certainty.
    """
    return _calls(_tokens(text))


def refusal_of_stored(text: str) -> str | None:
    """Return why an expression that a table keeps isn't evaluated; None where it may be.

    It may call Spark's pure functions and nothing else: no other function, no query, no program, no
    setting of the session or variable of the environment.
    """
    try:
        tokens = _tokens(text)
    except InvalidRequest as error:
        return str(error)
    if _SUBSTITUTED in text:
        return "it has ${...}, which Spark replaces by settings and variables of the environment"
    for place, one in enumerate(tokens):
        if one.kind is _Kind.WORD and one.value in {"select", "using"}:
            return f"it has the word {one.value.upper()}, and reads more than the row"
        if one == _OPENING and _starts_query(tokens[place + 1 : place + 3]):
            return "it has a query, and reads more than the row"
    for call in _calls(tokens):
        if call.is_word and call.name in _SYNTAX:
            continue
        reason = why_refused(call.name)
        if reason is not None:
            return f"it calls {call.name}(): {reason}"
    return None


def refusal_of_served(text: str) -> str | None:
    """Return why a SQL text of a caller isn't served; None where nothing in it is refused by name.

    Names that aren't Spark's pass, as they may be tables; the session that runs the text finds none
    but pure functions (`txlake.spark.served`). What is evaluated while Spark still looks for names
    is bounded here: names that are computed, and sizes that are written as numbers.
    """
    try:
        tokens = _tokens(text)
    except InvalidRequest as error:
        return str(error)
    for one, following in pairwise(tokens):
        if one == _USING and following.kind in {_Kind.TEXT, _Kind.DOUBLE}:
            return "TRANSFORM ... USING isn't served: it runs a program on the server"
        if one == _PERIOD and following.kind in _NAMES and _PLACE.search(following.value):
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
        size = _size(call)
        if size > SIZE_MAX:
            return (
                f"{call.name}(...) would make {size} characters or elements; a call of a served "
                f"statement makes at most {SIZE_MAX}"
            )
    return None


def refusal_of_expression(text: str) -> str | None:
    """Return why a served expression isn't evaluated; as `refusal_of_served`, and by more.

    Names before a parenthesis are functions there, apart from the names of a subquery's columns:
    each has to be one of Spark's pure functions.
    """
    reason = refusal_of_served(text)
    if reason is not None:
        return reason
    for call in calls_in(text):
        if call.before in _NAMED_AFTER or (call.is_word and call.name in _SYNTAX):
            continue
        reason = why_refused(call.name)
        if reason is not None:
            return f"it calls {call.name}(): {reason}"
    return None


def _tokens(text: str) -> list[_Token]:
    return list(_each_token(text))


def _each_token(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        # Spark's lexer makes one name of what is around `://`. A comment that isn't closed, or has
        # another one in it, is taken for signs.
        if found is None or (
            found[0] in _DOUBTFUL and text.startswith(_DOUBTFUL[found[0]], position)
        ):
            raise _unclear(text, position)
        position = found.end()
        if found.lastgroup == "space":
            continue
        kind = _Kind(found.lastgroup)
        value = found[0]
        if kind is _Kind.WORD:
            value = value.lower()
        elif kind is not _Kind.SIGN:
            value = value[1:-1].lower()
        yield _Token(kind, value)


def _unclear(text: str, position: int) -> InvalidRequest:
    return InvalidRequest(
        f"{text[position : position + 20]!r} isn't understood, so that it can't be known which "
        "functions the text calls"
    )


def _calls(tokens: Sequence[_Token]) -> list[Call]:
    """The calls, in the order in which they end."""
    found: list[Call] = []
    open_calls: list[_Open] = []
    for place, token in enumerate(tokens):
        if token == _OPENING:
            open_calls.append(_Open(*_called(tokens, place)))
            continue
        inner = open_calls[-1] if open_calls else None
        if inner is None:
            continue
        if token == _CLOSING:
            open_calls.pop()
            if inner.name is not None:
                found.append(inner.ended())
            elif open_calls:  # `(7)` is 7
                open_calls[-1].argument += inner.argument
        elif token == _COMMA:
            inner.next_argument()
        else:
            inner.argument.append(token)
    found += [one.ended() for one in open_calls if one.name is not None]
    return found


def _called(tokens: Sequence[_Token], opening: int) -> tuple[str | None, str, bool]:
    """The name before a parenthesis, what is before that, and whether it is a word of its own."""
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
    """Whether the two tokens after a parenthesis begin a query."""
    if len(tokens) < 2 or tokens[0].kind is not _Kind.WORD or tokens[0].value not in _QUERY_STARTS:
        return False
    first, second = tokens
    # `(map(...)` is a function and `(table)` a column; what else begins so is a query.
    is_call = second == _OPENING and first.value in {"map", "reduce"}
    return (second.kind in _NAMES or second == _OPENING) and not is_call


def _size(call: Call) -> int:
    """How much a call makes, by the numbers it is given; 0 where none says it."""
    numbers = call.numbers
    name = call.name.rpartition(".")[2]
    if name == "sequence" and len(numbers) >= 2:
        first, last = numbers[:2]
        step = (numbers[2] if len(numbers) > 2 else 1) or 1
        return 0 if first is None or last is None else abs(last - first) // abs(step) + 1
    at = _SIZES.get(name)
    if at is None or at >= len(numbers):
        return 0
    return numbers[at] or 0


def _number(tokens: Sequence[_Token]) -> int | None:
    """The whole number that an argument is; None for any other."""
    sign = 1
    if tokens and tokens[0].value in {"-", "+"}:
        sign = -1 if tokens[0].value == "-" else 1
        tokens = tokens[1:]
    if len(tokens) != 1 or tokens[0].kind is not _Kind.WORD:
        return None
    digits = tokens[0].value.rstrip("lsy")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    return sign * int(digits) if is_number else None
