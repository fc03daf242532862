"""What a condition is taken to mean is what Spark makes of it, in ANSI mode and out of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlake.log.predicates import bind, parse_predicate, to_text
from txlake.log.skipping import may_match, must_match
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_schema
from txlake.spark.session_zones import session_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "America/New_York"
COLUMNS: dict[str, tuple[str, list[object]]] = {
    "i": ("integer", [0, 1, -1, 5, None, 2**31 - 1]),
    "big": ("long", [0, 2**53 + 1, 2**53, 2**63 - 1, None, 5]),
    "f": ("float", [0.1, 0.5, -0.0, float("nan"), float("inf"), None]),
    "x": ("double", [0.1, 0.5, -0.0, float("nan"), float("inf"), None]),
    "n": (
        "decimal(10,2)",
        [Decimal("1.23"), Decimal("1.24"), Decimal("-1.23"), Decimal("5.00"), None, Decimal(0)],
    ),
    "s": ("string", ["a", "ab", "", "5", None, "z\U0001f600"]),
    "b": ("boolean", [True, False, None, True, False, None]),
    "d": (
        "date",
        [date(2020, 1, 1), date(2020, 1, 2), date(2019, 12, 31), None, date(1, 1, 1), None],
    ),
    "ts": (
        "timestamp",
        [
            datetime(2020, 1, 1, 5, tzinfo=UTC),
            datetime(2020, 3, 8, 7, 30, tzinfo=UTC),
            datetime(2020, 11, 1, 5, 30, tzinfo=UTC),
            datetime(2020, 11, 1, 6, 30, tzinfo=UTC),
            None,
            datetime(2020, 1, 1, 5, 0, 0, 1, tzinfo=UTC),
        ],
    ),
    "tn": (
        "timestamp_ntz",
        [
            datetime(2020, 1, 1),  # noqa: DTZ001
            datetime(2020, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
            datetime(2020, 3, 8, 2, 30),  # noqa: DTZ001
            None,
            datetime(2019, 12, 31),  # noqa: DTZ001
            datetime(2020, 1, 2),  # noqa: DTZ001
        ],
    ),
}
TOO_LONG = str(2**63)
LITERALS = {
    "i": ["1", "1.5", "-1.5", "1e0", "99999999999", "'5'", "'05'", "2147483648.5", TOO_LONG],
    "big": ["5", "9007199254740992", "9007199254740992e0", "1.5", "'5'", TOO_LONG],
    "f": ["0", "0.1", "0.5", "1e-1", "0.1f", "'0.5'", "'0.1'", "16777217", "double('nan')"],
    "x": ["0", "0.1", "1e-1", "0.1f", "'0.1'", "9007199254740993", "double('nan')"],
    "n": ["1.23", "1.235", "5", "1.23e0", "'1.23'", "99999999999"],
    "s": ["'a'", "'5'", "''", "'z\U0001f600'"],
    "b": ["true", "false"],
    "d": ["'2020-01-01'", "'2020-1-1'", "DATE '2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00'"],
    "ts": [
        "'2020-01-01'",
        "'2020-01-01T05:00:00Z'",
        "TIMESTAMP '2020-03-08 02:30:00'",
        "TIMESTAMP '2020-11-01 01:30:00'",
        "DATE '2020-01-01'",
        "TIMESTAMP_NTZ '2020-01-01 00:00:00'",
    ],
    "tn": [
        "'2020-01-01 00:00:00.000001'",
        "TIMESTAMP_NTZ '2020-01-01'",
        "TIMESTAMP '2020-01-01 00:00:00'",
        "DATE '2020-01-01'",
    ],
}


def conditions() -> Iterator[str]:
    for name, literals in LITERALS.items():
        for literal in literals:
            yield from (f"{name} {op} {literal}" for op in ("=", "!=", "<", ">=", "<=>"))
            if literal == TOO_LONG:
                yield from (f"NOT ({name} {op} {literal})" for op in ("<", "<=", ">", ">="))
            yield f"{name} IN ({literal}, NULL)"
            yield f"NOT {name} IN ({literal}, {literals[0]})"
        yield from (f"{name} IS NULL", f"{name} <=> NULL", f"NOT {name} IS NOT NULL")
    yield from ("b", "NOT b", "b IS TRUE", "b IS NOT FALSE")
    for pattern in ("a%", "%", "a_%", "5", "", "a"):
        yield from (f"s LIKE '{pattern}'", f"s NOT LIKE '{pattern}'")
    yield from ("i LIKE '5'", "i NOT LIKE '05'", "startswith(s, 'a')", "d LIKE '2020%'")


@pytest.fixture(params=["true", "false"], ids=["ansi", "not-ansi"])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", ZONE)
    other.conf.set("spark.sql.ansi.enabled", request.param)
    return other


def test_files_are_judged_as_spark_judges_their_rows(session: SparkSession, tmp_path: Path) -> None:
    schema = Struct(tuple(Field(name, Primitive(kind)) for name, (kind, _) in COLUMNS.items()))
    arrow = pa.table(
        {name: values for name, (_, values) in COLUMNS.items()}, schema=to_arrow_schema(schema)
    )
    pq.write_table(arrow.append_column("row", pa.array(range(arrow.num_rows))), tmp_path / "x")
    texts = list(dict.fromkeys(conditions()))
    frame = session.read.parquet(str(tmp_path / "x"))
    columns = [f"({text}) AS c{place}" for place, text in enumerate(texts)]
    answers = frame.selectExpr("row", *columns).orderBy("row").collect()
    files = pa.table(
        {
            "partition_values": pa.array([[]] * len(answers), pa.map_(pa.string(), pa.string())),
            "stats": [one_row(row) for row in arrow.to_pylist()],
        }
    )
    for place, text in enumerate(texts):
        for zone in (session_zone(session), None):
            predicate = bind(parse_predicate(text), schema, time_zone=zone)
            may = may_match(predicate, files, schema, ()).to_pylist()
            must = must_match(predicate, files, schema, ()).to_pylist()
            for row, answer in enumerate(answers):
                holds = answer[f"c{place}"] is True
                said = f"{text} on row {row}, taken as {to_text(predicate)}"
                assert may[row] or not holds, said
                assert holds or not must[row], said


def one_row(row: dict[str, object]) -> str:
    """The statistics of a file with this one row."""
    known = {name: value for name, value in row.items() if value is not None and value == value}
    nulls = {name: int(value is None) for name, value in row.items()}
    return FileStatistics(
        num_records=1, min_values=known, max_values=known, null_count=nulls
    ).to_json()
