"""SHOW TABLE EXTENDED: the lines that programs take apart are Spark's."""

from __future__ import annotations

from txlake.protocol.types import Array, Field, Map, Primitive, Struct
from txlake.session.views.table_extended import extended_text

LONG = Primitive("long")
TEXT = Primitive("string")


def test_a_table() -> None:
    inner = Struct((Field("a", LONG, False), Field("b", TEXT)))
    schema = Struct(
        (
            Field("id", LONG, False),
            Field("s", inner),
            Field("l", Array(inner, contains_null=False)),
            Field("m", Map(TEXT, LONG, value_contains_null=True)),
        )
    )
    told = extended_text("shop", "t", kind="MANAGED", location="/w/t", schema=schema)
    assert told == (
        "Catalog: spark_catalog\n"
        "Database: shop\n"
        "Table: t\n"
        "Type: MANAGED\n"
        "Provider: delta\n"
        "Location: /w/t\n"
        "Schema: root\n"
        " |-- id: long (nullable = false)\n"
        " |-- s: struct (nullable = true)\n"
        " |    |-- a: long (nullable = false)\n"
        " |    |-- b: string (nullable = true)\n"
        " |-- l: array (nullable = true)\n"
        " |    |-- element: struct (containsNull = false)\n"
        " |    |    |-- a: long (nullable = false)\n"
        " |    |    |-- b: string (nullable = true)\n"
        " |-- m: map (nullable = true)\n"
        " |    |-- key: string\n"
        " |    |-- value: long (valueContainsNull = true)\n"
    )


def test_a_view() -> None:
    told = extended_text("shop", "v", kind="VIEW", text="SELECT 1")
    assert told.splitlines()[-2:] == ["Type: VIEW", "View Text: SELECT 1"]
    assert "Provider" not in told
