"""Bad input through the lake: a clear error, and nothing written."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import number, query
from tests.lake.unchanged import newest, refused
from txlake.errors import InvalidRequest, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the table `t` lies."""
    return tmp_path / "warehouse" / "t"


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a partitioned table `t` of two rows."""
    lake.sql("CREATE TABLE t (id INT NOT NULL, name STRING, day DATE) PARTITIONED BY (day)")
    lake.sql("INSERT INTO t VALUES (1, 'a', DATE'2026-01-01'), (2, 'b', DATE'2026-01-02')")
    return lake


# Places that are no tables


def test_a_folder_of_other_files_is_not_a_table(lake: txlake.Lake, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "notes.txt").write_text("mine")
    named = f"delta.`{plain}`"
    for text in (
        f"SELECT * FROM {named}",
        f"DELETE FROM {named}",
        f"UPDATE {named} SET id = 1",
        f"INSERT INTO {named} VALUES (1)",
        f"MERGE INTO {named} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"OPTIMIZE {named}",
        f"VACUUM {named}",
        f"RESTORE {named} TO VERSION AS OF 0",
        f"DESCRIBE HISTORY {named}",
        f"DESCRIBE DETAIL {named}",
        f"ALTER TABLE {named} ADD COLUMN x INT",
        f"TRUNCATE TABLE {named}",
        f"SHOW TBLPROPERTIES {named}",
    ):
        with pytest.raises(InvalidRequest, match=r"plain.* not a Delta table.*_delta_log"):
            lake.sql(text)
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        lake.read(str(plain))
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        lake.table(str(plain))
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        txlake.Log(str(plain)).snapshot()
    assert [path.name for path in plain.iterdir()] == ["notes.txt"]


def test_a_name_that_nothing_has(lake: txlake.Lake) -> None:
    for text in ("INSERT INTO nope VALUES (1)", "DELETE FROM nope", "DESCRIBE DETAIL nope"):
        with pytest.raises(InvalidRequest, match=r"no table 'nope' in database 'default'.*SHOW"):
            lake.sql(text)
    with pytest.raises(InvalidRequest, match="nope"):
        lake.sql("SELECT * FROM nope")
    with pytest.raises(InvalidRequest, match="nope"):
        lake.read("db.nope")


# Tables beyond us


def _with_protocol(lake: txlake.Lake, folder: Path, protocol: dict[str, object]) -> str:
    """The name of the table, once it is a path table and another engine wrote that into it."""
    lake.detach("t")
    commit = folder / "_delta_log" / f"{newest(folder) + 1:020}.json"
    commit.write_text(json.dumps({"protocol": protocol}) + "\n")
    return f"delta.`{folder}`"


@pytest.mark.no_interop("the protocol is of a future that no engine knows")
@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({"minReaderVersion": 9, "minWriterVersion": 9}, "9"),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["timeMachine"],
                "writerFeatures": ["timeMachine"],
            },
            "timeMachine",
        ),
    ],
)
def test_a_newer_protocol_is_refused_before_anything_is_read(
    t: txlake.Lake, folder: Path, protocol: dict[str, object], said: str
) -> None:
    place = _with_protocol(t, folder, protocol)
    files = sorted(folder.rglob("*"))
    for text in ("SELECT * FROM {}", "INSERT INTO {} VALUES (3, 'c', NULL)", "DELETE FROM {}"):
        with pytest.raises(UnsupportedFeature, match=said):
            t.sql(text.format(place))
    with pytest.raises(UnsupportedFeature, match=said):
        t.read(str(folder))
    with pytest.raises(UnsupportedFeature, match=said):
        t.write(pa.table({"id": [3]}), str(folder), "append")
    with pytest.raises(UnsupportedFeature, match=said):
        t.attach(str(folder))
    assert sorted(folder.rglob("*")) == files


@pytest.mark.no_interop("a writer feature that no engine knows")
def test_an_unknown_writer_feature_lets_read_and_refuses_to_write(
    t: txlake.Lake, folder: Path
) -> None:
    place = _with_protocol(
        t,
        folder,
        {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["timeMachine", "appendOnly", "invariants"],
        },
    )
    assert number(t, f"SELECT count(*) FROM {place}") == 2
    for text in (
        "INSERT INTO {} VALUES (3, 'c', NULL)",
        "DELETE FROM {} WHERE id = 1",
        "UPDATE {} SET name = 'x'",
        "OPTIMIZE {}",
        "ALTER TABLE {} ADD COLUMN x INT",
        "VACUUM {}",
    ):
        with refused(t, folder, UnsupportedFeature, "timeMachine"):
            t.sql(text.format(place))
    with refused(t, folder, UnsupportedFeature, "timeMachine"):
        t.attach(str(folder))
    assert query(t, "SHOW TABLES") == []


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET name = 'x'",
        "TRUNCATE TABLE t",
        "INSERT OVERWRITE t VALUES (3, 'c', NULL)",
        "INSERT INTO t REPLACE WHERE id = 3 SELECT 3, 'c', NULL",
        "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
)
def test_an_append_only_table_refuses_before_files_are_written(
    t: txlake.Lake, folder: Path, text: str
) -> None:
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with refused(t, folder, InvalidRequest, "delta.appendOnly"):
        t.sql(text)
    t.sql("INSERT INTO t VALUES (3, 'c', NULL)")
    assert number(t, "SELECT count(*) FROM t") == 3


# Columns and values


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INSERT INTO t (id, nope) VALUES (3, 1)", "nope.*id, name, day"),
        ("INSERT INTO t BY NAME SELECT 3 AS id, 1 AS nope", "nope.*id, name, day"),
        ("INSERT INTO t SELECT 3, 'c'", "3 columns.*id, name, day.*2"),
        ("UPDATE t SET nope = 1", "nope.*id, name, day"),
        ("DELETE FROM t WHERE nope = 1", "nope"),
        (
            (
                "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET nope = 1"
            ),
            "nope",
        ),
        ("SELECT nope FROM t", "nope"),
        ("INSERT INTO t VALUES ('three', 'c', NULL)", "column 'id' is integer.*three"),
        ("INSERT INTO t SELECT 'three', 'c', NULL", "column 'id' is integer.*three"),
        ("UPDATE t SET day = 5", "column 'day' is date.*integer"),
        ("INSERT INTO t VALUES (3000000000, 'c', NULL)", "column 'id' is integer.*3000000000"),
        ("INSERT INTO t SELECT 3000000000, 'c', NULL", "column 'id' is integer.*3000000000"),
        ("UPDATE t SET id = id + 3000000000", "column 'id' is integer.*300000000"),
        (
            (
                "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET id = 3000000000"
            ),
            "column 'id' is integer.*3000000000",
        ),
        ("INSERT INTO t VALUES (NULL, 'c', NULL)", "NOT NULL of column 'id'"),
        ("INSERT INTO t SELECT NULL, 'c', NULL", "NOT NULL of column 'id'"),
        ("INSERT INTO t (name) VALUES ('c')", "NOT NULL of column 'id'"),
        ("UPDATE t SET id = NULL WHERE id = 2", "NOT NULL of column 'id'"),
        (
            (
                "MERGE INTO t USING (SELECT 9 AS id) s ON t.id = s.id "
                "WHEN NOT MATCHED THEN INSERT (name) VALUES ('c')"
            ),
            "NOT NULL of column 'id'",
        ),
        ("INSERT INTO t PARTITION (month = 1) SELECT 3, 'c'", "month.*partitioned by day"),
        ("INSERT INTO t PARTITION (name = 'c') SELECT 3, NULL", "name.*partitioned by day"),
        ("INSERT INTO t REPLACE WHERE id = 3 VALUES (3, 'c', NULL), (4, 'd', NULL)", "id = 3.*4"),
        (
            (
                "MERGE INTO t USING (SELECT 1 AS id, 'x' AS name UNION ALL SELECT 1, 'y') s "
                "ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name"
            ),
            "2 source rows match.*",
        ),
    ],
)
def test_statements_that_do_not_fit_the_table(
    t: txlake.Lake, folder: Path, text: str, said: str
) -> None:
    with refused(t, folder, InvalidRequest, "(?s)" + said, orphans=True):
        t.sql(text)


DAY = datetime.date(2026, 1, 3)


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("make", ["pyarrow", "pandas", "polars", "spark"])
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": [3], "nope": [1]}, "nope.*id, name, day.*merge_schema"),
        ({"id": ["three"], "name": ["c"]}, "column 'id' is integer.*three"),
        ({"id": [3], "name": ["c"], "day": [7.5]}, "column 'day' is date.*double"),
        ({"id": [3, 3_000_000_000]}, "column 'id' is integer.*3000000000"),
        ({"id": [Decimal("99999999999.5")]}, "column 'id' is integer.*99999999999.5"),
        ({"name": ["c"], "day": [DAY]}, "NOT NULL of column 'id'"),
    ],
)
def test_rows_that_do_not_fit_the_table(
    t: txlake.Lake,
    spark: SparkSession,
    folder: Path,
    make: str,
    columns: dict[str, list[object]],
    said: str,
) -> None:
    table = pa.table(columns)
    makers: dict[str, Callable[[], object]] = {
        "pyarrow": lambda: table,
        "pandas": lambda: pd.DataFrame(columns),
        "polars": lambda: pl.DataFrame(columns),
        "spark": lambda: spark.createDataFrame(table),
    }
    frame = makers[make]()
    with refused(t, folder, InvalidRequest, said, orphans=make == "spark"):
        t.write(frame, "t", "append")


def test_arguments_of_write_that_do_not_fit(t: txlake.Lake, folder: Path) -> None:
    rows = pa.table({"id": pa.array([3], pa.int32()), "name": ["c"], "day": [DAY]})
    with refused(t, folder, InvalidRequest, "'append'.*'overwrite'.*'ignore'"):
        t.write(rows, "t", "upsert")  # type: ignore[arg-type]
    with refused(t, folder, InvalidRequest, "t exists already.*append"):
        t.write(rows, "t")
    with refused(t, folder, InvalidRequest, "partition_by.*name.*day.*overwrite_schema"):
        t.write(rows, "t", "append", partition_by="name")
    with refused(t, folder, InvalidRequest, "replace_where.*mode='overwrite'"):
        t.write(rows, "t", "append", replace_where="id = 3")
    with refused(t, folder, InvalidRequest, "replace_where id = 4.*3"):
        t.write(rows, "t", "overwrite", replace_where="id = 4")
    with refused(t, folder, InvalidRequest, "nope"):
        t.write(rows, "t", "overwrite", replace_where="nope = 4")
    with refused(t, folder, InvalidRequest, "overwrite_schema.*replace_where"):
        t.write(rows, "t", "overwrite", replace_where="id = 3", overwrite_schema=True)
    with refused(t, folder, InvalidRequest, "app_id and app_version"):
        t.write(rows, "t", "append", app_id="job")
    with refused(t, folder, InvalidRequest, "Spark, pandas, pyarrow or polars.*dict"):
        t.write({"id": [3]}, "t", "append")
    with refused(t, folder, InvalidRequest, "name or place.*7"):
        t.write(rows, 7, "append")  # type: ignore[arg-type]


def test_a_new_table_needs_its_partition_columns(lake: txlake.Lake, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "name": ["a"]})
    with pytest.raises(InvalidRequest, match=r"day.*id, name"):
        lake.write(rows, "fresh", partition_by=["day"])
    with pytest.raises(InvalidRequest, match=r"day.*id, name"):
        lake.sql("CREATE TABLE fresh (id INT, name STRING) PARTITIONED BY (day)")
    with pytest.raises(InvalidRequest, match="all columns are partition"):
        lake.write(rows, "fresh", partition_by=["id", "name"])
    assert query(lake, "SHOW TABLES") == []
    assert not (tmp_path / "warehouse" / "fresh").exists()


def test_two_columns_of_one_name_make_no_table(lake: txlake.Lake) -> None:
    rows = pa.table([[1], [2]], names=["id", "ID"])
    with pytest.raises(InvalidRequest, match=r"(?i)id"):
        lake.write(rows, "fresh")
    with pytest.raises(InvalidRequest, match=r"(?i)id"):
        lake.sql("CREATE TABLE fresh (id INT, ID INT)")
    assert query(lake, "SHOW TABLES") == []


def test_a_type_that_delta_does_not_have(lake: txlake.Lake) -> None:
    rows = pa.table({"wait": pa.array([1], pa.duration("s"))})
    with pytest.raises(InvalidRequest, match=r"column 'wait'.*duration"):
        lake.write(rows, "fresh")
    assert query(lake, "SHOW TABLES") == []


# Versions and times


def test_a_version_that_was_cleaned_up(t: txlake.Lake, folder: Path) -> None:
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for place in range(3, 7):
        t.sql(f"INSERT INTO t VALUES ({place}, 'x', NULL)")
    checkpoint = max(int(p.name[:20]) for p in folder.glob("_delta_log/*.checkpoint*.parquet"))
    for commit in folder.glob("_delta_log/*.json"):
        if commit.stem.isdigit() and int(commit.stem) < checkpoint:
            commit.unlink()
    with txlake.connect(str(folder.parent), spark=t.sql("SELECT 1").sparkSession) as other:
        said = rf"version 0 .*({checkpoint}|earliest)"
        with refused(other, folder, InvalidRequest, said):
            other.read("t", version=0)
        with refused(other, folder, InvalidRequest, said):
            other.sql("SELECT * FROM t VERSION AS OF 0")
        with refused(other, folder, InvalidRequest, said):
            other.sql("RESTORE TABLE t TO VERSION AS OF 0")
        with refused(other, folder, InvalidRequest, said):
            other.sql("CREATE TABLE u SHALLOW CLONE t VERSION AS OF 0")


def test_versions_and_times_that_never_were(t: txlake.Lake, folder: Path) -> None:
    with refused(t, folder, InvalidRequest, "99.*1"):
        t.read("t", version=99)
    with refused(t, folder, InvalidRequest, "-1"):
        t.read("t", version=-1)
    with refused(t, folder, InvalidRequest, "1999.*(earliest|before|oldest|first)"):
        t.read("t", timestamp="1999-12-31")
    with refused(t, folder, InvalidRequest, "1999"):
        t.sql("RESTORE TABLE t TO TIMESTAMP AS OF '1999-12-31'")
    with refused(t, folder, InvalidRequest, "2999"):
        t.read("t", timestamp=datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC))
    with refused(t, folder, InvalidRequest, "version or timestamp"):
        t.read("t", version=1, timestamp="2999-01-01")
    with refused(t, folder, InvalidRequest, "someday.*2026-01-31"):
        t.read("t", timestamp="someday")
    with refused(t, folder, InvalidRequest, "7.*datetime"):
        t.read("t", timestamp=7)  # type: ignore[arg-type]


# Text


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("SELEC 1", 1, 1),
        ("SELECT * FROM t;\nDELETE FRM t", 2, 8),
        ("MERGE INTO t USING s ON t.id = s.id", 1, 36),
        ("UPDATE t SET", 1, 13),
        ("INSERT INTO t VALUES (1,", 1, 22),
        ("CREATE TABLE x (id INTT)", 1, 20),
        ("SELECT 'open", 1, 8),
        ("ALTER TABLE t FROB", 1, 15),
    ],
)
def test_malformed_sql_points_at_the_place(
    t: txlake.Lake, folder: Path, text: str, line: int, column: int
) -> None:
    with refused(t, folder, InvalidRequest, f"line {line}, column {column}"):
        t.sql(text)


def test_nothing_runs_of_several_statements_when_one_is_malformed(
    t: txlake.Lake, folder: Path
) -> None:
    with refused(t, folder, InvalidRequest, "line 1"):
        t.sql("DELETE FROM t; SELEC 1")


def test_a_read_names_columns_that_are_not_there(t: txlake.Lake, folder: Path) -> None:
    with refused(t, folder, InvalidRequest, "nope.*id, name, day"):
        t.read("t", columns=["nope"])
    with refused(t, folder, InvalidRequest, "nope"):
        t.read("t", where="nope = 1")
    with refused(t, folder, InvalidRequest, "line 1"):
        t.read("t", where="id = = 1")
