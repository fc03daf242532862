"""Ctrl-C at random instants: no lake is blocked, nothing is lost, and nobody is told another error.

`make interrupts COUNT=10000` does more of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from tests.catalog.ledgers import User
from tests.catalog.locking import until, wants
from tests.catalog.open_transactions import relaxed_transaction, write_transaction
from txlake.catalog import Catalog, shielding
from txlake.system import System

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.no_interop("a thousand versions, many of which nobody was told of")
@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.broad)])
def test_interrupts_block_no_lake_and_lose_nothing(tmp_path: Path, count: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.catalog.interrupted", str(tmp_path), "--count", str(count)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    counts = json.loads(ran.stdout)
    assert counts["interrupts"] >= count
    assert counts["watched"] > 0
    assert counts["beside"] > 0


def test_no_transaction_is_begun_where_a_signal_may_arrive(sqlite_url: str) -> None:
    catalog = Catalog(sqlite_url, System())
    assert shielding.is_interruptible()
    with pytest.raises(AssertionError, match="interrupt"):
        catalog._database.reading().__enter__()
    for write in (catalog._database.write, catalog._database.write_relaxed):
        with pytest.raises(AssertionError, match="interrupt"):
            write(lambda connection: None)
    catalog.close()


def test_who_waits_for_a_lock_is_interrupted_and_asks_for_nothing_more(
    sqlite_user: User, sqlite_other: User
) -> None:
    """Nobody rings a bell here: the other one is another process."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    holder, waiter = sqlite_other.begin(), sqlite_user.begin()
    sqlite_other.catalog.locks.acquire(sqlite_other.session, holder, wants("Sch-M"), 0)
    locks = sqlite_user.catalog.locks
    main = threading.main_thread().ident or 0

    def press() -> None:
        until(
            lambda: any(one.status.value != "GRANT" for one in sqlite_other.catalog.locks.entries())
        )
        signal.pthread_kill(main, signal.SIGUSR1)

    kept = signal.signal(signal.SIGUSR1, interrupt)
    presser = threading.Thread(target=press)
    try:
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            locks.acquire(sqlite_user.session, waiter, wants("IX"), -1)
    finally:
        presser.join(60)
        signal.signal(signal.SIGUSR1, kept)
    assert [one.transaction_id for one in locks.entries()] == [holder]
    sqlite_other.catalog.locks.release(holder)
    locks.acquire(sqlite_user.session, waiter, wants("IX"), 0)


def test_who_used_a_transaction_is_the_thread_that_asked(sqlite_user: User) -> None:
    locks, transaction = sqlite_user.catalog.locks, sqlite_user.begin()
    locks.acquire(sqlite_user.session, transaction, wants("IX"), 0)
    assert locks._last_threads == {transaction: threading.current_thread()}


class Stop(BaseException):
    """Neither an error nor a signal's."""


@pytest.mark.usefixtures("direct")
def test_a_connection_on_which_a_thread_was_stopped_is_closed(sqlite_url: str) -> None:
    catalog = Catalog(sqlite_url, System())
    database = catalog._database
    used: list[object] = []

    def use(error: BaseException | None = None) -> None:
        with relaxed_transaction(database) as connection:
            used.append(connection.connection.driver_connection)
            if error is not None:
                raise error

    with pytest.raises(Stop):
        use(Stop())
    with pytest.raises(ValueError, match="an error"):
        use(ValueError("an error"))
    use()
    catalog.close()
    stopped, failed, last = used
    assert stopped is not failed
    assert failed is last


@pytest.mark.usefixtures("direct")
def test_a_database_in_memory_outlives_a_stopped_thread() -> None:
    catalog = Catalog("sqlite://", System())

    def empty() -> None:
        with write_transaction(catalog._database) as connection:
            connection.exec_driver_sql("DELETE FROM txlake_databases")
            raise Stop

    with pytest.raises(Stop):
        empty()
    assert [one.name for one in catalog.databases()] == ["default"]
