from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.session.offline import plane_without_spark
from tests.session.tables import environment, specs, sql
from txlake.commit.change import Change
from txlake.conflict.levels import Level
from txlake.ddl.alter import alter
from txlake.ddl.create import create
from txlake.errors import ConcurrentAppendException
from txlake.protocol.actions import Add
from txlake.session.engine import Engine, Handle
from txlake.session.transaction import Transaction
from txlake.settings import Settings
from txlake.sql.statements import (
    AddConstraint,
    AlterColumn,
    CheckConstraint,
    CreateTable,
    SetProperties,
    TablePath,
)
from txlake.system import System

CREATE = CreateTable(table=TablePath("t"), columns=specs("a int"))


@pytest.fixture
def engine() -> Iterator[Engine]:
    system, settings = System(), Settings()
    plane = plane_without_spark(system, settings)
    found = Engine(system=system, settings=settings, plane=plane)
    yield found
    found.close()


@pytest.fixture
def handle(engine: Engine) -> Handle:
    place = f"memory://guards-{engine.system.new_id()}"
    found = engine.at(place, TablePath(place))
    commit(engine, found, lambda _: create(CREATE, None, environment()))
    return found


def commit(
    engine: Engine,
    handle: Handle,
    change_of: Callable[[Transaction], Change | None],
    level: Level | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    transaction = Transaction(
        id=engine.system.new_id(), engine=engine, session_number=lambda: 1, level=level
    )
    transaction.open(handle)
    change = change_of(transaction)
    assert change is not None
    transaction.stage(handle, change)
    meanwhile()
    transaction.commit()


def append(engine: Engine, handle: Handle) -> None:
    add = Add(
        path=f"{engine.system.new_id()}.parquet",
        partition_values={},
        size=1,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":1,"nullCount":{"a":1}}',
    )
    commit(engine, handle, lambda _: Change(operation="WRITE", actions=(add,)))


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("name", ["constraint", "not null", "replace"])
def test_a_row_that_comes_meanwhile_stops_what_looked_at_every_row(
    engine: Engine, handle: Handle, level: Level, name: str
) -> None:
    table = TablePath("t")

    def change(transaction: Transaction) -> Change | None:
        view = transaction.open(handle).view
        match name:
            case "constraint":
                constraint = CheckConstraint("c", sql("a > 0"))
                return alter(AddConstraint(table, constraint), view, environment())
            case "not null":
                statement = AlterColumn(table=table, column=("a",), nullable=False)
                return alter(statement, view, environment())
            case _:
                replacing = replace(CREATE, mode="replace", columns=specs("b string"))
                return create(replacing, view, environment())

    with pytest.raises(ConcurrentAppendException):
        commit(engine, handle, change, level, meanwhile=lambda: append(engine, handle))
    commit(engine, handle, change, level)


@pytest.mark.parametrize("level", list(Level))
def test_what_looks_at_no_row_is_not_stopped_by_one(
    engine: Engine, handle: Handle, level: Level
) -> None:
    statement = SetProperties(TablePath("t"), (("mine", "x"),))
    commit(
        engine,
        handle,
        lambda transaction: alter(statement, transaction.open(handle).view, environment()),
        level,
        meanwhile=lambda: append(engine, handle),
    )
    assert handle.log.latest().metadata.configuration["mine"] == "x"
    assert len(handle.log.latest().files) == 1
