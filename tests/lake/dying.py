"""A commit over two tables whose process is killed, at one step after the other.

`python -m tests.lake.dying PLACE` forks a process for each step: it commits, and kills itself
(SIGKILL) at that step, before or after a write to the store or a transaction of the catalog's
database. Another one then opens the lake and looks. Prints the steps, and what became of each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import txlake
from txlake.catalog.database import Database
from txlake.storage.local import LocalStore

TABLES = ("one", "other.two")
_DONE = 0
_FAILED = 1


class Steps:
    """Counts steps from `start` on, and dies at one of them."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._at: int | None = None

    def start(self) -> None:
        """From here on."""
        self._at = 0

    def step(self) -> None:
        """One more."""
        if self._at is None:
            return
        self._at += 1
        if self._at == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: type, name: str) -> None:
        """Steps before and after each call of a method."""
        method: Callable[..., Any] = getattr(owner, name)

        def stepping(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = method(*args, **kwargs)
            self.step()
            return result

        setattr(owner, name, stepping)

    def inside(self, name: str) -> None:
        """Steps before and after each transaction of the catalog's database."""
        method: Callable[..., Any] = getattr(Database, name)

        def stepping(database: Database, work: Callable[[Any], Any]) -> Any:
            def step_after(connection: Any) -> Any:
                result = work(connection)
                self.step()  # all said, nothing committed
                return result

            self.step()
            result = method(database, step_after)
            self.step()
            return result

        setattr(Database, name, stepping)


def rows(place: str, table: str) -> int:
    """How many rows the published table has."""
    folder = f"{place}/other.db/two" if table == "other.two" else f"{place}/one"
    stats = txlake.Log(folder).snapshot().files()["stats"].to_pylist()
    return sum(json.loads(one)["numRecords"] for one in stats)


def load(place: str) -> None:
    """The tables, a row each."""
    with txlake.connect(place) as lake:
        lake.sql("CREATE DATABASE other")
        for table in TABLES:
            lake.write(pa.table({"id": [0]}), table)


def commit(place: str, last: int) -> None:
    """A row into each of them, in one transaction, which dies at a step."""
    steps = Steps(last)
    for name in ("put", "put_if_absent", "delete"):
        steps.around(LocalStore, name)
    for name in ("write", "write_relaxed"):
        steps.inside(name)
    with txlake.connect(place) as lake:
        tx = lake.begin()
        for table in TABLES:
            tx.write(pa.table({"id": [last]}), table, mode="append")
        steps.start()
        tx.commit()


def look(place: str, before: int) -> None:
    """Open the lake, without any help, and finds all of it or nothing."""
    txlake.connect(place).close()
    counts = [rows(place, table) for table in TABLES]
    if len(set(counts)) != 1 or counts[0] not in (before, before + 1):
        raise AssertionError(f"{counts} rows, expected {before} or {before + 1} in both")
    Path(place, "counted").write_text(str(counts[0]))


def forked(work: Callable[[], None]) -> int:
    """The exit status of a process that does it; negative for a signal."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = _FAILED
        try:
            work()
            status = _DONE
        except BaseException as error:
            sys.stderr.write(f"failed: {error!r}\n")
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(place: str) -> None:
    """Step by step, until a commit outlives them all."""
    if forked(lambda: load(place)) != _DONE:
        raise SystemExit("the tables couldn't be made")
    committed = 1
    for last in count(1):
        ended = forked(partial(commit, place, last))
        if forked(partial(look, place, committed)) != _DONE:
            raise SystemExit(f"step {last}: the lake is damaged")
        now = int(Path(place, "counted").read_text())
        status = "killed" if ended == -signal.SIGKILL else ended
        sys.stdout.write(f"step {last} {status} {now - committed}\n")
        committed = now
        if ended != -signal.SIGKILL:
            return


if __name__ == "__main__":
    main(sys.argv[1])
