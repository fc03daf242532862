"""DeltaTable's methods build the statements that they stand for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import (
    AnalysisException,
    ParseException,
    UnsupportedOperationException,
)
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr
from pyspark.sql.types import IntegerType, StructField, StructType

from tests.lake.tables.doubles import DELTA_CATALOG, PLACE, FakeSpark, Frame, Recorder
from txlake.errors import InvalidRequest
from txlake.lake.tables import DeltaTable
from txlake.sql.statements import (
    AddFeature,
    Assignment,
    Clone,
    ConvertTable,
    ConvertToDelta,
    Delete,
    DescribeDetail,
    DescribeHistory,
    DropFeature,
    Generate,
    NativeColumn,
    Optimize,
    Restore,
    SqlText,
    TableName,
    TablePath,
    TimeTravel,
    Update,
    UpgradeProtocol,
    Vacuum,
)

ANY_SPARK = cast("SparkSession", object())


def statement_of(call: Callable[[DeltaTable], object]) -> object:
    recorder = Recorder({PLACE})
    call(DeltaTable(recorder, PLACE))
    return recorder.only


def test_updates_and_deletes_make_no_result() -> None:
    """It would be a DataFrame, and start Spark."""
    executor = Recorder({PLACE})
    table = DeltaTable(executor, PLACE)
    table.update("id = 1", {"key": "'a'"})
    table.delete("id = 1")
    assert len(executor.performed) == 2
    assert executor.performed == executor.statements


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda t: t.delete(), Delete(table=PLACE)),
        (lambda t: t.delete("id = 1"), Delete(table=PLACE, condition=SqlText("id = 1"))),
        (
            lambda t: t.alias("t").delete("t.id = 1"),
            Delete(table=PLACE, alias="t", condition=SqlText("t.id = 1")),
        ),
        (
            lambda t: t.update("id = 1", {"value": "'x'"}),
            Update(
                table=PLACE,
                assignments=(Assignment(("value",), SqlText("'x'")),),
                condition=SqlText("id = 1"),
            ),
        ),
        (
            lambda t: t.alias("t").update(set={"t.nested.a": "t.key"}),
            Update(
                table=PLACE,
                alias="t",
                assignments=(Assignment(("nested", "a"), SqlText("t.key")),),
            ),
        ),
        (lambda t: t.history(), DescribeHistory(PLACE, None)),
        (lambda t: t.history(3), DescribeHistory(PLACE, 3)),
        (lambda t: t.detail(), DescribeDetail(PLACE)),
        (lambda t: t.vacuum(), Vacuum(table=PLACE)),
        (lambda t: t.vacuum(1000), Vacuum(table=PLACE, retain_hours=1000.0)),
        (lambda t: t.restoreToVersion(1), Restore(PLACE, TimeTravel(version=1))),
        (
            lambda t: t.restoreToTimestamp("2026-01-31"),
            Restore(PLACE, TimeTravel(timestamp="2026-01-31")),
        ),
        (
            lambda t: t.generate("symlink_format_manifest"),
            Generate(PLACE, "symlink_format_manifest"),
        ),
        (lambda t: t.upgradeTableProtocol(1, 3), UpgradeProtocol(PLACE, 1, 3)),
        (lambda t: t.addFeatureSupport("appendOnly"), AddFeature(PLACE, "appendOnly")),
        (lambda t: t.dropFeatureSupport("v2"), DropFeature(PLACE, "v2")),
        (lambda t: t.dropFeatureSupport("v2", True), DropFeature(PLACE, "v2", True)),
        (lambda t: t.optimize().executeCompaction(), Optimize(table=PLACE)),
        (
            lambda t: t.optimize().where("p = 1").executeCompaction(),
            Optimize(table=PLACE, where=SqlText("p = 1")),
        ),
        (
            lambda t: t.optimize().executeZOrderBy("a", "b"),
            Optimize(table=PLACE, zorder_by=("a", "b")),
        ),
        (
            lambda t: t.optimize().where("p = 1").executeZOrderBy(["a", "b"]),
            Optimize(table=PLACE, where=SqlText("p = 1"), zorder_by=("a", "b")),
        ),
        (
            lambda t: t.clone("/data/c", True, True, {"foo": "bar"}),
            Clone(
                table=TablePath("/data/c"),
                source=PLACE,
                shallow=True,
                mode="or_replace",
                properties=(("foo", "bar"),),
            ),
        ),
        (
            lambda t: t.clone("db.c"),
            Clone(table=TableName(("db", "c")), source=PLACE),
        ),
        (
            lambda t: t.cloneAtVersion(2, "/data/c"),
            Clone(table=TablePath("/data/c"), source=PLACE, travel=TimeTravel(version=2)),
        ),
        (
            lambda t: t.cloneAtTimestamp("2026-01-31", "/data/c", True),
            Clone(
                table=TablePath("/data/c"),
                source=PLACE,
                travel=TimeTravel(timestamp="2026-01-31"),
                shallow=True,
            ),
        ),
    ],
)
def test_a_method_stands_for_a_statement(
    call: Callable[[DeltaTable], object], expected: object
) -> None:
    assert statement_of(call) == expected


def test_columns_are_conditions_and_values(spark: SparkSession) -> None:
    condition, value = col("id") == 1, expr("key")
    assert statement_of(lambda t: t.update(condition, {"value": value})) == Update(
        table=PLACE,
        assignments=(Assignment(("value",), NativeColumn(value)),),
        condition=NativeColumn(condition),
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.delete(1), TypeError, "must be a Spark SQL Column or a string"),
        (lambda t: t.update({"value": "1"}), ValueError, "cannot be None"),
        (lambda t: t.update("a"), ValueError, "cannot be None"),
        (lambda t: t.update(set=1), TypeError, "must be a dict"),
        (lambda t: t.update(1, {}), TypeError, "must be a Spark SQL Column or a string"),
        (lambda t: t.update(set={"v": 1}), TypeError, "Values of dict in .* must contain only"),
        (lambda t: t.update(set={1: ""}), TypeError, "Keys of dict in .* must contain only"),
        (lambda t: t.delete("id IN (SELECT"), ParseException, "not understood"),
        (lambda t: t.merge(1, "a"), TypeError, "must be DataFrame"),
        (lambda t: t.merge(None, "a"), ValueError, "cannot be None"),
        (lambda t: t.alias(1), ValueError, "needs to be a string"),
        (lambda t: t.history("1"), ValueError, "needs to be an int"),
        (lambda t: t.restoreToVersion("0"), ValueError, "int but got '<class 'str'>'"),
        (lambda t: t.restoreToTimestamp(1), ValueError, "string but got '<class 'int'>'"),
        (lambda t: t.upgradeTableProtocol("a", 3), ValueError, "readerVersion"),
        (lambda t: t.upgradeTableProtocol(1, []), ValueError, "writerVersion"),
        (lambda t: t.addFeatureSupport(1), ValueError, "featureName needs to be a string"),
        (lambda t: t.dropFeatureSupport([]), ValueError, "featureName needs to be a string"),
        (lambda t: t.dropFeatureSupport("a", 1), ValueError, "truncateHistory needs to be a bool"),
        (lambda t: t.optimize().where(1), TypeError, "must be str"),
        (lambda t: t.optimize().executeZOrderBy(1), TypeError, "Z-order column must be str"),
        (lambda t: t.optimize().executeZOrderBy(["a", 1]), TypeError, "Z-order column"),
        (lambda t: t.clone(10), ValueError, "target needs to be a string"),
        (lambda t: t.clone("/c", isShallow=10), ValueError, "isShallow needs to be a boolean"),
        (lambda t: t.clone("/c", False, 10), ValueError, "replace needs to be a boolean"),
        (lambda t: t.clone("/c", properties=10), ValueError, "properties needs to be a dict"),
        (
            lambda t: t.clone("/c", properties={"key": 10}),
            ValueError,
            "All property values including 10 needs to be a string",
        ),
        (lambda t: t.clone("a/b"), AnalysisException, "DELTA_INVALID_CLONE_PATH"),
        (lambda t: t.cloneAtVersion("0", "/c"), ValueError, "version needs to be an int"),
        (lambda t: t.cloneAtTimestamp(1, "/c"), ValueError, "timestamp needs to be a string"),
    ],
)
def test_bad_arguments_are_refused_before_anything_happens(
    call: Callable[[Any], object], error: type[Exception], message: str, recorder: Recorder
) -> None:
    with pytest.raises(error, match=message) as found:
        call(DeltaTable(recorder, PLACE))
    assert isinstance(found.value, InvalidRequest)
    assert recorder.statements == []


def test_what_the_session_refuses_is_an_analysis_exception(recorder: Recorder) -> None:
    recorder.failure = InvalidRequest("there is no column x")
    with pytest.raises(AnalysisException, match="there is no column x"):
        DeltaTable(recorder, PLACE).delete("x = 1")


def test_vacuum_answers_with_an_empty_frame(delta_table: DeltaTable) -> None:
    assert cast("object", delta_table.vacuum()) == ([], StructType([]))


def test_rows_are_named_by_the_alias_or_the_tables_name(recorder: Recorder) -> None:
    def name_of(table: DeltaTable) -> str | None:
        return cast("Frame", table.toDF()).name

    table = DeltaTable(recorder, PLACE)
    assert name_of(table) is None
    assert name_of(table.alias("x")) == "x"
    assert name_of(DeltaTable(recorder, TableName(("db", "t")))) == "t"
    assert name_of(DeltaTable(recorder, PLACE, name=TableName(("db", "t")))) == "t"


def test_a_table_that_was_found_by_name_can_be_named_in_expressions(recorder: Recorder) -> None:
    table = DeltaTable(recorder, PLACE, name=TableName(("db", "t")))
    table.update("db.t.id = 1", {"db.t.value": "t.key"})
    statement = recorder.only
    assert isinstance(statement, Update)
    assert (statement.table, statement.alias) == (PLACE, "t")
    assert statement.assignments == (Assignment(("value",), SqlText("t.key")),)
    assert isinstance(statement.condition, SqlText)
    assert statement.condition.rewritten(lambda _: None) == "`t`.id = 1"


# --- finding ----------------------------------------------------------------------------------


def test_for_path_takes_what_is_a_delta_table(
    recorder: Recorder, given_options: list[Mapping[str, str] | None]
) -> None:
    DeltaTable.forPath(ANY_SPARK, "/data/t").detail()
    assert recorder.only == DescribeDetail(PLACE)
    with pytest.raises(AnalysisException, match="is not a Delta table") as found:
        DeltaTable.forPath(ANY_SPARK, "/data/none")
    assert found.value.getCondition() == "DELTA_MISSING_DELTA_TABLE"
    assert "/data/none" in str(found.value)


def test_credentials_of_hadoop_are_options_of_the_store(
    given_options: list[Mapping[str, str] | None],
) -> None:
    conf = {
        "fs.s3a.access.key": "a",
        "fs.s3a.secret.key": "b",
        "fs.s3a.endpoint": "http://host",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.azure.account.key.acc.dfs.core.windows.net": "c",
        "fs.fake.impl": "org.Fake",
        "dfs.blocksize": "1",
    }
    DeltaTable.forPath(ANY_SPARK, "/data/t", conf)
    assert given_options == [
        {
            "aws_access_key_id": "a",
            "aws_secret_access_key": "b",
            "aws_endpoint": "http://host",
            "aws_virtual_hosted_style_request": "false",
            "aws_allow_http": "true",
            "azure_storage_account_key": "c",
            "azure_storage_account_name": "acc",
        }
    ]


def test_name_nodes_of_hadoop_are_an_option_of_the_store(
    given_options: list[Mapping[str, str] | None],
) -> None:
    conf = {
        "dfs.namenode.http-address.service.nn1": "one:9870",
        "dfs.namenode.https-address.service.nn2": "two:9871",
    }
    DeltaTable.forPath(ANY_SPARK, "/data/t", conf)
    assert given_options == [{"webhdfs_endpoint": "http://one:9870,https://two:9871"}]


@pytest.mark.parametrize("conf", [{"spark.x": "1"}, {"fs.x": 1}, {1: "x"}, "fs.x"])
def test_other_settings_are_refused(
    conf: Any, given_options: list[Mapping[str, str] | None]
) -> None:
    with pytest.raises(ValueError):
        DeltaTable.forPath(ANY_SPARK, "/data/t", conf)


def test_is_delta_table(given_options: list[Mapping[str, str] | None]) -> None:
    assert DeltaTable.isDeltaTable(ANY_SPARK, "/data/t")
    assert not DeltaTable.isDeltaTable(ANY_SPARK, "/data")


def for_name(name: str, recorder: Recorder, spark: FakeSpark) -> DeltaTable:
    recorder.fake_spark = spark
    return DeltaTable.forName(cast("SparkSession", spark), name)


@pytest.mark.usefixtures("given_options")
class TestForName:
    def test_a_name_of_the_sessions_catalog_is_the_table_at_its_place(
        self, recorder: Recorder
    ) -> None:
        spark = FakeSpark({"`db`.`t`": ("MANAGED", "delta", "file:/data/t")}, DELTA_CATALOG)
        for_name("db.t", recorder, spark).delete()
        assert recorder.only == Delete(table=PLACE, alias="t")

    def test_a_place_as_a_name(self, recorder: Recorder) -> None:
        for_name("delta.`/data/t`", recorder, FakeSpark(conf_values=DELTA_CATALOG)).detail()
        assert recorder.only == DescribeDetail(PLACE)

    @pytest.mark.parametrize("name", ["none", "view", "parquet_table", "gone"])
    def test_what_is_no_delta_table(self, name: str, recorder: Recorder) -> None:
        spark = FakeSpark(
            {
                "`view`": ("VIEW", "", ""),
                "`parquet_table`": ("MANAGED", "parquet", "file:/data/p"),
                "`gone`": ("EXTERNAL", "delta", "file:/data/gone"),
            },
            DELTA_CATALOG,
        )
        with pytest.raises(AnalysisException, match="is not a Delta table"):
            for_name(name, recorder, spark)

    def test_a_catalog_without_delta_leaves_names_to_the_lake(self, recorder: Recorder) -> None:
        recorder.existing = {TableName(("t",))}
        spark = FakeSpark({"`t`": ("MANAGED", "delta", "file:/data/t")})
        for_name("t", recorder, spark).detail()
        assert recorder.only == DescribeDetail(TableName(("t",)))
        assert spark.queries == []
        with pytest.raises(AnalysisException, match="is not a Delta table"):
            for_name("other", recorder, spark)

    @pytest.mark.parametrize(
        ("name", "conf", "asked"),
        [
            ("t", {"spark.sql.catalogImplementation": "hive"}, True),
            ("t", {"spark.sql.catalog.spark_catalog": "io.unitycatalog.spark.UCSingle"}, True),
            ("unity.db.t", {"spark.sql.catalog.unity": "io.unitycatalog.spark.UCSingle"}, True),
            ("ice.db.t", {"spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog"}, False),
            ("t", {"spark.sql.catalogImplementation": "in-memory"}, False),
        ],
    )
    def test_which_catalogs_know_delta(
        self, name: str, conf: dict[str, str], asked: bool, recorder: Recorder
    ) -> None:
        recorder.existing = {PLACE, TableName(tuple(name.split(".")))}
        quoted = ".".join(f"`{part}`" for part in name.split("."))
        spark = FakeSpark({quoted: ("EXTERNAL", "delta", "file:/data/t")}, conf)
        for_name(name, recorder, spark)
        assert bool(spark.queries) is asked

    @pytest.mark.parametrize(
        ("shown", "location"),
        [
            ("file:/data/a b%20c", "/data/a b%20c"),
            ("file:///data/t", "/data/t"),
            ("s3a://bucket/a b%20c", "s3a://bucket/a b%2520c"),
            ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ],
    )
    def test_catalogs_show_places_unencoded(
        self, shown: str, location: str, recorder: Recorder
    ) -> None:
        recorder.existing = {TablePath(location)}
        spark = FakeSpark({"`t`": ("EXTERNAL", "delta", shown)}, DELTA_CATALOG)
        for_name("t", recorder, spark).detail()
        assert recorder.only == DescribeDetail(TablePath(location))

    @pytest.mark.parametrize("name", ["", "a..b", "`a"])
    def test_what_is_no_name(self, name: str, recorder: Recorder) -> None:
        with pytest.raises(ParseException):
            for_name(name, recorder, FakeSpark(conf_values=DELTA_CATALOG))


# --- converting and cloning -------------------------------------------------------------------


@pytest.mark.usefixtures("given_options")
class TestConvert:
    @pytest.mark.parametrize(
        ("schema", "columns"),
        [
            (None, ()),
            ("value int", (("value", "int"),)),
            ("a date, `b c` decimal(10,2)", (("a", "date"), ("b c", "decimal(10,2)"))),
            (StructType([StructField("value", IntegerType())]), (("value", "int"),)),
        ],
    )
    def test_a_folder_of_parquet(
        self, schema: Any, columns: tuple[tuple[str, str], ...], recorder: Recorder
    ) -> None:
        table = DeltaTable.convertToDelta(ANY_SPARK, "parquet.`/data/p q`", schema)
        assert recorder.only == ConvertToDelta(location="/data/p q", partition_columns=columns)
        assert repr(table) == "DeltaTable(delta.`/data/p q`)"

    def test_a_delta_table_stays_as_it_is(self, recorder: Recorder) -> None:
        DeltaTable.convertToDelta(ANY_SPARK, "delta.`/data/t`")
        assert recorder.statements == []

    def test_a_table_of_sparks_own(self, recorder: Recorder) -> None:
        table = DeltaTable.convertToDelta(ANY_SPARK, "db.t", "day date")
        columns = (("day", "date"),)
        assert recorder.only == ConvertTable(
            table=TableName(("db", "t")), partition_columns=columns
        )
        assert repr(table) == "DeltaTable(db.t)"

    def test_nothing_else(self, recorder: Recorder) -> None:
        with pytest.raises(UnsupportedOperationException, match="only folders of Parquet files"):
            DeltaTable.convertToDelta(ANY_SPARK, "iceberg.`/data/p`")

    def test_bad_partition_columns(self, recorder: Recorder) -> None:
        with pytest.raises(ParseException):
            DeltaTable.convertToDelta(ANY_SPARK, "parquet.`/data/p`", "value")
        with pytest.raises(TypeError, match="partitionSchema must be str or StructType"):
            DeltaTable.convertToDelta(ANY_SPARK, "parquet.`/data/p`", 1)  # type: ignore[arg-type]


def test_a_clone_under_a_name_of_the_sessions_catalog_is_the_catalogs_own(
    recorder: Recorder,
) -> None:
    recorder.fake_spark = FakeSpark(conf_values=DELTA_CATALOG)
    copy = DeltaTable(recorder, PLACE).clone("c", isShallow=True)
    assert recorder.only == Clone(
        table=TablePath("/warehouse/c"), source=PLACE, shallow=True, mode="or_replace"
    )
    assert recorder.fake_spark.tables["`c`"][0] == "MANAGED"
    assert repr(copy) == "DeltaTable(c)"


def test_no_session_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))
    with pytest.raises(ValueError, match="no SparkSession"):
        DeltaTable.create()
    with pytest.raises(ValueError, match="no SparkSession"):
        DeltaTable.forPath(cast("SparkSession", None), "/data/t")


SIGNATURES = {
    "forPath": "(sparkSession, path, hadoopConf={})",
    "forName": "(sparkSession, tableOrViewName)",
    "create": "(sparkSession=None)",
    "createIfNotExists": "(sparkSession=None)",
    "replace": "(sparkSession=None)",
    "createOrReplace": "(sparkSession=None)",
    "isDeltaTable": "(sparkSession, identifier)",
    "convertToDelta": "(sparkSession, identifier, partitionSchema=None)",
    "toDF": "(self)",
    "alias": "(self, aliasName)",
    "delete": "(self, condition=None)",
    "update": "(self, condition=None, set=None)",
    "merge": "(self, source, condition)",
    "history": "(self, limit=None)",
    "detail": "(self)",
    "vacuum": "(self, retentionHours=None)",
    "optimize": "(self)",
    "restoreToVersion": "(self, version)",
    "restoreToTimestamp": "(self, timestamp)",
    "generate": "(self, mode)",
    "upgradeTableProtocol": "(self, readerVersion, writerVersion)",
    "addFeatureSupport": "(self, featureName)",
    "dropFeatureSupport": "(self, featureName, truncateHistory=None)",
    "clone": "(self, target, isShallow=False, replace=False, properties=None)",
    "cloneAtVersion": "(self, version, target, isShallow=False, replace=False, properties=None)",
    "cloneAtTimestamp": (
        "(self, timestamp, target, isShallow=False, replace=False, properties=None)"
    ),
}


def test_names_order_and_defaults_of_arguments_are_delta_sparks() -> None:
    public = {name for name in vars(DeltaTable) if not name.startswith("_")}
    assert public == set(SIGNATURES) | {"branch", "branches"}
    for name, expected in SIGNATURES.items():
        found = inspect.signature(getattr(DeltaTable, name))
        bare = found.replace(
            parameters=[
                parameter.replace(annotation=inspect.Parameter.empty)
                for parameter in found.parameters.values()
            ],
            return_annotation=inspect.Signature.empty,
        )
        assert str(bare) == expected, name


def test_a_relative_path_stays_where_it_led_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder becomes the current one, where there may be another table of that path."""
    monkeypatch.chdir(tmp_path)
    recorder = Recorder()
    made = DeltaTable(recorder, TablePath("sales/t: x"))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    made.delete()
    assert recorder.only == Delete(table=TablePath(f"{tmp_path}/sales/t: x"))
    for location in ("/data/t", "file:///data/t", "s3://bucket/t", "memory://m/t"):
        DeltaTable(recorder := Recorder(), TablePath(location)).delete()
        assert recorder.only == Delete(table=TablePath(location))
