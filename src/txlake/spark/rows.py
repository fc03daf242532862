"""Rows are made to fit a table: columns, types, defaults, generated values, constraints.

Owns the checks on rows before they are written. A row that violates a constraint is found by the
writing job itself: `checked` adds a column that names the constraint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.datafiles.write_task import FIRST_WITHOUT_IMAGE
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.local.char_types import is_bounded, length_metadata, length_of
from txlake.local.control_columns import ACTION, VIOLATION, VIOLATION_ROW
from txlake.local.rules import (
    _INVARIANTS,
    CURRENT_DEFAULT,
    GENERATION_EXPRESSION,
    NOT_NULL,
    _fills_itself,
    _needs_spark,
    _require_default,
    has_rules,
    require_given,
)
from txlake.local.types import (
    can_store,
    is_converted,
    may_overflow,
    missing_field,
    quote,
    reads_text,
    same_type,
    type_text,
    with_names,
)
from txlake.local.writing import partition_fields
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.protocol.identity import is_identity
from txlake.protocol.types import DataType, Field, Struct
from txlake.spark.bounded_text import stored_text
from txlake.spark.types import delta_schema, spark_type, stored
from txlake.spark.writing import partition_value
from txlake.sql.statements.calls import stored_expression_problem

_VIOLATED = "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]"

Identity: TypeAlias = Callable[[Field], Column]
"""The values that an identity column's rows get where they bring none."""


def by_name(frame: DataFrame, snapshot: Snapshot, identity: Identity) -> DataFrame:
    """Return the table's columns from a frame's of the same names; absent ones get defaults.

    `identity` gives the values of an identity column that is absent. Letter case of names doesn't
    count. Constraints aren't checked (`checked`).

    Raises InvalidRequest for a column that the table doesn't have, two of one name, one of a type
    that can't be stored, and a NOT NULL column that is absent and has no default.
    """
    source = delta_schema(frame.schema)
    _refuse_ambiguous(source, snapshot)
    unknown = [item.name for item in source if snapshot.schema.find(item.name) is None]
    if unknown:
        raise InvalidRequest(
            f"[DELTA_METADATA_MISMATCH] {snapshot.table}: the rows have "
            f"column{'s' if len(unknown) > 1 else ''} "
            f"{', '.join(map(repr, unknown))}, the table has {', '.join(snapshot.schema.names)}; "
            "use merge_schema=True (WITH SCHEMA EVOLUTION) to add columns"
        )
    if not has_rules(snapshot) and _has_the_columns(source, snapshot.schema):
        return _as_partitioned(frame, snapshot)
    values: dict[str, Column] = {}
    for item in snapshot.schema:
        found = source.find(item.name)
        if found is not None:
            values[item.name] = storable(F.col(quote(found.name)), found.type, item, snapshot)
        elif is_identity(item):
            values[item.name] = identity(item)
    require_given(snapshot, values)
    return filled(frame, values, snapshot)


def by_position(
    frame: DataFrame, snapshot: Snapshot, columns: Sequence[str] | None, identity: Identity
) -> DataFrame:
    """Return the table's columns from a frame's in order; `columns` names where they go.

    `identity` as in `by_name`. Fields of structs go in order too. Without `columns`, trailing
    columns of the table that fill themselves may be absent. Raises InvalidRequest when the numbers
    differ, a type can't be stored, or a NOT NULL column gets no value.
    """
    source = delta_schema(frame.schema)
    targets = targets_by_position(source, snapshot, columns)
    positions = [f"__c{position}" for position in range(len(targets))]
    renamed = frame.toDF(*positions)
    values = {}
    for position, item, target in zip(positions, source, targets, strict=True):
        value, data_type = F.col(position), with_names(item.type, target.type)
        if data_type != item.type:
            value = value.cast(spark_type(data_type))  # goes by position, inside too
        values[target.name] = storable(value, data_type, target, snapshot, complete=True)
    for item in snapshot.schema:
        if is_identity(item) and item.name not in values:
            values[item.name] = identity(item)
    require_given(snapshot, values)
    return filled(renamed, values, snapshot)


def targets_by_position(
    source: Struct, snapshot: Snapshot, columns: Sequence[str] | None
) -> list[Field]:
    """Return the columns to which rows of this schema go in order.

    `columns` are their names; None for all columns of the table, of which trailing ones that fill
    themselves are left out where the rows have fewer. Raises InvalidRequest when the numbers differ
    otherwise, a column doesn't exist, or one is named twice.
    """
    names = list(columns) if columns is not None else list(snapshot.schema.names)
    targets = []
    for name in names:
        found = snapshot.schema.find(name)
        if found is None:
            raise unknown_column(name, snapshot)
        targets.append(found)
    if len({item.name for item in targets}) < len(targets):
        raise InvalidRequest(f"{snapshot.table}: a column is named twice in {names}")
    if len(source.fields) != len(targets):
        fitting = columns is None and len(source.fields) < len(targets)
        rest = targets[len(source.fields) :]
        if not (fitting and all(_fills_itself(item) for item in rest)):
            raise InvalidRequest(
                f"[DELTA_INSERT_COLUMN_ARITY_MISMATCH] {snapshot.table}: expected {len(targets)} "
                f"columns ({', '.join(names)}), "
                f"found {len(source.fields)} ({', '.join(source.names)})"
            )
        targets = targets[: len(source.fields)]
    return targets


def _as_partitioned(frame: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Return rows with the values that partition columns will have (`partition_value`)."""
    changed = {}
    for item in partition_fields(snapshot):
        value = F.col(quote(item.name))
        held = partition_value(value, item)
        if held is not value:
            changed[item.name] = held
    return frame.withColumns(changed) if changed else frame


def _has_the_columns(source: Struct, schema: Struct) -> bool:
    """Return whether rows have just the table's columns, in order, and of its types but for
    nullability.
    """
    return source.names == schema.names and all(
        same_type(one.type, other.type) for one, other in zip(source, schema, strict=True)
    )


def _refuse_ambiguous(source: Struct, snapshot: Snapshot) -> None:
    """Raise InvalidRequest if two columns of the rows differ only in letter case."""
    folded: dict[str, str] = {}
    for name in source.names:
        other = folded.setdefault(name.lower(), name)
        if other is not name:
            raise InvalidRequest(
                f"{snapshot.table}: the rows have two columns {other!r} and {name!r}; "
                "letter case doesn't tell columns apart"
            )


def storable(
    value: Column,
    source: DataType,
    target: Field,
    snapshot: Snapshot,
    *,
    complete: bool = False,
) -> Column:
    """Return the value as the column stores it. Raises InvalidRequest if the types don't fit.

    A number that is too large for the column, or a text that is none of its values', fails the job
    with an error that names the column and the value. Nulls aren't checked. Fields that a struct
    lacks become null, or with `complete` are an error; further fields are an error.
    """
    is_cast = reads_text(source, target.type) or is_converted(source, target.type)
    if not is_cast and not can_store(source, target.type):
        raise InvalidRequest(
            f"{snapshot.table}: column {target.name!r} is {type_text(target.type)}, "
            f"the value is {type_text(source)}, which can't be stored there; cast it"
        )
    missing = missing_field(source, target.type) if complete else None
    if missing is not None:
        raise InvalidRequest(
            f"{snapshot.table}: column {target.name!r} is {type_text(target.type)}, the value is "
            f"{type_text(source)}, which lacks {'.'.join(missing)}; give it a value, or null"
        )
    if not is_cast and not may_overflow(source, target.type):
        return stored(value, source, target.type)
    unfit = F.concat(
        F.lit(f"column {target.name!r} is {type_text(target.type)}, which can't hold the value "),
        value.cast("string"),
    )
    failed = F.when(value.isNotNull(), F.raise_error(unfit).cast(spark_type(target.type)))
    return F.coalesce(value.try_cast(spark_type(target.type)), failed)


def updated_by_name(
    value: Column, source: DataType, current: Column, target: Field, snapshot: Snapshot
) -> Column:
    """Return the value as the column stores it; fields that a struct lacks stay as they are.

    Where the value is null, those fields keep their struct alive, and all others are null.
    """
    kept = missing_field(source, target.type, lists=False)
    if kept is None or not isinstance(source, Struct) or not isinstance(target.type, Struct):
        return storable(value, source, target, snapshot)
    members = []
    for inner in target.type:
        found = source.find(inner.name)
        member = current.getField(inner.name)
        if found is not None:
            member = updated_by_name(
                value.getField(found.name), found.type, member, inner, snapshot
            )
        members.append(member.alias(inner.name))
    return F.when(value.isNotNull() | current.isNotNull(), F.struct(*members))


def given_default(item: Field, snapshot: Snapshot) -> Column:
    """Return the default of a column to which DEFAULT is assigned.

    Raises InvalidRequest for one that is NOT NULL and has none, and as `default_value`.
    """
    _require_default(item, snapshot)
    return default_value(item, snapshot.table)


def default_value(item: Field, table: str) -> Column:
    """Return a column's default; null if it has none.

    Values of identity columns are drawn (`identities`): they have no default. Raises
    UnsupportedFeature, as `stored_expression`.
    """
    assert not is_identity(item), f"identity column {item.name!r} has no values here"
    text = item.metadata.get(CURRENT_DEFAULT)
    if not isinstance(text, str):
        return F.lit(None).cast(spark_type(item.type))
    value = stored_expression(text, f"the default of column {item.name!r}", table)
    return value.cast(spark_type(item.type))


def stored_expression(text: str, what: str, table: str) -> Column:
    """Return the Spark column of an expression stored in a table; `what` names it.

    Raises UnsupportedFeature for one that may do more than compute a value of the row: any engine
    that can write to the table's folder can have stored it.
    """
    reason = _refusal(text)
    if reason is not None:
        raise UnsupportedFeature(
            f"{table}: {what} ({text}) isn't evaluated: {reason}. Expected Spark's pure functions "
            "of the row; drop it, or change it to one that has no others"
        )
    return F.expr(text)


_refusal = lru_cache(maxsize=1_000)(stored_expression_problem)


def filled(
    frame: DataFrame,
    values: Mapping[str, Column | str],
    snapshot: Snapshot,
    carried: Sequence[Column | str] = (),
    some_given: Collection[str] = (),
) -> DataFrame:
    """Return all columns in order (given, generated or default), then `carried`.

    A text among the `values` is the name, in backquotes, of a column that stays as it is. Raises
    UnsupportedFeature as `stored_expression`.

    A generated column that isn't given is computed from the columns that its expression names; one
    of `some_given` where its value, a struct around the one given, is null.
    """
    schema = snapshot.schema
    partitions = snapshot.partition_columns
    given = {
        item.name: _given_or_default(
            item,
            values,
            snapshot.table,
            is_whole=item.name not in some_given,
            is_partition=item.name in partitions,
        )
        for item in schema
        if item.name in values or GENERATION_EXPRESSION not in item.metadata
    }
    first = frame.select(*given.values(), *carried)
    if len(given) == len(schema.fields) and not some_given:
        return first
    columns = []
    for item in schema:
        column = F.col(quote(item.name))
        if item.name not in given:
            column = _generated(item, snapshot.table)
        elif item.name in some_given:
            column = F.when(column.isNotNull(), column.getField("given")).otherwise(
                _generated(item, snapshot.table)
            )
        if item.name in partitions:
            column = partition_value(column, item)
        columns.append(column.alias(item.name))
    rest = first.columns[len(given) :]
    return first.select(*columns, *[F.col(quote(name)) for name in rest])


def _given_or_default(
    item: Field,
    values: Mapping[str, Column | str],
    table: str,
    *,
    is_whole: bool,
    is_partition: bool,
) -> Column | str:
    """Return a column's given value or its default, under its name.

    With `is_whole` it is as the table stores it: CHARs padded, partition values as the log has
    them.
    """
    value = values[item.name] if item.name in values else default_value(item, table)
    if isinstance(value, str):
        return value
    if not is_whole:
        return value.alias(item.name)
    metadata = length_metadata(item) if is_bounded(item) else None
    if metadata is not None:
        value = stored_text(value, item)
    if is_partition:
        value = partition_value(value, item)
    return value.alias(item.name) if metadata is None else value.alias(item.name, metadata=metadata)


def _generated(item: Field, table: str) -> Column:
    """Return the value of a generated column. Raises UnsupportedFeature as `stored_expression`."""
    text = str(item.metadata[GENERATION_EXPRESSION])
    value = stored_expression(text, f"the expression of generated column {item.name!r}", table)
    return stored_text(value.cast(spark_type(item.type)), item)


def checked(
    frame: DataFrame, snapshot: Snapshot, *, given: Collection[str] | None = None
) -> DataFrame:
    """Return the frame with VIOLATION and VIOLATION_ROW, if the table has rules to check; else as
    it is.

    VIOLATION is the name of the first rule that a row violates, null for none; VIOLATION_ROW is the
    row as JSON. `given`: the columns whose values the caller gave; generated ones among them are
    checked. None for all. Rows whose ACTION writes no image are not checked.
    """
    rules = _rules(snapshot, given)
    if not rules:
        return frame
    violated: Column = F.lit(None).cast("string")
    for name, holds in reversed(rules):
        violated = F.when(~F.coalesce(holds, F.lit(False)), F.lit(name)).otherwise(violated)
    if ACTION in frame.columns:
        violated = F.when(F.col(ACTION) < FIRST_WITHOUT_IMAGE, violated)
    frame = frame.withColumn(VIOLATION, violated)
    row = F.to_json(F.struct(*[F.col(quote(name)) for name in snapshot.schema.names]))
    return frame.withColumn(VIOLATION_ROW, F.when(F.col(VIOLATION).isNotNull(), row))


def _rules(snapshot: Snapshot, given: Collection[str] | None) -> list[tuple[str, Column]]:
    """Return each rule with its name, in the order in which violations are named.

    A row must make it true (null is not). Raises UnsupportedFeature as `stored_expression`.
    """
    rules: list[tuple[str, Column]] = []
    table = snapshot.table
    for item in snapshot.schema:
        if item.nullable and not _needs_spark(item):
            continue
        column = F.col(quote(item.name))
        if not item.nullable:
            rules.append((f"{NOT_NULL} of column {item.name!r}", column.isNotNull()))
        if isinstance(item.type, Struct):
            for path, rule in _not_null(item.type, (item.name,)):
                rules.append((f"{NOT_NULL} of column {'.'.join(path)!r}", rule))
        text = _invariant(item)
        if text is not None:
            holds = stored_expression(text, f"the invariant of column {item.name!r}", table)
            rules.append((f"{_VIOLATED} invariant {text!r} of column {item.name!r}", holds))
        generated = item.metadata.get(GENERATION_EXPRESSION)
        if isinstance(generated, str) and (given is None or item.name in given):
            same = column.eqNullSafe(_generated(item, table))
            rules.append((f"{_VIOLATED} generated column {item.name!r} = {generated}", same))
        length = length_of(item)
        if length is not None:
            fits = column.isNull() | (F.char_length(column) <= F.lit(length))
            rules.append(
                (f"[DELTA_EXCEED_CHAR_VARCHAR_LIMIT] length {length} of column {item.name!r}", fits)
            )
    for name, text in snapshot.properties.constraints.items():
        holds = stored_expression(text, f"CHECK constraint {name}", table)
        rules.append((f"{_VIOLATED} CHECK constraint {name} ({text})", holds))
    return rules


def _not_null(struct: Struct, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Column]]:
    """Return rules for the NOT NULL fields of a struct, at any depth, by path.

    Such a field may be null where its struct is.
    """
    parent = F.col(".".join(map(quote, path)))
    rules = []
    for item in struct:
        inner = (*path, item.name)
        if not item.nullable:
            rule = parent.isNull() | F.col(".".join(map(quote, inner))).isNotNull()
            rules.append((inner, rule))
        if isinstance(item.type, Struct):
            rules += _not_null(item.type, inner)
    return rules


def _invariant(item: Field) -> str | None:
    """Return the SQL text of a column's invariant; None if it has none."""
    text = item.metadata.get(_INVARIANTS)
    if not isinstance(text, str):
        return None
    parsed = json.loads(text)
    expression = parsed.get("expression", {}).get("expression")
    return expression if isinstance(expression, str) else None
