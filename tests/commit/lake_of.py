"""A lake in memory: catalog tables over a simulated ledger, and transactions over many of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from tests.commit.distant import LIMIT_S
from tests.commit.log_of import Clock, FakeStore, add, metadata
from tests.support.ledger import SimulatedLedger
from txlake.commit.catalog_managed import CatalogTable
from txlake.commit.commit_loop import CommittedTogether
from txlake.commit.lake_commit import Part, commit_together
from txlake.commit.membership import Membership, attach_actions
from txlake.commit.part_states import PartSummaries
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.levels import Level
from txlake.log.predicates import bind, parse_predicate
from txlake.ports import NameChange, NewTable, Store, System
from txlake.protocol.actions import Add, Metadata
from txlake.settings import Settings

BOTH = ("a", "b")

COUNTERS = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "k", "type": "string", "nullable": True, "metadata": {}},
            {"name": "n", "type": "long", "nullable": True, "metadata": {}},
        ],
    }
)


class LakeOf:
    """Tables by their names, which are their ids too; each in a store of its own."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        system: System | None = None,
        store: Callable[[str], Store] | None = None,
        ledger: SimulatedLedger | None = None,
    ) -> None:
        self.clock = Clock()
        self.system: System = system or self.clock
        self.settings = settings or Settings()
        self.ledger = ledger or SimulatedLedger(self.system.now_ms)
        self._make_store = store or (lambda name: FakeStore(self.clock, f"memory://{name}"))
        self.stores: dict[str, Store] = {}

    def store(self, name: str) -> Store:
        """The table's folder."""
        if name not in self.stores:
            self.stores[name] = self._make_store(name)
        return self.stores[name]

    def fake(self, name: str) -> FakeStore:
        """The table's folder, of a lake that isn't simulated."""
        found = self.store(name)
        assert isinstance(found, FakeStore)
        return found

    def open(self, name: str, *, store: Store | None = None) -> TableLog:
        """A fresh log that knows nothing yet, of this or another store."""
        return TableLog(
            store or self.store(name),
            self.system,
            self.settings,
            name=name,
            catalog_table=CatalogTable(self.ledger, name),
        )

    def plain(self, name: str) -> TableLog:
        """The table as a reader sees it that knows no catalog."""
        return TableLog(self.store(name), self.system, self.settings, name=name)

    def create(
        self,
        *names: str,
        configuration: Mapping[str, str] | None = None,
        files: Mapping[str, Sequence[Add]] | None = None,
        opens: bool = False,
    ) -> LakeOf:
        """Tables of columns id and p; of counters (k and n) where `files` says what is in them.

        `opens`: other engines write them too.
        """
        tx = LakeTransaction(self)
        for name in (*names, *(files or ())):
            settings = metadata(dict(configuration or {})) if name in names else counters()
            table = tx.create(name, replace(settings, id=name), opens=opens)
            if files and name in files:
                table.stage(files[name], operation="WRITE")
        tx.commit()
        return self

    def begin(
        self, level: Level | None = None, logs: Mapping[str, TableLog] | None = None
    ) -> LakeTransaction:
        """A transaction; `logs` are those of its process."""
        return LakeTransaction(self, level, logs)

    def append(self, name: str, *files: Add) -> CommittedTogether:
        """A blind append of another."""
        tx = self.begin()
        tx.table(name).stage(files, operation="WRITE")
        return tx.commit()


class LakeTransaction:
    """What a session does: pins an instant, opens tables as of it, commits all of them."""

    def __init__(
        self,
        lake: LakeOf,
        level: Level | None = None,
        logs: Mapping[str, TableLog] | None = None,
    ) -> None:
        self.id = lake.system.new_id()
        self.names: list[NameChange] = []
        self.sequence: int | None = None
        self.tables: dict[str, TableTransaction] = {}
        self._lake = lake
        self._level = level
        self._logs = logs or {}

    def table(self, name: str) -> TableTransaction:
        """The part on a table, as of the transaction's instant."""
        if self.sequence is None:
            self.sequence = self._lake.ledger.sequence()
        if name not in self.tables:
            log = self._logs.get(name) or self._lake.open(name)
            base = log.at_sequence(self.sequence)
            self.tables[name] = TableTransaction(log, base, self._level)
        return self.tables[name]

    def create(self, name: str, settings: Metadata, *, opens: bool = False) -> TableTransaction:
        """A new table of this name."""
        log = self._lake.open(name)
        table = TableTransaction(log, log.latest_or_none(), self._level)
        belonging = Membership(lake="lake", table=name, name=f"db.{name}")
        made = attach_actions(belonging, table.base, settings, opens=opens)
        # What opens a table sets its metadata anew.
        actions = made if opens else (settings, *made)
        table.stage(actions, operation="CREATE TABLE")
        location = log.store.url
        self.names.append(
            NewTable(id=name, database="db", name=name, location=location, managed=True)
        )
        self.tables[name] = table
        return table

    def read(self, name: str, where: str, *, plain: bool = False) -> None:
        """Note a condition as read."""
        table = self.table(name)
        predicate = bind(parse_predicate(where), table.base.schema)
        if plain:
            table.plain_read(predicate, where)
        else:
            table.read(predicate, where)

    def commit(self) -> CommittedTogether:
        """All of it or nothing, with what follows the answer."""
        try:
            return self.commit_only()
        finally:
            for table in self.tables.values():
                table.log.following.wait(LIMIT_S)

    def commit_only(self) -> CommittedTogether:
        """All of it or nothing; what follows the answer may be under way."""
        beside = PartSummaries(table.part_summary for table in self.tables.values())
        parts: Sequence[Part] = [
            Part(
                table.log,
                table.proposal(
                    txn_id=self.id,
                    parts=beside,
                    changes_names=bool(self.names),
                    drops_names=any(not isinstance(one, NewTable) for one in self.names),
                ),
            )
            for table in self.tables.values()
        ]
        try:
            return commit_together(
                self._lake.ledger,
                parts,
                transaction_id=self.id,
                names=self.names,
                system=self._lake.system,
                settings=self._lake.settings,
            )
        finally:  # by its session, or when its lease is over
            self._lake.ledger.end(self.id)


def counters() -> Metadata:
    """The metadata of a table of counters: a file a value, in partition `k`."""
    return Metadata(id="t", schema_string=COUNTERS, partition_columns=("k",))


def counter(key: str, value: int, name: str) -> Add:
    """A file with one counter."""
    bounds = {"n": value}
    return Add(
        path=f"k={key}/{name}",
        partition_values={"k": key},
        size=1,
        modification_time=1,
        data_change=True,
        stats=json.dumps(
            {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"n": 0}}
        ),
    )


def value_of(file: Add) -> int:
    """The counter that a file holds."""
    return int(json.loads(file.stats or "")["maxValues"]["n"])


def lake_of(*names: str, settings: Settings | None = None) -> LakeOf:
    """A lake with these tables, `a` and `b` when none is named."""
    return LakeOf(settings).create(*(names or BOTH))


def write_both(lake: LakeOf, suffix: str = "1") -> LakeTransaction:
    """A transaction that appends a file to each of both tables."""
    tx = lake.begin()
    for name in BOTH:
        tx.table(name).stage([add(f"{name}{suffix}")], operation="WRITE")
    return tx


def paths(lake: LakeOf, name: str) -> list[str]:
    """The data files of a table as txlake reads it now."""
    return sorted(file.path for file in lake.open(name).latest().files.adds())


def when(lake: LakeOf, moment: str, *steps: Callable[[], object]) -> None:
    """Something happens at the next requests of a kind, one step each."""
    left = list(steps)

    def hook(now: str) -> None:
        if now == moment and left:
            step = left.pop(0)
            lake.ledger.hook, kept = (lambda _: None), lake.ledger.hook
            try:
                step()
            finally:
                lake.ledger.hook = kept

    lake.ledger.hook = hook
