"""COMMITs whose reply is lost: looked for, else said to be unknown."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from tests.catalog.ledgers import User, new, prepared, version
from tests.catalog.view_changes import create_view
from tests.postgresql import PostgresServer
from txlake.catalog import Catalog, ratifying
from txlake.errors import OutcomeUnknown, Unavailable
from txlake.ports import Head, HeadsMoved, Ratification, Ratified
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def url(database_url: str) -> str:
    """Here databases alone: a store's lost replies are in replicated/test_log.py."""
    return database_url


class Unwaiting(System):
    """Doesn't wait, and keeps how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait_ms(self, duration_ms: float) -> None:
        self.waits.append(duration_ms)


class Line:
    """The line to the database: fails at COMMIT as often as it is told to."""

    def __init__(self, engine: sa.Engine) -> None:
        self.lost_before = self.lost_after = 0
        self._commit = engine.dialect.do_commit
        self._error = engine.dialect.loaded_dbapi.OperationalError

    def commit(self, connection: PoolProxiedConnection) -> None:
        if self.lost_before:
            self.lost_before -= 1
            self._lose(connection)
        self._commit(connection)
        if self.lost_after:
            self.lost_after -= 1
            self._lose(connection)

    def _lose(self, connection: PoolProxiedConnection) -> None:
        assert connection.dbapi_connection is not None
        connection.dbapi_connection.close()  # the server ends what was open on it
        raise self._error("server closed the connection unexpectedly")


@pytest.fixture
def user(url: str) -> Iterator[User]:
    catalog = Catalog(prepared(url), Unwaiting())
    yield User(catalog)
    catalog.close()


@pytest.fixture
def line(user: User, monkeypatch: pytest.MonkeyPatch) -> Line:
    """The line of the user's durable transactions."""
    engine = user.catalog._database._durable
    line = Line(engine)
    monkeypatch.setattr(engine.dialect, "do_commit", line.commit)
    return line


def test_a_commit_that_happened_is_found(user: User, line: Line) -> None:
    user.create("a", "b")
    line.lost_after = 1
    assert user.write(version("a", 1), version("b", 1)).sequence == 2
    line.lost_after = 1
    made = user.ratify(names=(new("c"),))
    assert isinstance(made, Ratified)
    assert made.sequence == user.catalog.ledger.sequence() == 3
    newest = user.catalog.ledger.newest_commits(1)[0]
    assert (newest.sequence, newest.version) == (2, 1)


def test_a_commit_that_did_not_happen_can_be_run_again(user: User, line: Line) -> None:
    user.create("a")
    transaction_id = user.begin()
    line.lost_before = 1
    with pytest.raises(Unavailable, match=r"server closed the connection.*try again"):
        user.ratify(version("a", 1), transaction_id=transaction_id)
    assert user.catalog.ledger.sequence() == 1
    assert isinstance(user.ratify(version("a", 1), transaction_id=transaction_id), Ratified)


def test_looking_is_done_again_when_the_line_fails_again(user: User, line: Line) -> None:
    user.create("a")
    line.lost_after = 3
    assert user.write(version("a", 1)).sequence == 2
    system = user.catalog._database.system
    assert isinstance(system, Unwaiting)
    first, second = system.waits
    assert 50 <= first < 100 <= second < 200


def test_what_can_not_be_seen_is_said(user: User, line: Line) -> None:
    user.create("a")
    transaction_id = user.begin()
    line.lost_after = 100
    with pytest.raises(OutcomeUnknown, match=f"{transaction_id}.*look at their tables"):
        user.ratify(version("a", 1), transaction_id=transaction_id)
    line.lost_after = 0
    assert user.catalog.ledger.head("a") == Head(
        version=1, pending=(version("a", 0), version("a", 1))
    )


def test_who_came_too_late_is_told_so_whatever_became_of_the_commit(user: User, line: Line) -> None:
    user.create("a")
    line.lost_before = 1
    assert user.ratify(version("a", 7)) == HeadsMoved(heads={"a": 0})
    assert user.catalog.ledger.sequence() == 1


def test_who_came_too_late_is_told_so_though_nothing_can_be_seen(user: User, line: Line) -> None:
    user.create("a", "b")
    requests = [
        Ratification(transaction_id=user.begin(), commits=(version(name, number),))
        for name, number in (("a", 1), ("b", 7))
    ]
    line.lost_after = 100
    first, second = user.catalog.ledger._ratify_batch(requests)
    assert isinstance(first, OutcomeUnknown)
    assert second == HeadsMoved(heads={"b": 0})


def test_before_the_commit_nothing_is_done_and_nothing_looked_for(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.create("a", "b")
    engine = user.catalog._database._durable
    error = engine.dialect.loaded_dbapi.OperationalError

    class Broken:
        def run_all(self, *_: object) -> None:
            raise DBAPIError.instance("", None, error("broken pipe"), error)

    with monkeypatch.context() as broken:
        broken.setattr(ratifying, "_ADD_COMMITS", Broken())
        with pytest.raises(Unavailable, match="broken pipe; try again"):
            user.ratify(version("a", 1), version("b", 1))
    assert user.catalog.ledger.sequence() == 1
    assert user.write(version("a", 1), version("b", 1)).sequence == 2


class _Clock(System):
    """The machine's, which may be put forward."""

    ahead_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.ahead_ms


def test_a_server_that_closed_idle_connections_is_asked_again(
    postgres_url: str, postgres: PostgresServer
) -> None:
    clock = _Clock()
    catalog = Catalog(f"{postgres_url}&application_name=idle_{uuid.uuid4().hex}", clock)
    user = User(catalog)
    user.create("a")
    name = catalog._database.url.query["application_name"]
    close = (
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
    )
    postgres.execute(close)
    with pytest.raises(Unavailable, match="try again"):  # they were in use just now
        user.write(version("a", 1))
    assert user.write(version("a", 1)).sequence == 2
    postgres.execute(close)
    clock.ahead_ms += 60_000
    assert user.write(version("a", 2)).sequence == 3
    assert catalog.ledger.sequence() == 3
    catalog.close()


CHANGES: dict[str, Callable[[Catalog], object]] = {
    "create a database": lambda catalog: catalog.create_database("d"),
    "set its isolation": lambda catalog: catalog.set_isolation("e", "snapshot"),
    "set its properties": lambda catalog: catalog.set_properties("e", {"a": "b"}),
    "drop it": lambda catalog: catalog.drop_database("e"),
    "create a view": lambda catalog: create_view(catalog, "e", "v", "SELECT 1", []),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_catalog_whose_reply_is_lost_may_have_happened(
    user: User, line: Line, change: str
) -> None:
    """Nobody takes the error for one after which nothing was written."""
    user.catalog.create_database("e")
    line.lost_after = 1
    with pytest.raises(OutcomeUnknown, match=r"whether the catalog was changed is unknown: .*look"):
        CHANGES[change](user.catalog)


def test_a_kill_whose_reply_is_lost_may_have_happened(user: User, line: Line) -> None:
    transaction_id = user.begin()
    line.lost_after = 1
    with pytest.raises(OutcomeUnknown):
        user.catalog.transactions.kill(transaction_id)
    with pytest.raises(Unavailable, match="killed"):
        user.catalog.transactions.require_unkilled(transaction_id)
