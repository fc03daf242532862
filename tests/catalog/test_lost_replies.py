"""COMMITs whose reply is lost: looked for, else said to be unknown."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from tests.catalog.ledgers import User, new, prepared, version
from tests.catalog.lines import line_to
from tests.catalog.view_changes import create_view
from tests.postgresql import PostgresServer
from txlake.catalog import Catalog, ratifying
from txlake.catalog.database import CommitUnsettled, Database
from txlake.catalog.opening import open_database
from txlake.catalog.prepared import Prepared, pipelined
from txlake.catalog.relations import facts
from txlake.errors import InvalidRequest, OutcomeUnknown, Unavailable
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


class Line(Protocol):
    """The line to the database: breaks before or after so many COMMITs."""

    lost_before: int
    lost_after: int


class _FileLine:
    """That of a SQLite file, in this process: its driver is where it breaks."""

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


@dataclass(frozen=True, slots=True)
class _Reached:
    user: User
    line: Line


@pytest.fixture
def reached(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Reached]:
    """A user, and the line that its transactions take."""
    with ExitStack() as stack:
        is_file = url.startswith("sqlite")
        through, line = (url, None) if is_file else stack.enter_context(line_to(url))
        catalog = Catalog(prepared(through), Unwaiting())
        stack.callback(catalog.close)
        if line is not None:
            yield _Reached(User(catalog), line)
            return
        engine = catalog._database._durable
        of_file = _FileLine(engine)
        monkeypatch.setattr(engine.dialect, "do_commit", of_file.commit)
        yield _Reached(User(catalog), of_file)


@pytest.fixture
def user(reached: _Reached) -> User:
    return reached.user


@pytest.fixture
def line(reached: _Reached) -> Line:
    return reached.line


def test_a_commit_that_happened_is_found(user: User, line: Line) -> None:
    user.create("a", "b")
    first, second = user.begin(), user.begin()
    line.lost_after = 1
    made = user.ratify(version("a", 1), version("b", 1), transaction_id=first)
    assert isinstance(made, Ratified)
    assert made.sequence == 2
    line.lost_after = 1
    made = user.ratify(names=(new("c"),), transaction_id=second)
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
    transaction_id = user.begin()
    line.lost_after = 3
    made = user.ratify(version("a", 1), transaction_id=transaction_id)
    assert isinstance(made, Ratified)
    assert made.sequence == 2
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
    transaction_id = user.begin()
    line.lost_before = 1
    moved = user.ratify(version("a", 7), transaction_id=transaction_id)
    assert moved == HeadsMoved(heads={"a": 0})
    assert user.catalog.ledger.sequence() == 1


def test_who_came_too_late_is_told_so_though_nothing_can_be_seen(user: User, line: Line) -> None:
    user.create("a", "b")
    requests = [
        Ratification(transaction_id=user.begin(), commits=(version(name, number),))
        for name, number in (("a", 1), ("b", 7))
    ]
    line.lost_after = 100
    first, second = user.catalog.ledger._ratify_batch(requests)
    line.lost_after = 0
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


def test_connections_that_the_server_has_closed_are_replaced(
    postgres_url: str, postgres: PostgresServer
) -> None:
    """Also those that were in use just now: their end can be read."""
    name = f"idle_{uuid.uuid4().hex}"
    catalog = Catalog(f"{postgres_url}&application_name={name}", System())
    user = User(catalog)
    user.create("a")
    of_it = f"FROM pg_stat_activity WHERE application_name = '{name}'"
    for number in (1, 2):
        postgres.execute(
            f"SELECT pg_terminate_backend(pid) {of_it}",
            f"DO $$ BEGIN WHILE EXISTS (SELECT {of_it}) LOOP PERFORM pg_sleep(0.01); "
            "PERFORM pg_stat_clear_snapshot(); END LOOP; END $$",
        )
        assert user.write(version("a", number)).sequence == 1 + number
    assert catalog.ledger.sequence() == 3
    catalog.close()


def test_a_connection_that_was_closed_here_is_replaced(far: Database) -> None:
    with far.reading() as connection:
        driver = connection.connection.driver_connection
    assert driver is not None
    driver.close()
    assert "lake" in names_of(far)


def test_a_connection_that_was_idle_for_long_is_tried_before_it_is_used(postgres_url: str) -> None:
    """What lies between may have forgotten it."""
    clock = _Clock()
    with line_to(postgres_url) as (url, line):
        catalog = Catalog(url, clock)
        waits = []
        for idle_ms in (0, 0, 30_000, 61_000, 0):
            clock.ahead_ms += idle_ms
            line.round_trips = 0
            catalog.ledger.head("a")
            waits.append(line.round_trips)
        catalog.close()
    assert waits[1:] == [1, 1, 2, 1]


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


ADDITION = Prepared(sa.insert(facts), columns=("name", "value"))


@pytest.fixture
def far(postgres_url: str) -> Iterator[Database]:
    """A server's database with the catalog's relations."""
    Catalog(postgres_url, System()).close()
    database = open_database(postgres_url, System())
    yield database
    database.close()


def names_of(database: Database) -> set[str]:
    with database.reading() as connection:
        return {row.name for row in Prepared(sa.select(facts)).rows(connection)}


def add(connection: sa.Connection, *names: str, then: sa.Executable | None = None) -> None:
    """Add facts, and what is given, and commit, all at one go."""
    with pipelined(connection, commits=True):
        for name in names:
            ADDITION.run(connection, name=name, value="v")
        if then is not None:
            Prepared(then).run(connection)


def test_what_is_sent_with_its_commit_is_there(far: Database) -> None:
    far.write(lambda connection: add(connection, "x", "y"))
    assert {"x", "y"} <= names_of(far)


def test_what_the_server_refuses_is_no_lost_reply(far: Database) -> None:
    """Nothing of it is there, and the connection goes on."""
    with pytest.raises(InvalidRequest, match=r"(?i)unique") as caught:
        far.write(lambda connection: add(connection, "x", "x", "y"))
    assert not isinstance(caught.value, CommitUnsettled)
    assert names_of(far).isdisjoint({"x", "y"})
    far.write(lambda connection: add(connection, "x"))
    assert "x" in names_of(far)


def test_what_the_server_refuses_at_commit_is_no_lost_reply(far: Database) -> None:
    def prepare(connection: sa.Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE late (n INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    far.write(prepare)
    twice = sa.text("INSERT INTO late VALUES (1), (1)")
    with pytest.raises(InvalidRequest, match=r"(?i)unique"):
        far.write(lambda connection: add(connection, "x", then=twice))
    assert "x" not in names_of(far)


def test_a_server_that_ends_the_connection_leaves_the_outcome_open(far: Database) -> None:
    """What it says when it ends may be said after a COMMIT that was carried out."""
    ends = sa.text("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(CommitUnsettled):
        far.write(lambda connection: add(connection, "x", then=ends))
    assert "x" not in names_of(far)


def test_a_transaction_that_was_refused_something_is_not_committed(far: Database) -> None:
    def goes_on(connection: sa.Connection) -> None:
        ADDITION.run(connection, name="x", value="v")
        with suppress(SQLAlchemyError):
            ADDITION.run(connection, name="x", value="v")
        add(connection)

    with pytest.raises(Unavailable, match="the answer to COMMIT was ROLLBACK") as caught:
        far.write(goes_on)
    assert not isinstance(caught.value, CommitUnsettled)
    assert "x" not in names_of(far)


def test_an_error_between_statements_that_are_sent_together_is_raised(far: Database) -> None:
    def fails(connection: sa.Connection) -> None:
        with pipelined(connection, commits=True):
            ADDITION.run(connection, name="x", value="v")
            raise InvalidRequest("ours")

    with pytest.raises(InvalidRequest, match="ours"):
        far.write(fails)
    assert "x" not in names_of(far)


@pytest.mark.parametrize("begins", ["nothing", "a statement", "a pipeline"])
def test_a_transaction_ends_however_it_began(far: Database, begins: str) -> None:
    """And a connection that goes back leaves none open."""

    def work(connection: sa.Connection) -> None:
        if begins == "a statement":
            ADDITION.run(connection, name="x", value="v")
        elif begins == "a pipeline":
            with pipelined(connection):
                ADDITION.run(connection, name="x", value="v")

    far.write(work)
    assert ("x" in names_of(far)) == (begins != "nothing")
    with far._durable.connect() as connection, pytest.raises(SQLAlchemyError, match="BEGIN"):
        ADDITION.run(connection, name="y", value="v")
    assert "y" not in names_of(far)
