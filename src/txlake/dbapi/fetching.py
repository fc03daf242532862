"""A statement's rows: as Python's values one after the other, or as one Arrow table.

Owns the conversion of values. A timestamp is a datetime in UTC, one without a zone a datetime
without; a struct is a dictionary, a map a dictionary too, whose keys are hashable.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlake.dbapi.exceptions import ProgrammingError
from txlake.errors import TxlakeError
from txlake.protocol.type_text import short_text
from txlake.protocol.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    from_arrow_type,
    to_arrow_schema,
    to_arrow_type,
)
from txlake.session.views.describe import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DURATION = "interval day to second"
Row = tuple[object, ...]
Converter = Callable[[Any], object]


@dataclass(slots=True)
class ResultSet:
    """The rows of a statement, each given out once.

    Attributes:
        schema: the columns; none for a statement without a result.
        rows: those that weren't fetched yet.
        count: how many rows there are; None if that is known only at their end.
        whole: makes an Arrow table of all rows, as long as none was fetched.
        lost: why no more rows can be fetched; None as long as they can.
        identity: the last value that the statement generated in an identity column, if it did.
    """

    schema: Struct
    rows: Iterator[Row]
    count: int | None = None
    whole: Callable[[], pa.Table] | None = None
    lost: str | None = None
    identity: int | None = None

    @property
    def codes(self) -> tuple[str, ...]:
        """The type codes of the columns."""
        return tuple(short_text(item.type) for item in self.schema)

    def fetch(self, size: int | None) -> list[Row]:
        """Return the next rows, at most `size`; all of them for None.

        Raises ProgrammingError if the rows were lost.
        """
        self._require()
        self.whole = None
        return list(islice(self.rows, size))

    def table(self) -> pa.Table:
        """Return the rows that weren't fetched yet as an Arrow table. Raises as `fetch`."""
        self._require()
        if self.whole is not None:
            made, self.rows = self.whole(), iter(())
            self.whole = None
            return made
        return _table(self.schema, self.fetch(None))

    def lose(self, reason: str) -> None:
        """Give out no more rows, if they aren't all here."""
        if self.count is None:
            self.lost, self.rows, self.whole = reason, iter(()), None

    def keep(self, most: int) -> None:
        """Read the rows that remain, so that they outlast the transaction; not if they are more
        than `most`, nor if they can't be read.
        """
        if self.count is not None or self.lost is not None:
            return
        self.whole = None
        with suppress(TxlakeError):
            taken = list(islice(self.rows, most + 1))
            if len(taken) <= most:
                self.rows, self.count = iter(taken), len(taken)

    def _require(self) -> None:
        if self.lost is not None:
            raise ProgrammingError(self.lost)


def of_rows(rows: Rows) -> ResultSet:
    """Return the result that the driver computed."""
    return ResultSet(
        rows.schema, _converted(rows.rows, rows.schema), count=len(rows.rows), whole=rows.table
    )


def of_arrow(table: pa.Table) -> ResultSet:
    """Return the result that a server sent."""
    schema = Struct(
        tuple(Field(item.name, _type_of(item.type), item.nullable) for item in table.schema)
    )
    return ResultSet(
        schema, _converted(_tuples(table), schema), count=table.num_rows, whole=lambda: table
    )


def _type_of(kind: pa.DataType) -> DataType:
    return Primitive(_DURATION) if pa.types.is_duration(kind) else from_arrow_type(kind)


def of_frame(frame: DataFrame, failing: Callable[[Callable[[], Any]], Any]) -> ResultSet:
    """Return the result of a query that Spark runs, partition by partition as rows are fetched.

    `failing` calls a function that asks Spark, and translates its errors.
    """
    from txlake.spark.types import delta_schema

    schema = delta_schema(frame.schema)

    def whole() -> pa.Table:
        return _cast(failing(frame.toArrow), schema)

    rows = _streamed(frame, failing) if all(map(_streams, schema)) else _held(whole)
    return ResultSet(schema, _converted(rows, schema), whole=whole)


def _streams(item: Field) -> bool:
    """Return whether PySpark has rows of such values: it makes dictionaries of maps, of which an
    array, a struct or a map can't be a key.
    """
    match item.type:
        case Array(element, _):
            return _streams(Field("", element))
        case Map(key, value, _):
            return isinstance(key, Primitive) and _streams(Field("", value))
        case Struct(fields):
            return all(map(_streams, fields))
        case _:
            return True


def _held(whole: Callable[[], pa.Table]) -> Iterator[Row]:
    """Yield the rows of a table that is made when the first one is fetched."""
    yield from _tuples(whole())


def _streamed(frame: DataFrame, failing: Callable[[Callable[[], Any]], Any]) -> Iterator[Row]:
    end = object()
    rows = failing(frame.toLocalIterator)
    while (row := failing(lambda: next(rows, end))) is not end:
        yield row


def _tuples(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of a table, batch by batch."""
    for batch in table.to_batches(max_chunksize=4096):
        yield from zip(*(column.to_pylist() for column in batch.columns))


def _cast(table: pa.Table, schema: Struct) -> pa.Table:
    """Return a table of Spark with the types that Delta's have in Arrow, where they have some."""
    try:
        return table.cast(to_arrow_schema(schema))
    except (ValueError, pa.ArrowException):
        return table


def _table(schema: Struct, rows: list[Row]) -> pa.Table:
    """Return fetched rows as a table."""
    columns = zip(*rows) if rows else ((),) * len(schema.fields)
    arrays = [pa.array(values, _arrow_type(item.type)) for values, item in zip(columns, schema)]
    return pa.Table.from_arrays(arrays, names=list(schema.names))


def _arrow_type(kind: DataType) -> pa.DataType | None:
    """Return the Arrow type of a column; None for the type of its values, where Delta has none."""
    if isinstance(kind, Primitive) and kind.name.startswith("interval day"):
        return pa.duration("us")
    if isinstance(kind, Primitive) and kind.name == "variant":
        return None  # its values are Python's own here
    try:
        return to_arrow_type(kind)
    except ValueError:
        return None


def _converted(rows: Iterable[Iterable[object]], schema: Struct) -> Iterator[Row]:
    """Yield rows with Python's values."""
    converters = [_converter(item.type) for item in schema]
    if not any(converters):
        yield from map(tuple, rows)
        return
    for row in rows:
        yield tuple(
            value if convert is None or value is None else convert(value)
            for value, convert in zip(row, converters)
        )


def _converter(kind: DataType) -> Converter | None:
    """Return the function that makes Python's value of one that isn't NULL; None for no change."""
    match kind:
        case Primitive("timestamp"):
            # PySpark gives times in the process's own zone.
            return lambda value: value.astimezone(datetime.UTC)
        case Primitive("binary"):
            return bytes
        case Primitive("variant"):
            return lambda value: value.toPython() if hasattr(value, "toPython") else value
        case Primitive():
            return None
        case Array(element, _):
            inner = _nullable(element)
            return lambda value: [inner(item) for item in value]
        case Map(key, item, _):
            of_key, of_item = _nullable(key), _nullable(item)
            return lambda value: {
                _hashable(of_key(name)): of_item(found)
                for name, found in (value.items() if isinstance(value, dict) else value)
            }
        case Struct(fields):
            members = [(field.name, _nullable(field.type)) for field in fields]
            return lambda value: {
                name: convert(item)
                for (name, convert), item in zip(
                    members, value.values() if isinstance(value, dict) else value
                )
            }


def _nullable(kind: DataType) -> Converter:
    convert = _converter(kind)
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _hashable(key: object) -> object:
    """Return a map's key: arrays become tuples, structs tuples of their values."""
    if isinstance(key, dict):
        return tuple(_hashable(item) for item in key.values())
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
