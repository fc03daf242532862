"""Which data files hold narrower types than their table's schema says, by their footers.

Source: PROTOCOL.md, "Type Widening".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.datafiles.parquet import find_field
from txlake.log.snapshot import Snapshot
from txlake.protocol.column_mapping import all_fields
from txlake.protocol.type_widening import TYPE_CHANGES
from txlake.protocol.types import Field, to_arrow_type


def widened_columns(snapshot: Snapshot) -> list[Field]:
    """The columns whose type, or that of a field inside, became wider."""
    return [item for item in snapshot.schema if _is_widened(item)]


def _is_widened(item: Field) -> bool:
    inside = all_fields(item.type)
    return any(TYPE_CHANGES in one.metadata for one in (item, *inside))


def holds_narrower_types(footer: pq.FileMetaData, columns: list[Field], *, by_id: bool) -> bool:
    """Whether one of these columns has another type in a file than in the table's schema.

    Where the footer doesn't tell: yes.
    """
    try:
        fields = list(footer.schema.to_arrow_schema())
        return any(_differs(fields, item, by_id) for item in columns)
    except (pa.ArrowException, NotImplementedError, ValueError):
        return True


def _differs(fields: list[pa.Field], item: Field, by_id: bool) -> bool:
    identity = None if item.column_id is None else {"PARQUET:field_id": str(item.column_id)}
    kind = to_arrow_type(item.type, physical=True)
    wanted = pa.field(item.physical_name, kind, True, identity)
    place = find_field(fields, wanted, by_id)
    return place is not None and not _same(fields[place].type, wanted.type)


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values have one type; fields of structs go by name, and may be missing."""
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(found):
            return False
        known = {item.name: item.type for item in found}
        return all(item.name not in known or _same(known[item.name], item.type) for item in wanted)
    if pa.types.is_map(wanted):
        return (
            pa.types.is_map(found)
            and _same(found.key_type, wanted.key_type)
            and _same(found.item_type, wanted.item_type)
        )
    if pa.types.is_list(wanted):
        return pa.types.is_list(found) and _same(found.value_type, wanted.value_type)
    return bool(found.equals(wanted))
