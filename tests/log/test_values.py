"""Values of a row: what is modelled, and what is left to Spark."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from txlake.log.values import compute, parse_value
from txlake.protocol.types import Struct, from_arrow_schema

ROWS = pa.table(
    {
        "b": pa.array([1, -128, 127, None], pa.int8()),
        "i": pa.array([3, -(2**31), 2**31 - 1, None], pa.int32()),
        "l": pa.array([5, -(2**63), 2**63 - 1, None], pa.int64()),
        "x": pa.array([0.5, float("-inf"), -0.0, None], pa.float64()),
        "s": pa.array(["a", "", "ü", None]),
        "d": pa.array([datetime.date(2026, 1, 31)] * 3 + [None]),
        "Mixed Case": pa.array([True, False, None, None]),
    }
)
SCHEMA: Struct = from_arrow_schema(ROWS.schema)


def made(text: str, rows: pa.Table = ROWS) -> pa.ChunkedArray | None:
    value = parse_value(text, aliases=("t", "db.t"))
    return None if value is None else compute(value, rows, SCHEMA)


@pytest.mark.parametrize(
    ("text", "kind", "first"),
    [
        ("7", pa.int32(), 7),
        ("-2147483648", pa.int32(), -(2**31)),
        ("2147483648", pa.int64(), 2**31),
        ("-9223372036854775808", pa.int64(), -(2**63)),
        ("1e3", pa.float64(), 1000.0),
        ("'text'", pa.string(), "text"),
        ("TRUE", pa.bool_(), True),
        ("NULL", pa.null(), None),
        ("DATE'2026-01-31'", pa.date32(), datetime.date(2026, 1, 31)),
        ("I", pa.int32(), 3),
        ("t.i", pa.int32(), 3),
        ("db.t.i", pa.int32(), 3),
        ("`mixed case`", pa.bool_(), True),
        ("x * 3 + 1", pa.float64(), 2.5),
        ("x / 2", pa.float64(), 0.25),
        ("-(x)", pa.float64(), -0.5),
        ("x * 1.5", pa.float64(), 0.75),
        ("s || '-' || s", pa.string(), "a-a"),
        ("(d)", pa.date32(), datetime.date(2026, 1, 31)),
    ],
)
def test_what_is_computed(text: str, kind: pa.DataType, first: object) -> None:
    found = made(text)
    assert found is not None
    assert found.type == kind
    assert found[0].as_py() == first


@pytest.mark.parametrize("text", ["i", "x * 3", "2 / x", "-x", "s || 'b'", "NULL || s", "NULL"])
def test_what_is_computed_of_null_is_null(text: str) -> None:
    found = made(text, ROWS.slice(3))
    assert found is None if text == "NULL || s" else found is not None
    assert found is None or found.to_pylist() == [None]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("i + b", pa.int32()), ("1 - l", pa.int64()), ("i * 2", pa.int32()), ("l / i", pa.float64())],
)
def test_whole_numbers_are_computed_in_the_wider_type(text: str, kind: pa.DataType) -> None:
    found = made(text, ROWS.slice(0, 1))
    assert found is not None
    assert found.type == kind
    assert found[0].as_py() == {"i + b": 4, "1 - l": -4, "i * 2": 6, "l / i": 5 / 3}[text]


@pytest.mark.parametrize(
    "text",
    [
        *("b + b", "i + 1", "l - 1", "-l", "l * 2"),  # too large for one of the rows
        *("x / 0", "x / x", "i / 0"),  # an error, or null, by Spark's settings
        *("i % 2", "i div 2", "abs(i)", "current_date()", "rand()", "s LIKE 'a'", "i = 1"),
        *("s + 1", "s || i", "d + 1", "1.5 + 1.5", "i + 1.5"),
        *("9223372036854775808", "1.0" + "0" * 40, "X'00'", "TIMESTAMP'2026-01-31 12:00:00'"),
        *("gone", "u.i", "t.i.j", "(SELECT 1)", "*", "i AS j", "", "1 2", ")"),
        *(
            r"'a\\n'",
            '"s"',
            "'a' COLLATE UTF8_LCASE",
            "CAST(i AS BIGINT)",
            "1L",
            "1.5BD",
            "TRY_CAST(1 AS INT)",
        ),
    ],
)
def test_what_is_left_to_spark(text: str) -> None:
    assert made(text) is None


def test_nesting_that_is_too_deep_is_left_to_spark() -> None:
    assert made("(" * 5_000 + "1" + ")" * 5_000) is None
