"""A run: the world of a case is set up, its clients run, and what they did is audited.

Owns the processes: their starts, their deaths, and their successors.
"""

from __future__ import annotations

import gc
import hashlib
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

from sqlalchemy.engine import Connection

from tests.simulation import branching, definitions, maintaining
from tests.simulation.audit import Audit
from tests.simulation.branch_audit import BranchAudit
from tests.simulation.branch_journal import BranchJournal, journal_of_log
from tests.simulation.branching import BranchEvent, TravelledRead
from tests.simulation.case import LAKE_FAULTS, Case, WorldConfig, world_config
from tests.simulation.catalog_in_store import SimulatedReplica, read_log, short_log
from tests.simulation.clients import Client, as_rows
from tests.simulation.committed_state import (
    committed_in_lake,
    committed_in_logs,
    committed_with_logs,
    read_instants,
    read_logs,
)
from tests.simulation.coverage import count_cells
from tests.simulation.database import shared_database
from tests.simulation.epoch_audit import EpochAudit
from tests.simulation.faults import FaultInjector, FaultKind, InjectedFault
from tests.simulation.feeds import FEED, check_feed, restore_deleted_objects
from tests.simulation.lake_faults import LakeFaults
from tests.simulation.process import WAREHOUSE, Process, retry_opening
from tests.simulation.programs import Plan
from tests.simulation.records import CommittedState, Record, ReportedOutcome, Violation
from tests.simulation.rows import RowSession
from tests.simulation.scheduler import Scheduler, Task
from tests.simulation.statements import COLUMNS, IDENTITY, Insert, Select, State
from tests.simulation.stores import ROOT, Storage, is_catalog_entry, is_commit
from tests.simulation.streams import Query
from tests.simulation.threads import simulated_threads
from txlake.catalog import Catalog
from txlake.errors import InvalidRequest
from txlake.session.membership.attachment import attach
from txlake.session.membership.recovery import recover
from txlake.settings import Settings
from txlake.sql.statements import TableName

_COMMIT = re.compile(r"\d{20}\.json")
_REBOOT_MS = 3_000
_SETTLED_MS = 600_000
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_LEASE_LOSING_FAULTS = {
    FaultKind.STALL,
    FaultKind.SLOW,
    FaultKind.DATABASE_AWAY,
    FaultKind.REPLY_LOST,
    FaultKind.REPLY_UNANSWERED,
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that kept all promises.

    Attributes:
        kind: the kind of its programs.
        counts: how often each thing happened, by name.
        records: the clients' transactions.
        events: the lines of the trace, in parts.
    """

    kind: str
    counts: Mapping[str, int]
    records: tuple[Record, ...]
    events: tuple[tuple[object, ...], ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of the trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    @property
    def trace(self) -> tuple[str, ...]:
        """The lines of the trace as text."""
        return _lines(self.events)


@dataclass(frozen=True, slots=True)
class _PreparedWorld:
    """A world before its clients start, shared by all cases with equal tables."""

    catalog: bytes
    storage: Storage
    tables: dict[str, tuple[str, str]]
    since: dict[str, int]
    ids: int
    now_ms: float


_prepared_worlds: dict[object, _PreparedWorld] = {}


class Failure(AssertionError):
    """A run that broke a promise, with its faults and its trace."""

    def __init__(
        self,
        case: Case,
        error: BaseException,
        injected: Sequence[InjectedFault],
        trace: Sequence[str],
    ) -> None:
        super().__init__(f"{case}: {type(error).__name__}: {error}")
        self.case = case
        self.error = error
        self.injected = tuple(injected)
        self.trace = tuple(trace)


class RunObserver(Protocol):
    """An observer of a run, which must not influence it."""

    def on_start(self, world: World) -> None:
        """The tables exist, and the clients start next."""
        ...

    def on_line(self, task: Task | None, what: tuple[object, ...]) -> None:
        """The current task has added a line to the trace."""
        ...


class World:
    """The processes and everything outside of them.

    Attributes:
        tables: by name, the table's id in the catalog and its key; the id is empty without a lake.
        clock_offset_ms: how much the time of day differs from true time.
        forward_clock_steps: how often the clock was set ahead.
        replicas: those of the processes of a catalog in the store.
    """

    def __init__(self, case: Case, watch: RunObserver | None = None) -> None:
        self.case = case
        self.config: WorldConfig = world_config(case)
        self.plan: Plan = self.config.plan
        self.settings = Settings()
        self.scheduler = Scheduler(random.Random("schedule"))
        self.injector = FaultInjector(
            case.seed,
            set(self.config.possible),
            without_kinds=case.without_kinds,
            without_numbers=case.without_numbers,
            faults=case.faults,
        )
        self._observer = watch
        self._active_observer: RunObserver | None = None  # set when the clients begin
        self.storage = Storage(is_disk=False)
        self.records: list[Record] = []
        self._lost_to_power: list[tuple[int, str, int]] = []  # turn, table, first lost version
        self.lake_faults: LakeFaults | None = None
        into = self.plan.streams_into
        self.query = Query(into) if into else None
        self.journal: BranchJournal | None = None
        self.branch_events: list[BranchEvent] = []
        self.travelled: list[TravelledRead] = []
        self.processes: list[Process] = []
        self.replicas: list[SimulatedReplica] = []
        self.crashes = 0
        self.clock_offset_ms = 0
        self.forward_clock_steps = 0
        self.open_transactions = 0
        self.tables: dict[str, tuple[str, str]] = {}
        self._initial_versions: dict[str, int] = {}  # of each table, before the clients
        self._trace: list[tuple[object, ...]] = []
        self._ids = 0
        self._clients: dict[int, Client] = {}
        self._audit_counts: Counter[str] = Counter()
        self._event_counts: Counter[str] = Counter()

    # Services for processes

    def new_id(self) -> str:
        """Return a UUID that is unique in this run."""
        self._ids += 1
        return f"{self._ids:08x}-0000-4000-8000-000000000000"

    @property
    def time_of_day_ms(self) -> int:
        """The time of day that all processes share, which may be set; true time is the
        scheduler's.
        """
        return int(self.scheduler.now_ms) + self.clock_offset_ms

    @property
    def store_time_ms(self) -> int:
        """The time of the store's clock: the hosts' own, unless a catalog's leases depend on it."""
        return int(self.scheduler.now_ms) if self.config.is_in_store else self.time_of_day_ms

    @property
    def may_have_lost_lease(self) -> bool:
        """Whether a living session may have been too late to renew its lease.

        A server's clock that is set ahead a second time takes the last lease too.
        """
        if self.plan.kind == "ages" or (self.config.is_server and self.forward_clock_steps > 1):
            return True
        if self.config.is_in_store and self.injector.injected:  # a heartbeat is a put
            return True
        return any(one.kind in _LEASE_LOSING_FAULTS for one in self.injector.injected)

    def set_clock(self, hours: float) -> None:
        """Shift the time of day by hours."""
        self.clock_offset_ms += round(hours * _HOUR_MS)
        self.forward_clock_steps += hours > 0
        self.trace("clock", self.clock_offset_ms)

    def trace(self, *what: object) -> None:
        """Add a line to the trace."""
        self._trace.append((self.scheduler.now_ms, *what))
        task = self.scheduler.current
        if task is not None:
            task.step = len(self._trace)
        if self._active_observer is not None:
            self._active_observer.on_line(task, what)

    @property
    def step(self) -> int:
        """The newest line of the trace by the current task; 0 before its first one."""
        task = self.scheduler.current
        return 0 if task is None else task.step

    def kill(self, process: Process) -> None:
        """End a process; start another one for its clients that aren't done."""
        process.is_dead = True
        self.crashes += 1
        clients = [client for client in self._clients.values() if client.process is process]
        self.scheduler.kill(process)
        if any(not client.is_done for client in clients):
            self._start(
                [client for client in clients if not client.is_done], self.injector.random()
            )
        if self.lake_faults is not None:
            self.lake_faults.on_death(process)

    def kill_all(self) -> None:
        """End all processes."""
        living = [process for process in self.processes if not process.is_dead]
        for process in living:
            process.is_dead = True
        for process in living:
            self.kill(process)

    @property
    def has_lost_commits(self) -> bool:
        """Whether a catalog was lost that alone knew some commits."""
        return self.lake_faults is not None and bool(self.lake_faults.catalog_history.may_be_lost)

    def lose_power(self) -> None:
        """End all processes and take what wasn't durable."""
        self.trace("power loss")
        living = [process for process in self.processes if not process.is_dead]
        for process in living:
            process.is_dead = True
        if self.config.has_catalog:
            shared_database().lose_power()
        there = set(self.storage.items)
        self.storage.lose_power(lambda: self.injector.random() < 0.5)
        if not self.config.has_catalog:
            self._record_lost_commits(there - self.storage.items.keys())
        for process in living:
            self.kill(process)

    def _record_lost_commits(self, gone: Set[str]) -> None:
        """Record the commits of path tables that a power loss took back after others may have
        read them.
        """
        for name, (_, root) in self.tables.items():
            logged = f"{root}/_delta_log/"
            names = [key.removeprefix(logged) for key in gone if key.startswith(logged)]
            versions = [int(key[:20]) for key in names if _COMMIT.fullmatch(key)]
            if versions:
                self._lost_to_power.append((self.scheduler.turns, name, min(versions)))

    def _has_read_lost_commit(self, record: Record) -> bool:
        """Return whether a transaction read, and only read, what a power loss took back later."""
        has_only_read = all(isinstance(step.statement, Select) for step in record.steps)
        if record.outcome is ReportedOutcome.COMMITTED and not has_only_read:
            return False
        return any(
            record.begin_turn <= turn and record.read_versions.get(table, -1) >= version
            for turn, table, version in self._lost_to_power
        )

    # The run

    def run(self) -> RunResult:
        """Run the case. Raises Failure."""
        was_enabled = gc.isenabled()
        gc.disable()  # the time of a collection isn't the seed's choice
        try:
            with simulated_threads(self.scheduler), short_log():
                self._run()
        except Exception as error:
            raise Failure(self.case, error, self.injector.injected, _lines(self._trace)) from error
        finally:
            for replica in self.replicas:
                replica.discard()
            if was_enabled:
                gc.enable()
        return self._outcome()

    def _run(self) -> None:
        self.injector.is_paused = True
        self._set_up()
        self.injector.is_paused = False
        if self._observer is not None:
            self._active_observer = self._observer
            self._active_observer.on_start(self)
        if self.plan.kind == branching.KIND and self._has_database:
            self.journal = BranchJournal()
            self.journal.record(shared_database().raw)
        if self.injector.relevant_kinds & LAKE_FAULTS:
            self.lake_faults = LakeFaults(self, _empty_catalog)
        start = 0
        for place, count in enumerate(self.config.sessions):
            of_it = range(start, start + count)
            start += count
            clients = [
                Client(self, f"c{number}", self.plan.clients[number], self.plan.level)
                for number in of_it
            ]
            self._clients.update(zip(of_it, clients))
            self._start(clients, place * self.injector.random() * 0.01)
        self.scheduler.run()
        self.injector.is_paused = True
        self._stop_processes()
        if self.plan.kind == definitions.KIND:
            self._audit_names()
            return
        if self.query is not None:
            self.run_alone(self._end_stream)
        if self.lake_faults is not None:
            self.lake_faults.settle()
        final = self._read_all()
        if self.lake_faults is not None and self.lake_faults.happened:
            self._audit_epochs(self.lake_faults, final)
            return
        if self.plan.kind == branching.KIND:
            self._audit_branches(final)
            if self.config.is_recovered:
                self._recover(final)
            return
        committed = self._committed_state()
        self._audit(committed, final)
        if FEED in self.config.properties:
            self._audit_feeds(committed)
        if self.config.is_recovered:
            self._recover(final)

    def _outcome(self) -> RunResult:
        counts = dict(self.injector.counts())
        for record in self.records:
            name = f"outcome {record.outcome.value}"
            counts[name] = counts.get(name, 0) + 1
        counts["deaths"] = self.crashes
        counts.update(self._audit_counts)
        counts.update(self._event_counts)
        counts["turns"] = self.scheduler.turns
        commits = [data for key, data in self.storage.last_written.items() if is_commit(key)]
        counts.update(count_cells(self.records, self.injector.injected, commits))
        gone = self.storage.last_written.keys() - self.storage.items.keys()
        counts["log files cleaned"] = sum("/_delta_log/0" in key for key in gone)
        counts["data files vacuumed"] = sum("/part-" in key for key in gone)
        counts["catalog entries"] = sum(map(is_catalog_entry, self.storage.last_written))
        counts["catalog entries deleted"] = sum(map(is_catalog_entry, gone))
        return RunResult(self.plan.kind, counts, tuple(self.records), tuple(self._trace))

    def _start(self, clients: list[Client], delay: float) -> None:
        """Start a process for these clients after a delay."""
        process = Process(self, len(self.processes))
        self.processes.append(process)
        for client in clients:
            client.process = process

        def boot() -> None:
            self.scheduler.sleep(delay * _REBOOT_MS)
            retry_opening(process.open)
            for client in clients:
                self.scheduler.start(
                    f"{process} {client.name}",
                    partial(client.run, process),
                    group=process,
                )
            if self.config.is_maintained:
                places = () if self.config.has_catalog else tuple(self._places())
                self.scheduler.start(
                    f"{process} maintenance",
                    partial(maintaining.maintain, process, places, self._count),
                    group=process,
                    is_daemon=True,
                )

        self.scheduler.start(f"{process} boot", boot, group=process)

    def _run_alone(self, work: Callable[[RowSession], None]) -> None:
        """Do something in a session of the lake, in a process of its own, without faults."""

        def run(process: Process) -> None:
            process.open()
            session = process.session()
            work(session)
            session.close()

        self.run_alone(run)

    def run_alone(self, run: Callable[[Process], None]) -> None:
        """Do something in a process of its own while no other task runs."""
        process = Process(self, len(self.processes))
        self.processes.append(process)
        self.scheduler.start(f"{process} alone", partial(run, process), group=process)
        self.scheduler.run()
        process.is_dead = True
        self.scheduler.kill(process)

    def names(self) -> dict[str, str]:
        """Return by table its name in SQL."""
        if self.config.has_catalog:
            return {name: name for name in self.plan.initial}
        return {name: f"delta.`{ROOT}/{WAREHOUSE}/{name}`" for name in self.plan.initial}

    def _places(self) -> Iterator[str]:
        """Yield the places of the tables of a world without a lake."""
        for name in self.plan.initial:
            yield f"{ROOT}/{WAREHOUSE}/{name}"

    def _count(self, event: str) -> None:
        """Count an event of the run."""
        self._event_counts[event] += 1

    def _set_up(self) -> None:
        """Create the tables in a process of its own, once for all cases with equal tables; in a
        catalog in the store for each case.
        """
        config = self.config
        initial = tuple(self.plan.initial.items())
        where = (config.has_catalog, config.is_in_store)
        key = (where, config.has_identity, config.properties, initial)
        found = _prepared_worlds.get(key)
        if found is None:
            if self._has_database:
                shared_database().load(_empty_catalog("ffffffff-0000-4000-8000-00000000lake"))
            self._run_alone(self._make_tables)
            found = _PreparedWorld(
                shared_database().content() if self._has_database else b"",
                self.storage.copy(is_disk=False),
                self.tables,
                self._initial_versions,
                self._ids,
                self.scheduler.now_ms,
            )
            if not config.is_in_store:  # there the log shows who made them
                _prepared_worlds[key] = found
        self.settings = config.settings
        self.storage = found.storage.copy(is_disk=config.is_disk)
        self.storage.has_stale_listings = FaultKind.LISTING_STALE in self.injector.kinds
        self.storage.may_be_cleaned = FaultKind.LOG_CLEANED in self.injector.kinds
        self.tables, self._initial_versions, self._ids = found.tables, found.since, found.ids
        if self._has_database:
            shared_database().load(found.catalog)
        self._reset(found.now_ms)

    def _reset(self, now_ms: float) -> None:
        """Begin with the seed's own random numbers, whichever case created the tables."""
        self.scheduler.reset(random.Random(f"schedule {self.case.seed}"), now_ms)
        self.processes.clear()
        self._trace.clear()

    def _make_tables(self, session: RowSession) -> None:
        names = self.names()
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self.config.properties)
        columns = f"{COLUMNS}, {IDENTITY}" if self.config.has_identity else COLUMNS
        for name, rows in self.plan.initial.items():
            session.rows(
                f"CREATE TABLE {names[name]} ({columns}) USING delta TBLPROPERTIES ({properties})"
            )
            if rows:
                session.rows(Insert(name, rows).sql(names))
            key = f"{WAREHOUSE}/{name}"
            table_id = ""
            if self.config.has_catalog:
                entry = session.engine.catalog.find("default", name)
                assert entry is not None
                table_id, key = entry.id, entry.location[len(ROOT) + 1 :]
            self.tables[name] = (table_id, key)
            self._initial_versions[name] = 1 if rows else 0

    # The end

    def _stop_processes(self) -> None:
        """End all processes, deliver delayed requests, and let leases expire."""
        for process in self.processes:
            if not process.is_dead:
                process.is_dead = True
                self.scheduler.kill(process)
        while self.storage.delayed_requests:
            self.storage.delayed_requests.pop(0)()
        self.storage.deleted_items.clear()
        self.storage.has_stale_listings = False
        self.scheduler.now_ms += _SETTLED_MS

    def _end_stream(self, process: Process) -> None:
        process.open()
        Client(self, "stream", (), self.plan.level).end_stream(process)

    def _read_all(self) -> State:
        """Return all rows as a new process reads them."""
        found: dict[str, tuple[tuple[int, int, str], ...]] = {}
        names = self.names()

        def read(session: RowSession) -> None:
            for name in self.plan.initial:
                rows = session.rows(f"SELECT k, v, tag FROM {names[name]}")
                found[name] = tuple(sorted((row["k"], row["v"], row["tag"]) for row in rows))  # type: ignore[misc]

        self._run_alone(read)
        return found

    def _committed_state(self) -> CommittedState:
        if not self.config.has_catalog:
            return committed_in_logs(
                self.storage, {name: key for name, (_, key) in self.tables.items()}
            )
        return committed_in_lake(self.storage, self._catalog_copy(), self.tables)

    @property
    def _has_database(self) -> bool:
        """Whether the catalog is in the database that all processes share."""
        return self.config.has_catalog and not self.config.is_in_store

    def _catalog_copy(self) -> sqlite3.Connection:
        """Return a database with the catalog's content."""
        if not self.config.is_in_store:
            return shared_database().copy()
        process = Process(self, len(self.processes))
        return read_log(process, process.catalog_store())

    def _audit(self, committed: CommittedState, final: State) -> None:
        for name, rows in final.items():
            newest = committed.rows[name][max(committed.rows[name])]
            if rows != newest:
                raise Violation(
                    f"{name}: a reader sees {rows}, and the published log says {newest}"
                )
        records = [record for record in self.records if not self._has_read_lost_commit(record)]
        audit = Audit(
            records,
            committed,
            self._initial_versions,
            is_lake=self.config.has_catalog,
            appends_begin_unseen=self.config.is_in_store,
        )
        audit.check(requires_fresh_reads=FaultKind.LISTING_STALE not in self.injector.kinds)
        self.plan.check(final, self.records)

    def _audit_branches(self, final: State) -> None:
        """Audit main and the branches, drop what is open, and check that nothing of it is left."""
        journal = self.journal or journal_of_log(self.storage.entries)
        database = self._catalog_copy()
        committed, logs = committed_with_logs(self.storage, database, self.tables)
        audit = BranchAudit(
            journal,
            self.storage,
            self.tables,
            committed,
            logs,
            self._initial_versions,
            self.plan.level,
            appends_begin_unseen=self.config.is_in_store,
        )
        audit.check(self.records, self.branch_events)
        audit.check_travelled(self.travelled)
        audit.check_open()
        self._audit_counts = audit.counts
        self.scheduler.now_ms += _DAY_MS
        self._run_alone(lambda session: self._end_branches(session, audit))
        self.scheduler.now_ms += _DAY_MS  # the first VACUUM extended dead sessions' leases
        self._run_alone(self._vacuum_all)
        self._check_left()

    def _end_branches(self, session: RowSession, audit: BranchAudit) -> None:
        """Read the branches and tags that are open, drop them, and delete what nobody needs."""
        names = self.names()
        shown = {kind: session.rows(f"SHOW {kind}") for kind in ("BRANCHES", "TAGS")}
        for rows in shown.values():
            for name in (str(row["name"]) for row in rows):
                for table in self.plan.initial:
                    text = f"SELECT k, v, tag FROM {names[table]} VERSION AS OF '{name}'"
                    try:
                        found = as_rows(session.rows(text))
                    except InvalidRequest as error:
                        if "has expired" not in str(error):  # a branch of it keeps it
                            raise
                    else:
                        read = TravelledRead("the end", name, table, found)
                        audit.check_travelled([read], only_newest=True)
        left = {str(row["name"]): row for row in (*shown["TAGS"], *shown["BRANCHES"])}
        while left:  # first those from which no other was made
            name = next(name for name in left if name not in map(_parent, left.values()))
            kind = "BRANCH" if left.pop(name) in shown["BRANCHES"] else "TAG"
            session.rows(f"DROP {kind} IF EXISTS `{name}`")
        self._vacuum_all(session)

    def _vacuum_all(self, session: RowSession) -> None:
        """Delete the files that no newest version needs."""
        for place in self.names().values():
            session.rows(f"VACUUM {place} RETAIN 0 HOURS")

    def _check_left(self) -> None:
        """Raise Violation for files that only ended branches and tags needed."""
        for name, log in read_logs(self.storage, self.tables).items():
            root = f"{self.tables[name][1]}/"
            needed = log.live_paths(max(log.rows))
            for key in (key.removeprefix(root) for key in self.storage.keys_in(root, "")):
                is_of_branch = key.startswith("_delta_log/_branches/")
                if is_of_branch or not (key in needed or key.startswith("_delta_log/")):
                    raise Violation(f"{name}: {key} is left, and no branch needs it")

    def _audit_feeds(self, committed: CommittedState) -> None:
        """Check that each version's feed leads to its rows."""
        stored = self.storage
        self.storage = stored.copy(is_disk=stored.is_disk)
        restore_deleted_objects(self.storage, round(self.scheduler.now_ms))

        def read(session: RowSession) -> None:
            for name, place in self.names().items():
                check_feed(session, name, place, committed.rows[name], self._initial_versions[name])

        self._run_alone(read)
        self.storage = stored

    def _audit_epochs(self, lake_faults: LakeFaults, final: State) -> None:
        logs = read_logs(self.storage, self.tables)
        epochs = EpochAudit(lake_faults.catalog_history, self.records, logs, self._initial_versions)
        for name, rows in final.items():
            if rows != logs[name].rows[max(logs[name].rows)]:
                raise Violation(f"{name}: a reader sees {rows}, and the published log says another")
        epochs.check(
            shared_database().copy(),
            self.tables,
            requires_fresh_reads=FaultKind.LISTING_STALE not in self.injector.kinds,
        )
        self._audit_counts = epochs.counts
        if not self.has_lost_commits:
            self.plan.check(final, self.records)

    def _audit_names(self) -> None:
        """Check the names and rows at the end, after the detached table is attached again."""
        final: dict[str, definitions.TableContent] = {}

        def read(session: RowSession) -> None:
            catalog = session.engine.catalog.of_lake()
            if catalog.find("default", definitions.GIVEN_AWAY) is None:
                place = f"{ROOT}/{WAREHOUSE}/{definitions.GIVEN_AWAY}"
                attach(session, place, definitions.GIVEN_AWAY)
            for entry in catalog.tables("default"):
                rows = session.rows(f"SELECT tag FROM {entry.name}")
                columns = session.snapshot(TableName((entry.name,))).schema.names
                tags = Counter(str(row["tag"]) for row in rows)
                final[entry.name] = definitions.TableContent(tags, tuple(columns))

        self._run_alone(read)
        instants = read_instants(self._catalog_copy())
        definitions.check(self.records, instants, self.plan.initial, final)

    def _recover(self, final: State) -> None:
        """Lose the catalog, rebuild it from the logs, and check it."""
        shared_database().load(_empty_catalog("ffffffff-0000-4000-8000-0000000other"))
        self._run_alone(lambda session: self._check_recovered(session))
        if self._read_all() != final:
            raise Violation("the recovered lake has other rows")

    def _check_recovered(self, session: RowSession) -> None:
        found = recover(session, ())
        expected = tuple(sorted(f"default.{name}" for name in self.plan.initial))
        if found.tables != expected:
            raise Violation(f"recovered {found.tables}, expected {expected}: {found.unknown}")


def _parent(row: Mapping[str, object]) -> object:
    return row["parent"]


def _lines(events: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """Return the trace as text; times are milliseconds since the world began."""
    return tuple(f"{now - 1.8e12:.1f} {' '.join(map(str, what))}" for now, *what in events)


class _FixedSystem:
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
    """Return the bytes of a new lake's catalog."""
    catalog = Catalog("sqlite://", _FixedSystem())

    def rename(connection: Connection) -> object:
        connection.exec_driver_sql("UPDATE txlake_facts SET value = ?", (lake,))
        return connection.connection.driver_connection

    def named() -> bytes:
        made = catalog._database.write(rename)
        assert isinstance(made, sqlite3.Connection)
        return bytes(made.serialize())

    return catalog._database.run_shielded(named)
