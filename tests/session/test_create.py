from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.session.tables import (
    T,
    domain_of,
    environment,
    metadata_of,
    protocol_of,
    schema,
    specs,
    sql,
    table,
)
from txlake.commit.change import Change
from txlake.ddl.create import check_same_definition, create, create_like
from txlake.ddl.environment import EVERY_ROW, Environment
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Remove
from txlake.protocol.types import Primitive, Struct, parse_schema
from txlake.sql.statements import (
    CheckConstraint,
    ColumnSpec,
    CreateTable,
    CreateTableLike,
    Identity,
    NativeColumn,
    NativeType,
    TableName,
)

BASE = CreateTable(table=T, columns=specs("a int, b string, p date"))


def made(
    statement: CreateTable, existing: Snapshot | None = None, env: Environment | None = None
) -> Change:
    change = create(statement, existing, env or environment())
    assert change is not None
    return change


def test_a_new_table_has_deletion_vectors_and_no_more() -> None:
    change = made(BASE)
    protocol, metadata = protocol_of(change), metadata_of(change)
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ("deletionVectors",)
    assert set(protocol.writer_features or ()) == {"appendOnly", "deletionVectors", "invariants"}
    assert metadata.configuration == {"delta.enableDeletionVectors": "true"}
    assert metadata.created_time == 1_700_000_000_000
    assert parse_schema(metadata.schema_string) == schema("a int, b string, p date")
    assert change.operation == "CREATE TABLE"
    assert change.parameters == {
        "isManaged": "true",
        "description": None,
        "partitionBy": "[]",
        "clusterBy": "[]",
        "properties": '{"delta.enableDeletionVectors":"true"}',
    }
    assert change.reads == ()


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableDeletionVectors": "false"},
        {"delta.minReaderVersion": "1", "delta.minWriterVersion": "2"},
        {"delta.ignoreProtocolDefaults": "true"},
    ],
)
def test_deletion_vectors_can_be_declined(properties: dict[str, str]) -> None:
    protocol = protocol_of(made(replace(BASE, properties=tuple(properties.items()))))
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_everything_that_a_column_can_have() -> None:
    statement = CreateTable(
        table=T,
        columns=(
            ColumnSpec(name="a", data_type="INTEGER", nullable=False, comment="it's"),
            ColumnSpec(name="v", data_type="varchar(3)", default="'x'"),
            ColumnSpec(name="g", data_type="date", generated="CAST(ts AS DATE)"),
            ColumnSpec(name="ts", data_type="timestamp_ntz"),
        ),
        partition_by=("G",),
        constraints=(CheckConstraint("Positive", sql("a > 0")),),
        comment="about t",
        properties=(("my.own", "x"), ("delta.feature.v2Checkpoint", "supported")),
    )
    change = made(statement)
    metadata, protocol = metadata_of(change), protocol_of(change)
    a, v, g, _ = parse_schema(metadata.schema_string)
    assert (a.nullable, a.metadata) == (False, {"comment": "it's"})
    assert v.type == Primitive("string")
    assert v.metadata == {"CURRENT_DEFAULT": "'x'", "__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    assert g.metadata == {"delta.generationExpression": "CAST(ts AS DATE)"}
    assert metadata.partition_columns == ("g",)
    assert metadata.description == "about t"
    assert metadata.configuration == {
        "my.own": "x",
        "delta.constraints.positive": "a > 0",
        "delta.enableDeletionVectors": "true",
    }
    assert set(protocol.writer_features or ()) >= {
        "allowColumnDefaults",
        "checkConstraints",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
    assert set(protocol.reader_features or ()) == {
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
    }


def test_column_mapping_gives_ids_and_lifts_the_rules_of_names() -> None:
    statement = CreateTable(
        table=T,
        columns=(
            ColumnSpec(name="odd name", data_type="int"),
            ColumnSpec(name="s", data_type="struct<`x,y`: int>"),
        ),
        properties=(("delta.columnMapping.mode", "name"),),
    )
    metadata = metadata_of(made(statement))
    assert metadata.configuration["delta.columnMapping.maxColumnId"] == "3"
    first, second = parse_schema(metadata.schema_string)
    assert (first.column_id, second.column_id) == (1, 2)
    assert first.physical_name.startswith("col-0000")
    with pytest.raises(InvalidRequest, match=r"t: the name of column .*columnMapping"):
        made(replace(statement, properties=()))


def test_clustering_is_a_domain_of_physical_names() -> None:
    statement = replace(
        BASE,
        columns=specs("a int, s struct<x: int>"),
        cluster_by=("s.X", "A"),
        properties=(("delta.columnMapping.mode", "name"),),
    )
    change = made(statement)
    a, s = parse_schema(metadata_of(change).schema_string)
    assert isinstance(s.type, Struct)
    assert json.loads(domain_of(change).configuration)["clusteringColumns"] == [
        [s.physical_name, s.type.fields[0].physical_name],
        [a.physical_name],
    ]
    assert {"clustering", "domainMetadata"} <= set(protocol_of(change).writer_features or ())
    assert change.parameters["clusterBy"] == '["s.X","A"]'


def test_row_tracking_names_its_columns() -> None:
    change = made(replace(BASE, properties=(("delta.enableRowTracking", "true"),)))
    configuration = metadata_of(change).configuration
    assert configuration["delta.rowTracking.materializedRowIdColumnName"].startswith("_row-id-col-")
    assert configuration["delta.rowTracking.materializedRowCommitVersionColumnName"].startswith(
        "_row-commit-version-col-"
    )
    assert {"rowTracking", "domainMetadata"} <= set(protocol_of(change).writer_features or ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": (), "partition_by": ("a",)}, "partition column a isn't a column"),
        ({"columns": specs("a int, A int")}, "twice"),
        ({"columns": specs("a nonsense")}, "no data type"),
        ({"columns": specs("a array<struct<x: int NOT NULL>>")}, "can't be NOT NULL"),
        ({"partition_by": ("q",)}, "partition column q isn't a column"),
        ({"partition_by": ("a", "b", "p")}, "all columns are partition columns"),
        ({"partition_by": ("a",), "cluster_by": ("b",)}, "both partitioned and clustered"),
        ({"cluster_by": ("q",)}, "CLUSTER BY: there is no column q"),
        ({"cluster_by": ("a", "A")}, "named twice"),
        ({"cluster_by": ("a", "b", "p", "a", "b")}, "at most 4"),
        ({"properties": (("delta.appendOnly", "maybe"),)}, "expected true or false"),
        ({"properties": (("delta.nonsense", "1"),)}, "unknown"),
        ({"properties": (("location", "/x"),)}, "reserved"),
        ({"properties": (("delta.feature.nonsense", "supported"),)}, "unknown"),
        ({"properties": (("delta.dataSkippingStatsColumns", "a, q"),)}, "no column q"),
        ({"constraints": (CheckConstraint("c", sql("q > 1")),)}, "no column q"),
        ({"constraints": (CheckConstraint("c", sql("a >")),)}, "not a SQL expression"),
        ({"constraints": (CheckConstraint("c", sql("a > (SELECT 1)")),)}, "can't hold a query"),
        ({"constraints": (CheckConstraint("c", sql("a > rand()")),)}, r"rand\(\) gives another"),
        ({"constraints": (CheckConstraint("c", sql("sum(a) > 1")),)}, "an aggregate"),
        ({"constraints": (CheckConstraint("c", NativeColumn(object())),)}, "as text"),
        (
            {"constraints": (CheckConstraint("c", sql("a>0")), CheckConstraint("C", sql("a>0")))},
            "twice",
        ),
    ],
)
def test_what_a_table_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^t: .*{message}"):
        made(replace(BASE, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (ColumnSpec(name="g", data_type="int", generated="q + 1"), "no column q"),
        (ColumnSpec(name="g", data_type="int", generated="g + 1"), "generated itself"),
        (ColumnSpec(name="g", data_type="double", generated="rand()"), "another value"),
        (ColumnSpec(name="g", data_type="int", generated="a", default="1"), "generated and have"),
        (ColumnSpec(name="g", data_type="int", default="a + 1"), "can't use columns, found a"),
        (ColumnSpec(name="g", data_type="int", default="1 +"), "not a SQL expression"),
        (ColumnSpec(name="g", data_type=NativeType("int")), "PySpark's DataType"),
    ],
)
def test_what_a_column_cannot_be(column: ColumnSpec, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        made(replace(BASE, columns=(*BASE.columns, column)))


def test_types_of_expressions_are_checked_where_spark_tells_them() -> None:
    env = environment(type_of=lambda text, over: Primitive("string" if "'" in text else "integer"))
    generated = ColumnSpec(name="g", data_type="long", generated="a + 1")
    with pytest.raises(InvalidRequest, match=r"g has type bigint, its expression .* type int"):
        made(replace(BASE, columns=(*BASE.columns, generated)), env=env)
    text = ColumnSpec(name="d", data_type="int", default="'x'")
    with pytest.raises(InvalidRequest, match="d has type int, its default 'x' has type string"):
        made(replace(BASE, columns=(*BASE.columns, text)), env=env)
    number = ColumnSpec(name="d", data_type="long", default="1")
    made(replace(BASE, columns=(*BASE.columns, number)), env=env)


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        (
            {
                "properties": (
                    ("delta.enableIcebergCompatV1", "true"),
                    ("delta.columnMapping.mode", "name"),
                )
            },
            "icebergCompatV1",
        ),
    ],
)
def test_features_that_are_not_written_are_refused_by_name(
    change: dict[str, object], feature: str
) -> None:
    with pytest.raises(UnsupportedFeature, match=feature):
        made(replace(BASE, **change))  # type: ignore[arg-type]


def test_an_identity_column() -> None:
    spec = ColumnSpec(name="i", data_type="long", identity=Identity(False, 5, -2))
    change = made(replace(BASE, columns=(*BASE.columns, spec)))
    after = Snapshot.empty("t").apply(change.actions)
    item = after.schema.find("i")
    assert item is not None
    assert item.metadata == {
        "delta.identity.start": 5,
        "delta.identity.step": -2,
        "delta.identity.allowExplicitInsert": True,
    }
    assert "identityColumns" in after.features


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"data_type": "int"}, "must be BIGINT, found int"),
        ({"identity": Identity(True, 1, 0)}, "can't be 0"),
        ({"identity": Identity(True, 2**63)}, "START WITH must be a BIGINT"),
        ({"identity": Identity(True, 1, -(2**63) - 1)}, "INCREMENT BY must be a BIGINT"),
        ({"default": "5"}, "neither a default nor an expression"),
        ({"generated": "a"}, "neither a default nor an expression"),
    ],
)
def test_what_can_not_be_an_identity_column(wrong: dict[str, object], said: str) -> None:
    spec = replace(ColumnSpec(name="i", data_type="long", identity=Identity(True)), **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=rf"^t: (\[DELTA_\w+\] )?column i: .*{said}"):
        made(replace(BASE, columns=(*BASE.columns, spec)))


def test_the_modes() -> None:
    existing = table("a int")
    with pytest.raises(InvalidRequest, match="t: the table exists already"):
        made(BASE, existing)
    assert create(replace(BASE, mode="if_not_exists"), existing, environment()) is None
    with pytest.raises(InvalidRequest, match="t: there is no table to replace"):
        made(replace(BASE, mode="replace"))
    assert made(replace(BASE, mode="or_replace")).operation == "CREATE OR REPLACE TABLE"
    assert made(BASE, Snapshot.empty("t")).operation == "CREATE TABLE"


def test_replacing_removes_rows_properties_and_clustering_but_no_feature() -> None:
    existing = table(
        "a int, b int",
        cluster_by=("a",),
        properties={"delta.columnMapping.mode": "name", "mine": "x"},
        files=2,
    )
    change = made(replace(BASE, mode="replace", columns=specs("b int")), existing)
    assert change.operation == "REPLACE TABLE"
    assert change.reads == (EVERY_ROW,)
    assert {action.path for action in change.actions if isinstance(action, Remove)} == {"f0", "f1"}
    assert change.metrics == {"numRemovedFiles": 2}
    assert domain_of(change).removed
    assert not [action for action in change.actions if action.__class__.__name__ == "Protocol"]
    assert metadata_of(change).configuration == {
        "delta.enableDeletionVectors": "true",
        "delta.columnMapping.maxColumnId": "2",
    }
    assert metadata_of(change).id != existing.metadata.id
    assert parse_schema(metadata_of(change).schema_string) == schema("b int")


def test_replacing_never_uses_a_column_id_again() -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    existing = table("a int, b int", properties=mapped)
    change = made(
        replace(BASE, mode="or_replace", columns=specs("a int"), properties=tuple(mapped.items())),
        existing,
    )
    (a,) = parse_schema(metadata_of(change).schema_string)
    assert a.column_id == 3
    assert metadata_of(change).configuration["delta.columnMapping.maxColumnId"] == "3"


def test_a_replaced_table_goes_on_tracking_rows() -> None:
    key = "delta.enableRowTracking"
    existing = table("a int", properties={key: "true", "mine": "x"})
    change = made(replace(BASE, mode="or_replace"), existing)
    assert metadata_of(change).configuration[key] == "true"
    assert "mine" not in metadata_of(change).configuration
    change = made(replace(BASE, mode="or_replace", properties=((key, "false"),)), existing)
    assert metadata_of(change).configuration[key] == "false"
    assert key not in metadata_of(made(BASE)).configuration


def test_a_table_that_only_takes_appends_is_not_replaced() -> None:
    existing = table("a int", properties={"delta.appendOnly": "true"}, files=1)
    for mode in ("replace", "or_replace"):
        with pytest.raises(InvalidRequest, match="only takes appends"):
            made(replace(BASE, mode=mode), existing)
        made(replace(BASE, mode=mode), table("a int", properties={"delta.appendOnly": "true"}))
    assert create(replace(BASE, mode="if_not_exists"), existing, environment()) is None


def test_a_clustered_table_is_not_replaced_by_a_partitioned_one() -> None:
    existing = table("a int, b int", cluster_by=("a",))
    with pytest.raises(InvalidRequest, match="drop it first"):
        made(replace(BASE, mode="replace", partition_by=("p",)), existing)


def test_as_select_takes_the_columns_of_its_rows_nullable() -> None:
    statement = CreateTable(table=T, query=sql("SELECT 1 AS a"), partition_by=("p",))
    change = create(
        statement, None, environment(), query_schema=schema("a int NOT NULL, p string NOT NULL")
    )
    assert change is not None
    assert change.operation == "CREATE TABLE AS SELECT"
    assert parse_schema(metadata_of(change).schema_string) == schema("a int, p string")
    with pytest.raises(InvalidRequest, match="takes its columns from the query"):
        create(
            replace(statement, columns=specs("a int")),
            None,
            environment(),
            query_schema=schema("a int"),
        )


def test_like_copies_all_but_rows_and_ids() -> None:
    source = table(
        "a int, `odd b` string",
        cluster_by=("a",),
        properties={"delta.columnMapping.mode": "name", "mine": "x"},
        files=1,
        comment="about",
    )
    statement = CreateTableLike(
        table=TableName(("u",)), source=T, properties=(("mine", "y"), ("new", "z"))
    )
    change = create_like(statement, source, None, environment())
    assert change is not None
    metadata = metadata_of(change)
    assert parse_schema(metadata.schema_string).names == source.schema.names
    assert metadata.id != source.metadata.id
    assert metadata.description == "about"
    assert {"mine": "y", "new": "z", "delta.columnMapping.mode": "name"}.items() <= (
        metadata.configuration.items()
    )
    (a, _) = parse_schema(metadata.schema_string)
    assert json.loads(domain_of(change).configuration)["clusteringColumns"] == [[a.physical_name]]


def test_a_statement_that_describes_the_table_at_its_location() -> None:
    existing = table("a int NOT NULL, p string", partition_by=("p",), properties={"mine": "x"})
    right = CreateTable(
        table=T,
        columns=specs("A int NOT NULL, p string"),
        partition_by=("p",),
        properties=(("mine", "x"), ("delta.feature.deletionVectors", "supported")),
    )
    check_same_definition(right, existing, environment())
    check_same_definition(CreateTable(table=T), existing, environment())
    stored = table("a int", properties={"delta.checkpointPolicy": "v2"})
    for text in ("v2", "V2"):
        again = CreateTable(table=T, properties=(("delta.checkpointPolicy", text),))
        check_same_definition(again, stored, environment())
    for wrong, message in (
        (replace(right, columns=specs("a int NOT NULL")), r"columns \(a\) in the statement"),
        (replace(right, columns=specs("a long NOT NULL, p string")), "a is bigint NOT NULL in"),
        (replace(right, columns=specs("a int, p string")), "a is int in the statement"),
        (replace(right, partition_by=None), r"partitioned by \(\) in the statement"),
        (replace(right, properties=(("mine", "y"),)), "'mine' is 'y' in the statement, 'x'"),
        (replace(right, partition_by=("p",), cluster_by=("a",)), "clustered by"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            check_same_definition(wrong, existing, environment())
