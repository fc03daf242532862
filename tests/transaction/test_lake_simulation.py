"""Transactions over many tables on a simulated machine: one story, told the same by everybody.

Every seed is one schedule of processes, misfortunes of stores and of the catalog, and deaths. What
was committed is checked against running the transactions one by one, in the order of the lake's
instants: each must have read what it would have read then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.support.ledger import SimulatedLedger
from tests.support.simulation import Crashed, Faults, Scheduler, SimulatedStore, SimulatedSystem
from tests.transaction.lake_of import LakeOf, LakeTransaction, counter, value_of
from txlake.conflict.levels import Level
from txlake.errors import Conflict, OutcomeUnknown, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Remove, decode_actions
from txlake.protocol.file_names import commit_path
from txlake.settings import RetrySettings, Settings
from txlake.transaction.publication import content_of

TABLES = ("a", "b", "c")
KEYS = ("x", "y")
KINDS = {
    "quiet": Faults(),
    "lost replies": Faults(lost_before=0.1, lost_after=0.1),
    "the catalog is away": Faults(unavailable=0.05),
    "deaths": Faults(crash=0.02),
    "everything": Faults(
        lost_before=0.05, lost_after=0.05, late=0.05, unavailable=0.02, crash=0.005
    ),
}
SEEDS = range(8)
Place = tuple[str, str]


@dataclass
class World:
    """A lake with a file of value 100 for each key of each table."""

    seed: int
    faults: Faults
    told: dict[str, str] = field(default_factory=dict)  # by transaction id
    read: dict[str, dict[Place, str]] = field(default_factory=dict)  # the files, likewise
    wrote: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.seed)
        self.chance = self.scheduler.chance
        self.system = SimulatedSystem(self.scheduler)
        retry = RetrySettings(commit_attempts_max=30, wait_ms_min=1, wait_ms_max=50, queue_ms_max=0)
        self.lake = LakeOf(
            Settings(retry=retry, inline_commit_bytes_max=self.chance.choice([0, 1 << 20])),
            system=self.system,
            store=lambda _: SimulatedStore(self.scheduler, self.system, self.faults),
            ledger=SimulatedLedger(self.system.now_ms, self.misfortune),
        )
        files = {table: [counter(key, 100, f"{table}-{key}") for key in KEYS] for table in TABLES}
        self.lake.create(files=files)

    def misfortune(self, moment: str) -> None:
        """What may happen to a request to the catalog, before it and after."""
        if not self.scheduler.in_process:
            return
        self.scheduler.pause()
        if self.happens(self.faults.crash):
            raise Crashed
        if moment == "ratify" and self.happens(self.faults.lost_before):
            raise OutcomeUnknown("nobody knows")
        if moment == "ratify done" and self.happens(self.faults.lost_after):
            raise OutcomeUnknown("nobody knows")
        if not moment.endswith("done") and self.happens(self.faults.unavailable):
            raise Unavailable("the catalog is away")

    def happens(self, likelihood: float) -> bool:
        return likelihood > 0 and self.chance.random() < likelihood

    def look(self, tx: LakeTransaction, place: Place, *, plain: bool = False) -> Add:
        """Reads the counter of a key in a table."""
        table, key = place
        tx.read(table, f"k = '{key}'", plain=plain)
        self.read.setdefault(tx.id, {})[place] = live(tx.tables[table].base)[key].path
        return live(tx.tables[table].view)[key]

    def write(self, tx: LakeTransaction, place: Place, change: int) -> None:
        """Adds to the counter."""
        now = self.look(tx, place)
        self.wrote.add(tx.id)
        after = counter(place[1], value_of(now) + change, self.system.new_id())
        tx.table(place[0]).stage([now.removed(timestamp_ms=1), after], operation="UPDATE")

    def run(self, work: Callable[[LakeTransaction], None], level: Level | None) -> bool:
        """A transaction of one process; whether it may be tried again."""
        tx = self.lake.begin(level)
        self.told[tx.id] = "died"
        try:
            work(tx)
            tx.commit()
        except Conflict:
            self.told[tx.id] = "conflict"
        except OutcomeUnknown:
            self.told[tx.id] = "unknown"
            return False
        except Unavailable:
            self.told[tx.id] = "unavailable"
        else:
            self.told[tx.id] = "committed"
            return False
        return True

    def places(self, count: int) -> list[Place]:
        return self.chance.sample([(table, key) for table in TABLES for key in KEYS], count)

    def story(self) -> list[Mapping[Place, str]]:
        """The live files after each instant, by the ratified bytes; each must fit its place."""
        states: list[Mapping[Place, str]] = [{}]
        for sequence in range(1, len(self.lake.ledger.ratified) + 1):
            state = dict(states[-1])
            for name, table in self.lake.ledger.tables.items():
                for version, since in table.since.items():
                    if since == sequence:
                        actions = self.actions(name, version)
                        for remove in (one for one in actions if isinstance(one, Remove)):
                            place = (name, key_of(remove))
                            assert state.pop(place) == remove.path, "removed twice"
                        for add in (one for one in actions if isinstance(one, Add)):
                            place = (name, key_of(add))
                            assert place not in state, "added twice"
                            state[place] = add.path
            states.append(state)
        return states

    def actions(self, name: str, version: int) -> list[object]:
        commit = self.lake.ledger.tables[name].commits[version]
        data = content_of(self.lake.store(name), commit)
        return list(decode_actions(data, file=name))

    def check(self) -> None:
        """What was told is so, everything is published, and every reader reads that."""
        assert len(set(self.lake.ledger.ratified)) == len(self.lake.ledger.ratified)
        for tx_id, told in self.told.items():
            is_there = tx_id in self.lake.ledger.ratified
            if told == "committed":
                assert is_there is (tx_id in self.wrote)
            elif told in ("conflict", "unavailable"):
                assert not is_there, told
        final = self.story()[-1]
        for name in TABLES:
            store = self.lake.store(name)
            assert isinstance(store, SimulatedStore)
            head = self.lake.ledger.tables[name].head
            ours = self.lake.open(name).latest()
            assert ours.version == head
            theirs = self.lake.plain(name).latest()
            assert theirs.version == head
            store.deliver()
            for version in range(head + 1):
                assert commit_path(version) in store.files
            assert commit_path(head + 1) not in store.files
            for snapshot in (ours, theirs):
                files = {(name, key): add.path for key, add in live(snapshot).items()}
                assert files == {place: path for place, path in final.items() if place[0] == name}

    def check_reads(self) -> list[str]:
        """The transactions that read something else than they would have read one by one."""
        states = self.story()
        wrong = []
        for number, tx_id in enumerate(self.lake.ledger.ratified):
            before = states[number]
            if any(before[place] != path for place, path in self.read.get(tx_id, {}).items()):
                wrong.append(tx_id)
        return wrong


def key_of(file: Add | Remove) -> str:
    return file.path.partition("/")[0].removeprefix("k=")


def live(snapshot: Snapshot) -> dict[str, Add]:
    return {key_of(file): file for file in snapshot.files.adds()}


def retried(world: World, work: Callable[[LakeTransaction], None], level: Level | None) -> None:
    for _ in range(20):
        if not world.run(work, level):
            break


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_bank_keeps_its_money_and_readers_see_all_of_it(
    kind: str, seed: int, level: Level
) -> None:
    world = World(seed, KINDS[kind])
    sums: list[int] = []

    def clerk() -> None:
        for _ in range(3):
            source, target = world.places(2)

            def transfer(
                tx: LakeTransaction, source: Place = source, target: Place = target
            ) -> None:
                world.write(tx, source, -7)
                world.write(tx, target, +7)

            retried(world, transfer, level)

    def auditor() -> None:
        for _ in range(4):

            def add_up(tx: LakeTransaction) -> None:
                found = [
                    value_of(world.look(tx, (name, key), plain=True))
                    for name in TABLES
                    for key in KEYS
                ]
                sums.append(sum(found))

            world.run(add_up, Level.SERIALIZABLE)

    world.scheduler.run([clerk, clerk, clerk, auditor])
    assert set(sums) <= {600}
    world.check()
    final = [
        value_of(add) for name in TABLES for add in live(world.lake.open(name).latest()).values()
    ]
    assert sum(final) == 600
    assert world.check_reads() == []
    if kind == "quiet":
        assert len(sums) == 4
        assert list(world.told.values()).count("committed") == 9 + 4


def mixed(seed: int, kind: str, level: Level, *, plain: bool) -> World:
    """Transactions that read here and write there."""
    world = World(seed, KINDS[kind])

    def process() -> None:
        for _ in range(3):
            reads, writes = world.places(2), world.places(1)

            def work(
                tx: LakeTransaction, reads: list[Place] = reads, writes: list[Place] = writes
            ) -> None:
                for place in reads:
                    world.look(tx, place, plain=plain)
                for place in writes:
                    world.write(tx, place, +1)

            retried(world, work, level)

    world.scheduler.run([process] * 4)
    world.check()
    return world


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_serializable_transactions_read_what_they_would_have_read_one_by_one(
    kind: str, seed: int
) -> None:
    assert mixed(seed, kind, Level.SERIALIZABLE, plain=True).check_reads() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_write_serializable_ones_do_so_for_what_they_write(seed: int) -> None:
    assert mixed(seed, "quiet", Level.WRITE_SERIALIZABLE, plain=False).check_reads() == []


def test_looser_levels_let_reads_be_untrue() -> None:
    """The check can see it, and the levels differ where they say so."""

    def wrong(level: Level, *, plain: bool) -> int:
        worlds = [mixed(seed, "quiet", level, plain=plain) for seed in SEEDS]
        return sum(len(world.check_reads()) for world in worlds)

    assert wrong(Level.SNAPSHOT, plain=False) > 0
    assert wrong(Level.WRITE_SERIALIZABLE, plain=True) > 0


def cycle(seed: int, level: Level) -> tuple[World, int]:
    """Each reads a table and writes the next: a cycle when all read what was there before."""
    world = World(seed, Faults())

    def process(reads: str, writes: str) -> Callable[[], None]:
        def work(tx: LakeTransaction) -> None:
            world.look(tx, (reads, "x"), plain=True)
            world.write(tx, (writes, "x"), +1)

        def run() -> None:
            world.run(work, level)

        return run

    world.scheduler.run([process("a", "b"), process("b", "c"), process("c", "a")])
    world.check()
    return world, list(world.told.values()).count("committed")


def test_a_cycle_through_tables_that_are_only_read_is_refused() -> None:
    strict = [cycle(seed, Level.SERIALIZABLE) for seed in range(30)]
    assert all(world.check_reads() == [] for world, _ in strict)
    loose = [cycle(seed, Level.SNAPSHOT) for seed in range(30)]
    assert {committed for _, committed in loose} == {3}
    assert any(world.check_reads() for world, _ in loose)


def losses(seed: int, reserve_after: int) -> int:
    """How often the unluckiest lost of many that append to the same tables over and over."""
    world = World(seed, Faults())
    retry = RetrySettings(
        commit_attempts_max=100, wait_ms_min=1, wait_ms_max=4, reserve_after=reserve_after
    )
    world.lake.settings = replace(world.lake.settings, retry=retry)

    def process() -> None:
        for _ in range(3):

            def append(tx: LakeTransaction) -> None:
                for name in TABLES[:2]:
                    file = counter("x", 1, world.system.new_id())
                    tx.table(name).stage([file], operation="WRITE")

            world.run(append, None)

    world.scheduler.run([process] * 6)
    assert set(world.told.values()) == {"committed"}
    return max(world.lake.ledger.losses.values())


def test_who_lost_often_has_the_next_turn() -> None:
    seeds = range(5)
    with_turns = [losses(seed, reserve_after=2) for seed in seeds]
    without = [losses(seed, reserve_after=1_000) for seed in seeds]
    # While another has its turn, who waits for his own may lose to it once or twice more.
    assert max(with_turns) <= 4
    assert min(map(operator.sub, without, with_turns)) >= 1


def test_a_seed_replays() -> None:
    def story(seed: int) -> tuple[list[str], list[Mapping[Place, str]]]:
        world = mixed(seed, "everything", Level.SERIALIZABLE, plain=True)
        return world.lake.ledger.ratified, world.story()

    assert story(5) == story(5)
