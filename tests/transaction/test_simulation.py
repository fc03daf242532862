"""The commit loop on a simulated machine: whatever is lost or dies, the log tells one story.

Every seed is one schedule of processes, lost replies, late requests and crashes. The log is checked
against what the processes were told, and against running their transactions one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.support.simulation import Faults, Scheduler, SimulatedStore, SimulatedSystem
from txlake.conflict.levels import Level
from txlake.errors import Conflict, OutcomeUnknown, Unavailable
from txlake.log.predicates import bind, parse_predicate
from txlake.protocol.actions import Add, CommitInfo, Metadata, Remove, decode_actions
from txlake.protocol.file_names import commit_path
from txlake.settings import RetrySettings, Settings
from txlake.transaction.table_log import TableLog
from txlake.transaction.table_transaction import TableTransaction

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "k", "type": "string", "nullable": True, "metadata": {}},
            {"name": "n", "type": "long", "nullable": True, "metadata": {}},
        ],
    }
)
KINDS = {
    "quiet": Faults(),
    "lost replies": Faults(lost_before=0.2, lost_after=0.2),
    "late requests": Faults(late=0.3),
    "crashes": Faults(crash=0.03),
    "everything": Faults(lost_before=0.1, lost_after=0.1, late=0.1, unavailable=0.02, crash=0.01),
}


@dataclass
class World:
    """One simulated machine with one table of counters: a file a value, in partition `k`."""

    seed: int
    faults: Faults
    told: dict[str, str] = field(default_factory=dict)  # what became of each step, as told

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.seed)
        self.system = SimulatedSystem(self.scheduler)
        self.store = SimulatedStore(self.scheduler, self.system, self.faults)
        settings = RetrySettings(commit_attempts_max=30, wait_ms_min=1, wait_ms_max=50)
        self.settings = Settings(retry=settings)
        log = self.open()
        table = TableTransaction(log, None)
        metadata = Metadata(id="t", schema_string=SCHEMA, partition_columns=("k",))
        table.stage([metadata], operation="CREATE TABLE")
        table.commit()

    def open(self) -> TableLog:
        return TableLog(self.store, self.system, self.settings, name="t")

    def file(self, key: str, value: int, name: str) -> Add:
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

    def commits(self) -> dict[int, list[Add | Remove | CommitInfo]]:
        """What the log holds, by version, which must be contiguous."""
        self.store.deliver()
        found = {}
        version = 0
        while (path := commit_path(version)) in self.store.files:
            actions = decode_actions(self.store.files[path][0], file=path)
            found[version] = [a for a in actions if isinstance(a, Add | Remove | CommitInfo)]
            version += 1
        numbered = [p for p in self.store.files if p.endswith(".json") and "checkpoint" not in p]
        assert len(numbered) == version, "a gap in the log"
        return found

    def replay(self) -> dict[str, Add]:
        """The live files by running all commits one by one; each must make sense in its place."""
        live: dict[str, Add] = {}
        ids: set[str] = set()
        for version, actions in self.commits().items():
            txn_ids = [a.text("txnId") for a in actions if isinstance(a, CommitInfo)]
            assert len(txn_ids) == 1, version
            assert txn_ids[0] not in ids, "a transaction committed twice"
            ids.add(str(txn_ids[0]))
            for action in actions:
                if isinstance(action, Remove):
                    assert live.pop(action.path, None) is not None, "a file removed twice"
            for action in actions:
                if isinstance(action, Add):
                    assert action.path not in live, "a file added twice"
                    live[action.path] = action
        return live

    def step(self, name: str, work: Callable[[], None]) -> bool:
        """Runs one commit and notes what was told of it. Whether it may be tried again."""
        self.told[name] = "died"
        try:
            work()
        except Conflict:
            self.told[name] = "conflict"
            return True
        except OutcomeUnknown:
            self.told[name] = "unknown"
            return False
        except Unavailable:
            self.told[name] = "unavailable"
            return True
        self.told[name] = "committed"
        return False


def value_of(file: Add) -> int:
    return int(json.loads(file.stats or "")["maxValues"]["n"])


SEEDS = range(12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_appends_are_there_exactly_when_told_so(kind: str, seed: int) -> None:
    world = World(seed, KINDS[kind])

    def process(number: int) -> Callable[[], None]:
        def run() -> None:
            log = world.open()
            for turn in range(4):
                name = f"{number}-{turn}"

                def append(name: str = name) -> None:
                    table = TableTransaction(log, log.latest())
                    table.stage([world.file("a", 1, name)], operation="WRITE")
                    table.commit()

                world.step(name, append)

        return run

    world.scheduler.run([process(number) for number in range(4)])
    live = {path.removeprefix("k=a/") for path in world.replay()}
    for name, told in world.told.items():
        if told == "committed":
            assert name in live
        elif told not in ("unknown", "died"):
            assert name not in live, told
    assert live <= set(world.told)
    if kind == "quiet":
        assert len(live) == 16


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_increment_is_lost(kind: str, seed: int, level: Level) -> None:
    world = World(seed, KINDS[kind])
    first = TableTransaction(world.open(), world.open().latest())
    first.stage([world.file("a", 0, "zero")], operation="WRITE")
    first.commit()

    def process(number: int) -> Callable[[], None]:
        def run() -> None:
            log = world.open()
            for turn in range(3):
                for attempt in range(20):
                    name = f"{number}-{turn}-{attempt}"

                    def increment(name: str = name) -> None:
                        base = log.latest()
                        table = TableTransaction(log, base, level)
                        table.read(bind(parse_predicate("k = 'a'"), base.schema), "k = 'a'")
                        (now,) = base.files.adds()
                        after = world.file("a", value_of(now) + 1, name)
                        table.stage([now.removed(timestamp_ms=1), after], operation="UPDATE")
                        table.commit()

                    if not world.step(name, increment):
                        break

        return run

    world.scheduler.run([process(number) for number in range(3)])
    (final,) = world.replay().values()
    added = {
        action.path.removeprefix("k=a/")
        for actions in world.commits().values()
        for action in actions
        if isinstance(action, Add)
    }
    assert value_of(final) == len(added) - 1
    for name, told in world.told.items():
        assert (name in added) or told != "committed"
        assert (name not in added) or told in ("committed", "unknown", "died")
    if kind == "quiet":
        assert value_of(final) == 9


def write_skew(seed: int, level: Level) -> tuple[int, dict[str, str]]:
    """Two read both accounts and each takes from one, as long as the sum allows it."""
    world = World(seed, Faults())
    first = TableTransaction(world.open(), world.open().latest())
    first.stage([world.file("x", 50, "x"), world.file("y", 50, "y")], operation="WRITE")
    first.commit()

    def process(key: str) -> Callable[[], None]:
        def run() -> None:
            log = world.open()

            def withdraw() -> None:
                base = log.latest()
                table = TableTransaction(log, base, level)
                table.read()
                files = {file.partition_values["k"]: file for file in base.files.adds()}
                if sum(map(value_of, files.values())) >= 80:
                    now = files[key]
                    after = world.file(key, value_of(now) - 80, f"{key}-after")
                    table.stage([now.removed(timestamp_ms=1), after], operation="UPDATE")
                table.commit()

            world.step(key, withdraw)

        return run

    world.scheduler.run([process("x"), process("y")])
    return sum(value_of(file) for file in world.replay().values()), world.told


def test_write_skew_is_possible_under_snapshot_alone() -> None:
    sums = {level: {write_skew(seed, level)[0] for seed in range(10)} for level in Level}
    assert sums[Level.SERIALIZABLE] == {20}
    assert sums[Level.WRITE_SERIALIZABLE] == {20}
    assert -60 in sums[Level.SNAPSHOT]


def test_a_seed_replays() -> None:
    def story(seed: int) -> dict[str, tuple[bytes, int]]:
        world = World(seed, KINDS["everything"])

        def run() -> None:
            log = world.open()
            for turn in range(5):

                def append(turn: int = turn) -> None:
                    table = TableTransaction(log, log.latest())
                    table.stage(
                        [world.file("a", 1, f"{world.system.new_id()}-{turn}")], operation="WRITE"
                    )
                    table.commit()

                world.step(f"{turn}", append)

        world.scheduler.run([run, run, run])
        return world.store.files

    assert story(3) == story(3)
