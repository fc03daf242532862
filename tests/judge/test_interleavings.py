"""The engine without Spark, one statement at a time: histories by seed, and removed rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from tests.judge.histories import LEVELS, Access, Operation, Verdict, judge
from tests.judge.lakes import RowClient, create_tables, row_lake, table_folders
from tests.judge.programs import (
    Plan,
    Table,
    plan_to_read_all,
    random_plan,
    row_orders,
    run_interleaved,
    run_plan,
    with_row_order,
)
from tests.judge.recorder import LogicalClock, Recorder
from txlake.commit import rebase
from txlake.conflict import rules
from txlake.conflict.footprint import Footprint

WRITE_SERIALIZABLE = "write-serializable"
SEEDS = 2
TRANSACTIONS = 30
pytestmark = [
    pytest.mark.peer("judge"),
    pytest.mark.no_interop("delta-rs has read every version when a history is put in order"),
]


class Run:
    """Three sessions of two engines on one lake, and their history."""

    def __init__(self, folder: Path, *, by_place: bool, level: str | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.history: list[Operation] = []
        self._now = LogicalClock()
        self._warehouse = str(folder / "lake")
        catalog = f"sqlite:///{folder / 'catalog.db'}"
        self._engines = [row_lake(self._warehouse, catalog, level) for _ in range(2)]
        one, other = (engine.__enter__() for engine in self._engines)
        self._clients = [RowClient(one), RowClient(one), RowClient(other)]
        names = ["a"] if by_place else ["a", "b"]
        self.tables: Sequence[Table] = create_tables(
            self._clients[0], self._warehouse, names, by_place=by_place
        )

    def transaction(self, process: int, plan: Plan) -> Iterator[None]:
        """Return a program that runs one transaction in a session."""
        recorder = Recorder(process, self.history.append, self._now)
        return run_plan(self._clients[process % 3], recorder, self.tables, plan)

    def run_all(self, rng: random.Random, plans: Sequence[Plan]) -> None:
        """Run these plans in all sessions, one statement at a time, in a random order."""
        remaining = list(plans)

        def program(process: int) -> Iterator[None]:
            while remaining:
                yield from self.transaction(process, remaining.pop())

        run_interleaved(rng, [program(process) for process in range(len(self._clients))])

    def finish(self) -> list[Operation]:
        """Read everything, close the lake, and return the history."""
        for _ in self.transaction(5, plan_to_read_all(0, LEVELS[0], self.tables)):
            pass
        for engine in self._engines:
            engine.__exit__(None, None, None)
        return with_row_order(self.history, row_orders(table_folders(self._warehouse, self.tables)))


def verdict_on(
    folder: Path,
    seed: int,
    levels: Sequence[str],
    *,
    by_place: bool,
    allows_blind_appends: bool = True,
) -> Verdict:
    """Return the verdict on a random history with transactions at these levels."""
    rng = random.Random(seed)
    alone = levels[0] if len(levels) == 1 else None
    run = Run(folder, by_place=by_place, level=alone)
    plans = [
        random_plan(
            rng,
            number,
            rng.choice(levels),
            run.tables,
            autocommit=bool(alone),
            allows_blind_appends=allows_blind_appends,
        )
        for number in range(1, TRANSACTIONS)
    ]
    run.run_all(rng, plans)
    return judge(run.finish())


Verdicts = Callable[[Sequence[str], bool, int], Verdict]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """Return a function that gives the verdict for levels, kind of tables and seed, each made
    once.
    """

    @cache
    def verdict(levels: Sequence[str], by_place: bool, seed: int) -> Verdict:
        folder = tmp_path_factory.mktemp("judge")
        return verdict_on(folder, seed, levels, by_place=by_place)

    return verdict


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("by_place", [False, True], ids=["catalog", "path"])
@pytest.mark.parametrize("levels", [*((one,) for one in LEVELS), LEVELS], ids="-".join)
def test_each_level_keeps_its_promises(
    verdicts: Verdicts, levels: Sequence[str], by_place: bool
) -> None:
    for seed in range(SEEDS):
        verdict = verdicts(levels, by_place, seed)
        assert verdict.levels["promised"], f"seed {seed}: {verdict.explain('promised')}"
        assert verdict.committed > TRANSACTIONS // 2, seed
        assert verdict.unknown == 0, seed


@pytest.mark.parametrize(
    ("level", "forbidden_by"),
    [(WRITE_SERIALIZABLE, "serializable"), ("snapshot", WRITE_SERIALIZABLE)],
)
def test_weaker_levels_show_anomalies_of_stronger_ones(
    verdicts: Verdicts, level: str, forbidden_by: str
) -> None:
    assert any(
        not verdicts((level,), by_place, seed).levels[forbidden_by]
        for seed in range(5 * SEEDS)
        for by_place in (False, True)
    )


def test_writes_without_blind_appends_are_serializable(tmp_path: Path) -> None:
    level = f"strict-{WRITE_SERIALIZABLE}"
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        verdict = verdict_on(
            folder, seed, [WRITE_SERIALIZABLE], by_place=False, allows_blind_appends=False
        )
        assert verdict.levels[level], f"seed {seed}: {verdict.explain(level)}"


# Removed rules

SKEW_BY_SELECTS = (
    [("r", "a.x", None), ("append", "a.y", 1)],
    [("r", "a.y", None), ("append", "a.x", 2)],
)
SKEW_BY_WRITES = (
    [("rfw", "a.p", None), ("insert", "a.q", 1)],
    [("rfw", "a.q", None), ("insert", "a.p", 2)],
)
LOST_UPDATE = [("append", "a.x", 1)], [("append", "a.x", 2)]


@pytest.mark.parametrize("by_place", [False, True], ids=["catalog", "path"])
@pytest.mark.parametrize(
    ("rule", "level", "both"),
    [
        ("select_not_true", "serializable", SKEW_BY_SELECTS),
        ("rows_added", WRITE_SERIALIZABLE, SKEW_BY_WRITES),
        ("rows_deleted_by_both", "snapshot", LOST_UPDATE),
    ],
    ids=["select_not_true", "rows_added", "rows_deleted_by_both"],
)
def test_without_a_rule_the_level_does_not_hold(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    level: str,
    both: Sequence[Sequence[Access]],
    by_place: bool,
) -> None:
    def verdict(folder: str) -> Verdict:
        run = Run(tmp_path / folder, by_place=by_place)
        programs = [run.transaction(n, Plan(n, level, both[n - 1])) for n in (1, 2)]
        for one, _ in product(programs, range(len(both[0]) + 1)):
            next(one)  # up to its COMMIT
        for one in programs:
            assert list(one) == []
        return judge(run.finish())

    unchanged = verdict("unchanged")
    assert (unchanged.failed, unchanged.levels["promised"]) == (1, True), unchanged.explain(
        "promised"
    )
    if rule == "select_not_true":
        monkeypatch.setattr(rebase, "check_selects", lambda *_: None)
    remaining = tuple(one for one in rules.RULES_AFTER_SELECTS if one.__name__ != rule)
    monkeypatch.setattr(rebase, "RULES_AFTER_SELECTS", remaining)
    without = verdict("without")
    assert (without.failed, without.levels["promised"]) == (0, False)


# Blind appends at WriteSerializable


APPEND_VALUES: Sequence[Access] = [("insert", "a.p", 2)]
APPEND_FROM_ANOTHER_TABLE: Sequence[Access] = [("rfw", "b.x", None), ("insert", "a.p", 2)]


def run_beside_blind_append(
    run: Run, level: str, appended: Sequence[Access] = APPEND_VALUES
) -> None:
    """Run a transaction that misses a blind append to p, and one that sees it but not the
    first's write.
    """
    first = run.transaction(0, Plan(1, level, [("rfw", "a.p", None), ("append", "a.x", 1)]))
    for _ in range(3):
        next(first)  # up to its COMMIT
    blind = Plan(2, level, appended)
    third = Plan(3, level, [("rfw", "a.p", None), ("rfw", "a.x", None), ("insert", "a.q", 3)])
    for one in (run.transaction(1, blind), run.transaction(2, third), first):
        for _ in one:
            pass


@pytest.mark.parametrize(
    ("appended", "by_place"),
    [(APPEND_VALUES, False), (APPEND_VALUES, True), (APPEND_FROM_ANOTHER_TABLE, False)],
    ids=["catalog", "path", "of another table"],
)
def test_write_serializable_exempts_blind_appends_from_the_order(
    tmp_path: Path, appended: Sequence[Access], by_place: bool
) -> None:
    run = Run(tmp_path, by_place=by_place)
    run_beside_blind_append(run, WRITE_SERIALIZABLE, appended)
    verdict = judge(run.finish())
    assert verdict.failed == 0
    # Delta exempts blind appends, so the three writes have no order.
    assert verdict.anomalies[WRITE_SERIALIZABLE] == {"G2-item"}
    assert verdict.levels["promised"], verdict.explain("promised")


@pytest.mark.parametrize(
    "appended", [APPEND_VALUES, APPEND_FROM_ANOTHER_TABLE], ids=["values", "select"]
)
def test_serializable_does_not_exempt_blind_appends(
    tmp_path: Path, appended: Sequence[Access]
) -> None:
    run = Run(tmp_path, by_place=False)
    run_beside_blind_append(run, "serializable", appended)
    verdict = judge(run.finish())
    assert verdict.failed == 1
    assert verdict.levels["promised"], verdict.explain("promised")


def test_a_write_to_what_a_blind_append_read_conflicts_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict(folder: str) -> Verdict:
        run = Run(tmp_path / folder, by_place=False)
        accesses: Sequence[Access] = [("rfw", "a.p", None), ("append", "b.x", 1)]
        first = run.transaction(0, Plan(1, WRITE_SERIALIZABLE, accesses))
        for _ in range(3):
            next(first)  # up to its COMMIT
        for one in (
            run.transaction(1, Plan(2, WRITE_SERIALIZABLE, APPEND_FROM_ANOTHER_TABLE)),
            first,
        ):
            for _ in one:
                pass
        return judge(run.finish())

    unchanged = verdict("unchanged")
    assert (unchanged.failed, unchanged.levels["promised"]) == (1, True), unchanged.explain(
        "promised"
    )
    monkeypatch.setattr(Footprint, "can_precede", lambda _, winner: winner.is_blind_append)
    without = verdict("without")
    assert (without.failed, without.levels["promised"]) == (0, False)
    assert "write-skew" in without.anomalies["promised"]
