"""Waiting for locks, a look at a time: granted, timed out, a circle's victim, told of the dead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.catalog.ledgers import living
from tests.catalog.locking import Process, table, wants
from tests.catalog.waiting import Script, held_by, lease_ends, scripted_on
from txlake.catalog import locks as locks_module
from txlake.catalog.group_commit import Interrupted
from txlake.conflict.locking import (
    LockMode,
    LockStatus,
)
from txlake.errors import LockTimeout, Unavailable

pytestmark = pytest.mark.usefixtures("direct")

GRANT, WAIT, CONVERT = LockStatus.GRANT, LockStatus.WAIT, LockStatus.CONVERT
IX, SCH_S, SCH_M = LockMode.IX, LockMode.SCH_S, LockMode.SCH_M


@pytest.fixture
def other(sqlite_url: str, script: Script) -> Iterator[Process]:
    with scripted_on(sqlite_url, script) as made:
        yield made


def test_who_waits_looks_until_it_is_granted(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    seen: list[object] = []
    script.then(lambda: seen.append(held_by(b)), lambda: None, a.ends)
    b.takes("IX", 1, timeout_ms=-1)
    assert seen == [[(1, IX, WAIT)]]
    assert held_by(b) == [(1, IX, GRANT)]
    assert len(script.waits) == 3
    b.takes("IX", 1)  # known here
    assert script.waits == sorted(script.waits)


def test_who_is_next_looks_again_soon(process: Process, script: Script) -> None:
    """Of two ahead one ends after 14 looks, the other after 10 more."""
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-S", 1)
    c.takes("Sch-S", 1)
    nothing = [lambda: None]
    script.then(*nothing * 13, c.ends, *nothing * 9, a.ends)
    b.takes("Sch-M", 1, timeout_ms=-1)
    behind_two, next_one = script.waits[:14], script.waits[14:]
    assert behind_two[13] > 0.25 * sum(behind_two)
    assert max(next_one) <= 0.05 * script.now_ms


def test_who_is_next_from_the_beginning_pauses_for_5_ms(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    script.then(*[lambda: None] * 15, a.ends)
    b.takes("IX", 1, timeout_ms=-1)
    assert script.waits[:3] == [2.0, 3.0, 4.5]
    assert set(script.waits[3:]) == {5.0}


def test_what_is_not_waited_for_is_not_in_the_way(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-S", 1)
    b.takes("IX", 1, 2, timeout_ms=1_000)
    assert held_by(b) == [(1, IX, GRANT), (2, IX, GRANT)]
    assert script.waits == []


@pytest.mark.parametrize("timeout_ms", [1, 7, 300])
def test_no_longer_than_the_timeout(process: Process, script: Script, timeout_ms: int) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    with pytest.raises(LockTimeout, match=f"within {timeout_ms} ms: session {a.session} "):
        b.takes("IX", 1, timeout_ms=timeout_ms)
    assert script.now_ms == timeout_ms
    assert held_by(b) == []


def test_who_does_not_wait_asks_for_nothing(process: Process, script: Script) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-M", 1)
    with pytest.raises(LockTimeout, match="within 0 ms"):
        b.takes("IX", 2, 1)
    assert script.waits == []
    assert held_by(b) == []
    a.ends()
    c.takes("Sch-M", 1, 2)


def test_what_was_granted_before_a_timeout_is_kept(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 2)
    with pytest.raises(LockTimeout):
        b.takes("IX", 1, 2, 3, timeout_ms=50)
    assert held_by(b) == [(1, IX, GRANT)]


def test_it_is_granted_at_the_last_look(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    script.then(a.ends)
    b.takes("IX", 1, timeout_ms=1)
    assert held_by(b) == [(1, IX, GRANT)]


def test_those_after_are_asked_for_when_it_was_granted(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 2)
    seen: list[object] = []
    script.then(lambda: seen.append(held_by(b)), a.ends)
    b.takes("IX", 1, 2, 3, timeout_ms=-1)
    assert seen == [[(1, IX, GRANT), (2, IX, WAIT)]]
    assert held_by(b) == [(1, IX, GRANT), (2, IX, GRANT), (3, IX, GRANT)]


def test_a_conversion_is_waited_for_beside_what_is_held(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    for one in (a, b):
        one.takes("Sch-S", 1, 2)
    seen: list[object] = []
    script.then(lambda: seen.append(held_by(b)), a.ends)
    b.takes("Sch-M", 1, timeout_ms=-1)
    assert seen == [[(1, SCH_S, GRANT), (2, SCH_S, GRANT), (1, SCH_M, CONVERT)]]
    assert held_by(b) == [(1, SCH_M, GRANT), (2, SCH_S, GRANT)]
    b.takes("Sch-M", 2)
    assert held_by(b) == [(1, SCH_M, GRANT), (2, SCH_M, GRANT)]


def test_the_rows_say_what_is_held(process: Process, other: Process) -> None:
    """What another object granted the same transaction is neither asked for twice nor weakened."""
    a = process.party("a")
    a.takes("IX", 1, 2)
    other.locks.acquire(a.session, "a", wants("Sch-S", 1), 0)
    assert held_by(a) == [(1, IX, GRANT), (2, IX, GRANT)]
    other.locks.acquire(a.session, "a", wants("S", 1), 0)
    assert held_by(a) == [(1, LockMode.SIX, GRANT), (2, IX, GRANT)]


def test_what_is_held_is_not_waited_for_again(
    process: Process, other: Process, script: Script
) -> None:
    """Though another object, which doesn't remember it, asks for it behind a conversion."""
    a, b = process.party("a"), process.party("b")
    a.takes("IX", 1)
    b.takes("Sch-S", 1)
    script.then(lambda: other.locks.acquire(a.session, "a", wants("IX"), 0), a.ends)
    b.takes("Sch-M", 1, timeout_ms=-1)
    assert held_by(b) == [(1, SCH_M, GRANT)]


def test_what_is_known_to_be_held_costs_nothing(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process.party("a")
    a.takes("IX", 1, 2)
    monkeypatch.setattr(process.database, "write_relaxed", None)
    a.takes("IX", 2, 1)
    a.takes("Sch-S", 1)
    with pytest.raises(TypeError):
        a.takes("Sch-M", 1)


def test_who_ended_and_came_again_is_another_threads(process: Process, script: Script) -> None:
    """Which thread used a transaction is forgotten with it."""
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-S", 2)
    a.ends()
    process.transactions.end("a")
    process.transactions.begin("a", a.session)
    assert process.locks._last_threads == {}
    assert process.locks._granted == {}
    b.takes("IX", 1)
    assert set(process.locks._last_threads) == {"b"}


# Who is gone


def test_a_killed_one_is_told_at_its_next_look(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    script.then(lambda: process.transactions.kill("b"))
    with pytest.raises(Unavailable, match=f"transaction b of session {b.session} has no locks"):
        b.takes("IX", 1, timeout_ms=-1)
    assert len(script.waits) == 1


def test_a_dead_sessions_lock_is_not_waited_for(process: Process, script: Script) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-M", 1)
    script.then(lambda: lease_ends(process, a.session))
    b.takes("IX", 1, timeout_ms=-1)
    assert len(script.waits) == 1
    assert held_by(b) == [(1, IX, GRANT)]
    assert "a" not in living(process.transactions)
    lease_ends(process, b.session)
    c.takes("Sch-M", 1)


def test_the_dead_are_no_cause_to_give_up(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)

    def much_later() -> None:
        script.now_ms = 20_000.0
        lease_ends(process, a.session)

    script.then(much_later)
    b.takes("IX", 1, timeout_ms=-1)
    assert held_by(b) == [(1, IX, GRANT)]


def test_who_lives_is_waited_for_beside_the_dead(process: Process, script: Script) -> None:
    a, b, c = (process.party(name) for name in "abc")
    for one in (a, c):
        one.takes("Sch-S", 1)
    script.then(lambda: lease_ends(process, a.session), lambda: None, c.ends)
    b.takes("Sch-M", 1, timeout_ms=-1)
    assert held_by(b) == [(1, SCH_M, GRANT)]
    assert len(script.waits) == 3


def test_who_only_looks_keeps_nobody_waiting(
    process: Process, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    write_relaxed = process.database.write_relaxed
    script.then(
        lambda: monkeypatch.setattr(process.database, "write_relaxed", None),
        lambda: monkeypatch.setattr(process.database, "write_relaxed", write_relaxed),
        a.ends,
    )
    b.takes("IX", 1, timeout_ms=-1)
    assert len(script.waits) == 3


def test_the_dead_are_left_alone_by_who_does_not_wait_for_them(
    process: Process, other: Process, script: Script
) -> None:
    """Their heartbeat may only be late."""
    a, b, late = process.party("a"), process.party("b"), other.party("late")
    late.takes("X", 5)
    lease_ends(process, late.session)
    a.takes("Sch-M", 1)
    script.then(lambda: None, a.ends)
    b.takes("IX", 1, timeout_ms=-1)
    other.sessions.renew()
    assert "late" in living(other.transactions)


def test_a_session_that_ended_gets_no_locks(process: Process) -> None:
    a = process.party("a")
    process.sessions.close(a.session)
    with pytest.raises(Unavailable, match=f"transaction a of session {a.session} has no locks"):
        a.takes("IX", 1)
    with pytest.raises(Unavailable, match=f"^session {a.session} has no locks"):
        process.locks.acquire(a.session, None, wants("S"), 0)


def test_whose_caller_is_interrupted_asks_for_nothing(
    process: Process, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    script.then(lambda: monkeypatch.setattr(process.database, "is_interrupted", lambda: True))
    with pytest.raises(Interrupted):
        b.takes("IX", 1, timeout_ms=-1)
    assert held_by(b) == []


def test_who_is_interrupted_asks_for_nothing_even_when_the_database_is_away(
    process: Process, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)

    write_relaxed = process.database.write_relaxed

    def refuse(*_: object) -> None:
        raise Unavailable("catalog: it rains")

    def interrupt() -> None:
        monkeypatch.setattr(process.database, "write_relaxed", refuse)
        raise KeyboardInterrupt

    script.then(interrupt)
    with pytest.raises(KeyboardInterrupt):
        b.takes("IX", 1, timeout_ms=-1)
    monkeypatch.setattr(process.database, "write_relaxed", write_relaxed)
    assert held_by(b) == [(1, IX, WAIT)]


def test_only_ones_own_waiting_requests_are_withdrawn(process: Process, script: Script) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-S", 1)
    b.takes("IX", 3)
    process.locks.acquire(c.session, None, wants("S", 4), 0)

    def interrupt() -> None:
        raise KeyboardInterrupt

    def beside() -> None:
        # While b waits, another transaction of its session, and c, begin to wait, and stop.
        process.transactions.begin("b2", b.session)
        script.steps.extendleft([interrupt])
        with pytest.raises(KeyboardInterrupt):
            process.locks.acquire(b.session, "b2", wants("Sch-M", 1), -1)
        script.steps.extendleft([interrupt])
        with pytest.raises(KeyboardInterrupt):
            c.takes("Sch-M", 1, timeout_ms=-1)
        assert held_by(b) == [(3, IX, GRANT), (1, SCH_M, WAIT)]
        assert held_by(c) == []

    script.then(beside, a.ends)
    b.takes("Sch-M", 1, timeout_ms=-1)
    assert held_by(b) == [(3, IX, GRANT), (1, SCH_M, GRANT)]
    assert len(process.locks.entries()) == 3


def test_a_transaction_that_has_ended_gets_no_locks(process: Process) -> None:
    """A lock that it got would end with the session alone."""
    a = process.party("a")
    process.transactions.end("a")
    with pytest.raises(Unavailable, match="transaction a of session 1 has no locks any more"):
        a.takes("IX", 1)
    assert process.locks.entries() == []


def test_sessions_withdraw_their_own(process: Process, script: Script) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-M", 1)

    def beside() -> None:
        with pytest.raises(LockTimeout):
            process.locks.acquire(c.session, None, wants("S"), 1)
        waiting = [one.session_id for one in process.locks.entries() if one.status is WAIT]
        assert waiting == [b.session]

    script.then(beside, lambda: None, a.ends)
    process.locks.acquire(b.session, None, wants("S"), -1)


# Who is woken


def test_whoever_may_go_on_is_told(process: Process, other: Process) -> None:
    bell = process.locks._changes
    a, b = process.party("a"), process.party("b")
    a.takes("IX", 1)
    assert bell.count == 0  # nobody waits longer or shorter for it
    a.ends()
    assert bell.count == 1
    process.locks.release_session_locks(a.session, table(1))
    assert bell.count == 2
    a.takes("IX", 1)
    with pytest.raises(LockTimeout):
        b.takes("Sch-M", 1, timeout_ms=1)
    assert bell.count == 4  # it came between others, and went again


class Condition:
    """Notes what is done with it, by whom it is held."""

    def __init__(self) -> None:
        self.is_held = False
        self.done: list[object] = []

    def __enter__(self) -> None:
        self.is_held = True

    def __exit__(self, *_: object) -> None:
        self.is_held = False

    def notify_all(self) -> None:
        assert self.is_held
        self.done.append("told")

    def wait_for(self, _: object, timeout_s: float) -> None:
        assert self.is_held
        self.done.append(timeout_s)


def test_the_bell_is_waited_for_no_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    bell = locks_module._ChangeSignal()
    condition = Condition()
    monkeypatch.setattr(bell, "_changed", condition)
    bell.wait(bell.count, 2_000)
    bell.wait(bell.count, -5)
    bell.notify()
    assert condition.done == [2, 0, "told"]
