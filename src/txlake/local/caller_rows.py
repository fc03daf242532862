"""Rows that the driver holds (constants, pandas, pyarrow, polars), converted to a table's columns.

Only conversions that are exact in Arrow are made here. For anything else (rounding, text of
numbers, computed columns, constraints) functions return None, and Spark does it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from txlake.datafiles.partition_texts import partition_values
from txlake.errors import InvalidRequest
from txlake.local.rules import NOT_NULL, has_rules, require_given
from txlake.local.types import can_store, is_converted, reads_text, same_type, type_text
from txlake.log.conversion import convert, converts_as_spark
from txlake.log.predicates import LocalTime
from txlake.log.snapshot import Snapshot
from txlake.log.time_zones import TimeZone
from txlake.protocol.times import FarTime, is_zoned, micros_of, time_text
from txlake.protocol.types import Field, Primitive, Struct, from_arrow_schema, to_arrow_type
from txlake.sql.statements import Constant, Default, Values

if TYPE_CHECKING:
    import polars


def as_arrow(frame: object) -> pa.Table | None:
    """Return the rows of a pandas, pyarrow or polars frame; None for any other object.

    Types become plain ones (`_plain_type`); the index of a pandas frame is left out. A lazy polars
    frame and a RecordBatchReader are read to their ends. Raises InvalidRequest for rows that Arrow
    can't hold.
    """
    if isinstance(frame, pa.Table):
        return _to_plain_types(frame)
    if isinstance(frame, pa.RecordBatch):
        return _to_plain_types(pa.Table.from_batches([frame]))
    if isinstance(frame, pa.RecordBatchReader):
        return _to_plain_types(_convert(frame.read_all))
    # Looked up by name first, so that a library that the caller doesn't use needn't be installed.
    module = type(frame).__module__.partition(".")[0]
    if module == "pandas":
        import pandas

        if isinstance(frame, pandas.DataFrame):
            return _to_plain_types(
                _convert(lambda: pa.Table.from_pandas(frame, preserve_index=False))
            )
    if module == "polars":
        import polars

        if isinstance(frame, polars.DataFrame):
            return _to_plain_types(_convert(lambda: _polars_to_arrow(frame)))
        if isinstance(frame, polars.LazyFrame):
            refused = polars.exceptions.PolarsError
            return _to_plain_types(_convert(lambda: _polars_to_arrow(frame.collect()), refused))
    return None


def _polars_to_arrow(frame: polars.DataFrame) -> pa.Table:
    """Return the frame as an Arrow table. Raises TypeError for a column of Python objects."""
    import polars

    for name, data_type in frame.schema.items():
        if data_type == polars.Object:
            raise TypeError(
                f"column {name!r} has Python objects"
            )  # Arrow would get their addresses
    return frame.to_arrow()


def _convert(convert: Callable[[], pa.Table], *refusals: type[Exception]) -> pa.Table:
    """Return the result of `convert`, a conversion to Arrow.

    Raises InvalidRequest for ArrowException, OverflowError, TypeError, ValueError and `refusals`;
    other errors pass.
    """
    try:
        return convert()
    except (pa.ArrowException, OverflowError, TypeError, ValueError, *refusals) as error:
        parts = [str(part).partition("\n")[0] for part in reversed(error.args)]
        reason = ": ".join(parts) or type(error).__name__
        raise InvalidRequest(
            f"the rows can't be converted to Arrow: {reason}; give every column a name of its own "
            "and values of one type that Arrow has; nothing was written"
        ) from error


def _to_plain_types(table: pa.Table) -> pa.Table:
    """Return the table with each column cast to its `_plain_type`.

    Raises InvalidRequest for a value that the plain type can't hold.
    """
    schema = pa.schema(
        [pa.field(item.name, _plain_type(item.type), item.nullable) for item in table.schema]
    )
    if schema == table.schema:
        return table
    return _convert(lambda: _cast(table, schema))


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns in the schema's types, by position. Nothing is lost but fractions of a
    microsecond.

    Raises ArrowInvalid for a value that doesn't fit otherwise.
    """
    columns = [
        pc.cast(column, options=pc.CastOptions(item.type, allow_time_truncate=True))
        for column, item in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which Delta and Spark know the values, also inside lists, structs and
    maps.

    Dictionaries become their values' type, views and large or fixed-size forms the usual ones,
    date64 date32, small unsigned integers a wider signed one, half floats floats. Timestamps become
    microseconds, in UTC if they have a zone. Any other type stays, uint64 and time of day too.
    """
    t = pa.types
    if t.is_dictionary(data_type):
        return _plain_type(data_type.value_type)
    if t.is_large_string(data_type) or t.is_string_view(data_type):
        return pa.string()
    if t.is_large_binary(data_type) or t.is_fixed_size_binary(data_type):
        return pa.binary()
    if t.is_binary_view(data_type):
        return pa.binary()
    if t.is_timestamp(data_type):
        return pa.timestamp("us", tz=None if data_type.tz is None else "UTC")
    if t.is_date64(data_type):
        return pa.date32()
    if t.is_large_list(data_type) or t.is_fixed_size_list(data_type) or t.is_list(data_type):
        return pa.list_(_plain_type(data_type.value_type))
    if t.is_struct(data_type):
        return pa.struct(
            [
                pa.field(item.name, _plain_type(item.type), item.nullable)
                for item in (data_type.field(i) for i in range(data_type.num_fields))
            ]
        )
    if t.is_map(data_type):
        return pa.map_(_plain_type(data_type.key_type), _plain_type(data_type.item_type))
    if t.is_uint8(data_type) or t.is_uint16(data_type):
        return pa.int32()
    if t.is_uint32(data_type):
        return pa.int64()
    if t.is_float16(data_type):
        return pa.float32()
    return data_type


def fit_by_name(table: pa.Table, snapshot: Snapshot) -> pa.Table | None:
    """Return the table's columns, all and in its order, from the rows' columns of the same names.

    Missing columns are null. Returns None where Spark must do it: the table has rules
    (`has_rules`), the rows have an unknown column or two of one name, or a conversion isn't exact
    in Arrow. Raises InvalidRequest for a NOT NULL column without values or with a null, and for a
    type that the column can't store.
    """
    if has_rules(snapshot):
        return None
    source = from_arrow_schema(table.schema)
    if any(snapshot.schema.find(name) is None for name in source.names):
        return None
    if len({name.lower() for name in source.names}) < len(source.names):
        return None
    require_given(
        snapshot, [item.name for item in snapshot.schema if source.find(item.name) is not None]
    )
    arrays = []
    for item in snapshot.schema:
        source_field = source.find(item.name)
        if source_field is None:
            array = pa.chunked_array([pa.nulls(table.num_rows, to_arrow_type(item.type))])
        else:
            stored = fit_column(table.column(source_field.name), source_field, item, snapshot)
            if stored is None:
                return None
            array = stored
        _refuse_nulls(array, item, snapshot)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, names=list(snapshot.schema.names))


def fit_column(
    column: pa.ChunkedArray, source: Field, target: Field, snapshot: Snapshot
) -> pa.ChunkedArray | None:
    """Return the values as the column stores them; None where Spark must do it.

    That is for types that Spark casts (`reads_text`, `is_converted`), and for a value that isn't
    exact in the column's type. Nulls aren't checked. Raises InvalidRequest for a type that can't be
    stored there.
    """
    if reads_text(source.type, target.type) or is_converted(source.type, target.type):
        return None
    if not can_store(source.type, target.type):
        raise InvalidRequest(
            f"{snapshot.table}: column {target.name!r} is {type_text(target.type)}, "
            f"the value is {type_text(source.type)}, which can't be stored there; cast it"
        )
    stored = _convert_exactly(column, source, target)
    if stored is None or target.name not in snapshot.partition_columns:
        return stored
    return partition_values(stored, target)


def _convert_exactly(
    column: pa.ChunkedArray, source: Field, target: Field
) -> pa.ChunkedArray | None:
    """Return the values in the target's Arrow type; None where Arrow and Spark differ or a value
    doesn't fit, and for nested types that aren't the same.
    """
    target_type = to_arrow_type(target.type)
    if same_type(source.type, target.type):
        return column if column.type.equals(target_type) else column.cast(target_type)
    if not isinstance(source.type, Primitive) or not isinstance(target.type, Primitive):
        return None
    if not converts_as_spark(column.type, target_type):
        return None
    try:
        return convert(column, target_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _refuse_nulls(column: pa.ChunkedArray, item: Field, snapshot: Snapshot) -> None:
    """Raise InvalidRequest, naming the row, if a NOT NULL column has a null at the top level."""
    if item.nullable or column.null_count == 0:
        return
    place = pc.index(column.is_null(), True).as_py()
    raise InvalidRequest(
        f"{snapshot.table}: {NOT_NULL} of column {item.name!r} is violated by "
        f"row {place + 1} of {len(column)}; nothing was written"
    )


def values_table(
    values: Values, names: Sequence[str], zone: Callable[[], TimeZone]
) -> tuple[pa.Table, frozenset[tuple[int, str]]]:
    """Return constants as columns of these names, and the cells (row from 0, column) that are
    DEFAULT.

    Such cells are null in the table. `zone` returns the time zone of timestamps without one, and is
    called only if there are some. Raises InvalidRequest for a number that no integer or decimal
    type holds, and for a time that `zone()` puts beyond Spark's range.
    """
    arrays = []
    defaults: set[tuple[int, str]] = set()
    for position, name in enumerate(names):
        cells: list[Constant] = []
        for number, row in enumerate(values.rows):
            cell = row[position]
            if isinstance(cell, Default):
                defaults.add((number, name))
                cell = None
            cells.append(cell)
        arrays.append(_array(cells, name, zone))
    return pa.Table.from_arrays(arrays, names=list(names)), frozenset(defaults)


def _array(cells: list[Constant], name: str, zone: Callable[[], TimeZone]) -> pa.Array:
    """Return one column's constants as an array of the narrowest type that Spark would give all of
    them.

    Integers become int or bigint; with decimals they become a decimal, with floats doubles. Times
    are read in `zone()` if they need one. Without a value that isn't NULL the type is null.
    """
    types = {type(cell) for cell in cells if cell is not None}
    if types <= {int} and types:
        small = all(cell is None or -(2**31) <= cell < 2**31 for cell in cells)  # type: ignore[operator]
        return _checked_array(cells, pa.int32() if small else pa.int64(), name)
    if types <= {int, Decimal} and types:
        decimals = [None if cell is None else Decimal(cell) for cell in cells]  # type: ignore[arg-type]
        tuples = [d.as_tuple() for d in decimals if d is not None]
        scale = max(0, *(-int(part.exponent) for part in tuples))
        whole_digits = max(len(part.digits) + int(part.exponent) for part in tuples)
        return _checked_array(
            decimals, pa.decimal128(min(38, max(whole_digits, 1) + scale), scale), name
        )
    if types <= {int, Decimal, float} and types:
        floats = [None if cell is None else float(cell) for cell in cells]  # type: ignore[arg-type]
        return pa.array(floats, pa.float64())
    if types and types <= {datetime.datetime, FarTime, LocalTime}:
        return _times(cells, zone)
    return pa.array(cells) if types else pa.nulls(len(cells))


def _checked_array(cells: Sequence[object], data_type: pa.DataType, name: str) -> pa.Array:
    """Return the cells as an array. Raises InvalidRequest, naming the column, for one that doesn't
    fit.
    """
    try:
        return pa.array(cells, data_type)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InvalidRequest(f"VALUES: column {name!r}: {error}") from error


def _times(cells: list[Constant], zone: Callable[[], TimeZone]) -> pa.Array:
    """Return timestamps in UTC, or without a zone if the cells are wall times; all cells are of one
    kind.

    Raises InvalidRequest for a time that `zone()` puts beyond Spark's range.
    """
    local_times = [cell for cell in cells if isinstance(cell, LocalTime)]
    instants = iter(
        zone().instants([micros_of(time.wall) for time in local_times]) if local_times else ()
    )
    is_wall = False
    micros: list[int | None] = []
    for cell in cells:
        if isinstance(cell, datetime.datetime | FarTime):
            is_wall = not is_zoned(cell)
            micros.append(micros_of(cell))
        elif cell is None:
            micros.append(None)
        else:
            assert isinstance(cell, LocalTime)
            instant = next(instants)
            if instant is None:
                text = time_text(micros_of(cell.wall), zoned=False)
                raise InvalidRequest(
                    f"VALUES: TIMESTAMP '{text}' in the session's time zone, {zone().name}: it is "
                    "no time that Spark has"
                )
            micros.append(instant)
    return pa.array(micros, pa.timestamp("us", tz=None if is_wall else "UTC"))


def schema_of(table: pa.Table) -> Struct:
    """Return the Delta schema for rows that create a table.

    Columns are nullable unless Arrow says otherwise. Raises InvalidRequest naming the first column
    whose type Delta lacks.
    """
    for item in table.schema:
        try:
            from_arrow_schema(pa.schema([item]))
        except ValueError as error:
            raise InvalidRequest(f"column {item.name!r}: {error}") from error
    return from_arrow_schema(table.schema)
