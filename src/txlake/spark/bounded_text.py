"""CHAR(n) and VARCHAR(n) as Spark treats them: how values are stored and read.

The log has such columns as strings whose declared type is in their metadata
(`__CHAR_VARCHAR_TYPE_STRING`). A CHAR is stored padded with spaces to its length; values that
another writer stored without them are padded on reading. A text that is too long is refused, even
if only spaces exceed the length, as in Delta Spark. Frames carry the declared type, as Spark's do:
Spark compares a CHAR with shorter literals by it, and CREATE TABLE ... AS SELECT declares the new
column alike. Source: Spark, `ApplyCharTypePadding`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from txlake.local.char_types import _bound, _has_bound, is_bounded
from txlake.protocol.type_text import declared_type
from txlake.protocol.types import Array, DataType, Field, Map, Struct


def stored_text(value: Column, item: Field) -> Column:
    """Return the value with each CHAR in it padded, as it is stored.

    The column's own text isn't checked for its length here (`rows.checked` does it); a nested text
    that is too long fails the job.
    """
    bound = _bound(declared_type(item))
    return _stored(value, item) if bound is None else _fitted(value, *bound)


def padded_text(value: Column, item: Field) -> Column:
    """Return a column's text as it is read: a CHAR padded to its length; any other column
    unchanged.
    """
    bound = _bound(declared_type(item))
    return value if bound is None else _fitted(value, *bound)


def _fitted(value: Column, is_char: bool, length: int) -> Column:
    """Return a text padded with spaces to `length` characters if it is a CHAR; longer ones stay."""
    if not is_char:
        return value
    return F.when(F.char_length(value) < F.lit(length), F.rpad(value, length, " ")).otherwise(value)


def _stored(value: Column, item: Field) -> Column:
    """Return the value of a column that isn't itself CHAR or VARCHAR, with nested ones checked and
    padded.
    """
    return _inside(value, declared_type(item), item.name) if is_bounded(item) else value


def _inside(value: Column, data_type: DataType, name: str) -> Column:
    """Return the value with each CHAR and VARCHAR inside it padded and checked.

    `name` names the column in the error that fails the job for a text that is too long.
    """
    if not _has_bound(data_type):
        return value
    match data_type:
        case Struct(fields):
            members = [
                _inside(value.getField(item.name), declared_type(item), f"{name}.{item.name}")
                for item in fields
            ]
            named = [member.alias(item.name) for member, item in zip(members, fields, strict=True)]
            return F.when(value.isNotNull(), F.struct(*named))
        case Array(element, _):
            return F.transform(value, lambda element_value: _inside(element_value, element, name))
        case Map(key, item, _):
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    _inside(entry.getField("key"), key, name).alias("key"),
                    _inside(entry.getField("value"), item, name).alias("value"),
                ),
            )
            return F.map_from_entries(entries)
        case _:
            bound = _bound(data_type)
            assert bound is not None
            fitted = _fitted(value, *bound)
            message = F.concat(
                F.lit(
                    f"column {name!r} is bounded by {bound[1]} characters, which can't hold the "
                ),
                F.lit("value "),
                value,
            )
            failed = F.when(value.isNotNull(), F.raise_error(message).cast("string"))
            return F.when(F.char_length(fitted) <= F.lit(bound[1]), fitted).otherwise(failed)
