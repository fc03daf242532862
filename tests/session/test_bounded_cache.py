"""Caches of one process are bounded, and take nothing away from who uses it."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from tests.session.offline import Offline
from txlake.lake.tables import session_lookup
from txlake.session.bounded_cache import BoundedCache
from txlake.session.engine import Engine
from txlake.settings import Settings
from txlake.sql.statements import TableName
from txlake.system import System


class Thing:
    """Something that can be held."""


def test_those_used_last_are_kept() -> None:
    recent: BoundedCache[int, Thing] = BoundedCache(2)
    for key in (1, 2):
        recent.put(key, Thing())
    assert recent.get(1) is not None
    recent.put(3, Thing())
    gc.collect()
    assert [recent.get(key) is not None for key in (1, 2, 3)] == [True, False, True]


def test_what_is_held_is_found_whatever_its_age() -> None:
    recent: BoundedCache[int, Thing] = BoundedCache(1)
    held = Thing()
    recent.put(1, held)
    recent.put(2, Thing())
    assert recent.get(1) is held
    recent.pop(1)
    assert recent.get(1) is None
    recent.pop(1)


def test_a_lake_keeps_few_logs_and_a_transaction_its_own() -> None:
    lake = Offline()
    engine = Engine(
        system=lake.engine.system,
        settings=Settings(tables_cached=2),
        plane=lake.engine.plane,
        warehouse=lake.engine.warehouse,
        catalog=lake.catalog,
        open_store=lake.engine.open_store,
    )
    for number in range(5):
        lake.run(f"CREATE TABLE t{number} (id INT)")

    def find(number: int) -> object:
        found = engine.find(TableName((f"t{number}",)), "default")
        assert found is not None
        return found.log

    used = find(0)
    for number in range(1, 5):
        find(number)
    gc.collect()
    assert len(engine._logs._kept) == 2
    assert len(engine._logs._alive) == 3
    assert find(0) is used


def test_a_table_that_is_gone_leaves_nothing() -> None:
    lake = Offline()
    lake.run("CREATE TABLE t (id INT)")
    handle = lake.engine.find(TableName(("t",)), "default")
    assert handle is not None
    lake.engine.share(handle, ["memory://other"])
    assert handle.store.url in lake.engine._shared
    lake.run("DROP TABLE t")
    assert lake.engine._shared == {}
    assert handle.key not in lake.engine._logs._alive


def test_only_what_is_shared_is_remembered() -> None:
    lake = Offline()
    lake.run("CREATE TABLE t (id INT)")
    handle = lake.engine.find(TableName(("t",)), "default")
    assert handle is not None
    assert list(lake.engine.reach(handle).allowed())
    assert lake.engine._shared == {}


def test_engines_of_places_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_lookup, "_path_engines", [])
    context = SimpleNamespace(master="yarn", pythonExec="python3")
    spark = cast(SparkSession, SimpleNamespace(sparkContext=context))
    first = session_lookup.path_session(spark, {"token": "0"}).engine
    for number in range(1, 40):
        session_lookup.path_session(spark, {"token": str(number)})
        assert session_lookup.path_session(spark, {"token": "0"}).engine is first
    assert len(session_lookup._path_engines) == 16
    first._shared["memory://clone"] = ("memory://source",)
    for number in range(40, 80):
        session_lookup.path_session(spark, {"token": str(number)})
    assert len(session_lookup._path_engines) == 17
    assert session_lookup.path_session(spark, {"token": "0"}).engine is first
    assert isinstance(first.system, System)


def test_a_session_that_ended_leaves_nothing() -> None:
    lake = Offline()
    lake.run("CREATE DATABASE d; USE d; USE default")
    assert len(lake.catalog.locks._granted) == 1
    lake.session.close()
    assert lake.catalog.locks._granted == {}
