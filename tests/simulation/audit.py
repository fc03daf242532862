"""The audit of a run: what transactions reported and read, compared with the committed state.

Owns the promises that hold for every program: no commit is lost or doubled, transactions are
atomic, each reads one snapshot, and each isolation level excludes its anomalies. Each transaction
is evaluated again, by the arithmetic of `statements`, on the rows that it read and on those before
its place in the order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from tests.simulation.records import (
    UNREPORTED,
    CommittedState,
    Record,
    ReportedOutcome,
    Violation,
    apply_steps,
)
from tests.simulation.statements import Insert, InsertSelect, Row, Rows, Select, State, Statement
from txlake.conflict.levels import Level


class Audit:
    """Check one run's records against its committed state."""

    def __init__(
        self,
        records: Sequence[Record],
        committed: CommittedState,
        initial_versions: Mapping[str, int],
        *,
        is_lake: bool,
        may_be_lost: Set[str] = frozenset(),
        unrecorded: Set[tuple[str, int]] = frozenset(),
        may_read_stale: Set[str] = frozenset(),
        appends_begin_unseen: bool = False,
    ) -> None:
        """Prepare the audit.

        Args:
            initial_versions: by table, the version after which the records describe every change.
            is_lake: the tables have a catalog, whose instants order the transactions.
            may_be_lost: transactions that may be lost, in whole or on some of their tables.
            unrecorded: versions of tables whose changes the records don't describe.
            may_read_stale: transactions that may have read versions older than their begin.
            appends_begin_unseen: an autocommitted INSERT of VALUES begins with what its process
                knows of the catalog.
        """
        self._records = records
        self._committed_state = committed
        self._initial_versions = initial_versions
        self._is_lake = is_lake
        self._may_be_lost = may_be_lost
        self._unrecorded = unrecorded
        self._may_read_stale = may_read_stale
        if appends_begin_unseen:
            self._may_read_stale |= {record.id for record in records if _is_append(record)}
        self._committed = sorted(
            (one for one in records if one.id in committed.instants),
            key=lambda one: committed.instants[one.id],
        )
        self._by_version: dict[tuple[str, int], Record] = {
            (table, version): one
            for one in self._committed
            for table, version in committed.versions[one.id].items()
        }

    def check(self, *, requires_fresh_reads: bool = True) -> None:
        """Check all promises. Raises Violation for the first broken one.

        `requires_fresh_reads`: a transaction has to see every commit reported before its begin.
        """
        self.check_rows(requires_fresh_reads=requires_fresh_reads)
        for record in self._committed:
            self.check_level(record)

    def check_rows(self, *, requires_fresh_reads: bool) -> None:
        """Check all promises but the isolation levels. Raises Violation."""
        for record in self._records:
            self._check_outcome(record)
            self._check_reads(record)
            if requires_fresh_reads and record.id not in self._may_read_stale:
                self._check_freshness(record)
        self._check_versions()

    def _check_outcome(self, record: Record) -> None:
        is_committed = record.id in self._committed_state.instants
        if record.outcome is ReportedOutcome.COMMITTED:
            if (
                not is_committed
                and record.id not in self._may_be_lost
                and self._has_changed(record)
            ):
                raise Violation(
                    f"{_label(record)} was told it is committed, and it isn't: it is lost"
                )
        elif is_committed and record.outcome not in UNREPORTED:
            raise Violation(
                f"{_label(record)} was told {record.outcome.value}, and it is committed"
            )

    def _base(self, record: Record) -> State:
        """Return the rows that a transaction read, by table."""
        state = {}
        for table, rows in self._committed_state.rows.items():
            version = record.read_versions.get(table, max(rows))
            if version not in rows:
                raise Violation(
                    f"{_label(record)} read {table} at version {version}: it isn't there"
                )
            state[table] = rows[version]
        return state

    def _has_changed(self, record: Record) -> bool:
        base = self._base(record)
        return apply_steps(record.steps, base)[0] != base

    def _check_reads(self, record: Record) -> None:
        """Check that all results are of one snapshot with the transaction's own changes."""
        if self._is_lake and "" in record.read_versions:
            self.check_instant(record)
        for step, result in apply_steps(record.steps, self._base(record))[1]:
            if isinstance(step.statement, Select) and step.result != result:
                raise Violation(
                    f"{_label(record)}: {step.statement} answered {step.result}, and its snapshot "
                    f"{record.read_versions} has {result}"
                )

    def check_instant(self, record: Record) -> None:
        """Check that all versions that a transaction read are those of its one instant."""
        for table, version in record.read_versions.items():
            if table and version != self._version_at(table, record.read_versions[""]):
                raise Violation(
                    f"{_label(record)} reads instant {record.read_versions['']}, and {table} at "
                    f"version {version}, which isn't its version at that instant"
                )

    def version_before(self, record: Record, table: str) -> int:
        """Return a table's version just before a lake's transaction; -1 if the table was empty."""
        own = self._committed_state.versions[record.id]
        if table in own:
            return own[table] - 1
        return self._version_at(table, self._committed_state.instants[record.id])

    def _version_at(self, table: str, instant: int) -> int:
        versions = (
            made[table]
            for transaction, made in self._committed_state.versions.items()
            if table in made and self._committed_state.instants[transaction] <= instant
        )
        return max(versions, default=-1)

    def _check_freshness(self, record: Record) -> None:
        """Check that a transaction read every commit that was reported before it began."""
        for other in self._committed:
            is_reported = (
                other.outcome is ReportedOutcome.COMMITTED and other.id not in self._may_be_lost
            )
            if is_reported and other.end_turn < record.begin_turn:
                for table, version in self._committed_state.versions[other.id].items():
                    if record.read_versions.get(table, version) < version:
                        raise Violation(
                            f"{_label(record)} began after {_label(other)} was committed, and read "
                            f"{table} at {record.read_versions[table]}, before its version "
                            f"{version}"
                        )

    def _check_versions(self) -> None:
        """Check that each version is the previous one with only the changes of its transaction."""
        for table, rows in self._committed_state.rows.items():
            for version in range(self._initial_versions[table] + 1, max(rows) + 1):
                if (table, version) in self._unrecorded:
                    continue
                record = self._by_version.get((table, version))
                before, after = Counter(rows[version - 1]), Counter(rows[version])
                expected = before
                if record is not None:
                    base = self._base(record)
                    changed = apply_steps(record.steps, base)[0][table]
                    deleted, added = _difference(base[table], changed)
                    if deleted - before:
                        raise Violation(
                            f"{_label(record)} deleted {list(deleted - before)} from {table} at "
                            f"version {version}: another transaction had deleted that before"
                        )
                    expected = before - deleted + added
                if after != expected:
                    raise Violation(
                        f"{table} version {version} by {record and _label(record)}: lost "
                        f"{sorted((expected - after).elements())}, appeared "
                        f"{sorted((after - expected).elements())}"
                    )
        for record in self._committed:
            if record.id in self._may_be_lost:
                continue
            base = self._base(record)
            changes = apply_steps(record.steps, base)[0]
            for table in base:
                made = self._committed_state.versions[record.id]
                if changes[table] != base[table] and table not in made:
                    raise Violation(f"{_label(record)} changed {table}, and that part is lost")

    def check_level(self, record: Record) -> None:
        """Check that a transaction would have done the same at its place in the serial order.

        At SERIALIZABLE, its reads are compared too. At WRITE SERIALIZABLE, blind appends may move
        after it.
        At SNAPSHOT, nothing is checked.
        """
        if record.level is Level.SNAPSHOT:
            return
        before = self._before(record)
        if record.level is Level.WRITE_SERIALIZABLE:
            before = self._without_blind_appends(record, before)
        base = self._base(record)
        serial, results = apply_steps(record.steps, before)
        actual = apply_steps(record.steps, base)[0]
        for table in base:
            if _difference(before[table], serial[table]) != _difference(base[table], actual[table]):
                raise Violation(
                    f"{_label(record)} at {record.level.value}: at its place in the order it would "
                    f"have changed {table} from {before[table]} to {serial[table]}; it read "
                    f"{base[table]} and made {actual[table]}"
                )
        if record.level is Level.SERIALIZABLE:
            for step, result in results:
                if isinstance(step.statement, Select) and step.result != result:
                    raise Violation(
                        f"{_label(record)} at serializable: {step.statement} answered "
                        f"{step.result}, and would have answered {result} at its place in the order"
                    )

    def _before(self, record: Record) -> State:
        """Return the rows just before a transaction's instant."""
        instant, own = (
            self._committed_state.instants[record.id],
            self._committed_state.versions[record.id],
        )
        state = {}
        for table, rows in self._committed_state.rows.items():
            if table in own:
                state[table] = rows[own[table] - 1]
            elif self._is_lake:
                state[table] = rows[self._version_at(table, instant)]
            else:
                state[table] = self._base(record)[table]
        return state

    def _without_blind_appends(self, record: Record, state: State) -> State:
        """Return the rows without those that blind appends added after the transaction's read."""
        instant = self._committed_state.instants[record.id]
        written = self._committed_state.versions[record.id].keys()
        without = {table: Counter(rows) for table, rows in state.items()}
        for other in self._before_it(record):
            if self._committed_state.instants[other.id] >= instant:
                continue
            for table, version in self._committed_state.versions[other.id].items():
                if (
                    version > record.read_versions.get(table, version)
                    and _is_blind_append(other, table)
                    and not (_tables_read(other) & written - {table})
                ):
                    without[table] -= Counter(self._inserted(other, table))
        return {table: tuple(sorted(rows.elements())) for table, rows in without.items()}

    def _before_it(self, record: Record) -> Sequence[Record]:
        """Return transactions that may come before a transaction in the order; later ones may be
        among them.
        """
        return self._committed

    def _inserted(self, record: Record, table: str) -> Rows:
        """Return the rows that a transaction which doesn't read a table added to it."""
        empty = {**self._base(record), table: ()}
        return apply_steps(record.steps, empty)[0][table]


def _difference(before: Rows, after: Rows) -> tuple[Counter[Row], Counter[Row]]:
    was, now = Counter(before), Counter(after)
    return was - now, now - was


def _is_blind_append(record: Record, table: str) -> bool:
    """Return whether a transaction only adds rows to a table and doesn't read it."""
    return table not in _tables_read(record) and all(
        isinstance(one, Insert | InsertSelect)
        for one in _statements(record)
        if _table(one) == table
    )


def _tables_read(record: Record) -> set[str | None]:
    return {
        one.source if isinstance(one, InsertSelect) else _table(one)
        for one in _statements(record)
        if not isinstance(one, Insert)
    }


def _statements(record: Record) -> Iterator[Statement]:
    return (step.statement for step in record.steps if step.statement is not None)


def _table(statement: Statement) -> str | None:
    """Return the table of a statement; None for a definition."""
    return getattr(statement, "table", None)


def _is_append(record: Record) -> bool:
    """Return whether a transaction is an autocommitted INSERT of VALUES, which reads no rows."""
    return record.is_autocommitted and all(
        isinstance(step.statement, Insert) for step in record.steps
    )


def _label(record: Record) -> str:
    return f"{record.client} ({record.id[:8]}, {record.level.value})"
