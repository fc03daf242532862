"""The types of columns, and SQL texts of their values: ordinary ones, edges, and wrong ones."""

from __future__ import annotations

from random import Random

# Of each type the expressions that make its values; the first ones are small and often equal.
LITERALS: dict[str, tuple[str, ...]] = {
    "TINYINT": ("1", "2", "0", "127", "-128", "CAST(7 AS TINYINT)"),
    "SMALLINT": ("1", "2", "0", "32767", "-32768", "9S"),
    "INT": ("1", "2", "3", "0", "-1", "2147483647", "-2147483648"),
    "BIGINT": ("1", "2", "3", "0", "9223372036854775807", "-9223372036854775808", "5L"),
    "FLOAT": ("1.5F", "2.0F", "0.0F", "-0.0F", "FLOAT('NaN')", "FLOAT('Infinity')", "3.4E38F"),
    "DOUBLE": ("1.5D", "2.0D", "0.0D", "-0.0D", "DOUBLE('NaN')", "DOUBLE('-Infinity')", "1e-300"),
    "DECIMAL(10,2)": ("1.50", "2.00", "0", "-0.01", "99999999.99"),
    "DECIMAL(38,10)": ("1.5", "0", "-1234567890123456789012345678.0123456789"),
    "STRING": ("'a'", "'b'", "''", "'ß→😀'", "'a b'", "'it''s'", "'x/y=z%'", "'NULL'", "' a '"),
    "CHAR(5)": ("'a'", "'b'", "''", "'abcde'", "'a  '", "'ßß'"),
    "VARCHAR(5)": ("'a'", "'b'", "''", "'abcde'", "'a  '", "'ßß'"),
    "BOOLEAN": ("true", "false"),
    "BINARY": ("X'00FF'", "X''", "CAST('a' AS BINARY)"),
    "DATE": ("DATE'2026-01-01'", "DATE'2026-02-28'", "DATE'1582-10-15'", "DATE'9999-12-31'"),
    "TIMESTAMP": (
        "TIMESTAMP'2026-01-01 00:00:00'",
        "TIMESTAMP'2026-01-01 12:34:56.789012'",
        "TIMESTAMP'1969-12-31 23:59:59.999999'",
    ),
    "TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ'2026-01-01 00:00:00'",
        "TIMESTAMP_NTZ'2026-01-01 12:34:56.789012'",
    ),
    "STRUCT<x:INT,y:STRING>": (
        "named_struct('x',1,'y','a')",
        "named_struct('x',CAST(NULL AS INT),'y','b')",
    ),
    "ARRAY<INT>": ("array(1,2)", "array()", "array(3,NULL)"),
    "MAP<STRING,INT>": ("map('k',1)", "map('k',2,'l',NULL)"),
    "ARRAY<STRUCT<x:INT>>": ("array(named_struct('x',1))", "array(NULL)"),
}
PARTITIONING = (
    "INT",
    "STRING",
    "DATE",
    "BOOLEAN",
    "BIGINT",
    "DOUBLE",
    "DECIMAL(10,2)",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "BINARY",
)
KEYS = ("INT", "BIGINT", "STRING", "DATE")
NESTED = ("STRUCT", "ARRAY", "MAP")
WIDER = {
    "TINYINT": ("SMALLINT", "INT", "BIGINT"),
    "SMALLINT": ("INT", "BIGINT"),
    "INT": ("BIGINT", "DOUBLE"),
    "FLOAT": ("DOUBLE",),
    "DECIMAL(10,2)": ("DECIMAL(12,2)", "DECIMAL(14,4)"),
    "DATE": ("TIMESTAMP_NTZ",),
    "CHAR(5)": ("STRING",),
    "VARCHAR(5)": ("VARCHAR(9)", "STRING"),
}
_OTHERS = ("'12'", "'2026-01-01'", "true", "1.25", "300", "X'31'", "DATE'2026-03-01'", "'maybe'")
_NULLS = 0.12
_OF_OTHER_TYPES = 0.05


def is_nested(type_text: str) -> bool:
    """Return whether values of the type can't be compared or grouped everywhere."""
    return type_text.startswith(NESTED)


def literal(rng: Random, type_text: str, *, is_nullable: bool = True) -> str:
    """Return an expression for a column of this type, sometimes NULL or of another type."""
    if rng.random() < (_NULLS if is_nullable else 0.02):
        return "NULL"
    if rng.random() < _OF_OTHER_TYPES:
        return rng.choice(_OTHERS)
    return of_type(rng, type_text)


def of_type(rng: Random, type_text: str) -> str:
    """Return an expression of exactly this type, mostly one of its small values."""
    known = LITERALS.get(type_text)
    if known is None:
        return f"CAST(NULL AS {type_text})"
    return rng.choice(known[:3] if rng.random() < 0.5 else known)
