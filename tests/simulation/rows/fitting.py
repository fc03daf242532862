"""Fitting rows to a table: columns by name or position, types, defaults, generated values.

Owns the checks of rows before they are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tests.simulation.rows import queries, values
from tests.simulation.rows.functions import convert
from tests.simulation.rows.scopes import ColumnName, Row, Rows, Scope, TypedExpression
from txlake.commit.data_plane import Placement
from txlake.errors import InvalidRequest
from txlake.local.char_types import length_of
from txlake.local.rules import CURRENT_DEFAULT, GENERATION_EXPRESSION, _fills_itself, require_given
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.protocol.types import Field, Struct
from txlake.spark import rows as of_spark

Value = Callable[[Row], Any]


def names_of(snapshot: Snapshot, qualifier: str | None = None) -> tuple[ColumnName, ...]:
    """Return the table's columns as expressions name them."""
    return tuple(ColumnName(item.name, item.type, qualifier) for item in snapshot.schema)


def to_column_value(value: TypedExpression, item: Field, snapshot: Snapshot) -> Value:
    """Return the value as the column stores it.

    Raises InvalidRequest for a type that doesn't fit.
    """
    convert, of = values.assignment(value.type, item, snapshot.table), value.of
    return lambda row: convert(of(row))


def default_value(item: Field) -> Value:
    """Return a column's default; NULL without one."""
    text = item.metadata.get(CURRENT_DEFAULT)
    if not isinstance(text, str):
        return lambda _: None
    return convert(queries.expression(text, Scope(()), {}), item.type).of


def place_columns(
    new: Rows, snapshot: Snapshot, placement: Placement
) -> tuple[list[Row], set[str]]:
    """Return rows in the table's columns, and the names of the columns that were given.

    Raises InvalidRequest for a column that doesn't fit.
    """
    source = Rows(new.visible, new.rows)
    if placement.by_name:
        targets = _by_name(source, snapshot)
    else:
        targets = _by_position(source, snapshot, placement.columns)
    given = {
        name: to_column_value(
            TypedExpression(source.names[place].type, _taken(place)), item, snapshot
        )
        for name, (place, item) in targets.items()
    }
    require_given(snapshot, given)
    return fill_columns(source.rows, given, snapshot), set(given)


def _taken(place: int) -> Value:
    return lambda row: row[place]


def _by_name(source: Rows, snapshot: Snapshot) -> dict[str, tuple[int, Field]]:
    targets: dict[str, tuple[int, Field]] = {}
    for place, name in enumerate(source.names):
        item = snapshot.schema.find(name.name)
        if item is None:
            raise InvalidRequest(
                f"{snapshot.table}: the rows have column {name.name!r}, the table has "
                f"{', '.join(snapshot.schema.names)}"
            )
        if item.name in targets:
            raise InvalidRequest(f"{snapshot.table}: the rows have two columns {item.name!r}")
        targets[item.name] = place, item
    return targets


def _by_position(
    source: Rows, snapshot: Snapshot, columns: Sequence[str] | None
) -> dict[str, tuple[int, Field]]:
    names = snapshot.schema.names if columns is None else columns
    items = []
    for name in names:
        item = snapshot.schema.find(name)
        if item is None:
            raise unknown_column(name, snapshot)
        items.append(item)
    if len({item.name for item in items}) < len(items):
        raise InvalidRequest(f"{snapshot.table}: a column is named twice in {list(names)}")
    rest = items[len(source.names) :]
    fitting = columns is None and all(map(_fills_itself, rest))
    if len(source.names) > len(items) or (rest and not fitting):
        raise InvalidRequest(
            f"{snapshot.table}: expected {len(items)} columns ({', '.join(names)}), found "
            f"{len(source.names)} ({', '.join(one.name for one in source.names)})"
        )
    return {item.name: (place, item) for place, item in enumerate(items[: len(source.names)])}


def fill_columns(rows: Sequence[Row], given: Mapping[str, Value], snapshot: Snapshot) -> list[Row]:
    """Return rows with all columns of the table in order: given, generated or default values."""
    schema = snapshot.schema
    of = [given.get(item.name) or default_value(item) for item in schema]
    made = [tuple(one(row) for one in of) for row in rows]
    generated = {
        place: generated_value(item, schema)
        for place, item in enumerate(schema)
        if item.name not in given and GENERATION_EXPRESSION in item.metadata
    }
    if not generated:
        return made
    return [
        tuple(
            generated[place](row) if place in generated else value
            for place, value in enumerate(row)
        )
        for row in made
    ]


def generated_value(item: Field, schema: Struct) -> Value:
    """Return the value of a generated column for a row of the table."""
    names = tuple(ColumnName(one.name, one.type) for one in schema)
    text = str(item.metadata[GENERATION_EXPRESSION])
    return convert(queries.expression(text, Scope(names), {}), item.type).of


def check(rows: Sequence[Row], snapshot: Snapshot, given: Collection[str] | None = None) -> None:
    """Check rows against the table's rules.

    Raises InvalidRequest for the first row that violates one.

    `given`: the columns whose values the caller gave; generated ones among them are checked. None
    for all.
    """
    rules = _rules(snapshot, given)
    for row in rows if rules else ():
        for name, is_match in rules:
            if not is_match(row):
                shown = dict(zip(snapshot.schema.names, map(values.json_of, row), strict=True))
                raise InvalidRequest(
                    f"{snapshot.table}: {name} is violated by the row {json.dumps(shown)}; "
                    "nothing was written"
                )


def _rules(
    snapshot: Snapshot, given: Collection[str] | None
) -> list[tuple[str, Callable[[Row], bool]]]:
    scope = Scope(names_of(snapshot))
    rules: list[tuple[str, Callable[[Row], bool]]] = []
    for place, item in enumerate(snapshot.schema):
        if not item.nullable:
            rules.append((f"NOT NULL of column {item.name!r}", _is_there(place)))
        text = of_spark._invariant(item)
        if text is not None:
            name = f"invariant {text!r} of column {item.name!r}"
            rules.append((name, queries.condition(text, scope, {})))
        expression = item.metadata.get(GENERATION_EXPRESSION)
        if isinstance(expression, str) and (given is None or item.name in given):
            name = f"generated column {item.name!r} = {expression}"
            rules.append((name, _is_same(place, generated_value(item, snapshot.schema))))
        length = length_of(item)
        if length is not None:
            rules.append((f"length {length} of column {item.name!r}", _is_short(place, length)))
    for name, text in snapshot.properties.constraints.items():
        is_match = queries.condition(text, scope, {})
        rules.append((f"CHECK constraint {name} ({text})", is_match))
    return rules


def _is_there(place: int) -> Callable[[Row], bool]:
    return lambda row: row[place] is not None


def _is_same(place: int, value: Value) -> Callable[[Row], bool]:
    return lambda row: bool(row[place] == value(row))


def _is_short(place: int, length: int) -> Callable[[Row], bool]:
    return lambda row: row[place] is None or len(row[place]) <= length
