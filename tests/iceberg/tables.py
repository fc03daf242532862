"""Tables with Iceberg metadata in a store in memory, and what Iceberg's readers see of them."""

from __future__ import annotations

import itertools
import json
import uuid

import msgspec
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from tests.commit.log_of import LogOf
from tests.session.tables import environment, table
from txlake.commit.iceberg_publication import PublishedVersion, publish_iceberg
from txlake.commit.table_log import TableLog
from txlake.ddl.alter import alter
from txlake.iceberg.metadata_files import newest_file
from txlake.iceberg.snapshots import snapshot_id
from txlake.iceberg.store_io import StoreIO, location_of
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, Metadata, Remove
from txlake.sql.statements import AlterStatement

PROPERTIES = {
    "delta.enableIcebergCompatV2": "true",
    "delta.universalFormat.enabledFormats": "iceberg",
}
_SIZES = itertools.count(100)


class IcebergTable:
    """A Delta log that tests write, with its Iceberg metadata."""

    def __init__(
        self,
        columns: str = "a INT, p INT",
        *,
        partition_by: tuple[str, ...] = ("p",),
        properties: dict[str, str] | None = None,
    ) -> None:
        # pyiceberg caches manifests by their location, for the whole process.
        self.files = LogOf(url=f"memory://{uuid.uuid4()}")
        made = table(columns, partition_by=partition_by, properties=PROPERTIES | (properties or {}))
        self._definition = made
        self.log = self.files.open()
        self.version = -1
        self.commit(made.protocol, self._own(made.metadata))

    def _own(self, metadata: Metadata) -> Metadata:
        own_id = self.files.store.url.removeprefix("memory://")
        return msgspec.structs.replace(metadata, id=own_id)

    @property
    def snapshot(self) -> Snapshot:
        """The newest version of the Delta table."""
        return self.log.latest()

    def commit(self, *actions: Action) -> None:
        """Write the next version, without Iceberg metadata."""
        self.version += 1
        self.files.commit(self.version, *actions)

    def alter(self, statement: AlterStatement) -> None:
        """Write a version with a changed definition."""
        change = alter(statement, self.snapshot, environment())
        self.commit(*(action for action in change.actions))

    def publish(self, log: TableLog | None = None) -> PublishedVersion:
        """Publish the newest version; with `log` as another process."""
        log = log or self.log
        return publish_iceberg(log, log.latest())

    @property
    def iceberg(self) -> TableMetadataV2:
        """The newest Iceberg metadata."""
        found = newest_file(self.files.store)
        assert found is not None
        return found.metadata

    def iceberg_snapshot(self, version: int) -> IcebergSnapshot:
        """The Iceberg snapshot of a Delta version."""
        found = self.iceberg.snapshot_by_id(snapshot_id(version, self.iceberg.table_uuid))
        assert found is not None
        return found

    def entries(self, version: int, *, live: bool = True) -> list[ManifestEntry]:
        """The entries of a version's manifests."""
        io = StoreIO(self.files.store)
        manifests = self.iceberg_snapshot(version).manifests(io)
        return [e for each in manifests for e in each.fetch_manifest_entry(io, live)]

    def live(self, version: int) -> list[str]:
        """The live files of a version as Iceberg's readers see them, relative to the table."""
        root = f"{location_of(self.files.store.url)}/"
        return sorted(e.data_file.file_path.removeprefix(root) for e in self.entries(version))


def file(
    path: str,
    *,
    p: str | None = "1",
    records: int = 1,
    stats: dict[str, object] | None = None,
    data_change: bool = True,
    of: Snapshot | None = None,
) -> Add:
    """A data file; with `of` its partition value has the physical name of that table's column."""
    name = "p"
    if of is not None:
        column = of.schema.find("p")
        name = "p" if column is None else column.physical_name
    return Add(
        path=path,
        partition_values={name: p},
        size=next(_SIZES),
        modification_time=0,
        data_change=data_change,
        stats=json.dumps({"numRecords": records, **(stats or {})}),
    )


def removed(add: Add, *, data_change: bool = True) -> Remove:
    return add.tombstone(timestamp_ms=1, data_change=data_change)
