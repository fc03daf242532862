"""Columns as Iceberg's: types, ids, names in files."""

from __future__ import annotations

import json

import pytest
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json

from tests.iceberg.tables import PROPERTIES
from tests.session.tables import table
from txlake.errors import InvalidRequest
from txlake.iceberg.schema import iceberg_schema, leaf_paths, name_mapping
from txlake.protocol.column_mapping import nested_ids

PRIMITIVES = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "decimal(38,10)": "decimal(38, 10)",
}


@pytest.mark.parametrize(("delta", "iceberg"), PRIMITIVES.items())
def test_primitive_types(delta: str, iceberg: str) -> None:
    found = iceberg_schema(table(f"a {delta} NOT NULL", properties=PROPERTIES).schema)
    assert str(found.find_field("a")) == f"1: a: required {iceberg}"


def test_ids_are_those_of_column_mapping_also_inside_of_lists_and_maps() -> None:
    schema = table(
        "a int, l array<struct<x:int>>, m map<string,array<int>>, s struct<y:string>",
        properties=PROPERTIES,
    ).schema
    found = iceberg_schema(schema)
    list_column, map_column, struct_column = schema.fields[1:]
    assert found.find_field("l").field_id == list_column.column_id
    assert found.find_field("s.y").field_id == struct_column.type.fields[0].column_id  # type: ignore[union-attr]
    ids = nested_ids(list_column)
    assert found.find_field("l.element").field_id == ids[f"{list_column.physical_name}.element"]
    physical, ids = map_column.physical_name, nested_ids(map_column)
    assert found.find_field("m.key").field_id == ids[f"{physical}.key"]
    assert found.find_field("m.value").field_id == ids[f"{physical}.value"]
    assert found.find_field("m.value.element").field_id == ids[f"{physical}.value.element"]
    assert not found.find_field("l.element").required
    assert found.find_field("m.key").required


def test_comments_are_kept() -> None:
    field = table("a int", properties=PROPERTIES).schema.fields[0]
    field.metadata["comment"] = "of a"
    schema = table("a int", properties=PROPERTIES).schema
    object.__setattr__(schema, "fields", (field,))
    assert iceberg_schema(schema).find_field("a").doc == "of a"


def test_the_name_mapping_has_the_names_in_files() -> None:
    schema = table("a int, l array<struct<x:int>>, m map<string,int>", properties=PROPERTIES).schema
    mapped = parse_mapping_from_json(name_mapping(schema))
    a, items, counts = schema.fields
    assert field_id(mapped, a.physical_name) == a.column_id
    inner = items.type.element.fields[0]  # type: ignore[union-attr]
    assert field_id(mapped, items.physical_name, "element", inner.physical_name) == inner.column_id
    value = nested_ids(counts)[f"{counts.physical_name}.value"]
    assert field_id(mapped, counts.physical_name, "value") == value
    assert json.loads(name_mapping(schema))[0]["names"] == [a.physical_name]


def field_id(mapping: NameMapping, *names: str) -> int | None:
    """The id at a path of names in files."""
    fields, found = mapping.root, None
    for name in names:
        (found,) = [each for each in fields if name in each.names]
        fields = found.fields
    assert found is not None
    return found.field_id


def test_what_iceberg_hasnt_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="column a has no id; REORG TABLE"):
        iceberg_schema(table("a int").schema)
    mapped = {"delta.columnMapping.mode": "name"}
    with pytest.raises(InvalidRequest, match=r"column a has no id for .*\.element; REORG"):
        iceberg_schema(table("a array<int>", properties=mapped).schema)
    with pytest.raises(InvalidRequest, match="column a is of type void, which Iceberg v2 hasn't"):
        iceberg_schema(table("a void", properties=mapped).schema)


def test_columns_with_statistics_are_those_outside_of_lists_and_maps() -> None:
    schema = table("a int, s struct<x:int,l:array<int>>, m map<int,int>").schema
    found = [".".join(item.name for item in path) for path in leaf_paths(schema)]
    assert found == ["a", "s.x"]
