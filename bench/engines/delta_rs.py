"""delta-rs, by its Python package, as its users write it. SQL is DataFusion's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError

from bench.engines.base import FEW, Engine, Row
from bench.sources.rows import Total


class DeltaRs(Engine):
    """No Spark, no Java; all cores of this process."""

    def __init__(self, scratch: Path) -> None:
        del scratch  # it keeps nothing outside its tables
        self.attached: Mapping[str, Path] = {}

    def total(self, table: Path) -> Total:
        self.attach({"t": table})
        ((rows, k, v),) = self.query("SELECT count(*) AS n, sum(k) AS k, sum(v) AS v FROM t")
        assert isinstance(rows, int)
        assert isinstance(k, int)
        assert isinstance(v, float)
        return Total(rows, k, v)

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, CommitFailedError)

    def append(self, table: Path, files: Sequence[Path]) -> None:
        """Streams the files' record batches."""
        batches = ds.dataset([str(file) for file in files]).scanner().to_reader()
        write_deltalake(str(table), batches, mode="append")

    def attach(self, tables: Mapping[str, Path]) -> None:
        self.attached = dict(tables)

    def query(self, text: str) -> list[Row]:
        """Open the tables anew, as every statement on Spark does."""
        builder = QueryBuilder()
        for name, table in self.attached.items():
            builder.register(name, DeltaTable(str(table)))
        columns = pa.table(builder.execute(text).read_all()).columns
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def row(self, table: Path, row: int) -> list[Row]:
        self.attach({"t": table})
        return self.query(f"SELECT id, k, v, s FROM t WHERE id = {row}")

    def update(self, table: Path, where: str) -> None:
        DeltaTable(str(table)).update(updates={"v": "v + 1"}, predicate=where)

    def delete(self, table: Path, where: str) -> None:
        DeltaTable(str(table)).delete(where)

    def merge(self, table: Path, changes: Path) -> None:
        (
            DeltaTable(str(table))
            .merge(pq.read_table(changes), "t.id = c.id", source_alias="c", target_alias="t")
            .when_matched_update({"v": "t.v + c.v"})
            .when_not_matched_insert({"id": "c.id", "k": "0", "v": "c.v", "s": "''"})
            .execute()
        )

    def merge_case(self, table: Path, changes: Path, kind: str) -> None:
        merge = DeltaTable(str(table)).merge(
            pq.read_table(changes),
            "t.id = c.id AND t.k = c.k",
            source_alias="c",
            target_alias="t",
        )
        match kind:
            case "delete":
                merge = merge.when_matched_delete()
            case "upsert":
                merge = merge.when_matched_update_all().when_not_matched_insert_all()
            case "insert by two clauses":
                merge = merge.when_not_matched_insert_all("c.k % 2 = 0")
                merge = merge.when_not_matched_insert_all()
            case _:
                merge = merge.when_not_matched_insert_all()
        merge.execute()

    def delete_keys(self, table: Path, column: str, keys: Path) -> None:
        condition = f"t.{column} = c.orderkey"
        (
            DeltaTable(str(table))
            .merge(pq.read_table(keys), condition, source_alias="c", target_alias="t")
            .when_matched_delete()
            .execute()
        )

    def insert(self, table: Path, first: int) -> None:
        rows = pa.table(
            {
                "id": pa.array(range(first, first + FEW), pa.int64()),
                "k": pa.array([1] * FEW, pa.int64()),
                "v": [0.5] * FEW,
                "s": ["few"] * FEW,
            }
        )
        write_deltalake(str(table), rows, mode="append")

    def compact(self, table: Path) -> None:
        DeltaTable(str(table)).optimize.compact()
