"""DeltaTableBuilder: definitions, and what becomes of their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.errors import (
    AnalysisException,
    ParseException,
    UnsupportedOperationException,
)
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from tests.lake.tables.doubles import DELTA_CATALOG, PLACE, FakeSpark, Recorder
from txlake.errors import InvalidRequest, OutcomeUnknown
from txlake.lake.tables import DeltaTable, DeltaTableBuilder, IdentityGenerator
from txlake.lake.tables.executor import Executor
from txlake.sql.statements import (
    ColumnSpec,
    CreateMode,
    CreateTable,
    Identity,
    NativeType,
    Table,
    TableName,
    TablePath,
)


def builder(recorder: Recorder, mode: CreateMode = "create") -> DeltaTableBuilder:
    def opened(executor: Executor, table: Table, name: TableName | None) -> DeltaTable:
        return DeltaTable(executor, table, name=name)

    return DeltaTableBuilder(recorder, mode, opened)


def test_a_whole_definition(recorder: Recorder) -> None:
    schema = StructType(
        [
            StructField("c", LongType(), False, {"comment": "the c"}),
            StructField("d", LongType(), True, {"delta.generationExpression": "c + 1"}),
            StructField("e", LongType(), True, {"CURRENT_DEFAULT": "7"}),
            StructField(
                "f", LongType(), True, {"delta.identity.start": 1, "delta.identity.step": 2}
            ),
        ]
    )
    table = (
        builder(recorder)
        .location("/data/new")
        .addColumn("a", "int", comment="the a", nullable=False)
        .addColumn("b", IntegerType(), generatedAlwaysAs="a + 10")
        .addColumns(schema)
        .addColumns([StructField("g", IntegerType())])
        .addColumn("i", "BIGINT", generatedAlwaysAs=IdentityGenerator(2))
        .addColumn("j", LongType(), generatedByDefaultAs=IdentityGenerator(step=3))
        .property("foo", "bar")
        .comment("a table")
        .partitionedBy("a")
        .execute()
    )
    assert recorder.only == CreateTable(
        table=TablePath("/data/new"),
        columns=(
            ColumnSpec(name="a", data_type="int", nullable=False, comment="the a"),
            ColumnSpec(name="b", data_type=NativeType(IntegerType()), generated="a + 10"),
            ColumnSpec(name="c", data_type=NativeType(LongType()), nullable=False, comment="the c"),
            ColumnSpec(name="d", data_type=NativeType(LongType()), generated="c + 1"),
            ColumnSpec(name="e", data_type=NativeType(LongType()), default="7"),
            ColumnSpec(name="f", data_type=NativeType(LongType()), identity=Identity(True, 1, 2)),
            ColumnSpec(name="g", data_type=NativeType(IntegerType())),
            ColumnSpec(name="i", data_type="BIGINT", identity=Identity(True, 2, 1)),
            ColumnSpec(name="j", data_type=NativeType(LongType()), identity=Identity(False, 1, 3)),
        ),
        partition_by=("a",),
        properties=(("foo", "bar"),),
        comment="a table",
    )
    assert repr(table) == "DeltaTable(delta.`/data/new`)"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda b: b.partitionedBy("a", "b"), {"partition_by": ("a", "b")}),
        (lambda b: b.partitionedBy(["a", "b"]), {"partition_by": ("a", "b")}),
        (lambda b: b.partitionedBy(("a",)), {"partition_by": ("a",)}),
        (lambda b: b.clusterBy("a", "b.c"), {"cluster_by": ("a", "b.c")}),
        (lambda b: b.clusterBy(["a"]), {"cluster_by": ("a",)}),
    ],
)
def test_columns_come_one_by_one_or_as_a_list(
    call: Callable[[DeltaTableBuilder], DeltaTableBuilder],
    expected: dict[str, tuple[str, ...]],
    recorder: Recorder,
) -> None:
    call(builder(recorder).location("/data/new")).execute()
    assert recorder.only == CreateTable(table=TablePath("/data/new"), **expected)  # type: ignore[arg-type]


class _ScalaSequence:
    def size(self) -> int:
        return 2

    def apply(self, index: int) -> str:
        return "ab"[index]


_ScalaSequence.__module__ = "py4j.java_gateway"


def test_a_scala_list_through_the_builder_underneath(recorder: Recorder) -> None:
    made: Any = builder(recorder).location("/data/new")
    made._jbuilder = made._jbuilder.partitionedBy(_ScalaSequence())
    made.execute()
    assert recorder.only == CreateTable(table=TablePath("/data/new"), partition_by=("a", "b"))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda b: b.tableName(1), TypeError),
        (lambda b: b.location(1), TypeError),
        (lambda b: b.comment(1), TypeError),
        (lambda b: b.addColumn(1, "int"), TypeError),
        (lambda b: b.addColumn("a", 1), TypeError),
        (lambda b: b.addColumn("a", "1"), ParseException),
        (lambda b: b.addColumn("a", "int", comment=1), TypeError),
        (lambda b: b.addColumn("a", "int", nullable=1), TypeError),
        (lambda b: b.addColumn("a", "int", generatedAlwaysAs=1), TypeError),
        (lambda b: b.addColumn("a", "bigint", generatedByDefaultAs=""), TypeError),
        (
            lambda b: b.addColumn("a", "int", generatedAlwaysAs=IdentityGenerator()),
            UnsupportedOperationException,
        ),
        (
            lambda b: b.addColumn("a", IntegerType(), generatedByDefaultAs=IdentityGenerator()),
            UnsupportedOperationException,
        ),
        (
            lambda b: b.addColumn("a", "bigint", generatedAlwaysAs=IdentityGenerator(step=0)),
            ValueError,
        ),
        (
            lambda b: b.addColumn("a", "bigint", generatedByDefaultAs=IdentityGenerator(step=0)),
            ValueError,
        ),
        (
            lambda b: b.addColumn(
                "a", "bigint", generatedAlwaysAs="", generatedByDefaultAs=IdentityGenerator()
            ),
            ValueError,
        ),
        (lambda b: b.addColumns(1), TypeError),
        (lambda b: b.addColumns([StructField("1", IntegerType()), 1]), TypeError),
        (lambda b: b.partitionedBy(1), TypeError),
        (lambda b: b.partitionedBy(1, "1"), TypeError),
        (lambda b: b.partitionedBy([1]), TypeError),
        (lambda b: b.clusterBy(1), TypeError),
        (lambda b: b.clusterBy([1]), TypeError),
        (lambda b: b.property(1, "1"), TypeError),
        (lambda b: b.property("1", 1), TypeError),
    ],
)
def test_bad_arguments_leave_the_definition_as_it_was(
    call: Callable[[Any], object], error: type[Exception], recorder: Recorder
) -> None:
    made = builder(recorder).location("/data/new")
    with pytest.raises(error):
        call(made)
    made.execute()
    assert recorder.only == CreateTable(table=TablePath("/data/new"))


def test_it_needs_a_name_or_a_location(recorder: Recorder) -> None:
    with pytest.raises(AnalysisException, match="MISSING_TABLE_NAME_OR_LOCATION"):
        builder(recorder).execute()


def test_a_table_is_either_clustered_or_partitioned(recorder: Recorder) -> None:
    made = builder(recorder).location("/data/new").partitionedBy("a").clusterBy("b")
    with pytest.raises(AnalysisException, match="DELTA_CLUSTER_BY_WITH_PARTITIONED_BY"):
        made.execute()
    assert recorder.statements == []


# --- names ------------------------------------------------------------------------------------


def test_a_place_as_a_name(recorder: Recorder) -> None:
    builder(recorder).tableName("delta.`/data/new`").location("file:///data/new").execute()
    assert recorder.only == CreateTable(table=TablePath("/data/new"))
    with pytest.raises(AnalysisException, match="IDENTIFIER_LOCATION_MISMATCH"):
        builder(recorder).tableName("delta.`/data/new`").location("/data/other").execute()


def test_without_delta_in_the_sessions_catalog_names_are_the_lakes(recorder: Recorder) -> None:
    table = builder(recorder, "or_replace").tableName("db.new").location("/data/new").execute()
    assert recorder.only == CreateTable(
        table=TableName(("db", "new")), location="/data/new", mode="or_replace"
    )
    assert repr(table) == "DeltaTable(db.new)"
    assert recorder.fake_spark.queries == []


class TestSparkCatalog:
    """Names of a session's catalog that knows Delta."""

    @pytest.fixture
    def spark(self, recorder: Recorder) -> FakeSpark:
        recorder.fake_spark = FakeSpark(
            {
                "`old`": ("MANAGED", "delta", "file:/warehouse/old"),
                "`other`": ("MANAGED", "parquet", "file:/warehouse/other"),
                "`view`": ("VIEW", "", ""),
            },
            DELTA_CATALOG,
        )
        return recorder.fake_spark

    @pytest.mark.parametrize("mode", ["create", "if_not_exists", "or_replace"])
    def test_a_new_name_is_the_catalogs_own_table(
        self, mode: CreateMode, recorder: Recorder, spark: FakeSpark
    ) -> None:
        table = builder(recorder, mode).tableName("db.new").addColumn("a", "int").execute()
        assert spark.tables["`db`.`new`"][0] == "MANAGED"
        assert isinstance(recorder.only, CreateTable)
        assert recorder.only.table == TablePath("/warehouse/db`.`new")
        assert recorder.only.mode == "or_replace"
        assert recorder.only.location is None
        assert repr(table) == "DeltaTable(db.new)"

    def test_a_new_name_with_a_location(self, recorder: Recorder, spark: FakeSpark) -> None:
        place = "/data/it's%20"
        builder(recorder).tableName("new").location(place).addColumn("a", "int").execute()
        assert isinstance(recorder.only, CreateTable)
        assert (recorder.only.table, recorder.only.mode) == (TablePath(place), "create")
        assert spark.queries == [
            "CREATE TABLE `new` USING delta LOCATION '/data/it\\'s%20'",
        ]

    @pytest.mark.parametrize(
        ("location", "shown"),
        [
            ("file:///data/a%20b", "/data/a b"),
            ("s3a://bucket/a%20b", "s3a://bucket/a b"),
        ],
    )
    def test_catalogs_take_places_unencoded(
        self, location: str, shown: str, recorder: Recorder, spark: FakeSpark
    ) -> None:
        builder(recorder).tableName("new").location(location).addColumn("a", "int").execute()
        assert spark.tables["`new`"] == ("EXTERNAL", "delta", shown)

    def test_a_name_alone_is_given_to_a_table_that_is_there(
        self, recorder: Recorder, spark: FakeSpark
    ) -> None:
        builder(recorder).tableName("new").location(PLACE.location).execute()
        assert recorder.statements == []
        assert spark.tables["`new`"] == ("EXTERNAL", "delta", PLACE.location)

    def test_a_definition_for_a_table_that_is_there_is_the_sessions_to_judge(
        self, recorder: Recorder, spark: FakeSpark
    ) -> None:
        recorder.failure = InvalidRequest("/data/t exists already")
        made = builder(recorder).tableName("new").location(PLACE.location).addColumn("a", "int")
        with pytest.raises(AnalysisException, match="exists already"):
            made.execute()
        assert "`new`" not in spark.tables

    def test_create_refuses_a_name_that_is_taken(
        self, recorder: Recorder, spark: FakeSpark
    ) -> None:
        with pytest.raises(AnalysisException, match="old already exists") as found:
            builder(recorder).tableName("old").addColumn("a", "int").execute()
        assert found.value.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
        assert recorder.statements == []

    def test_if_not_exists_leaves_a_table_as_it_is(
        self, recorder: Recorder, spark: FakeSpark
    ) -> None:
        table = builder(recorder, "if_not_exists").tableName("old").addColumn("a", "int").execute()
        assert recorder.statements == []
        assert repr(table) == "DeltaTable(old)"

    @pytest.mark.parametrize("mode", ["replace", "or_replace"])
    @pytest.mark.parametrize("location", [None, "file:///warehouse/old"])
    def test_replacing(
        self, mode: CreateMode, location: str | None, recorder: Recorder, spark: FakeSpark
    ) -> None:
        made = builder(recorder, mode).tableName("old").addColumn("a", "int")
        (made if location is None else made.location(location)).execute()
        assert isinstance(recorder.only, CreateTable)
        assert (recorder.only.table, recorder.only.mode) == (TablePath("/warehouse/old"), mode)

    def test_replace_needs_the_name(self, recorder: Recorder, spark: FakeSpark) -> None:
        with pytest.raises(AnalysisException, match="new cannot be found"):
            builder(recorder, "replace").tableName("new").addColumn("a", "int").execute()
        assert spark.queries == []

    @pytest.mark.parametrize("name", ["other", "view"])
    @pytest.mark.parametrize("mode", ["if_not_exists", "replace", "or_replace"])
    def test_what_is_no_delta_table_stays(
        self, name: str, mode: CreateMode, recorder: Recorder, spark: FakeSpark
    ) -> None:
        with pytest.raises(AnalysisException, match="DELTA_NOT_A_DELTA_TABLE"):
            builder(recorder, mode).tableName(name).addColumn("a", "int").execute()
        assert recorder.statements == []

    def test_a_table_doesnt_move(self, recorder: Recorder, spark: FakeSpark) -> None:
        with pytest.raises(AnalysisException, match="DELTA_TABLE_LOCATION_MISMATCH"):
            builder(recorder, "replace").tableName("old").location("/elsewhere").execute()

    def test_a_definition_that_fails_leaves_no_name(
        self, recorder: Recorder, spark: FakeSpark
    ) -> None:
        recorder.failure = InvalidRequest("no such partition column")
        with pytest.raises(AnalysisException, match="no such partition column"):
            builder(recorder).tableName("new").partitionedBy("x").execute()
        assert "`new`" not in spark.tables

    def test_a_name_stays_while_nobody_knows_what_became_of_the_table(
        self, recorder: Recorder, spark: FakeSpark
    ) -> None:
        recorder.failure = OutcomeUnknown("the reply was lost")
        with pytest.raises(OutcomeUnknown):
            builder(recorder).tableName("new").addColumn("a", "int").execute()
        assert "`new`" in spark.tables

    def test_a_catalog_that_refuses_the_name_of_a_written_table(
        self, recorder: Recorder, spark: FakeSpark
    ) -> None:
        spark.refuse = lambda _: AnalysisException(message="[NO_SUCH_SCHEMA] no schema db")
        made = builder(recorder).tableName("db.new").location("/data/new").addColumn("a", "int")
        with pytest.raises(AnalysisException, match="the table at /data/new is written"):
            made.execute()

    @pytest.mark.parametrize("name", ["", "a..b"])
    def test_what_is_no_name(self, name: str, recorder: Recorder, spark: FakeSpark) -> None:
        with pytest.raises(ParseException):
            builder(recorder).tableName(name).execute()


def test_generators_count_from_one_by_one() -> None:
    assert IdentityGenerator() == IdentityGenerator(start=1, step=1) == IdentityGenerator(1, 1)
    assert cast("Any", IdentityGenerator(2)).step == 1
