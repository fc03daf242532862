"""No name of a database or a table leads out of the warehouse, however it is quoted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Those that are refused; of the others some may be a folder's name and some not.
LEADING_OUT = (
    "..",
    ".",
    "../x",
    "a/../../x",
    "/etc",
    "/",
    "a/b",
    "..\\x",
    "a\0b",
    "file:///etc/x",
    "s3://b/x",
    "x.db",
    "_txlake",
    "_TxLake",
    "_delta_log",
)
ODD = (".hidden", "a\nb", "%2e%2e", "..x", "a b", "~", "\ud800", "x" * 300, "'; DROP TABLE t; --")


def _files(folder: Path) -> set[str]:
    return {
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, folders, names in os.walk(folder)
        for name in (*folders, *names)
        if "catalog.db" not in name
    }


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _refused(lake: txlake.Lake, text: str) -> bool:
    try:
        lake.sql(text)
    except InvalidRequest:
        return True
    return False


@pytest.mark.no_interop("delta-rs can't open every one of these names")
def test_no_name_leads_out_of_the_warehouse(tmp_path: Path, spark: SparkSession) -> None:
    outer = tmp_path / "outer"
    with txlake.connect(str(outer / "warehouse"), spark=spark) as lake:
        lake.sql("CREATE TABLE t (id INT)")
        catalog = _files(outer / "warehouse" / "_txlake")
        for name in (*LEADING_OUT, *ODD):
            statements = (
                f"CREATE TABLE {_quoted(name)} (id INT)",
                f"CREATE TABLE {_quoted(name)}.t (id INT)",
                f"CREATE DATABASE {_quoted(name)}",
                f"CREATE TABLE {_quoted(name)} SHALLOW CLONE t",
                f"DROP TABLE {_quoted(name)}",
            )
            refused = [_refused(lake, text) for text in statements]
            if name in LEADING_OUT and not name.endswith("db"):
                assert all(refused), name
            if name in LEADING_OUT:
                assert refused[0], name
        assert lake.read("t").count() == 0
    assert {item.name for item in outer.iterdir()} == {"warehouse"}
    assert _files(outer / "warehouse" / "_txlake") == catalog
    assert {item.name for item in tmp_path.iterdir()} == {"outer"}


def test_a_renamed_table_stays_where_it_is(tmp_path: Path, spark: SparkSession) -> None:
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        lake.sql("CREATE TABLE t (id INT); ALTER TABLE t RENAME TO `../x`")
        [found] = lake.sql("DESCRIBE DETAIL `../x`").collect()
        assert found.location.endswith("/warehouse/t")
        lake.sql("DROP TABLE `../x`")
    assert {item.name for item in tmp_path.iterdir()} == {"warehouse"}
