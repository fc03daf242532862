"""One version of a table as a value, and the application of commits to it.

Owns action reconciliation: files, tombstones, application ids and domains by their keys, protocol
and metadata by the latest. Source: PROTOCOL.md, "Action Reconciliation".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.files import Files, canonical_key
from txlake.log.partitions import in_zone, local_columns
from txlake.log.predicates import Predicate
from txlake.log.skipping import may_match
from txlake.log.time_zones import TimeZone
from txlake.log.tombstones import Tombstones
from txlake.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from txlake.protocol.column_mapping import effective_schema
from txlake.protocol.features import (
    check_writable,
    column_mapping_mode,
    is_iceberg_compatible,
    materializes_partitions,
    supported_features,
)
from txlake.protocol.properties import is_true
from txlake.protocol.table_properties import TableProperties
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_schema

ROW_TRACKING_DOMAIN = "delta.rowTracking"
_TIMESTAMP = Primitive("timestamp")
_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
# The cached properties that depend on protocol and metadata alone.
_OF_DEFINITION = (
    "schema",
    "column_mapping_mode",
    "arrow_schema",
    "properties",
    "features",
    "materializes_partitions",
    "is_iceberg_compatible",
    "_is_writable",
)
_NO_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=1)
_NO_METADATA = Metadata(id="")


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """The state of a table at one version, possibly with a transaction's own changes on top.

    Attributes:
        table: the table's name or URL, for messages.
        version: the version; -1 for a table that isn't created yet.
        timestamp_ms: the in-commit timestamp where the table has them, else the time at which the
            version's commit file was written; milliseconds since the epoch.
        protocol, metadata: the latest. Placeholders while `is_created` is False.
        files: the live files.
        app_transactions: the newest `txn` of each application id.
        domains: the metadata domains, without removed ones.
        tombstones: removes of files, read on first use.
        in_commit_timestamp_ms: the in-commit timestamp of the version's commit, where it has one.
        in_commit_before_ms: the latest in-commit timestamp of earlier versions, as far as they were
            read.
    """

    table: str
    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    files: Files
    app_transactions: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    tombstones: Tombstones = field(default_factory=Tombstones)
    in_commit_timestamp_ms: int | None = None
    in_commit_before_ms: int | None = None

    @classmethod
    def empty(cls, table: str) -> Snapshot:
        """Return a table before its first commit: version -1, no protocol, metadata and files."""
        return cls(
            table=table,
            version=-1,
            timestamp_ms=0,
            protocol=_NO_PROTOCOL,
            metadata=_NO_METADATA,
            files=Files.of(()),
        )

    @property
    def has_protocol(self) -> bool:
        """Whether the log has a `protocol` action."""
        return self.protocol is not _NO_PROTOCOL

    @property
    def has_metadata(self) -> bool:
        """Whether the log has a `metaData` action."""
        return self.metadata is not _NO_METADATA

    @property
    def is_created(self) -> bool:
        """Whether protocol and metadata, which every table must have, are present."""
        return self.has_protocol and self.has_metadata

    @cached_property
    def schema(self) -> Struct:
        """The table's columns, with ids and physical names only where columns are mapped.

        Raises CorruptTable when `schemaString` is no schema, or the mapping mode is invalid.
        """
        return effective_schema(
            self.metadata.schema_string,
            self.column_mapping_mode != "none",
            file=f"{self.table}: metaData",
        )

    @cached_property
    def column_mapping_mode(self) -> str:
        """`none`, `name` or `id`. Raises CorruptTable for an invalid mode."""
        configuration = self.metadata.configuration
        return column_mapping_mode(self.protocol, configuration, table=self.table)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The table's columns as Arrow's, logical names. Raises ValueError for geometry types."""
        return to_arrow_schema(self.schema)

    @cached_property
    def properties(self) -> TableProperties:
        """The table's properties, typed."""
        return TableProperties(self.metadata.configuration, self.table)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The logical names of the partition columns."""
        return tuple(self.metadata.partition_columns)

    @cached_property
    def features(self) -> frozenset[str]:
        """The table features of the protocol, explicit or implied by its versions."""
        return supported_features(self.protocol)

    @cached_property
    def materializes_partitions(self) -> bool:
        """Whether new data files hold the partition columns too."""
        return materializes_partitions(self.protocol, self.metadata.configuration)

    @cached_property
    def is_iceberg_compatible(self) -> bool:
        """Whether writers keep the rules of icebergCompatV2."""
        return is_iceberg_compatible(self.protocol, self.metadata.configuration)

    @cached_property
    def row_id_high_water_mark(self) -> int:
        """The highest row id assigned so far; -1 when none was. Source: "Row IDs".

        Raises CorruptTable when its metadata domain can't be parsed.
        """
        domain = self.domains.get(ROW_TRACKING_DOMAIN)
        if domain is None:
            return -1
        try:
            return int(json.loads(domain.configuration)["rowIdHighWaterMark"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTable(
                f"{self.table} at version {self.version}: domain {ROW_TRACKING_DOMAIN}: expected a "
                f"rowIdHighWaterMark, found {domain.configuration!r:.80}"
            ) from error

    def require_writable(self) -> None:
        """Raise UnsupportedFeature as `check_writable`; a version that passed isn't checked again.

        Neither is a later one with the same protocol and metadata.
        """
        _ = self._is_writable

    @cached_property
    def _is_writable(self) -> bool:
        check_writable(self.protocol, self.metadata, table=self.table)
        return True

    def app_version(self, app_id: str) -> int | None:
        """Return the newest version that this application has written; None if it has
        written none.
        """
        txn = self.app_transactions.get(app_id)
        return None if txn is None else txn.version

    def select(self, predicate: Predicate | None) -> pa.Table:
        """Return the files that may hold rows that the (bound) predicate matches, in FILES_SCHEMA.

        None is the predicate of all rows. Raises CorruptTable for a partition value that is no
        value of its column.
        """
        if predicate is None:
            return self.files.table
        return self.files.where(
            lambda files: may_match(predicate, files, self.schema, self.partition_columns)
        )

    def in_zone(self, zone: Callable[[], TimeZone]) -> Snapshot:
        """Return the table with zoneless TIMESTAMP partition values read in the session's zone.

        The same snapshot where there are none; `zone` isn't called then.
        """
        if not self._local_columns:
            return self
        now = zone()
        known = self._zoned.get(now.name)
        if known is None:
            files = Files.of_table(in_zone(self.files.table, self._local_columns, now))
            known = self._zoned[now.name] = replace(self, files=files)
        return known

    def files_in_zone(self, files: pa.Table, zone: Callable[[], TimeZone]) -> pa.Table:
        """Return files of the table, in FILES_SCHEMA, converted as `in_zone` does."""
        columns = local_columns(files, self._partition_fields)
        return in_zone(files, columns, zone()) if columns else files

    @cached_property
    def _partition_fields(self) -> tuple[Field, ...]:
        found = (self.schema.find(name) for name in self.partition_columns)
        return tuple(item for item in found if item is not None)

    @cached_property
    def _local_columns(self) -> tuple[str, ...]:
        """The physical names of the TIMESTAMP partition columns with a zoneless value."""
        if not any(item.type == _TIMESTAMP for item in self._partition_fields):
            return ()
        return local_columns(self.files.columns("partition_values"), self._partition_fields)

    @cached_property
    def _zoned(self) -> dict[str, Snapshot]:
        return {}

    def apply(
        self,
        actions: Iterable[Action],
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Snapshot:
        """Return the state after the actions of one commit, or of a transaction's staged changes.

        The cost depends on the actions alone. `version` and `timestamp_ms` stay as they are when
        None; an in-commit timestamp among the actions takes precedence over `timestamp_ms`.
        """
        actions = tuple(actions)
        if not actions and version is None and timestamp_ms is None:
            return self
        changes = Changes()
        changes.add(actions)
        return changes.apply_to(self, version=version, timestamp_ms=timestamp_ms)


class Changes:
    """Actions of one or more commits, in order, reconciled with each other; the later one
    counts.
    """

    def __init__(self) -> None:
        self.adds: dict[FileKey, Add] = {}
        self.removes: dict[FileKey, Remove] = {}
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.app_transactions: dict[str, Txn] = {}
        self.domains: dict[str, DomainMetadata] = {}
        self.in_commit_timestamp_ms: int | None = None
        self.in_commit_before_ms: int | None = None

    def add(self, actions: Iterable[Action]) -> None:
        """Add the actions of the next commit (or compaction)."""
        adds, removes = self.adds, self.removes
        self.in_commit_before_ms = _latest(self.in_commit_before_ms, self.in_commit_timestamp_ms)
        info: CommitInfo | None = None
        for action in actions:
            if isinstance(action, Add):
                key = canonical_key(action.key)
                adds[key] = action
                removes.pop(key, None)
            elif isinstance(action, Remove):
                key = canonical_key(action.key)
                removes[key] = action
                adds.pop(key, None)
            elif isinstance(action, Metadata):
                self.metadata = action
                if not is_true(action.configuration, _IN_COMMIT_TIMESTAMPS):
                    self.in_commit_before_ms = None
            elif isinstance(action, Protocol):
                self.protocol = action
            elif isinstance(action, Txn):
                self.app_transactions[action.app_id] = action
            elif isinstance(action, DomainMetadata):
                self.domains[action.domain] = action
            elif isinstance(action, CommitInfo):
                info = info or action
        self.in_commit_timestamp_ms = None if info is None else info.in_commit_timestamp_ms

    def apply_to(
        self, base: Snapshot, *, version: int | None, timestamp_ms: int | None
    ) -> Snapshot:
        """Return the state after these changes; `version` and `timestamp_ms` as in
        `Snapshot.apply`.
        """
        metadata = self.metadata or base.metadata
        in_commit, before = base.in_commit_timestamp_ms, base.in_commit_before_ms
        if version is not None:
            is_enabled = is_true(metadata.configuration, _IN_COMMIT_TIMESTAMPS)
            before = _latest(before, in_commit, self.in_commit_before_ms) if is_enabled else None
            in_commit = self.in_commit_timestamp_ms if is_enabled else None
        if len(base.files):
            files = base.files.apply(self.adds.values(), self.removes)
        else:
            files = Files.of_unique(list(self.adds.values())) if self.adds else base.files
        domains = base.domains
        if self.domains:
            merged = {**domains, **self.domains}
            domains = {name: domain for name, domain in merged.items() if not domain.removed}
        app_transactions = base.app_transactions
        if self.app_transactions:
            app_transactions = {**app_transactions, **self.app_transactions}
        after = replace(
            base,
            version=base.version if version is None else version,
            timestamp_ms=_first(in_commit if version is not None else None, timestamp_ms, base),
            protocol=self.protocol or base.protocol,
            metadata=metadata,
            files=files,
            app_transactions=app_transactions,
            domains=domains,
            tombstones=base.tombstones.apply(self.removes.values(), self.adds),
            in_commit_timestamp_ms=in_commit,
            in_commit_before_ms=before,
        )
        if self.protocol is None and self.metadata is None:
            known = base.__dict__
            after.__dict__.update((each, known[each]) for each in _OF_DEFINITION if each in known)
        return after


def unknown_column(name: str, snapshot: Snapshot) -> InvalidRequest:
    """Return the error for a column that the table doesn't have."""
    return InvalidRequest(
        f"{snapshot.table}: there is no column {name!r}; "
        f"the table has {', '.join(snapshot.schema.names)}"
    )


def _latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _first(in_commit: int | None, given: int | None, base: Snapshot) -> int:
    """Return the in-commit timestamp, else the given time, else that of the base."""
    if in_commit is not None:
        return in_commit
    return base.timestamp_ms if given is None else given
