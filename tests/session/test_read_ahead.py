"""The tables of one statement are read side by side where their stores are a network's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.session.offline import Offline
from txlake.commit.table_log import TableLog
from txlake.conflict.locking import LockMode
from txlake.errors import CorruptTable
from txlake.log.snapshot import Snapshot
from txlake.session import opened_tables
from txlake.sql.statements import TableName

LIMIT_S = 30.0
T, U = TableName(("t",)), TableName(("u",))
BOTH = [(T, LockMode.SCH_S), (U, LockMode.SCH_S)]


@pytest.fixture
def lake() -> Offline:
    """A lake with the tables t and u, which this process hasn't read yet."""
    made = Offline()
    made.run("CREATE TABLE t (id INT); CREATE TABLE u (id INT)")
    made.engine.forget_all()
    return made


@pytest.fixture
def is_far(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the lake's stores for a network's."""
    monkeypatch.setattr(opened_tables, "is_far", lambda _: True)
    lake.instead["excludes_late_writes"] = False


@pytest.fixture
def at_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[TableLog], None]], None]:
    """Return the function that sets what happens whenever a table is read at an instant."""
    read = TableLog.at_sequence

    def set_hook(hook: Callable[[TableLog], None]) -> None:
        def hooked(log: TableLog, *given: Any, **more: Any) -> Snapshot:
            hook(log)
            return read(log, *given, **more)

        monkeypatch.setattr(TableLog, "at_sequence", hooked)

    return set_hook


Hook = Callable[[Callable[[TableLog], None]], None]


@pytest.mark.usefixtures("is_far")
def test_the_tables_of_a_statement_are_read_side_by_side(lake: Offline, at_reading: Hook) -> None:
    barrier, names = threading.Barrier(2), list[str]()

    def meet(log: TableLog) -> None:
        names.append(log.name)
        barrier.wait(LIMIT_S)

    at_reading(meet)
    with lake.session.statement_context(None, BOTH) as context:
        assert sorted(names) == ["default.t", "default.u"]
        for table in (T, U):
            assert context.transaction.open(context.tables.require(table)).base.version == 0
    assert len(names) == 2, "each is read once"


@pytest.mark.usefixtures("is_far")
def test_a_table_that_can_not_be_read_fails_the_statement_that_opens_it(
    lake: Offline, at_reading: Hook
) -> None:
    def damage(log: TableLog) -> None:
        if log.name == "default.u":
            raise CorruptTable("default.u: damaged")

    at_reading(damage)
    with lake.session.statement_context(None, BOTH) as context:
        context.tables.require(T)
    with (
        pytest.raises(CorruptTable, match="damaged"),
        lake.session.statement_context(None, BOTH) as context,
    ):
        context.tables.require(U)


@pytest.mark.usefixtures("is_far")
def test_what_a_transaction_has_opened_is_not_read_again(lake: Offline, at_reading: Hook) -> None:
    transaction = lake.session.begin()
    with lake.session.statement_context(transaction, BOTH) as context:
        context.tables.require(T)
    read: list[str] = []
    at_reading(lambda log: read.append(log.name))
    with lake.session.statement_context(transaction, BOTH) as context:
        context.tables.require(T)
        context.tables.require(U)
    assert read == []
    transaction.rollback()


@pytest.mark.usefixtures("is_far")
def test_one_table_is_read_when_it_is_opened(lake: Offline, at_reading: Hook) -> None:
    read: list[str] = []
    at_reading(lambda log: read.append(log.name))
    with lake.session.statement_context(None, BOTH[:1]) as context:
        assert read == []
        context.tables.require(T)
    assert read == ["default.t"]


def test_in_a_local_store_each_table_is_read_when_it_is_opened(
    lake: Offline, at_reading: Hook
) -> None:
    read: list[str] = []
    at_reading(lambda log: read.append(log.name))
    with lake.session.statement_context(None, BOTH) as context:
        assert read == []
        context.tables.require(U)
    assert read == ["default.u"]
