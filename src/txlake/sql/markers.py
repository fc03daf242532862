"""Parameter markers: replaces `:name` and `?` in a SQL text by literals."""

from __future__ import annotations

import datetime
import math
import numbers
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from txlake.errors import InvalidRequest
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.sql.brackets import backquote_brackets
from txlake.sql.statements import SqlText
from txlake.sql.tokens import Kind, SourceText, Token, tokenize, words

Arguments = Mapping[str, object] | Sequence[object]


class WallTime(datetime.datetime):
    """A datetime without a zone as a parameter of the type TIMESTAMP_NTZ; others are TIMESTAMP."""


_LITERAL = re.compile(r"\d+|'[^'\\]*'")


def bind(text: str, arguments: Arguments | None, rules: TextRules = DEFAULT_RULES) -> SourceText:
    """Return the text with every parameter marker replaced by its value as a SQL literal.

    A mapping fills `:name` markers, a sequence `?` markers in order. A marker is recognised where
    an operand may be: `column:field` and `struct<a: int>` are left alone. Names in brackets are
    rewritten in backquotes.

    Raises:
        InvalidRequest: a marker without a value, a value without a marker or a SQL literal.
    """
    original, text = text, backquote_brackets(text)
    source = SourceText(text, original, rules=rules)
    if isinstance(arguments, (str, bytes)):
        raise InvalidRequest("the arguments of a statement are a mapping or a sequence, not a text")
    named = arguments if isinstance(arguments, Mapping) else None
    ordered = list(arguments) if arguments is not None and named is None else None
    if ":" not in text and "?" not in text and not arguments:
        return source
    used: set[str] = set()
    count = 0
    pieces: list[str] = []
    edits: list[tuple[int, int, int, int]] = []
    position = 0
    length = 0
    for name, start, end in markers(source, named or {}):
        if name is None:
            if ordered is None or count >= len(ordered):
                raise source.error(
                    f"marker {count + 1} (?) has no value; give a sequence with a value for each",
                    start,
                )
            value = ordered[count]
            count += 1
        else:
            if named is None or name not in named:
                raise source.error(
                    f"parameter :{name} has no value; give a mapping that has {name!r}", start
                )
            value = named[name]
            used.add(name)
        label = f":{name}" if name is not None else f"marker {count} (?)"
        literal = sql_literal(value, label, rules)
        if text[max(0, start - 1) : start].isalnum():
            literal = " " + literal  # `IN:p`
        if text[end : end + 1].isalnum():
            literal += " "
        pieces += (text[position:start], literal)
        length += start - position
        edits.append((length, length + len(literal), start, end))
        length += len(literal)
        position = end
    unused = [name for name in (named or {}) if name not in used]
    if unused:
        raise InvalidRequest(f"the statement has no parameter :{unused[0]}, but a value was given")
    if ordered is not None and count < len(ordered):
        raise InvalidRequest(f"{len(ordered)} values were given for {count} markers (?)")
    return replace(source, text="".join(pieces) + text[position:], edits=tuple(edits))


def is_literal(text: str) -> bool:
    """Return whether a text is a whole number or a plain string literal under any text rules."""
    return _LITERAL.fullmatch(text) is not None


def has_named_markers(text: str) -> bool:
    """Return whether a statement has markers `:name` where an operand may be.

    Raises InvalidRequest as `tokenize`.
    """
    source = SourceText(backquote_brackets(text), text)
    return any(name is not None for name, _, _ in markers(source, {}))


def spark_arguments(text: str, arguments: Arguments | None) -> Arguments | None:
    """Return the arguments as PySpark interprets them; None for None.

    Names without a marker are dropped; a datetime without a zone is in this process's zone, not the
    session's.
    """
    if isinstance(arguments, Mapping):
        source = SourceText(backquote_brackets(text), text)
        names = {name for name, _, _ in markers(source, arguments)}
        return {name: _in_zone(value) for name, value in arguments.items() if name in names}
    if isinstance(arguments, list | tuple):
        return [_in_zone(value) for value in arguments]
    return arguments


def _in_zone(value: object) -> object:
    """Return the value with datetimes without a zone in this process's zone, also inside lists."""
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.astimezone()
    if isinstance(value, list | tuple):
        return [_in_zone(element) for element in value]
    return value


def sql_literal(value: object, name: str = "the value", rules: TextRules = DEFAULT_RULES) -> str:
    """Return the SQL literal that a session with the rules reads as the value, of the same type.

    `name`: the value's name in the error message.

    Raises:
        InvalidRequest: the value has no SQL literal.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case numbers.Integral():
            number = int(value)
            if -(2**63) <= number < 2**63:
                return _number_literal(str(number))
            return _decimal_literal(Decimal(number), name)
        case float():
            if math.isfinite(value):
                return _number_literal(f"{float.__repr__(value)}D")
            return f"CAST('{float.__repr__(value)}' AS DOUBLE)"
        case Decimal():
            return _decimal_literal(value, name)
        case str():
            return _string_literal(value, rules)
        case bytes() | bytearray():
            return f"X'{value.hex()}'"
        case WallTime():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case datetime.datetime():
            # The word TIMESTAMP may name the type without a zone.
            kind = "TIMESTAMP" if rules.zoned else "TIMESTAMP_LTZ"
            return f"{kind} '{value.isoformat(sep=' ')}'"
        case datetime.timedelta():
            return _interval_literal(value)
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case SqlText(text):  # a value of EXECUTE IMMEDIATE
            return text if is_literal(text) else f"({text})"
        case list() | tuple():
            elements = (sql_literal(element, name, rules) for element in value)
            return f"array({', '.join(elements)})"
        case _:
            raise InvalidRequest(
                f"{name} is a {type(value).__name__}, which has no SQL literal: expected None, "
                "bool, int, float, Decimal, str, bytes, date, datetime, timedelta, or a list of "
                "them"
            )


def _decimal_literal(value: Decimal, name: str) -> str:
    """Return the literal. Raises InvalidRequest, by the value's `name`, if SQL can't hold it."""
    if not value.is_finite():
        raise InvalidRequest(f"{name} is the decimal {value}, which SQL can't hold")
    plain = f"{value:f}"
    digits = len(plain.replace("-", "").replace(".", "").lstrip("0"))
    if digits > 38:
        raise InvalidRequest(f"{name} has {digits} digits: a SQL decimal has at most 38")
    return _number_literal(f"{plain}BD")


def _interval_literal(value: datetime.timedelta) -> str:
    """Return the literal of an interval of days to seconds."""
    sign, size = ("-", -value) if value < datetime.timedelta(0) else ("", value)
    minutes, seconds = divmod(size.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours:02}:{minutes:02}:{seconds:02}.{size.microseconds:06}"
    return f"INTERVAL '{sign}{size.days} {clock}' DAY TO SECOND"


def _number_literal(number: str) -> str:
    # `a-:p` must not become `a--1`, which is a comment.
    return f"({number})" if number.startswith("-") else number


def _string_literal(value: str, rules: TextRules) -> str:
    """Return SQL that means the text under the session's rules: a quoted literal, or else a cast of
    its bytes.
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    literal = f"'{escaped}'"
    # A literal of bytes means the same under every setting.
    return literal if rules.agrees_on(literal) else f"CAST(X'{value.encode().hex()}' AS STRING)"


def markers(
    source: SourceText, named: Mapping[str, object]
) -> Iterator[tuple[str | None, int, int]]:
    """Yield (name, start, end) of each marker, None as the name of `?`.

    `:name` after an operand is a marker only if it is among `named` and a space is before it.
    """
    tokens = tokenize(source)
    previous: Token | None = None
    for index, token in enumerate(tokens):
        if token.text == "?":
            yield None, token.start, token.end
        elif token.text == ":":
            following = tokens[index + 1]
            if (
                following.kind is Kind.WORD
                and following.start == token.end
                and (
                    not _ends_operand(previous)
                    # `RETAIN :hours HOURS`, but not `column:field`.
                    or (following.name in named and not _adjacent(previous, token))
                )
            ):
                yield following.name, token.start, following.end
        previous = token


_BEFORE_OPERANDS = words(
    "ALL AND ANY AS BETWEEN BY CASE DISTINCT DIV ELSE ESCAPE FOR FROM HAVING ILIKE IN IS LIKE LIMIT"
    " NOT OF OFFSET ON OR REGEXP RLIKE SELECT SET SOME THEN USING VALUES WHEN WHERE"
)


def _ends_operand(token: Token | None) -> bool:
    """Return whether an operand ends with the token, so that `:` after it selects a field."""
    if token is None:
        return False
    if token.kind is Kind.WORD:
        return token.upper not in _BEFORE_OPERANDS
    return token.kind is Kind.QUOTED or token.text in {")", "]", "}"}


def _adjacent(previous: Token | None, token: Token) -> bool:
    return previous is not None and previous.end == token.start
