from __future__ import annotations

import json

import pytest

from txlake.errors import UnsupportedFeature
from txlake.log.coercion import has_plain_text
from txlake.protocol.actions import Metadata, Protocol
from txlake.protocol.collations import collated_columns, collated_type
from txlake.protocol.features import check_writable
from txlake.protocol.type_text import declared_type, short_text, sql_text
from txlake.protocol.types import DataType, Field, Map, Primitive, Struct, type_from_json

STRING = Primitive("string")


def field(name: str, data_type: DataType, **collations: str) -> Field:
    found = {path.replace("__", "."): one for path, one in collations.items()}
    return Field(name, data_type, metadata={"__COLLATIONS": found} if found else {})


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (field("s", STRING, s="spark.UTF8_LCASE"), "string collate UTF8_LCASE"),
        (field("s", STRING, s="icu.de_CI_AI.75.1"), "string collate de_CI_AI"),
        (field("s", STRING, s="spark.UTF8_BINARY"), "string"),
        (field("s", STRING, other="spark.UTF8_LCASE"), "string"),
        (field("s", STRING), "string"),
        (field("s", Primitive("string collate UNICODE")), "string collate UNICODE"),
        (
            field("m", Map(STRING, STRING), m__key="spark.UTF8_LCASE"),
            "map<string collate UTF8_LCASE,string>",
        ),
        (
            field("n", Struct((field("x", STRING, x="spark.UTF8_LCASE"), field("y", STRING)))),
            "struct<x:string collate UTF8_LCASE,y:string>",
        ),
        (field("i", Primitive("integer")), "int"),
    ],
)
def test_the_type_that_is_shown(item: Field, text: str) -> None:
    assert short_text(collated_type(item)) == short_text(declared_type(item)) == text
    assert sql_text(collated_type(item)).count("COLLATE") == text.count("collate")
    if item.type == STRING and "collate" in text:  # in the letters that Spark suggests
        assert sql_text(collated_type(item)) == f"STRING COLLATE {text.rpartition(' ')[2]}"
    assert collated_columns(Struct((item,))) == ([item.name] if "collate" in text else [])
    assert has_plain_text(item) is (text == "string")


def test_it_is_read_from_nested_types() -> None:
    text = {
        "type": "struct",
        "fields": [
            {
                "name": "a",
                "type": {
                    "type": "array",
                    "elementType": {
                        "type": "map", "keyType": "string", "valueType": "string",
                        "valueContainsNull": True,
                    },
                    "containsNull": True,
                },
                "nullable": True,
                "metadata": {"__COLLATIONS": {"a.element.value": "icu.UNICODE_CI"}},
            }
        ],
    }  # fmt: skip
    found = type_from_json(text)
    assert isinstance(found, Struct)
    assert short_text(collated_type(found.fields[0])) == (
        "array<map<string,string collate UNICODE_CI>>"
    )


def test_writing_is_refused_whatever_the_protocol_says() -> None:
    schema = {
        "type": "struct",
        "fields": [
            {
                "name": "s", "type": "string", "nullable": True,
                "metadata": {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}},
            }
        ],
    }  # fmt: skip
    metadata = Metadata(id="1", schema_string=json.dumps(schema), partition_columns=())
    with pytest.raises(UnsupportedFeature, match=r"t: .* collations \(of s\)"):
        check_writable(Protocol(min_reader_version=1, min_writer_version=2), metadata, table="t")
    for name in ("collations", "collations-preview"):
        listed = Protocol(min_reader_version=1, min_writer_version=7, writer_features=(name,))
        with pytest.raises(UnsupportedFeature, match=name):
            check_writable(listed, metadata, table="t")
