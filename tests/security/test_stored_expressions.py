"""Expressions that another engine stored in a table run nothing but Spark's pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txlake
from txlake.errors import InvalidRequest, UnsupportedFeature

pytestmark = [
    pytest.mark.broad(keep=10),
    pytest.mark.no_interop("the log is changed to what an attacker would write"),
]

KEY = "txlake.test.attack"
ATTACK = f"java_method('java.lang.System', 'setProperty', '{KEY}', 'done')"
# What a table is created with, and what an attacker writes in its place.
KINDS = {
    "check": ("CHECK constraint small", "(id INT, n INT, CONSTRAINT small CHECK (id < 123456))"),
    "default": ("default of column 'n'", "(id INT, n INT DEFAULT 123456)"),
    "generated": ("generated column 'n'", "(id INT, n INT GENERATED ALWAYS AS (id + 123456))"),
}
STORED = {"check": "id < 123456", "default": "123456", "generated": "id + 123456"}
ATTACKS = {
    "check": f"{ATTACK} IS NULL",
    "default": f"length({ATTACK})",
    "generated": f"length({ATTACK})",
}


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    """A lake whose Spark runs in this process's JVM."""
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    system.clearProperty(KEY)
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        yield opened
    assert system.getProperty(KEY) is None, "the attack ran"


def attacked(folder: Path, kind: str, attack: str) -> str:
    """Put an attack where the table has a harmless expression; its name in SQL."""
    log = folder / "_delta_log"
    commit = log / f"{0:020}.json"
    text = commit.read_text()
    assert STORED[kind] in text
    commit.write_text(text.replace(STORED[kind], attack))
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    return f"delta.`{folder}`"


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_expression_is_refused_where_it_is_used(
    lake: txlake.Lake, tmp_path: Path, kind: str
) -> None:
    what, columns = KINDS[kind]
    folder = tmp_path / "foreign"
    lake.sql(
        f"CREATE TABLE delta.`{folder}` {columns} TBLPROPERTIES "
        "('delta.feature.allowColumnDefaults' = 'supported')"
    )
    table = attacked(folder, kind, ATTACKS[kind])
    with txlake.connect(str(tmp_path / "other")) as other:
        merge = (
            f"MERGE INTO {table} t USING (SELECT 1 AS id) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )
        values = f"INSERT INTO {table} (id) VALUES (1)"
        selected = f"INSERT INTO {table} (id) SELECT id FROM range(2)"
        for text in (values, selected, merge):
            with pytest.raises(UnsupportedFeature, match="java_method") as caught:
                other.sql(text)
            assert what in str(caught.value)
            assert "foreign" in str(caught.value)
        assert other.sql(f"SELECT * FROM {table}").collect() == []


def test_reading_an_attached_table_is_refused_as_it_is_attached_or_not_at_all(
    lake: txlake.Lake, tmp_path: Path
) -> None:
    folder = tmp_path / "foreign"
    lake.sql(f"CREATE TABLE delta.`{folder}` {KINDS['check'][1]}")
    lake.sql(f"INSERT INTO delta.`{folder}` VALUES (1, 2)")
    attacked(folder, "check", ATTACKS["check"])
    lake.attach(str(folder), "taken")
    assert [tuple(row) for row in lake.sql("SELECT * FROM taken").collect()] == [(1, 2)]
    for text in ("UPDATE taken SET n = 3", "INSERT INTO taken SELECT 5, 6"):
        with pytest.raises(UnsupportedFeature, match="java_method"):
            lake.sql(text)
    lake.sql("ALTER TABLE taken DROP CONSTRAINT small")
    lake.sql("INSERT INTO taken SELECT 5, 6")
    assert lake.sql("SELECT * FROM taken").count() == 2


def test_an_expression_is_judged_as_it_is_stored(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.minWriterVersion' = '7')")
    for text in (
        f"CREATE TABLE a (id INT, CONSTRAINT c CHECK ({ATTACK} IS NULL))",
        f"CREATE TABLE a (id INT, n STRING DEFAULT {ATTACK})",
        f"CREATE TABLE a (id INT, n STRING GENERATED ALWAYS AS ({ATTACK}))",
        f"ALTER TABLE t ADD CONSTRAINT c CHECK ({ATTACK} IS NULL)",
        f"ALTER TABLE t ALTER COLUMN id SET DEFAULT length({ATTACK})",
        f"CREATE TABLE a (id INT) TBLPROPERTIES ('delta.constraints.c' = \"{ATTACK} IS NULL\")",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (`Reflect`('a', 'b') IS NULL)",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (id <> '${env:HOME}')",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (my_function(id))",
    ):
        with pytest.raises(InvalidRequest):
            lake.sql(text)
    assert lake.sql("SHOW TABLES").count() == 1
