"""The judge agrees with brute force: small random histories, checked in every possible order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.judge.histories import Access, Operation, judge_all

pytestmark = pytest.mark.peer("judge")

KEYS = ("x", "y")
HISTORIES = 1_500
State = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Transaction:
    """A transaction: its reads, then its appends, with its begin and end."""

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
        planned = [*((kind, key, None) for kind, key, _ in self.reads), *self.appends]
        began = {"type": "invoke", "process": process, "time": self.began, "value": planned}
        done = [*self.reads, *self.appends]
        return [began, {"type": "ok", "process": process, "time": self.ended, "value": done}]


def random_history(rng: random.Random) -> list[Transaction]:
    """Return three transactions with random reads, and a last one that reads everything written."""
    appended: dict[str, list[int]] = {key: [] for key in KEYS}
    appends_of = []
    item = rng.choice(["append", "append", "insert"])
    for number in range(3):
        appends = [(item, key, number) for key in KEYS if rng.random() < 0.5]
        for _, key, element in appends:
            appended[key].append(element)
        appends_of.append(appends)
    for elements in appended.values():
        rng.shuffle(elements)
    transactions = []
    for number, appends in enumerate(appends_of):
        reads = []
        for key in KEYS:
            others = [one for one in appended[key] if one != number]
            if rng.random() < 0.7:
                kind = rng.choice(["r", "rfw"]) if appends else "r"
                order = appended[key][: rng.randint(0, len(others))]
                reads.append((kind, key, [one for one in order if one != number]))
        began = rng.randrange(30)
        transactions.append(
            Transaction(reads, appends, began, began + rng.randrange(1, 30))  # type: ignore[arg-type]
        )
    last = [("r", key, appended[key]) for key in KEYS]
    return [*transactions, Transaction(last, [], 98, 99)]  # type: ignore[arg-type]


def has_writes(transactions: Sequence[Transaction]) -> bool:
    return any(one.appends for one in transactions)


def respects_time(order: Sequence[Transaction]) -> bool:
    return not any(
        later.ended < earlier.began for earlier, later in itertools.combinations(order, 2)
    )


def orders(transactions: Sequence[Transaction], *, strict: bool) -> Iterator[list[Transaction]]:
    """Yield every order of these transactions in which the last one stays last."""
    for order in itertools.permutations(transactions[:-1]):
        if not strict or respects_time(order):
            yield [*order, transactions[-1]]


def is_serial(order: Sequence[Transaction], kinds: Sequence[str] = ("r", "rfw")) -> bool:
    state: State = dict.fromkeys(KEYS, ())
    for one in order:
        if not one.reads_are(state, kinds):
            return False
        state = one.after(state)
    return state == {key: tuple(seen) for _, key, seen in order[-1].reads}


def is_serializable(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    return any(is_serial(order) for order in orders(transactions, strict=strict))


def is_snapshot(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    """Return whether an order of begins and commits exists in which each reads its snapshot.

    No transaction may change what another one changed after its snapshot.
    """
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
    """Return whether the history is one of snapshots with this order, where each number stands
    first for
    its begin and then for its commit.
    """
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


def is_write_serializable(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    *others, last = transactions
    writers = [*(one for one in others if one.appends), last]
    return is_snapshot(transactions, strict=strict) and _have_order(writers, strict=strict)


def _have_order(transactions: Sequence[Transaction], *, strict: bool) -> bool:
    last = transactions[-1]
    return any(
        is_serial(order, ["rfw"]) and last.reads_are(_final_state(order))
        for order in orders(transactions, strict=strict)
    )


def is_write_serializable_beside_appends(
    transactions: Sequence[Transaction], *, strict: bool
) -> bool:
    """Return whether the writes have an order without blind appends and without the reads of these.

    No two transactions may each have missed what the other one wrote. A key is a table here.
    """
    *others, last = transactions
    writers = [one for one in others if one.appends]
    blind = {(key, n) for one in writers for _, key, n in _blind_appends(one)}
    reduced = [
        replace(
            one,
            reads=[_without(access, blind) for access in one.reads],
            appends=[access for access in one.appends if access not in _blind_appends(one)],
        )
        for one in [*writers, last]
    ]
    return (
        is_snapshot(transactions, strict=strict)
        and _have_order(reduced, strict=strict)
        and not any(
            _has_missed(one, other) and _has_missed(other, one)
            for one, other in itertools.combinations(writers, 2)
        )
    )


def _blind_appends(one: Transaction) -> list[Access]:
    read_keys = {key for _, key, _ in one.reads}
    return [
        access for access in one.appends if access[0] == "insert" and access[1] not in read_keys
    ]


def _has_missed(one: Transaction, other: Transaction) -> bool:
    return any(
        kind == "rfw" and key == changed and element not in seen
        for kind, key, seen in one.reads
        for _, changed, element in other.appends
    )


def _without(access: Access, excluded: set[tuple[str, int]]) -> Access:
    kind, key, seen = access
    return (kind, key, [one for one in seen if (key, one) not in excluded])


def _final_state(order: Sequence[Transaction]) -> State:
    state: State = dict.fromkeys(KEYS, ())
    for one in order:
        state = one.after(state)
    return state


ORACLES = {
    "serializable": is_serializable,
    "write-serializable": is_write_serializable,
    "write-serializable-beside-appends": is_write_serializable_beside_appends,
    "snapshot": is_snapshot,
}


@pytest.mark.broad
def test_the_judge_agrees_with_every_order() -> None:
    rng = random.Random(7)
    histories = [one for one in (random_history(rng) for _ in range(HISTORIES)) if has_writes(one)]
    verdicts = judge_all(
        [
            [line for process, one in enumerate(history) for line in one.operations(process)]
            for history in histories
        ]
    )
    checks = dict.fromkeys(itertools.product(ORACLES, (False, True), (False, True)), 0)
    for history, verdict in zip(histories, verdicts, strict=True):
        for level, oracle in ORACLES.items():
            for strict in (False, True):
                holds = oracle(history, strict=strict)
                name = f"strict-{level}" if strict else level
                assert verdict.levels[name] is holds, (name, history, verdict.explain(name))
                checks[level, strict, holds] += 1
    assert min(checks.values()) > HISTORIES // 20, checks
