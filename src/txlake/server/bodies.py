"""Request bodies of the Delta API, as checked values. Unknown fields are ignored.

Source: Unity Catalog's Delta API, its request schemas. The transaction's body is txlake's own.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Body(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A body whose names are snake_case here, and kebab-case on the wire."""


class StagingTable(_Body, frozen=True, kw_only=True):
    """The request for an id and a location for a new table."""

    name: str


class ProtocolBody(_Body, frozen=True, kw_only=True):
    """A table's protocol."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class NewTableBody(_Body, frozen=True, kw_only=True):
    """The request to name a table whose first commit is written.

    The table's definition is taken from that commit; the body's other fields about it are ignored.
    """

    name: str
    location: str
    table_type: str
    protocol: ProtocolBody
    properties: dict[str, str]
    last_commit_timestamp_ms: int


class StagedCommit(_Body, frozen=True, kw_only=True):
    """A staged commit."""

    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class Requirement(_Body, frozen=True, kw_only=True):
    """A requirement of an update: `type` says which of the other fields counts."""

    type: str
    uuid: str | None = None
    etag: str | None = None


class Update(_Body, frozen=True, kw_only=True):
    """One change of an update: `action` says which of the other fields counts."""

    action: str
    commit: StagedCommit | None = None
    latest_published_version: int | None = None
    protocol: ProtocolBody | None = None


class UpdateTable(_Body, frozen=True, kw_only=True):
    """An update of a table: all of its changes are made, or none."""

    requirements: tuple[Requirement, ...]
    updates: tuple[Update, ...]


class TableReference(_Body, frozen=True, kw_only=True):
    """A table, by its names and its id."""

    schema: str
    table: str
    uuid: str


class TableCommitBody(TableReference, frozen=True, kw_only=True):
    """A table and the staged commit that becomes its next version."""

    commit: StagedCommit


class TableVersionBody(TableReference, frozen=True, kw_only=True):
    """A table and the version that it must still be at."""

    version: int


class TransactionBody(_Body, frozen=True, kw_only=True):
    """Commits of several tables of a catalog: all of them or none.

    `transaction_id`: the client's own id of the transaction, which its commits name too.
    """

    catalog: str
    transaction_id: str | None = None
    tables: tuple[TableCommitBody, ...]
    unchanged: tuple[TableVersionBody, ...] = ()


class Script(_Body, frozen=True, kw_only=True):
    """SQL, with its parameters.

    Attributes:
        session: the id of the session that runs it.
        read_version, reads: as the arguments of `Lake.sql`.
    """

    statement: str
    parameters: dict[str, Any] | list[Any] | None = None
    session: str | None = None
    read_version: int | dict[str, int] | None = None
    reads: str | dict[str, str] | None = None


class NewSession(_Body, frozen=True, kw_only=True):
    """The settings of a session that a client keeps."""

    isolation: str | None = None
    database: str | None = None


class Rename(_Body, frozen=True, kw_only=True):
    """A table's new name."""

    new_name: str


class Metrics(_Body, frozen=True, kw_only=True):
    """A client's report of a commit."""

    table_id: str


class NewSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A new schema, in the older API's form."""

    name: str
    catalog_name: str
    comment: str | None = None
    properties: dict[str, str] | None = None


class TableCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a table's credentials, in the older API's form."""

    table_id: str
    operation: str
