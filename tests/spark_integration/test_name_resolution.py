"""What is the lake's and what is Spark's, by name, by format, and by place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F

import txlake
from tests.lake.rows import rows
from txlake.spark_integration import lake_binding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=2)


@pytest.fixture
def of_spark(enabled: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A Parquet table of Spark's own catalog, with one row."""
    place = tmp_path / "parquet"
    enabled.sql(f"CREATE TABLE plain (id BIGINT) USING parquet LOCATION '{place}'")
    enabled.sql("INSERT INTO plain VALUES (7)")
    yield "plain"
    enabled.sql("DROP TABLE plain")


def test_a_temporary_view_comes_first_where_rows_are_read(enabled: SparkSession) -> None:
    enabled.range(3).write.saveAsTable("t")
    enabled.range(10).createOrReplaceTempView("t")
    try:
        assert enabled.table("t").count() == 10
        assert rows(enabled.sql("SELECT count(*) FROM t")) == [(10,)]
        assert rows(enabled.sql("SELECT count(*) FROM default.t")) == [(3,)]
        enabled.sql("DELETE FROM t WHERE id IN (SELECT id FROM t WHERE id < 2)")
        assert enabled.table("default.t").count() == 1
        listed = {(one.name, one.isTemporary) for one in enabled.catalog.listTables()}
        assert {("t", True), ("t", False)} <= listed
    finally:
        enabled.catalog.dropTempView("t")


def test_columns_are_found_by_the_tables_whole_name(enabled: SparkSession) -> None:
    enabled.range(3).write.saveAsTable("t")
    enabled.sql("CREATE VIEW seen AS SELECT id FROM t WHERE id > 0")
    for name, least in (("t", 0), ("default.t", 0), ("seen", 1)):
        short = name.rpartition(".")[2]
        for column in (f"{short}.id", f"default.{short}.id", f"spark_catalog.default.{short}.id"):
            found = enabled.table(name).where(F.col(column) < 2)
            assert rows(found) == [(one,) for one in range(least, 2)]
    old = enabled.read.option("versionAsOf", 0).table("t")
    both = old.join(enabled.table("seen"), F.expr("t.id = seen.id")).select("t.id")
    both.write.mode("append").saveAsTable("t")
    assert enabled.table("t").count() == 5


def test_tables_of_sparks_own_stand_beside_the_lakes(enabled: SparkSession, of_spark: str) -> None:
    enabled.range(3).write.saveAsTable("t")
    assert rows(enabled.sql("SELECT id FROM t UNION ALL SELECT id FROM plain WHERE id > 6")) == [
        (0,), (1,), (2,), (7,),
    ]  # fmt: skip
    enabled.sql("INSERT INTO plain SELECT id FROM t WHERE id = 1")
    assert rows(enabled.table("plain")) == [(1,), (7,)]
    enabled.range(8, 9).write.insertInto("plain")
    enabled.range(9, 10).write.mode("append").format("parquet").saveAsTable("plain")
    assert enabled.table("plain").count() == 4
    assert enabled.catalog.tableExists("plain")
    assert [one.name for one in enabled.catalog.listColumns("plain")] == ["id"]
    assert not txlake.DeltaTable.isDeltaTable(enabled, "plain")


def test_a_name_without_a_database_is_of_the_lakes_current_one(
    enabled: SparkSession, of_spark: str
) -> None:
    enabled.sql("CREATE DATABASE shop")
    enabled.sql("USE shop")
    assert not enabled.catalog.tableExists("plain")
    enabled.sql("DROP TABLE IF EXISTS plain")
    for read in (enabled.table, lambda name: enabled.sql(f"SELECT * FROM {name}")):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            read("plain")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        enabled.range(1).write.format("parquet").mode("overwrite").saveAsTable("plain")
    with pytest.raises(AnalysisException, match=r"write shop\.made"):
        enabled.sql("CREATE TABLE made USING parquet AS SELECT 1 AS id")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        enabled.range(1).writeTo("plain").append()
    enabled.range(2).write.saveAsTable("plain")
    assert enabled.table("shop.plain").count() == enabled.table("plain").count() == 2
    enabled.range(5).createOrReplaceTempView("seen")
    try:
        assert enabled.table("seen").count() == 5
        assert enabled.sql("SELECT * FROM seen JOIN plain USING (id)").count() == 2
    finally:
        enabled.catalog.dropTempView("seen")
    assert enabled.catalog.listFunctions(pattern="abs")
    assert rows(enabled.table("default.plain")) == [(7,)]
    enabled.sql("USE default")  # where the fixture drops its table


def test_text_that_only_spark_knows_is_about_its_own_tables(
    enabled: SparkSession, of_spark: str
) -> None:
    enabled.range(1).write.saveAsTable("t")
    with pytest.raises(
        AnalysisException, match=r"t is a table of the lake.*FROM \.\.\. INSERT isn't"
    ):
        enabled.sql("FROM t INSERT INTO t SELECT id INSERT INTO t SELECT id + 1")
    with pytest.raises(AnalysisException, match=r"t is a table of the lake.*ATOMIC \(BEGIN ATOMIC"):
        enabled.sql("BEGIN INSERT INTO t VALUES (1); END")
    assert rows(enabled.table("t")) == [(0,)]
    several = "FROM range(8, 9) INSERT INTO plain SELECT id INSERT INTO plain SELECT id + 1"
    enabled.sql(several)
    enabled.sql("CREATE DATABASE shop")
    enabled.sql("USE shop")
    with pytest.raises(AnalysisException, match=r"plain means shop\.plain"):
        enabled.sql(several)
    enabled.sql("USE default")
    assert rows(enabled.table("plain")) == [(7,), (8,), (9,)]


def test_what_goes_to_another_catalog_keeps_its_format(
    enabled: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    def note(self: object, *said: object) -> object:
        told.append(said[0])
        return self

    for name in ("format", "saveAsTable"):
        monkeypatch.setattr(DataFrameWriter, name, note)
    enabled.range(1).write.format("delta").saveAsTable("unity.sales.orders")
    assert told == ["delta", "unity.sales.orders"]


def test_a_new_table_of_spark_reads_the_lakes(enabled: SparkSession, tmp_path: Path) -> None:
    enabled.range(3).write.saveAsTable("t")
    place = tmp_path / "made"
    enabled.sql(f"CREATE TABLE made USING parquet LOCATION '{place}' AS SELECT * FROM t")
    try:
        assert enabled.read.parquet(str(place)).count() == 3
    finally:
        enabled.sql("DROP TABLE made")
    with pytest.raises(AnalysisException, match="is a table or view of the lake"):
        enabled.sql("CREATE TABLE t USING parquet AS SELECT 1 AS id")


def test_another_format_under_a_name_of_the_lake_is_refused(enabled: SparkSession) -> None:
    enabled.range(3).write.saveAsTable("t")
    other = enabled.range(1)
    calls: list[Callable[[], None]] = [
        lambda: other.write.format("parquet").mode("overwrite").saveAsTable("t"),
        lambda: other.writeTo("t").using("parquet").createOrReplace(),
    ]
    for call in calls:
        with pytest.raises(AnalysisException) as caught:
            call()
        assert caught.value.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
    assert enabled.table("t").count() == 3


def test_a_view_is_read_and_not_written(enabled: SparkSession) -> None:
    enabled.range(3).write.saveAsTable("t")
    enabled.sql("CREATE VIEW v AS SELECT id + 1 AS id FROM t")
    assert rows(enabled.table("v")) == [(1,), (2,), (3,)]
    assert rows(enabled.read.table("default.v")) == [(1,), (2,), (3,)]
    calls: list[Callable[[], None]] = [
        lambda: enabled.range(1).write.insertInto("v"),
        lambda: enabled.range(1).writeTo("v").append(),
        lambda: enabled.range(1).writeTo("v").createOrReplace(),
        lambda: enabled.range(1).write.mode("append").saveAsTable("v"),
    ]
    for call in calls:
        with pytest.raises(PySparkException, match="view"):
            call()
    assert enabled.catalog.getTable("v").tableType == "VIEW"
    enabled.catalog.dropView("v")
    assert not enabled.catalog.tableExists("v")


def test_a_table_at_a_place_of_its_own(enabled: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "outside")
    enabled.range(3).write.option("path", place).saveAsTable("t")
    assert enabled.catalog.getTable("t").tableType == "EXTERNAL"
    assert enabled.read.format("delta").load(place).count() == 3
    enabled.range(1).write.option("path", place).mode("append").saveAsTable("t")
    assert enabled.table("t").count() == 4
    with pytest.raises(PySparkException, match="outside, not at"):
        enabled.range(1).write.option("path", place + "2").mode("append").saveAsTable("t")
    told = enabled.sql("SHOW TABLE EXTENDED LIKE 't'").collect()[0]["information"]
    assert "Type: EXTERNAL" in told
    assert " |-- id: long (nullable = true)" in told


def test_settings_stand_in_texts(enabled: SparkSession) -> None:
    enabled.range(3).write.saveAsTable("t")
    for name, value in (("the.table", "t"), ("the.id", "1")):
        enabled.conf.set(name, value)
    try:
        enabled.sql("DELETE FROM ${the.table} WHERE id = ${hivevar:the.id}")
        assert rows(enabled.sql("SELECT id FROM ${spark:the.table}")) == [(0,), (2,)]
        with pytest.raises(AnalysisException):
            enabled.sql("DELETE FROM ${no.such}")
    finally:
        for name in ("the.table", "the.id"):
            enabled.conf.unset(name)


def test_a_cache_by_name_is_nothing_for_a_lakes_table(enabled: SparkSession, of_spark: str) -> None:
    enabled.range(3).write.saveAsTable("t")
    enabled.sql("CREATE VIEW v AS SELECT * FROM t")
    for name in ("t", "v"):
        enabled.sql(f"CACHE LAZY TABLE {name}")
        enabled.sql(f"UNCACHE TABLE {name}")
    enabled.catalog.cacheTable("t")
    assert not enabled.catalog.isCached("t")
    enabled.range(3, 4).write.insertInto("t")
    assert enabled.table("t").count() == 4
    enabled.sql(f"CACHE TABLE {of_spark}")
    assert enabled.catalog.isCached(of_spark)
    enabled.sql(f"UNCACHE TABLE {of_spark}")
    assert not enabled.catalog.isCached(of_spark)
    enabled.sql("UNCACHE TABLE IF EXISTS nothing")
    for text in ("CACHE TABLE nothing", "UNCACHE TABLE nothing"):
        with pytest.raises(AnalysisException, match="nothing"):
            enabled.sql(text)


def test_a_path_is_said_once(enabled: SparkSession, tmp_path: Path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    enabled.range(1).write.format("delta").option("path", one).save()
    stream = enabled.readStream.format("delta").load(one)
    calls: list[Callable[[], object]] = [
        lambda: enabled.range(1).write.format("delta").option("PATH", one).save(other),
        lambda: enabled.read.format("delta").option("path", other).load(one),
        lambda: enabled.readStream.format("delta").option("path", other).load(one),
        lambda: stream.writeStream.format("delta").option("path", other).start(one),
    ]
    for call in calls:
        with pytest.raises(AnalysisException, match="leave one of the two out"):
            call()
    assert enabled.read.format("delta").option("path", one).load().count() == 1
    assert not Path(other).exists()


@pytest.mark.parametrize(
    ("ask", "condition"),
    [
        (lambda rows: rows.write.saveAsTable("t"), "TABLE_OR_VIEW_ALREADY_EXISTS"),
        (lambda rows: rows.writeTo("t").create(), "TABLE_OR_VIEW_ALREADY_EXISTS"),
        (lambda rows: rows.writeTo("nothing").replace(), "TABLE_OR_VIEW_NOT_FOUND"),
        (
            lambda rows: rows.toDF("x").write.mode("append").saveAsTable("t"),
            "DELTA_METADATA_MISMATCH",
        ),
        (
            lambda rows: rows.write.mode("append").partitionBy("id").saveAsTable("t"),
            "DELTA_METADATA_MISMATCH",
        ),
        (
            lambda rows: rows.selectExpr("id", "id AS b").write.insertInto("t"),
            "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
        ),
        (
            lambda rows: rows.write.mode("append").saveAsTable("t"),
            "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
        ),
        (
            lambda rows: rows.selectExpr("null AS id").write.mode("append").saveAsTable("t"),
            "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        ),
        (
            lambda rows: (
                rows.selectExpr("id + 10 AS id")
                .write.mode("overwrite")
                .option("replaceWhere", "id = 9")
                .saveAsTable("t")
            ),
            "DELTA_REPLACE_WHERE_MISMATCH",
        ),
        (
            lambda rows: rows.selectExpr("INTERVAL 1 DAY AS i").write.saveAsTable("other"),
            "DELTA_UNSUPPORTED_DATA_TYPES",
        ),
        (lambda rows: rows.select().write.saveAsTable("other"), "DELTA_EMPTY_DATA"),
    ],
)
def test_errors_have_the_conditions_that_programs_look_for(
    enabled: SparkSession, ask: Callable[[Any], object], condition: str
) -> None:
    enabled.sql("CREATE TABLE t (id BIGINT NOT NULL)")
    enabled.sql("INSERT INTO t VALUES (7)")
    enabled.sql("ALTER TABLE t ADD CONSTRAINT large CHECK (id > 5)")
    with pytest.raises(AnalysisException) as caught:
        ask(enabled.range(1))
    assert caught.value.getCondition() == condition
    assert [row[0] for row in enabled.table("t").collect()] == [7]
    assert not enabled.catalog.tableExists("other")


def test_rows_are_rearranged_without_a_change(enabled: SparkSession, tmp_path: Path) -> None:
    place, stream = str(tmp_path / "t"), str(tmp_path / "copy")
    enabled.sql("SELECT id, id % 2 AS p, map('k', id) AS m FROM range(6)").write.format(
        "delta"
    ).partitionBy("p").save(place)
    copied = enabled.readStream.format("delta").load(place).writeStream.format("delta")
    copied = copied.option("checkpointLocation", str(tmp_path / "checkpoint"))
    copied.trigger(availableNow=True).start(stream).awaitTermination()
    rows_of = enabled.read.format("delta").load
    again = rows_of(place).repartition(3).write.format("delta").mode("overwrite")
    again.option("dataChange", "false").save(place)
    part = rows_of(place).where("p = 1").write.format("delta").mode("overwrite")
    part.option("DATACHANGE", False).option("replaceWhere", "p = 1").save(place)
    copied.trigger(availableNow=True).start(stream).awaitTermination()
    assert [row.id for row in rows_of(stream).sort("id").collect()] == [0, 1, 2, 3, 4, 5]
    assert rows_of(place).count() == 6
    version = txlake.Log(place).snapshot().version
    less = rows_of(place).where("id > 0").write.format("delta").option("dataChange", "false")
    refused: list[Callable[[], object]] = [
        lambda: less.mode("overwrite").save(place),
        lambda: less.mode("append").save(place),
        lambda: less.mode("overwrite").option("overwriteSchema", "true").save(place),
        lambda: less.mode("overwrite").option("replaceUsing", "id").save(place),
        lambda: less.insertInto(f"delta.`{place}`"),
        lambda: rows_of(place).writeTo("t").using("delta").option("dataChange", "false").create(),
    ]
    for call in refused:
        with pytest.raises(PySparkException, match=r"dataChange=false"):
            call()
    assert txlake.Log(place).snapshot().version == version
    assert not enabled.catalog.tableExists("t")


def test_what_a_commit_says_and_when_it_is_made_once(enabled: SparkSession) -> None:
    frame = enabled.range(2)
    frame.write.option("userMetadata", "first").saveAsTable("t")
    once: dict[str, Any] = {"txnAppId": "job", "txnVersion": 1}
    for _ in range(2):
        frame.write.options(**once).option("userMetadata", "second").insertInto("t")
        frame.write.options(**once).mode("append").saveAsTable("t")
        frame.writeTo("t").options(**once).append()
    assert enabled.table("t").count() == 4
    history = enabled.sql("DESCRIBE HISTORY t").select("userMetadata")
    assert [row[0] for row in history.collect()] == ["second", "first"]


def test_the_sessions_settings_say_which_write_it_is(enabled: SparkSession) -> None:
    enabled.range(3).write.saveAsTable("t")
    of_delta = "spark.databricks.delta.write."
    try:
        enabled.conf.set(f"{of_delta}txnAppId", "job")
        with pytest.raises(AnalysisException, match="go together"):
            enabled.sql("DELETE FROM t")
        for version, statement, counts in (
            (1, "INSERT INTO t VALUES (3)", {"num_affected_rows": 0, "num_inserted_rows": 0}),
            (2, "UPDATE t SET id = id + 10", {"num_affected_rows": 0}),
            (3, "DELETE FROM t WHERE id = (SELECT max(id) FROM t)", {"num_affected_rows": 0}),
            (
                4,
                (
                    "MERGE INTO t USING (SELECT 10 AS id) s ON t.id < s.id + 1 "
                    "WHEN MATCHED THEN UPDATE SET id = t.id + 5"
                ),
                {f"num_{one}_rows": 0 for one in ("affected", "updated", "deleted", "inserted")},
            ),
        ):
            enabled.conf.set(f"{of_delta}txnVersion", str(version))
            enabled.sql(statement)
            [again] = enabled.sql(statement).collect()
            assert again.asDict() == counts, statement
        enabled.range(9).write.mode("append").saveAsTable("t")  # of version 4 too
        assert sorted(rows(enabled.table("t"))) == [(11,), (12,), (15,)]
        enabled.conf.set(f"{of_delta}txnVersion.autoReset.enabled", "true")
        enabled.conf.set(f"{of_delta}txnVersion", "5")
        enabled.sql("TRUNCATE TABLE t")
        assert enabled.conf.get(f"{of_delta}txnVersion", None) is None
    finally:
        for name in ("txnAppId", "txnVersion", "txnVersion.autoReset.enabled"):
            enabled.conf.unset(f"{of_delta}{name}")
    [newest] = enabled.sql("DESCRIBE HISTORY t LIMIT 1").select("operation").collect()
    assert newest["operation"] == "TRUNCATE"


def test_what_the_lake_refuses_is_not_made_by_spark(enabled: SparkSession) -> None:
    enabled.range(1).write.saveAsTable("t")
    with pytest.raises(AnalysisException, match="CLUSTERED"):
        enabled.sql("CREATE TABLE made (id INT) CLUSTERED BY (id) INTO 4 BUCKETS")
    for text in ("CREATE TABLE made AS SELECT :x AS id", "INSERT INTO t VALUES (:x)"):
        with pytest.raises(AnalysisException, match="no SQL literal"):
            enabled.sql(text, args={"x": F.lit(1)})
    assert not enabled.catalog.tableExists("made")
    assert rows(enabled.sql("SELECT :x + 1 AS x", args={"x": F.lit(1)})) == [(2,)]
    assert enabled.sql("SELECT * FROM t WHERE id = :x", args={"x": 0, "y": 1}).count() == 1


def test_what_a_writer_says_is_kept_or_refused(enabled: SparkSession, of_spark: str) -> None:
    one = enabled.range(1)
    one.write.saveAsTable("t")
    with pytest.raises(AnalysisException, match="CLUSTERING_COLUMNS_MISMATCH"):
        one.write.clusterBy("id").mode("append").saveAsTable("t")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        one.write.saveAsTable("sals.orders")
    assert not enabled.catalog.databaseExists("sals")
    for write in (
        one.write.format("delta").mode("append").saveAsTable,
        lambda name: one.writeTo(name).using("delta").create(),
    ):
        with pytest.raises(AnalysisException, match="a table of Spark's own"):
            write(of_spark)
    wider = one.selectExpr("id", "1 AS n").write.mode("append")
    enabled.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        with pytest.raises(AnalysisException):
            wider.option("mergeSchema", "false").saveAsTable("t")
        assert enabled.table("t").columns == ["id"]
        one.selectExpr("id", "1 AS n").write.mode("append").saveAsTable("t")
        assert enabled.table("t").columns == ["id", "n"]
    finally:
        enabled.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    one.selectExpr("id", "2 AS n").write.mode("error").insertInto("t")
    assert enabled.table("t").count() == 3


def test_a_path_of_another_default_file_system_is_refused(
    enabled: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_binding, "default_file_system", lambda spark: "hdfs://host:8020/")
    calls: tuple[Callable[[], object], ...] = (
        lambda: enabled.read.format("delta").load("/data/t"),
        lambda: enabled.range(1).write.format("delta").save("/data/t"),
        lambda: enabled.table("delta.`/data/t`"),
        lambda: enabled.sql("SELECT * FROM delta.`/data/t`"),
        lambda: enabled.sql("CREATE TABLE t (id INT) LOCATION '/data/t'"),
    )
    for call in calls:
        with pytest.raises(AnalysisException, match="/data/t has no scheme"):
            call()


def test_options_of_delta_are_properties_of_what_is_made(
    enabled: SparkSession, tmp_path: Path
) -> None:
    key, place = "delta.enableChangeDataFeed", str(tmp_path / "at")

    def has(table: str) -> object:
        return {
            row["key"]: row["value"] for row in enabled.sql(f"SHOW TBLPROPERTIES {table}").collect()
        }.get(key)

    one = enabled.range(1)
    one.write.option(key, True).saveAsTable("a")
    one.write.format("delta").option(key, "true").save(place)
    one.writeTo("b").option(key, "true").create()
    one.write.saveAsTable("c")
    assert has("c") is None
    more = one.selectExpr("id", "1 AS n").write.mode("overwrite")
    more.option("overwriteSchema", "true").option(key, "true").saveAsTable("c")
    enabled.catalog.createTable("d", schema=one.schema, **{key: "true"})
    assert [has(name) for name in ("a", f"delta.`{place}`", "b", "c", "d")] == ["true"] * 5


@pytest.mark.parametrize(
    ("ask", "condition", "said"),
    [
        ("read.format('delta').schema('v INT').load('t')", "DELTA_UNSUPPORTED_SCHEMA_DURING_READ",
         "leave .schema"),
        ("read.format('delta').load(['t', 't'])", None, "one table"),
        ("read.format('delta').load()", None, "one table"),
        ("read.format('delta').option('versionAsOf', 9).load('t')", None, "version"),
        ("read.option('readChangeFeed', True).option('startingVersion', 0).table('t')", None,
         "DELTA_MISSING_CHANGE_DATA"),
        ("range(1).write.format('delta').save()", None, "needs the path"),
        ("range(1).write.mode('sometimes').saveAsTable('t')", None, "mode"),
        ("range(1).write.bucketBy(2, 'id').mode('append').saveAsTable('t')", None, "no buckets"),
        ("range(1).write.partitionBy('id').insertInto('t')", None, "partitionBy"),
        ("range(1).write.mode('append').option('replaceWhere', 'id=1').saveAsTable('t')", None,
         "overwrite"),
        ("range(1).write.option('txnAppId', 'x').mode('append').saveAsTable('t')",
         "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS", "go together"),
        ("sql('SELECT nothing FROM t')", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "nothing"),
        ("sql('SELEC 1')", "PARSE_SYNTAX_ERROR", "SELEC"),
        ("read.option('versionAsOf', 9).table('t')", "DELTA_VERSION_NOT_FOUND", "9"),
        ("read.option('timestampAsOf', '2001-01-01').table('t')",
         "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION", "before the oldest"),
        ("read.option('timestampAsOf', '2999-01-01').table('t')",
         "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", "after the latest"),
        ("read.option('timestampAsOf', 'x').table('t')", "DELTA_TIMESTAMP_INVALID", "'x'"),
        ("read.option('readChangeFeed', True).option('startingVersion', 9).table('t')",
         "DELTA_CDC_START_VERSION_AFTER_LATEST", "newest version"),
        ("catalog.setCurrentDatabase('nowhere')", "SCHEMA_NOT_FOUND", "CREATE DATABASE"),
        ("catalog.getTable('nothing')", "TABLE_OR_VIEW_NOT_FOUND", "nothing"),
        ("table('a b c')", "PARSE_SYNTAX_ERROR", None),
    ],
)  # fmt: skip
def test_bad_input(
    enabled: SparkSession, ask: str, condition: str | None, said: str | None
) -> None:
    enabled.range(1).write.saveAsTable("t")
    with pytest.raises(PySparkException, match=said) as caught:
        eval(f"spark.{ask}", {"spark": enabled})
    assert condition is None or caught.value.getCondition() == condition
    assert enabled.table("t").count() == 1


def test_a_closed_lake_says_what_to_do(enabled: SparkSession, lake: txlake.Lake) -> None:
    lake.close()
    with pytest.raises(AnalysisException, match="closed"):
        enabled.sql("SELECT 1")
