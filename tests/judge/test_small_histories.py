"""The judge agrees with brute force: small random histories, tried in every possible order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.judge.histories import Access, Operation, judged_all

pytestmark = pytest.mark.peer("judge")

KEYS = ("x", "y")
HISTORIES = 1_500
State = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Transaction:
    """Reads, then appends; when it began and ended."""

    reads: Sequence[Access]
    appends: Sequence[Access]
    began: int
    ended: int

    def reads_are(self, state: State, kinds: Sequence[str] = ("r", "rfw")) -> bool:
        return all(kind not in kinds or state[key] == tuple(seen) for kind, key, seen in self.reads)

    def after(self, state: State) -> State:
        new = dict(state)
        for _, key, element in self.appends:
            new[key] = (*new[key], element)
        return new

    def operations(self, process: int) -> list[Operation]:
        asked = [*((kind, key, None) for kind, key, _ in self.reads), *self.appends]
        began = {"type": "invoke", "process": process, "time": self.began, "value": asked}
        done = [*self.reads, *self.appends]
        return [began, {"type": "ok", "process": process, "time": self.ended, "value": done}]


def drawn(dice: random.Random) -> list[Transaction]:
    """Three transactions that saw anything, and one at the end that saw all that was written."""
    appended: dict[str, list[int]] = {key: [] for key in KEYS}
    shapes = []
    item = dice.choice(["append", "append", "insert"])
    for number in range(3):
        appends = [(item, key, number) for key in KEYS if dice.random() < 0.5]
        for _, key, element in appends:
            appended[key].append(element)
        shapes.append(appends)
    for elements in appended.values():
        dice.shuffle(elements)
    transactions = []
    for number, appends in enumerate(shapes):
        reads = []
        for key in KEYS:
            others = [one for one in appended[key] if one != number]
            if dice.random() < 0.7:
                kind = dice.choice(["r", "rfw"]) if appends else "r"
                order = appended[key][: dice.randint(0, len(others))]
                reads.append((kind, key, [one for one in order if one != number]))
        began = dice.randrange(30)
        transactions.append(
            Transaction(reads, appends, began, began + dice.randrange(1, 30))  # type: ignore[arg-type]
        )
    last = [("r", key, appended[key]) for key in KEYS]
    return [*transactions, Transaction(last, [], 98, 99)]  # type: ignore[arg-type]


def wrote(transactions: Sequence[Transaction]) -> bool:
    return any(one.appends for one in transactions)


def in_time(order: Sequence[Transaction]) -> bool:
    return not any(
        later.ended < earlier.began for earlier, later in itertools.combinations(order, 2)
    )


def orders(transactions: Sequence[Transaction], *, strict: bool) -> Iterator[list[Transaction]]:
    """Every order of these that ends with the last one."""
    for order in itertools.permutations(transactions[:-1]):
        if not strict or in_time(order):
            yield [*order, transactions[-1]]


def serial(order: Sequence[Transaction], kinds: Sequence[str] = ("r", "rfw")) -> bool:
    state: State = dict.fromkeys(KEYS, ())
    for one in order:
        if not one.reads_are(state, kinds):
            return False
        state = one.after(state)
    return state == {key: tuple(seen) for _, key, seen in order[-1].reads}


def serializable(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    return any(serial(order) for order in orders(transactions, strict=strict))


def snapshot(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    """Some order of begins and commits: each read its snapshot and changed what is in it."""
    writers = range(len(transactions) - 1)
    return any(
        (not strict or _instants_in_time(order, transactions)) and _snapshots(order, transactions)
        for order in set(itertools.permutations([*writers, *writers]))
    )


def _instants_in_time(order: Sequence[int], transactions: Sequence[Transaction]) -> bool:
    commits = {n: at for at, n in enumerate(order)}
    begins = {n: at for at, n in reversed(list(enumerate(order)))}
    return not any(
        transactions[one].ended < transactions[other].began and commits[one] > begins[other]
        for one, other in itertools.permutations(begins, 2)
    )


def _snapshots(order: Sequence[int], transactions: Sequence[Transaction]) -> bool:
    """Whether it is so with each number once for a begin and once for a commit, in this order."""
    state: State = dict.fromkeys(KEYS, ())
    seen: dict[int, State] = {}
    for n in order:
        one = transactions[n]
        if n not in seen:
            if not one.reads_are(state):
                return False
            seen[n] = state
            continue
        changed = [key for kind, key, _ in one.appends if kind == "append"]
        if any(state[key] != seen[n][key] for key in changed):
            return False
        state = one.after(state)
    return transactions[-1].reads_are(state)


def write_serializable(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    *others, last = transactions
    writers = [*(one for one in others if one.appends), last]
    return snapshot(transactions, strict=strict) and _have_an_order(writers, strict=strict)


def _have_an_order(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    last = transactions[-1]
    return any(
        serial(order, ["rfw"]) and last.reads_are(_end(order))
        for order in orders(transactions, strict=strict)
    )


def beside_appends(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    """The writes have an order if blind appends, and what was seen of them, are left out.

    And no two of them each missed what the other one wrote. A key is a table here.
    """
    *others, last = transactions
    writers = [one for one in others if one.appends]
    blind = {(key, n) for one in writers for _, key, n in _blind_appends(one)}
    left = [
        replace(
            one,
            reads=[_without(access, blind) for access in one.reads],
            appends=[access for access in one.appends if access not in _blind_appends(one)],
        )
        for one in [*writers, last]
    ]
    return (
        snapshot(transactions, strict=strict)
        and _have_an_order(left, strict=strict)
        and not any(
            _missed(one, other) and _missed(other, one)
            for one, other in itertools.combinations(writers, 2)
        )
    )


def _blind_appends(one: Transaction) -> list[Access]:
    looked = {key for _, key, _ in one.reads}
    return [access for access in one.appends if access[0] == "insert" and access[1] not in looked]


def _missed(one: Transaction, other: Transaction) -> bool:
    return any(
        kind == "rfw" and key == changed and element not in seen
        for kind, key, seen in one.reads
        for _, changed, element in other.appends
    )


def _without(access: Access, left_out: set[tuple[str, int]]) -> Access:
    kind, key, seen = access
    return (kind, key, [one for one in seen if (key, one) not in left_out])


def _end(order: Sequence[Transaction]) -> State:
    state: State = dict.fromkeys(KEYS, ())
    for one in order:
        state = one.after(state)
    return state


ORACLES = {
    "serializable": serializable,
    "write-serializable": write_serializable,
    "write-serializable-beside-appends": beside_appends,
    "snapshot": snapshot,
}


@pytest.mark.broad
def test_the_judge_agrees_with_every_order() -> None:
    dice = random.Random(7)
    histories = [one for one in (drawn(dice) for _ in range(HISTORIES)) if wrote(one)]
    verdicts = judged_all(
        [
            [line for process, one in enumerate(history) for line in one.operations(process)]
            for history in histories
        ]
    )
    seen = dict.fromkeys(itertools.product(ORACLES, (False, True), (False, True)), 0)
    for history, verdict in zip(histories, verdicts, strict=True):
        for level, oracle in ORACLES.items():
            for strict in (False, True):
                holds = oracle(history, strict=strict)
                name = f"strict-{level}" if strict else level
                assert verdict.levels[name] is holds, (name, history, verdict.explain(name))
                seen[level, strict, holds] += 1
    assert min(seen.values()) > HISTORIES // 20, seen
