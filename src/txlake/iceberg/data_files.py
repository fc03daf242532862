"""Data files of the log as Iceberg's: location, partition, counts and bounds of columns.

Bounds come from `log.bounds`, which knows how writers cut and round statistics. Source: Iceberg's
specification, "Manifests", "Appendix D: Single-value serialization".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from txlake.errors import InvalidRequest
from txlake.iceberg.partitioning import partition_fields, partition_record
from txlake.iceberg.schema import leaf_paths
from txlake.iceberg.store_io import location_of
from txlake.log.bounds import FileBounds
from txlake.protocol.actions import Add
from txlake.protocol.file_rows import files_table
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field, Struct

_BoundValue = bool | int | float | str | Decimal
_UPGRADE = (
    "REORG TABLE ... APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2)) rewrites such files"
)


@dataclass(frozen=True)
class Definition:
    """The definition of a table at one version, in both formats.

    Attributes:
        table_url: the table's encoded URL.
        schema, partition_columns: Delta's.
        iceberg_schema: the columns as Iceberg's, with the schema's id.
        spec: the partition spec of new files.
    """

    table_url: str
    schema: Struct
    partition_columns: tuple[str, ...]
    iceberg_schema: Schema
    spec: PartitionSpec

    @cached_property
    def partition_fields(self) -> tuple[Field, ...]:
        """The partition columns, in the order of the spec."""
        return partition_fields(self.schema, self.partition_columns)

    @cached_property
    def measured_paths(self) -> list[tuple[Field, ...]]:
        """The columns of which Delta has statistics, each with its fields from the top down."""
        partitions = {item.name for item in self.partition_fields}
        return [path for path in leaf_paths(self.schema) if path[0].name not in partitions]


def data_files(adds: Sequence[Add], definition: Definition) -> list[DataFile]:
    """Return the log's data files as Iceberg's, in their order.

    Raises InvalidRequest for a file with a deletion vector or without a number of records, and
    CorruptTable for a partition value that is no value of its column.
    """
    if not adds:
        return []
    bounds = _bounds(adds, definition)
    return [_data_file(add, row, bounds, definition) for row, add in enumerate(adds)]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """A column's id and its bounds in each file, as Iceberg's bytes; None where unknown."""

    column_id: int
    path: tuple[str, ...]
    lower: list[bytes | None]
    upper: list[bytes | None]


def _bounds(adds: Sequence[Add], definition: Definition) -> list[_Bounds]:
    """Return the bounds of each column of which Delta has statistics."""
    paths = definition.measured_paths
    names = [tuple(item.name for item in path) for path in paths]
    found = FileBounds.of(files_table(list(adds)), definition.schema, (), names)
    unknown: list[bytes | None] = [None] * len(adds)
    made: list[_Bounds] = []
    for path, name in zip(paths, names):
        column_id = path[-1].column_id
        assert column_id is not None
        physical = tuple(item.physical_name for item in path)
        column, kind = found.column(name), definition.iceberg_schema.find_type(column_id)
        if column is None or not isinstance(kind, PrimitiveType):
            made.append(_Bounds(column_id, physical, unknown, unknown))
            continue
        lower = [_bound_bytes(kind, value, upper=False) for value in _values(column.lower)]
        upper = [_bound_bytes(kind, value, upper=True) for value in _values(column.upper)]
        made.append(_Bounds(column_id, physical, lower, upper))
    return made


def _values(bounds: pa.Array) -> list[_BoundValue | None]:
    """Return bounds as Python values; times as days or microseconds."""
    if pa.types.is_timestamp(bounds.type):
        bounds = bounds.cast(pa.int64())
    elif pa.types.is_date(bounds.type):
        bounds = bounds.cast(pa.int32())
    values: list[_BoundValue | None] = bounds.to_pylist()
    return values


def _bound_bytes(kind: PrimitiveType, value: _BoundValue | None, *, upper: bool) -> bytes | None:
    """Return a bound in Iceberg's form; None for an unknown one, and for one beyond the type."""
    if value is None:
        return None
    if value == 0 and isinstance(value, float):
        value = 0.0 if upper else -0.0  # Java's readers order -0.0 before 0.0
    try:
        return bytes(to_bytes(kind, value))
    except (ValueError, OverflowError, UnicodeEncodeError, struct.error):
        return None


def _data_file(add: Add, row: int, bounds: Iterable[_Bounds], definition: Definition) -> DataFile:
    statistics = FileStatistics.from_json(add.stats)
    records = statistics.num_records
    if add.deletion_vector is not None or records is None:
        lacks = "no number of records" if records is None else "a deletion vector"
        raise InvalidRequest(f"{definition.table_url}: file {add.path} has {lacks}; {_UPGRADE}")
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for each in bounds:
        count = _count(statistics, each.path)
        if count is not None:
            nulls[each.column_id] = count
        least, greatest = each.lower[row], each.upper[row]
        if least is not None:
            lower[each.column_id] = least
        if greatest is not None:
            upper[each.column_id] = greatest
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location_of(definition.table_url, add.path),
        file_format=FileFormat.PARQUET,
        partition=partition_record(add.partition_values, definition.partition_fields),
        record_count=records,
        file_size_in_bytes=add.size,
        value_counts=dict.fromkeys(nulls, records),
        null_value_counts=nulls,
        lower_bounds=lower,
        upper_bounds=upper,
    )
    made.spec_id = definition.spec.spec_id
    return made


def _count(statistics: FileStatistics, path: tuple[str, ...]) -> int | None:
    """Return the number of nulls of a column, given its physical path; None where it is unknown."""
    found: object = statistics.null_count
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None
