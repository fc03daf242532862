"""The judge itself: histories of every anomaly, and at which levels each of them may be.

The notation is Adya's: a history is a few transactions that all overlap, unless `at` says when each
of them was; lists start empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.judge.histories import Access, Operation, Verdict, judged

pytestmark = pytest.mark.peer("judge")

SERIALIZABLE, WRITE_SERIALIZABLE, SNAPSHOT = "serializable", "write-serializable", "snapshot"
ALL = (SERIALIZABLE, WRITE_SERIALIZABLE, SNAPSHOT)
WEAKER = (WRITE_SERIALIZABLE, SNAPSHOT)


def r(key: str, *seen: int) -> Access:
    """A SELECT saw this list."""
    return ("r", key, list(seen))


def rfw(key: str, *seen: int) -> Access:
    """A statement that writes saw this list."""
    return ("rfw", key, list(seen))


def append(key: str, element: int) -> Access:
    """The row that holds the list is changed."""
    return ("append", key, element)


def insert(key: str, element: int) -> Access:
    """A row is added to those that are the list."""
    return ("insert", key, element)


@dataclass(frozen=True)
class T:
    """A transaction: what it did, how it ended, when it began and ended."""

    accesses: Sequence[Access]
    ended: str | None = "ok"
    at: tuple[int, int] = (0, 100)
    asked: int | None = None
    level: str | None = None

    def operations(self, process: int) -> list[Operation]:
        def one(kind: str, time: int, **more: Any) -> Operation:
            return {"type": kind, "process": process, "time": time, **more}

        level = {} if self.level is None else {"level": self.level}
        asked = [(kind, key, None if kind[0] == "r" else to) for kind, key, to in self.accesses]
        lines = [one("invoke", self.at[0], value=asked, **level)]
        if self.asked is not None:
            lines.append(one("commit", self.asked))
        if self.ended is not None:
            seen = self.accesses if self.ended == "ok" else asked
            lines.append(one(self.ended, self.at[1], value=seen))
        return lines


def t(*accesses: Access, **more: Any) -> T:
    return T(accesses, **more)


def verdict_on(*transactions: T) -> Verdict:
    lines = [line for n, one in enumerate(transactions) for line in one.operations(n)]
    return judged(lines)


@dataclass(frozen=True)
class Case:
    """A history, the levels that allow it, and what the judge calls it at the others."""

    name: str
    transactions: Sequence[T]
    allowed: Sequence[str]
    called: dict[str, str] = field(default_factory=dict)


def case(name: str, *transactions: T, allowed: Sequence[str] = (), **called: str) -> Case:
    names = {key.replace("_", "-"): value for key, value in called.items()}
    return Case(name, transactions, allowed, names)


CASES = [
    case(
        "one after the other",
        t(r("x"), append("x", 1), append("y", 1)),
        t(r("x", 1), append("x", 2)),
        t(r("x", 1, 2), r("y", 1)),
        allowed=ALL,
    ),
    case(
        "G0: each wrote over the other",
        t(append("x", 1), append("y", 1)),
        t(append("x", 2), append("y", 2)),
        t(r("x", 1, 2), r("y", 2, 1)),
        snapshot="G0",
    ),
    case(
        "G1a: what was rolled back is read",
        t(append("x", 1), ended="fail"),
        t(r("x", 1)),
        snapshot="G1a",
    ),
    case(
        "G1b: the middle of a transaction is read",
        t(append("x", 1), append("x", 2)),
        t(r("x", 1)),
        t(r("x", 1, 2)),
        snapshot="G1b",
    ),
    case(
        "G1c: each read what the other wrote",
        t(append("x", 1), r("y", 2)),
        t(append("y", 2), r("x", 1)),
        snapshot="G1c",
    ),
    case(
        "dirty update: built on what was rolled back",
        t(append("x", 1), ended="fail"),
        t(append("x", 2)),
        t(r("x", 1, 2)),
        snapshot="dirty-update",
    ),
    case(
        "a transaction doesn't read its own write",
        t(append("x", 1), r("x")),
        t(r("x", 1)),
        snapshot="internal",
    ),
    case(
        "a read that can't be repeated",
        t(append("x", 1)),
        t(r("x"), r("x", 1)),
        snapshot="internal",
    ),
    case(
        "a transaction reads what it writes later",
        t(r("x", 1), append("x", 1)),
        snapshot="future-read",
    ),
    case(
        "a doubled element",
        t(append("x", 1)),
        t(r("x", 1, 1)),
        snapshot="duplicate-elements",
    ),
    case("an element of nobody", t(append("x", 1)), t(r("x", 2, 1)), snapshot="made-up"),
    case(
        "two orders of the same writes",
        t(append("x", 1)),
        t(append("x", 2)),
        t(r("x", 1, 2)),
        t(r("x", 2, 1)),
        snapshot="incompatible-order",
    ),
    case(
        "a write that vanished",
        t(append("x", 1)),
        t(append("x", 2)),
        t(r("x", 1)),
        t(r("x", 2)),
        snapshot="incompatible-order",
    ),
    case(
        "G-single: half of a transaction is read",
        t(append("x", 1), append("y", 1)),
        t(r("x", 1), r("y")),
        snapshot="G-single-item",
    ),
    case(
        "G-single over three: a reader saw the effect and not the cause",
        t(append("x", 1)),
        t(r("x", 1), append("y", 1)),
        t(r("y", 1), r("x")),
        snapshot="G-single-item",
    ),
    case(
        "lost update",
        t(rfw("x"), append("x", 1)),
        t(rfw("x"), append("x", 2)),
        t(r("x", 1, 2)),
        snapshot="lost-update",
    ),
    case(
        "lost update after a SELECT",
        t(r("x"), append("x", 1)),
        t(r("x"), append("x", 2)),
        t(r("x", 1, 2)),
        snapshot="lost-update",
    ),
    case(
        "long fork: two readers saw two writers in two orders",
        t(append("x", 1)),
        t(append("y", 1)),
        t(r("x", 1), r("y")),
        t(r("x"), r("y", 1)),
        snapshot="G-nonadjacent-item",
    ),
    case(
        "G2-item: write skew of statements that read",
        t(rfw("x"), append("y", 1)),
        t(rfw("y"), append("x", 1)),
        t(r("x", 1), r("y", 1)),
        allowed=[SNAPSHOT],
        write_serializable="G2-item",
        serializable="G2-item",
    ),
    case(
        "G2-item: write skew after SELECTs",
        t(r("x"), append("y", 1)),
        t(r("y"), append("x", 1)),
        t(r("x", 1), r("y", 1)),
        allowed=WEAKER,
        serializable="G2-item",
    ),
    case(
        "G2-item over three transactions",
        t(rfw("x"), append("y", 1)),
        t(rfw("y"), append("z", 1)),
        t(rfw("z"), append("x", 1)),
        allowed=[SNAPSHOT],
        write_serializable="G2-item",
        serializable="G2-item",
    ),
    case(
        "G2: both looked for rows, both added one",
        t(rfw("rows"), insert("rows", 1)),
        t(rfw("rows"), insert("rows", 2)),
        t(r("rows", 1, 2)),
        allowed=[SNAPSHOT],
        write_serializable="lost-update",
        serializable="lost-update",
    ),
    case(
        "G2: the same after SELECTs",
        t(r("rows"), insert("rows", 1)),
        t(r("rows"), insert("rows", 2)),
        t(r("rows", 1, 2)),
        allowed=WEAKER,
        serializable="lost-update",
    ),
    case(
        "a SELECT before a blind insert is out of date",
        t(r("rows"), insert("rows", 2)),
        t(insert("rows", 1)),
        t(r("rows", 1, 2)),
        allowed=WEAKER,
        serializable="G-single-item",
    ),
    case(
        "the reader's anomaly of snapshot isolation",
        t(rfw("x"), rfw("y"), append("x", 1)),
        t(rfw("y"), append("y", 1)),
        t(r("x"), r("y", 1)),
        t(r("x", 1), r("y", 1)),
        allowed=WEAKER,
        serializable="G2-item",
    ),
    case(
        "it is of the writers where the reader writes",
        t(rfw("x"), rfw("y"), append("x", 1)),
        t(rfw("y"), append("y", 1)),
        t(rfw("x"), rfw("y", 1), append("z", 1)),
        t(r("x", 1), r("y", 1), r("z", 1)),
        allowed=[SNAPSHOT],
        write_serializable="G2-item",
        serializable="G2-item",
    ),
    case(
        "nobody knows whether it committed: it did",
        t(append("x", 1), ended="info"),
        t(r("x", 1)),
        t(r("x", 1), append("x", 2)),
        allowed=ALL,
    ),
    case(
        "nobody knows whether it committed: it didn't",
        t(append("x", 1), ended=None),
        t(r("x"), append("x", 2)),
        t(r("x", 2)),
        allowed=ALL,
    ),
    case(
        "nobody knows, and half of it is there",
        t(append("x", 1), append("y", 1), ended="info"),
        t(r("x", 1), r("y"), append("y", 2)),
        t(r("x", 1), r("y", 2, 1)),
        snapshot="G1c",
    ),
]


@pytest.mark.parametrize("known", CASES, ids=lambda known: known.name)
def test_a_known_history(known: Case) -> None:
    verdict = verdict_on(*known.transactions)
    allowed = [level for level in ALL if verdict.levels[level]]
    assert set(allowed) == set(known.allowed), verdict.anomalies
    for level in ALL:
        strict = f"strict-{level}"
        # All of them overlap: the order of time asks for nothing more.
        assert verdict.levels[strict] == verdict.levels[level], verdict.explain(strict)
    for level, anomaly in known.called.items():
        assert anomaly in verdict.anomalies[level]
        assert verdict.why[level]


def test_each_level_is_a_transactions_own() -> None:
    ours, theirs = t(r("x"), append("y", 1)), t(r("y"), append("x", 1))
    levels = {
        (SERIALIZABLE, SERIALIZABLE): False,
        (SERIALIZABLE, WRITE_SERIALIZABLE): True,
        (SNAPSHOT, SERIALIZABLE): True,
        (WRITE_SERIALIZABLE, WRITE_SERIALIZABLE): True,
        (SNAPSHOT, SNAPSHOT): True,
    }
    end = t(r("x", 1), r("y", 1), level=SERIALIZABLE)
    for (of_ours, of_theirs), holds in levels.items():
        verdict = verdict_on(replace(ours, level=of_ours), replace(theirs, level=of_theirs), end)
        assert verdict.levels["promised"] is holds


def test_a_snapshot_transaction_may_still_not_lose_an_update() -> None:
    verdict = verdict_on(
        t(r("x"), append("x", 1), level=SNAPSHOT),
        t(r("x"), append("x", 2), level=SNAPSHOT),
        t(r("x", 1, 2), level=SNAPSHOT),
    )
    assert verdict.levels["promised"] is False
    assert "lost-update" in verdict.anomalies["promised"]


# Beside blind appends


BESIDE = "write-serializable-beside-appends"
MISSED = t(rfw("t.p"), append("t.x", 1))
SAW = t(rfw("t.p", 2), rfw("t.x"), insert("t.q", 3))
END = t(r("t.p", 2), r("t.x", 1))


@pytest.mark.parametrize(
    ("appended", "holds"),
    [
        (t(insert("t.p", 2)), True),
        (t(rfw("s.p"), insert("t.p", 2)), True),
        (t(append("s.x", 2), insert("t.p", 2)), True),
        (t(rfw("t.r"), insert("t.p", 2)), False),
        (t(r("t.r"), insert("t.p", 2)), False),
        (t(append("t.y", 2), insert("t.p", 2)), False),
        (t(rfw("t.r"), insert("t.p", 2), ended="info"), False),
    ],
)
def test_an_append_is_blind_to_a_table_of_which_nothing_else_was_asked(
    appended: T, holds: bool
) -> None:
    verdict = verdict_on(MISSED, appended, SAW, END)
    assert not verdict.levels[WRITE_SERIALIZABLE]
    assert verdict.levels[BESIDE] is holds, verdict.explain(BESIDE)


def test_what_a_blind_append_had_read_still_counts() -> None:
    late = t(rfw("s.x"), append("s.y", 1), insert("t.p", 2))
    other = t(rfw("s.y"), append("s.x", 1))
    verdict = verdict_on(late, other, t(r("s.x", 1), r("s.y", 1), r("t.p", 2)))
    assert "G2-item" in verdict.anomalies[BESIDE]
    late = t(rfw("s.x"), rfw("s.y", 1), insert("t.p", 2))
    verdict = verdict_on(late, t(append("s.x", 1)), t(rfw("s.x", 1), append("s.y", 1)), END)
    assert verdict.levels[BESIDE] is False


@pytest.mark.parametrize(
    ("level", "read", "holds"),
    [
        (WRITE_SERIALIZABLE, rfw, False),
        (WRITE_SERIALIZABLE, r, True),
        (SERIALIZABLE, r, False),
        (SNAPSHOT, rfw, True),
    ],
)
def test_of_two_blind_appends_each_may_not_miss_the_other(
    level: str, read: Callable[[str], Access], holds: bool
) -> None:
    one = t(read("t.p"), insert("s.p", 1), level=level)
    other = t(rfw("s.p"), insert("t.p", 2), level=WRITE_SERIALIZABLE)
    end = t(r("s.p", 1), r("t.p", 2), level=SNAPSHOT)
    verdict = verdict_on(one, other, end)
    assert verdict.levels["promised"] is holds
    assert ("write-skew" in verdict.anomalies["promised"]) is not holds


# The order of time


def holds_in_time(*transactions: T) -> list[bool | None]:
    verdict = verdict_on(*transactions)
    for level in ALL:
        assert verdict.levels[level], verdict.explain(level)
    return [verdict.levels[f"strict-{level}"] for level in ALL]


@pytest.mark.parametrize(("begins", "holds"), [(20, True), (30, False)])
def test_what_has_ended_is_read_by_whoever_begins_then(begins: int, holds: bool) -> None:
    late = t(r("x"), at=(begins, 40))
    assert holds_in_time(t(append("x", 1), at=(10, 29)), late) == [holds] * 3


def test_a_committed_write_that_nobody_reads_later_is_lost() -> None:
    writers = [t(append("x", 1), at=(0, 9)), t(append("x", 2), at=(0, 9))]
    assert holds_in_time(*writers, t(r("x", 1), at=(10, 19))) == [False] * 3
    unknown = replace(writers[1], ended="info")
    assert holds_in_time(writers[0], unknown, t(r("x", 1), at=(10, 19))) == [True] * 3


def test_a_write_stands_in_the_order_where_its_commit_was_asked_for() -> None:
    # The reader ended before the commit was asked for, and saw the write.
    early = t(r("x", 1), at=(10, 20))
    assert holds_in_time(t(append("x", 1), at=(0, 40), asked=15), early) == [True] * 3
    assert holds_in_time(t(append("x", 1), at=(0, 40), asked=30), early) == [True, False, False]


def test_reads_stand_in_the_order_before_the_commit_was_asked_for() -> None:
    # Its SELECT saw what began only later.
    late = t(append("x", 1), at=(30, 35))
    reader = t(r("x", 1), insert("y", 1), at=(0, 40), asked=20)
    assert holds_in_time(reader, late) == [True, False, False]


def test_a_statement_that_reads_and_writes_may_stand_before_a_blind_insert_that_ended() -> None:
    history = [
        t(rfw("x"), insert("y", 1), at=(0, 40), asked=30),
        t(insert("x", 1), at=(10, 20)),
    ]
    assert holds_in_time(*history) == [True] * 3


# What isn't a history


@pytest.mark.parametrize(
    ("transactions", "reason"),
    [
        ([t(append("x", 1)), t(append("x", 1))], "1 was appended to x more than once"),
        ([t(("write", "x", 1))], "is not"),  # type: ignore[arg-type]
        ([t(("r", "x", ["a"]))], "is not"),
        ([t(append("x", 1), level="chaos")], "there is no level"),
        ([t(append("x", 1), ended="gone")], "the type is"),
    ],
)
def test_what_is_no_history_is_refused(transactions: Sequence[T], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        verdict_on(*transactions)


def test_operations_that_do_not_belong_together_are_refused() -> None:
    invoke = {"type": "invoke", "process": 1, "value": [["append", "x", 1]]}
    done = {"type": "ok", "process": 1, "value": [["append", "x", 2]]}
    for history, reason in {
        (("first", "first"), "began an operation within another"),
        (("last",), "ended what it hadn't begun"),
        (("first", "last"), "ended as"),
    }:
        lines = [invoke if line == "first" else done for line in history]
        with pytest.raises(ValueError, match=reason):
            judged(lines)
    with pytest.raises(ValueError, match="some lines have a time"):
        judged([{**invoke, "time": 1}, done])


def test_what_says_nothing_about_a_level_is_not_called_good() -> None:
    verdict = verdict_on(t(append("x", 1)), t(append("y", 1)))
    assert verdict.levels["serializable"] is None
    assert "promised" not in verdict.levels
