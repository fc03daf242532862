"""REORG TABLE ... APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2)): settings and files at once.

Owns which files are written again: those that don't say that they keep to icebergCompatV2. Source:
Delta Lake's documentation, "Universal Format (UniForm)".
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from txlake.ddl.environment import Environment
from txlake.ddl.table_metadata import DELETION_VECTORS, changed
from txlake.log.files import adds_of
from txlake.protocol import iceberg
from txlake.protocol.actions import Action, Add
from txlake.protocol.column_mapping import MODE_PROPERTY
from txlake.transaction.change import Change, Read
from txlake.transaction.data_plane import TableData


def for_iceberg(work: TableData, environment: Environment) -> Change:
    """The change, one commit, after which the table and all its files keep to icebergCompatV2.

    Nobody may add or take away rows meanwhile. Raises InvalidRequest for a table that can't.
    """
    table = work.snapshot
    configuration = dict(table.metadata.configuration)
    configuration |= {iceberg.ENABLE: "true", DELETION_VECTORS: "false"}
    if table.column_mapping_mode == "none":
        configuration[MODE_PROPERTY] = "name"
    metadata = msgspec.structs.replace(table.metadata, configuration=configuration)
    settings = changed(table, metadata, environment)
    files = table.select(None)
    others = files.filter(pa.array([not _keeps_to_it(add) for add in adds_of(files)], pa.bool_()))
    actions: tuple[Action, ...] = settings
    metrics = {}
    if others.num_rows:
        rewriting = work.rewrite(others, table.apply(settings))
        actions += rewriting.actions
        metrics = dict(rewriting.metrics)
    return Change(
        operation="REORG",
        parameters={"predicate": [], "applyPurge": False},
        actions=actions,
        metrics=metrics,
        reads=(Read(guard=True),),
    )


def _keeps_to_it(add: Add) -> bool:
    return add.deletion_vector is None and iceberg.VERSION_TAG.items() <= (add.tags or {}).items()
