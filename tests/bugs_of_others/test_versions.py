"""Bugs that others published about versions: overwritten, or committed and told to have failed."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

import txlake
from tests.lake.log_tables import add, settings
from tests.lake.rows import query
from txlake.errors import CorruptTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITERS = 8


def test_delta_rs_2279_every_writer_that_committed_is_told_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A writer that comes second commits, but can't go from the version that it knew to its own,
    with another one between, and tells an error: who tries again has the rows twice."""
    place = str(tmp_path_factory.mktemp("bugs") / "t")
    txlake.Log(place).start_transaction().commit([settings("id:long")], operation="CREATE TABLE")
    together = Barrier(_WRITERS)

    def write(number: int) -> int:
        log = txlake.Log(place)
        transaction = log.start_transaction()
        together.wait(120)
        committed = transaction.commit([add(f"f{number}")], operation="WRITE")
        assert committed.version == transaction.read_version + 1 + len(committed.rebased_over)
        seen = log.snapshot()  # it goes on from there
        assert seen.version >= committed.version
        assert f"f{number}" in seen.files().column("path").to_pylist()
        return committed.version

    with ThreadPoolExecutor(_WRITERS) as pool:
        versions = list(pool.map(write, range(_WRITERS)))
    assert sorted(versions) == list(range(1, _WRITERS + 1))
    paths = txlake.Log(place).snapshot().files().column("path").to_pylist()
    assert sorted(paths) == [f"f{number}" for number in range(_WRITERS)]


def test_delta_1410_a_slow_writer_overwrites_no_version(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Who may write a version is known beside the log, and forgotten there; the log isn't asked."""
    folder = tmp_path_factory.mktemp("bugs") / "t"
    log = txlake.Log(str(folder))
    log.start_transaction().commit([settings("id:long")], operation="CREATE TABLE")
    slow = txlake.Log(str(folder)).start_transaction()
    assert log.start_transaction().commit([add("fast")], operation="WRITE").version == 1
    before = _commit(folder, 1).read_bytes()
    assert slow.commit([add("slow")], operation="WRITE").version == 2
    assert _commit(folder, 1).read_bytes() == before
    paths = txlake.Log(str(folder)).snapshot().files().column("path").to_pylist()
    assert sorted(paths) == ["fast", "slow"]


def test_delta_1410_a_catalog_that_forgot_overwrites_no_version(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same where the catalog makes the versions: it is restored to before the newest one."""
    warehouse = tmp_path_factory.mktemp("bugs") / "warehouse"
    with (
        txlake.connect(str(warehouse), spark=spark) as lake,
        txlake.connect(str(warehouse), spark=spark) as other,
    ):
        lake.sql("CREATE TABLE t (id INT)")
        slow = other.begin()
        assert query(slow, "SELECT * FROM t") == []
        lake.sql("INSERT INTO t VALUES (1)")
        before = _commit(warehouse / "t", 1).read_bytes()
        _forget(warehouse, version=1)
        slow.sql("INSERT INTO t VALUES (2)")
        with pytest.raises(CorruptTable, match=r"1\.json.*lake\.recover"):
            slow.commit()
        assert _commit(warehouse / "t", 1).read_bytes() == before
        with txlake.connect(str(warehouse), spark=spark) as fresh:
            with pytest.raises(CorruptTable, match=r"lake\.recover"):
                fresh.sql("SELECT * FROM t").collect()
            fresh.recover()
            assert query(fresh, "SELECT * FROM t") == [(1,)]


def _commit(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020}.json"


def _forget(warehouse: Path, version: int) -> None:
    """The catalog's file as it was before this version of its one table."""
    with closing(sqlite3.connect(warehouse / "_txlake" / "catalog.db")) as catalog:
        catalog.execute("DELETE FROM txlake_commits WHERE version = ?", (version,))
        catalog.execute("UPDATE txlake_tables SET head = ?, published = ?", (version - 1,) * 2)
        catalog.commit()
