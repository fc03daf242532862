"""The engine without Spark, one statement at a time: histories by seed, and rules switched off."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from tests.judge.histories import LEVELS, Access, Operation, Verdict, judged
from tests.judge.lakes import RowClient, made, places, row_lake
from tests.judge.programs import (
    Plan,
    Table,
    carried_out,
    drawn,
    everything,
    in_order,
    interleaved,
    orders,
)
from tests.judge.recorder import Recorder, Ticks
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
    """Three sessions of two engines on one lake, and what they did."""

    def __init__(self, folder: Path, *, by_place: bool, level: str | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.history: list[Operation] = []
        self._now = Ticks()
        self._warehouse = str(folder / "lake")
        catalog = f"sqlite:///{folder / 'catalog.db'}"
        self._engines = [row_lake(self._warehouse, catalog, level) for _ in range(2)]
        one, other = (engine.__enter__() for engine in self._engines)
        self._clients = [RowClient(one), RowClient(one), RowClient(other)]
        names = ["a"] if by_place else ["a", "b"]
        self.tables: Sequence[Table] = made(
            self._clients[0], self._warehouse, names, by_place=by_place
        )

    def transaction(self, process: int, plan: Plan) -> Iterator[None]:
        """One more, by a session."""
        recorder = Recorder(process, self.history.append, self._now)
        return carried_out(self._clients[process % 3], recorder, self.tables, plan)

    def all_of(self, dice: random.Random, plans: Sequence[Plan]) -> None:
        """These, by all sessions, one statement at a time; whose turn it is is drawn."""
        left = list(plans)

        def program(process: int) -> Iterator[None]:
            while left:
                yield from self.transaction(process, left.pop())

        interleaved(dice, [program(process) for process in range(len(self._clients))])

    def ended(self) -> list[Operation]:
        """Closes the lake; the history, with a reader of everything at its end."""
        for _ in self.transaction(5, everything(0, LEVELS[0], self.tables)):
            pass
        for engine in self._engines:
            engine.__exit__(None, None, None)
        return in_order(self.history, orders(places(self._warehouse, self.tables)))


def verdict_on(
    folder: Path,
    seed: int,
    levels: Sequence[str],
    *,
    by_place: bool,
    blind: bool = True,
) -> Verdict:
    """On a history in which each transaction is at one of these levels."""
    dice = random.Random(seed)
    alone = levels[0] if len(levels) == 1 else None
    run = Run(folder, by_place=by_place, level=alone)
    plans = [
        drawn(dice, number, dice.choice(levels), run.tables, alone=bool(alone), blind=blind)
        for number in range(1, TRANSACTIONS)
    ]
    run.all_of(dice, plans)
    return judged(run.ended())


Verdicts = Callable[[Sequence[str], bool, int], Verdict]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """On the histories of this file, by levels, kind of tables and seed; each is made once."""

    @cache
    def verdict(levels: Sequence[str], by_place: bool, seed: int) -> Verdict:
        folder = tmp_path_factory.mktemp("judged")
        return verdict_on(folder, seed, levels, by_place=by_place)

    return verdict


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("by_place", [False, True], ids=["catalog", "path"])
@pytest.mark.parametrize("levels", [*((one,) for one in LEVELS), LEVELS], ids="-".join)
def test_each_transaction_gets_what_its_level_promises(
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
def test_a_weaker_level_does_show_what_a_stronger_one_forbids(
    verdicts: Verdicts, level: str, forbidden_by: str
) -> None:
    assert any(
        not verdicts((level,), by_place, seed).levels[forbidden_by]
        for seed in range(5 * SEEDS)
        for by_place in (False, True)
    )


def test_writes_have_an_order_where_none_of_them_is_a_blind_append(tmp_path: Path) -> None:
    level = f"strict-{WRITE_SERIALIZABLE}"
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        verdict = verdict_on(folder, seed, [WRITE_SERIALIZABLE], by_place=False, blind=False)
        assert verdict.levels[level], f"seed {seed}: {verdict.explain(level)}"


# Rules switched off

OF_SELECTS = [("r", "a.x", None), ("append", "a.y", 1)], [("r", "a.y", None), ("append", "a.x", 2)]
OF_ROWS = [("rfw", "a.p", None), ("insert", "a.q", 1)], [("rfw", "a.q", None), ("insert", "a.p", 2)]
LOST = [("append", "a.x", 1)], [("append", "a.x", 2)]


@pytest.mark.parametrize("by_place", [False, True], ids=["catalog", "path"])
@pytest.mark.parametrize(
    ("rule", "level", "both"),
    [
        ("select_not_true", "serializable", OF_SELECTS),
        ("rows_added", WRITE_SERIALIZABLE, OF_ROWS),
        ("rows_deleted_by_both", "snapshot", LOST),
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
        return judged(run.ended())

    kept = verdict("kept")
    assert (kept.failed, kept.levels["promised"]) == (1, True), kept.explain("promised")
    if rule == "select_not_true":
        monkeypatch.setattr(rebase, "check_selects", lambda *_: None)
    left = tuple(one for one in rules.RULES_AFTER_SELECTS if one.__name__ != rule)
    monkeypatch.setattr(rebase, "RULES_AFTER_SELECTS", left)
    without = verdict("without")
    assert (without.failed, without.levels["promised"]) == (0, False)


# What a blind append costs WriteSerializable


OF_VALUES: Sequence[Access] = [("insert", "a.p", 2)]
OF_ANOTHER_TABLE: Sequence[Access] = [("rfw", "b.x", None), ("insert", "a.p", 2)]


def missing_a_blind_append(run: Run, level: str, appended: Sequence[Access] = OF_VALUES) -> None:
    """One misses a blind append to p; a third sees it, and not the first one's write."""
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
    [(OF_VALUES, False), (OF_VALUES, True), (OF_ANOTHER_TABLE, False)],
    ids=["catalog", "path", "of another table"],
)
def test_a_blind_append_is_beside_the_order_of_writes(
    tmp_path: Path, appended: Sequence[Access], by_place: bool
) -> None:
    run = Run(tmp_path, by_place=by_place)
    missing_a_blind_append(run, WRITE_SERIALIZABLE, appended)
    verdict = judged(run.ended())
    assert verdict.failed == 0
    # Delta exempts blind appends; so nobody can say which of the three writes was first.
    assert verdict.anomalies[WRITE_SERIALIZABLE] == {"G2-item"}
    assert verdict.levels["promised"], verdict.explain("promised")


@pytest.mark.parametrize("appended", [OF_VALUES, OF_ANOTHER_TABLE], ids=["values", "select"])
def test_serializable_exempts_no_blind_append(tmp_path: Path, appended: Sequence[Access]) -> None:
    run = Run(tmp_path, by_place=False)
    missing_a_blind_append(run, "serializable", appended)
    verdict = judged(run.ended())
    assert verdict.failed == 1
    assert verdict.levels["promised"], verdict.explain("promised")


def test_who_changes_what_a_blind_append_had_read_may_not_miss_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict(folder: str) -> Verdict:
        run = Run(tmp_path / folder, by_place=False)
        accesses: Sequence[Access] = [("rfw", "a.p", None), ("append", "b.x", 1)]
        first = run.transaction(0, Plan(1, WRITE_SERIALIZABLE, accesses))
        for _ in range(3):
            next(first)  # up to its COMMIT
        for one in (run.transaction(1, Plan(2, WRITE_SERIALIZABLE, OF_ANOTHER_TABLE)), first):
            for _ in one:
                pass
        return judged(run.ended())

    kept = verdict("kept")
    assert (kept.failed, kept.levels["promised"]) == (1, True), kept.explain("promised")
    monkeypatch.setattr(Footprint, "can_precede", lambda _, winner: winner.is_blind_append)
    without = verdict("without")
    assert (without.failed, without.levels["promised"]) == (0, False)
    assert "write-skew" in without.anomalies["promised"]
