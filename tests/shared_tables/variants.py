"""The kinds of tables that the engines share, and who can do what there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.shared_tables.operations import Chooser, Operation
from tests.shared_tables.workers import WRITERS, Worker

KINDS = ("append", "append", "update", "update", "delete", "merge", "optimize")
JVM = ("txlake", "delta-spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A kind of table.

    Attributes:
        properties: its table properties.
        columns: its columns in SQL.
        clause: what stands behind them: PARTITIONED BY, CLUSTER BY.
        kinds: the operations that are carried out there.
        writers: the engines that write it; the others refuse to.
        refused: the table features that a refusal to write names.
        lacks: the kinds of operations that delta-rs refuses there though it writes otherwise.
        unread: the readers that refuse it, with what they say.
        changes: what the writers on Spark do to its columns in between, in this order.
    """

    name: str
    properties: tuple[str, ...] = ()
    columns: str = "id BIGINT, k BIGINT, n BIGINT, s STRING"
    clause: str = ""
    kinds: tuple[str, ...] = KINDS
    writers: tuple[str, ...] = WRITERS
    refused: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[Operation, ...] = ()

    def create(self, folder: Path, by: Worker) -> None:
        """Version 0, without rows, by an engine with SQL."""
        chosen = dict(entry.split("=", 1) for entry in self.properties)
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

    def choosers(self, seed: int, *, at_once: bool = False) -> dict[str, Chooser]:
        """What each writer does there, by its name; `at_once` with the others or after them."""
        return {
            name: Chooser(f"{seed}/{self.name}", name, number, self._kinds(name, at_once))
            for number, name in enumerate(self.writers)
        }

    def _kinds(self, writer: str, at_once: bool) -> list[str]:
        if writer in JVM:
            return list(self.kinds)
        # A compaction of delta-rs 1.6.6 doesn't see that another one, which committed meanwhile,
        # took the same files: it adds their rows a second time. So it has none beside it here.
        lacks = (*self.lacks, "optimize") if at_once else self.lacks
        return [kind for kind in self.kinds if kind not in lacks]


PLAIN = Variant(name="plain", kinds=(*KINDS, "add_column"))
PARTITIONED = Variant(
    name="partitioned, with a CHECK constraint",
    clause="PARTITIONED BY (k)",
    properties=("delta.constraints.positive=n >= 0",),
)
SERIALIZABLE = Variant(name="serializable", properties=("delta.isolationLevel=Serializable",))
VECTORS = Variant(name="deletion vectors", properties=("delta.enableDeletionVectors=true",))
MAPPED = Variant(
    name="column mapping",
    columns="id BIGINT, k BIGINT, n BIGINT, s STRING, x BIGINT",
    properties=("delta.columnMapping.mode=name",),
    lacks=("optimize",),
    unread={"polars": "reader version 2"},
    changes=(
        Operation(kind="rename_column", marker="renamed", column="x", to="y"),
        # The same name again is another column.
        Operation(kind="add_column", marker="added", column="x"),
        Operation(kind="drop_column", marker="dropped", column="y"),
    ),
)
GENERATED = Variant(
    name="generated column",
    columns="id BIGINT, k BIGINT, n BIGINT, s STRING, twice BIGINT GENERATED ALWAYS AS (n * 2)",
    lacks=("update", "merge"),
)
APPENDED = Variant(
    name="append-only, V2 checkpoints",
    properties=("delta.appendOnly=true", "delta.checkpointPolicy=v2"),
    kinds=("append", "append", "optimize"),
    unread={"polars": "v2Checkpoint"},
)
TRACKED = Variant(
    name="row tracking, in-commit timestamps, clustered",
    properties=("delta.enableRowTracking=true", "delta.enableInCommitTimestamps=true"),
    clause="CLUSTER BY (k)",
    writers=JVM,
    refused=("RowTracking", "InCommitTimestamp", "ClusteredTable", "DomainMetadata"),
)
WIDENED = Variant(
    name="type widening, column mapping by id",
    columns="id BIGINT, k BIGINT, n INT, s STRING",
    properties=("delta.enableTypeWidening=true", "delta.columnMapping.mode=id"),
    writers=JVM,
    refused=("TypeWidening",),
    unread={"delta-rs": "TypeWidening", "polars": "typeWidening"},
    changes=(
        Operation(kind="widen", marker="widened", column="n"),
        Operation(kind="append", marker="wide", rows=((900, 0, 3_000_000_000, "wide"),)),
    ),
)
EVERYTHING = Variant(
    name="every feature at once",
    properties=(
        "delta.enableDeletionVectors=true",
        "delta.enableRowTracking=true",
        "delta.enableInCommitTimestamps=true",
        "delta.columnMapping.mode=name",
        "delta.checkpointPolicy=v2",
    ),
    writers=JVM,
    refused=("RowTracking", "InCommitTimestamp"),
    unread={"polars": "columnMapping"},
)
IN_TURNS = (PLAIN, VECTORS, MAPPED, GENERATED, APPENDED, TRACKED, WIDENED)
AT_ONCE = (PLAIN, PARTITIONED, SERIALIZABLE, VECTORS, EVERYTHING)
ALL = tuple({variant.name: variant for variant in (*AT_ONCE, *IN_TURNS)}.values())
