"""What a lake lists: conflicts that were met, open transactions, locks."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import rows
from txlake.errors import Conflict, InvalidRequest

pytestmark = pytest.mark.broad(keep=2)

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


def test_conflicts_are_listed(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT)")
    lake.sql("INSERT INTO t VALUES (1)")
    assert lake.conflicts().collect() == []
    tx = lake.begin()
    tx.sql("UPDATE t SET id = 2 WHERE id = 1")
    lake.sql("UPDATE t SET id = 3 WHERE id = 1")
    with pytest.raises(Conflict) as raised:
        tx.commit()
    evidence = raised.value.evidence
    assert evidence is not None
    with lake.session() as session:
        [row] = session.conflicts().collect()
    assert row.transaction_id == tx.id
    assert (row.error, row.message) == (type(raised.value).__name__, str(raised.value))
    for name in (
        "table", "read_version", "winning_version", "winning_operation", "winning_user", "rule",
        "predicate", "isolation", "retry", "advice",
    ):  # fmt: skip
        assert row[name] == getattr(evidence, name), name
    assert tuple(row.files) == evidence.files
    [file] = evidence.files
    assert [json.loads(one) for one in row.rows] == [{"file": file, "count": 1, "positions": [0]}]
    assert row.winning_time is not None
    assert row.time >= row.winning_time


def open_transactions(lake: txlake.LakeSession) -> list[str]:
    """Their ids, the oldest first."""
    return [row.transaction_id for row in lake.transactions().collect()]


def test_open_transactions_are_listed(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    assert open_transactions(lake) == []
    one = lake.begin(isolation="snapshot", read_only=True)
    lake.sql("BEGIN; DELETE FROM t")
    with lake.session() as session:
        first, second = session.transactions().collect()
        numbers = session.sql("SELECT transaction_id FROM sys.dm_tran_active_transactions")
        assert rows(numbers) == [(first.number,), (second.number,)]
    assert (first.transaction_id, first.isolation, first.read_only) == (one.id, "snapshot", True)
    assert (second.state, second.isolation, second.read_only) == ("active", None, False)
    assert (first.sequence, second.sequence) == (None, 1)
    assert first.transaction_begin_time <= second.transaction_begin_time
    one.rollback()
    lake.sql("COMMIT")
    assert open_transactions(lake) == []


def test_who_is_forgotten_ends(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    abandoned = lake.begin()
    abandoned.sql("DELETE FROM t")
    assert open_transactions(lake) == [abandoned.id]
    del abandoned
    gc.collect()
    assert open_transactions(lake) == []
    assert lake.locks().collect() == []
    lake.sql("DROP TABLE t")  # nobody is waited for


def test_a_session_that_is_forgotten_ends(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE d")
    forgotten = lake.session()
    forgotten.sql("USE d")
    tx = forgotten.begin()
    del forgotten
    gc.collect()
    with pytest.raises(InvalidRequest, match="other sessions use database 'd'"):
        lake.sql("DROP DATABASE d")
    tx.rollback()
    del tx
    gc.collect()
    lake.sql("DROP DATABASE d")


def test_locks_are_listed(lake: txlake.Lake, tmp_path: Path) -> None:
    lake.write(ROWS, "t")
    lake.write(ROWS, str(tmp_path / "place"))
    lake.sql(f"BEGIN; DELETE FROM delta.`{tmp_path / 'place'}`")
    assert lake.locks().collect() == []  # there are none on path tables
    lake.sql("ROLLBACK; BEGIN; DELETE FROM t")
    columns = ("resource_type", "request_mode", "request_status")
    assert rows(lake.locks().select(*columns)) == [
        ("DATABASE", "S", "GRANT"),
        ("OBJECT", "IX", "GRANT"),
    ]
    lake.sql("ROLLBACK")
    assert lake.locks().collect() == []
