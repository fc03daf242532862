"""Read what the needs of tables are decided by: snapshots, the log where it expires, the catalog.

However long a log is, few pages of it are listed: its oldest versions, and those that have become
older than the table's retention since the last VACUUM.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from txlake.catalog.maintenance_book import QuietTable
from txlake.commit.checkpointing import checkpoint_interval
from txlake.commit.expired_files import expired_files, last_vacuum, note_read
from txlake.commit.iceberg_publication import version_in_iceberg
from txlake.commit.log_cleanup import (
    expired_versions,
    listing_until,
    midnight,
    oldest_checkpoint_time_ms,
    oldest_commit,
)
from txlake.commit.log_extent import newest_checkpoint
from txlake.commit.membership import is_catalog_managed
from txlake.commit.table_log import TableLog
from txlake.errors import InvalidRequest, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.maintenance.needs import Expired, Need, TableFacts, needs_of, quiet_until_ms
from txlake.maintenance.order import Due
from txlake.maintenance.policy import Policy, Work, policy_of
from txlake.protocol.iceberg import maintains_iceberg
from txlake.protocol.table_properties import TableProperties
from txlake.release import VERSION
from txlake.session.engine import Engine, Handle

_logger = logging.getLogger(__name__)
_LAKE = "the lake"
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Target:
    """What is maintained: a table, or the lake itself if `handle` is None.

    Attributes:
        properties: of the table's database.
    """

    handle: Handle | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def table_id(self) -> str:
        """The catalog's id of a table of a lake; "" for others."""
        return "" if self.handle is None or self.handle.entry is None else self.handle.entry.id

    @property
    def head(self) -> int:
        """The newest version as the catalog named it; -1 if it has none."""
        entry = None if self.handle is None else self.handle.entry
        return -1 if entry is None or entry.head is None else entry.head

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
    """What is due, which tables aren't maintained, and which are left alone for a while.

    Attributes:
        quiet: by table id; those that were known to be quiet, and weren't read, included.
    """

    due: list[Due[Target]] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)
    quiet: dict[str, QuietTable] = field(default_factory=dict)


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


def survey(
    engine: Engine,
    targets: Iterable[Target],
    *,
    notes: bool = False,
    quiet: Mapping[str, QuietTable] | None = None,
) -> Survey:
    """Return what is due on these tables, and on the lake itself.

    Nothing is written, unless `notes` is set: then long stretches of logs that were read and showed
    nothing to delete are recorded, and aren't read again. `quiet`: what an earlier survey found, by
    table id; the logs of such tables aren't read.
    """
    found = Survey()
    if engine.catalog.is_lake:
        found.due.extend(Due(_LAKE, Target(), need) for need in lake_needs(engine))
    for target in targets:
        known = _known_quiet(engine, target, quiet or {})
        if known is None:
            _survey_table(engine, target, found, notes=notes)
        else:
            found.quiet[target.table_id] = known
    return found


def _known_quiet(
    engine: Engine, target: Target, quiet: Mapping[str, QuietTable]
) -> QuietTable | None:
    """Return what is known of a table that needs nothing yet; None if it has to be surveyed."""
    known = quiet.get(target.table_id)
    if known is None or engine.system.now_ms() >= known.until_ms:
        return None
    expected = QuietTable(target.head, known.until_ms, _basis(engine, target))
    return known if known == expected else None


def _survey_table(engine: Engine, target: Target, found: Survey, *, notes: bool) -> None:
    """Add to a survey what one table needs, or else how long it needs nothing."""
    try:
        table, policy = _table_and_policy(target)
        facts = table_facts(engine, target, table, notes=notes)
        needs = needs_of(facts, policy)
        until_ms = quiet_until_ms(facts, policy)
    except NotMaintained as error:
        found.passed.append(Passed(target.name, str(error)))
        return
    except TxlakeError as error:
        _logger.warning("%s: what it needs can't be seen: %s", target.name, error)
        found.passed.append(Passed(target.name, f"{type(error).__name__}: {error}"))
        return
    found.due.extend(Due(target.name, target, need) for need in needs)
    is_seen = facts.iceberg_version is not None or not maintains_iceberg(table.metadata)
    if target.table_id and not needs and is_seen and until_ms > facts.now_ms:
        found.quiet[target.table_id] = QuietTable(table.version, until_ms, _basis(engine, target))


def _basis(engine: Engine, target: Target) -> str:
    """Return a text that is another one if what a table's needs hang on besides its versions is:
    the policy of its database, the defaults of this release, the size of OPTIMIZE's files.
    """
    parts = (VERSION, policy_of(target.properties, {}), engine.settings.target_file_bytes)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class NotMaintained(Exception):
    """Raised for a table that isn't maintained; the message says why."""


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
    """Return what a table's needs are decided by. Costs a few pages of the log's listing, and the
    commits that have become older than the retention since the last VACUUM. `notes`: as for
    `survey`.
    """
    assert target.handle is not None, "the lake itself is no table"
    log, properties = target.handle.log, table.properties
    now_ms = log.system.now_ms()
    expired_log = expired_versions(log, retention_ms=properties.log_retention_ms)
    last = last_vacuum(log)
    first = 0 if last.version is None else last.version + 1
    before_ms = now_ms - properties.deleted_file_retention_ms
    outside = listing_until(log, before_ms - 1, first=first)
    expired = expired_files(log, before_ms, last=last, listing=outside)
    if notes and expired is not None:
        note_read(log, last, expired)
    if expired is not None and expired.version is not None:
        first = expired.version + 1
    return TableFacts(
        table=table,
        now_ms=now_ms,
        target_file_bytes=engine.settings.target_file_bytes,
        checkpoint_version=newest_checkpoint(log, table),
        checkpoint_interval=checkpoint_interval(table),
        expired_log_files=len(expired_log.paths),
        next_log_expiry_ms=_next_log_expiry_ms(log, expired_log.kept, properties),
        expired=None if expired is None else Expired(len(expired.files), expired.size_bytes),
        next_file_expiry_ms=_next_file_expiry_ms(log, first, properties),
        full_vacuum_ms=last.full_ms,
        iceberg_version=_iceberg_version(target.handle, table),
    )


def _next_log_expiry_ms(log: TableLog, kept: int | None, properties: TableProperties) -> int | None:
    """Return when the log is kept from a later checkpoint on; None without one."""
    time_ms = oldest_checkpoint_time_ms(log, first=0 if kept is None else kept + 1)
    if time_ms is None:
        return None
    return midnight(time_ms + _DAY_MS - 1) + properties.log_retention_ms


def _next_file_expiry_ms(log: TableLog, first: int, properties: TableProperties) -> int | None:
    """Return when the oldest commit from the version `first` on leaves the retention; None without
    one.
    """
    commit = oldest_commit(log, first=first)
    if commit is None:
        return None
    return commit.modified_ms + properties.deleted_file_retention_ms + 1


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
