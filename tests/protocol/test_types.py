from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from txlake.errors import CorruptTable
from txlake.protocol.actions import Metadata, decode_actions
from txlake.protocol.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    from_arrow_schema,
    from_arrow_type,
    parse_schema,
    schema_to_string,
    to_arrow_schema,
    to_arrow_type,
)

PHYSICAL = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 4}
SCHEMA = Struct(
    (
        Field("id", Primitive("long"), nullable=False, metadata={"comment": "key"}),
        Field("Name", Primitive("string"), metadata=PHYSICAL),
        Field("list", Array(Struct((Field("x", Primitive("decimal(10,2)")),)), False)),
        Field("map", Map(Primitive("string"), Array(Primitive("date")), False)),
        Field("deep", Struct((Field("inner", Struct((Field("leaf", Primitive("byte")),))),))),
    )
)


def test_a_schema_is_written_and_reads_back() -> None:
    assert parse_schema(schema_to_string(SCHEMA)) == SCHEMA
    assert parse_schema(None) == parse_schema("") == Struct(())


def test_a_schema_of_older_writers() -> None:
    text = '{"type":"struct","fields":[{"name":"a","type":"timestampNtz"}]}'
    assert parse_schema(text) == Struct((Field("a", Primitive("timestamp_ntz")),))
    text = (
        '{"type":"struct","fields":[{"name":"a","type":{"type":"udt","class":"c",'
        '"sqlType":{"type":"array","elementType":"double"}}}]}'
    )
    assert parse_schema(text) == Struct((Field("a", Array(Primitive("double"))),))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '"long"',
        '{"type":"array","elementType":"long"}',
        '{"type":"struct"}',
        '{"type":"struct","fields":["a"]}',
        '{"type":"struct","fields":[{"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a","type":{"type":"set"}}]}',
        '{"type":"struct","fields":[{"name":"a","type":7}]}',
    ],
)
def test_what_is_no_schema_names_its_file(text: str) -> None:
    with pytest.raises(CorruptTable, match=r"some/log: schemaString"):
        parse_schema(text, file="some/log")


def test_columns_are_found_whatever_their_letter_case() -> None:
    assert SCHEMA.find("NAME") is SCHEMA.fields[1]
    assert SCHEMA.find("nosuch") is None
    twins = Struct((Field("A", Primitive("long")), Field("a", Primitive("byte"))))
    found = twins.find("a")
    assert found is not None
    assert found.type == Primitive("byte")
    leaf = SCHEMA.resolve(("Deep", "INNER", "leaf"))
    assert leaf is not None
    assert leaf.type == Primitive("byte")
    assert SCHEMA.resolve(("list", "x")) is None
    assert SCHEMA.resolve(()) is None
    assert SCHEMA.names == ("id", "Name", "list", "map", "deep")


def test_mapped_columns_have_physical_names_and_ids() -> None:
    assert (SCHEMA.fields[1].physical_name, SCHEMA.fields[1].column_id) == ("col-1", 4)
    assert (SCHEMA.fields[0].physical_name, SCHEMA.fields[0].column_id) == ("id", None)
    assert to_arrow_schema(SCHEMA).names[1] == "Name"
    assert to_arrow_schema(SCHEMA, physical=True).names[1] == "col-1"


@pytest.mark.parametrize(
    ("name", "size", "is_string"),
    [
        ("decimal(10,2)", (10, 2), False),
        ("decimal( 38 , 18 )", (38, 18), False),
        ("decimal", (10, 0), False),
        ("char(3)", None, True),
        ("varchar(3)", None, True),
        ("string collate UNICODE", None, True),
        ("long", None, False),
    ],
)
def test_kinds_of_primitive_types(name: str, size: tuple[int, int] | None, is_string: bool) -> None:
    assert Primitive(name).decimal == size
    assert Primitive(name).is_string is is_string


ARROW: list[tuple[DataType, pa.DataType]] = [
    (Primitive("string"), pa.string()),
    (Primitive("long"), pa.int64()),
    (Primitive("integer"), pa.int32()),
    (Primitive("short"), pa.int16()),
    (Primitive("byte"), pa.int8()),
    (Primitive("float"), pa.float32()),
    (Primitive("double"), pa.float64()),
    (Primitive("boolean"), pa.bool_()),
    (Primitive("binary"), pa.binary()),
    (Primitive("date"), pa.date32()),
    (Primitive("timestamp"), pa.timestamp("us", tz="UTC")),
    (Primitive("timestamp_ntz"), pa.timestamp("us")),
    (Primitive("decimal(38,18)"), pa.decimal128(38, 18)),
    (Primitive("void"), pa.null()),
    (Array(Primitive("long"), False), pa.list_(pa.field("element", pa.int64(), False))),
    (
        Map(Primitive("string"), Primitive("long"), False),
        pa.map_(pa.string(), pa.field("value", pa.int64(), False)),
    ),
    (Struct((Field("a", Primitive("long")),)), pa.struct([pa.field("a", pa.int64())])),
]


@pytest.mark.parametrize(("delta", "arrow"), ARROW, ids=str)
def test_types_have_an_arrow_form_and_come_back(delta: DataType, arrow: pa.DataType) -> None:
    assert to_arrow_type(delta) == arrow
    assert from_arrow_type(arrow) == delta


def test_nullability_goes_both_ways() -> None:
    arrow = to_arrow_schema(SCHEMA)
    assert not arrow.field("id").nullable
    assert not arrow.field("map").type.item_field.nullable
    assert [field.nullable for field in from_arrow_schema(arrow)] == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("delta", "arrow"),
    [
        ("char(3)", pa.string()),
        ("geometry(OGC:CRS84)", pa.binary()),
        ("geography(OGC:CRS84, spherical)", pa.binary()),
    ],
)
def test_types_that_files_hold_as_others(delta: str, arrow: pa.DataType) -> None:
    assert to_arrow_type(Primitive(delta)) == arrow


def test_a_variant_is_its_two_parts() -> None:
    assert {field.name for field in to_arrow_type(Primitive("variant"))} == {"value", "metadata"}


@pytest.mark.parametrize(
    ("arrow", "delta"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(4), "binary"),
        (pa.date64(), "date"),
        (pa.timestamp("ns", tz="Europe/Berlin"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.decimal256(38, 2), "decimal(38,2)"),
        (pa.float16(), "float"),
    ],
    ids=str,
)
def test_arrow_types_that_a_delta_type_holds(arrow: pa.DataType, delta: str) -> None:
    assert from_arrow_type(arrow) == Primitive(delta)


def test_lists_of_every_kind() -> None:
    for arrow in (pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)):
        assert from_arrow_type(arrow) == Array(Primitive("long"))


@pytest.mark.parametrize(
    "arrow",
    [pa.uint64(), pa.time32("s"), pa.duration("s"), pa.decimal256(50, 2), pa.decimal128(5, -2)],
    ids=str,
)
def test_arrow_types_that_no_delta_type_holds(arrow: pa.DataType) -> None:
    with pytest.raises(ValueError, match="no Delta form"):
        from_arrow_type(arrow)


def test_a_type_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="'interval year' has no Arrow form"):
        to_arrow_type(Primitive("interval year"))


def test_schemas_of_the_golden_tables_read_back(golden: Path) -> None:
    seen = 0
    for commit in golden.rglob("_delta_log/[0-9]*.json"):
        try:
            actions = decode_actions(commit.read_bytes(), file=str(commit))
        except CorruptTable:
            continue
        for action in actions:
            if isinstance(action, Metadata) and action.schema_string:
                schema = parse_schema(action.schema_string, file=str(commit))
                assert parse_schema(schema_to_string(schema)) == schema
                if "udt" not in action.schema_string:
                    written = json.loads(schema_to_string(schema))
                    assert json.loads(action.schema_string)["type"] == written["type"]
                to_arrow_schema(schema)
                seen += 1
    assert seen > 150
