"""Parquet data files as rows in a table's types: what the driver and Spark's tasks read by pyarrow.

Owns how a column is found and what its values become, the one rule for times that may be of the
calendar that was in use before 1582, and how much of a file is decoded at once. Source: Spark,
"Parquet Files", rebase modes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.errors import CorruptTable, UnsupportedFeature

_FIELD_ID = b"PARQUET:field_id"

# What writers of the old calendar leave in a footer; since when both tell the same days and times.
_SPARK = b"org.apache.spark.version"
_LEGACY = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
_PROLEPTIC_SINCE = (3, 1)
_VERSION = re.compile(rb"(\d+)\.(\d+)")
SAME_DAYS_FROM = -141_427  # 1582-10-15
SAME_MICROS_FROM = -2_208_988_800_000_000  # 1900-01-01, UTC

_BATCH_BYTES = 32 * 1024 * 1024
_BATCH_ROWS = 131_072
_TEXT_BATCH_ROWS = 16_384  # a file holds a long text once that many rows share
_BATCH_ROWS_MIN = 64


@contextmanager
def corrupt_table_errors(url: str) -> Iterator[None]:
    """Raises CorruptTable naming the file for what is raised inside because of its content."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise CorruptTable(f"data file {url} can't be read: {error}") from error


def open_parquet(source: pa.NativeFile) -> pq.ParquetFile:
    """The file, its times in microseconds. Raises pyarrow's errors where it is no Parquet."""
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=False)


class Columns:
    """The wanted columns of files; where they are is remembered while files are alike.

    Attributes:
        sources: what the file calls each of them; None where it lacks one.
        names: the columns of the file to read.
    """

    def __init__(self, schema: pa.Schema, *, by_id: bool, exact: bool = False) -> None:
        """`schema` has them by physical name; they are found by field id with `by_id`.

        With `exact`, a column that Spark may read as other values than pyarrow is refused.
        """
        self.schema = schema
        self._by_id = by_id
        self._exact = exact
        self._found: pa.Schema | None = None
        self.sources: list[str | None] = []
        self.names: list[str] = []

    def find(self, file: pq.ParquetFile) -> None:
        """Looks the columns up in a file. Raises ValueError when one isn't clear, or refused."""
        found = file.schema_arrow
        if self._found is None or not found.equals(self._found, check_metadata=True):
            fields = list(found)
            places = [find_field(fields, wanted, self._by_id) for wanted in self.schema]
            self.sources = [None if place is None else fields[place].name for place in places]
            # A file without any of the columns has rows all the same.
            self.names = [name for name in self.sources if name is not None] or found.names[:1]
            self._found = found
        for name in self.sources:
            if name is not None and is_shredded(found.field(name).type):
                raise UnsupportedFeature(f"column {name!r}: {SHREDDED}")
        if self._exact:
            self._check(found, old=is_legacy(file.metadata.metadata))

    def _check(self, found: pa.Schema, *, old: bool) -> None:
        folded = [name.lower() for name in found.names]
        for name, wanted in zip(self.sources, self.schema, strict=True):
            if name is None:
                continue
            if folded.count(name.lower()) > 1:
                raise ValueError(f"two columns have the name {name!r}")
            if not _agrees(found.field(name).type, wanted.type):
                raise ValueError(f"column {name!r} is {found.field(name).type}")
            if old and pa.types.is_temporal(wanted.type):
                raise ValueError(f"column {name!r} may be in the calendar of old Spark versions")

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that was read."""
        places = {name: place for place, name in enumerate(batch.schema.names)}
        columns = [
            pa.nulls(batch.num_rows, wanted.type)
            if name is None
            else as_type(batch.column(places[name]), wanted.type, self._by_id)
            for wanted, name in zip(self.schema, self.sources, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def iter_rows(
    file: pq.ParquetFile, columns: Columns, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, or of some of its row groups, in batches of a bounded size.

    `columns` were found in this file. Raises ValueError for times that pyarrow reads as others than
    Spark does, and for fewer or more rows than the footer says.
    """
    footer = file.metadata
    numbers = range(footer.num_row_groups) if groups is None else groups
    chosen = [footer.row_group(number) for number in numbers]
    expected = sum(group.num_rows for group in chosen)
    is_old = is_legacy(footer.metadata)
    rows = batch_rows(chosen, [item for item in file.schema_arrow if item.name in columns.names])
    count = 0
    for batch in file.iter_batches(
        rows, row_groups=list(numbers), columns=columns.names, use_threads=False
    ):
        if is_old and any(map(_is_old, batch.columns)):
            raise ValueError(OLD_TIMES)
        count += batch.num_rows
        yield columns.of(batch)
    if count != expected:
        raise ValueError(f"expected {expected} rows, found {count}")


SHREDDED = "it holds shredded variants, which only Spark's own reader puts together"


def is_shredded(data_type: pa.DataType) -> bool:
    """Whether a type has a variant inside whose values stand in columns of their own."""
    if isinstance(data_type, pa.ExtensionType):
        return is_shredded(data_type.storage_type)
    parts = [data_type.field(place) for place in range(data_type.num_fields)]
    names = {item.name for item in parts}
    if pa.types.is_struct(data_type) and "typed_value" in names and names & {"value", "metadata"}:
        return True
    return any(is_shredded(item.type) for item in parts)


OLD_TIMES = "it holds times before 1900 in the calendar of old Spark versions"


def has_old_times(file: pq.ParquetFile) -> bool:
    """Whether a file holds times that aren't those that pyarrow reads."""
    if not is_legacy(file.metadata.metadata):
        return False
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    rows = batch_rows(groups, file.schema_arrow)
    batches = file.iter_batches(rows, use_threads=False)
    return any(_is_old(column) for batch in batches for column in batch.columns)


def is_legacy(footer: Mapping[bytes, bytes] | None) -> bool:
    """Whether times in a file may be of the old calendar; writers other than Spark know one.

    `footer`: its keys and values.
    """
    known = footer or {}
    if not _LEGACY.isdisjoint(known):
        return True
    if _SPARK not in known:
        return False
    version = _VERSION.match(known[_SPARK])
    return version is None or (int(version[1]), int(version[2])) < _PROLEPTIC_SINCE


def batch_rows(groups: Iterable[pq.RowGroupMetaData], fields: Iterable[pa.Field]) -> int:
    """How many rows of these columns of a file take about as much memory as a batch may."""
    widest = max((one.total_byte_size // max(1, one.num_rows) for one in groups), default=1)
    is_narrow = all(pa.types.is_primitive(item.type) for item in fields)
    rows_max = _BATCH_ROWS if is_narrow else _TEXT_BATCH_ROWS
    return max(min(_BATCH_ROWS_MIN, rows_max), min(rows_max, _BATCH_BYTES // max(1, widest)))


def find_field(fields: Sequence[pa.Field], wanted: pa.Field, by_id: bool) -> int | None:
    """Which of a file's fields a wanted field means: by id, or by name as Spark compares names.

    Fields without an id in the table are found by name, whatever the mode. Raises ValueError when
    several names differ in case alone.
    """
    identity = _id_of(wanted) if by_id else None
    if identity is not None:
        return next((i for i, item in enumerate(fields) if _id_of(item) == identity), None)
    for place, item in enumerate(fields):
        if item.name == wanted.name:
            return place
    folded = wanted.name.lower()
    alike = [place for place, item in enumerate(fields) if item.name.lower() == folded]
    if len(alike) > 1:
        raise ValueError(f"column {wanted.name!r}: the file has {[fields[i].name for i in alike]}")
    return alike[0] if alike else None


def _id_of(item: pa.Field) -> bytes | None:
    identity: bytes | None = (item.metadata or {}).get(_FIELD_ID)
    return identity


def as_type(array: pa.Array, wanted: pa.DataType, by_id: bool) -> pa.Array:
    """The values of a file's column in the table's type; struct fields that it lacks are null."""
    if array.type.equals(wanted) and not _requires(wanted):
        return array
    if isinstance(array, pa.ExtensionArray):
        return as_type(array.storage, wanted, by_id)
    if pa.types.is_struct(wanted):
        parts = [_present(_field(array, one, by_id), one, array) for one in wanted]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=array.is_null())
    if pa.types.is_list(wanted):
        if not pa.types.is_list(array.type):  # as other writers hold lists in memory
            array = array.cast(pa.list_(array.type.value_field))
        return _with_child(array, wanted, as_type(array.values, wanted.value_type, by_id))
    if pa.types.is_map(wanted):
        keys = as_type(array.keys, wanted.key_type, by_id)
        items = as_type(array.items, wanted.item_type, by_id)
        fields = [wanted.key_field, wanted.item_field]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return _with_child(array, wanted, entries)
    # Text is bytes to Spark and to Parquet, whether it is UTF-8 or not.
    return array.cast(wanted, safe=not pa.types.is_string(wanted))


def with_field_names(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values in a type that differs in the names of fields alone, struct by struct.

    Texts and bytes may have the long offsets that Spark gives them by a setting.
    """
    if array.type.equals(wanted) and not _requires(wanted):
        return array
    if not _requires(wanted) and not _has_long_offsets(array.type):
        return array.view(wanted)
    if _is_variant(wanted):
        return as_type(array, wanted, by_id=False)
    if pa.types.is_struct(wanted):
        parts = [with_field_names(array.field(place), one.type) for place, one in enumerate(wanted)]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=array.is_null())
    if pa.types.is_map(wanted):
        entries = pa.StructArray.from_arrays(
            [
                with_field_names(array.keys, wanted.key_type),
                with_field_names(array.items, wanted.item_type),
            ],
            fields=[wanted.key_field, wanted.item_field],
        )
        return _with_child(array, wanted, entries)
    if pa.types.is_list(wanted):
        return _with_child(array, wanted, with_field_names(array.values, wanted.value_type))
    return array.cast(wanted, safe=not pa.types.is_string(wanted))


def _field(rows: pa.StructArray, wanted: pa.Field, by_id: bool) -> pa.Array:
    """The field of the rows that a wanted field means, in its type; nulls when there is none."""
    place = find_field(list(rows.type), wanted, by_id)
    if place is None:
        return pa.nulls(len(rows), wanted.type)
    return as_type(rows.field(place), wanted.type, by_id)


def _has_long_offsets(kind: pa.DataType) -> bool:
    """Whether texts or bytes in the type have offsets of 64 bits."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return True
    return any(_has_long_offsets(kind.field(place).type) for place in range(kind.num_fields))


def _requires(wanted: pa.DataType) -> bool:
    """Whether a field inside may not be null: those of a variant."""
    if pa.types.is_map(wanted):
        return _requires(wanted.key_type) or _requires(wanted.item_type)
    if _is_variant(wanted):
        return True
    return any(_requires(wanted.field(place).type) for place in range(wanted.num_fields))


def _is_variant(wanted: pa.DataType) -> bool:
    """Whether a table's type is a variant, the one with fields that may not be null."""
    return pa.types.is_struct(wanted) and any(not item.nullable for item in wanted)


def _present(part: pa.Array, wanted: pa.Field, rows: pa.StructArray) -> pa.Array:
    """A struct's field; a required one is empty where the struct itself is null."""
    if wanted.nullable or not part.null_count:
        return part
    if pc.any(pc.and_(part.is_null(), rows.is_valid())).as_py():
        raise ValueError(f"field {wanted.name!r} is null")
    return part.fill_null(b"")


def _with_child(array: pa.Array, wanted: pa.DataType, child: pa.Array) -> pa.Array:
    """The lists or maps with other entries in the places of theirs."""
    return pa.Array.from_buffers(
        wanted, len(array), array.buffers()[:2], array.null_count, array.offset, [child]
    )


def _agrees(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the file's values are the table's, as they are or in a wider type."""
    t = pa.types
    if pa.types.is_dictionary(found):
        return _agrees(found.value_type, wanted)
    if found.equals(wanted):
        return True
    if t.is_decimal(found) and t.is_decimal(wanted):
        return bool(found.scale == wanted.scale and found.precision <= wanted.precision)
    if t.is_large_string(found) or t.is_string_view(found):
        return bool(t.is_string(wanted))
    if t.is_large_binary(found) or t.is_binary_view(found):
        return bool(t.is_binary(wanted))
    both_signed = t.is_signed_integer(found) and t.is_signed_integer(wanted)
    both_float = t.is_floating(found) and t.is_floating(wanted) and not t.is_float16(found)
    return (both_signed or both_float) and bool(found.bit_width < wanted.bit_width)


def _is_old(array: pa.Array) -> bool:
    """Whether a time in an array, or inside its values, is one that the calendars tell apart."""
    if pa.types.is_date32(array.type):
        first, limit = pc.min(array.cast(pa.int32())).as_py(), SAME_DAYS_FROM
        return first is not None and first < limit
    if pa.types.is_timestamp(array.type):
        micros = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
        first, limit = pc.min(micros).as_py(), SAME_MICROS_FROM
        return first is not None and first < limit
    if pa.types.is_struct(array.type):
        return any(_is_old(part) for part in array.flatten())
    if pa.types.is_map(array.type):
        return _is_old(array.keys) or _is_old(array.items)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _is_old(array.flatten())
    return False
