"""Publishers in several processes, and processes that are killed while they publish."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

import txlake
import txlake.dbapi
from tests.iceberg.committing import commit
from tests.iceberg.histories import PROPERTIES, identity
from tests.pages import ROOT

pytestmark = pytest.mark.no_interop("the data files are names only")
TIMEOUT_S = 120


def created(folder: Path) -> str:
    """A published path table."""
    with txlake.dbapi.connect(str(folder / "lake"), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE delta.`{folder}/t` (id INT) {PROPERTIES}")
    return str(folder / "t")


def started(place: str, name: str, count: int, killed_at: int = 0) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.iceberg.committing", place, name]
    return subprocess.Popen([*command, str(count), str(killed_at)], cwd=ROOT)


def published(place: str) -> StaticTable:
    hint = Path(place, "metadata/version-hint.text").read_text()
    return StaticTable.from_metadata(f"{place}/metadata/v{hint}.metadata.json")


def live(table: StaticTable, version: int) -> set[str]:
    """The names of a version's files, as pyiceberg plans them."""
    tasks = table.scan(snapshot_id=identity(table, version)).plan_files()
    return {task.file.file_path.rpartition("/")[2] for task in tasks}


def test_publishers_in_several_processes_follow_each_other(tmp_path: Path) -> None:
    place, count = created(tmp_path), 5
    processes = [started(place, name, count) for name in "abc"]
    assert [each.wait(TIMEOUT_S) for each in processes] == [0, 0, 0]
    table = published(place)
    newest = 3 * count
    # The last one to publish found all commits before its own, and nothing was overwritten.
    assert table.metadata.properties["delta-version"] == str(newest)
    names: set[str] = set()
    for version in range(1, newest + 1):
        before, names = names, live(table, version)
        assert before < names
        assert len(names) == version
    assert names == {f"{name}-{number}.parquet" for name in "abc" for number in range(count)}


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("killed_at", [3, 1, 2, 4])
def test_what_a_killed_process_left_is_published_by_the_next(
    tmp_path: Path, killed_at: int
) -> None:
    """Killed before the manifest, the manifest list, the metadata file, the hint."""
    place = created(tmp_path)
    process = started(place, "a", 2, killed_at)
    assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    log = txlake.Log(place)
    assert log.snapshot().version == 2  # the commit that it was killed after
    assert published(place).metadata.properties["delta-version"] == "1"
    assert commit(log, "b.parquet") == 3
    table = published(place)
    assert table.metadata.properties["delta-version"] == "3"
    assert live(table, 2) == {"a-0.parquet", "a-1.parquet"}
    assert live(table, 3) == {"a-0.parquet", "a-1.parquet", "b.parquet"}


def test_repair_publishes_what_a_killed_process_left(tmp_path: Path) -> None:
    place = created(tmp_path)
    assert started(place, "a", 1, 1).wait(TIMEOUT_S) == -signal.SIGKILL
    with txlake.dbapi.connect(str(tmp_path / "lake"), autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute(f"MSCK REPAIR TABLE delta.`{place}` SYNC METADATA")
        [(location, version, _)] = cursor.fetchall()
        assert version == 1
        assert isinstance(location, str)
        assert location.endswith("/metadata/v2.metadata.json")
        assert live(StaticTable.from_metadata(location), 1) == {"a-0.parquet"}
        connection.autocommit = False
        with pytest.raises(txlake.dbapi.Error, match="REPAIR TABLE"):
            cursor.execute(f"REPAIR TABLE delta.`{place}` SYNC METADATA")
