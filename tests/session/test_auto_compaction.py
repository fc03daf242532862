"""`delta.autoOptimize.autoCompact`: a commit that leaves many small files packs them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.session.offline import Offline
from txlake.errors import Unavailable
from txlake.log.snapshot import Snapshot
from txlake.session import auto_compaction
from txlake.session.engine import Handle
from txlake.spark.plane import SparkPlane
from txlake.sql import parse
from txlake.sql.statements import TableName

AUTO = "'delta.autoOptimize.autoCompact' = 'true'"


@pytest.fixture
def lake(tmp_path: Path) -> Offline:
    return Offline((tmp_path / "lake").as_uri())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five files are many."""
    _set(monkeypatch, {auto_compaction._FILES_MIN: "5"})


def _set(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    monkeypatch.setattr(SparkPlane, "setting", lambda _, key, default: settings.get(key, default))


def handle_of(lake: Offline, name: str = "t") -> Handle:
    found = lake.engine.find(TableName((name,)), "default")
    assert found is not None
    return found


def newest(lake: Offline, name: str = "t") -> Snapshot:
    return handle_of(lake, name).log.latest()


def create(lake: Offline, properties: str = AUTO, name: str = "t") -> None:
    lake.run(f"CREATE TABLE {name} (id INT) TBLPROPERTIES ({properties})")


def insert(lake: Offline, number: int, name: str = "t") -> None:
    for each in range(number):
        lake.run(f"INSERT INTO {name} VALUES ({each})")


def compactions(lake: Offline, name: str = "t") -> list[int]:
    """The versions that are compactions by themselves."""
    found = []
    for row in handle_of(lake, name).log.history():
        parameters = row["operationParameters"]
        assert isinstance(parameters, Mapping)
        if row["operation"] == "OPTIMIZE" and str(parameters["auto"]).lower() == "true":
            version = row["version"]
            assert isinstance(version, int)
            found.append(version)
    return found


def test_many_inserts_leave_few_files(lake: Offline) -> None:
    create(lake)
    insert(lake, 130)
    assert len(compactions(lake)) == 2
    assert len(newest(lake).files) < 50


def test_a_table_without_the_property_keeps_its_files(lake: Offline, few: None) -> None:
    create(lake, "'delta.autoOptimize.autoCompact' = 'false'")
    insert(lake, 12)
    assert len(newest(lake).files) == 12


@pytest.mark.parametrize(
    "properties",
    [
        "'delta.autoOptimize.autoCompact' = 'auto'",
        "'delta.autoOptimize.autoCompact' = 'legacy'",
        "'delta.autoOptimize' = 'true'",
    ],
)
def test_each_value_that_switches_it_on(lake: Offline, few: None, properties: str) -> None:
    create(lake, properties)
    insert(lake, 10)
    assert compactions(lake) == [11]
    assert len(newest(lake).files) == 1


@pytest.mark.parametrize(("setting", "packs"), [("true", True), ("false", False)])
def test_the_sessions_setting_comes_first(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, setting: str, packs: bool
) -> None:
    _set(monkeypatch, {auto_compaction._FILES_MIN: "5", auto_compaction._ENABLED: setting})
    create(lake, f"'delta.autoOptimize.autoCompact' = '{str(not packs).lower()}'")
    insert(lake, 10)
    assert bool(compactions(lake)) is packs


def test_a_setting_that_cannot_be_read_is_told_and_loses_nothing(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _set(monkeypatch, {auto_compaction._FILES_MIN: "many"})
    create(lake)
    insert(lake, 2)
    assert len(newest(lake).files) == 2
    assert "minNumFiles: expected a whole number or a size, found 'many'" in caplog.text


def test_a_commit_of_many_files_is_looked_at_whatever_its_version(lake: Offline, few: None) -> None:
    create(lake)
    transaction = lake.session.begin()
    for number in range(5):
        lake.run_in(transaction, f"INSERT INTO t VALUES ({number})")
    transaction.commit()
    assert newest(lake).version == 2
    assert len(newest(lake).files) == 1


def test_a_transaction_over_two_tables_packs_both(lake: Offline, few: None) -> None:
    create(lake)
    create(lake, name="u")
    transaction = lake.session.begin()
    for number in range(5):
        lake.run_in(transaction, f"INSERT INTO t VALUES ({number})")
        lake.run_in(transaction, f"INSERT INTO u VALUES ({number})")
    transaction.commit()
    assert len(newest(lake).files) == len(newest(lake, "u").files) == 1


def test_a_path_table_is_packed(lake: Offline, few: None, tmp_path: Path) -> None:
    place = (tmp_path / "elsewhere").as_uri()
    lake.run(f"CREATE TABLE delta.`{place}` (id INT) TBLPROPERTIES ({AUTO})")
    for number in range(10):
        lake.run(f"INSERT INTO delta.`{place}` VALUES ({number})")
    assert len(lake.at(place).log.latest().files) == 1


def test_nothing_is_packed_on_a_branch(lake: Offline, few: None) -> None:
    create(lake)
    for statement in parse("CREATE BRANCH b; USE BRANCH b"):
        lake.session.perform(statement)
    insert(lake, 12)
    handle = lake.session.engine.find(TableName(("t",)), "default")
    assert handle is not None
    assert len(handle.log.latest().files) == 12


def test_a_lock_is_not_waited_for(lake: Offline, few: None) -> None:
    create(lake)
    insert(lake, 9)
    committed = threading.Event()
    other = lake.session.another()
    holder = other.begin()
    pack = auto_compaction._pack

    def pack_beside(*given: Any) -> None:
        lake.run_in(holder, "ALTER TABLE t SET TBLPROPERTIES ('delta.appendOnly' = 'false')", other)
        pack(*given)
        committed.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_compaction, "_pack", pack_beside)
        insert(lake, 1)
    assert committed.is_set()
    assert compactions(lake) == []
    holder.rollback()
    insert(lake, 10)
    assert len(compactions(lake)) == 1


def test_a_packing_that_fails_leaves_the_commit(
    lake: Offline, few: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(lake)
    insert(lake, 9)

    def failing(*_: object, **__: object) -> None:
        raise Unavailable("the disk is on fire")

    caplog.set_level(logging.INFO)
    monkeypatch.setattr("txlake.spark.plane.SparkTable.compact", failing)
    insert(lake, 1)
    assert len(newest(lake).files) == 10
    assert "t: its small files stay for now: the disk is on fire" in caplog.text


def test_one_thread_of_a_process_packs_a_table(lake: Offline, few: None) -> None:
    create(lake)
    insert(lake, 9)
    with handle_of(lake).log.packing:
        insert(lake, 1)
    assert compactions(lake) == []


def test_what_others_deleted_meanwhile_stays_deleted(
    lake: Offline, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    lake.run("INSERT INTO t VALUES (100), (101), (102)")
    insert(lake, 8)
    other = lake.session.another()
    compact = SparkPlane.table

    def delete_beside(self: SparkPlane, *given: Any, **named: Any) -> Any:
        monkeypatch.setattr(SparkPlane, "table", compact)
        table = compact(self, *given, **named)
        lake.run("DELETE FROM t WHERE id = 101", other)
        return table

    pack = auto_compaction._pack

    def pack_beside(*given: Any) -> None:
        monkeypatch.setattr(SparkPlane, "table", delete_beside)
        pack(*given)

    monkeypatch.setattr(auto_compaction, "_pack", pack_beside)
    insert(lake, 1)
    assert len(compactions(lake)) == 1
    [file] = newest(lake).files.adds()
    assert file.deletion_vector is not None
    assert file.deletion_vector.cardinality == 1
