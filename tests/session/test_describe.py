from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from tests.session.tables import T, after, environment, specs, sql, table
from txlake.commit.history import history_row
from txlake.ddl.alter import alter
from txlake.ddl.create import create
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, CommitInfo
from txlake.protocol.properties import CONSTRAINT_PREFIX
from txlake.session.views.describe import (
    columns,
    create_statement,
    describe_column,
    detail,
    history,
    partitions,
    properties,
)
from txlake.sql.parser import parse
from txlake.sql.statements import (
    AddConstraint,
    CheckConstraint,
    ColumnSpec,
    CreateTable,
)

PLACE = "file:///data/t"


def made(statement: CreateTable) -> Snapshot:
    change = create(statement, None, environment())
    assert change is not None
    return Snapshot.empty("t").apply(change.actions, version=0, timestamp_ms=1_500)


@pytest.fixture
def rich() -> Snapshot:
    found = made(
        CreateTable(
            table=T,
            columns=(
                ColumnSpec(name="a", data_type="int", nullable=False, comment="it's"),
                ColumnSpec(name="odd name", data_type="varchar(3)", default="'q'"),
                ColumnSpec(name="s", data_type="struct<x: int, `y z`: array<string>>"),
                ColumnSpec(name="g", data_type="date", generated="CAST(p AS DATE)"),
                ColumnSpec(name="p", data_type="timestamp"),
            ),
            partition_by=("g",),
            comment="about 'it'",
            properties=(("delta.columnMapping.mode", "name"), ("mine", "x")),
        )
    )
    constraint = AddConstraint(T, CheckConstraint("c", sql("a > 0")))
    return after(found, alter(constraint, found, environment()))


def test_columns_as_spark_shows_them(rich: Snapshot) -> None:
    found = columns(rich)
    assert found.schema.names == ("col_name", "data_type", "comment")
    assert found.rows == [
        ("a", "int", "it's"),
        ("odd name", "varchar(3)", None),
        ("s", "struct<x:int,y z:array<string>>", None),
        ("g", "date", None),
        ("p", "timestamp", None),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("g", "date", None),
    ]


def test_details_come_with_extended(rich: Snapshot) -> None:
    rows = list(columns(rich, location=PLACE).rows)[8:]
    assert rows[:6] == [
        ("", "", ""),
        ("# Detailed Table Information", "", ""),
        ("Name", "t", ""),
        ("Comment", "about 'it'", ""),
        ("Location", PLACE, ""),
        ("Provider", "delta", ""),
    ]
    assert rows[6][0] == "Table Properties"
    assert "delta.constraints.c=a > 0,delta.enableDeletionVectors=true" in str(rows[6][1])
    assert rows[7:] == [
        ("", "", ""),
        ("# Column Default Values", "", ""),
        ("odd name", "varchar(3)", "'q'"),
    ]


def test_clustering_is_shown() -> None:
    found = columns(table("a int, s struct<x: int>", cluster_by=("s.x",)))
    assert found.rows[-3:] == [
        ("# Clustering Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("s.x", "int", None),
    ]


def test_one_column(rich: Snapshot) -> None:
    assert describe_column(rich, ("A",)).rows == [
        ("col_name", "a"),
        ("data_type", "int"),
        ("comment", "it's"),
    ]
    assert describe_column(rich, ("p",)).rows[2] == ("comment", "NULL")
    with pytest.raises(InvalidRequest, match=r"top-level column, found s\.x"):
        describe_column(rich, ("s", "x"))
    with pytest.raises(InvalidRequest, match="no column z; there are: a, `odd name`"):
        describe_column(rich, ("z",))


def test_properties() -> None:
    found = table("a int", properties={"mine": "x"})
    assert properties(found, None).rows == [
        ("delta.enableDeletionVectors", "true"),
        ("delta.feature.appendOnly", "supported"),
        ("delta.feature.deletionVectors", "supported"),
        ("delta.feature.invariants", "supported"),
        ("delta.minReaderVersion", "3"),
        ("delta.minWriterVersion", "7"),
        ("mine", "x"),
    ]
    assert properties(found, "mine").rows == [("mine", "x")]
    assert properties(found, "none").rows == [("none", "Table t does not have property: none")]


def test_partitions_are_typed_and_distinct() -> None:
    start = table("a int, p int, q string", partition_by=("p", "q"))
    values = [("10", "x"), ("9", "x"), ("9", None), (None, "x"), ("9", "x")]
    found = start.apply(
        [
            Add(
                path=f"f{i}",
                partition_values={"p": p, "q": q},
                size=1,
                modification_time=1,
                data_change=True,
            )
            for i, (p, q) in enumerate(values)
        ]
    )
    rows = partitions(found)
    assert rows.schema.names == ("p", "q")
    assert rows.rows == [(None, "x"), (9, None), (9, "x"), (10, "x")]
    with pytest.raises(InvalidRequest, match="t: SHOW PARTITIONS needs a partitioned table"):
        partitions(table("a int"))


def test_detail() -> None:
    found = table("a int, b int", cluster_by=("b",), files=3, comment="about")
    rows = detail(found, location=PLACE)
    (row,) = rows.rows
    values = dict(zip(rows.schema.names, row, strict=True))
    assert values == {
        "format": "delta",
        "id": found.metadata.id,
        "name": "t",
        "description": "about",
        "location": PLACE,
        "createdAt": datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC),
        "lastModified": datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=datetime.UTC),
        "partitionColumns": [],
        "clusteringColumns": ["b"],
        "numFiles": 3,
        "sizeInBytes": 30,
        "properties": {"delta.enableDeletionVectors": "true"},
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "tableFeatures": [
            "appendOnly",
            "clustering",
            "deletionVectors",
            "domainMetadata",
            "invariants",
        ],
    }
    unnamed = detail(replace(found, table=PLACE), location=PLACE)
    assert unnamed.rows[0][2] is None


def test_history_has_the_columns_of_delta() -> None:
    info = CommitInfo(
        {
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "job": {"jobId": "7"},
            "operationMetrics": {"numFiles": "1"},
        }
    )
    rows = history([history_row(3, info, 1_001)])
    values = dict(zip(rows.schema.names, rows.rows[0], strict=True))
    assert values["version"] == 3
    assert values["timestamp"] == datetime.datetime(1970, 1, 1, 0, 0, 1, 1_000, tzinfo=datetime.UTC)
    assert values["operationParameters"] == {"mode": "Append"}
    assert values["job"] == ("7", None, None, None, None, None)
    assert values["notebook"] is None


def test_the_create_statement_makes_the_same_table(rich: Snapshot) -> None:
    text = create_statement(rich, location=PLACE)
    (statement,) = parse(text)
    assert isinstance(statement, CreateTable)
    assert (statement.location, statement.comment) == (PLACE, "about 'it'")
    again = made(statement)
    assert again.protocol == rich.protocol
    assert again.metadata.partition_columns == rich.metadata.partition_columns
    internal = {"delta.columnMapping.maxColumnId"}
    assert {
        key: value for key, value in again.metadata.configuration.items() if key not in internal
    } == {key: value for key, value in rich.metadata.configuration.items() if key not in internal}
    for one, other in zip(again.schema, rich.schema, strict=True):
        assert (one.name, one.nullable) == (other.name, other.nullable)
        hidden = {"delta.columnMapping.physicalName"}
        assert {k: v for k, v in one.metadata.items() if k not in hidden} == {
            k: v for k, v in other.metadata.items() if k not in hidden
        }
    assert f"'{CONSTRAINT_PREFIX}c' = 'a > 0'" in text


def test_the_create_statement_of_a_clustered_path_table() -> None:
    found = replace(table("a int", cluster_by=("a",)), table=PLACE)
    text = create_statement(found, location=PLACE)
    assert text.startswith(f"CREATE TABLE delta.`{PLACE}` (\n  a INT)\nUSING delta\nCLUSTER BY (a)")
    (statement,) = parse(text)
    assert isinstance(statement, CreateTable)
    assert made(statement).domains == found.domains


def test_specs_helper_reads_what_the_tests_write() -> None:
    assert specs("`a b` map<int, int> NOT NULL, c int") == (
        ColumnSpec(name="a b", data_type="map<int, int>", nullable=False),
        ColumnSpec(name="c", data_type="int"),
    )
