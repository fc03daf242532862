"""Columns can be made only when Spark runs: what sorts rows starts it before that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext

from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest
from txlake.lake.connecting import session_on
from txlake.lake.lake import LakeSession
from txlake.session.command import AsRows
from txlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refused() -> SparkSession:
    raise InvalidRequest("Spark would be started now")


@pytest.mark.parametrize("target_file_bytes", [1, Settings().target_file_bytes])
@pytest.mark.parametrize("statement", ["OPTIMIZE t ZORDER BY (id)", "OPTIMIZE c"])
def test_a_sort_starts_spark_first(
    statement: str, target_file_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # another test's may run
    session = session_on(
        str(tmp_path / "warehouse"),
        handlers=HANDLERS,
        make_spark=refused,
        settings=Settings(target_file_bytes=target_file_bytes),
    )
    try:
        lake = LakeSession(session)
        for text in (
            "CREATE TABLE t (id INT); CREATE TABLE c (id INT) CLUSTER BY (id)",
            "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)",
            "INSERT INTO c VALUES (1); INSERT INTO c VALUES (2)",
        ):
            lake._run_sql(text, None, AsRows())
        with pytest.raises(InvalidRequest, match="Spark would be started now"):
            lake._run_sql(statement, None, AsRows())
    finally:
        session.close()
        session.engine.close()
