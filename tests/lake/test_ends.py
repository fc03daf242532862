"""How sessions, lakes and transactions end, and what they refuse from then on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlake
import txlake.session.transaction
from txlake.catalog.database import Database
from txlake.commit.table_transaction import TableTransaction
from txlake.errors import InvalidRequest, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

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


@pytest.mark.parametrize("closed", ["session", "lake"])
def test_what_a_closed_one_had_open_is_rolled_back(
    tmp_path: Path, spark: SparkSession, closed: str
) -> None:
    lake = txlake.connect(str(tmp_path / "warehouse"), spark=spark)
    lake.write(ROWS, "t")
    lake.write(ROWS, str(tmp_path / "place"))
    session = lake.session()
    begun = [session.begin(), session.begin()]
    begun[0].sql("DELETE FROM t")
    begun[1].sql(f"DELETE FROM delta.`{tmp_path / 'place'}`")
    session.sql("BEGIN; DELETE FROM t")
    (session if closed == "session" else lake).close()
    said = "rolled back; begin" if closed == "session" else "the lake is closed; open another"
    for tx in begun:
        with pytest.raises(InvalidRequest, match=said):
            tx.sql("SELECT * FROM t")
        with pytest.raises(InvalidRequest, match=said):
            tx.commit()
        tx.rollback()
        assert tx.state == "rolled back"
    with pytest.raises(InvalidRequest, match=r"(lake|session) is closed|no transaction is open"):
        session.sql("COMMIT")
    session.close()
    session.close()
    lake.close()
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as again:
        assert again.transactions().count() == 0
        assert again.locks().count() == 0
        assert again.read("t").count() == 2
        assert again.read(str(tmp_path / "place")).count() == 2


def heartbeats() -> int:
    """How many threads renew leases."""
    return [thread.name for thread in threading.enumerate()].count("txlake-heartbeat")


def test_lakes_that_share_a_catalog_in_memory_end_apart(spark: SparkSession) -> None:
    beating = heartbeats()
    one, other = (txlake.connect("memory://ends-apart", spark=spark) for _ in range(2))
    one.write(ROWS, "t")
    tx, gone = other.begin(), one.session().begin()
    for each in (tx, gone):
        each.sql("DELETE FROM t WHERE id = 1")
    one.close()
    assert [row.transaction_id for row in other.transactions().collect()] == [tx.id]
    assert other.locks().count() == 2
    tx.commit()
    other.close()
    with txlake.connect("memory://ends-apart", spark=spark) as again:
        assert again.read("t").count() == 1
        again.begin()
        assert heartbeats() == beating + 1


def test_a_session_ends_though_its_catalog_cannot_be_reached(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(self: Database, work: object) -> None:
        raise Unavailable("catalog: it rains")

    lake = txlake.connect(str(tmp_path / "warehouse"), spark=spark)
    lake.write(ROWS, "t")
    tx = lake.begin()
    tx.sql("DELETE FROM t")
    with monkeypatch.context() as patched:
        patched.setattr(Database, "write_relaxed", refuse)
        patched.setattr(Database, "write", refuse)
        with pytest.raises(Unavailable, match="it rains"):
            tx.commit()
        assert tx.state == "rolled back"
        lake.close()
    assert "ends when its lease does" in caplog.text
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as again:
        assert again.read("t").count() == 2


@pytest.mark.parametrize("place", [False, True])
def test_a_killed_transaction_commits_nothing(
    lake: txlake.Lake, tmp_path: Path, place: bool
) -> None:
    table = str(tmp_path / "place") if place else "t"
    lake.write(ROWS, table)
    tx = lake.begin()
    tx.write(ROWS, table, mode="append")
    catalog = lake._session.engine.catalog.of_lake()
    assert catalog.transactions.kill(tx.id)
    with pytest.raises(Unavailable, match=f"transaction {tx.id} was killed by somebody else"):
        tx.commit()
    assert tx.state == "rolled back"
    assert lake.read(table).count() == 2
    assert lake.transactions().count() == 0


@pytest.mark.parametrize("place", [False, True])
def test_a_commit_that_may_have_happened_is_neither_committed_nor_rolled_back(
    lake: txlake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: bool
) -> None:
    table = str(tmp_path / "place") if place else "t"
    lake.write(ROWS, table)

    def lost(*_: object, **__: object) -> None:
        raise OutcomeUnknown("no reply")

    tx = lake.begin()
    tx.table(table).delete()
    if place:
        monkeypatch.setattr(TableTransaction, "commit", lost)
    else:
        monkeypatch.setattr(txlake.session.transaction, "commit_together", lost)
    with pytest.raises(OutcomeUnknown):
        tx.commit()
    assert tx.state == "unknown"
    tx.rollback()
    assert tx.state == "unknown"
    with pytest.raises(InvalidRequest, match="is unknown; look"):
        tx.table(table).delete()
