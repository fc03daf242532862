"""Maintenance that Spark does: clustering, and rewriting of more than the driver takes."""

from __future__ import annotations

import pytest

import txlake
from tests.lake.rows import query

pytestmark = pytest.mark.broad(keep=1)


def test_a_clustered_table_is_clustered_once(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, v BIGINT) CLUSTER BY (id)")
    lake.sql("INSERT INTO t SELECT id, id % 7 FROM range(100000)")
    before = query(lake, "SELECT * FROM t ORDER BY id")
    [due] = lake.maintain(dry_run=True).to_pylist()
    assert (due["need"], due["action"]) == ("cluster", "OPTIMIZE default.t")
    assert due["reason"].endswith("aren't clustered by (id), 100% of the table")
    [done] = lake.maintain().to_pylist()
    assert (done["need"], done["state"]) == ("cluster", "done")
    assert query(lake, "SELECT * FROM t ORDER BY id") == before
    assert lake.maintain().num_rows == 0
    lake.sql("INSERT INTO t VALUES (-1, 0)")  # less than a fifth of the bytes
    assert lake.maintain(dry_run=True).num_rows == 0


def test_a_writer_of_a_clustered_table_is_not_aborted(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, v BIGINT) CLUSTER BY (id)")
    lake.sql("INSERT INTO t SELECT id, id % 7 FROM range(100)")
    with lake.session().transaction() as tx:
        tx.sql("DELETE FROM t WHERE id = 7")
        yielded, due = lake.maintain().to_pylist()
        assert (yielded["state"], due["state"]) == ("yielded", "due")
    [done] = lake.maintain().to_pylist()
    assert done["state"] == "done"
    assert query(lake, "SELECT count(*) FROM t") == [(99,)]


def test_spark_purges_too(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT)")
    lake.sql("INSERT INTO t SELECT id FROM range(1000)")
    lake.sql("DELETE FROM t WHERE id < 300")
    [done] = lake.maintain().to_pylist()
    assert (done["need"], done["state"], done["rows"]) == ("purge", "done", 300)
    assert query(lake, "SELECT count(*) FROM t") == [(700,)]
