"""By the settings of a session a text means to txlake what it means to Spark, or is refused."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake
from tests.spark.session_settings import settings_made
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=12)

_SQL = "spark.sql."


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[txlake.Lake]:
    """A lake in a session of its own, which isn't the active one."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    with txlake.connect(str(tmp_path / "lake"), spark=own) as lake:
        yield lake


def _made(lake: txlake.Lake, key: str, value: str) -> AbstractContextManager[None]:
    return settings_made(lake.sql("SELECT 1").sparkSession, {f"{_SQL}{key}": value})


def test_a_backslash_is_that_sign_where_literals_stay_escaped(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, s STRING)")
    with _made(lake, "parser.escapedStringLiterals", "true"):
        lake.sql(r"INSERT INTO t VALUES (1, 'a\nb'), (2, 'c')")
        assert lake.sql("SELECT length(s) FROM t WHERE id = 1").collect()[0][0] == 4
        assert lake.sql(r"SELECT id FROM t WHERE s = 'a\nb'").collect() == [(1,)]
        assert lake.read("t", where=r"s = 'a\nb'").select("id").collect() == [(1,)]
        text = "it's a \\ ${env:HOME}"
        lake.sql("UPDATE t SET s = :text WHERE s = :old", {"text": text, "old": "a\\nb"})
        assert lake.sql("SELECT s FROM t WHERE id = 1").collect() == [(text,)]
        lake.sql("DELETE FROM t WHERE s = ?", [text])
        assert lake.sql("SELECT id FROM t").collect() == [(2,)]


def test_a_parameter_is_never_substituted(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (s STRING, p STRING) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t PARTITION (p = :p) VALUES (:s)", {"s": "${env:HOME}", "p": "${x}"})
    assert lake.sql("SELECT * FROM t").collect() == [("${env:HOME}", "${x}")]
    assert lake.sql("SELECT ? AS s", ["${env:HOME}"]).collect() == [("${env:HOME}",)]
    assert lake.sql("SELECT 1 FROM t WHERE s = ?", ["${env:HOME}"]).collect() == [(1,)]


def test_timestamp_names_the_type_that_the_session_says(lake: txlake.Lake) -> None:
    with _made(lake, "timestampType", "TIMESTAMP_NTZ"):
        lake.sql(
            "CREATE TABLE t (a TIMESTAMP, b TIMESTAMP_LTZ, c STRUCT<timestamp: TIMESTAMP>, "
            "p TIMESTAMP) PARTITIONED BY (p)"
        )
        lake.sql("ALTER TABLE t ADD COLUMN d ARRAY<TIMESTAMP>")
        with pytest.raises(InvalidRequest, match=r"timestampType=TIMESTAMP_NTZ of this session"):
            lake.sql("INSERT INTO t PARTITION (p = TIMESTAMP'2020-01-01') (a) VALUES (NULL)")
        lake.sql("INSERT INTO t (a) VALUES (TIMESTAMP'2020-01-01 12:00:00')")
        lake.sql("UPDATE t SET p = CAST(a AS TIMESTAMP)")
    shown = lake.read("t").schema.simpleString()
    assert shown == (
        "struct<a:timestamp_ntz,b:timestamp,c:struct<timestamp:timestamp_ntz>,"
        "p:timestamp_ntz,d:array<timestamp_ntz>>"
    )
    noon = datetime.datetime(2020, 1, 1, 12)  # noqa: DTZ001 - a wall clock's
    assert lake.sql("SELECT a, p FROM t").collect() == [(noon, noon)]


def test_double_quotes_may_be_those_of_names(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (zz STRING, v INT)")
    with _made(lake, "ansi.doubleQuotedIdentifiers", "true"):
        lake.sql("""INSERT INTO "t" VALUES ('x"y', 1)""")
        lake.sql("""UPDATE "t" SET "v" = "v" + 1 WHERE "zz" = 'x"y'""")
        assert lake.sql('SELECT "zz" FROM "t" WHERE "v" = 2').collect() == [('x"y',)]
        with pytest.raises(Exception, match="zz"):
            lake.sql('INSERT INTO t VALUES ("zz", 1)').collect()
        with pytest.raises(InvalidRequest, match="expected"):
            lake.sql('COMMENT ON TABLE t IS "zz"')


@pytest.mark.parametrize("policy", ["STRICT", "LEGACY"])
def test_a_policy_that_loses_nothing_is_held(lake: txlake.Lake, policy: str) -> None:
    lake.sql("CREATE TABLE t (id INT, b BIGINT)")
    lake.sql("INSERT INTO t VALUES (1, 1)")
    with _made(lake, "storeAssignmentPolicy", policy):
        lake.sql("INSERT INTO t SELECT 2, 2")
        lake.sql("UPDATE t SET b = id + 1")
        refused = f"storeAssignmentPolicy={policy} .*cast the value"
        for text in (
            "INSERT INTO t VALUES (3000000000, 1)",
            "INSERT INTO t SELECT b, b FROM t",
            "INSERT INTO t VALUES (1, '1')",
            "UPDATE t SET id = b",
            (
                "MERGE INTO t USING (SELECT 1 AS k, 5L AS n) s ON id = k "
                "WHEN MATCHED THEN UPDATE SET id = n"
            ),
            (
                "MERGE INTO t USING (SELECT 9L AS id, 5 AS b) s ON t.b = s.b "
                "WHEN NOT MATCHED THEN INSERT *"
            ),
        ):
            with pytest.raises(InvalidRequest, match=refused):
                lake.sql(text)
    assert lake.sql("SELECT * FROM t ORDER BY id").collect() == [(1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("legacy.charVarcharAsString", "true", "CREATE TABLE u (c CHAR(3))"),
        ("charAsVarchar", "true", "ALTER TABLE t ADD COLUMN c CHAR(3)"),
        ("defaultColumn.enabled", "false", "CREATE TABLE u (v INT DEFAULT 1)"),
        (
            "legacy.keepPartitionSpecAsStringLiteral",
            "true",
            "INSERT INTO t PARTITION (p = 05) VALUES (1)",
        ),
        (
            "legacy.parseNullPartitionSpecAsStringLiteral",
            "true",
            "INSERT INTO t PARTITION (p = NULL) VALUES (1)",
        ),
        ("parser.quotedRegexColumnNames", "true", "DELETE FROM t WHERE `.*` = 1"),
    ],
)
def test_what_a_setting_makes_another_thing_is_refused_by_its_name(
    lake: txlake.Lake, key: str, value: str, text: str
) -> None:
    lake.sql("CREATE TABLE t (v INT, p STRING) PARTITIONED BY (p)")
    with _made(lake, key, value), pytest.raises(InvalidRequest, match=re.escape(f"{key}={value}")):
        lake.sql(text)


def test_a_file_that_is_gone_is_an_error_whatever_the_session_says(
    lake: txlake.Lake, tmp_path: Path
) -> None:
    lake.sql("CREATE TABLE t (d DATE)")
    lake.sql("INSERT INTO t VALUES (DATE'1500-01-01')")
    with _made(lake, "parquet.datetimeRebaseModeInRead", "LEGACY"):
        assert lake.read("t").collect() == [(datetime.date(1500, 1, 1),)]
    for path in (tmp_path / "lake").rglob("part-*.parquet"):
        path.unlink()
    with _made(lake, "files.ignoreMissingFiles", "true"), pytest.raises(Exception, match="part-"):
        lake.read("t").collect()


def test_texts_with_long_offsets_are_written_as_others(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, s STRING, l ARRAY<STRING>)")
    with _made(lake, "execution.arrow.useLargeVarTypes", "true"):
        lake.sql("INSERT INTO t SELECT id, CAST(id AS STRING), array('a') FROM range(2)")
        lake.sql("UPDATE t SET s = upper(concat(s, 'x')) WHERE id = 1")
        lake.sql(
            "MERGE INTO t USING (SELECT 0L AS id, 'm' AS s) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET s = s.s"
        )
    assert lake.sql("SELECT * FROM t ORDER BY id").collect() == [(0, "m", ["a"]), (1, "1X", ["a"])]


def test_rows_are_written_where_keywords_are_reserved(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, p INT) PARTITIONED BY (p)")
    with _made(lake, "ansi.enforceReservedKeywords", "true"):
        lake.sql("INSERT INTO t SELECT id, id % 2 FROM range(100)")
        lake.sql("INSERT INTO t REPLACE WHERE p = 1 SELECT id, 1 FROM range(1000, 1010)")
        lake.sql("UPDATE t SET id = id + 1 WHERE pmod(hash(id), 2) >= 0")
        lake.sql("OPTIMIZE t")
        assert lake.sql("SELECT count(*), min(id), max(id) FROM t").collect() == [(60, 1, 1010)]


@pytest.mark.parametrize("name", ["group", "two words", "a`b"])
def test_a_script_has_variables_of_structs_with_any_names(lake: txlake.Lake, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    lake.sql("CREATE TABLE notes (n INT)")
    with _made(lake, "ansi.enforceReservedKeywords", "true"):
        lake.sql(f"""
            BEGIN ATOMIC
                DECLARE first DEFAULT named_struct('{name}', 1);
                INSERT INTO notes SELECT first.{quoted};
                FOR one AS SELECT array(named_struct('{name}', 2)) AS entries DO
                    INSERT INTO notes SELECT one.entries[0].{quoted};
                END FOR;
            END
        """)
    assert lake.sql("SELECT n FROM notes ORDER BY n").collect() == [(1,), (2,)]
