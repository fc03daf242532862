"""Which rows each change locks on a server, and in which order: who locks several keeps to one.

SQLite has one writer at a time and takes no row locks; the statements are looked at as PostgreSQL
would be given them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import psycopg

from tests.catalog.ledgers import User, version
from tests.catalog.locking import wants
from tests.catalog.waiting import Script, ScriptedSignal
from txlake.catalog import Catalog
from txlake.catalog.prepared import Prepared
from txlake.catalog.pruning import Pruner
from txlake.ports import DroppedTable, VersionRange
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")

LOCKED = re.compile(r"FROM (\w+)(?:(?!FROM).)* FOR (UPDATE|SHARE)(?: OF ([\w, ]+))?", re.S)


@pytest.fixture
def user(sqlite_url: str) -> Iterator[User]:
    """A session in a catalog that has the tables a and b and the database d."""
    catalog = Catalog(sqlite_url, System())
    catalog.create_database("d")
    user = User(catalog)
    user.create("a", "b")
    yield user
    catalog.close()


@contextmanager
def locking(catalog: Catalog) -> Iterator[list[str]]:
    """The rows that are locked meanwhile: of which relation, and by what."""
    found: list[str] = []

    def look(
        _: object, statement: object, many: object, one: dict[str, object], __: object
    ) -> None:
        if not isinstance(statement, sa.Select | sa.Update):
            return
        dialect: sa.Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        made = statement.compile(dialect=dialect)
        note(str(made), made.params.values())

    def note(sql: str, parameters: Iterable[object]) -> None:
        if locked := LOCKED.search(sql):
            relation, how, of = locked.groups()
            values = [str(value) for value in parameters if isinstance(value, str)]
            name = values[0] if relation == "txlake_counters" else (of or relation)
            found.append(name.replace("txlake_", "") + ("" if how == "UPDATE" else " shared"))

    bound = Prepared._bind
    server: sa.Dialect = psycopg.dialect(paramstyle="format")  # type: ignore[no-untyped-call]

    def noted(self: Prepared, dialect: sa.Dialect, parameters: dict[str, Any]) -> Any:
        text, values = bound(self, server, dict(parameters))
        assert isinstance(values, list), "as the driver takes them"
        note(text.sql, values)
        return bound(self, dialect, parameters)

    patched = pytest.MonkeyPatch()
    patched.setattr(Prepared, "_bind", noted)

    engines = {catalog._database._durable, catalog._database._light}
    for engine in engines:
        sa.event.listen(engine, "before_execute", look)
    try:
        yield found
    finally:
        patched.undo()
        for engine in engines:
            sa.event.remove(engine, "before_execute", look)


def forget(user: User) -> None:
    user.ratify(names=(DroppedTable(id="a"),))
    user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    user.catalog.ledger.forget("a")


def recover(user: User) -> None:
    user.catalog.recovery.begin(user.catalog.lake_id, 1, user.session)


def lock(user: User) -> None:
    user.catalog.locks.acquire(user.session, user.begin(), wants("X"), 0)


def wait_for_a_lock(user: User) -> None:
    script, locks = Script(), user.catalog.locks
    locks._changes = ScriptedSignal(script)
    holder, waiter = user.begin(), user.begin()
    locks.acquire(user.session, holder, wants("X"), 0)
    script.then(lambda: locks.release(holder))
    locks.acquire(user.session, waiter, wants("X"), -1)


def expire_a_branch(user: User) -> None:
    entry = user.catalog.branches.create("x", retention_ms=-1)
    user.catalog.branches.expire(entry.id)


def drop_a_branch(user: User) -> None:
    user.catalog.branches.create("x")
    user.catalog.branches.drop("x")


OPERATIONS: dict[str, tuple[Callable[[User], object], list[str]]] = {
    "make a database": (lambda user: user.catalog.create_database("e"), ["sequence"]),
    "set a database's level": (
        lambda user: user.catalog.set_isolation("d", "snapshot"),
        ["sequence"],
    ),
    "set a database's properties": (
        lambda user: user.catalog.set_properties("d", {}),
        ["sequence"],
    ),
    "drop a database": (lambda user: user.catalog.drop_database("d"), ["sequence", "tables"]),
    "begin a recovery": (recover, ["sessions", "sequence"]),
    "settle a table": (
        lambda user: user.catalog.recovery.settle(1, "a", 0, ()),
        ["sequence"],
    ),
    "end a recovery": (lambda user: user.catalog.recovery.end(1), ["sequence"]),
    "make an old catalog ready": (
        lambda user: user.catalog._make_ready(),
        ["sequence", "sequence"],
    ),
    "drop a branch": (drop_a_branch, ["sequence", "sequence"]),
    "drop an expired branch": (expire_a_branch, ["sequence", "sequence"]),
    "ratify": (
        lambda user: user.write(version("a", 1)),
        ["sessions", "transactions, counters", "tables"],
    ),
    "publish": (
        lambda user: user.catalog.ledger.record_publication({"a": VersionRange(0, 0)}),
        ["tables"],
    ),
    "forget a table": (
        forget,
        ["sessions", "transactions, counters", "tables", "tables", "sequence"],
    ),
    "note a clearing": (lambda user: user.catalog.ledger.note_clearing("a"), ["sequence"]),
    "reserve": (
        lambda user: user.catalog.ledger.reserve(user.begin(), ["a"]),
        ["sessions", "sessions", "transactions shared", "tables"],
    ),
    "look for a lost reply": (lambda user: user.catalog.ledger._find_ratified(["1"]), ["sequence"]),
    "prune": (lambda user: Pruner(user.catalog._database, 1).step(), ["sequence", "floor"]),
    "renew leases": (lambda user: user.catalog.sessions.renew(), ["sessions"]),
    "lock": (lock, ["sessions"]),
    "kill": (
        lambda user: user.catalog.transactions.kill(user.begin()),
        ["sessions", "lock"],
    ),
    "wait for a lock": (wait_for_a_lock, ["sessions", "sessions", "lock"]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_which_rows_are_locked(user: User, name: str) -> None:
    do, expected = OPERATIONS[name]
    with locking(user.catalog) as found:
        do(user)
    assert found == expected
