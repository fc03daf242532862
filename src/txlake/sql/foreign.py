"""Statements that are Spark's alone, though their queries may read tables of a lake.

`CREATE TABLE ... USING parquet`, `INSERT OVERWRITE DIRECTORY`: a lake has no such tables and no
such directories. What the query in one reads is found as in any other, so that a lake's tables can
stand in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.sql.clauses import QUERY_WORDS, rest_query
from txlake.sql.cursor import Cursor
from txlake.sql.markers import Arguments, bind
from txlake.sql.rewriting import with_names
from txlake.sql.tokens import Kind, SourceText, Token, tokenize, words
from txlake.statements import Insert, Query, SparkCommand, SqlText, Table, TableName

_FORMATS = ("DELTA", "TXLAKE")
_NAME_PARTS_MAX = 3
_BEFORE_TABLE = words("FROM JOIN INTO OVERWRITE TABLE UPDATE USING")


@dataclass(frozen=True, slots=True)
class Foreign:
    """A statement that Spark is to carry out.

    Attributes:
        creates: the table that it creates; None for another statement.
        is_foreign: False for a CREATE TABLE that names no other format: Spark would make a Parquet
            table of what a lake's SQL refused.
    """

    command: SparkCommand
    creates: Table | None = None
    is_foreign: bool = True


def foreign(
    text: str, args: Arguments | None = None, rules: TextRules = DEFAULT_RULES
) -> Foreign | None:
    """The statement with what its query reads; None for one of another kind.

    Raises InvalidRequest for parameters without a value, and for a query that can't be read.
    """
    source = with_names(bind(text, args, rules))
    tokens = tokenize(source)
    while len(tokens) > 1 and tokens[-2].text == ";":
        place = tokens[-2].start
        tokens = (*tokens[:-2], Token(Kind.END, "", place, place))
    cursor = Cursor(source, tokens)
    if cursor.accept("CREATE"):
        return _create(cursor)
    if cursor.accept("INSERT", "OVERWRITE"):
        cursor.accept("LOCAL")
        if cursor.accept("DIRECTORY"):
            return Foreign(_command(cursor))
    return None


def _create(cursor: Cursor) -> Foreign | None:
    cursor.accept("OR", "REPLACE")
    cursor.accept("EXTERNAL")
    if not cursor.accept("TABLE"):
        return None
    cursor.accept("IF", "NOT", "EXISTS")
    table = cursor.table()
    if cursor.at("("):
        cursor.advance()
        cursor.skip()
        cursor.expect(")")
    is_foreign = _up_to_query(cursor)
    return Foreign(_command(cursor), table, is_foreign)


def _up_to_query(cursor: Cursor) -> bool:
    """Passes over the clauses before `AS query`, or over all that is left.

    Whether one of them is of another format than a lake's.
    """
    is_foreign = False
    while not cursor.at_end:
        cursor.skip(("AS", "USING", "STORED", "ROW"))
        if cursor.accept("USING"):
            is_foreign |= not cursor.at_any(*_FORMATS)
        elif cursor.accept("STORED") or cursor.accept("ROW", "FORMAT"):
            is_foreign = True
        elif cursor.accept("AS"):
            if cursor.at_any(*QUERY_WORDS) or cursor.at("("):
                break
        elif not cursor.at_end:
            cursor.advance()
    return is_foreign


def _command(cursor: Cursor) -> SparkCommand:
    """The statement, whose query begins where the cursor is, or after it."""
    if not cursor.at_end and not (cursor.at_any(*QUERY_WORDS) or cursor.at("(")):
        cursor.skip(QUERY_WORDS)
    start, source = cursor.first.start, cursor.source
    if cursor.at_end:
        return SparkCommand(SqlText(_between(source, start, cursor.token.start)))
    head = _between(source, start, cursor.token.start)
    return SparkCommand(rest_query(cursor).after(head))


def _between(source: SourceText, start: int, end: int) -> str:
    return source.text[start:end]


def insert_into_spark(text: str, statement: Insert) -> SparkCommand | None:
    """An INSERT into a table of Spark's own, with what its query reads; None without a query.

    `text`: the statement's, parameters bound.
    """
    if not isinstance(statement.source, Query):
        return None
    query = statement.source.sql
    head, found, rest = text.rpartition(query.text)
    if not found or rest.strip(" \t\r\n;"):
        return None
    return SparkCommand(query.after(head))


def tables_in(
    text: str, args: Arguments | None, rules: TextRules = DEFAULT_RULES
) -> tuple[TableName, ...]:
    """What may be names of tables in a text that the lake's SQL doesn't know.

    Raises InvalidRequest as `markers.bind`, and for a text that has no tokens.
    """
    source = with_names(bind(text, args, rules))
    cursor = Cursor(source, tokenize(source))
    found: dict[TableName, None] = {}
    while not cursor.at_end:
        if cursor.accept_any(*_BEFORE_TABLE) is None:
            cursor.advance()
        elif cursor.token.kind in {Kind.WORD, Kind.QUOTED} and not cursor.at_any(*_BEFORE_TABLE):
            parts = cursor.path("a name")
            if len(parts) <= _NAME_PARTS_MAX:
                found[TableName(parts)] = None
    return tuple(found)


def bound(text: str, args: Arguments | None, rules: TextRules = DEFAULT_RULES) -> str:
    """The text with its parameters as literals. Raises InvalidRequest as `markers.bind`."""
    return with_names(bind(text, args, rules)).text


def subject(statement: object) -> TableName | None:
    """The named table or view that a statement is about; None for a place, a query, a setting."""
    for field in ("table", "target", "view"):
        found = getattr(statement, field, None)
        if isinstance(found, TableName):
            return found
    return None
