"""Locks that are void: their transaction was killed, or isn't there any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tests.catalog.ledgers import execute, selected
from tests.catalog.locking import Parties, Process, blocking_locks, parties_on, until, wants
from tests.catalog.open_transactions import write_transaction
from tests.catalog.waiting import Script, held_by
from txlake.catalog import lock_rows
from txlake.catalog.owners import reap
from txlake.conflict.locking import LockMode, LockStatus
from txlake.errors import Unavailable

KILLED = "UPDATE txlake_transactions SET state = 'killed' WHERE id = 'a'"
ENDED = "DELETE FROM txlake_transactions WHERE id = 'a'"
GRANT = LockStatus.GRANT


@pytest.fixture
def parties(url: str) -> Iterator[Parties]:
    with parties_on(url) as made:
        yield made


@pytest.mark.parametrize("gone", [KILLED, ENDED], ids=["killed", "ended"])
def test_they_count_for_nothing_and_are_removed_by_who_meets_them(
    parties: Parties, url: str, gone: str
) -> None:
    process = parties.process()
    a, b, c = (process.party(name) for name in "abc")
    a.takes("Sch-M", 1, 2)
    execute(url, gone)
    assert process.locks.entries() == []
    assert process.awaits_nobody(wants("Sch-M", 1, 2))
    assert blocking_locks(process.locks, c.session, "c", wants("Sch-M", 1, 2)) == []
    b.takes("Sch-M", 1)
    assert selected(url, "SELECT transaction_id, entity FROM txlake_locks") == [("b", 1)]
    c.takes("Sch-M", 2)


def test_a_waiter_goes_on_when_the_holder_is_gone(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-M", 1)
    url = process.database.url.render_as_string(hide_password=False)
    script.then(lambda: execute(url, KILLED))
    b.takes("IX", 1, timeout_ms=-1)
    assert held_by(b) == [(1, LockMode.IX, GRANT)]


def test_a_sessions_own_locks_are_not_void(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    process.locks.acquire(a.session, None, wants("S", 1), 0)
    b.takes("Sch-M", 2)
    process.transactions.kill("a")

    def look() -> None:
        with write_transaction(process.database) as connection:
            reap(process.database, connection)

    process.database.run_shielded(look)
    assert blocking_locks(process.locks, b.session, "b", wants("X", 1)) != []


def test_who_is_not_registered_gets_no_locks(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    process.transactions.end("a")
    with pytest.raises(Unavailable, match=r"transaction a of session \d+ has no locks any more"):
        a.takes("Sch-M", 1)
    b.takes("Sch-M", 1)


@pytest.mark.parametrize("looks", range(3))
def test_who_is_killed_at_a_look_is_granted_nothing(
    process: Process, script: Script, looks: int
) -> None:
    a, b, c = (process.party(name) for name in "abc")
    b.takes("Sch-M", 1)

    def kill() -> None:
        process.transactions.kill("a")
        b.ends()

    script.then(*[lambda: None] * looks, kill)
    with pytest.raises(Unavailable, match="transaction a of session"):
        a.takes("IX", 1, timeout_ms=-1)
    with pytest.raises(Unavailable, match="transaction a was killed by somebody else"):
        a.takes("IX", 1)
    c.takes("Sch-M", 1)


def test_who_is_killed_while_it_asks_holds_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server, where nothing else keeps the two apart: the kill waits for the asker's end."""
    with parties_on(postgres_url) as parties:
        one, other = parties.process(), parties.process()
        a, b = one.party("a"), other.party("b")
        kills: list[Any] = []
        _before(monkeypatch, "add", lambda asking: kills.append(_killing(parties, other, asking)))
        a.takes("Sch-M", 1)
        [killed] = kills
        assert killed.result(30)
        assert selected(postgres_url, "SELECT id FROM txlake_locks") == []
        b.takes("Sch-M", 1)


def test_who_is_killed_while_it_is_granted_holds_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parties_on(postgres_url) as parties:
        one, other = parties.process(), parties.process()
        a, b = one.party("a"), other.party("b")
        b.takes("Sch-M", 1)
        waiting = a.asks("Sch-M", 1)
        kills: list[Any] = []
        _before(monkeypatch, "mark", lambda asking: kills.append(_killing(parties, other, asking)))
        b.ends()
        waiting.result(30)
        [killed] = kills
        assert killed.result(30)
        assert selected(postgres_url, "SELECT id FROM txlake_locks") == []


def _killing(parties: Parties, process: Process, asking: Connection) -> Any:
    """A kill of the transaction a that waits for the end of the asker's database transaction."""
    asker = asking.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    query = f"SELECT 1 FROM pg_stat_activity WHERE {asker} = ANY(pg_blocking_pids(pid))"
    answer = parties.pool.submit(process.transactions.kill, "a")

    def waits() -> bool:
        with process.database.reading() as connection:
            return connection.exec_driver_sql(query).first() is not None

    until(lambda: answer.done() or waits())
    assert not answer.done()
    return answer


def test_a_grant_of_what_was_removed_meanwhile_is_none(
    process: Process, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by who finds the lease over, without the turn to decide."""
    a, b = process.party("a"), process.party("b")
    b.takes("Sch-M", 1)
    script.then(b.ends)
    _before(monkeypatch, "mark", _remove_all)
    with pytest.raises(Unavailable, match="transaction a of session"):
        a.takes("IX", 1, timeout_ms=-1)


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
def test_a_conversion_of_what_was_removed_meanwhile_is_none(
    process: Process, script: Script, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-S", 1)
    if waits:
        b.takes("Sch-S", 1)
        script.then(b.ends)
    _before(monkeypatch, "convert", _remove_all)
    with pytest.raises(Unavailable, match="transaction a of session"):
        a.takes("Sch-M", 1, timeout_ms=-1)


def _before(monkeypatch: pytest.MonkeyPatch, step: str, do: Callable[[Connection], object]) -> None:
    """Do something once, in the asker's database transaction, right before one of its steps."""
    real: Callable[..., Any] = getattr(lock_rows, step)

    def held_up(connection: Connection, *given: Any, **options: Any) -> Any:
        monkeypatch.setattr(lock_rows, step, real)
        do(connection)
        return real(connection, *given, **options)

    monkeypatch.setattr(lock_rows, step, held_up)


def _remove_all(connection: Connection) -> None:
    connection.execute(sa.text("DELETE FROM txlake_locks"))
