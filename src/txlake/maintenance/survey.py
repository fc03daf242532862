"""Read what the needs of tables are decided by: snapshots, one listing of each log, the catalog."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from txlake.commit.checkpointing import checkpoint_interval
from txlake.commit.expired_files import expired_files, last_vacuum, note_read
from txlake.commit.iceberg_publication import version_in_iceberg
from txlake.commit.log_cleanup import expired_versions, log_files
from txlake.commit.membership import is_catalog_managed
from txlake.errors import InvalidRequest, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.maintenance.needs import Expired, Need, TableFacts, needs_of
from txlake.maintenance.order import Due
from txlake.maintenance.policy import Policy, Work, policy_of
from txlake.protocol.iceberg import maintains_iceberg
from txlake.session.engine import Engine, Handle

_logger = logging.getLogger(__name__)
_LAKE = "the lake"


@dataclass(frozen=True, slots=True)
class Target:
    """What is maintained: a table, or the lake itself if `handle` is None.

    Attributes:
        properties: of the table's database.
    """

    handle: Handle | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As the record names it: `database.table`, a path table's URL, or `the lake`."""
        return _LAKE if self.handle is None else self.handle.name


@dataclass(frozen=True, slots=True)
class Passed:
    """A table that isn't maintained, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What is due, and which tables aren't maintained."""

    due: list[Due[Target]]
    passed: list[Passed]


def targets_of(engine: Engine) -> Iterator[Target]:
    """Yield the tables of a lake, by database and name.

    Raises InvalidRequest for another system's catalog, which maintains its tables itself.
    """
    if not engine.catalog.is_lake:
        raise InvalidRequest(
            "maintenance: expected a lake of txlake or a path table, found another system's "
            "catalog, which maintains its tables itself"
        )
    for database in engine.catalog.databases():
        for entry in engine.catalog.tables(database.name):
            if entry.head is not None:
                yield Target(engine.at_entry(entry), database.properties)


def survey(engine: Engine, targets: Iterator[Target], *, notes: bool = False) -> Survey:
    """Return what is due on these tables, and on the lake itself.

    Nothing is written, unless `notes` is set: then long stretches of logs that were read and showed
    nothing to delete are recorded, and aren't read again.
    """
    found = Survey([], [])
    if engine.catalog.is_lake:
        found.due.extend(Due(_LAKE, Target(), need) for need in lake_needs(engine))
    for target in targets:
        try:
            found.due.extend(
                Due(target.name, target, need) for need in table_needs(engine, target, notes=notes)
            )
        except NotMaintained as error:
            found.passed.append(Passed(target.name, str(error)))
        except TxlakeError as error:
            _logger.warning("%s: what it needs can't be seen: %s", target.name, error)
            found.passed.append(Passed(target.name, f"{type(error).__name__}: {error}"))
    return found


class NotMaintained(Exception):
    """Raised for a table that isn't maintained; the message says why."""


def table_needs(engine: Engine, target: Target, *, notes: bool = False) -> list[Need]:
    """Return what a table needs now. Raises NotMaintained, and as `TableLog.latest`."""
    table, policy = _table_and_policy(target)
    return needs_of(table_facts(engine, target, table, notes=notes), policy)


def policy_for(target: Target) -> Policy:
    """Return a table's policy. Raises NotMaintained."""
    return _table_and_policy(target)[1]


def _table_and_policy(target: Target) -> tuple[Snapshot, Policy]:
    """Return a table's newest version and its policy. Raises NotMaintained."""
    assert target.handle is not None, "the lake itself is no table"
    table = target.handle.log.latest()
    policy = policy_of(target.properties, table.metadata.configuration)
    if not policy.enabled:
        raise NotMaintained("txlake.maintenance.enabled is false")
    if target.handle.entry is None and is_catalog_managed(table.protocol):
        raise NotMaintained(
            "a catalog governs the table, and its system maintains it; maintain txlake's tables "
            "by their lake"
        )
    table.require_writable()
    return table, policy


def table_facts(
    engine: Engine, target: Target, table: Snapshot, *, notes: bool = False
) -> TableFacts:
    """Return what a table's needs are decided by. Costs a listing of the log, and the commits that
    left the retention since the last VACUUM. `notes`: as for `survey`.
    """
    assert target.handle is not None, "the lake itself is no table"
    log, properties = target.handle.log, table.properties
    now_ms = log.system.now_ms()
    _, listing = log_files(log)
    expired_log = expired_versions(log, retention_ms=properties.log_retention_ms).paths
    last = last_vacuum(log)
    expired = expired_files(
        log, now_ms - properties.deleted_file_retention_ms, last=last, listing=listing
    )
    if notes and expired is not None:
        note_read(log, last, expired)
    return TableFacts(
        table=table,
        now_ms=now_ms,
        target_file_bytes=engine.settings.target_file_bytes,
        checkpoint_version=listing.checkpoints[-1].version if listing.checkpoints else None,
        checkpoint_interval=checkpoint_interval(table),
        expired_log_files=len(expired_log),
        expired=None if expired is None else Expired(len(expired.files), expired.size_bytes),
        full_vacuum_ms=last.full_ms,
        iceberg_version=_iceberg_version(target.handle, table),
    )


def _iceberg_version(handle: Handle, table: Snapshot) -> int | None:
    """Return the newest version that a table's Iceberg metadata shows, -1 for none; None if it
    maintains none, or this process can't read it, which is logged.
    """
    if not maintains_iceberg(table.metadata) or handle.chain:
        return None
    try:
        return version_in_iceberg(handle.log, table)
    except TxlakeError as error:
        _logger.warning("%s: how far its Iceberg metadata is can't be seen: %s", handle.name, error)
        return None


def lake_needs(engine: Engine) -> list[Need]:
    """Return what a lake needs besides its tables."""
    catalog, needs = engine.catalog.of_lake(), []
    left = catalog.maintenance.leftovers()
    if left.unpublished or left.dropped:
        needs.append(
            Need(
                work=Work.LEFTOVERS,
                why=f"{left.unpublished:,} tables have commits that weren't published for ten "
                f"minutes, and {left.dropped:,} dropped tables are past their retention",
                gain=float(left.unpublished + left.dropped),
                cost=1.0,
            )
        )
    expired = catalog.branches.expired()
    if expired:
        needs.append(
            Need(
                work=Work.BRANCHES,
                why=f"{len(expired):,} branches and tags have expired: "
                f"{', '.join(entry.name for entry in expired[:3])}",
                gain=float(len(expired)),
                cost=1.0,
            )
        )
    return needs
