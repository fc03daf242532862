"""Tables for Iceberg's readers: UPGRADE UNIFORM in one commit, and REPAIR TABLE ... SYNC METADATA.

The upgrade rewrites the files that aren't tagged as compatible with icebergCompatV2. Source: Delta
Lake's documentation, "Universal Format (UniForm)"; Databricks' of REPAIR TABLE.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from txlake.commit.change import Change
from txlake.commit.data_plane import TableData
from txlake.commit.iceberg_publication import publish_iceberg
from txlake.conflict.footprint import Read, ReadKind
from txlake.ddl.environment import Environment
from txlake.ddl.table_metadata import DELETION_VECTORS, metadata_actions
from txlake.errors import InvalidRequest
from txlake.log.files import adds_of
from txlake.protocol import iceberg
from txlake.protocol.actions import Action, Add
from txlake.protocol.column_mapping import MODE_PROPERTY
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.context import Context
from txlake.session.views.describe import Rows
from txlake.sql.statements import RepairTable


def upgrade_to_iceberg(work: TableData, environment: Environment) -> Change:
    """Return the change that makes the table and all its files compatible with icebergCompatV2.

    Conflicts with every concurrent change of rows. Raises InvalidRequest for a table that can't
    have icebergCompatV2.
    """
    table = work.snapshot
    configuration = dict(table.metadata.configuration)
    configuration |= {iceberg.ENABLE: "true", DELETION_VECTORS: "false"}
    if table.column_mapping_mode == "none":
        configuration[MODE_PROPERTY] = "name"
    metadata = msgspec.structs.replace(table.metadata, configuration=configuration)
    settings = metadata_actions(table, metadata, environment)
    files = table.select(None)
    others = files.filter(pa.array([not _is_compatible(add) for add in adds_of(files)], pa.bool_()))
    actions: tuple[Action, ...] = settings
    metrics = {}
    if others.num_rows:
        rewrite = work.rewrite(others, table.apply(settings))
        actions += rewrite.actions
        metrics = dict(rewrite.metrics)
    return Change(
        operation="REORG",
        parameters={"predicate": [], "applyPurge": False},
        actions=actions,
        metrics=metrics,
        reads=(Read(kind=ReadKind.GUARD),),
    )


_PUBLISHED = Struct(
    (
        Field("metadata_location", Primitive("string"), False),
        Field("converted_delta_version", Primitive("long"), False),
        Field("converted_delta_timestamp", Primitive("timestamp"), False),
    )
)


def sync_metadata(context: Context, statement: RepairTable) -> Rows:
    """Carry out REPAIR TABLE ... SYNC METADATA: publish what the Iceberg metadata lacks, at once.

    Returns the newest metadata file, and the version that it shows. Raises InvalidRequest on a
    branch, for a table that doesn't maintain Iceberg metadata, and as `publish_iceberg`.
    """
    handle = context.tables.require(statement.table)
    if handle.chain:
        raise InvalidRequest(
            f"{statement.table}: Iceberg's readers see main; publish the branch, which brings the "
            "metadata up to date"
        )
    table = handle.log.latest()
    if not iceberg.maintains_iceberg(table.metadata):
        raise InvalidRequest(
            f"{statement.table}: it maintains no Iceberg metadata; ALTER TABLE ... SET "
            f"TBLPROPERTIES ('{iceberg.ENABLE}' = 'true', "
            "'delta.universalFormat.enabledFormats' = 'iceberg')"
        )
    published = publish_iceberg(handle.log, table)
    at = datetime.fromtimestamp(published.timestamp_ms / 1_000, UTC)
    return Rows(schema=_PUBLISHED, rows=[(published.location, published.version, at)])


def _is_compatible(add: Add) -> bool:
    return add.deletion_vector is None and iceberg.VERSION_TAG.items() <= (add.tags or {}).items()
