from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlake.errors import CorruptTable
from txlake.protocol.actions import Add, Metadata, decode_actions
from txlake.protocol.partition_values import (
    PartitionScalar,
    check_value,
    format_value,
    local_time,
    parse_column,
    parse_value,
    possible_instants,
)
from txlake.protocol.times import FarTime
from txlake.protocol.types import Array, Primitive, parse_schema

NAN = float("nan")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1", "integer", 1),
        ("01", "long", 1),
        ("-128", "byte", -128),
        ("1.5", "double", 1.5),
        ("-0.0", "double", 0.0),
        ("Infinity", "double", float("inf")),
        ("inf", "double", float("inf")),  # as delta-rs writes it
        ("-inf", "float", float("-inf")),
        ("0.1", "float", 0.10000000149011612),
        ("1.50", "decimal(10,2)", Decimal("1.50")),
        ("1.5", "decimal(10,2)", Decimal("1.50")),
        ("1E+2", "decimal(10,2)", Decimal(100)),
        ("9" * 28 + "." + "9" * 10, "decimal(38,10)", Decimal("9" * 28 + "." + "9" * 10)),
        (
            "1234567890123456789012345678.0123456789",
            "decimal(38,10)",
            Decimal("1234567890123456789012345678.0123456789"),
        ),
        ("true", "boolean", True),
        ("False", "boolean", False),
        (" x ", "string", " x "),
        ("x", "varchar(3)", "x"),
        ("\x01\x02", "binary", b"\x01\x02"),
        ("2020-02-29", "date", date(2020, 2, 29)),
        ("2021-01-01 00:00:00", "date", date(2021, 1, 1)),
        ("2020-01-01 01:02:03Z", "timestamp", datetime(2020, 1, 1, 1, 2, 3, tzinfo=UTC)),
        ("2020-01-01 01:02:03.5Z", "timestamp", datetime(2020, 1, 1, 1, 2, 3, 500000, tzinfo=UTC)),
        ("+10000-01-01T04:59:59.000000Z", "timestamp", FarTime(253402318799000000, zoned=True)),
        ("0000-12-31T23:06:32.000000Z", "timestamp", FarTime(-62135600008000000, zoned=True)),
        ("2020-01-01T01:02:03.000004Z", "timestamp", datetime(2020, 1, 1, 1, 2, 3, 4, tzinfo=UTC)),
        ("2020-01-01T01:02:03+01:00", "timestamp", datetime(2020, 1, 1, 0, 2, 3, tzinfo=UTC)),
        ("2020-01-01 01:02:03", "timestamp_ntz", datetime(2020, 1, 1, 1, 2, 3)),  # noqa: DTZ001
        ("", "string", None),
        ("", "integer", None),
        (None, "date", None),
    ],
)
def test_texts_are_values_of_their_type(
    text: str | None, kind: str, value: PartitionScalar
) -> None:
    found = parse_value(text, Primitive(kind))
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_a_value() -> None:
    found = parse_value("NaN", Primitive("double"))
    assert isinstance(found, float)
    assert found != found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("one", "integer"),
        ("1.0", "integer"),
        ("128", "byte"),
        ("1_0", "long"),
        ("x", "double"),
        ("1.234", "decimal(10,2)"),
        ("123456789.00", "decimal(10,2)"),
        ("NaN", "decimal(10,2)"),
        ("yes", "boolean"),
        ("2020-02-30", "date"),
        ("2020", "date"),
        ("2020-01-01 25:00:00", "timestamp"),
        ("noon", "timestamp_ntz"),
    ],
)
def test_what_is_no_value_of_the_type_is_damage(text: str, kind: str) -> None:
    with pytest.raises(CorruptTable, match="partition value"):
        parse_value(text, Primitive(kind))


def test_a_list_is_no_partition_column() -> None:
    with pytest.raises(CorruptTable):
        parse_value("[1]", Array(Primitive("long")))
    with pytest.raises(ValueError, match="can't have the type"):
        format_value(1, Array(Primitive("long")))


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1, "integer", "1"),
        (1, "decimal(10,2)", "1.00"),
        (Decimal("0.5"), "decimal(10,2)", "0.50"),
        (True, "boolean", "true"),
        (float("-inf"), "double", "-Infinity"),
        (NAN, "double", "NaN"),
        (date(999, 1, 2), "date", "0999-01-02"),
        (datetime(2020, 1, 1, tzinfo=UTC), "timestamp", "2020-01-01T00:00:00.000000Z"),
        (datetime(2020, 1, 1), "timestamp_ntz", "2020-01-01 00:00:00"),  # noqa: DTZ001
        (datetime(2020, 1, 1, 0, 0, 0, 7), "timestamp_ntz", "2020-01-01 00:00:00.000007"),  # noqa: DTZ001
        ("", "string", None),
        (None, "long", None),
    ],
)
def test_values_are_written_as_the_protocol_says(
    value: PartitionScalar, kind: str, text: str | None
) -> None:
    assert format_value(value, Primitive(kind)) == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [("1", "integer"), (1, "string"), (True, "integer"), (1.5, "long"), (b"\xff", "binary")],
)
def test_a_value_of_another_type_is_not_written(value: PartitionScalar, kind: str) -> None:
    with pytest.raises(ValueError):
        format_value(value, Primitive(kind))


_VALUES = st.one_of(
    st.tuples(st.just("long"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("double"), st.floats(allow_nan=False)),
    st.tuples(st.just("string"), st.text(min_size=1)),
    st.tuples(st.just("boolean"), st.booleans()),
    st.tuples(st.just("date"), st.dates()),
    st.tuples(st.just("timestamp"), st.datetimes(timezones=st.just(UTC))),
    st.tuples(st.just("timestamp_ntz"), st.datetimes()),
    st.tuples(
        st.just("decimal(20,4)"),
        st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-9999, max_value=9),
    ),
)


@given(_VALUES)
def test_what_is_written_reads_back_equal(case: tuple[str, PartitionScalar]) -> None:
    kind, value = case
    assert parse_value(format_value(value, Primitive(kind)), Primitive(kind)) == value


def test_a_column_is_parsed_at_once() -> None:
    texts = pa.chunked_array([["1", None, "01"], ["", "7"]], pa.string())
    values = parse_column(texts, Primitive("integer"))
    assert values.type == pa.int32()
    assert values.to_pylist() == [1, None, 1, None, 7]
    assert parse_column(pa.array([], pa.string()), Primitive("date")).type == pa.date32()
    with pytest.raises(CorruptTable):
        parse_column(pa.array(["x"]), Primitive("integer"))


def test_a_timestamp_without_a_zone_is_of_any() -> None:
    """Its instant depends on the reader's zone; checks let it be within 18 hours."""
    text, kind = "2020-01-01 01:02:03", Primitive("timestamp")
    check_value(text, kind)
    with pytest.raises(CorruptTable, match="without a time zone"):
        parse_value(text, kind)
    hour = 3_600_000_000
    wall = 1_577_840_523_000_000
    assert local_time(text, kind) == wall
    assert local_time(f"{text}Z", kind) is None
    assert local_time(text, Primitive("timestamp_ntz")) is None
    assert possible_instants(text) == (wall - 18 * hour, wall + 18 * hour)
    assert possible_instants(f"{text}+01:00") == (wall - hour, wall - hour)
    assert possible_instants(None) is None
    with pytest.raises(CorruptTable):
        possible_instants("soon")
    with pytest.raises(CorruptTable):
        check_value("soon", kind)


def test_every_partition_value_of_the_golden_tables_parses(golden: Path) -> None:
    seen = 0
    for folder in golden.rglob("_delta_log"):
        schema = None
        columns: tuple[str, ...] = ()
        for commit in sorted(folder.glob("[0-9]*.json")):
            try:
                actions = decode_actions(commit.read_bytes(), file=str(commit))
            except CorruptTable:
                continue
            for action in sorted(actions, key=lambda item: not isinstance(item, Metadata)):
                if isinstance(action, Metadata):
                    schema = parse_schema(action.schema_string)
                    columns = action.partition_columns
                elif isinstance(action, Add) and schema is not None:
                    for name in columns:
                        field = schema.find(name)
                        assert field is not None
                        check_value(action.partition_values.get(field.physical_name), field.type)
                        seen += 1
    assert seen > 400
