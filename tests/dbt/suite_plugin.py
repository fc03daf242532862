"""dbt's own tests of adapters, on a lake in this process.

A plugin of pytest, loaded after dbt's, some of whose fixtures it overrides. The tests run in dbt's
environment and in a process of their own, which has one Spark session (tests/dbt/test_suite.py).
TXLAKE_TEST_DBT_DSN names another lake, such as a server's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dbt.adapters.txlake import units

from tests.spark_session import spark_session


@pytest.fixture(scope="session", autouse=True)
def _spark() -> None:
    """Start Spark with the tests' small settings, before txlake does."""
    if "TXLAKE_TEST_DBT_DSN" not in os.environ:
        spark_session()


# The tests' own statements and models have types and settings of PostgreSQL.
_WORDS = [
    (r"timestamp without time zone", "timestamp"),
    (r"(?<=[(,])\"(\w+)\"(?=[,)])", r"`\1`"),
    (r"(?<=\s)text(?=\s*(?:[,);]|not null|primary key|$))", "string"),
    (r"('[^']*'|\b[\w.]+|\))::(\w+)", r"cast(\1 as \2)"),
    (r"(?<=as )text(?=\))", "string"),
    (r"set session time zone", "set time zone"),
    (r"(alter table \S+\s+add column \w+ \S+) default null", r"\1"),
    (
        r"alter table (\S+) add column (\w+) (\S+) default ('[^']*')",
        r"alter table \1 add column \2 \3; update \1 set \2 = \4",
    ),
]


def _translated(sql: str) -> str:
    for words, by in _WORDS:
        sql = re.sub(words, by, sql, flags=re.IGNORECASE | re.MULTILINE)
    return sql


@pytest.fixture(scope="session", autouse=True)
def _dialect() -> Iterator[None]:
    """Translate the words of PostgreSQL that the tests have, just before a statement is run."""
    run = units._run

    def translating(con: Any, sql: str, values: Any, *, many: bool) -> Any:
        return run(con, _translated(sql), values, many=many)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "_run", translating)
        yield


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    return os.environ.get("TXLAKE_TEST_DBT_DSN") or str(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Keep dbt's logs out of the checkout."""
    place = str(tmp_path_factory.mktemp("logs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBT_LOG_PATH", place)
        yield place


@pytest.fixture(scope="class")
def dbt_profile_target(warehouse: str) -> dict[str, Any]:
    return {
        "type": "txlake",
        "threads": 4,
        "warehouse": warehouse,
        "unit": os.environ.get("TXLAKE_TEST_DBT_UNIT", "model"),
    }


@pytest.fixture(scope="class")
def profile_user() -> None:
    """A lake has no owners of tables."""


@pytest.fixture(scope="module")
def test_data_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of data of dbt's module that the tests come from, or one to write to."""
    source = getattr(request.module, "SOURCE", None)
    if source is None:
        return tmp_path_factory.mktemp("data") / "made by the test"
    return Path(source.__file__).parent / "data"
