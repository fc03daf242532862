"""A program whose main thread is interrupted at random instants while it works on a lake.

`python -m tests.catalog.interrupted [PLACE] --count 10000` counts the interrupts. A timer raises
KeyboardInterrupt from a signal handler, often once more while the first one is on its way out. The
main thread runs transactions on a session, a second thread others on a session of its own, and a
second process writes to the catalog and locks the tables throughout.

Prints what happened as JSON. Ends with an error when anything but a KeyboardInterrupt is raised,
when the second thread or process can't go on, or when what stands in the lake at the end isn't what
the transactions themselves say.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

from tests.catalog.processes import started
from tests.judge.lakes import row_lake
from tests.simulation.rows import RowSession
from txlake.catalog import Catalog
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.session.transaction import State, Transaction
from txlake.system import System

TABLES = ("a", "b")
_OTHERS = "c"
_PATIENCE_S = 60.0
"""After so long without an end of one attempt the program says where it hangs, and ends."""

_TIMEOUT_S = 10.0
"""How long the second process waits for the database, or for a lock."""

_SHORTEST_S, _LONGEST_S = 0.0001, 0.1
_LATE = 0.4
"""How often any instant of an attempt is as likely as any other; else early ones are likelier."""

_AGAIN = 0.3
"""How often a second interrupt follows, within a millisecond."""

_WATCHER = "from tests.catalog.interrupted import watch; watch()"


@dataclass(slots=True)
class Timer:
    """Interrupts the main thread; counts the interrupts, and those that Python itself swallowed.

    Python drops what a finalizer raises, whoever wrote it.
    """

    dice: random.Random
    raised: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        signal.signal(signal.SIGALRM, self._interrupt)
        sys.unraisablehook = self._noted

    def start(self) -> None:
        """Some time from now."""
        least, most = _SHORTEST_S, _LONGEST_S
        delay_s = least * (most / least) ** self.dice.random()
        if self.dice.random() < _LATE:
            delay_s = most * self.dice.random()
        signal.setitimer(signal.ITIMER_REAL, delay_s)

    def stop(self) -> None:
        """None from here on."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.raised += 1
        if self.dice.random() < _AGAIN:
            signal.setitimer(signal.ITIMER_REAL, 0.00002 + self.dice.random() / 1000)
        raise KeyboardInterrupt

    def _noted(self, unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(unraisable)
            os._exit(3)
        self.dropped += 1


@dataclass(slots=True)
class Ran:
    """One attempt: which row it was to write, and what the transaction said at the end."""

    row: int
    tables: tuple[str, ...]
    held: Transaction | None = None
    told: State | None = None


@dataclass(slots=True)
class Client:
    """The main thread's work."""

    session: RowSession
    timer: Timer
    dice: random.Random
    rans: list[Ran] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def attempt(self) -> None:
        """One piece of work, interrupted or not; the session is good for the next one after it."""
        work = self.dice.choice(
            (self._explicit, self._explicit, self._sql, self._alone, self._reads, self._names)
        )
        faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)
        before = self.timer.raised
        is_caught = self._tried(work)
        if self.timer.raised != before:
            self.counts["attempts interrupted"] += 1
        if not is_caught and self.timer.raised - before > self.timer.dropped:
            self.counts["swallowed"] += 1
        self.timer.dropped = 0
        for ran in self.rans[-1:]:
            if ran.held is not None:
                self.counts[f"then {ran.held.state.value}"] += 1
                ran.held.rollback()
                ran.told = ran.held.state
        while self.session.current is not None:
            self.session.rows("ROLLBACK")

    def _tried(self, work: Callable[[], None]) -> bool:
        try:
            self.timer.start()
            try:
                work()
            finally:
                self.timer.stop()
        except KeyboardInterrupt:
            self._is_quiet()
            self.counts["caught"] += 1
            return True
        return False

    def _is_quiet(self) -> None:
        """Stop the timer, whatever still comes."""
        while True:
            try:
                self.timer.stop()
                return
            except KeyboardInterrupt:
                continue

    def _begun(self, tables: tuple[str, ...]) -> Ran:
        ran = Ran(len(self.rans), tables)
        self.rans.append(ran)
        return ran

    def _explicit(self) -> None:
        ran = self._begun(TABLES)
        ran.held = self.session.begin()
        for table in ran.tables:
            self.session.within(ran.held, f"INSERT INTO {table} VALUES ({ran.row})")
        ran.held.commit()

    def _sql(self) -> None:
        ran = self._begun(TABLES)
        self.session.rows("BEGIN")
        ran.held = self.session.current
        for table in ran.tables:
            self.session.rows(f"INSERT INTO {table} VALUES ({ran.row})")
        self.session.rows("COMMIT")

    def _alone(self) -> None:
        ran = self._begun(TABLES[:1])
        self.session.rows(f"INSERT INTO a VALUES ({ran.row})")
        ran.told = State.COMMITTED

    def _reads(self) -> None:
        self.session.rows("SELECT count(*) AS n FROM b")

    def _names(self) -> None:
        self.counts["tables made"] += 1
        name = f"t{self.counts['tables made']}"
        self.session.rows(f"CREATE TABLE {name} (n INT) USING delta")
        self.session.rows(f"DROP TABLE {name}")


class Beside:
    """The second thread: appends to a table of its own, until it is told to stop."""

    def __init__(self, session: RowSession) -> None:
        self._session = session
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rows = self._seen = 0
        self._seen_s = time.monotonic()
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def comes_on(self) -> bool:
        """Whether it has written a row not too long ago."""
        now_s = time.monotonic()
        if self.rows != self._seen:
            self._seen, self._seen_s = self.rows, now_s
        return now_s - self._seen_s < _PATIENCE_S

    def stop(self) -> None:
        self._is_over = True
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), "the second thread doesn't come to an end"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._session.rows(f"INSERT INTO {_OTHERS} VALUES ({self.rows})")
                self.rows += 1
        except BaseException as error:
            self.error = error


def watch() -> None:
    """The second process: writes, and locks each table, until its input ends."""
    catalog = Catalog(sys.argv[1], System(), busy_timeout_s=_TIMEOUT_S)
    session, rounds = catalog.sessions.open(), 0
    print("ready", flush=True)  # noqa: T201
    is_over = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=await_end, daemon=True).start()
    while not is_over.wait(0.02):
        catalog.set_properties("default", {"round": str(rounds)})
        for table in TABLES:
            entry = catalog.find("default", table)
            assert entry is not None
            name = f"watcher {rounds} {table}"
            catalog.transactions.begin(name, session)
            resource = Resource(
                type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number
            )
            request = LockRequest(resource=resource, mode=LockMode.SCH_M)
            catalog.locks.acquire(session, name, [request], int(_TIMEOUT_S * 1000))
            catalog.transactions.end(name)
        rounds += 1
    catalog.close()
    print(rounds)  # noqa: T201


def run(place: str, count: int, seed: int) -> dict[str, int]:
    """What happened, by name."""
    url = f"sqlite:///{place}/catalog.db"
    dice = random.Random(seed)
    with row_lake(place, url) as session:
        for table in (*TABLES, _OTHERS):
            session.rows(f"CREATE TABLE {table} (n INT) USING delta")
        [watcher] = started(_WATCHER, url)
        assert watcher.stdout is not None
        watcher.stdout.readline()  # it is there
        beside = Beside(RowSession(session.engine))
        beside.start()
        client = Client(session, Timer(dice), dice)
        while client.timer.raised < count:
            client.attempt()
            assert watcher.poll() is None, "the second process can't write any more"
            assert beside.error is None, "the second thread can't go on"
            assert beside.comes_on(), "the second thread hangs"
        faulthandler.cancel_dump_traceback_later()
        beside.stop()
        rounds, _ = watcher.communicate(timeout=_PATIENCE_S)
        assert watcher.returncode == 0
        counts = client.counts
        _judge(session, client.rans, counts, beside.rows)
        session.begin().rollback()  # what nobody holds any more has ended then
        catalog = session.engine.catalog.of_lake()
        assert catalog.transactions.entries() == []
    counts.update(interrupts=client.timer.raised, watched=int(rounds), beside=beside.rows)
    assert not counts["swallowed"], counts
    return dict(sorted(counts.items()))


def _judge(session: RowSession, rans: list[Ran], counts: Counter[str], others: int) -> None:
    """Hold what stands against what the transactions say. Raises AssertionError."""
    found = {
        table: Counter(row["n"] for row in session.rows(f"SELECT n FROM {table}"))
        for table in (*TABLES, _OTHERS)
    }
    assert found[_OTHERS] == Counter(range(others)), "rows of the second thread"
    for ran in rans:
        times = {found[table][ran.row] for table in ran.tables}
        assert len(times) == 1, f"row {ran.row} was committed in part: {ran}"
        [stands] = times
        assert stands in (0, 1), f"row {ran.row} stands {stands} times"
        if ran.told is State.COMMITTED:
            assert stands, f"row {ran.row} is lost: {ran}"
        elif ran.told not in (None, State.UNKNOWN):
            assert not stands, f"row {ran.row} stands: {ran}"
        said = "alone" if ran.told is None else ran.told.value
        counts[f"{said}, {'stands' if stands else 'gone'}"] += 1
    assert all(not found[table].keys() - range(len(rans)) for table in TABLES)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.catalog.interrupted")
    parser.add_argument("place", nargs="?")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txlake-interrupted-") as folder:
        place = given.place or folder
        print(json.dumps(run(place, given.count, given.seed)))  # noqa: T201


if __name__ == "__main__":
    main()
