"""Rewrites of SQL text before it is parsed.

`IDENTIFIER('...')`, `TABLE t` before a pipe, and WITH before UPDATE, DELETE or MERGE. Errors in
rewritten text point at the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from txlake.errors import InvalidRequest
from txlake.sql.cursor import Cursor
from txlake.sql.references import query_text
from txlake.sql.statements import quoted
from txlake.sql.tokens import Kind, SourceText, Token, tokenize, words

Edit = tuple[int, int, str]
"""(start, end, new text) of a replacement."""

_BEFORE_TABLES = words("FROM JOIN INTO OVERWRITE TABLE UPDATE USING OPTIMIZE VACUUM")
_QUERY_WORDS = words("SELECT WITH VALUES FROM TABLE")


def apply_edits(source: SourceText, edits: Iterable[Edit]) -> SourceText:
    """Return the text after edits, given in any order, which don't overlap.

    Positions still lead to the original.
    """
    pieces: list[str] = []
    kept = list(source.edits)
    result: list[tuple[int, int, int, int]] = []
    position = shift = 0

    def keep_until(end: int) -> None:
        """Move the earlier edits that end by then to the result."""
        while kept and kept[0][1] <= end:
            first, last, *original = kept.pop(0)
            result.append((first + shift, last + shift, original[0], original[1]))

    for start, end, new in sorted(edits):
        keep_until(start)
        while kept and kept[0][0] < end:
            kept.pop(0)
        pieces += (source.text[position:start], new)
        first, last = source.original_position(start), source.original_position(end)
        result.append((start + shift, start + shift + len(new), first, max(first, last)))
        shift += len(new) - (end - start)
        position = end
    keep_until(len(source.text))
    text = "".join(pieces) + source.text[position:]
    return replace(source, text=text, edits=tuple(result))


# --- IDENTIFIER ---------------------------------------------------------------------------------


def resolve_identifiers(source: SourceText) -> SourceText:
    """Return the text with each `IDENTIFIER('...')` replaced by its name.

    An IDENTIFIER of a variable is left to Spark, for columns and functions.

    Raises:
        InvalidRequest: the string is no name, or a table's IDENTIFIER has no string.
    """
    if "IDENTIFIER" not in source.text.upper():
        return source
    tokens = tokenize(source)
    edits: list[Edit] = []
    for index, token in enumerate(tokens):
        if (
            token.upper == "IDENTIFIER"
            and token.kind is Kind.WORD
            and tokens[index + 1].text == "("
            and not (index and tokens[index - 1].text == ".")
        ):
            cursor = Cursor(source, tokens[index + 1 :])
            cursor.expect("(")
            start = cursor.token
            text = _string_value(cursor)
            if text is not None and cursor.at(")"):
                end = cursor.advance().end
                name = _identifier_text(source, start, text, is_function=cursor.at("("))
                edits.append((token.start, end, name))
            elif index and tokens[index - 1].upper in _BEFORE_TABLES:
                cursor.fail(
                    "a string: IDENTIFIER takes strings and parameters here, joined by || or "
                    "concat; for a table that is known only when the statement runs use EXECUTE "
                    "IMMEDIATE"
                )
    return apply_edits(source, edits)


# --- TABLE t |> ... -----------------------------------------------------------------------------


def replace_piped_tables(source: SourceText) -> SourceText:
    """Return the text with `FROM t |>` for each `TABLE t |>`, which means the same.

    A table that is replaced by a view needs its name as an alias, which only FROM can give.
    """
    if "|>" not in source.text:
        return source
    tokens = tokenize(source)
    edits: list[Edit] = []
    for index, token in enumerate(tokens):
        if token.upper != "TABLE" or token.kind is not Kind.WORD:
            continue
        end = index + 2
        while tokens[end : end + 1] and tokens[end].text == ".":
            end += 2
        if tokens[end : end + 1] and tokens[end].text == "|>":
            edits.append((token.start, token.end, "FROM"))
    return apply_edits(source, edits)


def _string_value(cursor: Cursor) -> str | None:
    """Parse strings joined by `||` or `concat`, and return their value.

    None, with the cursor anywhere, for an expression that Spark has to evaluate.
    """
    text = _string_operand(cursor)
    while text is not None and cursor.accept("||"):
        more = _string_operand(cursor)
        text = None if more is None else text + more
    return text


def _string_operand(cursor: Cursor) -> str | None:
    """Parse a string, concat(...), or either in parentheses; None for anything else."""
    if cursor.token.kind is Kind.STRING:
        return cursor.string()
    cursor.accept("CONCAT")
    if not cursor.accept("("):
        return None
    text = _string_value(cursor)
    while text is not None and cursor.accept(","):
        more = _string_value(cursor)
        text = None if more is None else text + more
    return text if cursor.accept(")") else None


def _identifier_text(source: SourceText, token: Token, text: str, *, is_function: bool) -> str:
    """Return the name that IDENTIFIER's text gives, of a function or anything else, quoted so that
    no part is a keyword.

    Raises InvalidRequest, at `token`, for a text that is no name.
    """
    name_source = replace(source, text=text, original=text, edits=())
    try:
        cursor = Cursor(name_source, tokenize(name_source))
        parts = cursor.path("a name")
        cursor.expect_end()
    except InvalidRequest:
        raise source.error(
            f"{text!r} is no name: IDENTIFIER takes one like 'column' or 'database.table'",
            token.start,
        ) from None
    return ".".join(
        quoted(part, always=not is_function and part.lower() != "delta") for part in parts
    )


# --- WITH ---------------------------------------------------------------------------------------


def push_down_with(
    source: SourceText, tables: Sequence[Token], statement: Sequence[Token]
) -> tuple[SourceText, tuple[Token, ...]]:
    """Move the WITH clause before a DML statement into the statement's queries.

    Each query that names one of the clause's tables gets the whole clause; a MERGE source that is
    one of those tables becomes a query.

    Args:
        tables: the tokens of the clause.
        statement: the tokens of the statement, closed by one of kind END.

    Returns:
        The rewritten text, and the statement's tokens in it.

    Raises:
        InvalidRequest: the clause has a syntax error.
    """
    start, end = tables[0].start, tables[-1].end
    clause_query = apply_edits(source, [(end, len(source.text), " SELECT 1")])
    query_text(
        clause_query, [token for token in tokenize(clause_query) if start <= token.start][:-1]
    )
    clause = source.text[start:end]
    names = _defined_names(tables)
    edits = list(_with_edits(statement, clause, names))
    rewritten = apply_edits(source, edits)
    start = statement[0].start
    end = statement[-1].end + sum(len(new) - (last - first) for first, last, new in edits)
    inner = tuple(
        token
        for token in tokenize(rewritten)
        if token.start >= start and token.end <= end and token.kind is not Kind.END
    )
    return rewritten, (*inner, Token(Kind.END, "", inner[-1].end, inner[-1].end))


def _defined_names(tables: Sequence[Token]) -> frozenset[str]:
    """Return the names of a WITH clause's tables, in lower case."""
    depth = 0
    names = set()
    is_next = True
    for token in tables[1:]:
        if is_next and token.kind in {Kind.WORD, Kind.QUOTED} and token.upper != "RECURSIVE":
            names.add(token.name.lower())
            is_next = False
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        is_next = is_next or (token.text == "," and not depth)
    return frozenset(names)


def _with_edits(statement: Sequence[Token], clause: str, names: frozenset[str]) -> Iterable[Edit]:
    """Yield the edits that put the clause into each query that names one of its tables."""
    index = 0
    while index < len(statement):
        token = statement[index]
        following = statement[min(index + 1, len(statement) - 1)]
        if token.text == "(" and following.kind is Kind.WORD and following.upper in _QUERY_WORDS:
            end = _group_end(statement, index)
            if any(_is_table(inner, names) for inner in statement[index:end]):
                nested = following.upper == "WITH"
                yield token.end, token.end, f"{clause} {'(' if nested else ''}"
                if nested:
                    yield statement[end].start, statement[end].start, ")"
            index = end
        elif token.upper == "USING" and token.kind is Kind.WORD and _is_table(following, names):
            after = statement[min(index + 2, len(statement) - 1)]
            if after.text != ".":
                alias = f" AS {following.text}" if after.upper == "ON" else ""
                whole = f"({clause} SELECT * FROM {following.text}){alias}"
                yield following.start, following.end, whole
        index += 1


def _is_table(token: Token, names: frozenset[str]) -> bool:
    return token.kind in {Kind.WORD, Kind.QUOTED} and token.name.lower() in names


def _group_end(tokens: Sequence[Token], index: int) -> int:
    """Return the index of the parenthesis that closes the one at `index`, or of the last token."""
    depth = 0
    for position in range(index, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[position].text, 0)
        if not depth:
            return position
    return len(tokens) - 1
