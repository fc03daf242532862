"""A client of a run: its programs one after the other, each tried again when it loses.

Owns what is written down of each transaction, and what an error means to its client.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.simulation.case import OF_LAKES
from tests.simulation.foreign import foreign_engine
from tests.simulation.history import Doubt, Record, Step, Told
from tests.simulation.luck import Misfortune
from tests.simulation.process import WAREHOUSE, Interrupted, Process, patiently
from tests.simulation.programs import MICRO_BATCH, Program
from tests.simulation.rows import RowSession
from tests.simulation.statements import Insert, Rows, Select, Statement
from tests.simulation.stores import ROOT
from txlake.conflict.levels import Level
from txlake.errors import Conflict, CorruptTable, InvalidRequest, OutcomeUnknown, Unavailable
from txlake.session.engine import Engine
from txlake.session.membership.attachment import attach, detach
from txlake.session.transaction import State, Transaction

if TYPE_CHECKING:
    from tests.simulation.world import World

# What an error says to do: connect anew, or have the lake recovered.
_ADVICE = ("connect again", "lake.recover")
_RECONNECTIONS = 5
_RECONNECTED_MS = (1, 50, 500, 4_000)


class NotedSession(RowSession):
    """A session that says which transaction it began last.

    Attributes:
        opened: the process's engine when it was made.
    """

    newest: Transaction | None = None
    opened: Engine | None = None

    def begin(
        self, *, level: Level | None = None, read_only: bool = False, explicit: bool = True
    ) -> Transaction:
        made = super().begin(level=level, read_only=read_only, explicit=explicit)
        made.user_metadata = made.id  # by which a path table's log tells whose each commit is
        self.newest = made
        return made


class Client:
    """Its programs, those that are left."""

    def __init__(self, world: World, name: str, programs: Sequence[Program], level: Level) -> None:
        self.name = name
        self.process: Process | None = None
        self._world = world
        self._left = list(enumerate(programs))
        self._level = level

    @property
    def is_done(self) -> bool:
        return not self._left

    def run(self, process: Process) -> None:
        """Does what is left, in a session of a process, which may die of it."""
        session = self._session(process)
        while self._left:
            number, program = self._left.pop(0)
            attempt, attempts = 0, program.attempts
            while attempt < attempts:
                name = f"{self.name}.{number}.{attempt} {program.name}"
                record = Record(id="", client=name, level=self._level)
                told = _Attempt(self._world, process, session, program, record).run()
                self._world.note(process, name, told.value, record.error[:200])
                is_over = told is not Told.CONFLICT and told is not Told.UNAVAILABLE
                if any(advice in record.error for advice in _ADVICE):
                    session = self._reconnected(process, session)
                    attempts = program.attempts + _RECONNECTIONS
                    is_over = is_over and told is not Told.REFUSED
                if is_over:
                    break
                attempt += 1

    def end_stream(self, process: Process) -> None:
        """Runs micro-batches until there is nothing left to read. Raises Doubt when one fails."""
        assert process.engine is not None
        session = NotedSession(process.engine, level=self._level)
        is_left, number = True, 0
        while is_left:
            record = Record(id="", client=f"{self.name}.{number}", level=self._level)
            attempt = _Attempt(self._world, process, session, MICRO_BATCH, record)
            if attempt.run() is not Told.COMMITTED:
                raise Doubt(f"the stream can't go on: {record.error}")
            is_left, number = attempt.has_read, number + 1

    def _reconnected(self, process: Process, session: NotedSession) -> NotedSession:
        """A session of the lake as it is now, after a while."""
        self._world.scheduler.sleep(self._world.scheduler.chance.choice(_RECONNECTED_MS))
        if process.engine is session.opened:
            patiently(process.open)
        return self._session(process)

    def _session(self, process: Process) -> NotedSession:
        """Every second client of a lake with open tables commits as another engine does."""
        engine = process.engine
        assert engine is not None
        is_foreign = self._world.shape.is_open and int(self.name[1:]) % 2
        session = NotedSession(foreign_engine(engine) if is_foreign else engine, level=self._level)
        session.opened = engine
        return session


class _Attempt:
    """One transaction; the `Runner` of its program."""

    def __init__(
        self,
        world: World,
        process: Process,
        session: NotedSession,
        program: Program,
        record: Record,
    ) -> None:
        self._world = world
        self._process = process
        self.session = self._session = session
        self._program = program
        self._record = record
        self._names = world.names()
        self._open: Transaction | None = None
        self._era = 0
        self.has_read = False  # whether there was a micro-batch to run

    @property
    def tag(self) -> str:
        return self._record.client.partition(" ")[0]

    def do(self, statement: Statement) -> object:
        text = statement.sql(self._names)
        session, program = self._session, self._program
        if self._open is None and not (program.alone or program.outside):
            self._open = session.begin()
            self._begun()
        self._world.note(self.tag, text)
        is_noted = program.alone and not isinstance(statement, Select)
        if is_noted:  # who dies in its commit has done it, or hasn't
            self._record.steps.append(Step(statement))
        session.newest = None if self._open is None else self._open
        disasters = self._world.disasters
        self._era = 0 if disasters is None else disasters.chronicle.era
        try:
            if self._open is None:
                found = session.rows(text)
            else:
                found = session.within(self._open, text)
        finally:
            self._begun()
            if session.newest is not None:
                self._note_pins(session.newest)
        answer: object = None
        if isinstance(statement, Select):
            answer = tuple(sorted((row["k"], row["v"], row["tag"]) for row in found))
        if not is_noted:
            self._record.steps.append(Step(statement, answer))
        return answer

    def savepoint(self, name: str) -> None:
        assert self._open is not None
        self._open.savepoint(name)
        self._record.steps.append(Step(None, mark=name))

    def back_to(self, name: str) -> None:
        assert self._open is not None
        self._open.rollback_to(name)
        self._record.steps.append(Step(None, back=name))

    def rest(self, duration_ms: float) -> None:
        self._world.scheduler.sleep(duration_ms)

    def pass_days(self, days: int) -> None:
        world = self._world
        # A lake knows its open transactions; a path table's VACUUM trusts that they are short.
        if world.shape.has_catalog or world.open_transactions == 1:
            world.scheduler.now_ms += days * 86_400_000

    def set_clock(self, hours: float) -> None:
        self._world.set_clock(hours)

    def kill(self) -> None:
        if not self._world.shape.has_catalog:
            return
        transactions = self._session.engine.catalog.of_lake().transactions
        found = transactions.entries()
        if found:
            transactions.kill(found[-1].id)

    def attach(self, name: str) -> None:
        attach(self._session, f"{ROOT}/{WAREHOUSE}/{name}", name)

    def detach(self, name: str) -> None:
        detach(self._session, name)

    def micro_batch(self) -> None:
        query, process = self._world.query, self._process
        assert query is not None
        self.has_read = query.micro_batch(process, self)

    def begun(self) -> Transaction:
        self._open = self._session.begin()
        self._begun()
        return self._open

    def inserted(self, table: str, rows: Rows) -> None:
        self._record.steps.append(Step(Insert(table, rows)))

    def ended(self) -> None:
        assert self._open is not None
        self._note_pins(self._open)
        self._open.commit()
        self._open = None

    def run(self) -> Told:
        record, world = self._record, self._world
        record.begun = world.scheduler.turns
        world.open_transactions += 1
        try:
            self._program.body(self)
            if self._open is not None:
                self._open.commit()
            record.told = Told.COMMITTED
        except Conflict as error:
            self._failed(Told.CONFLICT, error)
        except Unavailable as error:
            self._failed(Told.UNAVAILABLE, error)
        except OutcomeUnknown as error:
            self._failed(Told.UNKNOWN, error)
        except Interrupted as error:
            self._failed(Told.UNKNOWN, error)
        except (InvalidRequest, CorruptTable) as error:
            is_expected = world.plan.may_be_refused and isinstance(error, InvalidRequest)
            is_expected = is_expected or "no space" in str(error)
            is_stale = Misfortune.LISTING_STALE in world.luck.kinds
            if world.disasters is not None and world.disasters.explains(error):
                self._failed(_told_of_recovery(error), error)
            elif is_expected or is_stale or self._misses_cleaned(error):
                self._failed(Told.REFUSED, error)
            else:
                raise
        except Doubt as doubt:
            if not world.is_torn:  # what it expects of all tables together isn't so any more
                raise
            self._failed(Told.REFUSED, doubt)
        finally:
            world.open_transactions -= 1
        record.ended = world.scheduler.turns
        return record.told

    def _misses_cleaned(self, error: BaseException) -> bool:
        """Whether it needs a commit that another engine's clean-up may have deleted."""
        is_cleaned = any(one.kind is Misfortune.LOG_CLEANED for one in self._world.luck.struck)
        text = str(error)
        return is_cleaned and ("is missing (expected" in text or "was cleaned up" in text)

    def _failed(self, told: Told, error: BaseException) -> None:
        record, open_one = self._record, self._open
        may_befall_lake = bool(self._world.luck.kinds & OF_LAKES)
        is_ended_by_others = self._world.has_been_silent or may_befall_lake
        if "nothing was heard of" in str(error) and not is_ended_by_others:
            raise Doubt(f"a living session's transaction was ended: {error}") from error
        record.told = told
        record.error = f"{type(error).__name__}: {error}"
        if isinstance(error, Conflict) and error.evidence is not None:
            record.rule = error.evidence.rule
        if open_one is not None:
            with suppress(Interrupted):  # a transaction that nobody holds ends by itself
                open_one.rollback()
        made = self._session.newest if open_one is None else open_one
        if told is Told.UNKNOWN and made is not None and made.state is State.ROLLED_BACK:
            record.told = Told.ROLLED_BACK  # what the transaction itself says

    def _begun(self) -> None:
        """The record is known from here on, whatever happens."""
        made = self._session.newest if self._open is None else self._open
        if made is not None and not self._record.id:
            self._record.id = made.id
            self._world.records.append(self._record)

    def _note_pins(self, made: Transaction) -> None:
        """What it reads, by table."""
        by_key = {table_id or key: name for name, (table_id, key) in self._world.tables.items()}
        disasters = self._world.disasters
        for handle, table in made.tables:
            name = by_key.get(handle.key.removeprefix("memory://simulated/"))
            if name is not None:
                if disasters is not None and name not in self._record.pins:
                    place = (name, table.base.version)
                    self._record.makers[name] = disasters.chronicle.maker(place, self._era)
                self._record.pins[name] = table.base.version
        if made.sequence is not None:
            if disasters is not None and "" not in self._record.pins:
                is_one = disasters.chronicle.era == self._era
                self._record.era = self._era if is_one else None
            self._record.pins[""] = made.sequence


def _told_of_recovery(error: BaseException) -> Told:
    text = str(error)
    if isinstance(error, CorruptTable) and "is committed, and isn't to be run again" in text:
        return Told.COMMITTED
    if isinstance(error, CorruptTable) and "may not stand" in text:
        return Told.UNKNOWN
    return Told.REFUSED
