"""Statements on Spark's own tables and directories, whose queries may read tables of a lake.

`CREATE TABLE ... USING parquet`, `INSERT OVERWRITE DIRECTORY`: a lake has no such tables or
directories. The references of their queries are found as in any query.
"""

from __future__ import annotations

from dataclasses import dataclass

from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.sql.clauses import QUERY_WORDS, rest_query
from txlake.sql.cursor import Cursor
from txlake.sql.markers import Arguments, bind
from txlake.sql.rewriting import resolve_identifiers
from txlake.sql.statements import Insert, Query, SparkCommand, SqlText, Table, TableName
from txlake.sql.tokens import Kind, SourceText, Token, tokenize, words

_FORMATS = ("DELTA", "TXLAKE")
_NAME_PARTS_MAX = 3
_BEFORE_TABLE = words("FROM JOIN INTO OVERWRITE TABLE UPDATE USING")


@dataclass(frozen=True, slots=True)
class SparkStatement:
    """A statement that Spark carries out.

    Attributes:
        creates: the table that CREATE TABLE creates; None for other statements.
        is_foreign: False for a CREATE TABLE without another format: Spark would create a Parquet
            table where the lake's SQL has refused the statement.
    """

    command: SparkCommand
    creates: Table | None = None
    is_foreign: bool = True


def parse_spark_statement(
    text: str, args: Arguments | None = None, rules: TextRules = DEFAULT_RULES
) -> SparkStatement | None:
    """Parse CREATE TABLE or INSERT OVERWRITE DIRECTORY as a statement for Spark.

    None for any other statement. Raises InvalidRequest for parameters without a value, and for a
    query with a syntax error.
    """
    source = resolve_identifiers(bind(text, args, rules))
    tokens = tokenize(source)
    while len(tokens) > 1 and tokens[-2].text == ";":
        position = tokens[-2].start
        tokens = (*tokens[:-2], Token(Kind.END, "", position, position))
    cursor = Cursor(source, tokens)
    if cursor.accept("CREATE"):
        return _create(cursor)
    if cursor.accept("INSERT", "OVERWRITE"):
        cursor.accept("LOCAL")
        if cursor.accept("DIRECTORY"):
            return SparkStatement(_command(cursor))
    return None


def _create(cursor: Cursor) -> SparkStatement | None:
    """Parse [OR REPLACE] [EXTERNAL] TABLE t ..., after CREATE; None if TABLE isn't next."""
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
    is_foreign = _skip_to_query(cursor)
    return SparkStatement(_command(cursor), table, is_foreign)


def _skip_to_query(cursor: Cursor) -> bool:
    """Skip the clauses before `AS query`, or all clauses.

    Return whether one of them names another format than a lake's.
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
    """Return the statement, whose query begins at the cursor or after it, and consume the rest."""
    if not cursor.at_end and not (cursor.at_any(*QUERY_WORDS) or cursor.at("(")):
        cursor.skip(QUERY_WORDS)
    start, source = cursor.first.start, cursor.source
    if cursor.at_end:
        return SparkCommand(SqlText(_between(source, start, cursor.token.start)))
    head = _between(source, start, cursor.token.start)
    return SparkCommand(rest_query(cursor).with_prefix(head))


def _between(source: SourceText, start: int, end: int) -> str:
    return source.text[start:end]


def insert_into_spark(text: str, statement: Insert) -> SparkCommand | None:
    """Return an INSERT into a table of Spark's own as a command for Spark.

    None for an INSERT without a query, or with something after it. `text` is the statement's text,
    parameters bound.
    """
    if not isinstance(statement.source, Query):
        return None
    query = statement.source.sql
    head, matched, rest = text.rpartition(query.text)
    if not matched or rest.strip(" \t\r\n;"):
        return None
    return SparkCommand(query.with_prefix(head))


def possible_table_names(
    text: str, args: Arguments | None, rules: TextRules = DEFAULT_RULES
) -> tuple[TableName, ...]:
    """Return the possible names of tables in a text that the lake's SQL can't parse.

    Each name is there once, in the order of the text. Raises InvalidRequest as `markers.bind`, for
    a text that can't be split into tokens, and for a name that ends in a dot.
    """
    source = resolve_identifiers(bind(text, args, rules))
    cursor = Cursor(source, tokenize(source))
    names: dict[TableName, None] = {}
    while not cursor.at_end:
        if cursor.accept_any(*_BEFORE_TABLE) is None:
            cursor.advance()
        elif cursor.token.kind in {Kind.WORD, Kind.QUOTED} and not cursor.at_any(*_BEFORE_TABLE):
            parts = cursor.path("a name")
            if len(parts) <= _NAME_PARTS_MAX:
                names[TableName(parts)] = None
    return tuple(names)


def bind_text(text: str, args: Arguments | None, rules: TextRules = DEFAULT_RULES) -> str:
    """Return the text with its parameters as literals. Raises InvalidRequest as `markers.bind`."""
    return resolve_identifiers(bind(text, args, rules)).text


def target_name(statement: object) -> TableName | None:
    """Return the named table or view of a statement; None for a path table, a query, a setting."""
    for field in ("table", "target", "view"):
        name = getattr(statement, field, None)
        if isinstance(name, TableName):
            return name
    return None
