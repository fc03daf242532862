"""REORG TABLE ... APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2)) in one commit.

Rewrites the files that aren't tagged as compatible with icebergCompatV2. Source: Delta Lake's
documentation, "Universal Format (UniForm)".
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from txlake.commit.change import Change
from txlake.commit.data_plane import TableData
from txlake.conflict.footprint import Read, ReadKind
from txlake.ddl.environment import Environment
from txlake.ddl.table_metadata import DELETION_VECTORS, metadata_actions
from txlake.log.files import adds_of
from txlake.protocol import iceberg
from txlake.protocol.actions import Action, Add
from txlake.protocol.column_mapping import MODE_PROPERTY


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


def _is_compatible(add: Add) -> bool:
    return add.deletion_vector is None and iceberg.VERSION_TAG.items() <= (add.tags or {}).items()
