"""What is known of a transaction when it ends: the tables and versions that it read and wrote.

No text of a statement, no condition, no row, and of an error its class and evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from txlake.conflict.levels import Level
from txlake.errors import Evidence
from txlake.log.files import live_row_count
from txlake.protocol.types import Field

if TYPE_CHECKING:
    from txlake.commit.table_transaction import TableTransaction
    from txlake.session.engine import Engine, Handle

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


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
) -> TableFacts:
    """Return a table's part in a transaction that has ended.

    `versions`: by the key of a table's handle, the versions that were committed.
    """
    added = part.new_files
    branch = handle.branch or engine.branch
    namespace, name = dataset_of(handle.store.url)
    counts = [live_row_count(add) for add in added]
    return TableFacts(
        namespace=namespace,
        name=name if branch is None else f"{name}@branch:{branch.name}",
        lake=None if handle.entry is None or engine.warehouse is None else engine.warehouse.url,
        lake_name=handle.name,
        fields=part.view.schema.fields if part.view.has_metadata else (),
        read_version=part.base.version if part.has_read_rows else None,
        operation=part.operation,
        written_version=versions.get(handle.key),
        rows=sum(count for count in counts if count is not None) if None not in counts else None,
        size_bytes=sum(add.size for add in added),
        files=len(added),
    )


def dataset_of(url: str) -> tuple[str, str]:
    """Return the namespace and the name of a folder as a dataset, as OpenLineage's naming has them:
    a local folder's path in `file`, a key in its bucket, a path in its file system.
    """
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = unquote(parts.path).rstrip("/")
    if scheme == "file":
        return "file", path
    is_path = scheme in {"hdfs", "viewfs"}
    return f"{scheme}://{parts.netloc}", path if is_path else path.lstrip("/")
