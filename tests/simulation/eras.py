"""Whether promises were kept in a run whose catalog was put back, lost or recovered.

The logs say what stands. Instants have an order within an era of the catalog alone, and so levels
are judged era by era. What a catalog alone knew when it went may be lost, and nothing else.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.simulation.audit import Audit
from tests.simulation.books import LogBook
from tests.simulation.chronicle import Chronicle, Era, Place
from tests.simulation.history import OPEN, Books, Doubt, Record, Told


class Eras:
    """A run's records held against its logs, and against what its catalogs said.

    Attributes:
        counts: how much was judged, and how much couldn't be.
    """

    def __init__(
        self,
        chronicle: Chronicle,
        records: Sequence[Record],
        logs: Mapping[str, LogBook],
        since: Mapping[str, int],
    ) -> None:
        self._chronicle = chronicle
        self._logs = logs
        self._since = since
        self._lost = chronicle.may_be_lost
        self._foreign = {(name, one) for name, log in logs.items() for one in log.foreign}
        self._stands = _standing(logs)
        self._ratified: dict[str, set[Place]] = {}
        for place, makers in chronicle.makers.items():
            for maker in makers:
                self._ratified.setdefault(maker, set()).add(place)
        self._records = records
        self._own = {record.id for record in records}
        self.counts: Counter[str] = Counter()

    def check(
        self, database: sqlite3.Connection, roots: Mapping[str, tuple[str, str]], *, is_fresh: bool
    ) -> None:
        """Raises Doubt for the first promise that was broken."""
        self._check_catalog(database, roots)
        for record in self._records:
            self._check_whole(record)
        read_lost = {id(record) for record in self._records if self._read_lost(record)}
        clean = [record for record in self._records if id(record) not in read_lost]
        self.counts.update({"judged": len(clean), "read what was lost": len(read_lost)})
        opaque = {
            (name, version)
            for record in self._records
            if id(record) in read_lost
            for name, version in self._stands.get(record.id, {}).items()
        }
        rows = {name: log.rows for name, log in self._logs.items()}
        order = {transaction: place for place, transaction in enumerate(self._stands)}
        books = Books(order, self._stands, rows)
        audit = Audit(
            clean,
            books,
            self._since,
            is_lake=False,
            torn=self._lost,
            opaque=opaque | self._foreign,
            # A copy that was put back before a statement, and exchanged for the catalog during it,
            # is noticed at the end alone: what it read then comes to nothing.
            excused={one.id for one in clean if one.told in (Told.UNAVAILABLE, Told.REFUSED)},
        )
        audit.check_rows(is_fresh=is_fresh)
        for number, era in enumerate(self._chronicle.eras):
            self._check_era(era, [one for one in clean if one.id in era.new], clean, number)

    def _check_catalog(
        self, database: sqlite3.Connection, roots: Mapping[str, tuple[str, str]]
    ) -> None:
        """The catalog has the tables, and says of each what its log says."""
        names = {table_id: name for name, (table_id, _) in roots.items()}
        query = "SELECT id, head, published FROM txlake_tables WHERE dropped_sequence IS NULL"
        found = {names[row[0]]: row[1:] for row in database.execute(query) if row[0] in names}
        for name, log in self._logs.items():
            newest = max(log.rows)
            if found.get(name) != (newest, newest):
                raise Doubt(
                    f"{name}: the catalog has it at {found.get(name)}, and the log ends at {newest}"
                )
        for place, (_, transaction) in self._chronicle.eras[-1].commits.items():
            if not self._is_of(place, transaction):
                raise Doubt(f"{place} isn't what was ratified")

    def _is_of(self, place: Place, transaction: str | None) -> bool:
        name, version = place
        if place in self._foreign:
            return transaction not in self._own
        return self._logs[name].transactions.get(version) == transaction

    def _check_whole(self, record: Record) -> None:
        """All of its commits stand or none, and as it was told, unless it may be lost."""
        ratified = self._ratified.get(record.id, set())
        stands = {place for place in ratified if self._is_of(place, record.id)}
        others = self._stands.get(record.id, {}).items() - ratified
        if others:
            raise Doubt(f"{record.client}: {others} stand, and nobody ratified them")
        if record.told is not Told.COMMITTED and record.told not in OPEN and stands:
            raise Doubt(f"{record.client} was told {record.told.value}, and {stands} stand")
        if record.id in self._lost:
            self.counts["may be lost"] += 1
            self.counts["lost"] += stands != ratified
            return
        if stands and stands != ratified:
            raise Doubt(f"{record.client}: of {ratified} stand {stands} alone")
        if ratified and not stands and record.told is Told.COMMITTED:
            raise Doubt(f"{record.client} was told it is committed, and {ratified} are lost")

    def _read_lost(self, record: Record) -> bool:
        """Whether it read a version that went with a catalog."""
        found = False
        for name, version in record.pins.items():
            if not name:
                continue
            maker = record.makers.get(name)
            known = {maker} if maker is not None else self._chronicle.makers[name, version]
            stand = {one for one in known if self._is_of((name, version), one)}
            if stand == known:
                continue
            if not (known - stand) & self._lost:
                raise Doubt(f"{record.client} read {name} at version {version} by {known}: gone")
            found = True
        return found

    def _check_era(
        self, era: Era, made: Sequence[Record], records: Sequence[Record], number: int
    ) -> None:
        """The levels of what was committed in it, and the instants that were read in it."""
        instants: dict[str, int] = {}
        versions: dict[str, dict[str, int]] = {}
        for (name, version), (sequence, transaction) in era.commits.items():
            key = transaction
            if instants.setdefault(key, sequence) != sequence:
                key = f"{transaction}@{sequence}"  # taken in from the logs, table by table
                instants[key] = sequence
            versions.setdefault(key, {})[name] = version
        books = Books(instants, versions, {name: log.rows for name, log in self._logs.items()})
        audit = Audit(made, books, self._since, is_lake=True)
        for record in records:
            if record.era == number:
                audit.check_instant(record)
                self.counts["instants judged"] += 1
        for record in made:
            if record.id not in instants:
                continue
            places = self._before(audit, era, record)
            if all(
                place in era.commits and self._is_of(place, era.commits[place][1])
                for place in places
            ):
                audit.check_level(record)
                self.counts["levels judged"] += 1
            else:
                self.counts["levels not judged"] += 1

    def _before(self, audit: Audit, era: Era, record: Record) -> Iterator[Place]:
        """The versions by which a transaction's level is judged."""
        for name in self._logs:
            yield name, audit.version_before(record, name)
        for name, version in record.pins.items():
            if name:
                yield name, version


def _standing(logs: Mapping[str, LogBook]) -> dict[str, dict[str, int]]:
    """By transaction, the versions that are its own."""
    found: dict[str, dict[str, int]] = {}
    for name, log in logs.items():
        for version, transaction in log.transactions.items():
            if version in log.foreign:
                continue
            if name in found.setdefault(transaction, {}):
                raise Doubt(f"{name}: transaction {transaction} was committed twice")
            found[transaction][name] = version
    return found
