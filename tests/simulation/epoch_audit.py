"""The audit of a run whose catalog was restored, lost or recovered.

The logs decide what is committed. Instants have an order within an epoch of the catalog only, so
isolation levels are checked epoch by epoch. Only commits that nothing but a replaced catalog knew
may be lost.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.simulation.audit import Audit
from tests.simulation.catalog_history import CatalogHistory, Epoch, TableVersion
from tests.simulation.committed_state import LogHistory
from tests.simulation.records import (
    UNREPORTED,
    CommittedState,
    Record,
    ReportedOutcome,
    Violation,
)


class EpochAudit:
    """Check a run's records against its logs and the history of its catalog.

    Attributes:
        counts: how many records, instants and levels were checked, and how many couldn't be.
    """

    def __init__(
        self,
        history: CatalogHistory,
        records: Sequence[Record],
        logs: Mapping[str, LogHistory],
        initial_versions: Mapping[str, int],
    ) -> None:
        self._history = history
        self._logs = logs
        self._initial_versions = initial_versions
        self._lost = history.may_be_lost
        self._foreign = {(name, version) for name, log in logs.items() for version in log.foreign}
        self._in_logs = _versions_by_transaction(logs)
        self._ratified: dict[str, set[TableVersion]] = {}
        for table_version, transactions in history.transactions_of.items():
            for transaction in transactions:
                self._ratified.setdefault(transaction, set()).add(table_version)
        self._records = records
        self._own = {record.id for record in records}
        self.counts: Counter[str] = Counter()

    def check(
        self,
        database: sqlite3.Connection,
        roots: Mapping[str, tuple[str, str]],
        *,
        requires_fresh_reads: bool,
    ) -> None:
        """Check the whole run. Raises Violation for the first broken promise.

        Args:
            database: the catalog at the end.
            roots: by table name, its id in the catalog and its key.
            requires_fresh_reads: as in `Audit.check`.
        """
        self._check_catalog(database, roots)
        for record in self._records:
            self._check_atomicity(record)
        lost_reads = {id(record) for record in self._records if self._has_read_lost(record)}
        checked = [record for record in self._records if id(record) not in lost_reads]
        self.counts.update({"judged": len(checked), "read what was lost": len(lost_reads)})
        unrecorded = {
            (name, version)
            for record in self._records
            if id(record) in lost_reads
            for name, version in self._in_logs.get(record.id, {}).items()
        }
        rows = {name: log.rows for name, log in self._logs.items()}
        order = {transaction: place for place, transaction in enumerate(self._in_logs)}
        audit = Audit(
            checked,
            CommittedState(order, self._in_logs, rows),
            self._initial_versions,
            is_lake=False,
            may_be_lost=self._lost,
            unrecorded=unrecorded | self._foreign,
            # If a backup was restored before a statement and replaced during it, the statement
            # notices only at its end, when it fails: it may have read the backup.
            may_read_stale={
                record.id
                for record in checked
                if record.outcome in (ReportedOutcome.UNAVAILABLE, ReportedOutcome.REFUSED)
            },
        )
        audit.check_rows(requires_fresh_reads=requires_fresh_reads)
        for index, epoch in enumerate(self._history.epochs):
            ratified = [record for record in checked if record.id in epoch.first_ratified]
            self._check_epoch(epoch, ratified, checked, index)

    def _check_catalog(
        self, database: sqlite3.Connection, roots: Mapping[str, tuple[str, str]]
    ) -> None:
        """Check that the catalog has every table at the newest version of its log."""
        names = {table_id: name for name, (table_id, _) in roots.items()}
        query = "SELECT id, head, published FROM txlake_tables WHERE dropped_sequence IS NULL"
        heads = {names[row[0]]: row[1:] for row in database.execute(query) if row[0] in names}
        for name, log in self._logs.items():
            newest = max(log.rows)
            if heads.get(name) != (newest, newest):
                raise Violation(
                    f"{name}: the catalog has it at {heads.get(name)}, and the log ends at {newest}"
                )
        for table_version, (_, transaction) in self._history.epochs[-1].commits.items():
            if not self._is_by(table_version, transaction):
                raise Violation(f"{table_version} isn't what was ratified")

    def _is_by(self, table_version: TableVersion, transaction: str | None) -> bool:
        """Return whether the log has a version as this transaction's commit."""
        name, version = table_version
        if table_version in self._foreign:
            return transaction not in self._own
        return self._logs[name].transactions.get(version) == transaction

    def _check_atomicity(self, record: Record) -> None:
        """Check that all or none of a transaction's commits exist, as its client was told.

        A transaction that may be lost is only counted.
        """
        ratified = self._ratified.get(record.id, set())
        committed = {version for version in ratified if self._is_by(version, record.id)}
        unratified = self._in_logs.get(record.id, {}).items() - ratified
        outcome = record.outcome
        if unratified:
            raise Violation(f"{record.client}: {unratified} are committed, and weren't ratified")
        if outcome is not ReportedOutcome.COMMITTED and outcome not in UNREPORTED and committed:
            raise Violation(f"{record.client} was told {outcome.value}, and {committed} exist")
        if record.id in self._lost:
            self.counts["may be lost"] += 1
            self.counts["lost"] += committed != ratified
            return
        if committed and committed != ratified:
            raise Violation(f"{record.client}: of {ratified} only {committed} exist")
        if ratified and not committed and outcome is ReportedOutcome.COMMITTED:
            raise Violation(f"{record.client} was told it is committed, and {ratified} are lost")

    def _has_read_lost(self, record: Record) -> bool:
        """Return whether a transaction read a version that was lost with a catalog.

        Raises Violation if a version that it read is gone and must not be.
        """
        has_read_lost = False
        for name, version in record.read_versions.items():
            if not name:
                continue
            read = record.read_transactions.get(name)
            makers = {read} if read is not None else self._history.transactions_of[name, version]
            existing = {maker for maker in makers if self._is_by((name, version), maker)}
            if existing == makers:
                continue
            if not (makers - existing) & self._lost:
                raise Violation(
                    f"{record.client} read {name} at version {version} by {makers}: gone"
                )
            has_read_lost = True
        return has_read_lost

    def _check_epoch(
        self, epoch: Epoch, ratified: Sequence[Record], records: Sequence[Record], index: int
    ) -> None:
        """Check the levels of transactions ratified in an epoch, and the instants read in it."""
        instants: dict[str, int] = {}
        versions: dict[str, dict[str, int]] = {}
        for (name, version), (sequence, transaction) in epoch.commits.items():
            key = transaction
            if instants.setdefault(key, sequence) != sequence:
                key = f"{transaction}@{sequence}"  # recovered from the logs, table by table
                instants[key] = sequence
            versions.setdefault(key, {})[name] = version
        rows = {name: log.rows for name, log in self._logs.items()}
        committed = CommittedState(instants, versions, rows)
        audit = Audit(ratified, committed, self._initial_versions, is_lake=True)
        for record in records:
            if record.epoch_index == index:
                audit.check_instant(record)
                self.counts["instants judged"] += 1
        for record in ratified:
            if record.id not in instants:
                continue
            if all(
                table_version in epoch.commits
                and self._is_by(table_version, epoch.commits[table_version][1])
                for table_version in self._compared_versions(audit, record)
            ):
                audit.check_level(record)
                self.counts["levels judged"] += 1
            else:
                self.counts["levels not judged"] += 1

    def _compared_versions(self, audit: Audit, record: Record) -> Iterator[TableVersion]:
        """Yield the versions from which the check of a transaction's level is computed."""
        for name in self._logs:
            yield name, audit.version_before(record, name)
        for name, version in record.read_versions.items():
            if name:
                yield name, version


def _versions_by_transaction(logs: Mapping[str, LogHistory]) -> dict[str, dict[str, int]]:
    """Return by transaction the version that it made of each table.

    Raises Violation for a transaction that made two versions of one table.
    """
    versions: dict[str, dict[str, int]] = {}
    for name, log in logs.items():
        for version, transaction in log.transactions.items():
            if version in log.foreign:
                continue
            if name in versions.setdefault(transaction, {}):
                raise Violation(f"{name}: transaction {transaction} was committed twice")
            versions[transaction][name] = version
    return versions
