"""Processes that write a table and maintain it, and are killed at any instruction.

`KILLS=100 SEED=7 python -m pytest -s tests/maintenance/test_killed.py` for more. The seed fixes how
far each process gets, not the schedule.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.maintenance import killed_worker
from tests.maintenance.killed_worker import PROPERTIES, Worker
from tests.maintenance.maintaining import handle_of, maintainer_of, newest, view
from tests.support.killing import Killed
from txlake import errors
from txlake.catalog.maintenance_book import claim_on
from txlake.commands import HANDLERS
from txlake.session.session import Session

KILLS = int(os.environ.get("KILLS", "6"))
SEED = int(os.environ.get("SEED", "1"))
_WORKERS = 3
_WAIT_MS = 60_000


@pytest.fixture(params=["sqlite", pytest.param("store", marks=pytest.mark.broad)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The catalog of a lake with a table."""
    (tmp_path / "_txlake").mkdir()
    place = tmp_path / "_txlake" / "catalog"
    url = f"sqlite:///{place}.db" if request.param == "sqlite" else place.as_uri()
    worker = Worker(tmp_path.as_uri(), url)
    worker.lake.run(f"CREATE TABLE t (k STRING, n BIGINT) TBLPROPERTIES ({PROPERTIES})")
    worker.lake.run("INSERT INTO t VALUES ('first', 1)")
    worker.close()
    return url


@pytest.fixture
def killed(catalog: str, tmp_path: Path) -> Iterator[Killed]:
    """Processes on that lake."""
    made = Killed(killed_worker.main, (tmp_path.as_uri(), catalog), tmp_path, SEED)
    yield made
    made.kill_all()


def keys_of(folder: Path) -> Counter[str]:
    """Return the rows as delta-rs reads them."""
    query = QueryBuilder().register("t", DeltaTable(str(folder / "t")))
    return Counter(pa.table(query.execute("SELECT k FROM t")).column("k").to_pylist())


@pytest.mark.broad(keep=1)
@pytest.mark.timeout(180 + 10 * KILLS)
def test_nothing_is_lost_and_nobody_is_aborted(
    killed: Killed, catalog: str, tmp_path: Path
) -> None:
    killed.run(_WORKERS, KILLS)
    told, refused = killed.told(), killed.refusals()
    assert not [words for words in told if words[0] == "!!"], told[-5:]
    # Each row has one writer: only maintenance could conflict with it.
    assert not [
        name for name in refused if issubclass(getattr(errors, name, Exception), errors.Conflict)
    ], refused
    worker = Worker(tmp_path.as_uri(), catalog)
    entry = handle_of(worker.lake).entry
    assert entry is not None
    # The claim of a process that was killed is taken over when its lease has expired.
    session = Session(worker.lake.engine, HANDLERS)
    claim = claim_on(entry.database_number, entry.number)
    worker.lake.catalog.locks.acquire(session.number(), None, [claim], _WAIT_MS)
    session.close()
    before = keys_of(tmp_path)
    inserted = {words[1] for words in told if words[0] == "insert"}
    deleted = {words[1] for words in told if words[0] == "delete"}
    assert set(before.values()) == {1}
    doomed = {words[1] for words in told if words[0] == "doom"}
    assert inserted - doomed <= before.keys()
    assert deleted.isdisjoint(before)
    left = [entry for entry in maintainer_of(worker.lake).run() if entry.state != "done"]
    assert not [entry for entry in left if entry.state != "nothing"], left
    assert keys_of(tmp_path) == before
    due = {entry.need for entry in maintainer_of(worker.lake).plan()}
    assert due.isdisjoint({"optimize", "purge", "checkpoint", "leftovers"})
    assert not newest(worker.lake).files.totals.deletion_vectors
    states = Counter(row["state"] for row in view(worker.lake))
    assert states.keys() <= {"done", "nothing", "yielded", "interrupted"}, states
    worker.close()
    sys.stdout.write(f"{Counter(words[0] for words in told)}, refused {refused}, {states}\n")
