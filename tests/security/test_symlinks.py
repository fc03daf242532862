"""What symbolic links in a local table's folder lead to isn't the table's: it is never deleted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake
from tests.lake.rows import query
from txlake.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _elsewhere(folder: Path) -> Path:
    """A file of somebody else's, old enough for VACUUM."""
    folder.mkdir()
    file = folder / "precious.parquet"
    file.write_text("precious")
    os.utime(file, (1, 1))
    return file


def test_a_store_deletes_nothing_behind_a_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = _elsewhere(tmp_path / "elsewhere")
    (tmp_path / "t" / "own").mkdir(parents=True)
    (tmp_path / "t" / "own" / "x").write_text("")
    (tmp_path / "t" / "link").symlink_to(file.parent)
    (tmp_path / "t" / "inner").symlink_to(tmp_path / "t" / "own")
    (tmp_path / "t" / "file").symlink_to(file)
    store = open_store(tmp_path / "t")
    store.delete(["link/precious.parquet", "link/none", "file", "inner/x"])
    assert file.read_text() == "precious"
    assert "link/precious.parquet isn't deleted: a symbolic link leads out" in caplog.text
    assert not (tmp_path / "t" / "file").is_symlink()  # the link itself is the table's
    assert not (tmp_path / "t" / "own" / "x").exists()


def test_a_store_below_a_link_deletes_its_own(tmp_path: Path) -> None:
    file = _elsewhere(tmp_path / "elsewhere")
    (tmp_path / "t").symlink_to(file.parent)
    open_store(tmp_path / "t").delete([file.name])
    assert not file.exists()


def test_neither_vacuum_nor_drop_deletes_behind_a_link(tmp_path: Path, spark: SparkSession) -> None:
    file = _elsewhere(tmp_path / "elsewhere")
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        lake.sql("CREATE TABLE t AS SELECT id FROM range(3)")
        orphan = tmp_path / "warehouse" / "t" / "orphan.parquet"
        orphan.write_text("")
        os.utime(orphan, (1, 1))
        (tmp_path / "warehouse" / "t" / "link").symlink_to(file.parent)
        lake.sql("VACUUM t")
        assert not orphan.exists()
        assert file.exists()
        assert query(lake, "SELECT count(*) FROM t") == [(3,)]
        lake.sql("DROP TABLE t PURGE")
        assert file.exists()


def test_a_table_whose_folder_is_a_link_keeps_what_the_link_leads_to(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Rows are removed, as from any table; files of a folder that isn't the lake's never are."""
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        lake.sql("CREATE TABLE t AS SELECT id FROM range(3)")
        folder, there = tmp_path / "warehouse" / "t", tmp_path / "elsewhere"
        folder.rename(there)
        folder.symlink_to(there)
        before = {file for file in there.rglob("*") if file.is_file()}
        lake.sql("TRUNCATE TABLE t")
        lake.sql("CREATE OR REPLACE TABLE t AS SELECT id FROM range(2)")
        lake.sql("VACUUM t")
        with pytest.raises(txlake.errors.InvalidRequest, match="without a symbolic link"):
            lake.sql("DROP TABLE t")
        assert before <= {file for file in there.rglob("*") if file.is_file()}
        assert query(lake, "SELECT count(*) FROM t") == [(2,)]
