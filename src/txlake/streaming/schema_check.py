"""Whether a stream may read the files of a version whose schema isn't its own.

A stream's columns are fixed when it starts. Owns which older and newer schemas of the table it can
read by them; decides without I/O.
"""

from __future__ import annotations

from txlake.errors import InvalidRequest
from txlake.protocol.type_widening import is_widening, same_primitive
from txlake.protocol.types import Array, DataType, Map, Primitive, Struct


def check_schema(
    table: str, version: int, found: Struct, own: Struct, newest: Struct, *, is_later: bool
) -> None:
    """Raises InvalidRequest unless rows of the schema `found`, of a version, can be read by `own`.

    Columns may be missing in it, and types narrower; but where the version `is_later` than that of
    `own`, a column that is missing was dropped, and the stream would give nulls for it. `newest` is
    the table's schema now: where that can read the rows, the query only has to be started again.
    """
    why = _unfit(found, own, "") or (_dropped(own, found, "") if is_later else None)
    if why is None:
        return
    if _unfit(found, newest, "") is None:
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
    """Raises InvalidRequest where a version is partitioned by other columns than the stream's."""
    if found != own:
        raise InvalidRequest(
            f"{table}: version {version} is partitioned by {', '.join(found) or 'nothing'}, the "
            f"stream's table by {', '.join(own) or 'nothing'}. Go on with a new query whose "
            "checkpoint is new, and whose startingVersion is after that change"
        )


def _unfit(found: DataType, own: DataType, path: str) -> str | None:
    """Why rows of a type can't be read as the other; None when they can."""
    match found, own:
        case Struct(fields), Struct(others):
            by_name = {item.name: item for item in others}
            for item in fields:
                name = f"{path}.{item.name}" if path else item.name
                wanted = by_name.get(item.name)
                if wanted is None or wanted.physical_name != item.physical_name:
                    return f"it has the column {name!r}, which the stream doesn't"
                why = _unfit(item.type, wanted.type, name)
                if why is not None:
                    return why
            return None
        case Array(one, _), Array(other, _):
            return _unfit(one, other, f"{path}.element")
        case Map(key, value, _), Map(other_key, other_value, _):
            return _unfit(key, other_key, f"{path}.key") or _unfit(
                value, other_value, f"{path}.value"
            )
        case Primitive(), Primitive():
            texts = found.is_string and own.is_string
            if texts or same_primitive(found, own) or is_widening(found, own):
                return None
    return f"its column {path!r} is {_shown(found)}, and the stream's {_shown(own)}"


def _dropped(own: DataType, found: DataType, path: str) -> str | None:
    """Which column of one type the other lacks, in words; None where there is none."""
    match own, found:
        case Struct(fields), Struct(others):
            by_name = {item.name: item for item in others}
            for item in fields:
                name = f"{path}.{item.name}" if path else item.name
                kept = by_name.get(item.name)
                if kept is None or kept.physical_name != item.physical_name:
                    return f"it has no column {name!r}, which the stream has"
                why = _dropped(item.type, kept.type, name)
                if why is not None:
                    return why
        case Array(one, _), Array(other, _):
            return _dropped(one, other, f"{path}.element")
        case Map(key, value, _), Map(other_key, other_value, _):
            return _dropped(key, other_key, f"{path}.key") or _dropped(
                value, other_value, f"{path}.value"
            )
    return None


def _shown(data_type: DataType) -> str:
    return data_type.name if isinstance(data_type, Primitive) else type(data_type).__name__.lower()
