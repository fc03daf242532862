"""ALTER TABLE ... DROP FEATURE: remove a feature's traces from a table, then the feature.

The commits in order: turn the feature off for new writes; rewrite the files that use it; where old
versions still need readers that know the feature, put checkpoints without it between those versions
and the last commit, or delete the old versions (TRUNCATE HISTORY); drop the feature. Each commit
leaves a correct table, and the statement can be run again.
Source: Delta Lake's documentation, "Drop Delta table features".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from txlake.commands.steps import Step, commit_step
from txlake.commit import row_tracking
from txlake.commit.change import Change
from txlake.commit.checkpoint_protection import FEATURE as PROTECTION
from txlake.commit.checkpoint_protection import protected_before
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.data_plane import TableData
from txlake.commit.log_cleanup import clean_log, expired_versions
from txlake.commit.notice_commit import commit_notice
from txlake.commit.table_log import TableLog
from txlake.conflict.footprint import Read, ReadKind
from txlake.datafiles.narrower_types import holds_narrower_types, widened_columns
from txlake.ddl.alter_features import drop_feature as dropping
from txlake.ddl.alter_features import feature_to_drop, has_row_ids
from txlake.ddl.clustering import clustering_domain
from txlake.ddl.feature_traces import (
    TRACES,
    VECTORS,
    has_type_changes,
    newest_trace,
    unlisted_vector_paths,
    without_mapping,
    without_type_changes,
)
from txlake.ddl.table_metadata import with_table_name
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.files import adds_of
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, Metadata, Remove
from txlake.protocol.clustering import clustered_by
from txlake.protocol.schema_rules import validate_schema
from txlake.protocol.types import parse_schema
from txlake.session.catalog_access import registered
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.sql.statements import DropFeature

_log = logging.getLogger(__name__)

_THREADS = 16
_HOUR_MS = 3_600_000
# Delta Spark's reader tries this many older checkpoints before it gives up.
_BARRIERS = 3


def drop_feature(context: Context, handle: Handle, statement: DropFeature) -> None:
    """Carry out ALTER TABLE ... DROP FEATURE.

    Raises InvalidRequest as `feature_to_drop`; inside a transaction, if more than one commit is
    needed; and if the history has to be deleted and is too young. Commits made so far stay.
    """
    if handle.branch is not None:
        raise InvalidRequest(
            f"{handle.name}: ALTER TABLE ... DROP FEATURE isn't done on a branch: it changes "
            "checkpoints and history that are main's; drop the feature of the table itself"
        )
    table = context.snapshot(handle)
    try:
        name = feature_to_drop(statement, table)
        _drop(context, handle, statement, name)
    except (InvalidRequest, UnsupportedFeature) as error:
        raise with_table_name(error, table.table) from error


def _drop(context: Context, handle: Handle, statement: DropFeature, name: str) -> None:
    """Carry out the steps, then drop the feature; stage the drop if one commit is enough.

    Raises InvalidRequest if several commits are needed inside a transaction, and as `_truncate`.
    """
    table = context.snapshot(handle)
    steps = _steps(name, table)
    is_long = bool(steps) or name == PROTECTION or _newest_trace(name, handle, table) is not None
    if context.transaction.explicit and is_long:
        raise InvalidRequest(
            f"dropping the feature {name} takes more than one commit here, which can't be part of "
            "a transaction; COMMIT or ROLLBACK first"
        )
    for step in steps:
        while commit_step(context, handle, step):
            pass
    if steps:
        table = handle.log.latest()
    trace = _newest_trace(name, handle, table)
    if not steps and trace is None and name != PROTECTION:
        context.transaction.stage(handle, dropping(statement, table))
        return
    if name == PROTECTION:
        _truncate_protected(context, handle)
    elif trace is not None and statement.truncate_history:
        _truncate(context, handle, name)
        trace = None
    elif trace is not None:
        for _ in range(_BARRIERS):
            _write_barrier_checkpoint(context, handle, name)
    commit_step(context, handle, partial(_drop_step, statement, protects=trace is not None))
    if name in TRACES:
        _end_with_checkpoint(handle.log)


def _newest_trace(name: str, handle: Handle, table: Snapshot) -> int | None:
    """Return `newest_trace` up to the table's version; None for a new table.

    None also for a feature that isn't in TRACES, whether it is used or not: readers of old versions
    don't need it.
    """
    if name not in TRACES or handle.is_new:
        return None
    return newest_trace(name, handle.log, table.version)


def _drop_step(
    statement: DropFeature, context: Context, handle: Handle, *, protects: bool
) -> Change:
    """Return the change that drops the feature. It conflicts with every concurrent change of rows.

    `protects`: older checkpoints have to stay, by the feature checkpointProtection.
    """
    change = dropping(statement, context.snapshot(handle), protects=protects)
    return replace(change, reads=(Read(kind=ReadKind.GUARD),))


# Steps before the feature is dropped


def _steps(name: str, table: Snapshot) -> list[Step]:
    """Return the steps by which a table stops using the feature; none where it doesn't use it."""
    if name == "rowTracking":
        off = not row_tracking.is_enabled(table.metadata.configuration)
        return [] if off and not any(has_row_ids(table)) else [_suspend_row_ids, _remove_row_ids]
    traces = TRACES.get(name)
    if traces is None:
        return []
    steps: list[Step] = []
    if traces.disable(table.metadata) != table.metadata:
        steps.append(partial(_disable, traces.disable))
    if name == VECTORS and _files_with_vectors(table).num_rows:
        steps += [_purge, _rewrite_files_with_vectors]
    if name.startswith("typeWidening") and has_type_changes(table.metadata):
        steps.append(_rewrite_narrow)
    if name == "columnMapping" and table.column_mapping_mode != "none":
        steps.append(_rename_in_files)
    return steps


def _disable(
    disable: Callable[[Metadata], Metadata], context: Context, handle: Handle
) -> Change | None:
    """Return the change of properties that turns the feature off; None if it is off."""
    before = context.snapshot(handle).metadata
    after = disable(before)
    return None if after == before else _property_change(before, after)


def _property_change(before: Metadata, after: Metadata) -> Change:
    """Return the change from one metadata to another, as SET or UNSET TBLPROPERTIES."""
    old, new = before.configuration, after.configuration
    changed = {key: value for key, value in new.items() if old.get(key) != value}
    if changed:
        return Change(
            operation="SET TBLPROPERTIES", parameters={"properties": changed}, actions=(after,)
        )
    unset = sorted(old.keys() - new.keys())
    return Change(
        operation="UNSET TBLPROPERTIES",
        parameters={"properties": unset, "ifExists": True},
        actions=(after,),
    )


def _files_with_vectors(table: Snapshot) -> pa.Table:
    """Return the files with deletion vectors."""
    files = table.select(None)
    return files.filter(pc.is_valid(files["deletion_vector"]))


def _purge(context: Context, handle: Handle) -> Change | None:
    return context.work(handle).compact(purge=True)


def _rewrite_files_with_vectors(context: Context, handle: Handle) -> Change | None:
    """Rewrite the files with deletion vectors that a purge leaves, which only Spark reads
    correctly; return the change, None without such files.
    """
    work = context.work(handle)
    return _rewrite_change(work, _files_with_vectors(work.snapshot), work.snapshot)


def _rewrite_narrow(context: Context, handle: Handle) -> Change | None:
    """Return the change that drops the recorded type changes, after rewriting the files with
    narrower types than the schema's, if any. None if no type change is recorded.
    """
    work = context.work(handle)
    table = work.snapshot
    if not has_type_changes(table.metadata):
        return None
    after = without_type_changes(table.metadata)
    files = table.select(None)
    columns = widened_columns(table)
    if any(item.name in table.partition_columns for item in columns):
        narrow = [True] * files.num_rows  # their values are in the log, as text of the old type
    else:
        by_id = table.column_mapping_mode == "id"

        def is_narrow(add: Add) -> bool:
            return holds_narrower_types(work.footer(add), columns, by_id=by_id)

        with ThreadPoolExecutor(_THREADS) as pool:
            narrow = list(pool.map(is_narrow, adds_of(files)))
    change = _rewrite_change(work, files.filter(pa.array(narrow, pa.bool_())), table)
    actions: tuple[Action, ...] = () if change is None else change.actions
    return Change(
        operation="REORG",
        parameters={"predicate": [], "mode": "REWRITE_TYPE_WIDENING"},
        actions=(after, *actions),
        metrics={} if change is None else change.metrics,
        reads=(Read(kind=ReadKind.GUARD),),
    )


def _rename_in_files(context: Context, handle: Handle) -> Change | None:
    """Rewrite all files with the columns' logical names; None when column mapping is off.

    Raises InvalidRequest for a name that needs column mapping.
    """
    work = context.work(handle)
    table = work.snapshot
    if table.column_mapping_mode == "none":
        return None
    after = without_mapping(table.metadata)
    schema = parse_schema(after.schema_string)
    validate_schema(schema, after.partition_columns, mapped=False)
    paths = clustered_by(table.schema, table.domains, table=table.table)
    domains = [clustering_domain(schema, paths)] if paths else []
    change = _rewrite_change(work, table.select(None), table.apply([after, *domains]))
    return Change(
        operation="REMOVE COLUMN MAPPING",
        actions=(after, *domains, *(() if change is None else change.actions)),
        metrics={} if change is None else change.metrics,
        reads=(Read(kind=ReadKind.GUARD),),
        unmaps=True,
    )


def _rewrite_change(work: TableData, files: pa.Table, onto: Snapshot) -> Change | None:
    return work.rewrite(files, onto) if files.num_rows else None


def _suspend_row_ids(context: Context, handle: Handle) -> Change | None:
    """Return the change that turns row tracking off and stops new ids; None if it is done
    already.
    """
    before = context.snapshot(handle).metadata
    properties = {row_tracking.ENABLE: "false", row_tracking.SUSPENDED: "true"}
    after = msgspec.structs.replace(before, configuration={**before.configuration, **properties})
    return None if after == before else _property_change(before, after)


def _remove_row_ids(context: Context, handle: Handle) -> Change:
    """Return the change that adds the next `Settings.relisted_files_max` files again without row
    ids. It has no actions if no file has row ids.
    """
    table = context.snapshot(handle)
    files = table.select(None)
    batch = files.filter(pa.array(has_row_ids(table), pa.bool_())).slice(
        0, context.engine.settings.relisted_files_max
    )
    adds = [
        msgspec.structs.replace(
            add, base_row_id=None, default_row_commit_version=None, data_change=False
        )
        for add in adds_of(batch)
    ]
    return Change(
        operation="ROW TRACKING UNBACKFILL",
        actions=tuple(adds),
        metrics={"numFiles": len(adds)},
    )


# The history


def _write_barrier_checkpoint(context: Context, handle: Handle, name: str) -> None:
    """Commit an empty version and write its checkpoint, which doesn't use the feature.

    For deletion vectors the version lists their files as removed.
    """
    begin = partial(registered, context.engine, context.transaction.session_number)
    log = handle.log
    latest = log.latest()
    removed: list[Remove] = []
    if name == VECTORS:
        # Engines that don't know deletion vectors would vacuum their files unless the log lists
        # them as removed.
        now = context.engine.system.now_ms()
        removed = [
            Remove(path=path, deletion_timestamp=now, data_change=False)
            for path in unlisted_vector_paths(latest, log.store.url)
        ]
    commit_notice(log, begin, "Empty Commit", {}, {}, removed)
    log.require_published()
    write_checkpoint(log)


def _truncate(context: Context, handle: Handle, name: str) -> None:
    """Delete the versions that need the feature.

    Raises InvalidRequest while they are too young, and nothing is deleted then. Versions within
    `delta.dropFeatureTruncateHistory.retentionDuration` stay: transactions that read them may still
    run.
    """
    log = handle.log
    _write_barrier_checkpoint(context, handle, name)
    latest = log.latest().version
    begins = _first_version_after(handle)
    if begins is not None and newest_trace(name, log, latest, since=begins) is None:
        _delete_history(handle)
    trace = newest_trace(name, log, latest)
    if trace is None:
        return
    raise InvalidRequest(
        f"feature {name} isn't used any more, but versions in the log up to {trace} need readers "
        f"that know it, and are too young to be deleted. Run this again in "
        f"{_retention_text(handle)} (delta.dropFeatureTruncateHistory.retentionDuration); without "
        "TRUNCATE HISTORY they stay readable, and the table gets checkpointProtection "
        "[DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD]"
    )


def _truncate_protected(context: Context, handle: Handle) -> None:
    """Delete the versions whose checkpoints are protected. Raises as `_truncate`."""
    before = protected_before(handle.log.latest().metadata)
    if _is_truncated(handle, before):
        return
    _write_barrier_checkpoint(context, handle, PROTECTION)
    begins = _first_version_after(handle)
    if begins is not None and begins >= before:
        _delete_history(handle)
    if not _is_truncated(handle, before):
        raise InvalidRequest(
            f"feature {PROTECTION} protects the versions before {before}, which are too young "
            f"to be deleted. Run this again in {_retention_text(handle)} "
            "(delta.dropFeatureTruncateHistory.retentionDuration) "
            "[DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD]"
        )


def _first_version_after(handle: Handle) -> int | None:
    """Return the version from which the log is kept by the retention of TRUNCATE HISTORY; None if
    every version is kept.
    """
    return expired_versions(handle.log, retention_ms=_retention_ms(handle), unit_ms=1).kept


def _delete_history(handle: Handle) -> None:
    clean_log(handle.log, retention_ms=_retention_ms(handle), unit_ms=1)


def _retention_ms(handle: Handle) -> int:
    return handle.log.latest().properties.drop_feature_log_retention_ms


def _is_truncated(handle: Handle, before: int) -> bool:
    """Return whether the log has no version before this one."""
    listing = handle.log.listing()
    versions = [*listing.commits, *(checkpoint.version for checkpoint in listing.checkpoints)]
    return min(versions) >= before


def _end_with_checkpoint(log: TableLog) -> None:
    """Write a checkpoint of the version without the feature.

    Never raises: the drop is committed.
    """
    try:
        log.require_published()
        write_checkpoint(log)
    except Exception as error:
        _log.warning("%s: no checkpoint after DROP FEATURE: %s", log.name, error)


def _retention_text(handle: Handle) -> str:
    return f"{_retention_ms(handle) / _HOUR_MS:g} hours"
