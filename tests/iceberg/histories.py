"""Random statements on a published table of a lake, and the rows of each of its versions."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.table import StaticTable

import txlake
from txlake.dbapi import Connection, Error
from txlake.iceberg.snapshots import snapshot_id

_FROM, _TO = dt.datetime.fromisoformat("1700-01-01"), dt.datetime.fromisoformat("2200-01-01")
PRIMITIVES: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]] = {
    "i": ("INT", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "y": ("TINYINT", pa.int8(), st.integers(-128, 127)),
    "l": ("BIGINT", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "t": ("STRING", pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=40)),
    "d": ("DECIMAL(20,4)", pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
    "f": ("FLOAT", pa.float32(), st.floats(width=32)),
    "g": ("DOUBLE", pa.float64(), st.floats()),
    "b": ("BINARY", pa.binary(), st.binary(max_size=40)),
    "o": ("BOOLEAN", pa.bool_(), st.booleans()),
    "a": ("DATE", pa.date32(), st.dates(dt.date(1600, 1, 1), dt.date(2999, 1, 1))),
    "z": (
        "TIMESTAMP",
        pa.timestamp("us", "UTC"),
        st.datetimes(_FROM, _TO, timezones=st.just(dt.UTC)),
    ),
    "n": (
        "TIMESTAMP_NTZ",
        pa.timestamp("us"),
        st.datetimes(_FROM, _TO),
    ),
}
NESTED: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]] = {
    "s": (
        "STRUCT<x: INT, y: STRUCT<w: STRING>>",
        pa.struct([("x", pa.int32()), ("y", pa.struct([("w", pa.string())]))]),
        st.fixed_dictionaries({"x": st.none() | st.integers(0, 9), "y": st.just({"w": "v"})}),
    ),
    "r": ("ARRAY<INT>", pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 9), max_size=3)),
    "m": (
        "MAP<STRING, ARRAY<INT>>",
        pa.map_(pa.string(), pa.list_(pa.int32())),
        st.lists(st.tuples(st.sampled_from("ab"), st.just([1])), max_size=1),
    ),
}
STATEMENTS = (
    "DELETE FROM {t} WHERE id > 6",
    "DELETE FROM {t} WHERE p = '1'",
    "UPDATE {t} SET v = 1 WHERE id > 4",
    "UPDATE {t} SET p = '2' WHERE id < 3",
    "OPTIMIZE {t}",
    "ALTER TABLE {t} ADD COLUMN c{n} INT",
    "INSERT INTO {t} (id, v, p) VALUES ({n}, 7, NULL)",
    "ALTER TABLE {t} RENAME COLUMN v TO w; ALTER TABLE {t} ADD COLUMN v BIGINT",
    "ALTER TABLE {t} DROP COLUMN w",
    "ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT",
    "RESTORE TABLE {t} TO VERSION AS OF 1",
    "TRUNCATE TABLE {t}",
)
PROPERTIES = (
    "TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true', 'delta.enableTypeWidening' = 'true', "
    "'delta.universalFormat.enabledFormats' = 'iceberg')"
)


def rows_of(columns: dict[str, tuple[str, pa.DataType, Any]]) -> st.SearchStrategy[pa.Table]:
    """Tables of rows: an id, a number v, a partition p, and the columns, each of them or null."""
    types = [("id", pa.int64()), ("v", pa.int32()), ("p", pa.string())]
    schema = pa.schema([*types, *((name, column[1]) for name, column in columns.items())])
    values = {name: st.none() | column[2] for name, column in columns.items()}
    row = st.fixed_dictionaries(
        {
            "id": st.integers(0, 9),
            "v": st.none() | st.integers(0, 100),
            "p": st.sampled_from(["1", "2", "a b/ä%", "", None]),
            **values,
        }
    )
    return st.lists(row, min_size=1, max_size=4).map(
        lambda rows: pa.Table.from_pylist(rows, schema)
    )


def steps_of(
    columns: dict[str, tuple[str, pa.DataType, Any]],
) -> st.SearchStrategy[list[str | pa.Table]]:
    """Lists of steps: rows to append, or a statement."""
    rows = rows_of(columns)
    return st.tuples(rows, st.lists(rows | st.sampled_from(STATEMENTS), max_size=6)).map(
        lambda pair: [pair[0], *pair[1]]
    )


class PublishedTable:
    """A published table of a lake, that random steps change."""

    def __init__(
        self,
        lake: txlake.Lake,
        connection: Connection,
        folder: Path,
        columns: dict[str, tuple[str, pa.DataType, Any]],
        *,
        by: str = "PARTITIONED BY (p)",
    ) -> None:
        self.lake, self.folder, self.name = lake, folder, folder.name
        self._cursor = connection.cursor()
        types = ", ".join(f"{each} {column[0]}" for each, column in columns.items())
        self._cursor.execute(
            f"CREATE TABLE {self.name} (id BIGINT, v INT, p STRING, {types}) {by} {PROPERTIES}"
        )

    def step(self, step: str | pa.Table, number: int) -> None:
        """Carry out a step; a statement that the table can't have any more changes nothing."""
        if isinstance(step, pa.Table):
            self.lake.write(step, self.name, mode="append", merge_schema=True)
            return
        for text in step.format(t=self.name, n=number).split("; "):
            try:
                self._cursor.execute(text)
            except Error:
                return

    @property
    def version(self) -> int:
        """The newest version."""
        return txlake.Log(str(self.folder)).snapshot().version

    def rows(self, version: int) -> pa.Table:
        """The rows of a version, as txlake reads them."""
        self._cursor.execute(f"SELECT * FROM {self.name} VERSION AS OF {version}")
        return self._cursor.fetch_arrow_table()

    @property
    def iceberg(self) -> StaticTable:
        """The table as pyiceberg reads it, without a catalog."""
        hint = (self.folder / "metadata/version-hint.text").read_text()
        return StaticTable.from_metadata(str(self.folder / f"metadata/v{hint}.metadata.json"))


def plain(rows: pa.Table) -> list[str]:
    """Rows in a form in which those of two readers are equal, whatever their order."""
    return sorted(repr({k: _plain(v) for k, v in row.items()}) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return value.normalize() if isinstance(value, Decimal) else value


def identity(table: StaticTable, version: int) -> int:
    """The snapshot's id of a version."""
    return snapshot_id(version, table.metadata.table_uuid)
