"""Processes that work on a path table and its branches, and are killed.

`KILLS=100 SEED=7 python -m pytest -s tests/session/test_table_branches_killed.py` for more. The
seed fixes how far each process gets, not the schedule.
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

from tests.session import table_branch_worker
from tests.session.table_branch_worker import ACCOUNTS, Worker
from tests.support.killing import Killed, require_told
from txlake.commit import vacuum
from txlake.errors import Conflict
from txlake.sql.statements import TablePath

KILLS = int(os.environ.get("KILLS", "6"))
SEED = int(os.environ.get("SEED", "1"))
_WORKERS = 3


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    """Processes on one path table."""
    made = Killed(table_branch_worker.main, (f"{tmp_path.as_uri()}/t",), tmp_path, SEED)
    yield made
    made.kill_all()


def markers_in(folder: Path) -> set[str]:
    """Return the markers of the table's rows as delta-rs reads them; each is there once."""
    query = QueryBuilder().register("t", DeltaTable(str(folder)))
    names: list[Any] = pa.table(query.execute("SELECT k FROM t"))["k"].to_pylist()
    found = Counter(name for name in names if name[0] == "m")
    assert len(names) - sum(found.values()) == ACCOUNTS
    assert set(found.values()) <= {1}
    return set(found)


@pytest.mark.broad
@pytest.mark.timeout(120 + 10 * KILLS)
def test_what_was_told_of_a_tables_branches_is_there_once(killed: Killed, tmp_path: Path) -> None:
    worker = Worker(f"{tmp_path.as_uri()}/t")
    accounts = ", ".join(f"('account{number}', 0)" for number in range(ACCOUNTS))
    worker.do("CREATE TABLE {t} (k STRING, n BIGINT)")
    worker.do(f"INSERT INTO {{t}} VALUES {accounts}")
    killed.run(_WORKERS, KILLS)
    told, refused = killed.told(), killed.refusals()
    assert not [words for words in told if words[0] == "!!"]
    on_main, elsewhere = require_told(told, markers_in(tmp_path / "t"))
    left = worker.branches()
    for name in left:
        end = "drop"
        with suppress(Conflict):
            worker.do(f"PUBLISH BRANCH {name} FOR TABLE {{t}}")
            end = "publish"
        if end == "drop":
            worker.do(f"DROP BRANCH {name} FOR TABLE {{t}}")
        told.append([end, name, "-"])
    assert worker.branches() == []
    require_told(told, markers_in(tmp_path / "t"))
    log = worker.session.engine.at_path(TablePath(worker.place)).log
    vacuum.vacuum(log, 0, retention_check=False)
    require_told(told, markers_in(tmp_path / "t"))
    sys.stdout.write(
        f"{Counter(words[0] for words in told)}, refused {refused}: on main {on_main} told, "
        f"elsewhere {elsewhere}, branches left {len(left)}\n"
    )
