"""What a Spark task does to write sorted rows: it may tell from where each of them comes.

The rows of a row group stand by the files that they come from, and in these by their places: so
where they went is told by one set of positions for each of those files. Row groups are the least
that readers skip (the files have no page index), so no order within them is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txlake.datafiles.packed_positions import pack_positions
from txlake.datafiles.write_task import (
    Output,
    WriteTask,
    report,
    report_row,
    run_ends,
)


@dataclass(frozen=True)
class SortTask:
    """Writes rows that come sorted; their last columns say which file and place each had.

    Attributes:
        write: how files are written; its layout names the columns `file` and `row`, and a file may
            have any number of rows: one is written of a table partition.
    """

    write: WriteTask

    def __post_init__(self) -> None:
        if self.write.rows_max is not None:
            raise ValueError(f"rows_max={self.write.rows_max}: sorted rows are told by partition")

    def __call__(
        self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        """Runs the task over one of a job's partitions; no other attempt has this number.

        The report has a row "piece" for each set of positions, in the order of the rows: `text`,
        the new file, `key`, the ordinal of the file that they come from, `data`, the positions.
        """
        output = Output(self.write, f"part-{partition:05d}-{self.write.job_id}-{attempt}")
        pieces = _Pieces(self.write, output)
        try:
            for batch in batches:
                pieces.take(batch)
            files = pieces.close()
        except BaseException:
            output.discard()
            raise
        told = [
            report_row("piece", key=ordinal, text=str(files[number]["text"]), data=positions)
            for number, ordinal, positions in pieces.told
        ]
        yield report([*files, *told])


class _Pieces:
    """Gathers the rows of one row group after the other."""

    def __init__(self, task: WriteTask, output: Output) -> None:
        assert task.layout.file is not None
        assert task.layout.row is not None
        self._task = task
        self._file, self._row = task.layout.file, task.layout.row
        self._output = output
        self._key: tuple[str | None, ...] | None = None
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._number = -1
        self.told: list[tuple[int, int, bytes]] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Takes rows; those of one table partition come together."""
        indexes = self._task.layout.partition
        start = 0
        for end in run_ends(batch, indexes) if batch.num_rows else ():
            key = tuple(batch.column(index)[start].as_py() for index in indexes)
            if key != self._key:
                self._flush()
                self._key = key
                self._number += 1
            part = batch.slice(start, end - start)
            self._pending.append(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes
            if self._rows >= self._task.row_group_rows or self._bytes >= self._task.row_group_bytes:
                self._flush()
            start = end

    def _flush(self) -> None:
        """Writes what was gathered as one row group."""
        if not self._pending:
            return
        rows = pa.concat_batches(self._pending)
        self._pending, self._rows, self._bytes = [], 0, 0
        files = rows.column(self._file).to_numpy(zero_copy_only=False).astype(np.int64)
        places = rows.column(self._row).to_numpy(zero_copy_only=False).astype(np.int64)
        order = np.lexsort((places, files))
        assert self._key is not None
        self._output.append(self._key, rows.take(pa.array(order)))
        files, places = files[order], places[order]
        starts = np.flatnonzero(np.diff(files, prepend=files[0] - 1))
        for start, end in zip(starts, [*starts[1:], len(files)], strict=True):
            positions = pack_positions(places[start:end])
            self.told.append((self._number, int(files[start]), positions))

    def close(self) -> list[dict[str, object]]:
        """Writes the rest; a report row a file, in the order written."""
        self._flush()
        return self._output.close()
