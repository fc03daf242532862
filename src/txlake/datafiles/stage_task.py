"""The task that writes the rows of a Spark data source to files that are not yet part of the table.

Owns the conversion of rows to the table's columns where Spark can't do it: by name, in the table's
types or narrower ones, with NOT NULL checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txlake.datafiles.partition_texts import partition_texts, partition_values
from txlake.datafiles.write_task import WriteTask, run
from txlake.errors import InvalidRequest
from txlake.log.conversion import convert
from txlake.protocol.types import Field

_SORTED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class StagedColumn:
    """A column of the table.

    Attributes:
        name: its name.
        source: its index among the rows' columns; None if the rows lack it, so that it is null.
        nullable: whether it may be null.
        partition: the field of a partition column, whose values name the folder and aren't written
            to the files; None for other columns.
    """

    name: str
    source: int | None
    nullable: bool
    partition: Field | None = None


@dataclass(frozen=True)
class StageTask:
    """Writes rows to data files.

    Attributes:
        table: the table's name, for messages.
        columns: the columns in files, then the partition columns, as `write.layout` has them.
        schema: the Arrow types of `columns`, serialised.
        write: how files are written.
    """

    table: str
    columns: tuple[StagedColumn, ...]
    schema: bytes
    write: WriteTask

    def __call__(self, batches: Iterator[pa.RecordBatch], name: str) -> list[dict[str, object]]:
        """Write the rows to files whose names start with `name`; return the report.

        The report is that of `write_task`. Raises InvalidRequest for a null in a NOT NULL column,
        and for a value that a column can't hold; the files written so far are removed.
        """
        reports: list[dict[str, object]] = []
        for batch in run(self.write, self._rows(batches), name):
            reports += batch.to_pylist()
        return reports

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the table's columns, named c0, c1, ..., checked.

        Rows of a partitioned table come in runs of about 64 MiB that are sorted by partition.
        Raises as `_as_table_columns`.
        """
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        fitted = (self._as_table_columns(batch, schema) for batch in batches if batch.num_rows)
        keys = [f"c{place}" for place in self.write.layout.partition]
        if not keys:
            yield from fitted
            return
        pending: list[pa.RecordBatch] = []
        for batch in fitted:
            pending.append(batch)
            if sum(batch.nbytes for batch in pending) >= _SORTED_BYTES:
                yield from _sorted(pending, keys)
                pending = []
        if pending:
            yield from _sorted(pending, keys)

    def _as_table_columns(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows with the table's columns, c0, c1, ...; partition values are texts.

        `schema` has the columns' types. Raises InvalidRequest for a null in a NOT NULL column,
        after empty partition values became null, and for a value that a column can't hold.
        """
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
        """Return the values in the column's type. Raises InvalidRequest for one that isn't exact in
        it.
        """
        if array.type.equals(item.type):
            return array
        try:
            return convert(array, item.type)
        except pa.ArrowException as error:
            raise InvalidRequest(
                f"{self.table}: column {column.name!r} can't hold a value: {error}; cast it in "
                "the query; nothing was written"
            ) from error


def _sorted(batches: list[pa.RecordBatch], keys: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows ordered by the columns `keys`, nulls last."""
    rows = pa.Table.from_batches(batches)
    order = pc.sort_indices(rows, sort_keys=[(key, "ascending") for key in keys])
    yield from rows.take(order).combine_chunks().to_batches()
