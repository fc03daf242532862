"""Whether what transactions were told and what they read is what the books say, level by level.

Owns the promises that hold for every program: nothing lost, nothing doubled, all or nothing, reads
of one snapshot, and for each level what it promises. Each transaction is run again, on the rows
that it read and on those before its place in the order, by `statements`' own arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from tests.simulation.history import OPEN, Books, Doubt, Record, Told, replayed
from tests.simulation.statements import Copy, Insert, Row, Rows, Select, State, Statement
from txlake.conflict.levels import Level


class Audit:
    """One run's records held against its books, from certain versions of the tables on.

    `torn`: transactions that may be lost, in whole or on some of their tables; `opaque`: versions
    of tables, about which the records don't tell.
    """

    def __init__(
        self,
        records: Sequence[Record],
        books: Books,
        since: Mapping[str, int],
        *,
        is_lake: bool,
        torn: Set[str] = frozenset(),
        opaque: Set[tuple[str, int]] = frozenset(),
        excused: Set[str] = frozenset(),
    ) -> None:
        """`excused`: transactions that may have read what was older than they are."""
        self._records = records
        self._books = books
        self._since = since
        self._is_lake = is_lake
        self._torn = torn
        self._opaque = opaque
        self._excused = excused
        self._committed = sorted(
            (one for one in records if one.id in books.instants),
            key=lambda one: books.instants[one.id],
        )
        self._by_version: dict[tuple[str, int], Record] = {
            (table, version): one
            for one in self._committed
            for table, version in books.versions[one.id].items()
        }

    def check(self, *, is_fresh: bool = True) -> None:
        """Raises Doubt for the first promise that was broken.

        `is_fresh`: whether who begins after a commit was told has to see it.
        """
        self.check_rows(is_fresh=is_fresh)
        for record in self._committed:
            self.check_level(record)

    def check_rows(self, *, is_fresh: bool) -> None:
        """As `check`, of all but the levels."""
        for record in self._records:
            self._check_told(record)
            self._check_reads(record)
            if is_fresh and record.id not in self._excused:
                self._check_fresh(record)
        self._check_versions()

    def _check_told(self, record: Record) -> None:
        stands = record.id in self._books.instants
        if record.told is Told.COMMITTED:
            if not stands and record.id not in self._torn and self._changes(record):
                raise Doubt(f"{_who(record)} was told it is committed, and it isn't: it is lost")
        elif stands and record.told not in OPEN:
            raise Doubt(f"{_who(record)} was told {record.told.value}, and it is committed")

    def _base(self, record: Record) -> State:
        """The rows that a transaction read, table by table."""
        state = {}
        for table, rows in self._books.rows.items():
            version = record.pins.get(table, max(rows))
            if version not in rows:
                raise Doubt(f"{_who(record)} read {table} at version {version}: it isn't there")
            state[table] = rows[version]
        return state

    def _changes(self, record: Record) -> bool:
        base = self._base(record)
        return replayed(record.steps, base)[0] != base

    def _check_reads(self, record: Record) -> None:
        """All answers are of the one snapshot, with the transaction's own changes."""
        if self._is_lake and "" in record.pins:
            self.check_instant(record)
        for step, answer in replayed(record.steps, self._base(record))[1]:
            if isinstance(step.statement, Select) and step.answer != answer:
                raise Doubt(
                    f"{_who(record)}: {step.statement} answered {step.answer}, and its snapshot "
                    f"{record.pins} has {answer}"
                )

    def check_instant(self, record: Record) -> None:
        """All of what it read was so at its one instant."""
        for table, version in record.pins.items():
            if table and version != self._version_at(table, record.pins[""]):
                raise Doubt(
                    f"{_who(record)} reads instant {record.pins['']}, and {table} at version "
                    f"{version}, which isn't what it was then"
                )

    def version_before(self, record: Record, table: str) -> int:
        """At which version a table was just before a transaction of the lake; -1 for none."""
        own = self._books.versions[record.id]
        if table in own:
            return own[table] - 1
        return self._version_at(table, self._books.instants[record.id])

    def _version_at(self, table: str, instant: int) -> int:
        versions = (
            made[table]
            for transaction, made in self._books.versions.items()
            if table in made and self._books.instants[transaction] <= instant
        )
        return max(versions, default=-1)

    def _check_fresh(self, record: Record) -> None:
        """What was told as committed before it began is what it reads."""
        for other in self._committed:
            is_told = other.told is Told.COMMITTED and other.id not in self._torn
            if is_told and other.ended < record.begun:
                for table, version in self._books.versions[other.id].items():
                    if record.pins.get(table, version) < version:
                        raise Doubt(
                            f"{_who(record)} began after {_who(other)} was committed, and read "
                            f"{table} at {record.pins[table]}, before its version {version}"
                        )

    def _check_versions(self) -> None:
        """Each version is the one before with what its transaction changed, and no other change."""
        for table, rows in self._books.rows.items():
            for version in range(self._since[table] + 1, max(rows) + 1):
                if (table, version) in self._opaque:
                    continue
                record = self._by_version.get((table, version))
                before, after = Counter(rows[version - 1]), Counter(rows[version])
                expected = before
                if record is not None:
                    base = self._base(record)
                    changed = replayed(record.steps, base)[0][table]
                    taken, given = _difference(base[table], changed)
                    if taken - before:
                        raise Doubt(
                            f"{_who(record)} took {list(taken - before)} from {table} at version "
                            f"{version}: another had taken that before"
                        )
                    expected = before - taken + given
                if after != expected:
                    raise Doubt(
                        f"{table} version {version} by {record and _who(record)}: lost "
                        f"{sorted((expected - after).elements())}, appeared "
                        f"{sorted((after - expected).elements())}"
                    )
        for record in self._committed:
            if record.id in self._torn:
                continue
            base = self._base(record)
            changes = replayed(record.steps, base)[0]
            for table in base:
                made = self._books.versions[record.id]
                if changes[table] != base[table] and table not in made:
                    raise Doubt(f"{_who(record)} changed {table}, and that part is lost")

    def check_level(self, record: Record) -> None:
        """The transaction would have done the same at its place in the order."""
        if record.level is Level.SNAPSHOT:
            return
        before = self._before(record)
        if record.level is Level.WRITE_SERIALIZABLE:
            before = self._without_blind(record, before)
        base = self._base(record)
        there, answers = replayed(record.steps, before)
        here = replayed(record.steps, base)[0]
        for table in base:
            if _difference(before[table], there[table]) != _difference(base[table], here[table]):
                raise Doubt(
                    f"{_who(record)} at {record.level.value}: at its place in the order it would "
                    f"have changed {table} from {before[table]} to {there[table]}; it read "
                    f"{base[table]} and made {here[table]}"
                )
        if record.level is Level.SERIALIZABLE:
            for step, answer in answers:
                if isinstance(step.statement, Select) and step.answer != answer:
                    raise Doubt(
                        f"{_who(record)} at serializable: {step.statement} answered {step.answer}, "
                        f"and would have answered {answer} at its place in the order"
                    )

    def _before(self, record: Record) -> State:
        """The rows just before a transaction's instant."""
        instant, own = self._books.instants[record.id], self._books.versions[record.id]
        state = {}
        for table, rows in self._books.rows.items():
            if table in own:
                state[table] = rows[own[table] - 1]
            elif self._is_lake:
                state[table] = rows[self._version_at(table, instant)]
            else:
                state[table] = self._base(record)[table]
        return state

    def _without_blind(self, record: Record, state: State) -> State:
        """Without the rows that others only added since it read: they may come after it."""
        instant = self._books.instants[record.id]
        written = self._books.versions[record.id].keys()
        without = {table: Counter(rows) for table, rows in state.items()}
        for other in self._committed:
            if self._books.instants[other.id] >= instant:
                continue
            for table, version in self._books.versions[other.id].items():
                if (
                    version > record.pins.get(table, version)
                    and _is_blind(other, table)
                    and not (_tables_read(other) & written - {table})
                ):
                    without[table] -= Counter(self._inserted(other, table))
        return {table: tuple(sorted(rows.elements())) for table, rows in without.items()}

    def _inserted(self, record: Record, table: str) -> Rows:
        """What a transaction that is blind to a table added to it."""
        empty = {**self._base(record), table: ()}
        return replayed(record.steps, empty)[0][table]


def _difference(before: Rows, after: Rows) -> tuple[Counter[Row], Counter[Row]]:
    was, now = Counter(before), Counter(after)
    return was - now, now - was


def _is_blind(record: Record, table: str) -> bool:
    """Whether all that it did with the table is to add rows to it."""
    return table not in _tables_read(record) and all(
        isinstance(one, Insert | Copy) for one in _statements(record) if _table(one) == table
    )


def _tables_read(record: Record) -> set[str | None]:
    return {
        one.source if isinstance(one, Copy) else _table(one)
        for one in _statements(record)
        if not isinstance(one, Insert)
    }


def _statements(record: Record) -> Iterator[Statement]:
    return (step.statement for step in record.steps if step.statement is not None)


def _table(statement: Statement) -> str | None:
    """None for a definition."""
    return getattr(statement, "table", None)


def _who(record: Record) -> str:
    return f"{record.client} ({record.id[:8]}, {record.level.value})"
