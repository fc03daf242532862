"""Arrow rows become data files in a process that has neither a Spark session nor the table's log.

For a data source of PySpark's: its tasks get Arrow batches. What the task has to know of the table
is collected by the driver's process (`arrow_append`), which also says which tables Spark alone can
write to: those whose rows are computed or checked by expressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txlake.datafiles import write_task
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.protocol.identity import is_identity
from txlake.protocol.types import Field, from_arrow_schema, to_arrow_type
from txlake.spark import local_rows
from txlake.spark.writing import Target, data_fields, partition_fields, partition_texts, task_for

_SORTED_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Given:
    """A column of the table, and the one of the rows that goes there; None: it is null."""

    target: Field
    source: str | None


@dataclass(frozen=True, slots=True)
class ArrowAppend:
    """What a task has to know.

    Attributes:
        table: its name, for messages.
        given: the table's columns in the order of the data files, then those of the partition.
    """

    table: str
    task: write_task.WriteTask
    data: tuple[Given, ...]
    partition: tuple[Given, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], name: str) -> list[dict[str, object]]:
        """Writes the rows to files whose names start with `name`; the report of `write_task`.

        Raises InvalidRequest for a row that doesn't fit; its task's files are removed.
        """
        schema = pa.ipc.read_schema(pa.py_buffer(self.task.schema))
        rows = (self._laid_out(batch, schema) for batch in batches)
        reports: list[dict[str, object]] = []
        ordered = self._sorted(rows) if self.partition else rows
        for batch in write_task.run(self.task, ordered, name):
            reports += batch.to_pylist()
        return reports

    def _laid_out(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        arrays = [
            self._fitted(batch, one).view(wanted.type)
            for one, wanted in zip(self.data, schema, strict=True)
        ]
        names = list(schema.names)
        for number, one in enumerate(self.partition):
            arrays.append(partition_texts(self._fitted(batch, one), one.target))
            names.append(f"__p{number}")
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _fitted(self, batch: pa.RecordBatch, one: Given) -> pa.Array:
        wanted = to_arrow_type(one.target.type)
        if one.source is None:
            return pa.nulls(batch.num_rows, wanted)
        array = batch.column(batch.schema.get_field_index(one.source))
        if array.null_count and not one.target.nullable:
            raise InvalidRequest(
                f"{self.table}: NOT NULL of column {one.target.name!r} is violated; nothing was "
                "written"
            )
        if array.type.equals(wanted):
            return array
        try:
            return array.cast(wanted, safe=True)
        except pa.ArrowException as error:
            raise InvalidRequest(
                f"{self.table}: a value of column {one.target.name!r} doesn't fit: {error}; "
                "nothing was written"
            ) from error

    def _sorted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows by partition, as far as a bounded part of them is held at once."""
        held: list[pa.RecordBatch] = []
        count = 0
        for batch in batches:
            held.append(batch)
            count += batch.num_rows
            if count >= _SORTED_ROWS:
                yield from self._in_order(held)
                held, count = [], 0
        if held:
            yield from self._in_order(held)

    def _in_order(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(held)
        keys = [(f"__p{number}", "ascending") for number in range(len(self.partition))]
        yield from rows.take(pc.sort_indices(rows, sort_keys=keys)).combine_chunks().to_batches()


def arrow_append(target: Target, incoming: pa.Schema) -> ArrowAppend:
    """What tasks have to know that write rows of this schema to the table.

    Raises InvalidRequest for columns that don't fit, UnsupportedFeature for a table whose rows only
    Spark can check or complete.
    """
    snapshot = target.snapshot
    identity = any(map(is_identity, snapshot.schema))
    source = from_arrow_schema(incoming)
    unknown = [name for name in source.names if snapshot.schema.find(name) is None]
    if unknown:
        raise InvalidRequest(
            f"{snapshot.table}: there is no column {unknown[0]!r}; there are: "
            f"{', '.join(snapshot.schema.names)}"
        )
    if identity or local_rows.fit_by_name(incoming.empty_table(), snapshot) is None:
        raise UnsupportedFeature(
            f"{snapshot.table}: rows for it are computed, checked or converted by Spark (generated "
            "or identity columns, defaults, constraints, other types), which a data source can't "
            "do: write with lake.write, or give the Spark session to the lake with txlake.enable"
        )

    def given(items: list[Field]) -> tuple[Given, ...]:
        found = [(item, source.find(item.name)) for item in items]
        return tuple(Given(item, None if one is None else one.name) for item, one in found)

    return ArrowAppend(
        table=snapshot.table,
        task=task_for(target),
        data=given(data_fields(snapshot)),
        partition=given(partition_fields(snapshot)),
    )
