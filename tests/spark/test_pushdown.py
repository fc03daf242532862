"""Which columns of which files Spark's filters may reach: the rules, without Spark."""

from __future__ import annotations

import json
import math
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlake.datafiles.exact_footers import change_footer
from txlake.datafiles.footers import SAFE_FOR_FILTERS, filter_safe_tags, is_filter_safe
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Metadata, Protocol
from txlake.protocol.types import parse_schema
from txlake.spark.pushdown import NO_FILTERS, FilterSafety

UUID = "col-0a1b2c3d-0000-4000-8000-000000000001"


def _column(name: str, kind: object, **metadata: object) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def _struct(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "struct", "fields": list(fields)}


def _widened(old: str, new: str) -> dict[str, object]:
    return {"delta.typeChanges": [{"fromType": old, "toType": new}]}


def _add(stats: dict[str, object] | None = None, tags: dict[str, str | None] | None = None) -> Add:
    return Add(
        path="f",
        partition_values={},
        size=1,
        modification_time=1,
        data_change=True,
        stats=None if stats is None else json.dumps(stats),
        tags=tags,
    )


def _hidden(
    columns: list[dict[str, object]], add: Add, mode: str = "none", partition: str | None = None
) -> set[str]:
    return {
        ".".join(path) for path in _safety(columns, add, mode, partition).unfiltered(0, add).paths
    }


def _safety(
    columns: list[dict[str, object]], add: Add, mode: str = "none", partition: str | None = None
) -> FilterSafety:
    snapshot = Snapshot.empty("t").apply(
        [
            Protocol(min_reader_version=2, min_writer_version=5),
            Metadata(
                id="t",
                schema_string=json.dumps(_struct(*columns)),
                partition_columns=() if partition is None else (partition,),
                configuration={"delta.columnMapping.mode": mode},
            ),
            add,
        ]
    )
    return FilterSafety(snapshot, snapshot.select(None))


TABLE = [
    _column("id", "long"),
    _column("t", "string"),
    _column("n", "decimal(10,2)"),
    _column("z", "timestamp_ntz"),
    _column("x", "double"),
    _column("f", "float"),
    _column("at", "timestamp"),
    _column("d", "date"),
    _column("s", _struct(_column("x", "double"), _column("i", "integer"), _column("d", "date"))),
    _column("l", {"type": "array", "elementType": "double", "containsNull": True}),
]
MODERN: dict[str, object] = {
    "minValues": {"d": "1583-01-01", "s": {"d": "2020-01-01"}},
    "maxValues": {},
}


@pytest.mark.parametrize(
    ("add", "hidden"),
    [
        (_add(MODERN), {"x", "f", "at", "s.x"}),
        (_add(MODERN, {"other": "safe"}), {"x", "f", "at", "s.x"}),
        (_add(), {"x", "f", "at", "s.x", "d", "s.d"}),
        (_add({"minValues": {"d": "2020-01-01"}}), {"x", "f", "at", "s.x", "d", "s.d"}),
        (
            _add({"minValues": {"d": "1582-12-31", "s": {"d": "2020-01-01"}}}),
            {"x", "f", "at", "s.x", "d", "s.d"},
        ),
        (_add(tags=dict(SAFE_FOR_FILTERS)), set()),
    ],
    ids=["modern", "tagged otherwise", "no statistics", "one unknown", "early", "our own"],
)
def test_what_filters_may_reach(add: Add, hidden: set[str]) -> None:
    assert _hidden(TABLE, add) == hidden


def test_a_column_without_values_has_no_early_dates() -> None:
    stats = {"numRecords": 3, "nullCount": {"d": 3}}
    assert _hidden([_column("d", "date")], _add(stats)) == set()


def test_tables_without_such_columns_are_read_as_they_are() -> None:
    assert _hidden(TABLE[:4], _add()) == set()


def test_partition_columns_are_never_in_files() -> None:
    columns = [_column("x", "double"), _column("i", "long")]
    assert _hidden(columns, _add(), partition="x") == set()


@pytest.mark.parametrize(
    ("old", "new", "is_hidden"),
    [
        ("integer", "long", True),
        ("decimal(5,2)", "decimal(20,2)", True),
        ("integer", "decimal(12,0)", True),
        ("byte", "integer", False),
        ("date", "timestamp_ntz", False),
    ],
)
def test_widened_columns_are_hidden_in_every_file(old: str, new: str, is_hidden: bool) -> None:
    columns = [_column("c", new, **_widened(old, new)), _column("i", "long")]
    for add in (_add(), _add(tags=dict(SAFE_FOR_FILTERS))):
        assert _hidden(columns, add) == ({"c"} if is_hidden else set())


def _mapped(name: str, kind: str, physical: str, number: int) -> dict[str, object]:
    return _column(
        name,
        kind,
        **{"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number},
    )


def test_columns_found_by_ids_are_filtered_only_by_names_that_no_other_has() -> None:
    generated, named = _mapped("a", "double", UUID, 1), _mapped("b", "long", "a", 2)
    assert _hidden([generated], _add(), "id") == {UUID}
    alone = {"parquet.filter.record-level.enabled": "false"}
    assert _safety([generated], _add(), "id").options == alone
    assert _safety([generated, named], _add(), "id").options == NO_FILTERS
    assert _safety([generated, named], _add(), "name").options == alone
    assert _hidden([generated, named], _add(), "id") == set()


# What a file says of itself


def _tag(table: pa.Table, kinds: list[str], **options: object) -> dict[str, str]:
    file = BytesIO()
    pq.write_table(table, file, **options)
    footer, _ = change_footer(file)
    columns = [_column(name, kind) for name, kind in zip(table.column_names, kinds, strict=True)]
    schema = parse_schema(json.dumps(_struct(*columns)))
    return dict(filter_safe_tags(footer, schema, ()))


@pytest.mark.parametrize(
    ("kind", "arrow", "values", "is_safe"),
    [
        ("double", pa.float64(), [1.0, math.nan, -0.0, None], True),
        ("date", pa.date32(), [-141_349, None], True),  # 1583-01-01
        ("date", pa.date32(), [-141_350], False),
        ("date", pa.date32(), [None, None], True),
        ("timestamp", pa.timestamp("us", "UTC"), [-2_208_816_000_000_000, 5], True),  # 1900-01-03
        ("timestamp", pa.timestamp("us", "UTC"), [-2_208_816_000_000_001, 5], False),
    ],
)
def test_a_file_says_that_filters_are_safe(
    kind: str, arrow: pa.DataType, values: list[object], is_safe: bool
) -> None:
    table = pa.table({"c": pa.array(values, arrow), "i": pa.array(range(len(values)))})
    assert _tag(table, [kind, "long"]) == (SAFE_FOR_FILTERS if is_safe else {})
    if is_safe and set(values) != {None}:
        without = _tag(table, [kind, "long"], write_statistics=False)
        assert without == (SAFE_FOR_FILTERS if kind == "double" else {})


def test_files_without_such_columns_say_nothing() -> None:
    assert _tag(pa.table({"i": [1], "s": ["a"]}), ["long", "string"]) == {}


def test_only_the_tag_itself_counts() -> None:
    assert is_filter_safe(_add(tags={**SAFE_FOR_FILTERS, "other": None}))
    assert not is_filter_safe(_add(tags=dict.fromkeys(SAFE_FOR_FILTERS, "no")))
    assert not is_filter_safe(_add())
