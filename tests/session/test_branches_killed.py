"""Processes that work on a lake and its branches, and are killed.

`KILLS=100 SEED=7 python -m pytest -s tests/session/test_branches_killed.py` for more. The seed
fixes how far each process gets, not the schedule.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.session import branch_worker
from tests.session.branch_worker import ACCOUNTS, TABLES, Worker
from tests.support.killing import Killed, require_told
from txlake.commit.vacuum import plan_vacuum
from txlake.errors import Conflict
from txlake.session.membership.recovery import recover
from txlake.storage.temporary import is_temporary

KILLS = int(os.environ.get("KILLS", "8"))
SEED = int(os.environ.get("SEED", "1"))
_WORKERS = 4
_FAULTS = ("NameError", "KeyError", "AssertionError", "CorruptTable")
Rows = Counter[tuple[object, ...]]


@pytest.fixture(params=["sqlite", "store", "postgres"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The catalog of a lake of two tables, with accounts whose sum is 0 over both."""
    (tmp_path / "_txlake").mkdir()
    place = tmp_path / "_txlake" / "catalog"
    url = {"sqlite": f"sqlite:///{place}.db", "store": place.as_uri()}.get(request.param)
    url = url or str(request.getfixturevalue("postgres_url"))
    lake = Worker(tmp_path.as_uri(), url)
    accounts = ", ".join(f"('account{number}', 0)" for number in range(ACCOUNTS))
    for table in TABLES:
        lake.do(f"CREATE TABLE {table} (k STRING, n BIGINT)")
        lake.do(f"INSERT INTO {table} VALUES {accounts}")
    lake.close()
    return url


@pytest.fixture
def killed(catalog: str, tmp_path: Path) -> Iterator[Killed]:
    """Processes on that lake."""
    made = Killed(branch_worker.main, (tmp_path.as_uri(), catalog), tmp_path, SEED)
    yield made
    made.kill_all()


def rows_of(folder: Path) -> list[Rows]:
    """Return the rows of both tables as delta-rs reads them; after the test txlake does, too."""
    found = []
    for table in TABLES:
        query = QueryBuilder().register("t", DeltaTable(str(folder / table)))
        read = pa.table(query.execute("SELECT k, n FROM t"))
        found.append(Counter(zip(*(each.to_pylist() for each in read.columns), strict=True)))
    return found


def markers_of(found: list[Rows]) -> set[str]:
    """Return the markers of the pairs; each is there once, and the sum of all numbers is 0."""
    debit, credit = (
        Counter({key[0]: count for key, count in rows.items() if str(key[0])[0] == "m"})
        for rows in found
    )
    assert debit == credit
    assert set(debit.values()) <= {1}
    numbers: list[Any] = [key[1] for rows in found for key in rows.elements()]
    assert sum(numbers) == 0
    return set(map(str, debit))


@pytest.mark.timeout(120 + 10 * KILLS)
def test_what_was_told_of_branches_is_there_once(
    killed: Killed, catalog: str, tmp_path: Path
) -> None:
    killed.run(_WORKERS, KILLS)
    told, refused = killed.told(), killed.refusals()
    assert not [words for words in told if words[0] == "!!"]
    assert not refused.keys() & set(_FAULTS), refused
    lake = Worker(tmp_path.as_uri(), catalog)
    there = markers_of(rows_of(tmp_path))
    on_main, elsewhere = require_told(told, there)
    report = recover(lake.session, ())
    assert (report.tables, report.done, report.unknown) == ((), (), ())
    left = lake.branches()
    for name in left:
        if ".rebased." not in name:
            end_branch(lake, name, told)
    for name in lake.branches():  # of killed rebases that began as their branch ended
        lake.do(f"DROP BRANCH `{name}`")
    assert lake.branches() == []
    require_told(told, markers_of(rows_of(tmp_path)))
    for table in TABLES:
        assert left_of_branches(tmp_path / table) <= vacuumed(lake, table)
    lake.close()
    sys.stdout.write(
        f"{Counter(words[0] for words in told)}, refused {refused}: on main {on_main} told and "
        f"{len(there)} found, elsewhere {elsewhere}, branches left {len(left)}, of which "
        f"{sum('.rebased.' in name for name in left)} of killed rebases\n"
    )


def left_of_branches(table: Path) -> set[str]:
    """Return the files that ended branches have left in a table's log.

    Not those that a store was writing: no listing has them.
    """
    files = (path for path in table.rglob("_branches/**/*") if path.is_file())
    return {path.relative_to(table).as_posix() for path in files if not is_temporary(path.name)}


def vacuumed(worker: Worker, table: str) -> set[str]:
    """Return what VACUUM would delete of a table, whatever its age is."""
    engine = worker.lake.engine
    entry = engine.catalog.find("default", table)
    assert entry is not None
    plan = plan_vacuum(
        engine.at_entry(entry).log,
        0,
        retention_check=False,
        now_ms=engine.system.now_ms() + 3_600_000,
        open_branches=engine.open_branches,
    )
    return set(plan.paths)


def end_branch(lake: Worker, name: str, told: list[list[str]]) -> None:
    """Publish a branch, or drop it if that conflicts; tell it."""
    with suppress(Conflict):
        lake.do(f"PUBLISH BRANCH {name}")
        told.append(["publish", name, "-"])
        return
    lake.do(f"DROP BRANCH {name}")
    told.append(["drop", name, "-"])
