"""Requests for locks as rows: whose are removed, who is in the way, what messages call them."""

from __future__ import annotations

import pytest

from tests.catalog.ledgers import User, execute
from tests.catalog.locking import Process, blocking_locks, wants
from tests.catalog.waiting import Script
from txlake.catalog import lock_rows
from txlake.conflict.locking import (
    LockMode,
    LockRequest,
    LockStatus,
    Owner,
    Resource,
    ResourceType,
)

pytestmark = pytest.mark.usefixtures("direct")

GRANT = LockStatus.GRANT


def test_a_sessions_own_locks_are_left_but_for_what_is_kept(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    kept = Resource(type=ResourceType.DATABASE, database=7, entity=7)
    for number in (7, 8):
        resource = Resource(type=ResourceType.DATABASE, database=number, entity=number)
        for one in (a, b):
            request = LockRequest(resource=resource, mode=LockMode.S)
            process.locks.acquire(one.session, None, [request], 0)
    process.locks.acquire(a.session, None, wants("S", 7), 0)
    a.takes("IX", 7, 9)
    process.locks.release_session_locks(a.session, kept)
    left = [
        (one.session_id, one.transaction_id, one.resource.type.value, one.resource.entity)
        for one in process.locks.entries()
    ]
    assert left == [
        (a.session, None, "DATABASE", 7),
        (b.session, None, "DATABASE", 7),
        (b.session, None, "DATABASE", 8),
        (a.session, "a", "OBJECT", 7),
        (a.session, "a", "OBJECT", 9),
    ]


def test_others_are_in_the_way_of_what_they_hold(process: Process) -> None:
    a, b = process.party("a"), process.party("b")
    assert blocking_locks(process.locks, b.session, "b", wants("X")) == []
    a.takes("IX", 1)
    assert blocking_locks(process.locks, a.session, "a", wants("X")) == []
    assert blocking_locks(process.locks, b.session, "b", wants("X", 2)) == []
    [held] = blocking_locks(process.locks, b.session, "b", wants("X"))
    assert (held.session_id, held.status) == (a.session, GRANT)
    assert not process.awaits_nobody(wants("X"))


def test_who_only_asks_is_waited_for_and_holds_nothing(process: Process, script: Script) -> None:
    a, b = process.party("a"), process.party("b")
    a.takes("Sch-S", 1)
    seen: list[object] = []

    def look() -> None:
        seen.append(blocking_locks(process.locks, 0, "c", wants("Sch-S")))
        seen.append(process.awaits_nobody(wants("Sch-S")))
        a.ends()

    script.then(look)
    b.takes("Sch-M", 1, timeout_ms=-1)
    assert seen == [[], False]


def test_what_messages_call_things(process: Process, sqlite_user: User) -> None:
    sqlite_user.catalog.create_database("d")
    sqlite_user.create("a")
    sqlite_user.create("b", database="d")
    found = sqlite_user.catalog.find("d", "b")
    assert found is not None
    of, entity = found.database_number, found.number
    with process.database.reading() as connection:
        called = [
            lock_rows.resource_text(
                connection,
                Resource(type=kind, database=of, entity=entity, subtype=sub, description="x"),
            )
            for kind, sub in (
                (ResourceType.DATABASE, ""),
                (ResourceType.KEY, ""),
                (ResourceType.OBJECT, ""),
                (ResourceType.OBJECT, "COMMIT"),
            )
        ]
    assert called == ["database d", "the name d.x", "table d.b", "table d.b (COMMIT)"]


def test_what_messages_call_owners(process: Process, sqlite_user: User, sqlite_url: str) -> None:
    a = process.party("a")
    execute(sqlite_url, "UPDATE txlake_sessions SET host = 'h', process = 10 + id")
    with process.database.reading() as connection:
        called = [
            lock_rows.owner_text(connection, owner)
            for owner in (
                Owner(session=sqlite_user.session),
                Owner(session=a.session, transaction="a"),
                Owner(session=99),
            )
        ]
    assert called == [
        "session 1 (process 11 on h)",
        "session 2 (transaction a, process 12 on h)",
        "session 99 ()",
    ]
