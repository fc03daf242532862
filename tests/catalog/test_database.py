"""The kinds of transactions, and what the database's failures are called."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tests.catalog.ledgers import User, execute
from tests.catalog.open_transactions import relaxed_transaction, write_transaction
from tests.postgresql import PostgresServer
from txlake.catalog import Catalog
from txlake.catalog.database import Database
from txlake.catalog.opening import open_database
from txlake.catalog.prepared import Prepared, pipelined
from txlake.catalog.relations import facts
from txlake.catalog.schema import upgrade
from txlake.errors import InvalidRequest, Unavailable
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def database(url: str) -> Database:
    Catalog(url, System()).close()
    return open_database(url, System(), busy_timeout_s=0.05)


def test_what_is_ratified_waits_for_the_disk_and_what_is_noted_does_not(
    database_url: str,
) -> None:
    database = open_database(database_url, System())
    query = "PRAGMA synchronous" if database.is_sqlite else "SHOW synchronous_commit"
    said = []
    for write in (database.write, database.write_relaxed):
        said.append(write(lambda connection: connection.exec_driver_sql(query).scalar()))
    assert said == ([2, 1] if database.is_sqlite else ["on", "off"])
    database.close()


def test_a_reader_sees_one_state(database: Database) -> None:
    count = sa.text("SELECT count(*) FROM txlake_facts")
    with database.reading() as reader:
        before = reader.execute(count).scalar()
        with relaxed_transaction(database) as connection:
            connection.exec_driver_sql("INSERT INTO txlake_facts VALUES ('a', 'b')")
        assert reader.execute(count).scalar() == before
    with database.reading() as reader:
        assert reader.execute(count).scalar() == 1 + (before or 0)
    database.close()


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    def fail() -> None:
        with write_transaction(database) as connection:
            connection.exec_driver_sql("DELETE FROM txlake_facts")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM txlake_facts").scalar() == 1
    database.close()


def test_what_is_sent_together_fails_as_one(database: Database) -> None:
    addition = Prepared(sa.insert(facts), columns=("name", "value"))

    def insert(*names: str) -> None:
        with write_transaction(database) as connection, pipelined(connection):
            for name in names:
                addition.run(connection, name=name, value="")

    with pytest.raises(InvalidRequest, match=r"(?i)unique"):
        insert("a", "lake", "b")
    insert("a", "b")
    with database.reading() as connection:
        found = connection.exec_driver_sql("SELECT name FROM txlake_facts ORDER BY name")
        assert list(found.scalars()) == ["a", "b", "lake"]
    database.close()


def test_a_writer_waits_for_another_no_longer_than_it_is_told(
    database_url: str,
) -> None:
    database = open_database(database_url, System())
    quick = Catalog(database_url, System(), busy_timeout_s=0.05)
    with write_transaction(database) as connection:
        connection.exec_driver_sql("UPDATE txlake_counters SET value = value")
        with pytest.raises(Unavailable, match="try again"):
            quick.create_database("d")
    quick.create_database("d")
    quick.close()
    database.close()


def test_a_lake_is_made_while_another_is_in_the_same_database(postgres: PostgresServer) -> None:
    first, second = (postgres.make_schema(f"lake_{uuid.uuid4().hex}") for _ in range(2))
    database = Database(first, System())
    with relaxed_transaction(database) as connection:
        upgrade(database, connection)
        Catalog(second, System(), busy_timeout_s=0.05).close()
    database.close()


def test_threads_of_a_process_wait_for_each_other(tmp_path: object) -> None:
    database = Database(f"sqlite:///{tmp_path}/catalog.db", System(), busy_timeout_s=0.05)
    errors: list[Unavailable] = []

    def write() -> None:
        try:
            with relaxed_transaction(database):
                pass
        except Unavailable as error:
            errors.append(error)

    with write_transaction(database):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(120)
    assert "another thread has written for 0.05 s; try again" in str(errors[0])
    write()
    assert len(errors) == 1
    database.close()


def test_the_clock_is_the_databases(database: Database) -> None:
    with database.reading() as connection:
        now_ms = database.now_ms(connection)
        said = connection.execute(sa.select(database.now())).scalar_one()
    assert now_ms <= said <= now_ms + 60_000
    assert abs(now_ms - System().now_ms()) < 60_000  # this machine's, in these tests
    database.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:s3cret@127.0.0.1:1/lake",
        "postgresql+psycopg://127.0.0.1:1/lake?user=me&password=s3cret",
        "postgresql+psycopg://me:s3cret@/lake?host=s3cret.invalid",
    ],
)
def test_a_password_is_not_shown(url: str) -> None:
    with pytest.raises(Unavailable) as raised:
        Catalog(url, System())
    assert "s3cret" not in str(raised.value).replace("s3cret.invalid", "")
    assert "/lake" in str(raised.value)


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresql+psycopg2://h/d", "nothing://h/d"])
def test_another_database_or_driver_is_refused(url: str) -> None:
    """Another driver may commit each statement by itself."""
    with pytest.raises(InvalidRequest, match=r"postgresql\+psycopg://host/db or s3.*found one of"):
        Database(url, System())


def test_a_server_needs_no_driver_in_its_url(postgres_url: str) -> None:
    database = Database(make_url(postgres_url).set(drivername="postgresql"), System())
    assert database.url.drivername == "postgresql+psycopg"
    database.close()


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidRequest, match=r"psycopg.*install 'txlake\[postgresql\]'"):
        Catalog("postgresql+psycopg://me:s3cret@host/lake", System())


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1/lake.*refused.*try again"):
        Catalog("postgresql+psycopg://127.0.0.1:1/lake", System())


def test_who_may_not_write_is_told_what_to_do(
    postgres_url: str, postgres: PostgresServer, opened: Callable[[], Catalog]
) -> None:
    Catalog(postgres_url, System()).close()
    url = make_url(postgres_url)
    schema = str(url.query["options"]).rpartition("=")[2]
    reader = f"reader_{schema}"
    postgres.execute(
        f"CREATE ROLE {reader} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {reader}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader}",
    )
    catalog = Catalog(url.set(username=reader), System())
    assert catalog.database("default") is not None
    with pytest.raises(InvalidRequest, match=r"permission denied.*give this user the permission"):
        catalog.create_database("d")
    catalog.close()


def test_a_value_that_the_database_does_not_take_is_the_callers(postgres_url: str) -> None:
    catalog = Catalog(postgres_url, System())
    with pytest.raises(InvalidRequest, match="use a value that the catalog can hold"):
        catalog.create_database("d", comment="\0")
    catalog.close()


def test_a_lake_has_an_id_of_its_own(url: str, opened: Callable[[], Catalog]) -> None:
    first, again = opened(), opened()
    assert first.lake_id == again.lake_id
    assert first.lake_id != Catalog("sqlite://", System()).lake_id
    first.check_warehouse(again.lake_id, "file:///wh")
    with pytest.raises(InvalidRequest, match=r"file:///wh: it is lake other's.*lake\.recover"):
        first.check_warehouse("other", "file:///wh")


def test_a_new_catalog_takes_a_lost_ones_place(url: str, opened: Callable[[], Catalog]) -> None:
    catalog = opened()
    adopt = partial(catalog.recovery.begin, epoch_min=1, session_id=0)
    adopt("lost")
    adopt("lost")
    assert opened().lake_id == "lost"
    User(catalog).name("t")
    adopt("lost")
    with pytest.raises(InvalidRequest, match="has tables of its own.*lake other"):  # noqa: RUF043
        adopt("other")
    execute(url, "DELETE FROM txlake_tables")
    adopt("other")
    assert catalog.lake_id == "other"
