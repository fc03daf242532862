"""What is known of a transaction when it ends: the tables and versions that it read and wrote.

No row, and of an error its class and evidence. Texts of statements are kept for the origins of
columns alone, and aren't told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txlake.conflict.levels import Level
from txlake.errors import Evidence
from txlake.log.files import live_row_count
from txlake.protocol.types import Field
from txlake.session.lineage.datasets import dataset_of_table
from txlake.session.lineage.writes import Reading

if TYPE_CHECKING:
    from txlake.commit.table_transaction import TableTransaction
    from txlake.session.engine import Engine, Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table's part in a transaction.

    Attributes:
        namespace, name: as OpenLineage names the table's folder.
        lake: the URL of the lake that knows the table by `lake_name`; None for a path table.
        read_version: the version whose rows it read; None if it read none.
        operation: the operation in the table's history; None if it isn't changed.
        written_version: the version that the transaction made; None unless it committed one.
        rows, size_bytes, files: of the data files that it wrote; rows are None without statistics.
        writes: what reads the texts of the statements that wrote it, to tell of its columns; None
            for a statement that tells nothing of them.
    """

    namespace: str
    name: str
    lake: str | None
    lake_name: str
    fields: Sequence[Field]
    read_version: int | None
    operation: str | None
    written_version: int | None
    rows: int | None
    size_bytes: int
    files: int
    writes: Sequence[Reading | None] = ()

    @property
    def is_input(self) -> bool:
        """Whether the transaction read rows of the table."""
        return self.read_version is not None

    @property
    def is_output(self) -> bool:
        """Whether the transaction changed the table."""
        return self.operation is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """A transaction that has ended.

    Attributes:
        id: a UUID.
        begin_ms, end_ms: milliseconds since the epoch.
        outcome: `committed`, `rolled back`, `failed` or `unknown`.
        error: the class of the error that ended it.
        evidence: of a conflict.
    """

    id: str
    begin_ms: int
    end_ms: int
    outcome: str
    level: Level | None
    branch: str | None
    tables: Sequence[TableFacts]
    error: str | None = None
    evidence: Evidence | None = None


def facts_of(
    engine: Engine,
    handle: Handle,
    part: TableTransaction,
    versions: Mapping[str, int],
    writes: Sequence[tuple[str, Reading | None]] = (),
) -> TableFacts:
    """Return a table's part in a transaction that has ended.

    By the key of a table's handle: `versions` are those that were committed, `writes` the
    statements that wrote.
    """
    added = part.new_files
    namespace, name = dataset_of_table(engine, handle)
    counts = [live_row_count(add) for add in added]
    return TableFacts(
        namespace=namespace,
        name=name,
        lake=None if handle.entry is None or engine.warehouse is None else engine.warehouse.url,
        lake_name=handle.name,
        fields=part.view.schema.fields if part.view.has_metadata else (),
        read_version=part.base.version if part.has_read_rows else None,
        operation=part.operation,
        written_version=versions.get(handle.key),
        rows=sum(count for count in counts if count is not None) if None not in counts else None,
        size_bytes=sum(add.size for add in added),
        files=len(added),
        writes=tuple(reading for key, reading in writes if key == handle.key),
    )
