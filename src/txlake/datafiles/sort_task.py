"""The Spark task that writes sorted rows; it can report where each row comes from.

Within a row group, rows are ordered by their source file and their position in it, so that one set
of positions per source file describes the row group. Readers skip whole row groups at least (the
files have no page index), so the order within a row group doesn't matter to them.
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
    """Writes sorted rows whose last columns name the file and the position that each had.

    Attributes:
        write: how files are written. Its layout has the columns `file` and `row`. Its `rows_max` is
            None, as each table partition gets one file.
    """

    write: WriteTask

    def __post_init__(self) -> None:
        if self.write.rows_max is not None:
            raise ValueError(f"rows_max={self.write.rows_max}: sorted rows are told by partition")

    def __call__(
        self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        """Run the task over one of a job's partitions; `attempt` is unique in the job.

        The report has a row "piece" for each set of positions, in the order of the rows: `text`:
        the new file; `key`: the source file's ordinal; `data`: the positions.
        """
        output = Output(self.write, f"part-{partition:05d}-{self.write.job_id}-{attempt}")
        writer = _RowGroupWriter(self.write, output)
        try:
            for batch in batches:
                writer.append(batch)
            files = writer.close()
        except BaseException:
            output.discard()
            raise
        piece_rows = [
            report_row("piece", key=ordinal, text=str(files[number]["text"]), data=positions)
            for number, ordinal, positions in writer.pieces
        ]
        yield report([*files, *piece_rows])


class _RowGroupWriter:
    """Buffers rows and writes them a row group at a time, one file for each table partition.

    `pieces` has for each set of positions the file's index in the order written, the source file's
    ordinal and the packed positions.
    """

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
        self.pieces: list[tuple[int, int, bytes]] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows; the rows of a table partition come one after the other."""
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
        """Write the buffered rows as one row group, by source file and position, and note its
        pieces.
        """
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
            self.pieces.append((self._number, int(files[start]), positions))

    def close(self) -> list[dict[str, object]]:
        """Write the rest; return a report row per file, in the order written."""
        self._flush()
        return self._output.close()
