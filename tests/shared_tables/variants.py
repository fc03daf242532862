"""The kinds of tables that the engines share, and who can do what there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.shared_tables.workers import Worker

KINDS = ("append", "append", "update", "update", "delete", "merge", "optimize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A kind of table.

    Attributes:
        properties: its table properties.
        columns: its columns in SQL.
        clause: what stands behind them: PARTITIONED BY, CLUSTER BY.
        writers: the engines that write it.
        refused: why delta-rs doesn't write it: what its refusal says.
        unread: the readers that refuse it.
    """

    name: str
    properties: tuple[str, ...] = ()
    columns: str = "id BIGINT, k BIGINT, n BIGINT, s STRING"
    clause: str = ""
    kinds: tuple[str, ...] = KINDS
    writers: tuple[str, ...] = ("txlake", "delta-spark", "delta-rs")
    refused: str = ""

    def create(self, folder: Path, by: Worker) -> None:
        """Version 0, without rows, by Delta Spark."""
        chosen = dict(entry.split("=") for entry in self.properties)
        properties = {
            "delta.enableDeletionVectors": "false",
            "delta.checkpointInterval": "4",
            **chosen,
        }
        given = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        by.sql(
            f"CREATE TABLE delta.`{folder}` ({self.columns}) USING delta {self.clause} "
            f"TBLPROPERTIES ({given})"
        )


JVM = ("txlake", "delta-spark")
PLAIN = Variant(name="plain", kinds=(*KINDS, "add_column"))
PARTITIONED = Variant(name="partitioned", clause="PARTITIONED BY (k)")
SERIALIZABLE = Variant(name="serializable", properties=("delta.isolationLevel=Serializable",))
VECTORS = Variant(name="deletion vectors", properties=("delta.enableDeletionVectors=true",))
VARIANTS = (
    PLAIN,
    PARTITIONED,
    SERIALIZABLE,
    VECTORS,
    Variant(name="column mapping", properties=("delta.columnMapping.mode=name",)),
    Variant(name="column mapping by id", properties=("delta.columnMapping.mode=id",)),
    Variant(name="row tracking", properties=("delta.enableRowTracking=true",)),
    Variant(name="v2 checkpoints", properties=("delta.checkpointPolicy=v2",)),
    Variant(name="in-commit timestamps", properties=("delta.enableInCommitTimestamps=true",)),
    Variant(name="append-only", properties=("delta.appendOnly=true",), kinds=("append",)),
    Variant(name="check constraint", properties=("delta.constraints.positive=n >= 0",)),
    Variant(name="generated column", columns="id BIGINT, k BIGINT, n BIGINT, s STRING"),
    Variant(name="clustered", clause="CLUSTER BY (k)"),
    Variant(name="type widening", properties=("delta.enableTypeWidening=true",)),
)
