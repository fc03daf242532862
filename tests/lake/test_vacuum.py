"""VACUUM of a lake's table, beside transactions that are open."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import number, query
from txlake.commit.staging import tag_of, tags_in
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=2)

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
VACUUM = "VACUUM t RETAIN 0 HOURS"


@pytest.fixture
def t(lake: txlake.Lake, spark: SparkSession) -> Iterator[txlake.Lake]:
    """A lake with a table of two files; VACUUM may remove what was just written."""
    for first in (1, 3):
        lake.write(pa.table({"id": [first, first + 1]}), "t", mode="append")
    spark.conf.set(CHECK, "false")
    yield lake
    spark.conf.unset(CHECK)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the table is."""
    return tmp_path / "warehouse" / "t"


def files(folder: Path) -> set[Path]:
    """The data files of the table, whoever has them."""
    return set(folder.rglob("*.parquet"))


def staged(folder: Path) -> set[Path]:
    """Data files and deletion vectors below a folder."""
    return files(folder) | set(folder.rglob("deletion_vector_*.bin"))


def made_old(*paths: Path) -> None:
    """Lets files be of long ago."""
    for path in paths:
        os.utime(path, (1_000_000_000, 1_000_000_000))


# PySpark warns of every error of toPandas before it raises it.
@pytest.mark.filterwarnings("ignore:toPandas attempted Arrow optimization:UserWarning")
@pytest.mark.broad(keep=1)
def test_a_version_whose_files_are_gone_says_so(t: txlake.Lake) -> None:
    """Also in the action of a DataFrame that was made before."""
    early = t.read("t", version=1)
    t.sql("UPDATE t SET id = id + 10")
    t.sql(VACUUM)
    early.sparkSession.newSession()  # PySpark translates py4j's errors anew
    said = (
        r"^default\.t: version 1 can't be read any more: data file '\S+', which version 2 "
        r"replaced, is gone: VACUUM removed it at \S+ \S+ UTC\. Versions from 2 on can be read$"
    )
    reads: list[Callable[[], object]] = [
        early.collect,
        lambda: early.where("id = 1").count(),
        lambda: t.read("t", version=1).toPandas(),
        lambda: query(t, "SELECT sum(id) FROM t VERSION AS OF 1"),
        lambda: t.sql("INSERT INTO t SELECT id FROM t VERSION AS OF 1"),
    ]
    for read in reads:
        with pytest.raises(InvalidRequest, match=said):
            read()
    assert number(t, "SELECT sum(id) FROM t VERSION AS OF 2") == 50


def test_what_open_transactions_have_and_read_stays(t: txlake.Lake, folder: Path) -> None:
    first = files(folder)
    made_old(*first)
    reader, writer = t.begin(), t.begin()
    assert number(reader, "SELECT sum(id) FROM t") == 10
    writer.sql("INSERT INTO t VALUES (7); UPDATE t SET id = 70 WHERE id = 7")
    t.sql("DELETE FROM t WHERE id < 3; OPTIMIZE t")
    orphan = folder / "left-behind.parquet"
    orphan.touch()
    made_old(orphan)
    assert query(t, f"{VACUUM} DRY RUN") == [(orphan.as_uri(),)]
    t.sql(VACUUM)
    assert first < files(folder)
    assert orphan not in files(folder)
    assert number(reader, "SELECT sum(id) FROM t") == 10
    reader.commit()
    writer.commit()
    assert query(t, "SELECT * FROM t") == [(3,), (4,), (70,)]
    t.sql(VACUUM)
    assert len(first & files(folder)) == 1  # what nobody changed
    assert query(t, "SELECT * FROM t") == [(3,), (4,), (70,)]
    told = [row.operation for row in t.table("t").history(2).collect()]
    assert told == ["VACUUM END", "VACUUM START"]
    assert t.transactions().count() == 0


STAGING = (
    "INSERT INTO t VALUES (7)",
    "INSERT INTO t SELECT id + 100 FROM range(10)",
    "UPDATE t SET id = 10 WHERE id = 1",
    "DELETE FROM t WHERE id = 3",
    "MERGE INTO t USING (SELECT 4 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 40",
    "REORG TABLE t APPLY (PURGE)",
    "OPTIMIZE t ZORDER BY (id)",
    "INSERT OVERWRITE p SELECT id, 'a b' FROM t WHERE id < 100",
    "UPDATE p SET id = id + 1 WHERE id = 10",
    "CREATE TABLE made AS SELECT * FROM t",
    "CREATE TABLE copied CLONE p",
)


def test_what_a_transaction_stages_has_its_name_and_stays_whatever_the_clocks_say(
    t: txlake.Lake, folder: Path, tmp_path: Path
) -> None:
    t.sql(
        "CREATE TABLE p (id BIGINT, s STRING) PARTITIONED BY (s) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
    )
    warehouse = folder.parent
    before = staged(warehouse)
    tx = t.begin()
    for statement in STAGING:
        known = staged(warehouse)
        tx.sql(statement)
        made = staged(warehouse) - known
        assert made, statement
        for path in made:
            assert tag_of(tx.id) in tags_in(path.relative_to(warehouse).as_posix()), statement
    # As if the clock had gone back since: files of now are older than their transaction.
    with closing(sqlite3.connect(warehouse / "_txlake" / "catalog.db")) as catalog, catalog:
        catalog.execute("UPDATE txlake_transactions SET begin_ms = begin_ms + 36000000")
    mine = staged(warehouse) - before
    t.sql(f"{VACUUM}; VACUUM p RETAIN 0 HOURS")
    assert mine <= staged(warehouse)
    tx.rollback()
    t.sql(f"{VACUUM}; VACUUM p RETAIN 0 HOURS")
    assert all("made" in path.parts or "copied" in path.parts for path in mine & staged(warehouse))


def test_a_united_deletion_vector_has_its_transactions_name(t: txlake.Lake, folder: Path) -> None:
    t.write(pa.table({"id": [5, 6, 7]}), "t", mode="append")
    tx = t.begin()
    tx.sql("DELETE FROM t WHERE id = 5")
    known = staged(folder)
    t.sql("DELETE FROM t WHERE id = 6")
    theirs = staged(folder) - known
    tx.commit()
    [united] = staged(folder) - known - theirs
    assert tags_in(united.name) == {tag_of(tx.id)}
    assert query(t, "SELECT * FROM t") == [(1,), (2,), (3,), (4,), (7,)]


def test_what_an_open_transaction_has_in_a_path_table_stays(t: txlake.Lake, tmp_path: Path) -> None:
    place, rows = tmp_path / "place", pa.table({"id": [1]})
    t.write(rows, str(place))
    tx = t.begin()
    tx.write(rows, str(place), mode="append")
    t.sql(f"VACUUM delta.`{place}` RETAIN 0 HOURS")
    tx.commit()
    assert query(t, f"SELECT * FROM delta.`{place}`") == [(1,), (1,)]
    t.sql(f"VACUUM delta.`{place}` RETAIN 0 HOURS")
    assert len(files(place)) == 2


def test_files_of_a_killed_transaction_go(t: txlake.Lake, folder: Path) -> None:
    kept = files(folder)
    tx = t.begin()
    tx.sql("INSERT INTO t VALUES (7)")
    t.sql(VACUUM)
    assert kept < files(folder)
    catalog = t._session.engine.catalog.of_lake()
    catalog.transactions.kill(tx.id)
    t.sql(VACUUM)
    assert files(folder) == kept
    with pytest.raises(txlake.errors.Unavailable, match="killed"):
        tx.commit()


def test_a_restore_waits_until_the_vacuum_is_over(t: txlake.Lake) -> None:
    tx = t.begin()
    tx.sql("RESTORE TABLE t TO VERSION AS OF 0")  # its files may be those that VACUUM removes
    with t.session() as other:
        other.sql("SET LOCK_TIMEOUT 0")
        with pytest.raises(txlake.errors.LockTimeout, match="1222"):
            other.sql(VACUUM)
    tx.commit()
    t.sql(VACUUM)
    assert query(t, "SELECT * FROM t") == [(1,), (2,)]
