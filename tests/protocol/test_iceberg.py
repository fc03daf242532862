"""icebergCompatV2: what it asks of metadata, and the ids of what is inside of lists and maps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import pytest

from txlake.protocol.actions import Metadata
from txlake.protocol.column_mapping import (
    NESTED_IDS,
    assign_column_ids,
    assign_nested_ids,
    max_column_id,
    nested_ids,
)
from txlake.protocol.iceberg import ENABLE, violation, widening_violation, with_required_properties
from txlake.protocol.type_text import parse_columns
from txlake.protocol.types import Struct, parse_schema, schema_to_string

ON = {ENABLE: "true", "delta.columnMapping.mode": "name"}
FORMATS = "delta.universalFormat.enabledFormats"


def mapped(columns: str) -> Struct:
    schema, highest = assign_column_ids(parse_columns(columns), 0, lambda: "x", keep_names=True)
    return assign_nested_ids(schema, highest)[0]


def metadata(
    columns: str = "a int",
    configuration: Mapping[str, str] = ON,
    *,
    by: Sequence[str] = (),
    schema: Struct | None = None,
) -> Metadata:
    text = schema_to_string(schema or mapped(columns))
    return Metadata(
        id="t",
        schema_string=text,
        partition_columns=tuple(by),
        configuration=dict(configuration),
    )


def widened(old: object, new: object) -> Metadata:
    change = {"fromType": old, "toType": new}
    column = {
        "name": "a",
        "type": new,
        "nullable": True,
        "metadata": {"delta.columnMapping.id": 1, "delta.typeChanges": [change]},
    }
    text = json.dumps({"type": "struct", "fields": [column]})
    return Metadata(id="t", schema_string=text, configuration=dict(ON))


def test_what_is_in_lists_and_maps_gets_ids() -> None:
    lists, maps = "a array<array<int>>", "b map<int, array<int>>, c map<int, struct<d: array<int>>>"
    schema = mapped(f"{lists}, {maps}, e int")
    a, b, c, e = schema
    assert [item.column_id for item in schema] == [1, 2, 3, 5]
    assert nested_ids(a) == {"a.element": 6, "a.element.element": 7}
    assert nested_ids(b) == {"b.key": 8, "b.value": 9, "b.value.element": 10}
    assert nested_ids(c) == {"c.key": 11, "c.value": 12}
    inner = c.type.value.fields[0]  # type: ignore[union-attr]
    assert nested_ids(inner) == {"d.element": 13}
    assert NESTED_IDS not in e.metadata
    assert max_column_id(schema) == 13
    # They are kept, through the text of the log too; what is new gets further ones.
    read = parse_schema(schema_to_string(schema))
    assert assign_nested_ids(read, 20) == (schema, 20)
    more = Struct((*read, *parse_columns("f array<int>")))
    again, highest = assign_nested_ids(more, 20)
    assert nested_ids(again.fields[4]) == {"f.element": 21}
    assert highest == 21


@pytest.mark.parametrize(
    "columns",
    [
        "a byte, b short, c int, d bigint, e float, f double, g decimal(9, 2), h string",
        "a binary, b boolean, c timestamp, d timestamp_ntz, e date, f array<map<int, string>>",
    ],
)
def test_types_that_iceberg_has(columns: str) -> None:
    assert violation(metadata(columns)) is None


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            metadata(configuration={ENABLE: "true"}),
            "needs mapped columns, found .*'none'; set it",
        ),
        (metadata(configuration={**ON, "delta.enableIcebergCompatV1": "true"}), "only one of them"),
        (metadata(configuration={**ON, "delta.enableIcebergCompatV3": "true"}), "only one of them"),
        (
            metadata(configuration={**ON, "delta.enableDeletionVectors": "true"}),
            r"goes without deletion vectors.*APPLY \(PURGE\)",
        ),
        (metadata("a array<struct<v: variant>>"), r"column a\.element\.v is of type variant"),
        (metadata("a map<string, void>"), r"column a\.value is of type void"),
        (widened("integer", "double"), "column a was widened from integer to double"),
        (widened("decimal(4,2)", "decimal(6,3)"), r"from decimal\(4,2\) to decimal\(6,3\)"),
        (widened("date", "timestamp_ntz"), "from date to timestamp_ntz"),
        (widened("byte", "decimal(12,0)"), r"from byte to decimal\(12,0\)"),
        (metadata(schema=parse_columns("a array<int>")), r"column a has no ids for a\.element"),
    ],
)
def test_what_the_rules_refuse(found: Metadata, message: str) -> None:
    reason = violation(found)
    assert reason is not None
    assert re.search(message, reason)


@pytest.mark.parametrize(
    ("old", "new"),
    [("byte", "long"), ("float", "double"), ("decimal(4,2)", "decimal(6, 2)")],
)
def test_types_that_iceberg_widens(old: str, new: str) -> None:
    assert violation(widened(old, new)) is None


def test_ids_are_given_once() -> None:
    columns = parse_columns("a array<int>, b int")
    schema, _ = assign_column_ids(columns, 0, lambda: "x", keep_names=True)
    item = schema.fields[0]
    item.metadata[NESTED_IDS] = {"a.element": 2}
    assert "the column id 2 is given twice" in str(violation(metadata(schema=schema)))


def test_partition_columns_stay() -> None:
    by_a, by_b, plain = (metadata("a int, b int", by=by) for by in (["a"], ["b"], []))
    assert violation(by_a, plain) is None
    assert violation(metadata("a long, b int", by=["a"]), by_a) is None
    for after, before in ((by_b, by_a), (plain, by_a)):
        assert "partitioned by a can't become" in str(violation(after, before))


def test_settings_that_come_and_go_with_the_rules() -> None:
    alone = metadata(configuration={ENABLE: "true"})
    assert with_required_properties(alone, None, new=True).configuration == ON
    assert with_required_properties(alone, None, new=False) == alone
    off = metadata(configuration={ENABLE: "true", "delta.columnMapping.mode": "none"})
    assert with_required_properties(off, None, new=True) == off
    on = metadata(configuration={**ON, FORMATS: "iceberg"})
    off = metadata(configuration={FORMATS: "hudi, iceberg"})
    assert with_required_properties(off, on, new=False).configuration == {FORMATS: "hudi"}
    only = metadata(configuration={FORMATS: "iceberg"})
    assert with_required_properties(only, on, new=False).configuration == {}
    assert with_required_properties(only, only, new=False) == only


def test_new_widenings_are_told_from_old_ones() -> None:
    before = widened("integer", "double")
    assert widening_violation(before, before) is None
    assert "from byte to double" in str(widening_violation(widened("byte", "double"), before))
