"""The check whether a stream can read a version whose schema differs from the stream's.

A stream's columns are fixed when it starts. Owns which older and newer schemas of the table can be
read as these columns; decides without I/O.
"""

from __future__ import annotations

from txlake.errors import InvalidRequest
from txlake.protocol.type_widening import is_widening, same_primitive
from txlake.protocol.types import Array, DataType, Map, Primitive, Struct


def check_schema(
    table: str, version: int, found: Struct, own: Struct, newest: Struct, *, is_later: bool
) -> None:
    """Raise InvalidRequest unless rows of a version's schema `found` can be read as schema `own`.

    `found` may lack columns and have narrower types. But if the version `is_later` than that of
    `own`, a missing column was dropped, and the stream would return nulls for it. `newest` is the
    table's present schema: if it can read the rows, the error only asks to restart the query.
    """
    why = _mismatch(found, own, "") or (_dropped_column(own, found, "") if is_later else None)
    if why is None:
        return
    if _mismatch(found, newest, "") is None:
        raise InvalidRequest(
            f"[DELTA_SCHEMA_CHANGED_WITH_VERSION] {table}: version {version} changed the schema: "
            f"{why}. Start the query again from "
            "spark.readStream or lake.read_stream: it goes on with the new columns"
        )
    raise InvalidRequest(
        "[DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE] "
        f"{table}: at version {version} {why}: a column was dropped, renamed or changed since, "
        "and a stream has one schema. Go on with a new query whose checkpoint is new, and whose "
        "startingVersion is the version of that change"
    )


def check_partitions(
    table: str, version: int, found: tuple[str, ...], own: tuple[str, ...]
) -> None:
    """Raise InvalidRequest where a version has other partition columns than the stream's table."""
    if found != own:
        raise InvalidRequest(
            f"{table}: version {version} is partitioned by {', '.join(found) or 'nothing'}, the "
            f"stream's table by {', '.join(own) or 'nothing'}. Go on with a new query whose "
            "checkpoint is new, and whose startingVersion is after that change"
        )


def _mismatch(found: DataType, own: DataType, path: str) -> str | None:
    """Return why values of type `found` can't be read as type `own`; None when they can."""
    match found, own:
        case Struct(fields), Struct(others):
            by_name = {item.name: item for item in others}
            for item in fields:
                name = f"{path}.{item.name}" if path else item.name
                target = by_name.get(item.name)
                if target is None or target.physical_name != item.physical_name:
                    return f"it has the column {name!r}, which the stream doesn't"
                why = _mismatch(item.type, target.type, name)
                if why is not None:
                    return why
            return None
        case Array(one, _), Array(other, _):
            return _mismatch(one, other, f"{path}.element")
        case Map(key, value, _), Map(other_key, other_value, _):
            return _mismatch(key, other_key, f"{path}.key") or _mismatch(
                value, other_value, f"{path}.value"
            )
        case Primitive(), Primitive():
            are_strings = found.is_string and own.is_string
            if are_strings or same_primitive(found, own) or is_widening(found, own):
                return None
    return f"its column {path!r} is {_type_name(found)}, and the stream's {_type_name(own)}"


def _dropped_column(own: DataType, found: DataType, path: str) -> str | None:
    """Return a message naming a column of `own` that `found` lacks; None where there is none."""
    match own, found:
        case Struct(fields), Struct(others):
            by_name = {item.name: item for item in others}
            for item in fields:
                name = f"{path}.{item.name}" if path else item.name
                counterpart = by_name.get(item.name)
                if counterpart is None or counterpart.physical_name != item.physical_name:
                    return f"it has no column {name!r}, which the stream has"
                why = _dropped_column(item.type, counterpart.type, name)
                if why is not None:
                    return why
        case Array(one, _), Array(other, _):
            return _dropped_column(one, other, f"{path}.element")
        case Map(key, value, _), Map(other_key, other_value, _):
            return _dropped_column(key, other_key, f"{path}.key") or _dropped_column(
                value, other_value, f"{path}.value"
            )
    return None


def _type_name(data_type: DataType) -> str:
    return data_type.name if isinstance(data_type, Primitive) else type(data_type).__name__.lower()
