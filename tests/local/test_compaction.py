"""OPTIMIZE of few bytes is done by the driver, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.session.offline import Offline
from txlake.local import compaction
from txlake.protocol.sources import SOURCES_TAG
from txlake.session.command import AsRows
from txlake.session.engine import Handle
from txlake.session.views.describe import Rows
from txlake.sql import parse
from txlake.sql.statements import Select, TableName
from txlake.storage import local_path


@pytest.fixture(params=["memory", "folder"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Offline:
    return Offline(None if request.param == "memory" else (tmp_path / "lake").as_uri())


def table(lake: Offline) -> Handle:
    handle = lake.engine.find(TableName(("t",)), "default")
    assert handle is not None
    return handle


def rows(lake: Offline) -> list[tuple[object, ...]]:
    [statement] = parse("SELECT id, p FROM t")
    assert isinstance(statement, Select)
    found = lake.session.carry_out(None, replace(statement, as_values=True))(AsRows())
    assert isinstance(found, Rows)
    return sorted(found.rows)


def test_files_are_packed_without_spark(lake: Offline) -> None:
    lake.run("CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p)")
    for number in range(6):
        values = ", ".join(f"({number + 10 * n}, '{'ab'[n % 2]}')" for n in range(4))
        lake.run(f"INSERT INTO t VALUES {values}")
    lake.run("DELETE FROM t WHERE id = 3; UPDATE t SET id = 50 WHERE id = 15")
    before = rows(lake)
    lake.run("OPTIMIZE t WHERE p = 'a'")
    after = list(table(lake).log.latest().files.adds())
    assert sum(add.partition_values == {"p": "a"} for add in after) == 1
    assert sum(add.partition_values == {"p": "b"} for add in after) == 7
    lake.run("OPTIMIZE t")
    first, second = table(lake).log.latest().files.adds()
    told = [json.loads(str((add.tags or {})[SOURCES_TAG])) for add in (first, second)]
    assert sorted(map(len, told)) == [6, 7]
    assert rows(lake) == before
    assert len(before) == 23


def test_deleted_rows_are_purged_without_spark(lake: Offline) -> None:
    lake.run("CREATE TABLE t (id INT, p STRING)")
    lake.run(f"INSERT INTO t VALUES {', '.join(f'({n}, NULL)' for n in range(100))}")
    lake.run("DELETE FROM t WHERE id = 7; REORG TABLE t APPLY (PURGE)")
    [file] = table(lake).log.latest().files.adds()
    assert file.deletion_vector is None
    assert len(rows(lake)) == 99


def test_more_bytes_are_sparks(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.run("CREATE TABLE t (id INT, p STRING)")
    lake.run("INSERT INTO t VALUES (1, 'a'); INSERT INTO t VALUES (2, 'a')")
    total = sum(add.size for add in table(lake).log.latest().files.adds())
    monkeypatch.setattr(compaction, "ONE_TASK_BYTES", total - 1)
    with pytest.raises(AssertionError, match="Spark isn't needed"):
        lake.run("OPTIMIZE t")
    monkeypatch.setattr(compaction, "ONE_TASK_BYTES", total)
    lake.run("OPTIMIZE t")
    assert len(table(lake).log.latest().files) == 1


def test_many_files_of_several_partitions_are_sparks(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run("CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p)")
    for _ in range(2):
        lake.run("INSERT INTO t VALUES (1, 'a'), (1, 'b')")
    monkeypatch.setattr(compaction, "_FILES_MAX", 3)
    with pytest.raises(AssertionError, match="Spark isn't needed"):
        lake.run("OPTIMIZE t")
    lake.run("OPTIMIZE t WHERE p = 'a'")
    monkeypatch.setattr(compaction, "_FILES_MAX", 4)
    lake.run("OPTIMIZE t")
    assert len(table(lake).log.latest().files) == 2


def test_a_missing_file_is_left_to_spark_to_explain(tmp_path: Path) -> None:
    lake = Offline((tmp_path / "lake").as_uri())
    lake.run("CREATE TABLE t (id INT, p STRING)")
    lake.run("INSERT INTO t VALUES (1, 'a'); INSERT INTO t VALUES (2, 'a')")
    handle = table(lake)
    folder = local_path(handle.store.url)
    assert folder is not None
    [first, _] = handle.log.latest().files.adds()
    (Path(folder) / first.path).unlink()
    with pytest.raises(AssertionError, match="Spark isn't needed"):
        lake.run("OPTIMIZE t")
