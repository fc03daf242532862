"""icebergCompatV2 in CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

import msgspec
import pytest

from tests.session.tables import T, after, environment, specs, table
from txlake.ddl.alter import alter
from txlake.ddl.create import create
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.column_mapping import MAX_ID_PROPERTY, nested_ids
from txlake.protocol.features import protocol_for
from txlake.protocol.iceberg import ENABLE
from txlake.sql.statements import (
    AddColumns,
    AddedColumn,
    AlterColumn,
    AlterStatement,
    CreateTable,
    DropFeature,
    SetProperties,
    UnsetProperties,
)

ON = {ENABLE: "true"}
NAMED = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "false"}


def altered(statement: AlterStatement, snapshot: Snapshot) -> Snapshot:
    return after(snapshot, alter(statement, snapshot, environment()))


def refused(statement: AlterStatement, snapshot: Snapshot, message: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^t: .*{message}"):
        alter(statement, snapshot, environment())


def test_a_new_table_has_mapped_columns_and_no_deletion_vectors() -> None:
    now = table("a array<int>, p int", partition_by=("p",), properties=ON)
    assert now.is_iceberg_compatible
    assert now.materializes_partitions
    assert now.column_mapping_mode == "name"
    assert not now.properties.enable_deletion_vectors
    assert now.features == {"appendOnly", "invariants", "columnMapping", "icebergCompatV2"}
    item = now.schema.fields[0]
    assert nested_ids(item) == {f"{item.physical_name}.element": 3}
    assert now.metadata.configuration[MAX_ID_PROPERTY] == "3"
    assert table("a int", properties={**ON, "delta.columnMapping.mode": "id"}).is_iceberg_compatible


@pytest.mark.parametrize(
    ("columns", "properties", "message"),
    [
        ("a int", {"delta.columnMapping.mode": "none"}, "needs mapped columns"),
        ("a int", {"delta.enableDeletionVectors": "true"}, "goes without deletion vectors"),
        ("a void", {}, "column a is of type void"),
    ],
)
def test_what_a_new_table_cant_be(columns: str, properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^t: .*{message}"):
        table(columns, properties={**ON, **properties})


def test_icebergs_readers_are_promised_nothing_without_the_rules() -> None:
    formats = "delta.universalFormat.enabledFormats"
    with pytest.raises(
        InvalidRequest, match=r"^t: .* needs 'delta.enableIcebergCompatV2' = 'true'"
    ):
        table("a int", properties={formats: "hudi, Iceberg"})
    assert table("a int", properties={formats: "hudi"}).metadata.configuration[formats] == "hudi"
    start = table("a int", properties=NAMED)
    refused(SetProperties(T, ((formats, "iceberg"),)), start, "DELTA_UNIVERSAL_FORMAT_VIOLATION")
    now = altered(SetProperties(T, ((ENABLE, "true"), (formats, "iceberg"))), start)
    assert now.metadata.configuration[formats] == "iceberg"
    assert formats not in altered(UnsetProperties(T, (ENABLE,)), now).metadata.configuration
    configuration = {**start.metadata.configuration, formats: "iceberg"}  # another engine's
    wrong = start.apply([msgspec.structs.replace(start.metadata, configuration=configuration)])
    assert altered(SetProperties(T, (("mine", "1"),)), wrong).metadata.configuration["mine"] == "1"


def test_a_table_is_altered_to_keep_the_rules_and_back() -> None:
    start = table("a array<int>, b int", properties=NAMED)
    assert not nested_ids(start.schema.fields[0])
    now = altered(SetProperties(T, ((ENABLE, "true"),)), start)
    assert now.is_iceberg_compatible
    assert [item.column_id for item in now.schema] == [1, 2]
    assert list(nested_ids(now.schema.fields[0]).values()) == [3]
    more = altered(AddColumns(T, (AddedColumn(column=specs("m map<int, string>")[0]),)), now)
    item = more.schema.fields[2]
    assert item.column_id == 4
    assert sorted(nested_ids(item).values()) == [5, 6]
    assert nested_ids(more.schema.fields[0]) == nested_ids(now.schema.fields[0])
    refused(DropFeature(T, "icebergCompatV2"), more, "no way to drop it; .*'false'")
    refused(DropFeature(T, "columnMapping"), more, "icebergCompatV2 needs it")
    for off in (SetProperties(T, ((ENABLE, "false"),)), UnsetProperties(T, (ENABLE,))):
        assert not altered(off, more).is_iceberg_compatible


def test_what_an_altered_table_needs_first() -> None:
    on = SetProperties(T, ((ENABLE, "true"),))
    refused(on, table("a int"), "'delta.columnMapping.mode'.* set it to 'name'")
    refused(on, table("a int", properties={"delta.columnMapping.mode": "name"}), "without deletion")
    both = SetProperties(T, ((ENABLE, "true"), *NAMED.items()))
    assert altered(both, table("a int")).is_iceberg_compatible
    now = table("a int", properties=ON)
    vectors = SetProperties(T, (("delta.enableDeletionVectors", "true"),))
    refused(vectors, now, "goes without deletion vectors")
    refused(AddColumns(T, (AddedColumn(column=specs("v void")[0]),)), now, "v is of type void")


def test_types_widen_as_icebergs_do() -> None:
    now = table("a int, f float", properties={**ON, "delta.enableTypeWidening": "true"})
    to_double = AlterColumn(table=T, column=("a",), data_type="double")
    refused(to_double, now, "column a was widened from integer to double")
    altered(AlterColumn(table=T, column=("a",), data_type="long"), now)
    altered(AlterColumn(table=T, column=("f",), data_type="double"), now)
    never = table("a int", properties={**NAMED, "delta.enableTypeWidening": "true"})
    doubled = altered(to_double, never)
    refused(SetProperties(T, ((ENABLE, "true"),)), doubled, "from integer to double")
    # The protocol asks for it as long as the feature is listed.
    off = altered(SetProperties(T, ((ENABLE, "false"),)), now)
    refused(to_double, off, "column a was widened from integer to double")


def test_what_another_engine_left_wrong_is_in_the_way_of_nothing_else() -> None:
    # A table that lists the feature, with deletion vectors and the rules both on.
    start = table("a int", properties={"delta.columnMapping.mode": "name"})
    wrong = {**start.metadata.configuration, ENABLE: "true"}
    metadata = msgspec.structs.replace(start.metadata, configuration=wrong)
    broken = start.apply([metadata, protocol_for(metadata, start.protocol)])
    assert broken.is_iceberg_compatible
    altered(SetProperties(T, (("mine", "x"),)), broken)
    mended = altered(SetProperties(T, (("delta.enableDeletionVectors", "false"),)), broken)
    refused(SetProperties(T, (("delta.enableDeletionVectors", "true"),)), mended, "goes without")


def test_a_replaced_table_keeps_its_partition_columns() -> None:
    before = table("a int, p int", partition_by=("p",), properties=ON)

    def replacement(*by: str) -> CreateTable:
        return CreateTable(
            table=T,
            columns=specs("a int, p bigint"),
            partition_by=by or None,
            properties=tuple(ON.items()),
            mode="or_replace",
        )

    assert create(replacement("p"), before, environment()) is not None
    for by in ((), ("a",)):
        with pytest.raises(InvalidRequest, match="partitioned by p can't become"):
            create(replacement(*by), before, environment())
