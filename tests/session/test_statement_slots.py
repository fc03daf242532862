"""The slots of a table: statements that change its rows, a few at a time in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.session.branch_lake import Lake
from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest
from txlake.session import session as session_module
from txlake.session.session import Session
from txlake.session.statement_slots import SLOTS, StatementSlots
from txlake.sql.statements import TableName
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TableName(("t",))
UPDATE = "UPDATE t SET v = v + 1 WHERE id = 1"
CHANGES = [UPDATE, "DELETE FROM t WHERE id = 1"]


@pytest.fixture
def taken(lake: Lake) -> Iterator[ExitStack]:
    """All slots of table t are taken, until this is closed."""
    with ExitStack() as slots:
        for _ in range(SLOTS):
            slots.enter_context(lake.engine.slots.taken("default", T, 0))
        yield slots


def waits(lake: Lake, run: Callable[[], object], taken: ExitStack) -> bool:
    """Whether it waits for a slot: it ends when one is given back, or it has ended before."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    [lock] = lake.engine.slots._locks.values()
    thread.start()
    while thread.is_alive() and len(lock._queue) == SLOTS:
        pass
    has_waited = len(lock._queue) > SLOTS
    taken.close()
    thread.join(60)
    assert not thread.is_alive()
    assert not errors, errors
    return has_waited


@pytest.mark.parametrize("text", CHANGES)
def test_a_statement_that_changes_rows_waits(lake: Lake, taken: ExitStack, text: str) -> None:
    assert waits(lake, lambda: lake.do(text), taken)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES (7, 7)",
        "UPDATE u SET v = v + 1 WHERE id = 1",
        f"BEGIN; {UPDATE}; COMMIT",
        "OPTIMIZE t",
    ],
)
def test_others_wait_for_no_slot(lake: Lake, taken: ExitStack, text: str) -> None:
    assert not waits(lake, lambda: lake.do(text), taken)


def test_another_database_has_slots_of_its_own(lake: Lake, taken: ExitStack) -> None:
    def elsewhere() -> None:
        lake.do("CREATE DATABASE other; USE other; CREATE TABLE t (id INT, v INT)")
        lake.do(UPDATE)

    assert not waits(lake, elsewhere, taken)


def test_a_table_in_a_far_store_has_none(
    lake: Lake, taken: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its statements wait for requests, not for a processor."""
    monkeypatch.setattr(session_module, "is_far", lambda _: True)
    assert not waits(lake, lambda: lake.do(UPDATE), taken)


def test_who_waited_reads_what_was_committed_meanwhile(lake: Lake, taken: ExitStack) -> None:
    """It has nobody's commits to be checked against."""
    before = lake.session.snapshot(T).version

    def run() -> None:
        lake.do(UPDATE)

    class Closing(ExitStack):
        def close(self) -> None:
            lake.do("INSERT INTO t VALUES (8, 8)", Session(lake.engine, HANDLERS))
            taken.close()

    assert waits(lake, run, Closing())
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    log = lake.engine.at_entry(entry).log
    assert log.latest().version == before + 2
    info = log.commit_info(before + 2)
    assert info is not None
    assert info.number("readVersion") == before + 1


def set_wait(lake: Lake, queue_ms_max: int) -> None:
    """How long statements wait for a slot."""
    retry = replace(lake.engine.settings.retry, queue_ms_max=queue_ms_max)
    lake.engine.settings = replace(lake.engine.settings, retry=retry)


def test_a_slot_is_not_waited_for_long(lake: Lake, taken: ExitStack) -> None:
    set_wait(lake, 0)
    lake.do(UPDATE)
    assert len(next(iter(lake.engine.slots._locks.values()))._queue) == SLOTS


def test_who_waits_for_no_lock_waits_for_no_slot(lake: Lake, taken: ExitStack) -> None:
    set_wait(lake, 600_000)
    lake.session.lock_timeout_ms = 0
    lake.do(UPDATE)
    assert len(next(iter(lake.engine.slots._locks.values()))._queue) == SLOTS


def test_a_statement_gives_its_slot_back_before_spark_works(lake: Lake) -> None:
    """A cluster may do many at a time."""
    waiting: list[int] = []

    def start() -> SparkSession:
        [lock] = lake.engine.slots._locks.values()
        waiting.append(len(lock._queue))
        raise InvalidRequest("Spark would be started now")

    lake.plane.make_spark = start
    with lake.engine.slots.taken("default", T, 0):
        with pytest.raises(InvalidRequest, match="Spark would be started now"):
            lake.do("UPDATE t SET v = length(sha2(string(v), 256)) WHERE id = 1")
        with pytest.raises(InvalidRequest, match="Spark would be started now"):
            _ = lake.plane.spark
    assert waiting == [1, 1]


def test_the_slots_of_tables_that_nobody_uses_are_forgotten() -> None:
    slots = StatementSlots(System(), count=1)
    with slots.taken("d", T, 0), slots.taken("d", None, 0):
        assert len(slots._locks) == 1
    assert not slots._locks
