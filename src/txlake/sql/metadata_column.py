"""`_metadata`, the hidden column with facts of a table's files, in queries.

In a query that names the column its tables get it as a normal column, which `*` must not include.
This module finds those `*`; a query where they are ambiguous is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from txlake.errors import InvalidRequest
from txlake.sql.statements import Reference, SqlText
from txlake.sql.tokens import Kind, SourceText, Token, tokenize, words

COLUMN = "_metadata"
_EXCEPT_COLUMN = f" EXCEPT ({COLUMN})"
_AFTER_SOURCES = words(
    "WHERE GROUP HAVING ORDER LIMIT OFFSET UNION EXCEPT INTERSECT MINUS WINDOW SORT CLUSTER"
    " DISTRIBUTE LATERAL QUALIFY PIVOT UNPIVOT"
)
_ADVICE = f"name the columns: beside {COLUMN} a * is understood where a SELECT reads one table"


def names_metadata(text: str) -> bool:
    """Return whether a query names the hidden column. Raises InvalidRequest as `tokenize`."""
    if COLUMN not in text.lower():
        return False
    tokens = tokenize(SourceText(text, text))
    return any(token.name.lower() == COLUMN for token in tokens)


def exclude_metadata(sql: SqlText, starts: Collection[int]) -> SqlText:
    """Return the query with `*` excluding the hidden column of the tables that start at `starts`.

    Raises InvalidRequest for a `*`, or a TABLE t, where that is ambiguous.
    """
    tokens = tokenize(SourceText(sql.text, sql.text))
    ends = [
        token.end
        for index, token in enumerate(tokens)
        if _is_star(tokens, index) and _includes_column(tokens, index, starts)
    ]
    for index, token in enumerate(tokens):
        if token.start in starts and tokens[index - 1].upper == "TABLE":
            raise InvalidRequest(f"{_ADVICE}; found TABLE {token.text}")
    return _with_except(sql, ends)


def _is_star(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a token is a `*` for columns, not of a product or of count(*)."""
    if tokens[index].text != "*" or not index:
        return False
    before = tokens[index - 1]
    if before.text == "(":
        return index < 2 or tokens[index - 2].upper != "COUNT"
    if before.text == "." and tokens[index - 2].name.lower() == COLUMN:
        return False  # the fields of the hidden column
    return before.text in {",", "."} or (
        before.kind is Kind.WORD and before.upper in {"SELECT", "DISTINCT", "ALL"}
    )


def _includes_column(tokens: Sequence[Token], index: int, starts: Collection[int]) -> bool:
    """Return whether a `*` includes the hidden column of its SELECT's table.

    Raises InvalidRequest if it does and the SELECT reads other tables too, or the `*` is in a call
    or before EXCEPT or REPLACE.
    """
    sources = _sources(tokens, index)
    depth = 0
    tables = others = 0
    for token in sources:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth:
            continue
        tables += token.start in starts
        others += token.text == "," or token.upper == "JOIN"
    following = tokens[index + 1].upper
    in_call = tokens[index - 1].text == "("
    if tables and (others or in_call or following in {"EXCEPT", "REPLACE"}):
        raise InvalidRequest(_ADVICE)
    return bool(tables)


def _sources(tokens: Sequence[Token], index: int) -> Sequence[Token]:
    """Return the tokens after FROM of the SELECT that a `*` belongs to; () without FROM."""
    depth = 0
    start = None
    for position in range(index, len(tokens)):
        token = tokens[position]
        word = token.upper if token.kind is Kind.WORD else ""
        if depth <= 0 and start is None and word == "FROM":
            start, depth = position + 1, 0
        elif start is not None and (depth < 0 or (not depth and word in _AFTER_SOURCES)):
            return tokens[start:position]
        depth += {"(": 1, ")": -1}.get(token.text, 0)
    return () if start is None else tokens[start:]


def _with_except(sql: SqlText, ends: Sequence[int]) -> SqlText:
    """Return the text with the EXCEPT clause inserted at these positions."""
    pieces: list[str] = []
    position = 0
    for end in ends:
        pieces += (sql.text[position:end], _EXCEPT_COLUMN)
        position = end

    def moved(reference: Reference) -> Reference:
        return reference.moved(len(_EXCEPT_COLUMN) * sum(end <= reference.start for end in ends))

    return replace(
        sql,
        text="".join(pieces) + sql.text[position:],
        references=tuple(map(moved, sql.references)),
    )
