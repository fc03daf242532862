"""`spark.sql` of a session that was given to a lake.

The lake's SQL is asked first. What it doesn't understand is Spark's, and so is a statement about a
table or view that Spark's own catalog has and the lake hasn't: both kinds of tables can stand in
one query, and in `INSERT INTO` a Parquet table `SELECT` from the lake's.
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
from txlake.spark.spark_sessions import is_connect
from txlake.spark_integration.door import Door
from txlake.spark_integration.errors import as_spark
from txlake.sql import parse
from txlake.sql.markers import spark_arguments
from txlake.sql.spark_statements import (
    bind_text,
    insert_into_spark,
    parse_spark_statement,
    possible_table_names,
    target_name,
)
from txlake.statements import (
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
from txlake.statements.text_references import references_of
from txlake.tables.errors import ArgumentTypeRefused, TextRefused, refuse_text, refused

# What Spark itself does with a text and its arguments.
Plain = Callable[..., DataFrame]
_Arguments = Mapping[str, object] | Sequence[object] | None
_SUBSTITUTE = "spark.sql.variable.substitute"
_VARIABLE = re.compile(r"\$\{(?:(?:spark|sparkconf|hivevar|hiveconf):)?([^}:]+)\}")
# Of what these name, the lake needn't have anything yet.
_MAKING = (
    CreateTable,
    CreateTableLike,
    CreateView,
    CreateTemporaryView,
    Clone,
    UndropTable,
    ConvertTable,
)


@as_spark
def sql(
    door: Door, plain: Plain, sqlQuery: str, args: _Arguments = None, **kwargs: object
) -> DataFrame:
    """One statement: the lake's, or else Spark's; as SparkSession.sql takes it.

    Args:
        plain: Spark's own method of the session.
        args: values of `:name` or `?` markers.
        kwargs: what stands for `{name}` in the text: DataFrames, columns, values.

    Raises an AnalysisException, a ParseException among them, for what can't be carried out, and
    else as `Lake.sql`.
    """
    if not isinstance(sqlQuery, str):
        raise ArgumentTypeRefused(f"expected a SQL text, found {sqlQuery!r:.80}")
    if not kwargs:
        return _one(door, plain, _substituted(door.spark, sqlQuery), args)
    formatter = _formatter(door.spark)
    text = formatter.format(sqlQuery, **kwargs)
    if is_connect(door.spark):
        # Its plans are analysed anew when they run: the views stay as long as the session.
        for frame, name in formatter._temp_views:
            frame.createOrReplaceTempView(name)
        return _one(door, plain, text, args)
    try:
        return _one(door, plain, text, args)
    finally:
        formatter.clear()


def _substituted(spark: SparkSession, text: str) -> str:
    """The text with the settings that stand in it as `${name}`, as Spark's own parser gets it."""
    if "${" not in text or spark.conf.get(_SUBSTITUTE, "true") != "true":
        return text
    return _VARIABLE.sub(lambda found: spark.conf.get(found[1], found[0]) or "", text)


def _formatter(spark: SparkSession) -> Any:
    if is_connect(spark):
        from pyspark.sql.connect.sql_formatter import SQLStringFormatter as OfConnect

        return OfConnect(spark)  # type: ignore[arg-type]
    return SQLStringFormatter(spark)


def _one(door: Door, plain: Plain, text: str, args: _Arguments) -> DataFrame:
    plain = partial(plain, text, *(() if args is None else (args,)))
    try:
        args = spark_arguments(text, args)
        reader = door.session.engine.plane.relations
        statements = parse(text, args, door.text_rules, reader=reader)
    except InvalidRequest as error:
        return _not_understood(door, plain, text, args, error)
    if not statements:
        return door.from_spark(plain)
    if len(statements) > 1:
        several = refused(
            "PARSE_SYNTAX_ERROR",
            f"expected one statement, found {len(statements)}: spark.sql takes one at a time; "
            "lake.sql takes several",
        )
        door.session.fail(several)
        refuse_text(several)
    [statement] = statements
    with door.asked():
        for place in _places(statement):
            door.require_place(place)
    about = None if isinstance(statement, _MAKING) else target_name(statement)
    if about is not None and door.meaning(about) is None:
        if door.spark_has(about):
            with door.asked():
                door.require_full(about)
            return _of_spark(door, plain, text, args, statement)
        if not getattr(statement, "if_exists", False):
            unknown = door.unknown(about)
            door.session.fail(unknown)
            raise unknown
    return door.session.execute(_with_temporary_views(door, statement))


def _places(statement: Statement) -> list[TablePath]:
    """The tables in a statement that are named by their place."""
    named = [getattr(statement, name, None) for name in ("table", "target", "source", "location")]
    named += [one.table for one in references_of(statement)]
    # The last one is of a table that is made: a text.
    places = [TablePath(one) if isinstance(one, str) else one for one in named]
    return [one for one in places if isinstance(one, TablePath)]


def _of_spark(
    door: Door, plain: Plain, text: str, args: _Arguments, statement: Statement
) -> DataFrame:
    """A statement about a table or view of Spark's own."""
    if isinstance(statement, Insert):
        command = insert_into_spark(bind_text(text, args, door.text_rules), statement)
        if command is not None:
            return door.session.execute(_with_temporary_views(door, command))
    return door.from_spark(plain)


def _not_understood(
    door: Door, plain: Plain, text: str, args: _Arguments, error: InvalidRequest
) -> DataFrame:
    """What the lake's SQL isn't: Spark's, or nobody's."""
    try:
        found = parse_spark_statement(text, args, door.text_rules)
    except InvalidRequest:
        found = None
    about_lake = _is_unbound(door, text, args)
    if found is not None and not found.is_foreign:
        made = found.creates
        about_lake |= not isinstance(made, TableName) or door.may_be_of_lake(made)
    if about_lake:
        with door.asked():
            raise _as_text(error)
    if found is None:
        _require_sparks(door, text, args, error)
        try:
            return door.from_spark(plain)
        except ParseException as of_spark:
            # Neither understands it, and the lake's SQL is the larger one.
            raise _as_text(error) from of_spark
    made = found.creates
    if isinstance(made, TableName) and door.meaning(made) is not None:
        taken = refused("TABLE_OR_VIEW_ALREADY_EXISTS", f"{made} is a table or view of the lake")
        door.session.fail(taken)
        raise taken
    if made is not None:
        with door.asked():
            door.require_full(made)
    return door.session.execute(_with_temporary_views(door, found.command))


def _require_sparks(door: Door, text: str, args: _Arguments, error: InvalidRequest) -> None:
    """Raises an AnalysisException for a text that names what is the lake's, or stands elsewhere."""
    try:
        named = possible_table_names(text, args, door.text_rules)
    except InvalidRequest:
        return
    with door.asked():
        for table in named:
            if door.is_temporary(table):
                continue
            found = door.meaning(table)
            if found is not None:
                raise _as_text(
                    InvalidRequest(
                        f"{table} is a {found.value} of the lake, and this isn't its SQL: {error}"
                    )
                ) from error
            if door.is_short(table) and (door.spark_has(table) or door.spark_finds(table)):
                door.require_full(table)


def _is_unbound(door: Door, text: str, args: _Arguments) -> bool:
    """Whether it is a statement about the lake, but for a value that has no SQL literal."""
    if not args:
        return False
    nothing: _Arguments = dict.fromkeys(args) if isinstance(args, Mapping) else [None] * len(args)
    try:
        statements = parse(text, nothing, door.text_rules)
    except InvalidRequest:
        return False
    for statement in statements:
        if isinstance(statement, _MAKING):
            return True
        named = {target_name(statement), *(one.table for one in references_of(statement))} - {None}
        if any(door.meaning(table) is not None for table in named if table is not None):
            return True
    return False


def _as_text(error: InvalidRequest) -> InvalidRequest:
    try:
        refuse_text(error)
    except TextRefused as told:
        return told


def _with_temporary_views(door: Door, statement: Statement) -> Statement:
    """The statement, where a name that is read and is a temporary view's too means the view.

    Raises an AnalysisException for a name without a database that is neither that nor the lake's,
    where Spark would look for it in another database than the lake's current one.
    """
    asked = {
        one.table.name.lower(): one.table
        for one in references_of(statement)
        if isinstance(one.table, TableName) and len(one.table.parts) == 1 and one.travel is None
    }
    if not asked:
        return statement
    temporary = door.temporary_names(asked)
    if door.is_short(next(iter(asked.values()))):
        with door.asked():
            for name, table in asked.items():
                if name not in temporary and door.meaning(table) is None:
                    if not door.spark_has(table):
                        raise door.unknown(table)
                    door.require_full(table)
    if isinstance(statement, CreateView | AlterView):
        return statement  # what a lake keeps reads nothing that is temporary
    hidden = frozenset(
        name
        for name, table in asked.items()
        if name in temporary and door.meaning(table) is not None
    )
    if not hidden:
        return statement
    left: Statement = _left_to_spark(statement, hidden)
    return left


def _left_to_spark(part: Any, names: frozenset[str]) -> Any:
    """The same part of a statement with these names left as they are in its texts."""
    if isinstance(part, SqlText):
        kept = tuple(
            one
            for one in part.references
            if not (
                isinstance(one.table, TableName)
                and len(one.table.parts) == 1
                and one.table.name.lower() in names
                and one.travel is None
            )
        )
        return part if len(kept) == len(part.references) else replace(part, references=kept)
    if isinstance(part, tuple):
        return tuple(_left_to_spark(one, names) for one in part)
    if is_dataclass(part) and not isinstance(part, type):
        changed = {
            item.name: new
            for item in fields(part)
            if (new := _left_to_spark(old := getattr(part, item.name), names)) is not old
            and new != old
        }
        return replace(part, **changed) if changed else part
    return part
