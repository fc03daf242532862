"""The values of SQL string literals: Spark's escapes, and adjacent literals joined."""

from __future__ import annotations

import re
from collections.abc import Sequence

from txlake.sql.tokens import Token

_ESCAPE = re.compile(
    r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))|\\$", re.DOTALL
)
_CHARACTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def string_value(tokens: Sequence[Token]) -> str:
    """Return the value of a literal, or of adjacent literals, which are joined.

    A quote written twice is that quote, as in Spark 4.
    """
    value = ""
    previous: Token | None = None
    for token in tokens:
        raw = token.text[:1] in "rR"
        body = token.text[2:-1] if raw or token.text[:1] in "nN" else token.text[1:-1]
        if (
            previous is not None
            and previous.end == token.start
            and previous.text[-1] == token.text[0]
        ):
            value += token.text[0]
        value += body if raw else _ESCAPE.sub(_unescape, body)
        previous = token
    return value


def _unescape(match: re.Match[str]) -> str:
    r"""Return the character of an escape sequence; `\%` and `\_` keep their backslash for LIKE."""
    short, long, octal, single = match.groups()
    if short is not None or long is not None:
        return chr(int(short or long, 16))
    if octal is not None:
        return chr(int(octal, 8))
    if single in {"%", "_"}:
        return f"\\{single}"  # LIKE needs them escaped
    return _CHARACTERS.get(single, single) if single is not None else "\\"
