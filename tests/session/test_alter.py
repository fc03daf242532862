from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from tests.session.tables import (
    T,
    after,
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
from txlake.commit.membership import Membership, attach_actions
from txlake.ddl.alter import alter
from txlake.ddl.create import create
from txlake.ddl.environment import EVERY_ROW, Environment
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DeletionVector, Metadata, Protocol
from txlake.protocol.type_text import CHAR_VARCHAR_TYPE, sql_text
from txlake.protocol.types import Primitive, Struct, schema_to_string
from txlake.sql.statements import (
    AddColumns,
    AddConstraint,
    AddedColumn,
    AddFeature,
    After,
    AlterColumn,
    AlterStatement,
    CheckConstraint,
    ClusterBy,
    ColumnSpec,
    CreateTable,
    DropColumns,
    DropConstraint,
    DropFeature,
    First,
    Identity,
    RenameColumn,
    RenameTable,
    ReplaceColumns,
    SetComment,
    SetProperties,
    TableName,
    UnsetProperties,
    UpgradeProtocol,
)

MAPPED = {"delta.columnMapping.mode": "name"}


def altered(
    statement: AlterStatement, snapshot: Snapshot, env: Environment | None = None
) -> Snapshot:
    return after(snapshot, alter(statement, snapshot, env or environment()))


def changed(statement: AlterStatement, snapshot: Snapshot) -> Change:
    return alter(statement, snapshot, environment())


def refused(statement: AlterStatement, snapshot: Snapshot, message: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^t: .*{message}"):
        alter(statement, snapshot, environment())


def plain(found: Struct) -> str:
    return sql_text(found)


def properties(**given: str) -> SetProperties:
    return SetProperties(T, tuple((key.replace("_", "."), value) for key, value in given.items()))


# --- properties -----------------------------------------------------------------------------------


def test_properties_are_set_and_unset() -> None:
    start = table("a int")
    change = changed(
        SetProperties(T, (("DELTA.APPENDONLY", "true"), ("mine", "x"), ("comment", "about"))), start
    )
    assert change.operation == "SET TBLPROPERTIES"
    assert json.loads(str(change.parameters["properties"]))["mine"] == "x"
    now = after(start, change)
    assert now.metadata.configuration == {
        **start.metadata.configuration,
        "delta.appendOnly": "true",
        "mine": "x",
    }
    assert now.metadata.description == "about"
    change = changed(UnsetProperties(T, ("mine", "comment", "delta.appendonly")), now)
    assert change.operation == "UNSET TBLPROPERTIES"
    assert change.parameters["ifExists"] is False
    assert after(now, change).metadata == start.metadata


@pytest.mark.parametrize("if_exists", [False, True])
@pytest.mark.parametrize("key", ["none", "delta.appendOnly", "delta.none"])
def test_unset_of_a_key_that_is_not_set_changes_nothing(key: str, if_exists: bool) -> None:
    """As in Delta Spark and Databricks, without IF EXISTS too."""
    start = table("a int")
    assert not changed(UnsetProperties(T, (key,), if_exists), start).actions
    now = after(start, changed(SetProperties(T, (("mine", "x"), ("ours", "y"))), start))
    left = after(now, changed(UnsetProperties(T, (key, "mine"), if_exists), now))
    assert left.metadata.configuration == {**start.metadata.configuration, "ours": "y"}


def test_what_properties_cannot_be() -> None:
    start = table("a int")
    refused(SetProperties(T, (("owner", "me"),)), start, "'owner' is reserved")
    refused(UnsetProperties(T, ("owner",), True), start, "'owner' is reserved")
    refused(SetProperties(T, (("delta.checkpointInterval", "0"),)), start, "from 1")
    refused(SetProperties(T, (("delta.constraints.c", "a > 0"),)), start, "ADD CONSTRAINT")
    refused(SetProperties(T, (("location", "x"),)), start, "reserved")
    refused(SetProperties(T, (("delta.feature.clustering", "supported"),)), start, "CLUSTER BY")
    refused(SetProperties(T, (("delta.columnMapping.maxColumnId", "9"),)), start, "kept by")
    refused(UnsetProperties(T, ("delta.columnMapping.maxColumnId",)), start, "kept by")
    with pytest.raises(UnsupportedFeature, match=r"^t: .*icebergCompatV3"):
        alter(SetProperties(T, (("delta.enableIcebergCompatV3", "true"),)), start, environment())


def test_partition_columns_are_materialized_by_a_property_or_by_name_alone() -> None:
    name, key = "materializePartitionColumns", "delta.enableMaterializePartitionColumnsFeature"
    start = table("a int, p int", partition_by=("p",))
    by_property = altered(SetProperties(T, ((key, "true"),)), start)
    by_name = altered(SetProperties(T, ((f"delta.feature.{name}", "supported"),)), start)
    assert not start.materializes_partitions
    for now in (by_property, by_name):
        assert name in now.features
        assert now.materializes_partitions
    assert altered(UnsetProperties(T, (key,)), by_property).materializes_partitions
    dropped = altered(DropFeature(T, name), by_property)
    assert not dropped.materializes_partitions
    assert key not in dropped.metadata.configuration


def test_a_statement_that_changes_nothing_has_no_actions() -> None:
    start = table("a int", properties={"mine": "x"})
    assert not changed(properties(mine="x"), start).actions


def test_a_property_brings_the_feature_that_it_needs() -> None:
    start = table("a int")
    now = altered(SetProperties(T, (("delta.enableTypeWidening", "true"),)), start)
    assert "typeWidening" in now.features
    assert "deletionVectors" in now.features
    now = altered(SetProperties(T, (("delta.feature.v2Checkpoint", "supported"),)), start)
    assert "v2Checkpoint" in now.features
    assert now.metadata == start.metadata


def test_column_mapping_is_turned_on_with_the_names_of_the_files() -> None:
    start = table("a int, s struct<x: int>")
    now = altered(SetProperties(T, tuple(MAPPED.items())), start)
    a, s = now.schema
    assert (a.physical_name, a.column_id, s.physical_name) == ("a", 1, "s")
    assert now.metadata.configuration["delta.columnMapping.maxColumnId"] == "3"
    grown = altered(AddColumns(T, (AddedColumn(column=specs("n int")[0]),)), now)
    assert grown.schema.fields[2].physical_name.startswith("col-")
    refused(properties(delta_columnMapping_mode="none"), now, "from 'name' to 'none'")
    refused(properties(delta_columnMapping_mode="id"), now, "from 'name' to 'id'")
    refused(properties(delta_columnMapping_mode="id"), start, "from 'none' to 'id'")
    refused(UnsetProperties(T, ("delta.columnMapping.mode",)), now, "from 'name' to 'none'")


def test_row_tracking_brings_its_feature_and_names_its_columns() -> None:
    now = altered(SetProperties(T, (("delta.enableRowTracking", "true"),)), table("a int"))
    assert {"rowTracking", "domainMetadata"} <= now.features
    assert "delta.rowTracking.materializedRowIdColumnName" in now.metadata.configuration


def test_row_tracking_is_not_suspended_while_it_is_relied_upon() -> None:
    both = "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"
    on, off = ("delta.enableRowTracking", "true"), ("delta.rowTrackingSuspended", " TRUE ")
    refused(SetProperties(T, (on, off)), table("a int"), both)
    refused(SetProperties(T, (off,)), altered(SetProperties(T, (on,)), table("a int")), both)
    refused(SetProperties(T, (on,)), altered(SetProperties(T, (off,)), table("a int")), both)


A_INT = schema_to_string(schema("a int"))
MAPS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("columnMapping",),
    writer_features=("columnMapping", "appendOnly"),
)
# As another engine left them.
ODD = {
    "delta.appendOnly": "perhaps",
    "delta.checkpointPolicy": "v9",
    "delta.columnMapping.mode": "index",
    "delta.deletedFileRetentionDuration": "soon",
    "delta.enableRowTracking": "yes",
    "delta.isolationLevel": "Chaos",
    "delta.logRetentionDuration": "interval 1 month",
}
MENDED = {
    "delta.appendOnly": "false",
    "delta.checkpointPolicy": "classic",
    "delta.columnMapping.mode": "none",
    "delta.deletedFileRetentionDuration": "1 week",
    "delta.enableRowTracking": "false",
    "delta.isolationLevel": "Serializable",
    "delta.logRetentionDuration": "30 days",
}


@pytest.mark.parametrize("key", ODD)
def test_a_property_that_is_not_understood_can_always_be_mended(key: str) -> None:
    left = table("a int").apply([MAPS, Metadata(id="t", schema_string=A_INT, configuration=ODD)])
    assert altered(SetProperties(T, ((key, MENDED[key]),)), left).metadata.configuration == {
        **ODD,
        key: MENDED[key],
    }
    kept = {other: text for other, text in ODD.items() if other != key}
    assert altered(UnsetProperties(T, (key,)), left).metadata.configuration == kept
    assert altered(properties(mine="x"), left).metadata.configuration["mine"] == "x"
    refused(SetProperties(T, ((key, "still odd"),)), left, key)


def test_comments() -> None:
    start = table("a int")
    now = altered(SetComment(T, "about"), start)
    assert now.metadata.description == "about"
    assert altered(SetComment(T, None), now).metadata.description is None


# --- columns --------------------------------------------------------------------------------------


def test_columns_are_added() -> None:
    start = table("a int, s struct<x: int>", properties=MAPPED)
    statement = AddColumns(
        T,
        (
            AddedColumn(
                column=ColumnSpec(name="n", data_type="varchar(3)", comment="new"), position=First()
            ),
            AddedColumn(column=specs("y long")[0], parent=("s",), position=After("x")),
        ),
    )
    change = changed(statement, start)
    assert change.operation == "ADD COLUMNS"
    assert json.loads(str(change.parameters["columns"])) == [
        {
            "column": {
                "name": "n",
                "type": "string",
                "nullable": True,
                "metadata": {"comment": "new", CHAR_VARCHAR_TYPE: "varchar(3)"},
            },
            "position": "FIRST",
        },
        {
            "column": {"name": "s.y", "type": "long", "nullable": True, "metadata": {}},
            "position": "AFTER x",
        },
    ]
    now = after(start, change)
    assert plain(now.schema) == plain(
        schema("n string COMMENT 'new', a int, s struct<x: int, y: long>")
    )
    assert {item.column_id for item in now.schema} == {1, 2, 4}
    assert change.reads == ()


def test_columns_that_cannot_be_added() -> None:
    start = table("a int, s struct<x: int>")

    def add(column: ColumnSpec, parent: tuple[str, ...] = ()) -> AddColumns:
        return AddColumns(T, (AddedColumn(column=column, parent=parent),))

    refused(add(specs("A int")[0]), start, "exists already")
    refused(add(specs("n int NOT NULL")[0]), start, "NOT NULL")
    refused(add(ColumnSpec(name="n", data_type="struct<i: int NOT NULL>")), start, "NOT NULL")
    refused(add(ColumnSpec(name="n", data_type="int", default="1")), start, "SET DEFAULT 1")
    refused(add(ColumnSpec(name="n", data_type="int", generated="a")), start, "generated")
    refused(add(specs("n int")[0], ("a",)), start, "expected a struct")
    refused(add(ColumnSpec(name="n m", data_type="int")), start, "contains ' '")
    identity = ColumnSpec(name="i", data_type="long", identity=Identity(True))
    refused(add(identity), start, "identity column can't be added")
    there = AddColumns(T, (AddedColumn(column=specs("A int")[0]),), if_not_exists=True)
    assert not changed(there, start).actions
    with_ntz = altered(add(specs("n timestamp_ntz")[0]), start)
    assert "timestampNtz" in with_ntz.features


def test_columns_are_dropped() -> None:
    start = table(
        "a int, b int, s struct<x: int, y: int>, p int",
        partition_by=("p",),
        properties={**MAPPED, "delta.dataSkippingStatsColumns": "a, S.X, s.y"},
    )
    change = changed(DropColumns(T, (("A",), ("s", "x"))), start)
    assert (change.operation, change.parameters["columns"]) == ("DROP COLUMNS", '["A","s.x"]')
    now = after(start, change)
    assert plain(now.schema) == plain(schema("b int, s struct<y: int>, p int"))
    assert now.metadata.configuration["delta.dataSkippingStatsColumns"] == "s.y"
    refused(DropColumns(T, (("P",),)), start, "partition column P")
    refused(DropColumns(T, (("z",),)), start, "no column z")
    assert not changed(DropColumns(T, (("z",),), if_exists=True), start).actions
    refused(DropColumns(T, (("a",),)), table("a int, b int"), "without column mapping")
    clustered = table("a int, s struct<x: int>", cluster_by=("s.x",), properties=MAPPED)
    refused(DropColumns(T, (("s",),)), clustered, r"clustering column s\.x")


def test_what_is_used_is_neither_dropped_nor_renamed_nor_retyped() -> None:
    start = altered(
        AddConstraint(T, CheckConstraint("c", sql("S.x > 0"))),
        table("s struct<x: int, y: int>, z int", properties=MAPPED),
    )
    for path in (("s",), ("s", "x")):
        refused(DropColumns(T, (path,)), start, r"constraint c \(S\.x > 0\)")
        refused(RenameColumn(T, path, "new"), start, "constraint c")
    altered(DropColumns(T, (("s", "y"),)), start)
    wide = altered(SetProperties(T, (("delta.enableTypeWidening", "true"),)), start)
    refused(AlterColumn(table=T, column=("s", "x"), data_type="long"), wide, "constraint c")
    altered(AlterColumn(table=T, column=("z",), data_type="long"), wide)


def test_a_generated_column_goes_together_with_its_source() -> None:
    change = create(
        CreateTable(
            table=T,
            columns=(*specs("a int, b int"), ColumnSpec(name="g", data_type="int", generated="a")),
            properties=tuple(MAPPED.items()),
        ),
        None,
        environment(),
    )
    assert change is not None
    start = Snapshot.empty("t").apply(change.actions, version=0)
    refused(DropColumns(T, (("a",),)), start, r"generated column g \(a\)")
    assert altered(DropColumns(T, (("a",), ("g",))), start).schema.names == ("b",)


def test_columns_are_renamed() -> None:
    start = table(
        "a int, p int",
        partition_by=("p",),
        properties={**MAPPED, "delta.dataSkippingStatsColumns": "a"},
    )
    now = altered(RenameColumn(T, ("a",), "odd name"), start)
    assert now.schema.names == ("odd name", "p")
    assert now.schema.fields[0].physical_name == start.schema.fields[0].physical_name
    assert now.metadata.configuration["delta.dataSkippingStatsColumns"] == "`odd name`"
    change = changed(RenameColumn(T, ("P",), "q"), start)
    assert change.operation == "RENAME COLUMN"
    assert change.parameters == {"oldColumnPath": "P", "newColumnPath": "q"}
    assert after(start, change).partition_columns == ("q",)
    refused(RenameColumn(T, ("a",), "P"), start, "there is a column p")
    refused(RenameColumn(T, ("a",), "b"), table("a int"), "without column mapping")


def test_columns_are_replaced() -> None:
    start = table("a int NOT NULL, b int", properties=MAPPED)
    statement = ReplaceColumns(
        T,
        (
            ColumnSpec(name="b", data_type="int", comment="x"),
            ColumnSpec(name="a", data_type="int"),
            ColumnSpec(name="n", data_type="long"),
        ),
    )
    now = altered(statement, start)
    assert plain(now.schema) == plain(schema("b int COMMENT 'x', a int, n long"))
    assert {item.name: item.column_id for item in now.schema} == {"a": 1, "b": 2, "n": 3}
    assert altered(ReplaceColumns(T, specs("b int")), start).schema.names == ("b",)
    refused(ReplaceColumns(T, specs("b int, n int")), start, "renaming")
    refused(ReplaceColumns(T, specs("a long, b int")), start, "enableTypeWidening")
    refused(ReplaceColumns(T, specs("a int, b int NOT NULL")), start, "SET NOT NULL")
    refused(ReplaceColumns(T, specs("a int")), table("a int, b int"), "without column mapping")


def test_types_change_where_the_table_widens() -> None:
    start = table("a int, l array<struct<e: int>>")
    refused(
        AlterColumn(table=T, column=("a",), data_type="long"), start, "delta.enableTypeWidening"
    )
    wide = altered(SetProperties(T, (("delta.enableTypeWidening", "true"),)), start)
    change = changed(AlterColumn(table=T, column=("A",), data_type="long"), wide)
    assert change.operation == "CHANGE COLUMN"
    now = after(wide, change)
    assert now.schema.fields[0].type == Primitive("long")
    assert now.schema.fields[0].metadata["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long"}
    ]
    deep = altered(AlterColumn(table=T, column=("l", "element", "e"), data_type="long"), wide)
    assert plain(deep.schema) == plain(schema("a int, l array<struct<e: long>>"))


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("varchar(3)", "varchar(5)", True),
        ("varchar(5)", "varchar(3)", False),
        ("varchar(5)", "string", True),
        ("char(3)", "varchar(3)", True),
        ("char(3)", "string", True),
        ("string", "varchar(9)", False),
        ("varchar(3)", "char(9)", False),
        ("array<varchar(3)>", "array<varchar(5)>", True),
        ("array<varchar(5)>", "array<varchar(3)>", False),
    ],
)
def test_bounds_of_texts_only_grow(old: str, new: str, allowed: bool) -> None:
    start = table(f"a {old}")
    statement = AlterColumn(table=T, column=("a",), data_type=new)
    if not allowed:
        refused(statement, start, "may not fit")
        return
    (a,) = altered(statement, start).schema
    assert a.metadata.get(CHAR_VARCHAR_TYPE) == (None if new == "string" else new)


def test_not_null_comment_default_and_position() -> None:
    asked: list[str] = []

    def no_row(condition: str) -> None:
        asked.append(condition)

    start = table("a int, b int, c int")
    env = environment(violating_row=no_row)
    change = alter(
        AlterColumn(
            table=T,
            column=("c",),
            nullable=False,
            comment="x",
            default="1",
            position=After("a"),
        ),
        start,
        env,
    )
    assert (asked, change.reads) == (["c IS NOT NULL"], (EVERY_ROW,))
    assert change.parameters["position"] == "AFTER a"
    now = after(start, change)
    c = now.schema.fields[1]
    assert (c.name, c.nullable) == ("c", False)
    assert c.metadata == {"comment": "x", "CURRENT_DEFAULT": "1"}
    assert {"allowColumnDefaults", "invariants"} <= now.features
    change = alter(AlterColumn(table=T, column=("c",), nullable=True, drop_default=True), now, env)
    c = after(now, change).schema.fields[1]
    assert (c.nullable, c.metadata, change.reads, len(asked)) == (True, {"comment": "x"}, (), 1)


def test_what_a_column_cannot_become() -> None:
    start = table("a int, s struct<x: int>, l array<int>")

    def row(condition: str) -> Mapping[str, object]:
        return {"a": None}

    with pytest.raises(InvalidRequest, match=r"a row has null there: \{'a': None\}"):
        alter(
            AlterColumn(table=T, column=("a",), nullable=False),
            start,
            environment(violating_row=row),
        )
    refused(AlterColumn(table=T, column=("s", "x"), nullable=False), start, "while s can be null")
    refused(AlterColumn(table=T, column=("l", "element"), nullable=False), start, "a struct")
    refused(AlterColumn(table=T, column=("s", "x"), default="1"), start, "top-level")
    refused(AlterColumn(table=T, column=("a",), default="s.x"), start, "can't use columns")
    refused(AlterColumn(table=T, column=("z",), comment="x"), start, "no column z")
    refused(AlterColumn(table=T, column=("a",), position=After("z")), start, "no column z")


# --- constraints ----------------------------------------------------------------------------------


def test_constraints() -> None:
    start = table("a int")
    change = changed(AddConstraint(T, CheckConstraint("Positive", sql("a > 0"))), start)
    assert (change.operation, change.reads) == ("ADD CONSTRAINT", (EVERY_ROW,))
    assert change.parameters == {"name": "Positive", "expr": "a > 0"}
    now = after(start, change)
    assert now.properties.constraints == {"positive": "a > 0"}
    assert "checkConstraints" in now.features
    refused(AddConstraint(T, CheckConstraint("POSITIVE", sql("a > 1"))), now, "there already")
    refused(AddConstraint(T, CheckConstraint("c", sql("z > 1"))), now, "no column z")
    change = changed(DropConstraint(T, "POSITIVE"), now)
    assert change.parameters == {"name": "POSITIVE", "expr": "a > 0", "existed": "true"}
    assert after(now, change).properties.constraints == {}
    refused(DropConstraint(T, "none"), now, "there are: positive")
    assert not changed(DropConstraint(T, "none", if_exists=True), now).actions


def test_a_constraint_that_a_row_violates_or_that_is_no_condition() -> None:
    statement = AddConstraint(T, CheckConstraint("c", sql("a > 0")))
    with pytest.raises(InvalidRequest, match=r"a row violates it: \{'a': -1\}"):
        alter(statement, table("a int"), environment(violating_row=lambda condition: {"a": -1}))
    with pytest.raises(InvalidRequest, match="has type int; expected a condition"):
        alter(
            statement,
            table("a int"),
            environment(type_of=lambda text, over: Primitive("integer")),
        )


# --- features and protocol ------------------------------------------------------------------------


def test_features_are_added_and_dropped() -> None:
    start = table("a int")
    now = altered(AddFeature(T, "domainmetadata"), start)
    assert "domainMetadata" in now.features
    assert not changed(AddFeature(T, "domainMetadata"), now).actions
    change = changed(DropFeature(T, "domainMetadata"), now)
    assert change.parameters == {"featureName": "domainMetadata", "truncateHistory": False}
    assert after(now, change).features == start.features
    refused(AddFeature(T, "nonsense"), start, "unknown")


def test_features_that_cannot_be_dropped() -> None:
    start = table("a int, b int", cluster_by=("a",))
    refused(DropFeature(T, "nonsense"), start, "it has: .*clustering")
    refused(DropFeature(T, "domainMetadata"), start, "clustering needs it")
    refused(DropFeature(T, "clustering", truncate_history=True), start, "TRUNCATE HISTORY")
    constrained = altered(AddConstraint(T, CheckConstraint("c", sql("a > 0"))), start)
    refused(DropFeature(T, "checkConstraints"), constrained, "constraints: c")


def test_a_catalogs_table_stays_one_until_it_is_detached() -> None:
    start = table("a int")
    held = start.apply(attach_actions(Membership("lake", "table", "s"), start))
    refused(DropFeature(T, "txlakeCatalog"), held, "until it is detached")
    refused(DropFeature(T, "domainMetadata"), held, "txlakeCatalog needs it")


def test_dropping_clears_what_the_feature_left() -> None:
    start = table("a int", cluster_by=("a",), properties={"delta.enableInCommitTimestamps": "true"})
    change = changed(DropFeature(T, "clustering"), start)
    assert domain_of(change).removed
    assert "clustering" not in after(start, change).features
    now = altered(DropFeature(T, "inCommitTimestamp"), start)
    assert "inCommitTimestamp" not in now.features
    assert "delta.enableInCommitTimestamps" not in now.metadata.configuration
    old = table("a int", properties={"delta.enableDeletionVectors": "false"})
    legacy = altered(AddConstraint(T, CheckConstraint("c", sql("a > 0"))), old)
    assert legacy.protocol.writer_features is None
    freed = altered(DropFeature(T, "checkConstraints"), altered(DropConstraint(T, "c"), legacy))
    assert freed.features == {"appendOnly", "invariants"}


def test_deletion_vectors_are_dropped_when_no_file_has_one() -> None:
    start = table("a int", files=2)
    now = altered(DropFeature(T, "deletionvectors"), start)
    assert "deletionVectors" not in now.features
    assert "delta.enableDeletionVectors" not in now.metadata.configuration
    assert (now.protocol.min_reader_version, now.protocol.reader_features) == (1, None)
    mapped = altered(DropFeature(T, "deletionVectors"), table("a int", properties=MAPPED))
    assert mapped.protocol.min_reader_version == 2
    assert mapped.protocol.reader_features is None

    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="x" * 20, size_in_bytes=1, cardinality=1
    )
    (first, *_) = start.files.adds()
    marked = msgspec.structs.replace(first, deletion_vector=vector)
    found = start.apply((first.tombstone(timestamp_ms=1), marked))
    refused(DropFeature(T, "deletionVectors"), found, "found 1 of 2; set .*PURGE")


def test_protocols_only_rise() -> None:
    legacy = table("a int", properties={"delta.enableDeletionVectors": "false"})
    change = changed(UpgradeProtocol(T, 1, 3), legacy)
    assert change.operation == "UPGRADE PROTOCOL"
    assert (protocol_of(change).min_reader_version, protocol_of(change).min_writer_version) == (
        1,
        3,
    )
    now = after(legacy, change)
    assert not changed(UpgradeProtocol(T, 1, 3), now).actions
    assert not changed(UpgradeProtocol(T, 1, 2), now).actions
    refused(UpgradeProtocol(T, 3, 5), now, "7 with reader version 3")
    modern = altered(UpgradeProtocol(T, 3, 7), now)
    assert modern.features == now.features
    assert modern.protocol.reader_features == ()
    assert not changed(UpgradeProtocol(T, 1, 7), modern).actions
    assert not changed(UpgradeProtocol(T, 1, 3), table("a int")).actions


# --- clustering -----------------------------------------------------------------------------------


def test_clustering_changes() -> None:
    start = table("a int, s struct<x: int>", properties=MAPPED)
    change = changed(ClusterBy(T, ("S.x",)), start)
    assert change.operation == "CLUSTER BY"
    assert change.parameters == {"oldClusteringColumns": "", "newClusteringColumns": "s.x"}
    now = after(start, change)
    assert {"clustering", "domainMetadata"} <= now.features
    change = changed(ClusterBy(T, ()), now)
    assert change.parameters == {"oldClusteringColumns": "s.x", "newClusteringColumns": ""}
    assert json.loads(domain_of(change).configuration)["clusteringColumns"] == []
    assert not changed(ClusterBy(T, ("s.x",)), now).actions
    assert not changed(ClusterBy(T, ()), start).actions


def test_clustering_needs_statistics_and_no_partitions() -> None:
    refused(ClusterBy(T, ("a",)), table("a int, p int", partition_by=("p",)), "partitioned")
    few = table("a int, b int", properties={"delta.dataSkippingNumIndexedCols": "1"})
    refused(ClusterBy(T, ("b",)), few, "column b has no statistics")
    bare = table("a int, b int", files=2)
    refused(ClusterBy(T, ("a",)), bare, "2 of 2 data files have no statistics of column a")

    def with_file(stats: str) -> Snapshot:
        add = Add(
            path="f",
            partition_values={},
            size=1,
            modification_time=1,
            data_change=True,
            stats=stats,
        )
        return table("a int").apply([add])

    altered(ClusterBy(T, ("a",)), with_file('{"numRecords":1,"nullCount":{"a":1}}'))
    for stats in ("no JSON", "[]", '{"nullCount":[]}', '{"nullCount":{"a":null}}'):
        refused(ClusterBy(T, ("a",)), with_file(stats), "1 of 1 data files have no statistics")


def test_a_name_is_the_catalogs() -> None:
    refused(RenameTable(T, TableName(("u",))), table("a int"), "a lake renames")


def test_metadata_of_an_unchanged_schema_keeps_its_text() -> None:
    start = table("a int")
    spaced = json.dumps(json.loads(start.metadata.schema_string or ""), indent=1)
    foreign = start.apply([msgspec.structs.replace(start.metadata, schema_string=spaced)])
    change = changed(properties(mine="x"), foreign)
    assert metadata_of(change).schema_string == spaced
