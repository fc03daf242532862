"""Views: a query with a name, planned wherever the name is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import txlake
from tests.lake.rows import query, rows
from txlake.errors import Conflict, InvalidRequest, LockTimeout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """The lake with t (1, 1), (2, 2)."""
    lake.sql("CREATE TABLE t (id INT, v INT); INSERT INTO t VALUES (1, 1), (2, 2)")
    return lake


@pytest.fixture
def temporary(t: txlake.Lake, spark: SparkSession) -> Iterator[txlake.Lake]:
    """The lake with a temporary view `newest` over t."""
    t.sql("CREATE OR REPLACE TEMP VIEW newest (k, w) AS SELECT id, v FROM t WHERE v > 1")
    yield t
    spark.catalog.dropTempView("newest")


def elsewhere(lake: txlake.Lake, text: str) -> None:
    """What another session does meanwhile."""
    with lake.session() as other:
        other.sql(text)


def test_a_temporary_view_is_planned_when_it_is_used(temporary: txlake.Lake) -> None:
    lake = temporary
    assert query(lake, "SELECT * FROM newest") == [(2, 2)]
    elsewhere(lake, "INSERT INTO t VALUES (3, 3)")
    assert query(lake, "SELECT k FROM newest") == [(2,), (3,)]
    lake.sql("MERGE INTO t USING newest n ON t.id = n.k WHEN MATCHED THEN UPDATE SET v = n.w * 10")
    assert query(lake, "SELECT v FROM t") == [(1,), (20,), (30,)]
    lake.sql("OPTIMIZE t; VACUUM t")
    assert query(lake, "SELECT w FROM newest n WHERE n.k = 3") == [(30,)]
    assert rows(lake.read("newest", where="k = 3", columns=["w"])) == [(30,)]
    lake.sql("DELETE FROM t WHERE id IN (SELECT k FROM newest)")
    assert query(lake, "SELECT * FROM newest") == []


def test_a_temporary_view_reads_in_the_transaction(temporary: txlake.Lake) -> None:
    tx = temporary.begin(isolation="serializable")
    tx.sql("SELECT * FROM t").collect()
    elsewhere(temporary, "INSERT INTO t VALUES (3, 3)")
    assert query(tx, "SELECT k FROM newest") == [(2,)]
    tx.sql("UPDATE t SET v = 7 WHERE id = 1")
    assert query(tx, "SELECT k FROM newest") == [(1,), (2,)]
    with pytest.raises(Conflict):
        tx.commit()


def test_what_a_temporary_view_read_counts_for_the_write(temporary: txlake.Lake) -> None:
    temporary.sql("CREATE TABLE u (k INT, w INT)")
    tx = temporary.begin()
    tx.sql("INSERT INTO u SELECT * FROM newest")
    elsewhere(temporary, "UPDATE t SET v = 5 WHERE id = 2")
    with pytest.raises(Conflict):
        tx.commit()


def test_a_temporary_view_of_sparks_own_takes_its_place(
    temporary: txlake.Lake, spark: SparkSession
) -> None:
    spark.range(1).createOrReplaceTempView("newest")
    assert query(temporary, "SELECT * FROM newest") == [(0,)]
    temporary.sql("CREATE OR REPLACE TEMP VIEW newest AS SELECT count(*) AS n FROM t")
    assert query(temporary, "SELECT * FROM newest") == [(2,)]
    assert ("", "newest", True) in query(temporary, "SHOW VIEWS")
    temporary.sql("DROP VIEW newest")
    with pytest.raises(InvalidRequest, match="newest"):
        temporary.sql("SELECT * FROM newest").collect()
    temporary.sql("DROP VIEW IF EXISTS newest")
    with pytest.raises(InvalidRequest, match="there is no view newest"):
        temporary.sql("DROP VIEW newest")


def test_sparks_copy_of_a_temporary_view_shows_a_version(
    temporary: txlake.Lake, spark: SparkSession
) -> None:
    elsewhere(temporary, "UPDATE t SET v = 9 WHERE id = 2")
    assert rows(spark.table("newest")) == [(2, 2)]
    with pytest.raises(Conflict, match="A DataFrame shows version 1"):
        temporary.write(spark.table("newest"), "u", mode="append")


def test_a_view_of_the_lake_is_everybodys(t: txlake.Lake) -> None:
    t.sql("CREATE DATABASE sales; CREATE VIEW sales.big AS SELECT id, v FROM default.t WHERE v > 1")
    t.sql(
        "CREATE VIEW sales.bigger (key COMMENT 'a key') COMMENT 'the largest' AS SELECT id FROM big"
    )
    with t.session() as other:
        other.sql("INSERT INTO t VALUES (3, 3)")
        assert query(other, "SELECT * FROM sales.bigger") == [(2,), (3,)]
        other.sql("USE sales")
        assert query(other, "SELECT b.key FROM bigger b JOIN big ON big.id = b.key") == [(2,), (3,)]
        assert query(other, "SHOW VIEWS LIKE 'big*'") == [
            ("sales", "big", False),
            ("sales", "bigger", False),
        ]
    assert query(t, "DESCRIBE sales.bigger") == [("key", "int", "a key")]
    assert ("Type", "VIEW", "") in query(t, "DESCRIBE EXTENDED sales.bigger")
    assert query(t, "DESCRIBE sales.bigger KEY") == [
        ("col_name", "key"), ("comment", "a key"), ("data_type", "int")
    ]  # fmt: skip
    with pytest.raises(InvalidRequest, match="has no column v"):
        t.sql("DESCRIBE sales.bigger v")
    assert query(t, "SHOW COLUMNS IN sales.big") == [("id",), ("v",)]
    [(text,)] = query(t, "SHOW CREATE TABLE sales.bigger")
    assert isinstance(text, str)
    t.sql("DROP VIEW sales.bigger")
    t.sql(text)
    assert rows(t.read("sales.bigger", where="key > 2")) == [(3,)]
    assert query(t, "SHOW TABLES IN sales") == []


def test_a_view_whose_table_is_gone_is_described_as_it_was_created(t: txlake.Lake) -> None:
    t.sql("CREATE TABLE gone (a INT, b STRING); CREATE VIEW v (x, y) AS SELECT * FROM gone")
    t.sql("DROP TABLE gone")
    assert query(t, "DESCRIBE v") == [("x", "int", None), ("y", "string", None)]
    assert query(t, "SHOW COLUMNS IN v") == [("x",), ("y",)]
    with pytest.raises(InvalidRequest, match="no table 'gone'"):
        t.sql("SELECT * FROM v")


def test_a_view_is_changed_renamed_and_dropped(t: txlake.Lake) -> None:
    t.sql("CREATE VIEW w AS SELECT id FROM t")
    t.sql("CREATE VIEW IF NOT EXISTS w AS SELECT v FROM t")
    assert t.read("w").columns == ["id"]
    with pytest.raises(InvalidRequest, match="view w exists already; use IF NOT EXISTS"):
        t.sql("CREATE VIEW w AS SELECT v FROM t")
    t.sql("CREATE OR REPLACE VIEW w AS SELECT v FROM t")
    assert t.read("w").columns == ["v"]
    t.sql("ALTER VIEW w AS SELECT max(id) AS m FROM t; ALTER VIEW w RENAME TO x")
    assert query(t, "SELECT m FROM x") == [(2,)]
    for text in ("DROP VIEW w", "ALTER VIEW w AS SELECT 1 AS a", "ALTER VIEW w RENAME TO y"):
        with pytest.raises(InvalidRequest, match="view w"):
            t.sql(text)
    t.sql("DROP VIEW x")
    assert query(t, "SHOW VIEWS IN default LIKE 'x'") == []


def test_tables_and_views_have_names_of_their_own(t: txlake.Lake) -> None:
    t.sql("CREATE VIEW w AS SELECT * FROM t")
    for text in (
        "CREATE TABLE w (id INT)",
        "CREATE TABLE w AS SELECT 1 AS a",
        "ALTER TABLE t RENAME TO w",
        "CREATE VIEW t AS SELECT 1 AS a",
        "CREATE OR REPLACE VIEW t AS SELECT 1 AS a",
        "ALTER VIEW w RENAME TO t",
        "DROP VIEW t",
        "DROP TABLE w",
        "INSERT INTO w VALUES (1, 1)",
        "DELETE FROM w",
        "OPTIMIZE w",
        "SELECT * FROM w VERSION AS OF 1",
    ):
        with pytest.raises(InvalidRequest, match=r"\b[wt]\b is a (table|view)"):
            t.sql(text)
    with pytest.raises(InvalidRequest, match="is a view"):
        t.write(t.read("t"), "w", mode="append")
    assert query(t, "SELECT id FROM w") == [(1,), (2,)]
    t.sql("CREATE DATABASE d; CREATE VIEW d.v AS SELECT 1 AS a")
    with pytest.raises(InvalidRequest, match="holds 1 table"):
        t.sql("DROP DATABASE d")
    t.sql("DROP DATABASE d CASCADE")
    t.sql("CREATE DATABASE d")
    assert query(t, "SHOW VIEWS IN d LIKE 'v'") == []


def test_circles_are_refused(t: txlake.Lake) -> None:
    t.sql("CREATE VIEW a AS SELECT * FROM t; CREATE VIEW b AS SELECT * FROM a")
    for text in (
        "CREATE OR REPLACE VIEW a AS SELECT * FROM b",
        "ALTER VIEW a AS SELECT id, v FROM A",
        "CREATE OR REPLACE VIEW a AS SELECT (SELECT max(id) FROM default.b) AS id",
    ):
        with pytest.raises(InvalidRequest, match="a circle"):
            t.sql(text)
    with pytest.raises(InvalidRequest, match="nowhere"):
        t.sql("CREATE VIEW c AS SELECT * FROM nowhere")
    with pytest.raises(InvalidRequest, match="column 'id' is there twice"):
        t.sql("CREATE VIEW c AS SELECT x.id, y.id FROM t x, t y")
    with pytest.raises(InvalidRequest, match="has 1 columns"):
        t.sql("CREATE VIEW c (a) AS SELECT * FROM t")
    assert query(t, "SELECT id FROM b") == [(1,), (2,)]


def test_a_view_cannot_read_what_is_one_sessions_alone(
    temporary: txlake.Lake, spark: SparkSession
) -> None:
    spark.range(1).createOrReplaceTempView("own")
    try:
        for name in ("own", "newest"):
            with pytest.raises(InvalidRequest, match=f"can't read {name}, a temporary view"):
                temporary.sql(f"CREATE VIEW w AS SELECT * FROM {name}")
    finally:
        spark.catalog.dropTempView("own")


def test_a_view_reads_one_instant_and_its_rows_count(t: txlake.Lake) -> None:
    t.sql(
        "CREATE TABLE u (id INT);"
        "CREATE VIEW w AS SELECT t.id FROM t LEFT ANTI JOIN u ON t.id = u.id"
    )
    tx = t.begin(isolation="serializable")
    assert query(tx, "SELECT * FROM w") == [(1,), (2,)]
    elsewhere(t, "INSERT INTO u VALUES (1)")
    assert query(tx, "SELECT * FROM w") == [(1,), (2,)]
    tx.sql("INSERT INTO t SELECT id + 10, 0 FROM w")
    with pytest.raises(Conflict):
        tx.commit()


@pytest.mark.parametrize(
    ("mode", "columns", "value"),
    [
        ("", ["id", "v"], 3),
        ("WITH SCHEMA COMPENSATION", ["id", "v"], 3),
        ("WITH SCHEMA BINDING", ["id", "v"], None),
        ("WITH SCHEMA TYPE EVOLUTION", ["id", "v"], "3"),
        ("WITH SCHEMA EVOLUTION", ["v", "w", "id"], "3"),
    ],
)
def test_the_columns_of_a_view_whose_table_was_replaced(
    t: txlake.Lake, mode: str, columns: list[str], value: object
) -> None:
    t.sql(f"CREATE VIEW w {mode} AS SELECT * FROM t")
    t.sql(
        "CREATE OR REPLACE TABLE t (v STRING, w INT, id BIGINT); INSERT INTO t VALUES ('3', 4, 5)"
    )
    if value is None:
        with pytest.raises(InvalidRequest, match="'id' is bigint now, expected int"):
            t.sql("SELECT * FROM w")
        t.sql("ALTER VIEW w WITH SCHEMA COMPENSATION")
        value = 3
    found = t.sql("SELECT * FROM w")
    assert found.columns == columns
    assert [row.v for row in found.collect()] == [value]
    t.sql("INSERT INTO t VALUES ('no number', 4, 5)")
    if value == 3:
        with pytest.raises(Exception, match="a value of column 'v' is no int: no number"):
            t.sql("SELECT * FROM w").collect()
    else:
        assert len(rows(t.sql("SELECT * FROM w"))) == 2


def test_a_view_whose_column_is_gone(t: txlake.Lake, spark: SparkSession) -> None:
    t.sql("CREATE VIEW w (k, l) AS SELECT * FROM t; CREATE VIEW e WITH SCHEMA EVOLUTION AS TABLE t")
    t.sql("CREATE OR REPLACE TEMP VIEW mine AS SELECT * FROM t")
    t.sql("CREATE OR REPLACE TABLE t (id INT, w INT)")
    for name in ("w", "mine"):
        with pytest.raises(InvalidRequest, match="gives 0 columns 'v', expected 1"):
            t.sql(f"SELECT * FROM {name}")
    assert t.sql("SELECT * FROM e").columns == ["id", "w"]
    t.sql("CREATE OR REPLACE VIEW w (k) AS SELECT w FROM t")
    assert t.sql("SELECT * FROM w").columns == ["k"]
    spark.catalog.dropTempView("mine")


def test_temporary_views_are_found_without_generated_code(
    t: txlake.Lake, spark: SparkSession
) -> None:
    """Spark's own `catalog.listTables` fails there."""
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    try:
        spark.sql("CREATE TEMPORARY VIEW interpreted AS SELECT 1 AS a")
        assert ("", "interpreted", True) in query(t, "SHOW VIEWS")
        with pytest.raises(InvalidRequest, match="a temporary view of this Spark session"):
            t.sql("CREATE VIEW w AS SELECT * FROM interpreted")
        t.sql("DROP VIEW interpreted")
        assert ("", "interpreted", True) not in query(t, "SHOW VIEWS")
    finally:
        spark.catalog.dropTempView("interpreted")
        spark.conf.unset("spark.sql.codegen.factoryMode")


def test_a_view_whose_columns_come_to_have_one_name_is_refused(t: txlake.Lake) -> None:
    t.sql("CREATE TABLE u (w INT); CREATE VIEW e WITH SCHEMA EVOLUTION AS SELECT * FROM t, u")
    assert t.sql("SELECT * FROM e").columns == ["id", "v", "w"]
    t.sql("CREATE OR REPLACE TABLE u (V INT)")
    with pytest.raises(InvalidRequest, match="several columns 'v'"):
        t.sql("SELECT * FROM e")


def test_a_view_of_nested_columns_takes_what_may_be_null(t: txlake.Lake) -> None:
    t.sql("CREATE TABLE n (s STRUCT<a: INT NOT NULL>, x ARRAY<INT>)")
    t.sql("CREATE VIEW w WITH SCHEMA BINDING AS SELECT * FROM n")
    t.sql("CREATE OR REPLACE TABLE n (x ARRAY<SMALLINT>, s STRUCT<a: INT>)")
    t.sql("INSERT INTO n SELECT array(1S, NULL), named_struct('a', CAST(NULL AS INT))")
    [row] = t.sql("SELECT * FROM w").collect()
    assert (row.s.a, row.x) == (None, [1, None])


def test_a_view_binds_where_the_session_says_so(t: txlake.Lake, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.legacy.viewSchemaCompensation", "false")
    try:
        t.sql("CREATE VIEW w AS SELECT id FROM t")
    finally:
        spark.conf.unset("spark.sql.legacy.viewSchemaCompensation")
    t.sql("CREATE OR REPLACE TABLE t (id SMALLINT); INSERT INTO t VALUES (7)")
    assert t.sql("SELECT * FROM w").dtypes == [("id", "int")]
    t.sql("CREATE OR REPLACE TABLE t (id BIGINT)")
    with pytest.raises(InvalidRequest, match="'id' is bigint now"):
        t.sql("SELECT * FROM w")


def test_who_reads_a_view_holds_a_lock_on_it_and_on_what_it_reads(t: txlake.Lake) -> None:
    t.sql("CREATE VIEW w AS SELECT * FROM t")
    tx = t.begin()
    tx.sql("SELECT * FROM w").collect()
    with t.session() as other:
        other.sql("SET LOCK_TIMEOUT 0")
        for text, what in (
            ("DROP VIEW w", "view default.w"),
            ("CREATE OR REPLACE VIEW w AS SELECT 1 AS a", "view default.w"),
            ("ALTER VIEW w RENAME TO x", "view default.w"),
            ("DROP TABLE t", "table default.t"),
        ):
            with pytest.raises(LockTimeout, match=what):
                other.sql(text)
        assert query(other, "SELECT id FROM w") == [(1,), (2,)]
        tx.rollback()
        other.sql("DROP VIEW w")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE VIEW x AS SELECT 1 AS a",
        "CREATE OR REPLACE VIEW w AS SELECT 1 AS a",
        "ALTER VIEW w AS SELECT 1 AS a",
        "ALTER VIEW w RENAME TO x",
        "DROP VIEW w",
        "ALTER VIEW w WITH SCHEMA EVOLUTION",
    ],
)
def test_others_see_a_change_of_a_view_once_it_is_committed(t: txlake.Lake, text: str) -> None:
    """Or not at all, after a rollback."""

    def seen(by: Any) -> object:
        names = [str(row[1]) for row in query(by, "SHOW VIEWS LIKE '[wx]'")]
        return [(name, query(by, f"DESCRIBE EXTENDED {name}")) for name in names]

    t.sql("CREATE VIEW w AS SELECT * FROM t")
    before = seen(t)
    tx = t.begin()
    tx.sql(text)
    own = seen(tx)
    assert own != before
    with t.session() as other:
        other.sql("SET LOCK_TIMEOUT 0")
        names = [("default", "w", False)]
        assert query(other, "SHOW VIEWS LIKE '[wx]'") == names
        with pytest.raises(LockTimeout):
            other.sql("CREATE OR REPLACE VIEW w AS SELECT 2 AS b; DROP VIEW IF EXISTS x")
    tx.rollback()
    assert seen(t) == before
    with t.transaction() as tx:
        tx.sql(text)
    assert seen(t) == own


def test_a_transaction_reads_the_views_that_it_wrote(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql("CREATE TABLE made (n INT); INSERT INTO made VALUES (1), (2)")
        tx.sql("CREATE VIEW w AS SELECT n FROM made")
        assert query(tx, "SELECT n FROM w") == [(1,), (2,)]
        tx.sql("CREATE VIEW over_w AS SELECT max(n) AS largest FROM w")
        tx.sql("ALTER VIEW w AS SELECT n + 1 AS n FROM made; INSERT INTO made VALUES (5)")
        assert query(tx, "SELECT largest FROM over_w") == [(6,)]
        tx.sql("ALTER VIEW over_w AS SELECT min(n) AS least FROM t, w WHERE n > v")
        assert query(tx, "SELECT least FROM over_w") == [(2,)]
    assert query(t, "SELECT least FROM over_w") == [(2,)]
    with pytest.raises(InvalidRequest, match="no table 'w'"), t.transaction() as tx:
        tx.sql("ALTER VIEW w RENAME TO x; SELECT * FROM w")


def test_a_view_is_written_again_and_again_in_one_transaction(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql("CREATE VIEW w AS SELECT 1 AS a; ALTER VIEW w AS SELECT 2 AS a")
        tx.sql("ALTER VIEW w RENAME TO x; DROP VIEW x; CREATE VIEW x AS SELECT 3 AS b")
        tx.sql("ALTER VIEW x RENAME TO X; DROP TABLE t; CREATE VIEW t AS SELECT 4 AS c")
        assert query(tx, "SHOW VIEWS LIKE '[twxy]'") == [
            ("default", "X", False),
            ("default", "t", False),
        ]
        assert query(tx, "SELECT * FROM t") == [(4,)]
    assert query(t, "SHOW VIEWS LIKE '[twxy]'") == [
        ("default", "X", False),
        ("default", "t", False),
    ]
    assert query(t, "SELECT * FROM x") == [(3,)]
    with pytest.raises(InvalidRequest, match="exists already"), t.transaction() as tx:
        tx.sql("CREATE VIEW y AS SELECT 1 AS a; ALTER VIEW x RENAME TO y")
    with t.transaction() as tx:
        tx.sql("DROP VIEW t; CREATE TABLE t AS SELECT 5 AS five")
    assert query(t, "SELECT five FROM t") == [(5,)]


def test_a_rollback_to_a_savepoint_undoes_views(t: txlake.Lake) -> None:
    t.sql("CREATE VIEW w AS SELECT 1 AS a")
    with t.transaction() as tx:
        tx.sql("CREATE VIEW x AS SELECT 1 AS a; SAVEPOINT s")
        tx.sql("ALTER VIEW x AS SELECT 2 AS a; DROP VIEW w; CREATE VIEW y AS SELECT 3 AS a")
        tx.sql("ROLLBACK TO s")
        assert query(tx, "SELECT w.a, x.a FROM w, x") == [(1, 1)]
    assert query(t, "SHOW VIEWS LIKE '[wxy]'") == [("default", "w", False), ("default", "x", False)]
    assert query(t, "SELECT w.a, x.a FROM w, x") == [(1, 1)]


def test_a_new_view_and_its_table_appear_together(t: txlake.Lake) -> None:
    """A transaction that fails leaves neither."""
    tx = t.begin()
    tx.sql("CREATE VIEW w AS SELECT id FROM t; DELETE FROM t WHERE id = 1")
    t.sql("DELETE FROM t WHERE id = 1")
    with pytest.raises(txlake.errors.Conflict):
        tx.commit()
    assert query(t, "SHOW VIEWS LIKE '[twxy]'") == []


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_view_does_not_depend_on_the_rows_of_its_tables(t: txlake.Lake, isolation: str) -> None:
    tx = t.begin(isolation=isolation)
    tx.sql("CREATE VIEW w AS SELECT id FROM t")
    t.sql("INSERT INTO t SELECT * FROM t WHERE id = 1")
    tx.commit()
    assert len(query(t, "SELECT id FROM w")) == 3


def test_the_tables_of_a_view_of_the_transaction_are_locked(t: txlake.Lake) -> None:
    t.sql("CREATE TABLE u (id INT)")
    tx = t.begin()
    tx.sql("CREATE VIEW w AS SELECT 1 AS id")
    tx.sql("ALTER VIEW w AS SELECT id FROM u")
    tx.sql("SELECT * FROM w").collect()
    with t.session() as other:
        other.sql("SET LOCK_TIMEOUT 0")
        with pytest.raises(LockTimeout, match=r"default\.u"):
            other.sql("DROP TABLE u")
    tx.rollback()


def test_a_read_only_transaction_changes_no_view(t: txlake.Lake) -> None:
    with (
        pytest.raises(InvalidRequest, match="read-only transaction"),
        t.transaction(read_only=True) as tx,
    ):
        tx.sql("CREATE VIEW w AS SELECT 1 AS a")


def test_two_sessions_make_one_view(t: txlake.Lake) -> None:
    with t.session() as other:
        t.sql("CREATE VIEW w AS SELECT id FROM t")
        with pytest.raises(InvalidRequest, match="exists already"):
            other.sql("CREATE VIEW w AS SELECT v FROM t")
    assert t.read("w").columns == ["id"]
