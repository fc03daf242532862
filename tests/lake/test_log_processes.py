"""Real processes race on one table on disk: no commit is lost, none stands twice."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from tests.lake.log_tables import settings
from txlake.errors import Conflict, ProtocolChangedException

pytestmark = pytest.mark.broad(keep=1)

PROCESSES = 4
TURNS = 5
APPENDERS = 8
APPENDS = 25
_start: Barrier


def write_file(folder: str, name: str, value: int) -> dict[str, object]:
    """A data file of one row, and its add."""
    path = Path(folder) / name
    pq.write_table(pa.table({"k": pa.array(["a"]), "n": pa.array([value], pa.int64())}), path)
    bounds = {"n": value}
    return {
        "add": {
            "path": name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps(
                {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"n": 0}}
            ),
        }
    }


def appends(folder: str, number: int) -> list[int]:
    """The versions of this process's appends, of files that nobody wrote."""
    log = txlake.Log(folder)
    versions = []
    for turn in range(APPENDS):
        file = {"path": f"{number}-{turn}.parquet", "size": 1, "stats": '{"numRecords":1}'}
        versions.append(log.start_transaction().commit([{"add": file}]).version)
    return versions


def increments(folder: str, number: int) -> list[int]:
    """The versions of this process's increments of the one counter."""
    log = txlake.Log(folder)
    versions: list[int] = []
    attempt = 0
    while len(versions) < TURNS:
        attempt += 1
        transaction = log.start_transaction()
        (row,) = transaction.read("k = 'a'").to_pylist()
        value = json.loads(row["stats"])["maxValues"]["n"]
        action = write_file(folder, f"{number}-{attempt}.parquet", value + 1)
        removed = {"remove": {"path": row["path"]}}
        try:
            versions.append(transaction.commit([removed, action], operation="UPDATE").version)
        except Conflict:
            continue
    return versions


def creations(folder: str, number: int) -> list[int]:
    """Version 0 for the process that created the table."""
    transaction = txlake.Log(folder).start_transaction()
    if transaction.read_version >= 0:
        return []
    try:
        return [transaction.commit([settings("k:string", "n:long")]).version]
    except ProtocolChangedException:
        return []


def race(
    work: Callable[[str, int], list[int]], folder: Path, processes: int = PROCESSES
) -> list[int]:
    """The versions that all processes were told, sorted."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(processes)
    with context.Pool(processes, _wait_at, (start,)) as pool:
        tasks = [(work, str(folder), number) for number in range(processes)]
        results = pool.starmap(_after_all, tasks, 1)
    return sorted(version for versions in results for version in versions)


def _wait_at(start: Barrier) -> None:
    """Each process knows where to meet the others."""
    global _start
    _start = start


def _after_all(work: Callable[[str, int], list[int]], folder: str, number: int) -> list[int]:
    """The work, once every process is there: none begins when another is done."""
    _start.wait(timeout=120)
    return work(folder, number)


def create(folder: Path) -> txlake.Log:
    log = txlake.Log(folder)
    made = settings("k:string", "n:long", delta__checkpointInterval="7")
    log.start_transaction().commit([made])
    return log


@pytest.mark.no_interop("200 versions: the race of increments is read by others at each version")
def test_no_append_is_lost(tmp_path: Path) -> None:
    log = create(tmp_path / "t")
    versions = race(appends, tmp_path / "t", APPENDERS)
    assert versions == list(range(1, APPENDERS * APPENDS + 1))
    names = {f"{number}-{turn}.parquet" for number in range(APPENDERS) for turn in range(APPENDS)}
    assert set(log.snapshot().files().column("path").to_pylist()) == names
    assert log.snapshot(version=10).files().num_rows == 10


def test_no_increment_is_lost(tmp_path: Path) -> None:
    log = create(tmp_path / "t")
    log.start_transaction().commit([write_file(str(tmp_path / "t"), "zero.parquet", 0)])
    versions = race(increments, tmp_path / "t")
    assert versions == list(range(2, PROCESSES * TURNS + 2))
    (row,) = log.snapshot().files().to_pylist()
    assert json.loads(row["stats"])["maxValues"]["n"] == PROCESSES * TURNS


def test_one_creates_the_table(tmp_path: Path) -> None:
    assert race(creations, tmp_path / "t") == [0]
