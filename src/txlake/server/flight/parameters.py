"""The markers of a prepared statement: how many, of which types, and the values bound to them.

JDBC converts a value to the type that the server names, so the types are found where they are
plain: a value of an INSERT has its column's type, and so has one that is compared with a column.
Other markers are texts. ADBC sends values with types of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from txlake.errors import InvalidRequest
from txlake.protocol.types import Struct, to_arrow_type
from txlake.sql.brackets import backquote_brackets
from txlake.sql.markers import Arguments, markers
from txlake.sql.tokens import SourceText

Columns = Callable[[tuple[str, ...]], Struct | None]
"""Returns the columns of the table of a name; None if there is none."""
_TEXT = pa.string()


def marker_names(text: str) -> list[str | None]:
    """Return the names of a statement's markers `:name` in order, None for each `?`.

    Raises InvalidRequest for a text that has both, and as `tokenize`.
    """
    text = backquote_brackets(text)
    found = [name for name, _, _ in markers(SourceText(text, text), {})]
    if None in found and any(name is not None for name in found):
        raise InvalidRequest("the statement has markers ? and :name; use one of both")
    return found if None in found else list(dict.fromkeys(found))


def parameter_schema(text: str, names: Sequence[str | None], columns: Columns) -> pa.Schema:
    """Return the parameters of a statement, named by their markers, or by their numbers for `?`."""
    kinds = _kinds(text, columns)
    fields = []
    for place, name in enumerate(names):
        key: str | int = place if name is None else name
        fields.append(pa.field(str(place + 1) if name is None else name, kinds.get(key, _TEXT)))
    return pa.schema(fields)


def _kinds(text: str, columns: Columns) -> dict[str | int, pa.DataType]:
    """Return the types of markers, by name or position, as far as they are plain."""
    try:
        tree = parse_one(backquote_brackets(text), dialect="databricks")
    except (SqlglotError, RecursionError):
        return {}
    known = _known_columns(tree, columns)
    places = _in_order(tree)
    kinds: dict[str | int, pa.DataType] = {}
    for key, marker in places:
        column = _compared_column(marker) or _inserted_column(tree, marker, columns)
        kind = known.get(column.lower()) if column else None
        if kind is not None:
            kinds[key] = kind
    return kinds


def _in_order(tree: exp.Expr) -> list[tuple[str | int, exp.Expr]]:
    """Return the markers in the order of the text, `?` by position."""
    found: list[tuple[str | int, exp.Expr]] = []
    for node in tree.dfs():
        if isinstance(node, exp.Placeholder):
            found.append((str(node.this) if node.this else len(found), node))
    return found


def _known_columns(tree: exp.Expr, columns: Columns) -> dict[str, pa.DataType]:
    """Return the types of the columns of all tables in a statement, by name in lower case.

    A name that two tables have with two types has none.
    """
    known: dict[str, pa.DataType | None] = {}
    for table in tree.find_all(exp.Table):
        schema = columns(tuple(part.name for part in table.parts))
        for item in schema or ():
            try:
                kind = to_arrow_type(item.type)
            except ValueError:
                continue
            name = item.name.lower()
            known[name] = kind if known.get(name, kind) == kind else None
    return {name: kind for name, kind in known.items() if kind is not None}


def _compared_column(marker: exp.Expr) -> str | None:
    """Return the column that a marker is compared with or assigned to."""
    parent = marker.parent
    if isinstance(parent, exp.Binary | exp.Between | exp.In):
        for side in (parent.this, parent.args.get("expression")):
            if isinstance(side, exp.Column):
                return side.name
    return None


def _inserted_column(tree: exp.Expr, marker: exp.Expr, columns: Columns) -> str | None:
    """Return the column that a marker in the VALUES of an INSERT is for."""
    row = marker.parent
    if not isinstance(tree, exp.Insert) or not isinstance(row, exp.Tuple):
        return None
    place = next(place for place, one in enumerate(row.expressions) if one is marker)
    target = tree.this
    if isinstance(target, exp.Schema):
        names = [one.name for one in target.expressions]
    else:
        found = columns(tuple(part.name for part in target.parts))
        names = [] if found is None else list(found.names)
    return names[place] if place < len(names) else None


def bound_rows(table: pa.Table, names: Sequence[str | None]) -> list[Arguments]:
    """Return the values for each execution: sequences for `?`, mappings for markers `:name`.

    Columns with the markers' names are bound by name, others in order. Raises InvalidRequest for
    another number of columns than markers.
    """
    if table.num_columns != len(names):
        raise InvalidRequest(
            f"{table.num_columns} values were bound, and the statement has {len(names)} markers"
        )
    named = [str(name) for name in names if name is not None]
    order = list(range(len(names)))
    if named and set(named) == set(table.column_names):
        order = [table.column_names.index(name) for name in named]
    columns = [table.column(place).to_pylist() for place in order]
    rows = list(zip(*columns)) if columns else [()] * table.num_rows
    if not named:
        return [list(row) for row in rows]
    return [dict(zip(named, row)) for row in rows]
