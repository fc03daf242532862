"""Reading Parquet data files as rows of a table's types by pyarrow.

The driver and Spark's tasks use it. Owns how a column is found and how its values are converted,
the rule for times that may be of the calendar in use before 1582, and how much of a file is decoded
at once. Source: Spark, "Parquet Files", rebase modes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.errors import CorruptTable, UnsupportedFeature

_FIELD_ID = b"PARQUET:field_id"

# Footer keys of writers of the old calendar, and the times from which both calendars agree.
_SPARK = b"org.apache.spark.version"
_LEGACY = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
_PROLEPTIC_SINCE = (3, 1)
_VERSION = re.compile(rb"(\d+)\.(\d+)")
SAME_DAYS_FROM = -141_427  # 1582-10-15
SAME_MICROS_FROM = -2_208_988_800_000_000  # 1900-01-01, UTC

_BATCH_BYTES = 32 * 1024 * 1024
_BATCH_ROWS = 131_072
_TEXT_BATCH_ROWS = (
    16_384  # fewer: a dictionary's long text counts once in the file, but in each row in memory
)
_BATCH_ROWS_MIN = 64


@contextmanager
def corrupt_table_errors(url: str) -> Iterator[None]:
    """Raise CorruptTable naming the file for errors that its content causes inside the block.

    They are ArrowException, ValueError and OSError without an errno; other errors pass, also the
    ones of the operating system (with an errno).
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise CorruptTable(f"data file {url} can't be read: {error}") from error


def open_parquet(source: pa.NativeFile) -> pq.ParquetFile:
    """Open a file; INT96 times are read in microseconds. Raises pyarrow's errors.

    Closing `source` is left to the caller.
    """
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=False)


class Columns:
    """The columns to read of a series of files, and where each file has them.

    The places are computed again only where a file's schema differs from that of the file before.

    Attributes:
        sources: the file's name of each column; None where the file lacks the column.
        names: the columns of the file to read.
    """

    def __init__(self, schema: pa.Schema, *, by_id: bool, exact: bool = False) -> None:
        """Find the columns of `schema` by physical name or, with `by_id`, by field id.

        With `exact`, refuse a column that Spark may read with other values than pyarrow.
        """
        self.schema = schema
        self._by_id = by_id
        self._exact = exact
        self._file_schema: pa.Schema | None = None
        self.sources: list[str | None] = []
        self.names: list[str] = []

    def find(self, file: pq.ParquetFile) -> None:
        """Find the columns in a file, for `of` and the attributes.

        Raises ValueError for an ambiguous column, or with `exact` one that Spark may read
        otherwise; UnsupportedFeature for shredded variants.
        """
        file_schema = file.schema_arrow
        if self._file_schema is None or not file_schema.equals(
            self._file_schema, check_metadata=True
        ):
            fields = list(file_schema)
            indexes = [find_field(fields, field, self._by_id) for field in self.schema]
            self.sources = [None if index is None else fields[index].name for index in indexes]
            # Read one column for the number of rows if the file has none of the wanted columns.
            self.names = [name for name in self.sources if name is not None] or file_schema.names[
                :1
            ]
            self._file_schema = file_schema
        for name in self.sources:
            if name is not None and is_shredded(file_schema.field(name).type):
                raise UnsupportedFeature(f"column {name!r}: {SHREDDED}")
        if self._exact:
            self._check(file_schema, old=is_legacy(file.metadata.metadata))

    def _check(self, file_schema: pa.Schema, *, old: bool) -> None:
        """Raise ValueError if Arrow might read a column in another way than Spark.

        `old`: the file's writer may have used the calendar of old Spark versions.
        """
        folded = [name.lower() for name in file_schema.names]
        for name, field in zip(self.sources, self.schema, strict=True):
            if name is None:
                continue
            if folded.count(name.lower()) > 1:
                raise ValueError(f"two columns have the name {name!r}")
            if not _is_readable_as(file_schema.field(name).type, field.type):
                raise ValueError(f"column {name!r} is {file_schema.field(name).type}")
            if old and pa.types.is_temporal(field.type):
                raise ValueError(f"column {name!r} may be in the calendar of old Spark versions")

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch that was read from the file as the table's columns.

        Columns that the file lacks are null. Raises pyarrow's errors for a value that doesn't fit,
        and ValueError for one that is null but required.
        """
        indexes = {name: index for index, name in enumerate(batch.schema.names)}
        columns = [
            pa.nulls(batch.num_rows, field.type)
            if name is None
            else as_type(batch.column(indexes[name]), field.type, self._by_id)
            for field, name in zip(self.schema, self.sources, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def as_they_are(columns: Columns, file_schema: pa.Schema) -> bool:
    """Return whether a file has all of the columns in the table's types, so that `Columns.of`
    changes nothing but names. `columns` were found in the file, which has the schema.
    """
    return all(
        name is not None
        and file_schema.field(name).type.equals(field.type)
        and not _requires(field.type)
        for name, field in zip(columns.sources, columns.schema, strict=True)
    )


def iter_rows(
    file: pq.ParquetFile, columns: Columns, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, or of some of its row groups, in order, in batches of a bounded
    size.

    `columns`: already found in this file. Raises ValueError for times that pyarrow and Spark read
    differently, and after the last batch if the number of rows differs from the footer's; else what
    `Columns.of` raises.
    """
    footer = file.metadata
    numbers = range(footer.num_row_groups) if groups is None else groups
    row_groups = [footer.row_group(number) for number in numbers]
    expected = sum(group.num_rows for group in row_groups)
    is_old = is_legacy(footer.metadata)
    rows = batch_rows(
        row_groups, [item for item in file.schema_arrow if item.name in columns.names]
    )
    count = 0
    for batch in file.iter_batches(
        rows, row_groups=list(numbers), columns=columns.names, use_threads=False
    ):
        if is_old and any(map(has_old_time, batch.columns)):
            raise ValueError(OLD_TIMES)
        count += batch.num_rows
        yield columns.of(batch)
    if count != expected:
        raise ValueError(f"expected {expected} rows, found {count}")


def chunk_ranges(
    file: pq.ParquetFile, groups: Iterable[int], names: Collection[str]
) -> list[tuple[int, int]]:
    """Return where the bytes of these columns of a file are in these row groups: offsets of the
    first byte, and of the one after the last.
    """
    paths = [file.schema.column(place).path for place in range(len(file.schema.names))]
    leaves = [
        place
        for place, path in enumerate(paths)
        if path in names or any(path.startswith(f"{name}.") for name in names)
    ]
    chunks = [file.metadata.row_group(group).column(leaf) for group in groups for leaf in leaves]
    starts = [
        min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
        for chunk in chunks
    ]
    return [
        (start, start + chunk.total_compressed_size)
        for start, chunk in zip(starts, chunks, strict=True)
    ]


SHREDDED = "it holds shredded variants, which only Spark's own reader puts together"


def is_shredded(data_type: pa.DataType) -> bool:
    """Return whether a type contains a variant whose values are stored in columns of their own."""
    if isinstance(data_type, pa.ExtensionType):
        return is_shredded(data_type.storage_type)
    fields = [data_type.field(place) for place in range(data_type.num_fields)]
    names = {item.name for item in fields}
    if pa.types.is_struct(data_type) and "typed_value" in names and names & {"value", "metadata"}:
        return True
    return any(is_shredded(item.type) for item in fields)


OLD_TIMES = "it holds times before 1900 in the calendar of old Spark versions"


def has_old_times(file: pq.ParquetFile) -> bool:
    """Return whether a file holds times that pyarrow reads with wrong values.

    Reads the whole file if an old version of Spark wrote it.
    """
    if not is_legacy(file.metadata.metadata):
        return False
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    rows = batch_rows(groups, file.schema_arrow)
    batches = file.iter_batches(rows, use_threads=False)
    return any(has_old_time(column) for batch in batches for column in batch.columns)


def is_legacy(footer: Mapping[bytes, bytes] | None) -> bool:
    """Return whether a file may have times of the old calendar: Spark before 3.1 wrote it, an
    unknown version, or one told to keep the old calendar.

    `footer`: the footer's keys and values.
    """
    metadata = footer or {}
    if not _LEGACY.isdisjoint(metadata):
        return True
    if _SPARK not in metadata:
        return False
    version = _VERSION.match(metadata[_SPARK])
    return version is None or (int(version[1]), int(version[2])) < _PROLEPTIC_SINCE


def batch_rows(groups: Iterable[pq.RowGroupMetaData], fields: Iterable[pa.Field]) -> int:
    """Return how many rows of these columns take about 32 MiB of memory, by the widest row group.

    At least 64 rows, at most 131,072; with text or nested columns 16,384.
    """
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
    is_narrow = all(pa.types.is_primitive(item.type) for item in fields)
    rows_max = _BATCH_ROWS if is_narrow else _TEXT_BATCH_ROWS
    return max(min(_BATCH_ROWS_MIN, rows_max), min(rows_max, _BATCH_BYTES // max(1, widest)))


def find_field(fields: Sequence[pa.Field], field: pa.Field, by_id: bool) -> int | None:
    """Return the index of the field that matches a table's field, by id or by name; None for none.

    An exact name comes first, then one in another letter case. Fields without an id in the table
    are found by name in either mode. Raises ValueError if several names differ only in case.
    """
    identity = _id_of(field) if by_id else None
    if identity is not None:
        return next((i for i, item in enumerate(fields) if _id_of(item) == identity), None)
    for place, item in enumerate(fields):
        if item.name == field.name:
            return place
    folded = field.name.lower()
    matches = [place for place, item in enumerate(fields) if item.name.lower() == folded]
    if len(matches) > 1:
        raise ValueError(f"column {field.name!r}: the file has {[fields[i].name for i in matches]}")
    return matches[0] if matches else None


def _id_of(item: pa.Field) -> bytes | None:
    identity: bytes | None = (item.metadata or {}).get(_FIELD_ID)
    return identity


def as_type(array: pa.Array, target: pa.DataType, by_id: bool) -> pa.Array:
    """Return a file column's values in the table's type; missing struct fields are null.

    Values are widened as well. Raises pyarrow's errors for a value that doesn't fit, and ValueError
    for a required field of a variant that is null or a field that is ambiguous.
    """
    if array.type.equals(target) and not _requires(target):
        return array
    if isinstance(array, pa.ExtensionArray):
        return as_type(array.storage, target, by_id)
    if pa.types.is_struct(target):
        children = [_present(_field(array, field, by_id), field, array) for field in target]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target):
        if not pa.types.is_list(array.type):  # a list type that other writers' Arrow schemas have
            array = array.cast(pa.list_(array.type.value_field))
        return _with_child(array, target, as_type(array.values, target.value_type, by_id))
    if pa.types.is_map(target):
        keys = as_type(array.keys, target.key_type, by_id)
        items = as_type(array.items, target.item_type, by_id)
        fields = [target.key_field, target.item_field]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return _with_child(array, target, entries)
    # Spark and Parquet accept strings that aren't valid UTF-8.
    return array.cast(target, safe=not pa.types.is_string(target))


def with_field_names(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the same values in a type that differs only in the names of nested fields, by
    position.

    Strings and bytes may have the 64-bit offsets that Spark gives them by a setting. A variant's
    fields are found by name.
    """
    if array.type.equals(target) and not _requires(target):
        return array
    if not _requires(target) and not _has_long_offsets(array.type):
        return array.view(target)
    if _is_variant(target):
        return as_type(array, target, by_id=False)
    if pa.types.is_struct(target):
        children = [
            with_field_names(array.field(index), field.type) for index, field in enumerate(target)
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if pa.types.is_map(target):
        entries = pa.StructArray.from_arrays(
            [
                with_field_names(array.keys, target.key_type),
                with_field_names(array.items, target.item_type),
            ],
            fields=[target.key_field, target.item_field],
        )
        return _with_child(array, target, entries)
    if pa.types.is_list(target):
        return _with_child(array, target, with_field_names(array.values, target.value_type))
    return array.cast(target, safe=not pa.types.is_string(target))


def _field(rows: pa.StructArray, field: pa.Field, by_id: bool) -> pa.Array:
    """Return the struct's child that matches a field, in its type; nulls where there is none.

    Raises as `as_type`.
    """
    index = find_field(list(rows.type), field, by_id)
    if index is None:
        return pa.nulls(len(rows), field.type)
    return as_type(rows.field(index), field.type, by_id)


def _has_long_offsets(data_type: pa.DataType) -> bool:
    """Return whether strings or bytes in the type have 64-bit offsets."""
    if pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type):
        return True
    return any(
        _has_long_offsets(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def _requires(data_type: pa.DataType) -> bool:
    """Return whether the type contains a required field, as variants do; the keys of maps don't
    count.
    """
    if pa.types.is_map(data_type):
        return _requires(data_type.key_type) or _requires(data_type.item_type)
    if _is_variant(data_type):
        return True
    return any(_requires(data_type.field(index).type) for index in range(data_type.num_fields))


def _is_variant(data_type: pa.DataType) -> bool:
    """Return whether a table's type is a variant, the only type with required fields."""
    return pa.types.is_struct(data_type) and any(not item.nullable for item in data_type)


def _present(child: pa.Array, field: pa.Field, rows: pa.StructArray) -> pa.Array:
    """Return a struct's child; a required child is empty bytes where the struct itself is null.

    Raises ValueError if a required child is null in a struct that isn't.
    """
    if field.nullable or not child.null_count:
        return child
    if pc.any(pc.and_(child.is_null(), rows.is_valid())).as_py():
        raise ValueError(f"field {field.name!r} is null")
    return child.fill_null(b"")


def _with_child(array: pa.Array, target: pa.DataType, child: pa.Array) -> pa.Array:
    """Return the lists or maps with other entries, as the type `target`; `child` has as many."""
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, [child]
    )


def _is_readable_as(file_type: pa.DataType, target: pa.DataType) -> bool:
    """Return whether values of a file's type can be read as the table's: the same type, another
    Arrow form of it, or a narrower number of its kind.

    Other forms are dictionaries, and text and bytes as views or with 64-bit offsets. Decimals need
    the same scale. Nested types have to be equal.
    """
    t = pa.types
    if pa.types.is_dictionary(file_type):
        return _is_readable_as(file_type.value_type, target)
    if file_type.equals(target):
        return True
    if t.is_decimal(file_type) and t.is_decimal(target):
        return bool(file_type.scale == target.scale and file_type.precision <= target.precision)
    if t.is_large_string(file_type) or t.is_string_view(file_type):
        return bool(t.is_string(target))
    if t.is_large_binary(file_type) or t.is_binary_view(file_type):
        return bool(t.is_binary(target))
    both_signed = t.is_signed_integer(file_type) and t.is_signed_integer(target)
    both_float = t.is_floating(file_type) and t.is_floating(target) and not t.is_float16(file_type)
    return (both_signed or both_float) and bool(file_type.bit_width < target.bit_width)


def has_old_time(array: pa.Array) -> bool:
    """Return whether an array contains a time, at any depth, that the old and today's calendar tell
    apart.

    Dates before 1582-10-15, timestamps before 1900 (UTC).
    """
    if pa.types.is_date32(array.type):
        first, limit = pc.min(array.cast(pa.int32())).as_py(), SAME_DAYS_FROM
        return first is not None and first < limit
    if pa.types.is_timestamp(array.type):
        micros = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
        first, limit = pc.min(micros).as_py(), SAME_MICROS_FROM
        return first is not None and first < limit
    if pa.types.is_struct(array.type):
        return any(has_old_time(child) for child in array.flatten())
    if pa.types.is_map(array.type):
        return has_old_time(array.keys) or has_old_time(array.items)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return has_old_time(array.flatten())
    return False
