"""The parser: binds parameters, splits a text into statements, dispatches on the first word."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from txlake.errors import InvalidRequest
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.sql import (
    alteration,
    branches,
    changes,
    control,
    creation,
    inserts,
    inspection,
    maintenance,
    scripting,
    spark_commands,
)
from txlake.sql.brackets import backquote_brackets
from txlake.sql.clauses import QUERY_WORDS, rest_query
from txlake.sql.cursor import Cursor
from txlake.sql.markers import Arguments, bind
from txlake.sql.rewriting import push_down_with, replace_piped_tables, resolve_identifiers
from txlake.sql.statements import (
    ExplainableStatement,
    ExplainConflicts,
    QueryReader,
    Select,
    SparkCommand,
    Statement,
)
from txlake.sql.tokens import Kind, SourceText, Token, describe, tokenize


def parse(
    text: str,
    args: Arguments | None = None,
    rules: TextRules = DEFAULT_RULES,
    *,
    reader: QueryReader | None = None,
) -> tuple[Statement, ...]:
    """Parse the statements of a SQL text, separated by `;`. An empty text has none.

    Args:
        text: one or several statements.
        args: values for `:name` markers (a mapping) or `?` markers (a sequence).
        rules: how the session reads texts.
        reader: finds the tables of a query that only Spark's parser understands; without a reader
            such a query is an error.

    Raises:
        InvalidRequest: a syntax error, with its line and column; a marker without a value, or a
            value without a marker.
    """
    source = replace_piped_tables(
        resolve_identifiers(replace(bind(text, args, rules), reader=reader))
    )
    return tuple(statement for statement, _, _ in statements_with_positions(source))


def statements_with_positions(source: SourceText) -> Iterator[tuple[Statement, int, int]]:
    """Yield each statement with its start and end (exclusive) in the text, without the `;`.

    Raises InvalidRequest as `parse`.
    """
    tokens = tokenize(source)
    index = 0
    while tokens[index].kind is not Kind.END:
        first = tokens[index]
        end = _statement_end(tokens, index)
        statement: Statement
        if _upper(tokens, index) == "BEGIN" and _upper(tokens, index + 1) == "ATOMIC":
            statement, index = scripting.atomic(source, tokens, index, _parse_statement)
            yield statement, first.start, tokens[index - 1].end
        elif end > index:
            end_position = tokens[end - 1].end
            statement = _parse_statement(
                source, (*tokens[index:end], Token(Kind.END, "", end_position, end_position))
            )
            index = end
            yield statement, first.start, end_position
        if tokens[index].text == ";":
            index += 1


def _statement_end(tokens: tuple[Token, ...], index: int) -> int:
    """Return the index of the next `;`, or of the end of the text."""
    while tokens[index].text != ";" and tokens[index].kind is not Kind.END:
        index += 1
    return index


def is_complete(text: str) -> bool:
    """Return whether a text ends with a `;` and has no open block, string or comment."""
    try:
        tokens = tokenize(SourceText(backquote_brackets(text), text))
    except InvalidRequest:
        return False  # a string, a quoted name or a comment is open
    return not scripting.block_depth(tokens) and len(tokens) > 1 and tokens[-2].text == ";"


def _parse_statement(source: SourceText, tokens: tuple[Token, ...]) -> Statement:
    """Parse one statement by the rule of its first word; the last token is of kind END."""
    cursor = Cursor(source, tokens)
    first = cursor.token
    if first.text == "(":
        return Select(rest_query(cursor))
    word = first.upper if first.kind is Kind.WORD else ""
    if word == "WITH":
        return _parse_with(cursor)
    if word in QUERY_WORDS:
        _refuse_several_inserts(cursor)
        return Select(rest_query(cursor))
    if word == "EXPLAIN" and _upper(tokens, 1) == "CONFLICTS":
        return ExplainConflicts(_parse_explained(source, tokens[2:]))
    rule = _RULES.get(word)
    if rule is None:
        cursor.fail("a statement (SELECT, INSERT, UPDATE, DELETE, MERGE, CREATE, BEGIN, ...)")
    statement = rule(cursor)
    if not cursor.at_end:
        cursor.fail("the end of the statement")
    return statement


def _parse_explained(source: SourceText, tokens: tuple[Token, ...]) -> ExplainableStatement:
    """Parse the statement after EXPLAIN CONFLICTS. Raises InvalidRequest unless that can conflict:
    INSERT, UPDATE, DELETE, MERGE, TRUNCATE or OPTIMIZE.
    """
    statement = None if tokens[0].kind is Kind.END else _parse_statement(source, tokens)
    if not isinstance(statement, ExplainableStatement):
        raise source.error(
            "EXPLAIN CONFLICTS takes INSERT, UPDATE, DELETE, MERGE, TRUNCATE or OPTIMIZE, found "
            f"{describe(tokens[0])}",
            tokens[0].start,
        )
    return statement


def _parse_with(cursor: Cursor) -> Statement:
    """Parse WITH ... before a query, INSERT, UPDATE, DELETE or MERGE."""
    mark = cursor.mark
    cursor.expect("WITH")
    cursor.accept("RECURSIVE")
    cursor.comma_separated(lambda: _common_table(cursor))
    with_tokens = cursor.since(mark)
    if cursor.at("INSERT"):
        return inserts.insert(cursor, with_tokens)
    _refuse_several_inserts(cursor)
    if cursor.at_any("UPDATE", "DELETE", "MERGE"):
        statement = (*cursor.remaining(), cursor.last)
        return _parse_statement(*push_down_with(cursor.source, with_tokens, statement))
    cursor.back(mark)
    return Select(rest_query(cursor))


def _refuse_several_inserts(cursor: Cursor) -> None:
    """Raise InvalidRequest at the first INSERT of a statement that begins with FROM t INSERT.

    The cursor is unmoved for any other statement.
    """
    if not cursor.at("FROM"):
        return
    mark = cursor.mark
    cursor.skip(("INSERT",))
    if cursor.at("INSERT", "INTO") or cursor.at("INSERT", "OVERWRITE"):
        cursor.refuse(
            "FROM ... INSERT isn't taken: write INSERT INTO table SELECT ... FROM ... for each "
            "table, and BEGIN before the first and COMMIT after the last to make them one "
            "transaction"
        )
    cursor.back(mark)


def _common_table(cursor: Cursor) -> None:
    """Skip name [(columns)] [MAX RECURSION LEVEL n] [AS] (query), after WITH."""
    cursor.name("the name of a common table expression")
    if cursor.at("("):
        _skip_parentheses(cursor)
    if cursor.accept("MAX", "RECURSION", "LEVEL"):
        cursor.integer()
    if cursor.accept("AS") or cursor.at("("):
        _skip_parentheses(cursor)


def _skip_parentheses(cursor: Cursor) -> None:
    """Skip a pair of parentheses with its content. Raises InvalidRequest if it isn't there."""
    opening = cursor.token
    cursor.expect("(")
    cursor.skip()
    if not cursor.accept(")"):
        cursor.refuse("this ( is never closed", opening)


def _parse_explain(cursor: Cursor) -> Statement:
    """Parse EXPLAIN of a query, or of PUBLISH BRANCH."""
    if cursor.at("EXPLAIN", "PUBLISH"):
        return branches.explain_publish(cursor)
    return spark_commands.explain(cursor)


def _parse_spark(cursor: Cursor) -> SparkCommand:
    return spark_commands.spark_command(cursor)


_RULES: Mapping[str, Callable[[Cursor], Statement]] = {
    "INSERT": inserts.insert,
    "COPY": inserts.copy_into,
    "UPDATE": changes.update,
    "DELETE": changes.delete,
    "MERGE": changes.merge,
    "TRUNCATE": changes.truncate,
    "CREATE": creation.create,
    "REPLACE": creation.replace_table,
    "DROP": creation.drop,
    "UNDROP": creation.undrop,
    "ALTER": alteration.alter,
    "COMMENT": alteration.comment_on,
    "OPTIMIZE": maintenance.optimize,
    "REORG": maintenance.reorg,
    "REPAIR": maintenance.repair,
    "MSCK": maintenance.repair,
    "VACUUM": maintenance.vacuum,
    "RESTORE": maintenance.restore,
    "GENERATE": maintenance.generate,
    "CONVERT": maintenance.convert,
    "ANALYZE": maintenance.analyze,
    "REFRESH": maintenance.refresh,
    "PUBLISH": branches.publish,
    "REBASE": branches.rebase,
    "SHOW": inspection.show,
    "DESCRIBE": inspection.describe,
    "DESC": inspection.describe,
    "USE": inspection.use,
    "BEGIN": control.begin,
    "START": control.begin,
    "COMMIT": control.commit,
    "END": control.commit,
    "ROLLBACK": control.rollback,
    "ABORT": control.rollback,
    "SAVEPOINT": control.savepoint,
    "SAVE": control.savepoint,
    "RELEASE": control.release,
    "PREPARE": control.prepare,
    "LOCK": control.lock,
    "KILL": control.kill,
    "SET": control.set_statement,
    "EXPLAIN": _parse_explain,
    "CACHE": spark_commands.cache,
    "UNCACHE": spark_commands.uncache,
    "CLEAR": _parse_spark,
    "RESET": _parse_spark,
    "DECLARE": _parse_spark,
    "EXECUTE": control.execute_immediate,
}


def _upper(tokens: tuple[Token, ...], index: int) -> str | None:
    """Return the word at an index, in capitals; None for another kind of token, and beyond the
    last.
    """
    if index >= len(tokens) or tokens[index].kind is not Kind.WORD:
        return None
    return tokens[index].upper
