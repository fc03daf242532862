"""The third tier of conflict checks: reads the rows of the few files that are in doubt.

Reads these files on the driver, up to a size limit, with pyarrow. Rows that can't be read exactly,
or conditions that aren't modelled, stay in doubt. Source: docs/how-a-commit-works.md, rule 4.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from txlake.conflict.context import FileRows, RowProbe
from txlake.conflict.footprint import Read
from txlake.conflict.positions import Vectors, deleted_positions
from txlake.datafiles.parquet import Columns, iter_rows, open_parquet
from txlake.errors import TxlakeError
from txlake.log.predicates import ColumnPath, columns_of
from txlake.log.skipping import rows_may_match, rows_must_match
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol.actions import Add
from txlake.protocol.parquet_sizes import require_bounded
from txlake.protocol.partition_values import parse_column
from txlake.protocol.paths import decode_path, is_absolute
from txlake.protocol.types import Field, Primitive, to_arrow_type


@dataclass(frozen=True, slots=True)
class _ProbeResult:
    """Rows of a file that may match, and those that certainly do; None if there are none."""

    rows: FileRows
    certain: FileRows | None = None


class FileProbe:
    """Reads the rows in doubt; `fallback` evaluates what is too large, or unreadable here."""

    def __init__(
        self,
        snapshot: Snapshot,
        store: Store,
        vectors: Vectors,
        *,
        bytes_max: int,
        fallback: RowProbe | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._store = store
        self._vectors = vectors
        self._bytes_max = bytes_max
        self._fallback = fallback
        self._last: tuple[tuple[str, ...], pa.Table] | None = None

    def matching(self, read: Read, rows: Sequence[FileRows]) -> Sequence[FileRows] | None:
        """Return those of the rows that the read may match; None if they can't be evaluated.

        If a row certainly matches, only certain matches are returned; rows in doubt are given by
        their files alone. Empty if certainly none matches.
        """
        found: Sequence[FileRows] | None = None
        if sum(one.file.size for one in rows) <= self._bytes_max:
            looks = [look for one in rows if (look := self._look(read, one)) is not None]
            if certain := [look.certain for look in looks if look.certain is not None]:
                return certain
            found = [look.rows for look in looks]
        left = rows if found is None else found
        exact = self._fallback.matching(read, left) if self._fallback is not None and left else None
        if exact is not None or found is None:
            return exact
        return [replace(one, positions=None) for one in found]

    def _look(self, read: Read, one: FileRows) -> _ProbeResult | None:
        """Return the rows of the file that may match; None when no row of it matches.

        All of its rows are in doubt if it can't be read.
        """
        if read.predicate is None:
            return _ProbeResult(one, certain=one)
        schema = self._snapshot.schema
        try:
            rows, places = self._rows(one, columns_of(read.predicate))
            may = rows_may_match(read.predicate, rows, schema)
            must = rows_must_match(read.predicate, rows, schema)
        except (TxlakeError, pa.ArrowException, OSError, ValueError):  # unreadable: doubt
            return _ProbeResult(one)
        if not pc.any(may).as_py():
            return None
        certain = BitMap64(places.filter(must).to_pylist())
        return _ProbeResult(
            replace(one, positions=BitMap64(places.filter(may).to_pylist())),
            replace(one, positions=certain) if certain else None,
        )

    def _rows(
        self, one: FileRows, wanted: Collection[ColumnPath]
    ) -> tuple[pa.Table, pa.UInt64Array]:
        """Return the rows with those of the wanted columns that can be read exactly, and their
        positions.
        """
        snapshot, file = self._snapshot, one.file
        partitions = {name.lower() for name in snapshot.partition_columns}
        names = {path[0].lower() for path in wanted if len(path) == 1}
        fields = [item for item in snapshot.schema if item.name.lower() in names]
        stored = [item for item in fields if item.name.lower() not in partitions]
        # Many winners take rows of one file.
        key = (file.path, *(item.physical_name for item in stored))
        if self._last is None or self._last[0] != key:
            self._last = (key, self._stored(file, stored))
        rows = self._last[1]
        for item in fields:
            if item not in stored:
                text = pa.array([file.partition_values.get(item.physical_name)], pa.string())
                values = pa.repeat(parse_column(text, item.type)[0], rows.num_rows)
                rows = rows.append_column(item.name, values)
        places = _places(one, rows.num_rows, self._vectors)
        return rows.take(places), places

    def _stored(self, file: Add, fields: Sequence[Field]) -> pa.Table:
        """Return a file's rows, deleted ones included, with those of the columns that can be read
        exactly.

        Raises ValueError for a file outside of the table, and what the store and pyarrow raise.
        """
        if is_absolute(file.path):
            raise ValueError("a file outside of the table")
        data = self._store.get(decode_path(file.path))
        parquet = open_parquet(pa.BufferReader(data))
        # The count of rows stands also where no column is read.
        rows = pa.table({"": pa.nulls(parquet.metadata.num_rows)})
        for item in fields:
            values = self._values(item, parquet, data)
            if values is not None:
                rows = rows.append_column(item.name, values)
        return rows

    def _values(self, item: Field, parquet: pq.ParquetFile, data: bytes) -> pa.ChunkedArray | None:
        """Return a column's values as Spark reads them; None where they may differ."""
        if not isinstance(item.type, Primitive) or self._snapshot.column_mapping_mode == "id":
            return None
        wanted = pa.schema([pa.field(item.physical_name, to_arrow_type(item.type))])
        columns = Columns(wanted, by_id=False, exact=True)
        try:
            columns.find(parquet)
        except ValueError:
            return None
        require_bounded(data, parquet.metadata, columns.names)
        return pa.Table.from_batches(iter_rows(parquet, columns), wanted).column(0)


def _places(one: FileRows, count: int, vectors: Vectors) -> pa.UInt64Array:
    """Return the requested positions; those of all live rows if none are given."""
    if one.positions is not None:
        return pa.array(_numbers(one.positions))
    gone = _numbers(deleted_positions(one.file, vectors))
    return pa.array(np.setdiff1d(np.arange(count, dtype=np.uint64), gone))


def _numbers(positions: BitMap64) -> np.ndarray:
    return np.fromiter(positions, dtype=np.uint64, count=len(positions))
