"""Failures below a statement: unsafe stores, full disks, killed tasks, killed processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlake
import txlake.session.engine
from tests.lake.rows import number, query, rows
from tests.lake.unchanged import files_below, newest, refused
from txlake.errors import CorruptTable, InvalidRequest
from txlake.ports import PutOutcome, Store
from txlake.storage import open_store
from txlake.storage.proof import try_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.catalog import Catalog

ROWS = pa.table({"id": [3, 4]})
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the table `t` lies."""
    return tmp_path / "warehouse" / "t"


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a table `t` of two rows."""
    lake.sql("CREATE TABLE t (id BIGINT)")
    lake.sql("INSERT INTO t VALUES (1), (2)")
    return lake


class Overwriting:
    """A store whose put-if-absent replaces what is there, as S3 look-alikes did."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._inner.put(path, data)
        return PutOutcome.CREATED

    def ensure_safe(self) -> None:
        try_store(self)  # type: ignore[arg-type]

    def at(self, path: str) -> Overwriting:
        return Overwriting(self._inner.at(path))


def test_a_store_that_overwrites_is_refused_by_name(
    t: txlake.Lake, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwriting(location: str, _: object) -> Overwriting:
        return Overwriting(open_store(location))

    with txlake.connect(str(folder.parent), spark=spark) as lake:
        monkeypatch.setattr(lake._session.engine, "open_store", overwriting)
        assert lake.read("t").count() == 2
        for text in (
            "INSERT INTO t VALUES (3)",
            "INSERT INTO t SELECT 3",
            "DELETE FROM t WHERE id = 1",
            "UPDATE t SET id = 3",
            "ALTER TABLE t ADD COLUMN x INT",
        ):
            with refused(lake, folder, InvalidRequest, r"warehouse/t is unsafe.*refused"):
                lake.sql(text)
        with refused(lake, folder, InvalidRequest, r"unsafe"):
            lake.write(ROWS, "t", "append")
        with pytest.raises(InvalidRequest, match="unsafe"):
            lake.write(ROWS, "fresh")
        assert query(lake, "SHOW TABLES") == [("default", "t", False)]
        assert not list((folder.parent / "fresh").rglob("*.parquet"))


# Disks


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Make a small file system of its own; `disk.change(option)` remounts it."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(*options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small file system isn't permitted here")
        return place

    yield mount
    while os.path.ismount(place):
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_leaves_the_table_as_it_was(
    lake: txlake.Lake, disk: Callable[..., Path]
) -> None:
    table = disk("size=400k") / "t"
    lake.write(pa.table({"id": [1, 2], "pad": ["a", "b"]}), str(table))
    noise = pa.table({"id": [3], "pad": [os.urandom(500_000).hex()]})
    with refused(lake, table, InvalidRequest, "No space left on device"):
        lake.write(noise, str(table), "append")
    fill = table.parent / "fill"
    subprocess.run(["dd", "if=/dev/zero", f"of={fill}"], capture_output=True, check=False)
    for text in (
        "ALTER TABLE delta.`{0}` ADD COLUMN x INT",
        "INSERT INTO delta.`{0}` VALUES (5, 'e')",
    ):
        with refused(lake, table, InvalidRequest, "No space left on device.*free space"):
            lake.sql(text.format(table))
    fill.unlink()
    lake.sql(f"INSERT INTO delta.`{table}` VALUES (5, 'e')")
    # Last: the JVM lets go of the failed file, and of its space, when it pleases.
    with refused(lake, table, InvalidRequest, "No space left on device", orphans=True):
        lake.write(lake.sql("SELECT 1").sparkSession.createDataFrame(noise), str(table), "append")
    assert number(lake, f"SELECT count(*) FROM delta.`{table}`") == 3


def test_a_read_only_file_system_is_read_and_not_written(
    lake: txlake.Lake, disk: Callable[..., Path], spark: SparkSession
) -> None:
    place = disk("size=4m")
    table = place / "t"
    lake.write(pa.table({"id": [1, 2]}), str(table))
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    with txlake.connect(str(place.parent / "other"), spark=spark) as other:
        for text in (
            "INSERT INTO delta.`{0}` VALUES (5)",
            "INSERT INTO delta.`{0}` SELECT 5",
            "DELETE FROM delta.`{0}` WHERE id = 1",
            "UPDATE delta.`{0}` SET id = 7",
            "ALTER TABLE delta.`{0}` ADD COLUMN x INT",
            "CREATE TABLE delta.`{0}2` (id INT)",
        ):
            with refused(other, table, InvalidRequest, "read-only|Read-only"):
                other.sql(text.format(table))
        assert rows(other.read(str(table))) == [(1,), (2,)]
        with pytest.raises(InvalidRequest, match=r"can't be made there.*Read-only"):
            txlake.connect(str(place / "lake"), spark=spark)


# Killed


def _script(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"}
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )


KILLED = """
import os, signal, sys
import pyarrow as pa
import txlake
from txlake.catalog.commits import CommitLedger

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

CommitLedger.ratify = killed
lake = txlake.connect(sys.argv[1])
lake.write(pa.table({"id": [3, 4]}), "t", "append")
"""


@pytest.mark.broad
def test_kill_9_between_data_files_and_commit(
    t: txlake.Lake, folder: Path, tmp_path: Path, spark: SparkSession
) -> None:
    before = files_below(folder)
    ended = _script(tmp_path, KILLED, str(folder.parent))
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    orphans = {name for name in files_below(folder) - before if "_delta_log" not in name}
    assert [Path(name).suffix for name in orphans] == [".parquet"]
    assert query(t, "SELECT id FROM t") == [(1,), (2,)]
    assert newest(folder) == 1

    t.sql("INSERT INTO t VALUES (5)")
    assert query(t, "SELECT id FROM t") == [(1,), (2,), (5,)]
    with pytest.raises(InvalidRequest, match="168"):
        t.sql("VACUUM t RETAIN 0 HOURS")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        # Until its lease is over it may live, and commit.
        assert t.sql("VACUUM t RETAIN 0 HOURS DRY RUN").collect() == []
        with sqlite3.connect(folder.parent / "_txlake" / "catalog.db") as catalog:
            over = "UPDATE txlake_sessions SET lease_ms = 0, warned = true WHERE process <> ?"
            assert catalog.execute(over, [os.getpid()]).rowcount == 1
        planned = [str(row[0]) for row in t.sql("VACUUM t RETAIN 0 HOURS DRY RUN").collect()]
        assert {name.rpartition("/")[2] for name in planned} == orphans
        assert orphans <= files_below(folder)
        t.sql("VACUUM t RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert not orphans & files_below(folder)
    assert query(t, "SELECT id FROM t") == [(1,), (2,), (5,)]
    assert query(t, "SELECT id FROM t VERSION AS OF 1") == [(1,), (2,)]


@pytest.mark.no_interop("another writer's commit stands where the lake's belongs")
def test_a_foreign_commit_spoils_one_table_alone(
    t: txlake.Lake, folder: Path, spark: SparkSession
) -> None:
    t.sql("CREATE TABLE other AS SELECT 1 AS id")
    foreign = folder / "_delta_log" / f"{2:020}.json"
    foreign.write_text('{"commitInfo":{"operation":"INTRUDE"}}\n')
    with txlake.connect(str(folder.parent), spark=spark) as again:
        for lake in (t, again):
            assert number(lake, "SELECT count(*) FROM other") == 1
            for text in ("SELECT * FROM t", "INSERT INTO t VALUES (3)"):
                with pytest.raises(CorruptTable, match=f"{foreign.name} in its log.*didn't ratify"):
                    lake.sql(text)
        foreign.unlink()
        again.sql("INSERT INTO t VALUES (3)")
        assert query(t, "SELECT id FROM t") == [(1,), (2,), (3,)]
    assert '"WRITE"' in foreign.read_text()


# Kills the Python worker that writes, and its own, once: after rows are on their way.
RETRIED = """
import json, os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
import txlake

folder, once = sys.argv[1], Path(sys.argv[2])
spark = (
    SparkSession.builder.master("local[1,4]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1").config("spark.log.level", "OFF")
    .config("spark.pyspark.python", sys.executable).getOrCreate()
)

def dies(batches):
    for number, batch in enumerate(batches):
        yield batch
        if number == 2 and not once.exists():
            once.touch()
            mine = os.getppid()
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    try:
                        parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    except OSError:
                        continue
                    if parent == mine:
                        os.kill(int(entry.name), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

lake = txlake.connect(folder, spark=spark)
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
frame = spark.range(0, 10000, 1, 1).mapInPandas(dies, "id bigint")
lake.write(frame, "t", "append")
assert once.exists()
found = [row.id for row in lake.read("t").collect()]
lake.sql("DELETE FROM t WHERE id < 10")
print(json.dumps([len(found), len(set(found)), lake.read("t").count()]))
spark.stop()
"""


@pytest.mark.broad
def test_a_killed_task_is_run_again_and_no_row_comes_twice(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    ended = _script(tmp_path, RETRIED, str(warehouse), str(tmp_path / "once"))
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == [10_000, 10_000, 9_990]


def test_a_view_that_cant_be_dropped_changes_no_answer(
    t: txlake.Lake,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    views = type(spark.catalog)
    drops = views.dropTempView

    def drop(catalog: Catalog, name: str) -> bool:
        if name.startswith("txlake_"):
            raise ConnectionResetError("lost")
        return drops(catalog, name)

    monkeypatch.setattr(views, "dropTempView", drop)
    assert query(t, "UPDATE t SET id = id + 1 WHERE id = (SELECT max(id) FROM t)") == [(1,)]
    with pytest.raises(InvalidRequest, match="can't be stored there"):
        t.sql("UPDATE t SET id = (SELECT array(max(id)) FROM t)")
    assert "stays in Spark's session" in caplog.text
    assert number(t, "SELECT max(id) FROM t") == 3
    assert t.transactions().collect() == []
