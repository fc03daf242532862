"""What tasks do with rows that a data source of Spark's is given: files, not yet of the table.

Owns the way of rows to the table's columns where Spark can't be asked: by name, in the table's
types or narrower ones, NOT NULL checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txlake.datafiles.partition_texts import partition_texts, partition_values
from txlake.datafiles.write_task import WriteTask, run
from txlake.errors import InvalidRequest
from txlake.log.conversion import converted
from txlake.protocol.types import Field

_SORTED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class StagedColumn:
    """A column of the table.

    Attributes:
        name: its name.
        source: its place among the rows' columns; None: they don't have it, and it is null.
        nullable: whether it may be null.
        partition: the column, where its values aren't written to the files but name their folder.
    """

    name: str
    source: int | None
    nullable: bool
    partition: Field | None = None


@dataclass(frozen=True)
class StageTask:
    """Writes rows to data files.

    Attributes:
        table: for messages.
        columns: those that files hold, then the partition columns, as `write.layout` has them.
        schema: the Arrow types of these, serialised.
        write: how files are written.
    """

    table: str
    columns: tuple[StagedColumn, ...]
    schema: bytes
    write: WriteTask

    def __call__(self, batches: Iterator[pa.RecordBatch], name: str) -> list[dict[str, object]]:
        """Writes the rows to files whose names start with `name`; the report, see `write_task`.

        Raises InvalidRequest for a null in a NOT NULL column, and for a value that a column can't
        hold; nothing stays written.
        """
        reports: list[dict[str, object]] = []
        for batch in run(self.write, self._rows(batches), name):
            reports += batch.to_pylist()
        return reports

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        fitted = (self._fitted(batch, schema) for batch in batches if batch.num_rows)
        keys = [f"c{place}" for place in self.write.layout.partition]
        if not keys:
            yield from fitted
            return
        held: list[pa.RecordBatch] = []
        for batch in fitted:
            held.append(batch)
            if sum(one.nbytes for one in held) >= _SORTED_BYTES:
                yield from _sorted(held, keys)
                held = []
        if held:
            yield from _sorted(held, keys)

    def _fitted(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        arrays = []
        for column, item in zip(self.columns, schema, strict=True):
            if column.source is None:
                array = pa.nulls(batch.num_rows, item.type)
            else:
                array = self._cast(batch.column(column.source), item, column)
            if column.partition is not None:
                array = partition_values(array, column.partition)
            if array.null_count and not column.nullable:
                raise InvalidRequest(
                    f"{self.table}: NOT NULL of column {column.name!r} is violated by "
                    f"{array.null_count} rows; nothing was written"
                )
            arrays.append(
                array if column.partition is None else partition_texts(array, column.partition)
            )
        return pa.RecordBatch.from_arrays(arrays, [f"c{place}" for place in range(len(arrays))])

    def _cast(self, array: pa.Array, item: pa.Field, column: StagedColumn) -> pa.Array:
        if array.type.equals(item.type):
            return array
        try:
            return converted(array, item.type)
        except pa.ArrowException as error:
            raise InvalidRequest(
                f"{self.table}: column {column.name!r} can't hold a value: {error}; cast it in "
                "the query; nothing was written"
            ) from error


def _sorted(held: list[pa.RecordBatch], keys: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows by partition, in their order inside of each."""
    rows = pa.Table.from_batches(held)
    order = pc.sort_indices(rows, sort_keys=[(key, "ascending") for key in keys])
    yield from rows.take(order).combine_chunks().to_batches()
