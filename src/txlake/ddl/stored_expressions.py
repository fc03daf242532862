"""Analysis of the SQL expressions that a table stores: constraints, generation, defaults.

Parses the text with sqlglot; Spark evaluates it. An expression that can't be parsed counts as using
every column that its text names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import sqlglot
from sqlglot import exp

from txlake.errors import InvalidRequest
from txlake.protocol.schema_rules import Path, column_text
from txlake.protocol.types import Field, Struct, has_variant
from txlake.sql.dialect import DIALECT, PARSER_FAILURES
from txlake.sql.statements.calls import stored_expression_problem

GENERATION = "delta.generationExpression"
CURRENT_DEFAULT = "CURRENT_DEFAULT"

# Functions whose value depends on more than their arguments.
_NON_DETERMINISTIC = frozenset(
    {
        "current_catalog",
        "current_database",
        "current_date",
        "current_schema",
        "current_timestamp",
        "current_timezone",
        "current_user",
        "input_file_name",
        "localtimestamp",
        "monotonically_increasing_id",
        "now",
        "rand",
        "randn",
        "random",
        "randstr",
        "session_user",
        "shuffle",
        "spark_partition_id",
        "unix_timestamp_now",
        "user",
        "uuid",
    }
)


def referenced_columns(text: str) -> frozenset[Path] | None:
    """Return the columns that an expression names, as paths in lower case; None if unparsable.

    A qualifier counts as the first part, since it can't be told from a struct.
    """
    tree = _parse(text)
    return None if tree is None else frozenset(_column_paths(tree))


def _parse(text: str) -> exp.Expr | None:
    """Return the expression's syntax tree; None if it can't be parsed or is more than an
    expression.
    """
    # sqlglot's Databricks dialect knows the aggregates; txlake's own accepts any call.
    for dialect in ("databricks", DIALECT):
        try:
            tree = sqlglot.parse_one(text, read=dialect, into=exp.Condition)
        except (*PARSER_FAILURES, RecursionError):
            continue
        return None if isinstance(tree, exp.Block) else tree
    return None


def _column_paths(tree: exp.Expr) -> Iterator[Path]:
    """Yield the columns of an expression as lower-case paths, fields of structs included;
    repeated.
    """
    for column in tree.find_all(exp.Column):
        path = [part.name.lower() for part in column.parts]
        outer = column.parent
        inner: exp.Expr = column
        while isinstance(outer, exp.Dot) and outer.this is inner:
            path.append(outer.expression.name.lower())
            inner, outer = outer, outer.parent
        yield tuple(path)


def uses_column(text: str, path: Path) -> bool:
    """Return whether the expression names a column, a struct that holds it, or a field of it.

    Of an expression that can't be parsed: whether its text contains the name of the top-level
    column.
    """
    columns = referenced_columns(text)
    if columns is None:
        return path[0].lower() in text.lower()
    folded = tuple(part.lower() for part in path)
    return any(name[: len(folded)] == folded or folded[: len(name)] == name for name in columns)


def check_dependents(
    schema: Struct, constraints: Mapping[str, str], path: Path, operation: str
) -> None:
    """Raise InvalidRequest, naming them, if constraints or generated columns use a column.

    A generated column's use of itself doesn't count. `operation` is the refused one (`be dropped`).
    """
    users = [
        f"constraint {name} ({text})"
        for name, text in constraints.items()
        if uses_column(text, path)
    ]
    for item in schema:
        if item.name.lower() == path[0].lower() and len(path) == 1:
            continue
        generation = item.metadata.get(GENERATION)
        if isinstance(generation, str) and uses_column(generation, path):
            users.append(f"generated column {item.name} ({generation})")
    if users:
        raise InvalidRequest(
            f"column {column_text(path)} can't {operation}, it is used by "
            f"{' and by '.join(users)}; drop what uses it first"
        )


def check_constraint(name: str, text: str, schema: Struct) -> None:
    """Check that a constraint's condition can be evaluated for a row of the table.

    Raises InvalidRequest: the text isn't SQL, has a subquery or an aggregate, isn't deterministic,
    calls a function that isn't pure, or names an unknown column.
    """
    label = f"constraint {name} ({text})"
    _check_expression(text, label)
    _check_columns_exist(text, label, schema)


def check_generation(column: Field, text: str, schema: Struct) -> None:
    """Check a generated column's expression over the other columns.

    Raises InvalidRequest for a column of variants, what `check_constraint` refuses, and the use of
    the column itself or another generated one.
    """
    label = f"generated column {column.name} ({text})"
    if has_variant(Struct((column,))):
        raise InvalidRequest(
            f"{label}: its values can't be variants; generate what is taken out of one, as "
            "variant_get(v, '$.a', 'int')"
        )
    _check_expression(text, label)
    _check_columns_exist(text, label, schema)
    for path in referenced_columns(text) or ():
        other = schema.find(path[0])
        if other is not None and (other.name == column.name or GENERATION in other.metadata):
            raise InvalidRequest(
                f"{label}: it uses {other.name}, which is generated itself; generate it from the "
                "columns that rows are written with"
            )


def check_default(column: str, text: str) -> None:
    """Check that a default's text is an expression without columns, queries and aggregates.

    It may give another value each time, as current_date() does. Raises InvalidRequest, also for a
    function that isn't pure.
    """
    label = f"default of column {column} ({text})"
    tree = _parse(text)
    if tree is None:
        raise InvalidRequest(f"{label}: not a SQL expression")
    _check_no_query(tree, label)
    _check_pure(text, label)
    columns = sorted(column_text(path) for path in _column_paths(tree))
    if columns:
        raise InvalidRequest(f"{label}: a default can't use columns, found {', '.join(columns)}")


def _check_expression(text: str, label: str) -> None:
    """Raise InvalidRequest unless the text is an SQL expression whose value depends on the row
    alone.

    `label` begins the message. Columns aren't looked up.
    """
    tree = _parse(text)
    if tree is None:
        raise InvalidRequest(f"{label}: not a SQL expression")
    _check_no_query(tree, label)
    non_deterministic = sorted(set(_function_names(tree)) & _NON_DETERMINISTIC)
    if non_deterministic:
        raise InvalidRequest(
            f"{label}: {non_deterministic[0]}() gives another value each time; use only what a "
            "row holds"
        )
    _check_pure(text, label)


def _check_pure(text: str, label: str) -> None:
    """Raise InvalidRequest for an expression that may do more than compute a value."""
    reason = stored_expression_problem(text)
    if reason is not None:
        raise InvalidRequest(f"{label}: {reason}; use Spark's pure functions of what a row holds")


def _check_no_query(tree: exp.Expr, label: str) -> None:
    """Raise InvalidRequest if the expression contains a query, an aggregate or a window
    function.
    """
    if tree.find(exp.Query, exp.Subquery) is not None:
        raise InvalidRequest(f"{label}: it can't hold a query")
    if tree.find(exp.AggFunc, exp.Window) is not None:
        raise InvalidRequest(f"{label}: it can't hold an aggregate or a window function")


def _function_names(tree: exp.Expr) -> Iterable[str]:
    """Yield the lower-case names of the functions called; all of a function that has several."""
    for function in tree.find_all(exp.Func):
        if isinstance(function, exp.Anonymous):
            yield function.name.lower()
        else:
            yield from (name.lower() for name in function.sql_names())


def _check_columns_exist(text: str, label: str, schema: Struct) -> None:
    """Raise InvalidRequest if the expression names a top-level column that the schema lacks.

    A text that can't be parsed passes.
    """
    for path in sorted(referenced_columns(text) or ()):
        if schema.find(path[0]) is None:
            known = ", ".join(column_text((item.name,)) for item in schema)
            raise InvalidRequest(
                f"{label}: there is no column {column_text(path[:1])}; there are: {known}"
            )
