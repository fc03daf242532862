"""The compliance suite of Python's database API, by others, unchanged but for its connection."""

from __future__ import annotations

import importlib.util
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import txlake
import txlake.dbapi
from tests.dbapi.served import TOKEN, Served
from tests.peers import need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUITE = Path(__file__).parents[2] / ".cache" / "dbapi-compliance" / "dbapi20.py"
LEFT_OUT = {
    "test_nextset": "the suite asks drivers to write it; a statement has one result",
    "test_setoutputsize": "the suite asks drivers to write it; values are fetched whole",
    "test_non_idempotent_close": "closing again does nothing, as in sqlite3 and psycopg",
}
"""Each test of the suite that isn't run, and why."""


@pytest.mark.peer("dbapi20")
@pytest.mark.parametrize("door", ["in process", "over http"])
def test_the_driver_complies(door: str, spark: SparkSession, tmp_path: Path) -> None:
    need("dbapi20", found=SUITE.exists())
    spec = importlib.util.spec_from_file_location("dbapi20", SUITE)
    assert spec is not None
    assert spec.loader is not None
    dbapi20 = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dbapi20)

    class Compliance(dbapi20.DatabaseAPI20Test):  # type: ignore[name-defined, misc]
        driver = txlake.dbapi

        def setUp(self) -> None:
            place = str(tmp_path / self._testMethodName)
            self.connect_args = (place,)
            if door == "over http":
                lake = self.enterContext(txlake.connect(place, spark=spark))
                served = Served(lake)
                self.enterContext(served.client)
                served.start()
                self.addCleanup(served.stop)
                self.connect_args, self.connect_kw_args = (served.dsn,), {"token": TOKEN}

    names = set(unittest.defaultTestLoader.getTestCaseNames(Compliance))
    assert LEFT_OUT.keys() <= names
    chosen = sorted(names - LEFT_OUT.keys())
    result: Any = unittest.TestResult()
    unittest.TestSuite(map(Compliance, chosen)).run(result)
    assert [text for _, text in [*result.errors, *result.failures]] == []
    assert result.testsRun == len(chosen) >= 30
