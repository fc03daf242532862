"""`spark.sql` of an enabled session.

The lake's parser comes first. Spark gets a statement that the lake can't parse, and one about a
table or view that only Spark's own catalog has. One query may use both kinds of tables, and
`INSERT INTO` a Parquet table may `SELECT` from the lake's tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from txlake.errors import InvalidRequest
from txlake.lake.tables.errors import ArgumentTypeRefused, TextRefused, raise_parse_error, refusal
from txlake.spark.spark_sessions import is_connect
from txlake.spark_integration.errors import with_spark_errors
from txlake.spark_integration.lake_binding import LakeBinding
from txlake.sql import parse
from txlake.sql.markers import spark_arguments
from txlake.sql.spark_statements import (
    bind_text,
    insert_into_spark,
    parse_spark_statement,
    possible_table_names,
    target_name,
)
from txlake.sql.statements import (
    AlterView,
    Clone,
    ConvertTable,
    CreateTable,
    CreateTableLike,
    CreateTemporaryView,
    CreateView,
    Insert,
    SqlText,
    Statement,
    TableName,
    TablePath,
    UndropTable,
)
from txlake.sql.statements.text_references import references_of

# Spark's own `sql`.
Plain = Callable[..., DataFrame]
_Arguments = Mapping[str, object] | Sequence[object] | None
_SUBSTITUTE = "spark.sql.variable.substitute"
_VARIABLE = re.compile(r"\$\{(?:(?:spark|sparkconf|hivevar|hiveconf):)?([^}:]+)\}")
# Statements whose target needn't exist yet.
_CREATING = (
    CreateTable,
    CreateTableLike,
    CreateView,
    CreateTemporaryView,
    Clone,
    UndropTable,
    ConvertTable,
)


@with_spark_errors
def sql(
    binding: LakeBinding, plain: Plain, sqlQuery: str, args: _Arguments = None, **kwargs: object
) -> DataFrame:
    """Run one statement in the lake, or else in Spark, with the arguments of SparkSession.sql.

    Args:
        plain: Spark's own method of the session.
        args: values of `:name` or `?` markers.
        kwargs: DataFrames, columns and values for `{name}` in the text.

    Raises an AnalysisException for a statement that can't be carried out (a ParseException for one
    that can't be parsed), and otherwise as `Lake.sql`.
    """
    if not isinstance(sqlQuery, str):
        raise ArgumentTypeRefused(f"expected a SQL text, found {sqlQuery!r:.80}")
    if not kwargs:
        return _execute(binding, plain, _substituted(binding.spark, sqlQuery), args)
    formatter = _formatter(binding.spark)
    text = formatter.format(sqlQuery, **kwargs)
    if is_connect(binding.spark):
        # Spark Connect analyses a plan again when it runs: the views have to outlive this call.
        for frame, name in formatter._temp_views:
            frame.createOrReplaceTempView(name)
        return _execute(binding, plain, text, args)
    try:
        return _execute(binding, plain, text, args)
    finally:
        formatter.clear()


def _substituted(spark: SparkSession, text: str) -> str:
    """Replace `${name}` by the value of the setting, as Spark does before parsing.

    A name that isn't set stays as it is, and the whole text if the session turned substitution off.
    """
    if "${" not in text or spark.conf.get(_SUBSTITUTE, "true") != "true":
        return text
    return _VARIABLE.sub(lambda match: spark.conf.get(match[1], match[0]) or "", text)


def _formatter(spark: SparkSession) -> Any:
    """Return PySpark's formatter of `{name}` in SQL texts, which makes views of DataFrames."""
    if is_connect(spark):
        from pyspark.sql.connect.sql_formatter import SQLStringFormatter as ConnectFormatter

        return ConnectFormatter(spark)  # type: ignore[arg-type]
    return SQLStringFormatter(spark)


def _execute(binding: LakeBinding, plain: Plain, text: str, args: _Arguments) -> DataFrame:
    """Run one statement in the lake, or else in Spark; an error fails the open transaction.

    Raises as `sql`.
    """
    plain = partial(plain, text, *(() if args is None else (args,)))
    try:
        args = spark_arguments(text, args)
        reader = binding.session.engine.plane.relations
        statements = parse(text, args, binding.text_rules, reader=reader)
    except InvalidRequest as error:
        return _execute_unparsed(binding, plain, text, args, error)
    if not statements:
        return binding.run_in_spark(plain)
    if len(statements) > 1:
        several = refusal(
            "PARSE_SYNTAX_ERROR",
            f"expected one statement, found {len(statements)}: spark.sql takes one at a time; "
            "lake.sql takes several",
        )
        binding.session.fail(several)
        raise_parse_error(several)
    [statement] = statements
    with binding.fail_on_error():
        for path in _path_tables(statement):
            binding.require_resolvable_path(path)
    target = None if isinstance(statement, _CREATING) else target_name(statement)
    if target is not None and binding.kind_of(target) is None:
        if binding.spark_has(target):
            with binding.fail_on_error():
                binding.require_qualified(target)
            return _execute_on_spark_table(binding, plain, text, args, statement)
        if not getattr(statement, "if_exists", False):
            unknown = binding.not_found(target)
            binding.session.fail(unknown)
            raise unknown
    return binding.session.execute(_with_temporary_views(binding, statement))


def _path_tables(statement: Statement) -> list[TablePath]:
    """Return the path tables in a statement, the location of a new table included."""
    fields = ("table", "target", "source", "location")
    tables = [getattr(statement, field, None) for field in fields]
    tables += [reference.table for reference in references_of(statement)]
    # The location of a new table is a text.
    paths = [TablePath(table) if isinstance(table, str) else table for table in tables]
    return [path for path in paths if isinstance(path, TablePath)]


def _execute_on_spark_table(
    binding: LakeBinding, plain: Plain, text: str, args: _Arguments, statement: Statement
) -> DataFrame:
    """Run a statement about a table or view of Spark's own.

    Of an INSERT the lake plans the query, which may read the lake's tables.
    """
    if isinstance(statement, Insert):
        command = insert_into_spark(bind_text(text, args, binding.text_rules), statement)
        if command is not None:
            return binding.session.execute(_with_temporary_views(binding, command))
    return binding.run_in_spark(plain)


def _execute_unparsed(
    binding: LakeBinding, plain: Plain, text: str, args: _Arguments, error: InvalidRequest
) -> DataFrame:
    """Run a statement that the lake can't parse in Spark.

    Raises `error`, as a ParseException, if the statement is about the lake or Spark can't parse it
    either; an AnalysisException for the creation of a table that the lake has.
    """
    try:
        parsed = parse_spark_statement(text, args, binding.text_rules)
    except InvalidRequest:
        parsed = None
    is_about_lake = _is_lake_statement_without_values(binding, text, args)
    if parsed is not None and not parsed.is_foreign:
        created = parsed.creates
        is_about_lake |= not isinstance(created, TableName) or binding.may_be_in_lake(created)
    if is_about_lake:
        with binding.fail_on_error():
            raise _as_text(error)
    if parsed is None:
        _require_spark_names(binding, text, args, error)
        try:
            return binding.run_in_spark(plain)
        except ParseException as spark_error:
            # Neither can parse it; the lake's error is raised, as its SQL has more statements.
            raise _as_text(error) from spark_error
    created = parsed.creates
    if isinstance(created, TableName) and binding.kind_of(created) is not None:
        exists = refusal(
            "TABLE_OR_VIEW_ALREADY_EXISTS", f"{created} is a table or view of the lake"
        )
        binding.session.fail(exists)
        raise exists
    if created is not None:
        with binding.fail_on_error():
            binding.require_qualified(created)
    return binding.session.execute(_with_temporary_views(binding, parsed.command))


def _require_spark_names(
    binding: LakeBinding, text: str, args: _Arguments, error: InvalidRequest
) -> None:
    """Raise InvalidRequest for a text with a name of the lake, or one that Spark misresolves.

    The former is a ParseException too.
    """
    try:
        tables = possible_table_names(text, args, binding.text_rules)
    except InvalidRequest:
        return
    with binding.fail_on_error():
        for table in tables:
            if binding.is_temporary(table):
                continue
            kind = binding.kind_of(table)
            if kind is not None:
                raise _as_text(
                    InvalidRequest(
                        f"{table} is a {kind.value} of the lake, and this isn't its SQL: {error}"
                    )
                ) from error
            if binding.resolves_differently(table) and (
                binding.spark_has(table) or binding.spark_resolves(table)
            ):
                binding.require_qualified(table)


def _is_lake_statement_without_values(binding: LakeBinding, text: str, args: _Arguments) -> bool:
    """Return whether the text is a statement about the lake, once NULL replaces its arguments.

    Then it failed to parse because an argument has no SQL literal.
    """
    if not args:
        return False
    nulls: _Arguments = dict.fromkeys(args) if isinstance(args, Mapping) else [None] * len(args)
    try:
        statements = parse(text, nulls, binding.text_rules)
    except InvalidRequest:
        return False
    for statement in statements:
        if isinstance(statement, _CREATING):
            return True
        references = references_of(statement)
        tables = {target_name(statement), *(reference.table for reference in references)}
        if any(binding.kind_of(table) is not None for table in tables if table is not None):
            return True
    return False


def _as_text(error: InvalidRequest) -> InvalidRequest:
    """Return the error as the ParseException that Spark would raise."""
    try:
        raise_parse_error(error)
    except TextRefused as text_error:
        return text_error


def _with_temporary_views(binding: LakeBinding, statement: Statement) -> Statement:
    """Return the statement with each reference to a temporary view's name resolved to that view.

    Raises InvalidRequest for a name without a database that is neither a temporary view's nor the
    lake's, if Spark has no such table or would look in another database than the lake's current
    one.
    """
    unqualified = {
        one.table.name.lower(): one.table
        for one in references_of(statement)
        if isinstance(one.table, TableName) and len(one.table.parts) == 1 and one.travel is None
    }
    if not unqualified:
        return statement
    temporary = binding.temporary_names(unqualified)
    if binding.resolves_differently(next(iter(unqualified.values()))):
        with binding.fail_on_error():
            for name, table in unqualified.items():
                if name not in temporary and binding.kind_of(table) is None:
                    if not binding.spark_has(table):
                        raise binding.not_found(table)
                    binding.require_qualified(table)
    if isinstance(statement, CreateView | AlterView):
        return statement  # a stored view never reads a temporary one
    hidden = frozenset(
        name
        for name, table in unqualified.items()
        if name in temporary and binding.kind_of(table) is not None
    )
    if not hidden:
        return statement
    changed: Statement = _without_references(statement, hidden)
    return changed


def _without_references(part: Any, names: frozenset[str]) -> Any:
    """Return a part of a statement without references to the names: Spark resolves them."""
    if isinstance(part, SqlText):
        references = tuple(
            one
            for one in part.references
            if not (
                isinstance(one.table, TableName)
                and len(one.table.parts) == 1
                and one.table.name.lower() in names
                and one.travel is None
            )
        )
        if len(references) == len(part.references):
            return part
        return replace(part, references=references)
    if isinstance(part, tuple):
        return tuple(_without_references(item, names) for item in part)
    if is_dataclass(part) and not isinstance(part, type):
        changed = {
            item.name: new
            for item in fields(part)
            if (new := _without_references(old := getattr(part, item.name), names)) is not old
            and new != old
        }
        return replace(part, **changed) if changed else part
    return part
