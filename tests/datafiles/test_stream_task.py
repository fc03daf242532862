"""Which rows of a file a stream's task reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlake.datafiles.packed_positions import pack_positions
from txlake.datafiles.stored_vectors import StoredVector
from txlake.datafiles.stream_task import StreamedFile, StreamTask

SCHEMA = pa.schema({"id": pa.int64()})


def vector(*positions: int) -> StoredVector:
    data = pack_positions(np.array(positions, np.uint64))
    return StoredVector(cardinality=len(positions), data=data)


@pytest.mark.parametrize(
    ("deleted", "only", "ids"),
    [
        (None, None, [0, 1, 2]),
        (vector(), None, [0, 1, 2]),
        (vector(1), None, [0, 2]),
        (None, vector(1), [1]),
        (vector(1), vector(1, 2), [1, 2]),
        (None, vector(), []),
        (vector(1), vector(), []),
    ],
)
def test_live_rows_or_those_that_are_named(
    tmp_path: Path, deleted: StoredVector | None, only: StoredVector | None, ids: list[int]
) -> None:
    pq.write_table(pa.table({"id": pa.array(range(3), pa.int64())}), tmp_path / "f.parquet")
    serialised = SCHEMA.serialize().to_pybytes()
    task = StreamTask(
        schema=serialised, row_schema=serialised, sources=(0,), padded={}, by_id=False
    )
    file = StreamedFile((tmp_path / "f.parquet").as_uri(), deleted, (), only)
    found = [row for batch in task.rows([file]) for row in batch.column(0).to_pylist()]
    assert found == ids
