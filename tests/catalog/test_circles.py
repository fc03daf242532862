"""Circles of waiting: who gives up, what it is told, and who could end the wait himself."""

from __future__ import annotations

import threading

import pytest

from tests.catalog.locking import Process, table, wants
from tests.catalog.waiting import Script, held_by
from txlake.conflict.locking import LockMode, LockStatus
from txlake.errors import Deadlock, LockTimeout

GRANT, WAIT = LockStatus.GRANT, LockStatus.WAIT
IX, SCH_M = LockMode.IX, LockMode.SCH_M


def test_the_youngest_gives_up_when_it_closes_the_circle(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    b.takes("Sch-M", 2)

    def close() -> None:
        with pytest.raises(Deadlock, match=f"session {b.session} began last") as caught:
            b.takes("IX", 1, timeout_ms=-1)
        assert f"waits for IX on table default.number 2; session {a.session}" not in str(caught)
        assert str(caught.value).count("waits for IX on table") == 2
        assert held_by(b) == [(2, SCH_M, GRANT)]

    script.then(close, b.ends)
    a.takes("IX", 2, timeout_ms=-1)
    assert held_by(a) == [(1, SCH_M, GRANT), (2, IX, GRANT)]


def test_the_youngest_is_told_when_an_older_one_closes_it(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    b.takes("Sch-M", 2)
    seen: list[object] = []

    def close() -> None:
        script.then(lambda: seen.append((held_by(a), held_by(b))))
        rung = process.locks._changes.count
        with pytest.raises(LockTimeout):
            a.takes("IX", 2, timeout_ms=5)
        assert process.locks._changes.count >= rung + 2  # of the victim, and when it gave up itself

    script.then(close)
    with pytest.raises(Deadlock, match=r"waits for IX on .*number 1.*began last"):
        b.takes("IX", 1, timeout_ms=-1)
    victim = (1, IX, LockStatus.VICTIM)
    assert seen == [([(1, SCH_M, GRANT), (2, IX, WAIT)], [(2, SCH_M, GRANT), victim])]
    assert held_by(b) == [(2, SCH_M, GRANT)]


def test_of_two_conversions_the_youngest_gives_up(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    for one in (a, b):
        one.takes("Sch-S", 1)

    def close() -> None:
        with pytest.raises(Deadlock, match=r"(waits for Sch-M.*){2}began last"):
            b.takes("Sch-M", 1, timeout_ms=-1)

    script.then(close, b.ends)
    a.takes("Sch-M", 1, timeout_ms=-1)
    assert held_by(a) == [(1, SCH_M, GRANT)]


def test_a_victim_that_converted_says_what_it_waited_for(process: Process, script: Script) -> None:
    a, b, c = (process.party(name) for name in "abc")
    for one in (a, b):
        one.takes("Sch-S", 1)

    def close() -> None:
        with pytest.raises(LockTimeout):
            a.takes("Sch-M", 1, timeout_ms=5)
        # A conversion comes before those who waited longer: c is no part of the circle.
        assert held_by(c) == []

    script.then(close)
    with pytest.raises(Deadlock, match=r"deadlock.*session .*waits for Sch-M on table"):
        b.takes("Sch-M", 1, timeout_ms=-1)


def test_a_circle_of_three_is_told_whole(process: Process, script: Script) -> None:
    """One of them waits for nobody's lock, but behind somebody who asked before."""
    a, c, b = (process.party(name) for name in "acb")
    a.takes("Sch-S", 1)
    b.takes("Sch-M", 2)

    def close() -> None:
        with pytest.raises(Deadlock) as caught:
            b.takes("Sch-S", 1, timeout_ms=-1)
        told = [f"transaction {name}, " for name in "bca"]
        places = [str(caught.value).index(one) for one in told]
        assert places == sorted(places)

    script.then(lambda: a.takes("IX", 2, timeout_ms=-1), close, b.ends, a.ends)
    c.takes("Sch-M", 1, timeout_ms=-1)
    assert held_by(c) == [(1, SCH_M, GRANT)]


def test_a_conversion_in_a_circle_is_told_as_such(process: Process, script: Script) -> None:
    """It waits for who holds, not for who asked before and waits himself."""
    a, c, b = (process.party(name) for name in "acb")
    b.takes("IX", 1)

    def holds_and_wants_more() -> None:
        a.takes("Sch-S", 1)
        a.takes("S", 1, timeout_ms=-1)

    def close() -> None:
        with pytest.raises(Deadlock, match=r"transaction b.*transaction a") as caught:
            b.takes("Sch-M", 1, timeout_ms=-1)
        assert "transaction c" not in str(caught.value)

    script.then(holds_and_wants_more, close, b.ends)
    c.takes("S", 1, timeout_ms=-1)
    assert held_by(a) == [(1, LockMode.S, GRANT)]


def test_a_thread_does_not_wait_for_what_it_has_to_end_itself(
    process: Process, script: Script
) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    with pytest.raises(Deadlock, match=r"transaction a.* holds Sch-M, which this thread has used"):
        b.takes("IX", 1, timeout_ms=-1)
    assert 10_000 <= script.now_ms <= 11_000


def test_a_thread_that_alone_ends_it_is_told_at_once(process: Process, script: Script) -> None:
    a, b, c = (process.party(name) for name in "abc")
    process.locks.set_ending_thread("a")
    c.takes("Sch-S", 1)
    a.takes("Sch-S", 1)
    with pytest.raises(Deadlock, match=r"transaction a.* holds Sch-S, which this thread has used"):
        b.takes("Sch-M", 1, timeout_ms=-1)
    assert len(script.waits) == 1
    process.locks.forget_owner("a")
    assert process.locks._ending_threads == {}


def test_what_another_thread_used_or_ends_may_be_waited_for(
    process: Process, script: Script
) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-M", 1)
    process.locks.set_ending_thread("a")
    ending = threading.Thread(target=process.locks.set_ending_thread, args=("a",))
    ending.start()
    ending.join(60)
    with pytest.raises(LockTimeout):
        b.takes("IX", 1, timeout_ms=5_000)
    process.locks.set_ending_thread("c")
    using = threading.Thread(target=c.takes, args=("Sch-M", 2))
    using.start()
    using.join(60)
    with pytest.raises(LockTimeout):
        b.takes("IX", 2, timeout_ms=12_000)


def test_another_threads_transaction_may_be_waited_for(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    using = threading.Thread(target=a.takes, args=("Sch-M", 1))
    using.start()
    using.join(120)
    with pytest.raises(LockTimeout):
        b.takes("IX", 1, timeout_ms=12_000)
    assert script.now_ms == 12_000


def test_a_sessions_own_lock_may_be_waited_for(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    process.locks.acquire(a.session, None, wants("Sch-M"), 0)
    assert process.locks._last_threads == {}
    with pytest.raises(LockTimeout):
        b.takes("IX", 1, timeout_ms=12_000)
    process.locks.release_session_locks(a.session, table(9))
    b.takes("IX", 1)
