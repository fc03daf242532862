"""Delta Kernel writes open tables through the server, beside the lake's own transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake
from tests.lake.rows import query
from tests.server.client import OPEN
from tests.server.kernel import Kernel, compiled
from tests.server.process import ServerProcess
from txlake.errors import Conflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.peer("kernel"),
    pytest.mark.broad,
    pytest.mark.timeout(900),
    pytest.mark.no_interop("path readers refuse open tables"),
]
WAIT_S = 300


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The program, compiled."""
    return compiled(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake's folder."""
    return tmp_path_factory.mktemp("of_kernel") / "warehouse"


@pytest.fixture(scope="module")
def server(warehouse: Path) -> Iterator[ServerProcess]:
    """Its server."""
    with ServerProcess(warehouse) as made:
        yield made


@pytest.fixture(scope="module")
def kernel(command: tuple[str, ...], server: ServerProcess) -> Iterator[Kernel]:
    """A client."""
    with Kernel(command, server.url, "warehouse") as made:
        yield made


@pytest.fixture
def lake(warehouse: Path, server: ServerProcess, spark: SparkSession) -> Iterator[txlake.Lake]:
    """The lake in this process."""
    with txlake.connect(str(warehouse), spark=spark) as opened:
        yield opened


def rows(lake: txlake.Lake, table: str) -> list[int]:
    """What txlake reads of a table."""
    return sorted(int(str(row[0])) for row in query(lake, f"SELECT id FROM {table}"))


def test_it_makes_a_table_that_both_write_and_read(kernel: Kernel, lake: txlake.Lake) -> None:
    assert kernel.done("create both") == "0"
    kernel.done("load both")
    assert kernel.done("append both 1 2 3") == "1"
    lake.sql("INSERT INTO both VALUES (4), (5)")
    assert rows(lake, "both") == [1, 2, 3, 4, 5]
    assert kernel.done("read both") == "1 2 3 4 5"
    lake.sql("DELETE FROM both WHERE id = 2")
    lake.sql("UPDATE both SET id = 30 WHERE id = 3")
    assert kernel.done("read both") == "1 4 5 30"
    kernel.done("load both")
    kernel.done("append both 6")
    assert rows(lake, "both") == [1, 4, 5, 6, 30]


def test_it_writes_a_table_that_the_lake_made(kernel: Kernel, lake: txlake.Lake) -> None:
    lake.sql(f"CREATE TABLE ours (id INT) {OPEN}; INSERT INTO ours VALUES (1)")
    kernel.done("load ours")
    kernel.done("append ours 2")
    lake.sql("CREATE TABLE later (id INT); INSERT INTO later VALUES (1)")
    lake.sql(f"ALTER TABLE later SET {OPEN}")
    kernel.done("load later")
    kernel.done("append later 2")
    assert kernel.done("read ours") == kernel.done("read later") == "1 2"
    assert rows(lake, "ours") == rows(lake, "later") == [1, 2]


def test_it_publishes_and_checkpoints(kernel: Kernel, lake: txlake.Lake) -> None:
    kernel.done("create kept")
    for number in range(12):
        kernel.done("load kept")
        kernel.done(f"append kept {number}")
    assert kernel.done("publish kept") == kernel.done("checkpoint kept") == "12"
    assert kernel.done("read kept") == " ".join(map(str, range(12)))
    assert rows(lake, "kept") == list(range(12))
    lake.sql("DELETE FROM kept WHERE id < 6")
    lake.sql("OPTIMIZE kept")
    assert kernel.done("read kept") == " ".join(map(str, range(6, 12)))


def test_a_transaction_over_many_tables_beside_it(kernel: Kernel, lake: txlake.Lake) -> None:
    kernel.done("create one")
    lake.sql("CREATE TABLE two (id INT)")
    tx = lake.begin()
    tx.sql("INSERT INTO one VALUES (1)")
    tx.sql("INSERT INTO two VALUES (1)")
    kernel.done("load one")
    kernel.done("append one 7")
    tx.commit()
    assert rows(lake, "one") == [1, 7]
    assert rows(lake, "two") == [1]
    assert kernel.done("read one") == "1 7"


def test_it_commits_two_tables_at_once(kernel: Kernel, lake: txlake.Lake) -> None:
    for table in ("left", "right"):
        kernel.done(f"create {table}")
    kernel.done("prepare left,right first 5 6")
    assert [rows(lake, table) for table in ("left", "right")] == [[], []]
    before = lake.view("txlake.commits").num_rows
    answer = json.loads(kernel.done("ratify left,right"))
    assert answer["transaction-id"] == "first"
    assert [one["version"] for one in answer["tables"]] == [1, 1]
    commits = lake.view("txlake.commits").to_pylist()
    assert len(commits) == before + 2
    assert len({one["sequence"] for one in commits[-2:]}) == 1
    for table in ("left", "right"):
        assert rows(lake, table) == [5, 6]
        assert kernel.done(f"read {table}") == "5 6"
    # The reply was lost: the same request, and all of it staged anew.
    assert json.loads(kernel.done("ratify left,right")) == answer
    assert rows(lake, "left") == rows(lake, "right") == [5, 6]


def test_of_two_tables_none_is_committed_if_one_is_overtaken(
    kernel: Kernel, lake: txlake.Lake
) -> None:
    for table in ("calm", "busy_one"):
        kernel.done(f"create {table}")
    kernel.done("prepare calm,busy_one second 1")
    lake.sql("INSERT INTO busy_one VALUES (7)")
    refused = kernel.ask("ratify calm,busy_one")
    assert refused.startswith("failed"), refused
    assert "409" in refused
    assert "default.busy_one: the table is at version 1" in refused
    assert (rows(lake, "calm"), rows(lake, "busy_one")) == ([], [7])
    kernel.done("prepare calm,busy_one second 1")
    kernel.done("ratify calm,busy_one")
    assert (rows(lake, "calm"), rows(lake, "busy_one")) == ([1], [1, 7])
    assert kernel.done("read busy_one") == "1 7"


def test_who_loses_a_race_says_so(kernel: Kernel, lake: txlake.Lake) -> None:
    """Kernel goes on after commits that don't concern its own, and gives up after others."""
    kernel.done("create race")
    kernel.done("load race")
    lake.sql("INSERT INTO race VALUES (1)")
    assert kernel.done("append race 2") == "2"
    kernel.done("load race")
    lake.sql("ALTER TABLE race ADD COLUMN (more INT)")
    found = kernel.ask("append race 3")
    assert found.startswith("failed"), found
    assert rows(lake, "race") == [1, 2]
    kernel.done("load race")
    tx = lake.begin(isolation="serializable")
    assert len(query(tx, "SELECT id FROM race")) == 2
    tx.sql("INSERT INTO race (id) VALUES (4)")
    kernel.done("set race some.key value")
    with pytest.raises(Conflict):
        tx.commit()
    assert rows(lake, "race") == [1, 2]


def test_both_at_once_lose_nothing(kernel: Kernel, lake: txlake.Lake) -> None:
    kernel.done("create busy")
    theirs, ours = range(100, 115), range(15)

    def append() -> list[int]:
        kept = []
        for number in theirs:
            kernel.done("load busy")
            if kernel.ask(f"append busy {number}").startswith("ok"):
                kept.append(number)
        return kept

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(append)
        for number in ours:
            lake.sql(f"INSERT INTO busy VALUES ({number})")
        kept = running.result(WAIT_S)
    assert kept
    assert rows(lake, "busy") == sorted([*ours, *kept])
    assert kernel.done("read busy") == " ".join(map(str, sorted([*ours, *kept])))


def test_a_client_that_is_killed_leaves_a_table_that_goes_on(
    command: tuple[str, ...], server: ServerProcess, kernel: Kernel, lake: txlake.Lake
) -> None:
    kernel.done("create abandoned")
    with Kernel(command, server.url, "warehouse") as other:
        other.done("load abandoned")
        other.done("append abandoned 1")
        other.kill()
    lake.sql("INSERT INTO abandoned VALUES (2)")
    kernel.done("load abandoned")
    kernel.done("append abandoned 3")
    assert rows(lake, "abandoned") == [1, 2, 3]
