"""How sessions, lakes and transactions end, and what they refuse from then on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlake
from txlake.errors import InvalidRequest, OutcomeUnknown
from txlake.transaction.table_transaction import TableTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


def test_close_rolls_back_and_leaves_spark_running(tmp_path: Path, spark: SparkSession) -> None:
    lake = txlake.connect(str(tmp_path / "warehouse"), spark=spark)
    lake.write(ROWS, "t")
    lake.sql("BEGIN; DELETE FROM t")
    lake.close()
    assert spark.range(2).count() == 2
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as again:
        assert again.read("t").count() == 2


def test_who_is_closed_begins_nothing(tmp_path: Path, spark: SparkSession) -> None:
    lake = txlake.connect(str(tmp_path / "warehouse"), spark=spark)
    lake.write(ROWS, "t")
    session, other = lake.session(), lake.session()
    session.close()
    with pytest.raises(InvalidRequest, match=r"the session is closed; open another with lake\.s"):
        session.sql("SELECT * FROM t")
    assert other.read("t").count() == 2
    lake.close()
    for ask in (lake.begin, lambda: lake.write(ROWS, "t"), lambda: other.sql("BEGIN")):
        with pytest.raises(InvalidRequest, match=r"the lake is closed; open another with txlake\."):
            ask()


def test_a_commit_that_may_have_happened_is_neither_committed_nor_rolled_back(
    lake: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(ROWS, "t")

    def lost(*_: object, **__: object) -> None:
        raise OutcomeUnknown("no reply")

    tx = lake.begin()
    tx.sql("DELETE FROM t")
    monkeypatch.setattr(TableTransaction, "commit", lost)
    with pytest.raises(OutcomeUnknown):
        tx.commit()
    assert tx.state == "unknown"
    tx.rollback()
    assert tx.state == "unknown"
    with pytest.raises(InvalidRequest, match="is unknown; look"):
        tx.sql("DELETE FROM t")
