"""Statements that go straight to the driver: parameters, lists, rows, errors."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.catalog.open_transactions import write_transaction
from txlake.catalog import Catalog
from txlake.catalog.database import Database
from txlake.catalog.opening import open_database
from txlake.catalog.prepared import Prepared, pipelined
from txlake.catalog.relations import bare, databases, facts, tables
from txlake.errors import InvalidRequest
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")

ADDITION = Prepared(sa.insert(facts), columns=("name", "value"))
AMONG = Prepared(
    lambda names: sa.select(facts).where(facts.c.name.in_(names)).order_by(facts.c.name), "names"
)


@pytest.fixture
def database(url: str) -> Database:
    """A database of each kind, with the catalog's relations."""
    Catalog(url, System()).close()
    return open_database(url, System())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 1024, 1025, 3000])
def test_a_list_has_any_length(database: Database, count: int) -> None:
    names = [f"n{number:04}" for number in range(count)]
    with write_transaction(database) as connection:
        ADDITION.run_all(connection, [{"name": name, "value": "v"} for name in names])
    with database.reading() as connection:
        found = AMONG.rows(connection, names=names)
        assert [row.name for row in found] == names
        assert AMONG.rows(connection, names=["missing"]) == []
    database.close()


def test_few_texts_serve_lists_of_all_lengths(database: Database) -> None:
    statement = Prepared(lambda names: sa.select(facts).where(facts.c.name.in_(names)), "names")
    with database.reading() as connection:
        for count in range(1, 33):
            statement.rows(connection, names=[str(number) for number in range(count)])
        statement.rows(connection, names=[str(number) for number in range(1500)])
    assert len(statement._texts) == 6
    database.close()


def test_a_parameter_that_is_missing_is_told(database: Database) -> None:
    statement = Prepared(sa.select(facts).where(facts.c.name == sa.bindparam("named")))
    with pytest.raises(Exception, match="named"), database.reading() as connection:
        statement.rows(connection)
    database.close()


def test_constants_are_kept_none_too(database: Database) -> None:
    cleared = Prepared(
        sa.insert(databases).values(
            id=sa.bindparam("one"), number=7, folded_name="x", name="X", comment=None, created_ms=1
        )
    )
    with write_transaction(database) as connection:
        cleared.run(connection, one="a")
        [row] = Prepared(sa.select(databases).where(databases.c.number == 7)).rows(connection)
    assert (row.id, row.number, row.name, row.comment) == ("a", 7, "X", None)
    database.close()


def test_values_come_back_as_what_they_are(database: Database) -> None:
    """A truth value is one on both kinds of database, not SQLite's number."""
    added = Prepared(
        sa.insert(tables),
        columns=[
            one.name for one in tables.c if one.name not in ("is_told", "published", "branch")
        ],
    )
    row = dict.fromkeys((one.name for one in tables.c), None) | {
        "id": "t", "number": 1, "folded_name": "t", "name": "T", "location": "/t",
        "managed": True, "created_ms": 1, "modified_ms": 2**62,
    }  # fmt: skip
    with write_transaction(database) as connection:
        added.run_all(connection, [row])
        [found] = Prepared(sa.select(tables)).rows(connection)
    assert found.managed is True
    assert found.is_told is False
    assert (found.head, found.published, found.modified_ms) == (None, -1, 2**62)
    database.close()


def test_what_is_sent_together_is_answered_in_its_order(database: Database) -> None:
    with write_transaction(database) as connection, pipelined(connection):
        first = AMONG.send(connection, names=["a", "b"])
        ADDITION.run_all(connection, [{"name": name, "value": "1"} for name in ("a", "b")])
        second = AMONG.send(connection, names=["a", "b"])
        assert [row.name for row in second()] == ["a", "b"]
        assert first() == []
    database.close()


def test_an_error_of_the_driver_is_one_of_the_catalog(database: Database) -> None:
    statement = Prepared(sa.insert(bare), columns=("transaction_id", "sequence", "time_ms"))
    row = {"transaction_id": "a", "sequence": 1, "time_ms": 1}

    def twice() -> None:
        with write_transaction(database) as connection:
            statement.run(connection, **row)
            statement.run(connection, **row)

    with pytest.raises(InvalidRequest, match=r"(?i)unique"):
        twice()
    with database.reading() as connection:
        assert Prepared(sa.select(bare)).rows(connection) == []
    database.close()


def test_rows_that_nobody_reads_hold_nothing(database: Database) -> None:
    """Such as those of a statement after which another one failed: the error keeps them alive."""
    unread: list[object] = []

    def fails(connection: sa.Connection) -> None:
        with pipelined(connection):
            unread.append(AMONG.send(connection, names=["x", "y"]))
        raise InvalidRequest("no")

    def add(name: str) -> None:
        def work(connection: sa.Connection) -> None:
            ADDITION.run(connection, name=name, value="v")

        database.write_relaxed(work)

    for name in ("x", "y"):
        add(name)
    with pytest.raises(InvalidRequest):
        database.write_relaxed(fails)
    database.write(lambda connection: ADDITION.run(connection, name="z", value="v"))
    add("after")
    database.close()
