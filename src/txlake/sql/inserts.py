"""The grammar of INSERT, with all of its clauses, and of COPY INTO."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from txlake.sql import fabric_copy
from txlake.sql.clauses import (
    QUERY_WORDS,
    alias,
    expression,
    properties,
    rest_query,
    scope_of,
    value,
)
from txlake.sql.constants import NotConstantError, constant, values_rows
from txlake.sql.cursor import Cursor
from txlake.sql.references import Scope, expression_text, query_text, relation_query
from txlake.sql.statements import (
    ComputedValues,
    Constant,
    CopyInto,
    Default,
    Insert,
    PartitionValue,
    Query,
    Source,
    SqlText,
    Values,
)
from txlake.sql.tokens import Kind, Token


def insert(cursor: Cursor, with_tokens: tuple[Token, ...] = ()) -> Insert:
    """Parse INSERT { INTO | OVERWRITE } t with its clauses and source.

    `with_tokens` is the WITH clause before the statement, which belongs to its query.
    """
    start = cursor.token
    cursor.expect("INSERT")
    schema_evolution = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrite = cursor.expect_any("INTO", "OVERWRITE") == "OVERWRITE"
    if overwrite and cursor.at_any("DIRECTORY", "LOCAL"):
        cursor.refuse("INSERT OVERWRITE DIRECTORY writes no table")
    if cursor.at("TABLE"):
        cursor.advance()
    table = cursor.table()
    alias_name = _alias(cursor)
    partition = _partition(cursor) if cursor.accept("PARTITION") else None
    if_not_exists = cursor.at("IF")
    if if_not_exists:
        if partition is None or not overwrite:
            cursor.refuse("IF NOT EXISTS goes with INSERT OVERWRITE ... PARTITION (...)")
        cursor.expect("IF", "NOT", "EXISTS")
    columns = None
    by_name = cursor.accept("BY", "NAME")
    if not by_name and cursor.at("(") and not _at_query(cursor):
        start_of_columns = cursor.token
        columns = _columns(cursor)
        static = {entry.column.lower() for entry in partition or () if not entry.dynamic}
        duplicate = next((name for name in columns if name.lower() in static), None)
        if duplicate is not None:
            cursor.refuse(
                f"column {duplicate} has its value in PARTITION; leave it out", start_of_columns
            )
    replace_where = replace_on = source_alias = None
    replace_using: tuple[str, ...] = ()
    source: Source | None = None
    if cursor.at("REPLACE"):
        replace_token = cursor.advance()
        if overwrite or partition is not None:
            cursor.refuse(
                "REPLACE WHERE, USING and ON go with INSERT INTO, without PARTITION", replace_token
            )
        word = cursor.expect_any("WHERE", "USING", "ON")
        if word == "WHERE":
            stops = ["SELECT", "WITH", "VALUES", "TABLE"]
            replace_where = expression(cursor, scope_of(table, None), stops, what="a condition")
        elif word == "USING":
            replace_using = _columns(cursor)
        elif with_tokens:
            cursor.refuse("WITH goes inside the query of REPLACE ON", with_tokens[0])
        else:
            replace_on = _condition_before_query(cursor, scope_of(table, alias_name))
            if cursor.at("("):
                tokens = cursor.skip()
                cursor.expect_end()
                sql, source_alias = relation_query(cursor.source, tokens)
                source = Query(sql)
    source = source or _source(cursor, start, with_tokens, columns)
    return Insert(
        table=table,
        source=source,
        columns=columns,
        by_name=by_name,
        overwrite=overwrite,
        replace_where=replace_where,
        replace_using=replace_using,
        replace_on=replace_on,
        alias=alias_name,
        source_alias=source_alias,
        partition=partition,
        if_not_exists=if_not_exists,
        schema_evolution=schema_evolution or None,
    )


def _alias(cursor: Cursor) -> str | None:
    """Parse the table's alias, which is allowed before REPLACE ON alone; None without one."""
    mark = cursor.mark
    name = alias(cursor, ["PARTITION", "IF", "BY", "REPLACE", *QUERY_WORDS])
    if cursor.at("REPLACE", "ON") or cursor.at("BY", "NAME", "REPLACE", "ON"):
        return name
    cursor.back(mark)
    return None


def _condition_before_query(cursor: Cursor, scope: Scope) -> SqlText:
    """Parse an expression up to the query after it, which may be in parentheses."""
    tokens = cursor.remaining()
    depth = 0
    for index, token in enumerate(tokens):
        first = next((inner for inner in tokens[index:] if inner.text != "("), token)
        if not depth and first.kind is Kind.WORD and first.upper in QUERY_WORDS:
            break
        depth += {"(": 1, ")": -1}.get(token.text, 0)
    else:
        cursor.fail("a condition and a query", tokens[-1] if tokens else None)
    if not index:
        cursor.fail("a condition")
    cursor.back(cursor.mark + index)
    return expression_text(cursor.source, tokens[:index], scope)


def copy_into(cursor: Cursor) -> CopyInto:
    """Parse COPY INTO t [(columns) | BY POSITION] FROM source FILEFORMAT = format [options].

    Or, as Fabric writes it, COPY INTO t [(column [field], ...)] FROM place, ... WITH (options).
    """
    cursor.expect("COPY", "INTO")
    table = cursor.table()
    by_position = cursor.accept("BY", "POSITION")
    statement = CopyInto(table=table, location="", file_format="", by_position=by_position)
    if not by_position and cursor.at("("):
        statement = _copy_columns(cursor, statement)
    cursor.expect("FROM")
    if cursor.token.kind is Kind.STRING:
        location, *more_locations = cursor.comma_separated(cursor.string)
        statement = replace(statement, location=location, more_locations=tuple(more_locations))
        if not by_position and cursor.accept("WITH"):
            return fabric_copy.copy_options(cursor, statement)
        if more_locations or statement.fields:
            cursor.refuse(
                "several places, and numbers of fields, go with WITH (FILE_TYPE = ...), as in "
                "Fabric; FILES = (...) names several files of one place"
            )
    else:
        statement = _copy_select(cursor, statement)
    cursor.expect("FILEFORMAT", "=")
    statement = replace(statement, file_format=cursor.name("a file format").upper())
    return _copy_options(cursor, statement)


def _copy_options(cursor: Cursor, statement: CopyInto) -> CopyInto:
    """Parse the options after FILEFORMAT = format to the end, and return the statement with
    them.
    """
    options: set[str] = set()
    while not cursor.at_end:
        start = cursor.token
        word = cursor.expect_any("VALIDATE", "FILES", "PATTERN", "FORMAT_OPTIONS", "COPY_OPTIONS")
        if word in options or {word, *options} >= {"FILES", "PATTERN"}:
            cursor.refuse(f"{word} can't be given here again, or beside FILES or PATTERN", start)
        options.add(word)
        if word == "VALIDATE":
            rows = -1
            if not cursor.accept("ALL") and cursor.token.kind is Kind.NUMBER:
                rows = cursor.integer()
                cursor.expect("ROWS")
            statement = replace(statement, validate_rows=rows)
        elif word == "FILES":
            cursor.expect("=")
            statement = replace(statement, files=cursor.parenthesized(cursor.string))
        elif word == "PATTERN":
            cursor.expect("=")
            statement = replace(statement, pattern=cursor.string())
        elif word == "FORMAT_OPTIONS":
            statement = replace(statement, format_options=properties(cursor))
        else:
            statement = replace(statement, copy_options=properties(cursor))
    return statement


def _copy_select(cursor: Cursor, statement: CopyInto) -> CopyInto:
    """Parse (SELECT ... FROM 'location' [WHERE ...]), after COPY INTO t FROM.

    Return the statement with the query and its location, which stands in the place of a table.
    """
    if not cursor.at("(", "SELECT"):
        cursor.fail("a place in quotes, or (SELECT ... FROM 'place')")
    cursor.advance()
    tokens = cursor.skip()
    cursor.expect(")")
    location_token = next(
        (
            token
            for before, token in pairwise(tokens)
            if before.upper == "FROM" and token.kind is Kind.STRING
        ),
        None,
    )
    if location_token is None:
        cursor.refuse("this query must read FROM 'place'", tokens[0])
    # For sqlglot the location becomes a table's name of the same length.
    masked = replace(
        cursor.source,
        text=cursor.source.text[: location_token.start]
        + "`" + "x" * (location_token.end - location_token.start - 2) + "`"
        + cursor.source.text[location_token.end :],
    )  # fmt: skip
    masked_tokens = tuple(
        replace(token, kind=Kind.QUOTED, text=masked.text[token.start : token.end])
        if token is location_token
        else token
        for token in tokens
    )
    sql = query_text(masked, masked_tokens)
    if len(sql.references) != 1:
        cursor.refuse("this query may read nothing but its place", tokens[0])
    start = tokens[0].start
    return replace(
        statement,
        location=_string(cursor, location_token),
        select=SqlText(cursor.source.text[start : tokens[-1].end]),
        location_span=(location_token.start - start, location_token.end - start),
    )


def _copy_columns(cursor: Cursor, statement: CopyInto) -> CopyInto:
    """Parse (column [field number], ...), after COPY INTO t, and return the statement with them.

    All columns have a number, or none.
    """
    fields: list[int] = []
    start = cursor.token

    def number() -> None:
        """Parse the number of a field, if one is next."""
        if cursor.at("DEFAULT"):
            cursor.refuse("COPY INTO has no defaults; the column's own, by ALTER COLUMN, counts")
        start = cursor.token
        if start.kind is Kind.NUMBER:
            fields.append(cursor.integer())
            if fields[-1] < 1:
                cursor.refuse("the fields of a file count from 1", start)

    columns = _columns(cursor, number)
    if fields and len(fields) < len(columns):
        cursor.refuse("either every column has the number of its field, or none has", start)
    return replace(statement, columns=columns, fields=tuple(fields) if fields else None)


def _string(cursor: Cursor, token: Token) -> str:
    return Cursor(cursor.source, (token, replace(token, kind=Kind.END))).string()


def _columns(cursor: Cursor, then: Callable[[], None] = lambda: None) -> tuple[str, ...]:
    """Parse column names in parentheses, each once; `then` parses what follows each name."""
    names: set[str] = set()

    def column() -> str:
        """Parse a column's name, and what follows it."""
        start = cursor.token
        path = cursor.path()
        if len(path) > 1:
            cursor.refuse("an INSERT names whole columns, no fields of structs", start)
        if path[0].lower() in names:
            cursor.refuse(f"column {path[0]} is named twice", start)
        names.add(path[0].lower())
        then()
        return path[0]

    return cursor.parenthesized(column)


def _partition(cursor: Cursor) -> tuple[PartitionValue, ...]:
    """Parse (column [= literal], ...), after PARTITION; a column without a literal is dynamic."""
    columns: set[str] = set()

    def partition_value() -> PartitionValue:
        """Parse one column of the clause."""
        token = cursor.token
        column = cursor.name("a partition column")
        if column.lower() in columns:
            cursor.refuse(f"partition column {column} is named twice", token)
        columns.add(column.lower())
        if not cursor.accept("="):
            return PartitionValue(column, dynamic=True)
        start = cursor.token
        try:
            literal = constant(cursor)
        except NotConstantError:
            cursor.refuse("the value of a partition column is a literal", start)
        _check_partition(cursor, literal, start)
        return PartitionValue(column, literal)

    return cursor.parenthesized(partition_value)


def _check_partition(cursor: Cursor, value: Constant, start: Token) -> None:
    """Raise InvalidRequest for a literal that a session setting gives another value.

    A number, a boolean and NULL are refused wherever the session's rules refuse such values
    (`TextRules.partition_value_refusal`).
    """
    rules = cursor.source.rules
    text = cursor.source.text[start.start : cursor.token.start]
    for doubt in rules.divergences:
        if doubt.pattern.search(text):
            cursor.refuse(
                f"{doubt.setting} of this session changes what this value means; unset it for "
                "this statement, or give the value as a parameter (:name)",
                start,
            )
    is_text = isinstance(value, str | bytes | datetime.date)
    refusal = rules.partition_value_refusal
    if refusal is not None and not is_text:
        cursor.refuse(f"not with {refusal.setting}; {refusal.advice}", start)


def _at_query(cursor: Cursor) -> bool:
    """Return whether the next parenthesis opens a query rather than a list of columns."""
    word, following = cursor.ahead(1), cursor.ahead(2)
    if word.text == "(":
        return True
    return word.kind is Kind.WORD and word.upper in QUERY_WORDS and following.text not in {",", ")"}


def _source(
    cursor: Cursor,
    insert_word: Token,
    with_tokens: tuple[Token, ...],
    columns: tuple[str, ...] | None,
) -> Source:
    """Parse the rows of an INSERT: literals, expressions with DEFAULT, or a query.

    `insert_word` is the token INSERT; a WITH clause before it becomes the query's.
    """
    start = cursor.token
    if not with_tokens:
        values = values_rows(cursor)
        if values is not None:
            _check_width(cursor, values, columns, start)
            return values
        if start.upper == "VALUES" and _names_default(cursor):
            return _computed_values(cursor, columns)
        return Query(rest_query(cursor))
    if not (cursor.at_any(*QUERY_WORDS) or cursor.at("(")):
        cursor.fail("a query (SELECT, WITH, VALUES, TABLE, FROM)")
    # The query's text is the WITH clause and the query; the INSERT between them is blanked.
    text = cursor.source.text
    blanks = " " * (start.start - insert_word.start)
    joined = replace(cursor.source, text=text[: insert_word.start] + blanks + text[start.start :])
    tokens = cursor.skip()
    cursor.expect_end()
    return Query(query_text(joined, (*with_tokens, *tokens)))


def _check_width(
    cursor: Cursor,
    values: Values | ComputedValues,
    columns: tuple[str, ...] | None,
    start: Token,
) -> None:
    if columns is not None and len(values.rows[0]) != len(columns):
        cursor.refuse(f"{len(columns)} columns, but {len(values.rows[0])} values", start)


def _names_default(cursor: Cursor) -> bool:
    """Return whether a value is DEFAULT, which Spark would read as a column's name."""
    return any(
        token.upper == "DEFAULT" and token.kind is Kind.WORD and before.text in {"(", ","}
        for before, token in pairwise(cursor.remaining())
    )


def _computed_values(cursor: Cursor, columns: tuple[str, ...] | None) -> ComputedValues:
    """Parse VALUES (expression | DEFAULT, ...), ... to the end of the statement."""
    start = cursor.token
    cursor.expect("VALUES")
    rows: list[tuple[SqlText | Default, ...]] = []

    def cell() -> SqlText | Default:
        """Parse an expression without a query, or DEFAULT."""
        start = cursor.token
        expression_or_default = value(cursor, ())
        if isinstance(expression_or_default, SqlText) and expression_or_default.references:
            cursor.refuse(
                "beside DEFAULT a value can't have a query of a table; use INSERT ... SELECT", start
            )
        return expression_or_default

    while True:
        row_start = cursor.token
        if not cursor.at("("):
            cursor.fail("a row in parentheses")
        rows.append(cursor.parenthesized(cell))
        if len(rows[-1]) != len(rows[0]):
            cursor.refuse(
                f"row {len(rows)} has {len(rows[-1])} values, the first has {len(rows[0])}",
                row_start,
            )
        if not cursor.accept(","):
            break
    cursor.expect_end()
    values = ComputedValues(tuple(rows))
    _check_width(cursor, values, columns, start)
    return values
