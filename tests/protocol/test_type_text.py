from __future__ import annotations

import pytest

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.protocol.type_text import (
    CHAR_VARCHAR_TYPE,
    declared_type,
    parse_columns,
    parse_type,
    short_text,
    sql_text,
    stored_field,
)
from txlake.protocol.types import Array, Field, Map, Primitive, Struct, type_to_json


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("int", "integer"),
        ("INTEGER", "integer"),
        (" bigint ", "long"),
        ("long", "long"),
        ("smallint", "short"),
        ("tinyint", "byte"),
        ("real", "float"),
        ("double", "double"),
        ("boolean", "boolean"),
        ("string", "string"),
        ("string collate utf8_binary", "string"),
        ("timestamp", "timestamp"),
        ("timestamp_ltz", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("decimal", "decimal(10,0)"),
        ("dec(7)", "decimal(7,0)"),
        ("NUMERIC( 10 , 2 )", "decimal(10,2)"),
        ("char(3)", "char(3)"),
        ("varchar(12)", "varchar(12)"),
        ("void", "void"),
        ("variant", "variant"),
        ('"integer"', "integer"),
    ],
)
def test_plain_types(text: str, name: str) -> None:
    assert parse_type(text) == Primitive(name)


def test_nested_types() -> None:
    found = parse_type(
        "struct<a: int NOT NULL COMMENT 'it''s', `b c` array<map<string, struct<x:int>>>>"
    )
    assert found == Struct(
        (
            Field("a", Primitive("integer"), False, {"comment": "it's"}),
            Field(
                "b c",
                Array(Map(Primitive("string"), Struct((Field("x", Primitive("integer")),)))),
            ),
        )
    )
    assert parse_type("struct<>") == Struct(())
    assert parse_type('{"type":"array","elementType":"long","containsNull":false}') == Array(
        Primitive("long"), False
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "strin",
        "decimal(39,2)",
        "decimal(2,3)",
        "decimal(1,2,3)",
        "char",
        "varchar(0)",
        "array<int",
        "array<int>>",
        "map<int>",
        "struct<a>",
        "int(3)",
        "interval day",
        '{"type": "x"}',
        "struct<a: int,>",
    ],
)
def test_no_types(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_type(text)


def test_the_message_points_at_the_place() -> None:
    with pytest.raises(InvalidRequest, match=r"at character 18, found 'strin>'"):
        parse_type("struct<a: int, b strin>")
    with pytest.raises(InvalidRequest, match=r"'>' at character 10, found the end"):
        parse_type("array<int")


def test_a_collation_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="collations"):
        parse_type("string collate UNICODE_CI")


def test_writing() -> None:
    schema = parse_columns("a int NOT NULL COMMENT 'x\\'y', `b c` map<string, array<decimal(3,1)>>")
    assert short_text(schema) == "struct<a:int,b c:map<string,array<decimal(3,1)>>>"
    assert sql_text(schema) == (
        "STRUCT<a: INT NOT NULL COMMENT 'x\\'y', `b c`: MAP<STRING, ARRAY<DECIMAL(3,1)>>>"
    )
    assert parse_type(sql_text(schema)) == schema


def test_char_and_varchar_are_stored_as_strings_with_their_declared_type() -> None:
    declared = parse_columns("c char(3), s struct<v: array<varchar(5)>>, n string")
    c, s, n = (stored_field(item) for item in declared)
    assert (c.type, c.metadata[CHAR_VARCHAR_TYPE]) == (Primitive("string"), "char(3)")
    assert s.metadata == {}
    assert isinstance(s.type, Struct)
    inner = s.type.fields[0]
    assert type_to_json(inner.type) == {
        "type": "array",
        "elementType": "string",
        "containsNull": True,
    }
    assert inner.metadata[CHAR_VARCHAR_TYPE] == "array<varchar(5)>"
    assert declared_type(inner) == Array(Primitive("varchar(5)"))
    assert stored_field(n) is n


@pytest.mark.parametrize(
    "text", ["GEOMETRY(4326)", "geography", "GEOMETRY(ANY)", "ARRAY<GEOGRAPHY(4326)>"]
)
def test_shapes_are_refused_by_their_features_name(text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=r"table feature geospatial.*; store the shape"):
        parse_type(text)
