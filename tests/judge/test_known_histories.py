"""The judge itself: histories with every anomaly, and the levels that allow each of them.

The notation is Adya's: the transactions of a history all overlap, unless `at` gives their times;
lists are empty at first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.judge.histories import Access, Operation, Verdict, judge

pytestmark = pytest.mark.peer("judge")

SERIALIZABLE, WRITE_SERIALIZABLE, SNAPSHOT = "serializable", "write-serializable", "snapshot"
ALL = (SERIALIZABLE, WRITE_SERIALIZABLE, SNAPSHOT)
WEAKER = (WRITE_SERIALIZABLE, SNAPSHOT)


def r(key: str, *seen: int) -> Access:
    """A SELECT that read this list."""
    return ("r", key, list(seen))


def rfw(key: str, *seen: int) -> Access:
    """A statement that writes, and read this list."""
    return ("rfw", key, list(seen))


def append(key: str, element: int) -> Access:
    """A change of the row that holds the list."""
    return ("append", key, element)


def insert(key: str, element: int) -> Access:
    """A new row among those that form the list."""
    return ("insert", key, element)


@dataclass(frozen=True)
class HistoryTransaction:
    """A transaction: its accesses, its outcome, and its times."""

    accesses: Sequence[Access]
    ended: str | None = "ok"
    at: tuple[int, int] = (0, 100)
    commit_requested_at: int | None = None
    level: str | None = None

    def operations(self, process: int) -> list[Operation]:
        def one(kind: str, time: int, **more: Any) -> Operation:
            return {"type": kind, "process": process, "time": time, **more}

        level = {} if self.level is None else {"level": self.level}
        planned = [(kind, key, None if kind[0] == "r" else to) for kind, key, to in self.accesses]
        lines = [one("invoke", self.at[0], value=planned, **level)]
        if self.commit_requested_at is not None:
            lines.append(one("commit", self.commit_requested_at))
        if self.ended is not None:
            seen = self.accesses if self.ended == "ok" else planned
            lines.append(one(self.ended, self.at[1], value=seen))
        return lines


def tx(*accesses: Access, **more: Any) -> HistoryTransaction:
    return HistoryTransaction(accesses, **more)


def verdict_on(*transactions: HistoryTransaction) -> Verdict:
    lines = [line for n, one in enumerate(transactions) for line in one.operations(n)]
    return judge(lines)


@dataclass(frozen=True)
class Case:
    """A history, the levels that allow it, and its anomalies at other levels."""

    name: str
    transactions: Sequence[HistoryTransaction]
    allowed: Sequence[str]
    anomalies: dict[str, str] = field(default_factory=dict)


def case(
    name: str, *transactions: HistoryTransaction, allowed: Sequence[str] = (), **anomalies: str
) -> Case:
    names = {key.replace("_", "-"): value for key, value in anomalies.items()}
    return Case(name, transactions, allowed, names)


CASES = [
    case(
        "one after the other",
        tx(r("x"), append("x", 1), append("y", 1)),
        tx(r("x", 1), append("x", 2)),
        tx(r("x", 1, 2), r("y", 1)),
        allowed=ALL,
    ),
    case(
        "G0: each wrote over the other",
        tx(append("x", 1), append("y", 1)),
        tx(append("x", 2), append("y", 2)),
        tx(r("x", 1, 2), r("y", 2, 1)),
        snapshot="G0",
    ),
    case(
        "G1a: what was rolled back is read",
        tx(append("x", 1), ended="fail"),
        tx(r("x", 1)),
        snapshot="G1a",
    ),
    case(
        "G1b: the middle of a transaction is read",
        tx(append("x", 1), append("x", 2)),
        tx(r("x", 1)),
        tx(r("x", 1, 2)),
        snapshot="G1b",
    ),
    case(
        "G1c: each read what the other wrote",
        tx(append("x", 1), r("y", 2)),
        tx(append("y", 2), r("x", 1)),
        snapshot="G1c",
    ),
    case(
        "dirty update: built on what was rolled back",
        tx(append("x", 1), ended="fail"),
        tx(append("x", 2)),
        tx(r("x", 1, 2)),
        snapshot="dirty-update",
    ),
    case(
        "a transaction doesn't read its own write",
        tx(append("x", 1), r("x")),
        tx(r("x", 1)),
        snapshot="internal",
    ),
    case(
        "a read that can't be repeated",
        tx(append("x", 1)),
        tx(r("x"), r("x", 1)),
        snapshot="internal",
    ),
    case(
        "a transaction reads what it writes later",
        tx(r("x", 1), append("x", 1)),
        snapshot="future-read",
    ),
    case(
        "a doubled element",
        tx(append("x", 1)),
        tx(r("x", 1, 1)),
        snapshot="duplicate-elements",
    ),
    case("an element of nobody", tx(append("x", 1)), tx(r("x", 2, 1)), snapshot="made-up"),
    case(
        "two orders of the same writes",
        tx(append("x", 1)),
        tx(append("x", 2)),
        tx(r("x", 1, 2)),
        tx(r("x", 2, 1)),
        snapshot="incompatible-order",
    ),
    case(
        "a write that vanished",
        tx(append("x", 1)),
        tx(append("x", 2)),
        tx(r("x", 1)),
        tx(r("x", 2)),
        snapshot="incompatible-order",
    ),
    case(
        "G-single: half of a transaction is read",
        tx(append("x", 1), append("y", 1)),
        tx(r("x", 1), r("y")),
        snapshot="G-single-item",
    ),
    case(
        "G-single over three: a reader saw the effect and not the cause",
        tx(append("x", 1)),
        tx(r("x", 1), append("y", 1)),
        tx(r("y", 1), r("x")),
        snapshot="G-single-item",
    ),
    case(
        "lost update",
        tx(rfw("x"), append("x", 1)),
        tx(rfw("x"), append("x", 2)),
        tx(r("x", 1, 2)),
        snapshot="lost-update",
    ),
    case(
        "lost update after a SELECT",
        tx(r("x"), append("x", 1)),
        tx(r("x"), append("x", 2)),
        tx(r("x", 1, 2)),
        snapshot="lost-update",
    ),
    case(
        "long fork: two readers saw two writers in two orders",
        tx(append("x", 1)),
        tx(append("y", 1)),
        tx(r("x", 1), r("y")),
        tx(r("x"), r("y", 1)),
        snapshot="G-nonadjacent-item",
    ),
    case(
        "G2-item: write skew of statements that read",
        tx(rfw("x"), append("y", 1)),
        tx(rfw("y"), append("x", 1)),
        tx(r("x", 1), r("y", 1)),
        allowed=[SNAPSHOT],
        write_serializable="G2-item",
        serializable="G2-item",
    ),
    case(
        "G2-item: write skew after SELECTs",
        tx(r("x"), append("y", 1)),
        tx(r("y"), append("x", 1)),
        tx(r("x", 1), r("y", 1)),
        allowed=WEAKER,
        serializable="G2-item",
    ),
    case(
        "G2-item over three transactions",
        tx(rfw("x"), append("y", 1)),
        tx(rfw("y"), append("z", 1)),
        tx(rfw("z"), append("x", 1)),
        allowed=[SNAPSHOT],
        write_serializable="G2-item",
        serializable="G2-item",
    ),
    case(
        "G2: both looked for rows, both added one",
        tx(rfw("rows"), insert("rows", 1)),
        tx(rfw("rows"), insert("rows", 2)),
        tx(r("rows", 1, 2)),
        allowed=[SNAPSHOT],
        write_serializable="lost-update",
        serializable="lost-update",
    ),
    case(
        "G2: the same after SELECTs",
        tx(r("rows"), insert("rows", 1)),
        tx(r("rows"), insert("rows", 2)),
        tx(r("rows", 1, 2)),
        allowed=WEAKER,
        serializable="lost-update",
    ),
    case(
        "a SELECT before a blind insert is out of date",
        tx(r("rows"), insert("rows", 2)),
        tx(insert("rows", 1)),
        tx(r("rows", 1, 2)),
        allowed=WEAKER,
        serializable="G-single-item",
    ),
    case(
        "the reader's anomaly of snapshot isolation",
        tx(rfw("x"), rfw("y"), append("x", 1)),
        tx(rfw("y"), append("y", 1)),
        tx(r("x"), r("y", 1)),
        tx(r("x", 1), r("y", 1)),
        allowed=WEAKER,
        serializable="G2-item",
    ),
    case(
        "it is of the writers where the reader writes",
        tx(rfw("x"), rfw("y"), append("x", 1)),
        tx(rfw("y"), append("y", 1)),
        tx(rfw("x"), rfw("y", 1), append("z", 1)),
        tx(r("x", 1), r("y", 1), r("z", 1)),
        allowed=[SNAPSHOT],
        write_serializable="G2-item",
        serializable="G2-item",
    ),
    case(
        "nobody knows whether it committed: it did",
        tx(append("x", 1), ended="info"),
        tx(r("x", 1)),
        tx(r("x", 1), append("x", 2)),
        allowed=ALL,
    ),
    case(
        "nobody knows whether it committed: it didn't",
        tx(append("x", 1), ended=None),
        tx(r("x"), append("x", 2)),
        tx(r("x", 2)),
        allowed=ALL,
    ),
    case(
        "nobody knows, and half of it is there",
        tx(append("x", 1), append("y", 1), ended="info"),
        tx(r("x", 1), r("y"), append("y", 2)),
        tx(r("x", 1), r("y", 2, 1)),
        snapshot="G1c",
    ),
]


@pytest.mark.parametrize("known", CASES, ids=lambda known: known.name)
def test_each_known_history_has_its_verdict(known: Case) -> None:
    verdict = verdict_on(*known.transactions)
    allowed = [level for level in ALL if verdict.levels[level]]
    assert set(allowed) == set(known.allowed), verdict.anomalies
    for level in ALL:
        strict = f"strict-{level}"
        # All transactions overlap, so strict levels demand nothing more.
        assert verdict.levels[strict] == verdict.levels[level], verdict.explain(strict)
    for level, anomaly in known.anomalies.items():
        assert anomaly in verdict.anomalies[level]
        assert verdict.why[level]


def test_each_transaction_is_judged_at_its_own_level() -> None:
    ours, theirs = tx(r("x"), append("y", 1)), tx(r("y"), append("x", 1))
    levels = {
        (SERIALIZABLE, SERIALIZABLE): False,
        (SERIALIZABLE, WRITE_SERIALIZABLE): True,
        (SNAPSHOT, SERIALIZABLE): True,
        (WRITE_SERIALIZABLE, WRITE_SERIALIZABLE): True,
        (SNAPSHOT, SNAPSHOT): True,
    }
    end = tx(r("x", 1), r("y", 1), level=SERIALIZABLE)
    for (our_level, their_level), holds in levels.items():
        verdict = verdict_on(
            replace(ours, level=our_level), replace(theirs, level=their_level), end
        )
        assert verdict.levels["promised"] is holds


def test_snapshot_forbids_lost_updates() -> None:
    verdict = verdict_on(
        tx(r("x"), append("x", 1), level=SNAPSHOT),
        tx(r("x"), append("x", 2), level=SNAPSHOT),
        tx(r("x", 1, 2), level=SNAPSHOT),
    )
    assert verdict.levels["promised"] is False
    assert "lost-update" in verdict.anomalies["promised"]


# Blind appends at WriteSerializable


BESIDE_APPENDS = "write-serializable-beside-appends"
MISSES_APPEND = tx(rfw("t.p"), append("t.x", 1))
READS_APPEND = tx(rfw("t.p", 2), rfw("t.x"), insert("t.q", 3))
END = tx(r("t.p", 2), r("t.x", 1))


@pytest.mark.parametrize(
    ("appended", "holds"),
    [
        (tx(insert("t.p", 2)), True),
        (tx(rfw("s.p"), insert("t.p", 2)), True),
        (tx(append("s.x", 2), insert("t.p", 2)), True),
        (tx(rfw("t.r"), insert("t.p", 2)), False),
        (tx(r("t.r"), insert("t.p", 2)), False),
        (tx(append("t.y", 2), insert("t.p", 2)), False),
        (tx(rfw("t.r"), insert("t.p", 2), ended="info"), False),
    ],
)
def test_a_blind_append_reads_nothing_of_its_table(
    appended: HistoryTransaction, holds: bool
) -> None:
    verdict = verdict_on(MISSES_APPEND, appended, READS_APPEND, END)
    assert not verdict.levels[WRITE_SERIALIZABLE]
    assert verdict.levels[BESIDE_APPENDS] is holds, verdict.explain(BESIDE_APPENDS)


def test_reads_of_other_tables_count_for_a_blind_append() -> None:
    late = tx(rfw("s.x"), append("s.y", 1), insert("t.p", 2))
    other = tx(rfw("s.y"), append("s.x", 1))
    verdict = verdict_on(late, other, tx(r("s.x", 1), r("s.y", 1), r("t.p", 2)))
    assert "G2-item" in verdict.anomalies[BESIDE_APPENDS]
    late = tx(rfw("s.x"), rfw("s.y", 1), insert("t.p", 2))
    verdict = verdict_on(late, tx(append("s.x", 1)), tx(rfw("s.x", 1), append("s.y", 1)), END)
    assert verdict.levels[BESIDE_APPENDS] is False


@pytest.mark.parametrize(
    ("level", "read", "holds"),
    [
        (WRITE_SERIALIZABLE, rfw, False),
        (WRITE_SERIALIZABLE, r, True),
        (SERIALIZABLE, r, False),
        (SNAPSHOT, rfw, True),
    ],
)
def test_two_blind_appends_may_not_miss_each_other(
    level: str, read: Callable[[str], Access], holds: bool
) -> None:
    one = tx(read("t.p"), insert("s.p", 1), level=level)
    other = tx(rfw("s.p"), insert("t.p", 2), level=WRITE_SERIALIZABLE)
    end = tx(r("s.p", 1), r("t.p", 2), level=SNAPSHOT)
    verdict = verdict_on(one, other, end)
    assert verdict.levels["promised"] is holds
    assert ("write-skew" in verdict.anomalies["promised"]) is not holds


# The order of time


def strict_levels(*transactions: HistoryTransaction) -> list[bool | None]:
    """Return whether each strict level holds for a history that all other levels allow."""
    verdict = verdict_on(*transactions)
    for level in ALL:
        assert verdict.levels[level], verdict.explain(level)
    return [verdict.levels[f"strict-{level}"] for level in ALL]


@pytest.mark.parametrize(("begins", "holds"), [(20, True), (30, False)])
def test_strict_levels_require_reads_of_ended_transactions(begins: int, holds: bool) -> None:
    late = tx(r("x"), at=(begins, 40))
    assert strict_levels(tx(append("x", 1), at=(10, 29)), late) == [holds] * 3


def test_a_committed_write_missing_in_later_reads_is_lost() -> None:
    writers = [tx(append("x", 1), at=(0, 9)), tx(append("x", 2), at=(0, 9))]
    assert strict_levels(*writers, tx(r("x", 1), at=(10, 19))) == [False] * 3
    unknown = replace(writers[1], ended="info")
    assert strict_levels(writers[0], unknown, tx(r("x", 1), at=(10, 19))) == [True] * 3


def test_writes_are_ordered_after_their_commit_request() -> None:
    # The reader ended before the commit was asked for, and saw the write.
    early = tx(r("x", 1), at=(10, 20))
    assert (
        strict_levels(tx(append("x", 1), at=(0, 40), commit_requested_at=15), early) == [True] * 3
    )
    assert strict_levels(tx(append("x", 1), at=(0, 40), commit_requested_at=30), early) == [
        True,
        False,
        False,
    ]


def test_reads_are_ordered_before_the_commit_request() -> None:
    # Its SELECT read a write that began only later.
    late = tx(append("x", 1), at=(30, 35))
    reader = tx(r("x", 1), insert("y", 1), at=(0, 40), commit_requested_at=20)
    assert strict_levels(reader, late) == [True, False, False]


def test_a_reading_write_may_precede_an_ended_blind_insert() -> None:
    history = [
        tx(rfw("x"), insert("y", 1), at=(0, 40), commit_requested_at=30),
        tx(insert("x", 1), at=(10, 20)),
    ]
    assert strict_levels(*history) == [True] * 3


# Malformed histories


@pytest.mark.parametrize(
    ("transactions", "reason"),
    [
        ([tx(append("x", 1)), tx(append("x", 1))], "1 was appended to x more than once"),
        ([tx(("write", "x", 1))], "is not"),  # type: ignore[arg-type]
        ([tx(("r", "x", ["a"]))], "is not"),
        ([tx(append("x", 1), level="chaos")], "there is no level"),
        ([tx(append("x", 1), ended="gone")], "the type is"),
    ],
)
def test_malformed_histories_are_refused(
    transactions: Sequence[HistoryTransaction], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        verdict_on(*transactions)


def test_mismatched_operations_are_refused() -> None:
    invoke = {"type": "invoke", "process": 1, "value": [["append", "x", 1]]}
    done = {"type": "ok", "process": 1, "value": [["append", "x", 2]]}
    for history, reason in {
        (("first", "first"), "began an operation within another"),
        (("last",), "ended what it hadn't begun"),
        (("first", "last"), "ended as"),
    }:
        lines = [invoke if line == "first" else done for line in history]
        with pytest.raises(ValueError, match=reason):
            judge(lines)
    with pytest.raises(ValueError, match="some lines have a time"):
        judge([{**invoke, "time": 1}, done])


def test_a_level_without_evidence_has_no_verdict() -> None:
    verdict = verdict_on(tx(append("x", 1)), tx(append("y", 1)))
    assert verdict.levels["serializable"] is None
    assert "promised" not in verdict.levels
