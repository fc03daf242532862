"""Locks on a catalog, by threads: order, conversion, timeouts, deadlocks, and who is gone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import living
from tests.catalog.locking import Parties, Process, blocking_locks, parties_on, table, until, wants
from tests.catalog.open_transactions import write_transaction
from txlake.catalog import locks as locks_module
from txlake.catalog.relations import locks, sessions
from txlake.conflict.locking import (
    LockMode,
    LockRequest,
    LockStatus,
    Resource,
    ResourceType,
    compatible,
    conversion_mode,
)
from txlake.errors import Deadlock, LockTimeout, Unavailable

pytestmark = pytest.mark.usefixtures("direct")

GRANT, WAIT, CONVERT = LockStatus.GRANT, LockStatus.WAIT, LockStatus.CONVERT


@pytest.fixture
def parties(url: str) -> Iterator[Parties]:
    with parties_on(url) as made:
        yield made


@pytest.fixture
def process(parties: Parties) -> Process:
    return parties.process()


def test_locks_are_listed_until_their_transaction_ends(process: Process) -> None:
    a = process.party("a")
    a.takes("IX", 1, 2)
    found = a.entries()
    assert [(one.resource, one.mode, one.status) for one in found] == [
        (table(1), LockMode.IX, GRANT),
        (table(2), LockMode.IX, GRANT),
    ]
    assert {(one.session_id, one.blocking_session_id) for one in found} == {(a.session, None)}
    assert [one.transaction_number for one in found] == [
        one.number for one in process.transactions.entries() for _ in found
    ]
    a.ends()
    assert process.locks.entries() == []


def test_what_is_held_already_costs_nothing(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process.party("a")
    a.takes("IX", 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(process.database, "write_relaxed", None)
        a.takes("IX", 2, 1)
        a.takes("Sch-S")
        with pytest.raises(TypeError):
            a.takes("Sch-M")
    a.ends()
    with monkeypatch.context() as patch:
        patch.setattr(process.database, "write_relaxed", None)
        with pytest.raises(TypeError):  # not after the end
            a.takes("IX")


def test_one_database_transaction_gets_many_locks(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process.party("a")
    asked = []
    write_relaxed = process.database.write_relaxed

    def counted(work: Callable[[sa.Connection], object]) -> object:
        asked.append("a transaction")
        return write_relaxed(work)

    monkeypatch.setattr(process.database, "write_relaxed", counted)
    a.takes("Sch-S", 1, 2, 3, 4)
    assert len(asked) == 1


def test_a_waiter_is_granted_when_the_holder_ends(parties: Parties) -> None:
    """Also where holder and waiter are different processes."""
    one, other = parties.process(), parties.process()
    a, b = one.party("a"), other.party("b")
    a.takes("Sch-M")
    answer = b.asks("IX", timeout_ms=-1)
    (entry,) = b.entries()
    assert (entry.status, entry.mode, entry.blocking_session_id) == (WAIT, LockMode.IX, a.session)
    a.ends()
    answer.result(30)
    (entry,) = b.entries()
    assert (entry.status, entry.blocking_session_id) == (GRANT, None)


def test_dml_doesnt_wait_for_dml_and_readers(process: Process) -> None:
    process.party("a").takes("IX", 1, 2)
    process.party("b").takes("IX", 2, 1)
    process.party("c").takes("Sch-S", 1, 2)


def test_a_late_reader_waits_behind_the_ddl_that_came_before(process: Process) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-S")
    ddl = b.asks("Sch-M")
    assert not process.awaits_nobody(wants("Sch-S"))
    assert process.awaits_nobody(wants("Sch-S", 2))
    reader = c.asks("Sch-S")
    assert [one.blocking_session_id for one in c.entries()] == [b.session]
    a.ends()
    ddl.result(30)
    assert not reader.done()
    assert [one.blocking_session_id for one in c.entries()] == [b.session]
    b.ends()
    reader.result(30)
    assert process.awaits_nobody(wants("Sch-S"))


def test_a_conversion_comes_before_those_who_waited_longer(process: Process) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-S")
    c.takes("Sch-S")
    waiting = b.asks("Sch-M")
    a.takes("IX")  # or the two would wait for each other
    assert [(one.mode, one.status) for one in a.entries()] == [(LockMode.IX, GRANT)]
    converting = a.asks("Sch-M")
    assert [(one.mode, one.status) for one in a.entries()] == [
        (LockMode.IX, GRANT),
        (LockMode.SCH_M, CONVERT),
    ]
    c.ends()
    converting.result(30)
    assert [(one.mode, one.status) for one in a.entries()] == [(LockMode.SCH_M, GRANT)]
    assert not waiting.done()
    a.ends()
    waiting.result(30)


def test_a_second_request_for_the_same_thing_is_one_lock(process: Process) -> None:
    a = process.party("a")
    requests = [*wants("S"), *wants("IX"), *wants("Sch-S")]
    process.locks.acquire(a.session, a.transaction, requests, 0)
    assert [one.mode for one in a.entries()] == [LockMode.SIX]


def test_what_the_rows_say_is_held_is_held(process: Process) -> None:
    """Also when this process doesn't remember it, and others wait for it."""
    a, b = process.party("a"), process.party("b")
    a.takes("IX")
    b.takes("Sch-S")
    converting = b.asks("Sch-M")
    process.locks.forget_owner(a.transaction)
    a.takes("IX")
    assert [one.mode for one in a.entries()] == [LockMode.IX]
    a.ends()
    converting.result(30)


def test_timeouts(process: Process) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-S", 1, 7)
    with pytest.raises(LockTimeout, match=r"table number 1.*default|default.*number 1") as caught:
        b.takes("Sch-M", timeout_ms=0)
    assert caught.value.codes == (1222,)
    for said in (
        f"session {b.session} (transaction b",
        "not granted Sch-M within 0 ms",
        f"session {a.session} (transaction a",
        "holds Sch-S",
        "SET LOCK_TIMEOUT",
    ):
        assert said in str(caught.value)
    assert b.entries() == []
    with pytest.raises(LockTimeout, match="within 20 ms"):
        b.takes("Sch-M", timeout_ms=20)
    assert b.entries() == []
    waiting = b.asks("Sch-M")
    with pytest.raises(LockTimeout, match=rf"session {b.session} .*asked before for Sch-M"):
        c.takes("Sch-S", timeout_ms=0)
    a.ends()
    waiting.result(30)


def test_locks_are_got_in_the_order_given(process: Process) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-M", 2)
    waiting = b.asks("IX", 1, 2, 3)
    assert [(one.resource, one.status) for one in b.entries()] == [
        (table(1), GRANT),
        (table(2), WAIT),
    ]
    c.takes("Sch-M", 3)
    a.ends()
    until(lambda: [one.resource for one in b.entries() if one.status is WAIT] == [table(3)])
    c.ends()
    waiting.result(30)
    assert [one.status for one in b.entries()] == [GRANT] * 3


def test_a_waiter_who_is_interrupted_asks_for_nothing(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-S")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(locks_module._ChangeSignal, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        b.takes("Sch-M", timeout_ms=60_000)
    assert b.entries() == []
    c.takes("Sch-S")


def test_different_things_and_subtypes_never_meet(process: Process) -> None:
    def key(name: str) -> Resource:
        return Resource(type=ResourceType.KEY, database=1, entity=1, description=name)

    resources = [
        table(1),
        table(1, "COMMIT"),
        Resource(type=ResourceType.DATABASE, database=1, entity=1),
        key("a"),
        key("b"),
    ]
    for number, resource in enumerate(resources):
        party = process.party(f"t{number}")
        wanted = LockRequest(resource=resource, mode=LockMode.SCH_M)
        process.locks.acquire(party.session, party.transaction, [wanted], 0)
    late = process.party("late")
    called = (
        "table default.number 1: ",
        r"number 1 \(COMMIT\): ",
        "database default: ",
        "the name default.a: ",
        "the name default.b: ",
    )
    for resource, said in zip(resources, called, strict=True):
        wanted = LockRequest(resource=resource, mode=LockMode.SCH_M)
        with pytest.raises(LockTimeout, match=said):
            process.locks.acquire(late.session, late.transaction, [wanted], 0)


def test_a_sessions_own_locks(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    process.locks.acquire(a.session, None, wants("S"), 0)
    a.takes("X")  # nobody waits for himself
    a.ends()
    found = blocking_locks(process.locks, b.session, "b", wants("X", 1, 2))
    assert [(one.session_id, one.transaction_id, one.mode) for one in found] == [
        (a.session, None, LockMode.S)
    ]
    assert blocking_locks(process.locks, a.session, "a", wants("X")) == []
    assert blocking_locks(process.locks, b.session, "b", wants("S")) == []
    [kept] = wants("S", 2)
    process.locks.acquire(a.session, None, [kept], 0)
    process.locks.release_session_locks(a.session, kept.resource)
    assert blocking_locks(process.locks, b.session, "b", wants("X")) == []
    assert blocking_locks(process.locks, b.session, "b", wants("X", 2)) != []
    b.takes("Sch-M", timeout_ms=0)
    with pytest.raises(LockTimeout):
        process.locks.acquire(a.session, None, wants("S"), 0)


def test_what_others_only_ask_for_they_dont_hold(process: Process) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-S")
    waiting = b.asks("Sch-M")
    assert blocking_locks(process.locks, c.session, "c", wants("Sch-S")) == []
    assert not process.awaits_nobody(wants("Sch-S"))
    a.ends()
    waiting.result(30)


def test_who_gives_up_lets_those_behind_him_go_on(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PAUSE_MS_MIN", "_PAUSE_MS_MAX"):
        monkeypatch.setattr(locks_module, name, 1e7)  # nobody looks by himself
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-S")
    ddl = b.asks("Sch-M", timeout_ms=300)
    reader = c.asks("Sch-S")
    with pytest.raises(LockTimeout):
        ddl.result(30)
    reader.result(30)


# Deadlocks


def test_of_a_deadlock_the_youngest_is_told(parties: Parties) -> None:
    one, other = parties.process(), parties.process()
    a, b = one.party("a"), other.party("b")
    a.takes("Sch-M", 1)
    b.takes("Sch-M", 2)
    older = a.asks("IX", 2)
    with pytest.raises(Deadlock) as caught:
        b.takes("IX", 1, timeout_ms=60_000)
    assert caught.value.codes == (1205,)
    for said in (
        f"session {b.session} (transaction b",
        "waits for IX on table default.number 1",
        f"session {a.session} (transaction a",
        "waits for IX on table default.number 2",
        f"session {b.session} began last",
    ):
        assert said in str(caught.value)
    evidence = caught.value.evidence
    assert evidence is not None
    assert (evidence.table, evidence.rule, evidence.retry) == ("default.number 1", "deadlock", True)
    assert (evidence.read_version, evidence.winning_version, evidence.isolation) == (-1, -1, "")
    assert "same order" in evidence.advice
    assert [one.status for one in b.entries()] == [GRANT]
    assert not older.done()
    b.ends()
    older.result(30)


def test_the_youngest_is_told_when_an_older_one_closes_the_circle(parties: Parties) -> None:
    one, other = parties.process(), parties.process()
    a, b = one.party("a"), other.party("b")
    a.takes("Sch-M", 1)
    b.takes("Sch-M", 2)
    younger = b.asks("IX", 1)
    older = parties.pool.submit(a.takes, "IX", 2, timeout_ms=60_000)
    with pytest.raises(Deadlock, match="began last"):
        younger.result(30)
    assert not older.done()
    b.ends()
    older.result(30)


def test_a_deadlock_of_three(parties: Parties) -> None:
    a, b, c = (parties.process().party(name) for name in "abc")
    for number, party in enumerate((a, b, c)):
        party.takes("Sch-M", number)
    answers = [a.asks("IX", 1), c.asks("IX", 0)]
    middle = parties.pool.submit(b.takes, "IX", 2, timeout_ms=60_000)
    with pytest.raises(Deadlock, match=f"session {c.session} began last"):
        answers[1].result(30)
    c.ends()
    middle.result(30)
    b.ends()
    answers[0].result(30)


def test_two_conversions_of_one_lock_are_a_deadlock(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-S")
    b.takes("Sch-S")
    older = a.asks("Sch-M")
    with pytest.raises(Deadlock, match=r"waits for Sch-M.*waits for Sch-M"):
        b.takes("Sch-M", timeout_ms=60_000)
    b.ends()
    older.result(30)


# Who is gone


def test_a_killed_transaction_stops_waiting(parties: Parties) -> None:
    one, other = parties.process(), parties.process()
    a, b = one.party("a"), one.party("b")
    a.takes("Sch-M")
    waiting = b.asks("IX")
    assert other.transactions.kill("b")
    with pytest.raises(Unavailable, match=r"transaction b .* ended by somebody else"):
        waiting.result(30)


def test_a_killed_transaction_gets_no_locks(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("IX", 1)
    assert process.transactions.kill("a")
    with pytest.raises(Unavailable, match="transaction a was killed by somebody else"):
        a.takes("Sch-M", 2)
    assert a.entries() == []
    b.takes("Sch-M", 1, 2)


def lease_ends(process: Process, session: int) -> None:
    if process.database.is_replicated:
        pytest.skip("the sessions of a process share its lease")
    with write_transaction(process.database) as connection:
        over = sa.update(sessions).where(sessions.c.id == session).values(lease_ms=1, warned=True)
        connection.execute(over)


def test_a_lock_goes_with_its_sessions_lease(process: Process) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-M")
    waiting = b.asks("IX")
    lease_ends(process, a.session)
    waiting.result(30)
    assert a.entries() == []
    assert "a" not in living(process.transactions)
    lease_ends(process, b.session)
    assert process.locks.entries() == []
    assert process.awaits_nobody(wants("Sch-M"))
    assert blocking_locks(process.locks, c.session, "c", wants("Sch-M")) == []
    c.takes("Sch-M", timeout_ms=0)


def test_a_waiter_whose_own_lease_is_over_is_told(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M")
    waiting = b.asks("IX")
    lease_ends(process, b.session)
    with pytest.raises(Unavailable, match=r"transaction b of session.*longer than its lease"):
        waiting.result(30)
    process.sessions.close(b.session)
    with pytest.raises(Unavailable, match="no locks any more"):
        b.takes("IX", 2)


def test_a_deadlock_with_the_dead_is_none(process: Process) -> None:
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-M", 1)
    b.takes("Sch-M", 2)
    older = b.asks("IX", 1)
    lease_ends(process, a.session)
    c.takes("Sch-S", 1, timeout_ms=30_000)
    older.result(30)


# All together


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("seed", range(4))
def test_everybody_gets_his_turn_and_nobody_anothers(parties: Parties, seed: int) -> None:
    """Threads of two processes, any modes in any order: no two hold what excludes each other."""
    _turmoil([parties.process(), parties.process()], seed)


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("seed", range(4))
def test_no_wakeup_is_lost(parties: Parties, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a process whoever can go on is told: nobody here looks by himself."""
    monkeypatch.setattr(locks_module, "_PAUSE_MS_MIN", 1e7)
    monkeypatch.setattr(locks_module, "_PAUSE_MS_MAX", 1e7)
    _turmoil([parties.process()], seed)


def _turmoil(processes: list[Process], seed: int) -> None:
    held: dict[tuple[int, str], LockMode] = {}
    looking = threading.Lock()
    modes = [LockMode.SCH_S, LockMode.IX, LockMode.SCH_M, LockMode.X]

    def work(worker: int) -> int:
        chance = random.Random(f"{seed}/{worker}")
        process = processes[worker % len(processes)]
        session = process.sessions.open()
        done = 0
        for turn in range(8):
            name = f"{worker}-{turn}"
            process.transactions.begin(name, session)
            try:
                for _ in range(2):
                    wanted = wants(chance.choice(modes).value, *chance.sample(range(3), 2))
                    process.locks.acquire(session, name, wanted, 60_000)
                    with looking:
                        for one in wanted:
                            number = one.resource.entity
                            before = held.get((number, name), one.mode)
                            held[number, name] = conversion_mode(before, one.mode)
                        for (number, who), mode in held.items():
                            for (other, whom), its in held.items():
                                if number == other and who != whom:
                                    assert compatible(mode, its), (who, whom)
                done += 1
            except Deadlock:
                pass
            finally:
                with looking:
                    for number in range(3):
                        held.pop((number, name), None)
                process.locks.release(name)
        return done

    with ThreadPoolExecutor(5) as pool:
        assert sum(pool.map(work, range(5))) > 0
    with processes[0].database.reading() as connection:
        assert connection.execute(sa.select(locks.c.id)).all() == []
