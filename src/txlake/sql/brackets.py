"""T-SQL's `[names]` as names in backquotes of the same length, so that positions hold.

A bracket after an operand is Spark's subscript, `tags[0]`; where a name or an operand may begin,
Spark has no brackets, so one there opens a name.
"""

from __future__ import annotations

import re

from txlake.sql.tokens import SourceText, words

_PIECE = re.compile(
    r"""(?P<skipped>\s+ | --[^\n]* | /\*.*?\*/)
    | (?P<operand>[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`
        | [)\]}] | \d[\w.]*)
    | (?P<word>\w+)
    | \[ (?P<name>(?:[^\]]|\]\])+) \]
    | .""",
    re.VERBOSE | re.DOTALL,
)
# Words that end no operand if a space follows.
_BEFORE_NAMES = words(
    "ADD ALL ALTER AND APPLY AS BETWEEN BY CASE CLONE COLUMN COLUMNS CONSTRAINT CROSS"
    " DATABASE DELETE DESC DESCRIBE DETAIL DISTINCT DIV DROP ELSE EXCEPT EXISTS EXTENDED"
    " FORMATTED FROM FULL HAVING HISTORY ILIKE IN INNER INTERSECT INTO IS JOIN KEY LATERAL"
    " LIKE LOCK MERGE NOT OF ON OPTIMIZE OR OVER OVERWRITE RENAME REORG RESTORE RLIKE"
    " SAVEPOINT SCHEMA SELECT SET SHOW SOME TABLE TBLPROPERTIES THEN TO TRAN TRUNCATE UPDATE"
    " USE USING VACUUM VIEW WHEN WHERE WITH"
)


def backquote_brackets(text: str) -> str:
    """Return the text with names in brackets rewritten in backquotes, of the same length.

    Raises InvalidRequest for a name in brackets that has a backquote.
    """
    if "[" not in text:
        return text
    pieces: list[str] = []
    before, is_spaced, was_name = "", True, False
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        assert match is not None
        piece, name = match[0], match["name"]
        is_name = name is not None and _opens_name(
            before, name, after_space=is_spaced, after_name=was_name
        )
        if name is not None and not is_name:
            piece = "["  # the text inside is scanned separately
        if is_name:
            if "`" in name:
                raise SourceText(text, text).error(
                    "a name with a backquote can't stand in brackets; write it in backquotes, the "
                    "one inside twice",
                    position,
                )
            inner = name.replace("]]", "]")
            pieces.append(f"`{inner}`".ljust(len(piece)))
        else:
            pieces.append(piece)
        position += len(piece)
        if match["skipped"] is not None:
            is_spaced = True
            continue
        before = ")" if is_name or match["operand"] is not None else piece
        is_spaced, was_name = False, is_name
    return "".join(pieces)


def _opens_name(before: str, name: str, *, after_space: bool, after_name: bool) -> bool:
    """Return whether a bracket opens a name, rather than a subscript or a list of Spark's.

    `before` is the word or sign before the bracket, `)` for any operand.
    """
    if before == ")":
        return (
            after_name and after_space and not name.strip().isdecimal()
        )  # an alias: `[orders] [o]`
    if before[-1:].isalnum() or before.endswith("_"):
        return after_space and before.upper() in _BEFORE_NAMES
    return before != ":"
