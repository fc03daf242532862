"""SQL that is rewritten before it is parsed.

`IDENTIFIER('...')`, `TABLE t` before a pipe, and WITH before a change of rows.

Owns what stands for them. Errors in what was written out point at what the author wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from txlake.errors import InvalidRequest
from txlake.sql.cursor import Cursor
from txlake.sql.references import query_text
from txlake.sql.tokens import Kind, SourceText, Token, tokenize, words
from txlake.statements import quoted

Edit = tuple[int, int, str]
"""What replaces the text from a place up to another."""

_BEFORE_TABLES = words("FROM JOIN INTO OVERWRITE TABLE UPDATE USING OPTIMIZE VACUUM")
_QUERY_WORDS = words("SELECT WITH VALUES FROM TABLE")


def edited(source: SourceText, edits: Iterable[Edit]) -> SourceText:
    """The text after edits, which don't overlap; places in it lead back to the original."""
    pieces: list[str] = []
    kept = list(source.edits)
    made: list[tuple[int, int, int, int]] = []
    position = shift = 0

    def keep_until(end: int) -> None:
        while kept and kept[0][1] <= end:
            first, last, *original = kept.pop(0)
            made.append((first + shift, last + shift, original[0], original[1]))

    for start, end, new in sorted(edits):
        keep_until(start)
        while kept and kept[0][0] < end:
            kept.pop(0)
        pieces += (source.text[position:start], new)
        first, last = source.original_position(start), source.original_position(end)
        made.append((start + shift, start + shift + len(new), first, max(first, last)))
        shift += len(new) - (end - start)
        position = end
    keep_until(len(source.text))
    text = "".join(pieces) + source.text[position:]
    return replace(source, text=text, edits=tuple(made))


# --- IDENTIFIER ---------------------------------------------------------------------------------


def with_names(source: SourceText) -> SourceText:
    """The text with the name that each `IDENTIFIER('...')` stands for.

    One of a variable is left to Spark, which knows columns and functions.

    Raises:
        InvalidRequest: the text is no name, or a table's isn't told by strings.
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
            text = _joined(cursor)
            if text is not None and cursor.at(")"):
                end = cursor.advance().end
                name = _name(source, start, text, is_function=cursor.at("("))
                edits.append((token.start, end, name))
            elif index and tokens[index - 1].upper in _BEFORE_TABLES:
                cursor.fail(
                    "a string: IDENTIFIER takes strings and parameters here, joined by || or "
                    "concat; for a table that is known only when the statement runs use EXECUTE "
                    "IMMEDIATE"
                )
    return edited(source, edits)


# --- TABLE t |> ... -----------------------------------------------------------------------------


def with_from(source: SourceText) -> SourceText:
    """Return the text with `FROM t |>` for each `TABLE t |>`, which means the same.

    A table's rows need its name as an alias where they stand, and FROM alone can give one.
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
    return edited(source, edits)


def _joined(cursor: Cursor) -> str | None:
    """Strings joined by `||` or `concat`; None at what only Spark can evaluate."""
    text = _operand(cursor)
    while text is not None and cursor.accept("||"):
        more = _operand(cursor)
        text = None if more is None else text + more
    return text


def _operand(cursor: Cursor) -> str | None:
    if cursor.token.kind is Kind.STRING:
        return cursor.string()
    cursor.accept("CONCAT")
    if not cursor.accept("("):
        return None
    text = _joined(cursor)
    while text is not None and cursor.accept(","):
        more = _joined(cursor)
        text = None if more is None else text + more
    return text if cursor.accept(")") else None


def _name(source: SourceText, place: Token, text: str, *, is_function: bool) -> str:
    own = replace(source, text=text, original=text, edits=())
    try:
        cursor = Cursor(own, tokenize(own))
        parts = cursor.path("a name")
        cursor.expect_end()
    except InvalidRequest:
        raise source.error(
            f"{text!r} is no name: IDENTIFIER takes one like 'column' or 'database.table'",
            place.start,
        ) from None
    return ".".join(
        quoted(part, always=not is_function and part.lower() != "delta") for part in parts
    )


# --- WITH ---------------------------------------------------------------------------------------


def with_inside(
    source: SourceText, tables: Sequence[Token], statement: Sequence[Token]
) -> tuple[SourceText, tuple[Token, ...]]:
    """A change of rows whose queries have the WITH clause that stood before the statement.

    Each query that names one of its tables gets the whole clause; a MERGE's source that is one of
    them becomes a query.

    Args:
        tables: the tokens of the clause.
        statement: the tokens of the statement, closed by one of kind END.

    Raises:
        InvalidRequest: the clause isn't understood.
    """
    start, end = tables[0].start, tables[-1].end
    alone = edited(source, [(end, len(source.text), " SELECT 1")])
    query_text(alone, [token for token in tokenize(alone) if start <= token.start][:-1])
    clause = source.text[start:end]
    names = _defined(tables)
    edits = list(_edits(statement, clause, names))
    made = edited(source, edits)
    start = statement[0].start
    end = statement[-1].end + sum(len(new) - (last - first) for first, last, new in edits)
    inner = tuple(
        token
        for token in tokenize(made)
        if token.start >= start and token.end <= end and token.kind is not Kind.END
    )
    return made, (*inner, Token(Kind.END, "", inner[-1].end, inner[-1].end))


def _defined(tables: Sequence[Token]) -> frozenset[str]:
    """The names of a WITH clause's tables, in lower case."""
    depth = 0
    found = set()
    is_next = True
    for token in tables[1:]:
        if is_next and token.kind in {Kind.WORD, Kind.QUOTED} and token.upper != "RECURSIVE":
            found.add(token.name.lower())
            is_next = False
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        is_next = is_next or (token.text == "," and not depth)
    return frozenset(found)


def _edits(statement: Sequence[Token], clause: str, names: frozenset[str]) -> Iterable[Edit]:
    index = 0
    while index < len(statement):
        token = statement[index]
        following = statement[min(index + 1, len(statement) - 1)]
        if token.text == "(" and following.kind is Kind.WORD and following.upper in _QUERY_WORDS:
            end = _group_end(statement, index)
            if any(_is_table(one, names) for one in statement[index:end]):
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
    """The index of the parenthesis that closes the one at `index`, or of the end."""
    depth = 0
    for position in range(index, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[position].text, 0)
        if not depth:
            return position
    return len(tokens) - 1
