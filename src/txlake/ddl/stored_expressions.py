"""What a SQL expression that a table keeps (constraint, generation, default) is made of.

Only looks at the text by sqlglot; Spark evaluates it. What can't be parsed counts as using
everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import sqlglot
from sqlglot import exp

from txlake.errors import InvalidRequest
from txlake.protocol.schema_rules import Path, column_text
from txlake.protocol.types import Field, Struct, has_variant
from txlake.sql.dialect import DIALECT, PARSER_FAILURES
from txlake.statements.calls import refusal_of_stored

GENERATION = "delta.generationExpression"
CURRENT_DEFAULT = "CURRENT_DEFAULT"

# Functions whose value depends on more than their arguments.
_CHANGING = frozenset(
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


def columns_in(text: str) -> frozenset[Path] | None:
    """The columns that an expression names, each a path in lower case; None when unparsable."""
    tree = _parsed(text)
    return None if tree is None else frozenset(_columns(tree))


def _parsed(text: str) -> exp.Expr | None:
    # Databricks' own dialect knows which functions are aggregates; ours takes any call.
    for dialect in ("databricks", DIALECT):
        try:
            tree = sqlglot.parse_one(text, read=dialect, into=exp.Condition)
        except (*PARSER_FAILURES, RecursionError):
            continue
        return None if isinstance(tree, exp.Block) else tree
    return None


def _columns(tree: exp.Expr) -> Iterator[Path]:
    for column in tree.find_all(exp.Column):
        path = [part.name.lower() for part in column.parts]
        outer = column.parent
        inner: exp.Expr = column
        while isinstance(outer, exp.Dot) and outer.this is inner:
            path.append(outer.expression.name.lower())
            inner, outer = outer, outer.parent
        yield tuple(path)


def uses(text: str, path: Path) -> bool:
    """Whether the expression names a column, one that holds it, or one inside of it."""
    found = columns_in(text)
    if found is None:
        return path[0].lower() in text.lower()
    wanted = tuple(part.lower() for part in path)
    return any(name[: len(wanted)] == wanted or wanted[: len(name)] == name for name in found)


def check_dependents(schema: Struct, constraints: Mapping[str, str], path: Path, what: str) -> None:
    """Checks that nothing else of the table is defined over a column.

    Raises InvalidRequest naming the constraints and generated columns, when there are any; `what`
    is what the statement wants to do (`be dropped`).
    """
    users = [
        f"constraint {name} ({text})" for name, text in constraints.items() if uses(text, path)
    ]
    for item in schema:
        if item.name.lower() == path[0].lower() and len(path) == 1:
            continue
        generation = item.metadata.get(GENERATION)
        if isinstance(generation, str) and uses(generation, path):
            users.append(f"generated column {item.name} ({generation})")
    if users:
        raise InvalidRequest(
            f"column {column_text(path)} can't {what}, it is used by {' and by '.join(users)}; "
            "drop what uses it first"
        )


def check_constraint(name: str, text: str, schema: Struct) -> None:
    """Checks that a constraint's condition can be evaluated for a row of the table.

    Raises InvalidRequest: it isn't SQL, has a subquery or an aggregate, its value changes by
    itself, it calls a function that isn't pure, or it names a column that isn't there.
    """
    where = f"constraint {name} ({text})"
    _check_expression(text, where)
    _check_known(text, where, schema)


def check_generation(column: Field, text: str, schema: Struct) -> None:
    """Checks a generated column's expression over the other columns. Raises InvalidRequest."""
    where = f"generated column {column.name} ({text})"
    if has_variant(Struct((column,))):
        raise InvalidRequest(
            f"{where}: its values can't be variants; generate what is taken out of one, as "
            "variant_get(v, '$.a', 'int')"
        )
    _check_expression(text, where)
    _check_known(text, where, schema)
    for path in columns_in(text) or ():
        other = schema.find(path[0])
        if other is not None and (other.name == column.name or GENERATION in other.metadata):
            raise InvalidRequest(
                f"{where}: it uses {other.name}, which is generated itself; generate it from the "
                "columns that rows are written with"
            )


def check_default(column: str, text: str) -> None:
    """Checks that a default's text is an expression without columns. Raises InvalidRequest."""
    where = f"default of column {column} ({text})"
    tree = _parsed(text)
    if tree is None:
        raise InvalidRequest(f"{where}: not a SQL expression")
    _check_no_query(tree, where)
    _check_pure(text, where)
    named = sorted(column_text(path) for path in _columns(tree))
    if named:
        raise InvalidRequest(f"{where}: a default can't use columns, found {', '.join(named)}")


def _check_expression(text: str, where: str) -> None:
    tree = _parsed(text)
    if tree is None:
        raise InvalidRequest(f"{where}: not a SQL expression")
    _check_no_query(tree, where)
    changing = sorted(set(_functions(tree)) & _CHANGING)
    if changing:
        raise InvalidRequest(
            f"{where}: {changing[0]}() gives another value each time; use only what a row holds"
        )
    _check_pure(text, where)


def _check_pure(text: str, where: str) -> None:
    """Raises InvalidRequest for an expression that may do more than compute a value."""
    reason = refusal_of_stored(text)
    if reason is not None:
        raise InvalidRequest(f"{where}: {reason}; use Spark's pure functions of what a row holds")


def _check_no_query(tree: exp.Expr, where: str) -> None:
    if tree.find(exp.Query, exp.Subquery) is not None:
        raise InvalidRequest(f"{where}: it can't hold a query")
    if tree.find(exp.AggFunc, exp.Window) is not None:
        raise InvalidRequest(f"{where}: it can't hold an aggregate or a window function")


def _functions(tree: exp.Expr) -> Iterable[str]:
    for function in tree.find_all(exp.Func):
        if isinstance(function, exp.Anonymous):
            yield function.name.lower()
        else:
            yield from (name.lower() for name in function.sql_names())


def _check_known(text: str, where: str, schema: Struct) -> None:
    for path in sorted(columns_in(text) or ()):
        if schema.find(path[0]) is None:
            known = ", ".join(column_text((item.name,)) for item in schema)
            raise InvalidRequest(
                f"{where}: there is no column {column_text(path[:1])}; there are: {known}"
            )
