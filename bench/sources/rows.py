"""Rows: `id` from 0, `k = id % 1000`, `v`, `s`, in few large files or in many small ones.

`v` is a whole number of 1/1024, so that sums are exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from bench.delta_log import LoggedFile, write_live_log, write_log
from bench.sources import made_once
from txlake.protocol.actions import DeletionVector
from txlake.protocol.deletion_vectors import relative_file_name, relative_vector
from txlake.protocol.roaring import vector_file

KEYS = 1000
DELETED_KEY = 7
MERGE_STEP = 101
MERGES = 3
"""Sources for so many repeats of MERGE."""

_ROW_GROUP = 1_000_000
_NAMES = 100_000
_VECTORS_UUID = "7b1f0f0e-7c39-4c5e-9d4f-3f3f5bd0a2c1"


@dataclass(frozen=True, slots=True)
class Total:
    """What every engine must come to: the rows, the sum of `k`, the sum of `v`."""

    rows: int
    k: int
    v: float

    def __add__(self, other: Total) -> Total:
        return Total(self.rows + other.rows, self.k + other.k, self.v + other.v)

    def __sub__(self, other: Total) -> Total:
        return Total(self.rows - other.rows, self.k - other.k, self.v - other.v)


@dataclass(frozen=True, slots=True)
class Rows:
    """A data set: `data` holds the files, `logs` the log over them, `live.json`, and of the large
    table also `deleted.json`, which has a deletion vector of `vectors` on every file.
    """

    folder: Path
    rows: int

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def vectors(self) -> Path:
        return self.folder / "vectors"

    @property
    def files(self) -> list[Path]:
        """In the order of `id`."""
        return sorted(self.data.glob("*.parquet"))

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.json"

    def changes(self, number: int) -> Path:
        """The source of the numbered MERGE: `id` and `v`, of them about 1 % new."""
        return self.folder / f"changes-{number}.parquet"

    def total(self) -> Total:
        """Of all rows."""
        return total(np.arange(self.rows, dtype=np.int64))

    def left(self) -> Total:
        """Of the rows that the deletion vectors leave."""
        ids = np.arange(self.rows, dtype=np.int64)
        return total(ids[_kept(ids)])


def large_rows(folder: Path, rows: int, files: int) -> Rows:
    """Few files with a hundredth of the rows deleted in `deleted.json`, and sources for MERGE."""

    def make(folder: Path) -> None:
        _write(folder / "data", rows, files)
        logged = write_live_log(folder / "logs", folder / "data")
        _write_vectors(folder, logged, rows // files)
        for number in range(MERGES):
            ids = np.arange(rows // 100, dtype=np.int64) * MERGE_STEP + number
            pq.write_table(
                pa.table({"id": ids, "v": np.full(len(ids), 0.5)}),
                folder / f"changes-{number}.parquet",
            )

    return Rows(made_once(folder / f"rows-{rows}-{files}", make), rows)


def scattered_rows(folder: Path, rows: int, files: int) -> Rows:
    """The same rows, those of each file from all over the table, in no order."""

    def make(folder: Path) -> None:
        _write(folder / "data", rows, files, scattered=True)
        write_live_log(folder / "logs", folder / "data")

    return Rows(made_once(folder / f"scattered-{rows}-{files}", make), rows)


def small_files(folder: Path, files: int) -> Rows:
    """So many files of 100 rows each."""

    def make(folder: Path) -> None:
        _write(folder / "data", files * 100, files)
        write_live_log(folder / "logs", folder / "data")

    return Rows(made_once(folder / f"files-{files}", make), files * 100)


def values(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The `v` of rows: a scattering of their ids over 0 to 1024."""
    return ((ids * 2_654_435_761) % (1 << 20)).astype(np.float64) / 1024


def total(ids: npt.NDArray[np.int64]) -> Total:
    """The total of rows as they were made."""
    return Total(len(ids), int((ids % KEYS).sum()), float(values(ids).sum()))


def _kept(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    kept: npt.NDArray[np.bool_] = ids % 100 != DELETED_KEY
    return kept


def names(ids: npt.NDArray[np.int64]) -> list[str]:
    """The `s` of rows."""
    return [f"name_{each % _NAMES}" for each in ids]


def _write(data: Path, rows: int, files: int, *, scattered: bool = False) -> None:
    data.mkdir()
    per_file = rows // files
    texts = pa.array(names(np.arange(_NAMES)))
    for number in range(files):
        ids = np.arange(number * per_file, (number + 1) * per_file, dtype=np.int64)
        if scattered:
            places = np.random.default_rng(number).permutation(per_file)
            ids = number + files * places.astype(np.int64)
        table = pa.table(
            {
                "id": ids,
                "k": ids % KEYS,
                "v": values(ids),
                "s": texts.take(pa.array(ids % _NAMES)),
            }
        )
        pq.write_table(table, data / f"part-{number:05}.parquet", row_group_size=_ROW_GROUP)


def _write_vectors(folder: Path, files: list[LoggedFile], per_file: int) -> None:
    bitmaps = []
    for number in range(len(files)):
        ids = np.arange(number * per_file, (number + 1) * per_file, dtype=np.int64)
        bitmaps.append(BitMap64(np.flatnonzero(~_kept(ids)).tolist()))
    content, places = vector_file(bitmaps)
    (folder / "vectors").mkdir()
    (folder / "vectors" / relative_file_name(_VECTORS_UUID)).write_bytes(content)
    with_vectors = []
    for file, bitmap, (offset, size) in zip(files, bitmaps, places, strict=True):
        vector = relative_vector(_VECTORS_UUID, "", offset, size, len(bitmap))
        loose = file.stats.replace('"tightBounds": true', '"tightBounds": false')
        with_vectors.append(LoggedFile(file.path, file.size, loose, vector=_descriptor(vector)))
    schema = pq.read_schema(folder / "data" / files[0].path)
    write_log(folder / "logs", "deleted", schema, with_vectors)


def _descriptor(vector: DeletionVector) -> dict[str, object]:
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
