"""Delta Kernel in Rust reads and writes open tables through the server, by its catalog committer.

It is delta_kernel 0.30.1 with delta-kernel-unity-catalog 0.2.0 (`tools/rust_kernel`). It asks for a
commit once: who loses a race is told so by the server, loads the table again and decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txlake
from tests.catalog.unity.served import run, served
from tests.server.client import OPEN
from tests.server.kernel import Kernel, built, compiled
from tests.server.lake_client import rows_of
from tests.server.process import ServerProcess
from txlake.errors import Conflict, Unavailable
from txlake.ports import PutOutcome
from txlake.protocol.file_names import commit_path
from txlake.sql.statements import TableName
from txlake.storage.local import LocalStore

pytestmark = [
    pytest.mark.peer("rust-kernel"),
    pytest.mark.timeout(900),
    pytest.mark.no_interop("path readers refuse open tables"),
]
CATALOG = "warehouse"
FAILED = "failed Generic delta kernel error: UC update_table error: HTTP error"
LOST = f"{FAILED} (status 409)"
GOOD, READS = "a-token-that-is-good", "a-token-that-only-reads"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake's folder."""
    return tmp_path_factory.mktemp("of_rust") / CATALOG


@pytest.fixture(scope="module")
def server(warehouse: Path) -> Iterator[ServerProcess]:
    """Its server."""
    built()
    with ServerProcess(warehouse) as made:
        yield made


@pytest.fixture(scope="module")
def kernel(server: ServerProcess) -> Iterator[Kernel]:
    """A client."""
    with Kernel(built(), server.url, CATALOG) as made:
        yield made


@pytest.fixture
def lake(warehouse: Path, server: ServerProcess) -> Iterator[txlake.Lake]:
    """The lake in this process."""
    with txlake.connect(str(warehouse)) as opened:
        yield opened


def rows(lake: txlake.Lake, table: str) -> list[int]:
    """What txlake reads of a table."""
    return sorted(int(str(row[0])) for row in run(lake, f"SELECT id FROM {table}"))


def folder(lake: txlake.Lake, table: str) -> Path:
    """Where a table is."""
    found = lake._session.engine.find(TableName((table,)), "default")
    assert found is not None
    return Path(found.store.url.removeprefix("file://"))


def staged(lake: txlake.Lake, table: str) -> list[Path]:
    """Its staged commits."""
    return sorted((folder(lake, table) / "_delta_log" / "_staged_commits").glob("*.json"))


def test_it_makes_a_table_that_both_write_and_read(kernel: Kernel, lake: txlake.Lake) -> None:
    assert kernel.done("create both") == "0"
    kernel.done("load both")
    assert kernel.done("append both 1 2 3") == "1"
    run(lake, "INSERT INTO both VALUES (4), (5)")
    assert rows(lake, "both") == [1, 2, 3, 4, 5]
    assert kernel.done("read both") == "1 2 3 4 5"


def test_it_reads_deletion_vectors(kernel: Kernel, lake: txlake.Lake) -> None:
    run(lake, f"CREATE TABLE marked (id INT) {OPEN}")
    run(lake, "INSERT INTO marked VALUES (1), (2), (3), (4)")
    run(lake, "DELETE FROM marked WHERE id = 2")
    run(lake, "UPDATE marked SET id = 30 WHERE id = 3")
    log = (folder(lake, "marked") / "_delta_log" / f"{2:020d}.json").read_text()
    assert '"deletionVector":' in log
    assert kernel.done("read marked") == "1 4 30"


def test_it_writes_deletion_vectors(kernel: Kernel, lake: txlake.Lake) -> None:
    run(lake, f"CREATE TABLE thinned (id INT) {OPEN}")
    run(lake, "INSERT INTO thinned VALUES (1), (2), (3), (4), (5)")
    kernel.done("load thinned")
    assert kernel.done("delete thinned 2 4") == "2"
    assert rows(lake, "thinned") == [1, 3, 5]
    run(lake, "DELETE FROM thinned WHERE id = 3")
    kernel.done("load thinned")
    kernel.done("delete thinned 5")
    assert rows(lake, "thinned") == [1]
    assert kernel.done("read thinned") == "1"


def test_it_writes_a_table_that_was_opened_later(kernel: Kernel, lake: txlake.Lake) -> None:
    run(lake, "CREATE TABLE later (id INT); INSERT INTO later VALUES (1)")
    run(lake, f"ALTER TABLE later SET {OPEN}")
    kernel.done("load later")
    kernel.done("append later 2")
    assert kernel.done("read later") == "1 2"
    assert rows(lake, "later") == [1, 2]


def test_it_publishes_and_checkpoints(kernel: Kernel, lake: txlake.Lake) -> None:
    kernel.done("create kept")
    for number in range(12):
        kernel.done("load kept")
        kernel.done(f"append kept {number}")
    assert kernel.done("publish kept") == kernel.done("checkpoint kept") == "12"
    [checkpoint] = (folder(lake, "kept") / "_delta_log").glob(f"{12:020d}.checkpoint*")
    assert checkpoint.stat().st_size
    assert kernel.done("read kept") == " ".join(map(str, range(12)))
    assert rows(lake, "kept") == list(range(12))
    run(lake, "DELETE FROM kept WHERE id < 6")
    assert kernel.done("read kept") == " ".join(map(str, range(6, 12)))


def test_it_reads_and_publishes_staged_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the lake couldn't put into the log is read from where it was staged."""
    put = LocalStore.put_if_absent

    def fail(store: Any, path: str, data: bytes) -> PutOutcome:
        if path == commit_path(2):
            raise Unavailable("the store is away")
        return put(store, path, data)

    with served(tmp_path / CATALOG) as there:
        url = there.address.removeprefix("uc+")
        with Kernel(built(), url, CATALOG) as kernel:
            run(there.lake, f"CREATE TABLE t (id INT) {OPEN}; INSERT INTO t VALUES (1)")
            place = folder(there.lake, "t") / "_delta_log" / f"{2:020d}.json"
            monkeypatch.setattr(LocalStore, "put_if_absent", fail)
            run(there.lake, "INSERT INTO t VALUES (2)")
            assert not place.exists()
            assert kernel.done("read t") == "1 2"
            assert kernel.done("publish t") == "2"
            [own] = [one for one in staged(there.lake, "t") if one.name.startswith(f"{2:020d}")]
            assert place.read_bytes() == own.read_bytes()
            kernel.done("load t")
            assert kernel.done("append t 3") == "3"
            monkeypatch.undo()
            assert rows(there.lake, "t") == [1, 2, 3]


def test_who_loses_a_race_says_so(kernel: Kernel, lake: txlake.Lake) -> None:
    """It doesn't look what the winner did, as Kernel in Java does; it has to begin again."""
    kernel.done("create race")
    kernel.done("load race")
    run(lake, "INSERT INTO race VALUES (1)")
    found = kernel.ask("append race 2")
    assert found.startswith(LOST), found
    assert "CommitVersionConflictException" in found
    assert rows(lake, "race") == [1]
    kernel.done("load race")
    assert kernel.done("append race 2") == "2"
    assert rows(lake, "race") == [1, 2]


def test_a_transaction_that_meets_its_deletion_aborts(kernel: Kernel, lake: txlake.Lake) -> None:
    run(lake, f"CREATE TABLE met (id INT) {OPEN}; INSERT INTO met VALUES (1), (2), (3)")
    tx = lake.begin()
    rows_of(tx, "DELETE FROM met WHERE id = 1")
    kernel.done("load met")
    kernel.done("delete met 1")
    with pytest.raises(Conflict):
        tx.commit()
    tx = lake.begin()
    rows_of(tx, "DELETE FROM met WHERE id = 2")
    kernel.done("load met")
    kernel.done("delete met 3")  # another row of the same file
    kernel.done("load met")
    kernel.done("append met 4")
    tx.commit()
    assert rows(lake, "met") == [4]
    kernel.done("load met")
    run(lake, "DELETE FROM met WHERE id = 4")
    found = kernel.ask("delete met 4")
    assert found.startswith(LOST), found


def test_it_changes_no_definition(kernel: Kernel, lake: txlake.Lake) -> None:
    """Its committer refuses that by itself."""
    run(lake, f"CREATE TABLE shaped (id INT) {OPEN}")
    kernel.done("load shaped")
    found = kernel.ask("add_column shaped more")
    assert "UCCommitter does not support commits that change the table" in found
    assert rows(lake, "shaped") == []


def test_an_append_beside_a_new_column_loses(kernel: Kernel, lake: txlake.Lake) -> None:
    kernel.done("create wider")
    kernel.done("load wider")
    run(lake, "ALTER TABLE wider ADD COLUMN (more INT)")
    assert kernel.ask("append wider 1").startswith(LOST)
    assert rows(lake, "wider") == []


def test_what_is_not_there_is_said(kernel: Kernel, lake: txlake.Lake) -> None:
    assert "Table not found: warehouse.default.nowhere" in kernel.ask("load nowhere")
    run(lake, "CREATE TABLE shut (id INT)")
    kernel.done("load shut")
    found = kernel.ask("append shut 1")
    assert found.startswith("failed"), found
    assert rows(lake, "shut") == []


def test_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    told = [
        {"token": GOOD, "name": "etl"},
        {"token": READS, "name": "reports", "read_only": True},
    ]
    tokens.write_text(json.dumps(told))
    with (
        ServerProcess(tmp_path / CATALOG, "--token-file", str(tokens)) as server,
        Kernel(built(), server.url, CATALOG, GOOD) as good,
        Kernel(built(), server.url, CATALOG, READS) as reads,
        Kernel(built(), server.url, CATALOG, "another") as wrong,
    ):
        good.done("create t")
        good.done("load t")
        good.done("append t 1")
        assert reads.done("read t") == "1"
        reads.done("load t")
        found = reads.ask("append t 2")
        assert found.startswith(f"{FAILED} (status 403)"), found
        assert wrong.ask("read t") == "failed Authentication failed"
        assert good.done("read t") == "1"


def test_killed_between_staging_and_commit(
    server: ServerProcess, kernel: Kernel, lake: txlake.Lake
) -> None:
    kernel.done("create abandoned")
    with Kernel(built(), server.url, CATALOG) as other:
        other.done("load abandoned")
        assert other.done("stage abandoned 1") == "staged"
        other.kill()
    [left] = staged(lake, "abandoned")
    assert left.name.startswith(f"{1:020d}.")
    assert kernel.done("read abandoned") == ""
    run(lake, "INSERT INTO abandoned VALUES (2)")
    kernel.done("load abandoned")
    assert kernel.done("append abandoned 3") == "2"
    assert kernel.done("read abandoned") == "2 3"
    assert rows(lake, "abandoned") == [2, 3]


@pytest.mark.peer("kernel")
def test_both_kernels_beside_each_other(
    server: ServerProcess, kernel: Kernel, lake: txlake.Lake, tmp_path: Path
) -> None:
    """The one in Java goes on after the other's append, and reads its deletion vectors."""
    with Kernel(compiled(tmp_path), server.url, CATALOG) as java:
        java.done("create shared")
        java.done("load shared")
        kernel.done("load shared")
        assert kernel.done("append shared 1 2") == "1"
        assert java.done("append shared 3") == "2"
        kernel.done("load shared")
        kernel.done("delete shared 1")
        assert java.done("read shared") == kernel.done("read shared") == "2 3"
    assert rows(lake, "shared") == [2, 3]
