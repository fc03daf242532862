"""A run: the world of a case is set up, its clients have their way, and what they did is judged.

Owns the processes: which there are, what a death takes, and who comes in its place.
"""

from __future__ import annotations

import gc
import hashlib
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

from tests.simulation import definitions
from tests.simulation.audit import Audit
from tests.simulation.books import instants_of, lake_books, logs_of, path_books
from tests.simulation.case import OF_LAKES, Case, Shape, shape_of
from tests.simulation.clients import Client
from tests.simulation.coverage import cells
from tests.simulation.database import disk
from tests.simulation.disasters import Disasters
from tests.simulation.eras import Eras
from tests.simulation.feeds import FEED, bring_back, check_feed
from tests.simulation.history import Books, Doubt, Record, Told
from tests.simulation.luck import Luck, Misfortune, Struck
from tests.simulation.process import WAREHOUSE, Process, patiently
from tests.simulation.programs import Plan
from tests.simulation.rows import RowSession
from tests.simulation.scheduler import Scheduler, Task
from tests.simulation.statements import COLUMNS, IDENTITY, Insert, Select, State
from tests.simulation.stores import ROOT, Storage, is_commit
from tests.simulation.streams import Query
from tests.simulation.threads import simulated_threads
from txlake.catalog import Catalog
from txlake.session.membership.attachment import attach
from txlake.session.membership.recovery import recover
from txlake.settings import Settings
from txlake.sql.statements import TableName

_COMMIT = re.compile(r"\d{20}\.json")
_REBOOT_MS = 3_000
_SETTLED_MS = 600_000
_HOUR_MS = 3_600_000
_SILENCING = {
    Misfortune.STALL,
    Misfortune.SLOW,
    Misfortune.DATABASE_AWAY,
    Misfortune.REPLY_LOST,
    Misfortune.REPLY_UNANSWERED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that kept all promises.

    Attributes:
        counts: of what happened, by name.
        records: what the clients saw.
        events: the trace as it was noted.
    """

    kind: str
    counts: Mapping[str, int]
    records: tuple[Record, ...]
    events: tuple[tuple[object, ...], ...]

    @property
    def digest(self) -> str:
        """Of the trace: equal runs have equal ones."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    @property
    def trace(self) -> tuple[str, ...]:
        """A line each request and event."""
        return _lines(self.events)


@dataclass(frozen=True, slots=True)
class _Made:
    """A world before its clients: what is stored, and what is counted."""

    catalog: bytes
    storage: Storage
    tables: dict[str, tuple[str, str]]
    since: dict[str, int]
    ids: int
    now_ms: float


_made: dict[object, _Made] = {}


class Failure(AssertionError):
    """A run that broke a promise, with what had gone wrong, and its trace."""

    def __init__(
        self, case: Case, error: BaseException, struck: Sequence[Struck], trace: Sequence[str]
    ) -> None:
        super().__init__(f"{case}: {type(error).__name__}: {error}")
        self.case = case
        self.error = error
        self.struck = tuple(struck)
        self.trace = tuple(trace)


class Watch(Protocol):
    """Somebody who looks on. What happens doesn't depend on it."""

    def begun(self, world: World) -> None:
        """The tables are there, and the clients come next."""
        ...

    def noted(self, task: Task | None, what: tuple[object, ...]) -> None:
        """A line was added to the trace, by the task that has the turn."""
        ...


class World:
    """Everything that is outside of the processes, and the processes."""

    def __init__(self, case: Case, watch: Watch | None = None) -> None:
        self.case = case
        self.shape: Shape = shape_of(case)
        self.plan: Plan = self.shape.plan
        self.settings = Settings()
        self.scheduler = Scheduler(random.Random("schedule"))
        self.luck = Luck(
            case.seed,
            set(self.shape.possible),
            without_kinds=case.without_kinds,
            without_numbers=case.without_numbers,
            faults=case.faults,
        )
        self._watch = watch
        self._watching: Watch | None = None  # once the clients begin
        self.storage = Storage(is_disk=False)
        self.records: list[Record] = []
        self._taken: list[tuple[int, str, int]] = []  # when, of which table, from which version on
        self.disasters: Disasters | None = None
        into = self.plan.streams_into
        self.query = Query(into) if into else None
        self.processes: list[Process] = []
        self.crashes = 0
        self.step_ms = 0  # by how much the clocks were set
        self.steps_ahead = 0
        self.open_transactions = 0
        self.tables: dict[str, tuple[str, str]] = {}  # by name: the catalog's id, the key
        self._since: dict[str, int] = {}  # the version of each table that the clients find
        self._trace: list[tuple[object, ...]] = []
        self._ids = 0
        self._clients: dict[int, Client] = {}
        self._audited: Counter[str] = Counter()

    # What processes ask for

    def new_id(self) -> str:
        """A UUID that no one else has."""
        self._ids += 1
        return f"{self._ids:08x}-0000-4000-8000-000000000000"

    @property
    def time_of_day_ms(self) -> int:
        """What the clock says that everybody goes by: not how long it has been."""
        return int(self.scheduler.now_ms) + self.step_ms

    @property
    def has_been_silent(self) -> bool:
        """Whether somebody who lives may have been too late to renew a lease.

        A server's clock that is set ahead once more takes the last lease too.
        """
        if self.plan.kind == "ages" or (self.shape.is_server and self.steps_ahead > 1):
            return True
        return any(one.kind in _SILENCING for one in self.luck.struck)

    def set_clock(self, hours: float) -> None:
        """Moves the clock that everybody goes by."""
        self.step_ms += round(hours * _HOUR_MS)
        self.steps_ahead += hours > 0
        self.note("clock", self.step_ms)

    def note(self, *what: object) -> None:
        """Adds a line to the trace."""
        self._trace.append((self.scheduler.now_ms, *what))
        task = self.scheduler.current
        if task is not None:
            task.step = len(self._trace)
        if self._watching is not None:
            self._watching.noted(task, what)

    @property
    def step(self) -> int:
        """The newest line of the trace by the task that has the turn; 0 before there is one."""
        task = self.scheduler.current
        return 0 if task is None else task.step

    def kill(self, process: Process) -> None:
        """The process is gone; another comes, for what its clients have left to do."""
        process.is_dead = True
        self.crashes += 1
        clients = [client for client in self._clients.values() if client.process is process]
        self.scheduler.kill(process)
        if any(not client.is_done for client in clients):
            self._start([client for client in clients if not client.is_done], self.luck.random())
        if self.disasters is not None:
            self.disasters.died(process)

    def kill_all(self) -> None:
        """All processes die."""
        living = [process for process in self.processes if not process.is_dead]
        for process in living:
            process.is_dead = True
        for process in living:
            self.kill(process)

    @property
    def is_torn(self) -> bool:
        """Whether a catalog was lost that knew commits which nothing else did."""
        return self.disasters is not None and bool(self.disasters.chronicle.may_be_lost)

    def lose_power(self) -> None:
        """All processes die, and what wasn't durable may be gone."""
        self.note("power loss")
        living = [process for process in self.processes if not process.is_dead]
        for process in living:
            process.is_dead = True
        if self.shape.has_catalog:
            disk().lose_power()
        there = set(self.storage.items)
        self.storage.lose_power(lambda: self.luck.random() < 0.5)
        if not self.shape.has_catalog:
            self._note_taken(there - self.storage.items.keys())
        for process in living:
            self.kill(process)

    def _note_taken(self, gone: Set[str]) -> None:
        """Commits of path tables that were seen already, and that the power took back."""
        for name, (_, root) in self.tables.items():
            logged = f"{root}/_delta_log/"
            names = [key.removeprefix(logged) for key in gone if key.startswith(logged)]
            versions = [int(key[:20]) for key in names if _COMMIT.fullmatch(key)]
            if versions:
                self._taken.append((self.scheduler.turns, name, min(versions)))

    def _saw_taken(self, record: Record) -> bool:
        """Whether it read, and did no more than read, what the power took back afterwards."""
        has_only_read = all(isinstance(step.statement, Select) for step in record.steps)
        if record.told is Told.COMMITTED and not has_only_read:
            return False
        return any(
            record.begun <= turn and record.pins.get(table, -1) >= version
            for turn, table, version in self._taken
        )

    # The run

    def run(self) -> Outcome:
        """Runs the case. Raises Failure."""
        was_enabled = gc.isenabled()
        gc.disable()  # what is collected when would be chance
        try:
            with simulated_threads(self.scheduler):
                self._run()
        except Exception as error:
            raise Failure(self.case, error, self.luck.struck, _lines(self._trace)) from error
        finally:
            if was_enabled:
                gc.enable()
        return self._outcome()

    def _run(self) -> None:
        self.luck.is_quiet = True
        self._set_up()
        self.luck.is_quiet = False
        if self._watch is not None:
            self._watching = self._watch
            self._watching.begun(self)
        if self.luck.heeded & OF_LAKES:
            self.disasters = Disasters(self, _empty_catalog)
        start = 0
        for place, count in enumerate(self.shape.sessions):
            of_it = range(start, start + count)
            start += count
            clients = [
                Client(self, f"c{number}", self.plan.clients[number], self.plan.level)
                for number in of_it
            ]
            self._clients.update(zip(of_it, clients))
            self._start(clients, place * self.luck.random() * 0.01)
        self.scheduler.run()
        self.luck.is_quiet = True
        self._settle()
        if self.plan.kind == definitions.KIND:
            self._judge_names()
            return
        if self.query is not None:
            self.alone_in(self._end_stream)
        if self.disasters is not None:
            self.disasters.settle()
        final = self._read_all()
        if self.disasters is not None and self.disasters.happened:
            self._judge_eras(self.disasters, final)
            return
        books = self._books()
        self._judge(books, final)
        if FEED in self.shape.properties:
            self._judge_feeds(books)
        if self.shape.is_recovered:
            self._recover(final)

    def _outcome(self) -> Outcome:
        counts = dict(self.luck.counts())
        for record in self.records:
            name = f"told {record.told.value}"
            counts[name] = counts.get(name, 0) + 1
        counts["deaths"] = self.crashes
        counts.update(self._audited)
        counts["turns"] = self.scheduler.turns
        commits = [data for key, data in self.storage.ever.items() if is_commit(key)]
        counts.update(cells(self.records, self.luck.struck, commits))
        gone = self.storage.ever.keys() - self.storage.items.keys()
        counts["log files cleaned"] = sum("/_delta_log/0" in key for key in gone)
        counts["data files vacuumed"] = sum("/part-" in key for key in gone)
        return Outcome(self.plan.kind, counts, tuple(self.records), tuple(self._trace))

    def _start(self, clients: list[Client], delay: float) -> None:
        """A process for these clients, after a while."""
        process = Process(self, len(self.processes))
        self.processes.append(process)
        for client in clients:
            client.process = process

        def boot() -> None:
            self.scheduler.sleep(delay * _REBOOT_MS)
            patiently(process.open)
            for client in clients:
                self.scheduler.start(
                    f"{process} {client.name}",
                    partial(client.run, process),
                    group=process,
                )

        self.scheduler.start(f"{process} boot", boot, group=process)

    def _alone(self, work: Callable[[RowSession], None]) -> None:
        """Something done in a session of the lake while nothing goes wrong."""

        def run(process: Process) -> None:
            process.open()
            session = process.session()
            work(session)
            session.close()

        self.alone_in(run)

    def alone_in(self, run: Callable[[Process], None]) -> None:
        """Something done by a process of its own while nothing goes wrong."""
        process = Process(self, len(self.processes))
        self.processes.append(process)
        self.scheduler.start(f"{process} alone", partial(run, process), group=process)
        self.scheduler.run()
        process.is_dead = True
        self.scheduler.kill(process)

    def names(self) -> dict[str, str]:
        """What the tables are called in SQL."""
        if self.shape.has_catalog:
            return {name: name for name in self.plan.initial}
        return {name: f"delta.`{ROOT}/{WAREHOUSE}/{name}`" for name in self.plan.initial}

    def _set_up(self) -> None:
        """The tables as they are made by a process of their own; once for all equal ones."""
        shape = self.shape
        initial = tuple(self.plan.initial.items())
        key = (shape.has_catalog, shape.has_identity, shape.properties, initial)
        found = _made.get(key)
        if found is None:
            if shape.has_catalog:
                disk().load(_empty_catalog("ffffffff-0000-4000-8000-00000000lake"))
            self._alone(self._make_tables)
            found = _Made(
                disk().content() if shape.has_catalog else b"",
                self.storage.copy(is_disk=False),
                self.tables,
                self._since,
                self._ids,
                self.scheduler.now_ms,
            )
            _made[key] = found
        self.settings = shape.settings
        self.storage = found.storage.copy(is_disk=shape.is_disk)
        self.storage.is_seen_late = Misfortune.LISTING_STALE in self.luck.kinds
        self.storage.is_cleaned = Misfortune.LOG_CLEANED in self.luck.kinds
        self.tables, self._since, self._ids = found.tables, found.since, found.ids
        if shape.has_catalog:
            disk().load(found.catalog)
        self._start_over(found.now_ms)

    def _start_over(self, now_ms: float) -> None:
        """From here on everything is the seed's, whoever made the tables."""
        self.scheduler.start_over(random.Random(f"schedule {self.case.seed}"), now_ms)
        self.processes.clear()
        self._trace.clear()

    def _make_tables(self, session: RowSession) -> None:
        names = self.names()
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self.shape.properties)
        columns = f"{COLUMNS}, {IDENTITY}" if self.shape.has_identity else COLUMNS
        for name, rows in self.plan.initial.items():
            session.rows(
                f"CREATE TABLE {names[name]} ({columns}) USING delta TBLPROPERTIES ({properties})"
            )
            if rows:
                session.rows(Insert(name, rows).sql(names))
            key = f"{WAREHOUSE}/{name}"
            table_id = ""
            if self.shape.has_catalog:
                entry = session.engine.catalog.find("default", name)
                assert entry is not None
                table_id, key = entry.id, entry.location[len(ROOT) + 1 :]
            self.tables[name] = (table_id, key)
            self._since[name] = 1 if rows else 0

    # The end

    def _settle(self) -> None:
        """What is on its way arrives, leases end, and somebody opens the lake."""
        for process in self.processes:
            if not process.is_dead:
                process.is_dead = True
                self.scheduler.kill(process)
        while self.storage.late:
            self.storage.late.pop(0)()
        self.storage.ghosts.clear()
        self.storage.is_seen_late = False
        self.scheduler.now_ms += _SETTLED_MS

    def _end_stream(self, process: Process) -> None:
        process.open()
        Client(self, "stream", (), self.plan.level).end_stream(process)

    def _read_all(self) -> State:
        """All rows as a new process reads them, after it wrote to each table once."""
        found: dict[str, tuple[tuple[int, int, str], ...]] = {}
        names = self.names()

        def read(session: RowSession) -> None:
            for name in self.plan.initial:
                rows = session.rows(f"SELECT k, v, tag FROM {names[name]}")
                found[name] = tuple(sorted((row["k"], row["v"], row["tag"]) for row in rows))  # type: ignore[misc]

        self._alone(read)
        return found

    def _books(self) -> Books:
        if not self.shape.has_catalog:
            return path_books(self.storage, {name: key for name, (_, key) in self.tables.items()})
        return lake_books(self.storage, disk().copy(), self.tables)

    def _judge(self, books: Books, final: State) -> None:
        for name, rows in final.items():
            newest = books.rows[name][max(books.rows[name])]
            if rows != newest:
                raise Doubt(f"{name}: a reader sees {rows}, and the published log says {newest}")
        records = [record for record in self.records if not self._saw_taken(record)]
        audit = Audit(records, books, self._since, is_lake=self.shape.has_catalog)
        audit.check(is_fresh=Misfortune.LISTING_STALE not in self.luck.kinds)
        self.plan.check(final, self.records)

    def _judge_feeds(self, books: Books) -> None:
        """Each version's feed tells how its rows differ from those before."""
        stored = self.storage
        self.storage = stored.copy(is_disk=stored.is_disk)
        bring_back(self.storage, round(self.scheduler.now_ms))

        def read(session: RowSession) -> None:
            for name, place in self.names().items():
                check_feed(session, name, place, books.rows[name], self._since[name])

        self._alone(read)
        self.storage = stored

    def _judge_eras(self, disasters: Disasters, final: State) -> None:
        logs = logs_of(self.storage, self.tables)
        eras = Eras(disasters.chronicle, self.records, logs, self._since)
        for name, rows in final.items():
            if rows != logs[name].rows[max(logs[name].rows)]:
                raise Doubt(f"{name}: a reader sees {rows}, and the published log says another")
        eras.check(
            disk().copy(), self.tables, is_fresh=Misfortune.LISTING_STALE not in self.luck.kinds
        )
        self._audited = eras.counts
        if not self.is_torn:
            self.plan.check(final, self.records)

    def _judge_names(self) -> None:
        """The names and what they mean at the end, after the table that was given away is back."""
        final: dict[str, definitions.Found] = {}

        def read(session: RowSession) -> None:
            catalog = session.engine.catalog.of_lake()
            if catalog.find("default", definitions.GIVEN_AWAY) is None:
                place = f"{ROOT}/{WAREHOUSE}/{definitions.GIVEN_AWAY}"
                attach(session, place, definitions.GIVEN_AWAY)
            for entry in catalog.tables("default"):
                rows = session.rows(f"SELECT tag FROM {entry.name}")
                columns = session.snapshot(TableName((entry.name,))).schema.names
                tags = Counter(str(row["tag"]) for row in rows)
                final[entry.name] = definitions.Found(tags, tuple(columns))

        self._alone(read)
        instants = instants_of(disk().copy())
        definitions.check(self.records, instants, self.plan.initial, final)

    def _recover(self, final: State) -> None:
        """The catalog is lost, and rebuilt from the logs."""
        disk().load(_empty_catalog("ffffffff-0000-4000-8000-0000000other"))
        self._alone(lambda session: self._check_recovered(session))
        if self._read_all() != final:
            raise Doubt("the recovered lake has other rows")

    def _check_recovered(self, session: RowSession) -> None:
        found = recover(session, ())
        expected = tuple(sorted(f"default.{name}" for name in self.plan.initial))
        if found.tables != expected:
            raise Doubt(f"recovered {found.tables}, expected {expected}: {found.unknown}")


def _lines(events: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """The trace as text; times are milliseconds since the world began."""
    return tuple(f"{now - 1.8e12:.1f} {' '.join(map(str, what))}" for now, *what in events)


class _Fixed:
    """`ports.System` that is the same each time."""

    def __init__(self) -> None:
        self._ids = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def new_id(self) -> str:
        self._ids += 1
        return f"ffffffff-0000-4000-8000-{self._ids:012d}"

    def random(self) -> float:
        return 0.5

    def wait_ms(self, duration_ms: float) -> None:
        raise AssertionError("nobody is there to wait for")

    def monotonic_ms(self) -> float:
        return 0.0


@lru_cache
def _empty_catalog(lake: str) -> bytes:
    """The bytes of the catalog of a new lake."""
    catalog = Catalog("sqlite://", _Fixed())

    def named() -> bytes:
        with catalog._on.writing() as connection:
            connection.exec_driver_sql("UPDATE txlake_facts SET value = ?", (lake,))
            made = connection.connection.driver_connection
        assert isinstance(made, sqlite3.Connection)
        return bytes(made.serialize())

    return catalog._on.run_shielded(named)
