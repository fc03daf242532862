"""What requests of the Delta API say, as checked values; what isn't known is ignored.

Source: Unity Catalog's Delta API, its schemas of requests; a transaction is txlake's own.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Body(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Names are snake_case here, and with dashes on the wire."""


class StagingTable(_Body, frozen=True, kw_only=True):
    """A new table is to get an id and a place."""

    name: str


class ProtocolTold(_Body, frozen=True, kw_only=True):
    """A table's protocol."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class NewTableTold(_Body, frozen=True, kw_only=True):
    """A table whose first commit is written is to get its name.

    What it says of the table's definition is in that commit, which counts.
    """

    name: str
    location: str
    table_type: str
    protocol: ProtocolTold
    properties: dict[str, str]
    last_commit_timestamp_ms: int


class CommitTold(_Body, frozen=True, kw_only=True):
    """A staged commit."""

    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class Requirement(_Body, frozen=True, kw_only=True):
    """What has to be so for an update: `type` says which of the others counts."""

    type: str
    uuid: str | None = None
    etag: str | None = None


class Update(_Body, frozen=True, kw_only=True):
    """One change of an update: `action` says which of the others counts."""

    action: str
    commit: CommitTold | None = None
    latest_published_version: int | None = None
    protocol: ProtocolTold | None = None


class UpdateTable(_Body, frozen=True, kw_only=True):
    """Changes of a table, all of them or none."""

    requirements: tuple[Requirement, ...]
    updates: tuple[Update, ...]


class TableTold(_Body, frozen=True, kw_only=True):
    """A table, by its names and its id."""

    schema: str
    table: str
    uuid: str


class TableCommitTold(TableTold, frozen=True, kw_only=True):
    """A table and the staged commit that is to be its next version."""

    commit: CommitTold


class TableAtTold(TableTold, frozen=True, kw_only=True):
    """A table and the version that it must still have."""

    version: int


class TransactionTold(_Body, frozen=True, kw_only=True):
    """Commits of several tables of a catalog, all of them or none."""

    catalog: str
    tables: tuple[TableCommitTold, ...]
    unchanged: tuple[TableAtTold, ...] = ()


class Script(_Body, frozen=True, kw_only=True):
    """SQL, with the values of its markers; `session`: where it is carried out."""

    statement: str
    parameters: dict[str, Any] | list[Any] | None = None
    session: str | None = None


class NewSession(_Body, frozen=True, kw_only=True):
    """A session is to be kept."""

    isolation: str | None = None
    database: str | None = None


class Rename(_Body, frozen=True, kw_only=True):
    """A table's new name."""

    new_name: str


class Metrics(_Body, frozen=True, kw_only=True):
    """A client's report of a commit."""

    table_id: str


class NewSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A new schema, as the older API says it."""

    name: str
    catalog_name: str
    comment: str | None = None
    properties: dict[str, str] | None = None


class TableCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a client wants to do with a table, as the older API says it."""

    table_id: str
    operation: str
