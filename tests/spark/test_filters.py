"""No filter that reaches Parquet loses a row: of our files in any engine, of any file here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions as F

import txlake
from txlake.spark import inserts
from txlake.spark.pushdown import NO_FILTERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAN, INF = math.nan, math.inf
NEW, OLD = date(2020, 1, 1), date(1582, 10, 10)
AT, OLD_AT = datetime(2021, 3, 4, 5, 6, 7, 123000, UTC), datetime(1582, 10, 10, 12, tzinfo=UTC)

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.struct([("x", pa.float64()), ("i", pa.int32())])),
        ("t", pa.string()),
    ]
)
COLUMNS = (
    "id BIGINT, x DOUBLE, f FLOAT, d DATE, at TIMESTAMP, s STRUCT<x: DOUBLE, i: INT>, t STRING"
)


def _group(*rows: tuple[float | None, date | None, datetime | None]) -> list[dict[str, Any]]:
    """Rows of one row group; they stand twice in it, so that a dictionary is worth its while."""
    return [
        {"x": x, "f": x, "d": day, "at": at, "s": {"x": x, "i": number}, "t": f"text {number}"}
        for number, (x, day, at) in enumerate([*rows, *rows])
    ]


GROUPS = [
    _group((1.0, NEW, AT), (NAN, NEW, AT)),
    _group((-0.0, OLD, OLD_AT), (-0.0, OLD, OLD_AT)),
    _group((0.0, NEW, AT), (0.0, NEW, AT)),
    _group((-INF, None, None), (NAN, NEW, AT), (3.0, NEW, AT)),
    _group((None, None, None), (None, OLD, OLD_AT)),
]
FRACTIONS = [
    "{} > 5",
    "{} = double('NaN')",
    "{} <> 1",
    "NOT ({} <= 2)",
    "{} >= double('Infinity')",
    "{} = 0.0D",
    "{} = -0.0D",
    "{} >= 0.0D",
    "{} <= -0.0D",
    "{} <=> 0.0D",
    "{} IN (0.0D, double('NaN'))",
    "{} IS NULL",
    "NOT ({} < 0.0D OR {} IS NULL)",
]
QUESTIONS = [
    *(text.replace("{}", "x") for text in FRACTIONS),
    *(text.replace("{}", "f") for text in FRACTIONS[:6]),
    *(text.replace("{}", "s.x") for text in FRACTIONS[:6]),
    "s.i = 1 AND s.x > 5",
    "d = DATE'1582-10-10'",
    "d IN (DATE'1582-10-10')",
    "d < DATE'1582-10-11'",
    "d > DATE'1582-10-09'",
    "d <> DATE'1582-10-12'",
    "at = TIMESTAMP'1582-10-10 12:00:00'",
    "at < TIMESTAMP'1582-10-11 00:00:00'",
    "at < TIMESTAMP'2021-03-04 05:06:07.123456'",
    "at <> TIMESTAMP'2021-03-04 05:06:07.123456'",
    "NOT (at IN (TIMESTAMP'2021-03-04 05:06:07.123456'))",
    "t = 'text 1' AND x > 5",
]
SPARKS_OWN = [text for text in QUESTIONS if not text.startswith(("d ", "at ", "NOT (at"))]


def _table(group: Sequence[dict[str, Any]], first: int = 0) -> pa.Table:
    rows = [{"id": first + place, **row} for place, row in enumerate(group)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


TABLES = [_table(group, 100 * number) for number, group in enumerate(GROUPS)]
ROWS = pa.concat_tables(TABLES)


def _counts(frame: DataFrame, questions: Sequence[str]) -> dict[str, int]:
    """How many rows each condition is true of, by one job in which each has a scan of its own."""
    parts = [
        frame.where(text).select(F.lit(place).alias("place"))
        for place, text in enumerate(questions)
    ]
    every = reduce(lambda one, other: one.unionAll(other), parts)
    found = {row[0]: row[1] for row in every.groupBy("place").count().collect()}
    return {text: found.get(place, 0) for place, text in enumerate(questions)}


@pytest.fixture(scope="module")
def expected(spark: SparkSession) -> dict[str, int]:
    """The answers over the rows in memory, where nothing is skipped."""
    return _counts(spark.createDataFrame(ROWS), QUESTIONS)


def test_the_oracle_takes_nan_for_the_greatest_and_zeros_for_equal(
    expected: dict[str, int],
) -> None:
    values = [row["x"] for group in GROUPS for row in group if row["x"] is not None]
    assert expected["x > 5"] == sum(math.isnan(value) for value in values)
    assert expected["x = 0.0D"] == sum(value == 0 for value in values)
    assert expected["d = DATE'1582-10-10'"] == 6


# Files of others, and our own, by every way into a lake


def _committed(lake: txlake.Lake, place: Path, write: Callable[[pa.Table, Path], None]) -> None:
    """A table of one file for each group; the log knows no more than their sizes."""
    lake.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS})")
    adds = []
    for number, rows in enumerate(TABLES):
        file = place / f"{number}.parquet"
        write(rows, file)
        stats = json.dumps({"numRecords": rows.num_rows})
        add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size,
               "modificationTime": 1, "dataChange": True, "stats": stats}  # fmt: skip
        adds.append({"add": add})
    txlake.Log(str(place)).start_transaction().commit(adds, operation="WRITE")


def _of_pyarrow(lake: txlake.Lake, place: Path, spark: SparkSession) -> None:
    options = {"use_dictionary": True, "write_page_index": True, "compression": "zstd"}
    _committed(lake, place, lambda rows, file: pq.write_table(rows, file, **options))


def _of_milliseconds(lake: txlake.Lake, place: Path, spark: SparkSession) -> None:
    millis = SCHEMA.set(4, pa.field("at", pa.timestamp("ms", "UTC")))
    _committed(lake, place, lambda rows, file: pq.write_table(rows.cast(millis), file))


def _of_duckdb(lake: txlake.Lake, place: Path, spark: SparkSession) -> None:
    def write(rows: pa.Table, file: Path) -> None:
        with duckdb.connect() as duck:
            duck.register("rows", rows)
            duck.execute(f"COPY (FROM rows) TO '{file}' (FORMAT parquet)")

    _committed(lake, place, write)


def _of_delta_rs(lake: txlake.Lake, place: Path, spark: SparkSession) -> None:
    for rows in TABLES:
        write_deltalake(str(place), rows, mode="append")


def _of_polars(lake: txlake.Lake, place: Path, spark: SparkSession) -> None:
    for rows in TABLES:
        pl.DataFrame(pl.from_arrow(rows)).write_delta(str(place), mode="append")


def _of_polars_files(lake: txlake.Lake, place: Path, spark: SparkSession) -> None:
    _committed(
        lake,
        place,
        lambda rows, file: pl.DataFrame(pl.from_arrow(rows)).write_parquet(file),
    )


def _of_spark(lake: txlake.Lake, place: Path, spark: SparkSession) -> None:
    """Dictionaries as parquet-java writes them, and bounds that hold NaN."""

    def write(rows: pa.Table, file: Path) -> None:
        folder = file.with_suffix(".folder")
        spark.createDataFrame(rows).coalesce(1).write.parquet(folder.as_uri())
        (found,) = folder.glob("*.parquet")
        found.rename(file)

    _committed(lake, place, write)


def _of_txlake(lake: txlake.Lake, place: Path, spark: SparkSession) -> None:
    lake.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS})")
    for rows in TABLES:
        lake.write(rows, str(place), mode="append")


Writer = Callable[[txlake.Lake, Path, "SparkSession"], None]
WRITERS: dict[str, Writer] = {
    "txlake": _of_txlake,
    "polars": _of_polars,
    "polars files": _of_polars_files,
    "duckdb": _of_duckdb,
    "delta-rs": _of_delta_rs,
    "pyarrow": _of_pyarrow,
    "milliseconds": _of_milliseconds,
    "spark": _of_spark,
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path_factory.mktemp("filters") / "lake"), spark=spark) as opened:
        yield opened


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("writer", list(WRITERS))
def test_every_way_into_a_lake_finds_every_row(
    writer: str,
    lake: txlake.Lake,
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
    expected: dict[str, int],
) -> None:
    # Not the test's own folder: delta-rs, which would read it too, has no such INT96 times.
    place = tmp_path_factory.mktemp("written") / "t"
    WRITERS[writer](lake, place, spark)
    assert _counts(lake.read(str(place)), QUESTIONS) == expected
    union = " UNION ALL ".join(
        f"SELECT {number} AS place, count(*) AS n FROM delta.`{place}` WHERE {text}"
        for number, text in enumerate(QUESTIONS[::2])
    )
    found = {QUESTIONS[2 * row.place]: row.n for row in lake.sql(union).collect()}
    assert found == {text: expected[text] for text in QUESTIONS[::2]}
    for text in QUESTIONS[::9]:
        assert lake.read(str(place), where=text).count() == expected[text]
        lake.sql("BEGIN")
        deleted = lake.sql(f"DELETE FROM delta.`{place}` WHERE {text}").collect()[0][0]
        lake.sql("ROLLBACK")
        assert deleted == expected[text], text


@pytest.mark.broad
def test_rows_are_found_where_spark_filters_single_records(
    lake: txlake.Lake, tmp_path: Path, spark: SparkSession, expected: dict[str, int]
) -> None:
    place = tmp_path / "t"
    _of_txlake(lake, place, spark)
    settings = {
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.sql.parquet.recordLevelFilter.enabled": "true",
    }
    questions = QUESTIONS[::3]
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        found = _counts(lake.read(str(place)), questions)
    finally:
        for key in settings:
            spark.conf.unset(key)
    assert found == {text: expected[text] for text in questions}


def test_rows_that_are_left_of_a_file_are_found(
    lake: txlake.Lake, tmp_path: Path, spark: SparkSession
) -> None:
    """Where some rows are deleted, a condition reaches the files before the others are known."""
    place = tmp_path / "t"
    _of_delta_rs(lake, place, spark)
    lake.sql(
        f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    lake.sql(f"DELETE FROM delta.`{place}` WHERE id % 100 = 0")
    questions = [*QUESTIONS[::7], "d = DATE'1582-10-10'", "x > 5"]
    left = _counts(lake.read(str(place)), questions)
    assert left == _counts(spark.createDataFrame(_left()), questions)
    for text in ("d = DATE'1582-10-10'", "x > 5"):
        assert lake.read(str(place), where=text).count() == left[text]


def _left() -> pa.Table:
    return ROWS.filter(pa.array([number % 100 != 0 for number in ROWS["id"].to_pylist()]))


@pytest.mark.broad
def test_changes_find_nan_and_zeros(
    lake: txlake.Lake, tmp_path: Path, spark: SparkSession, expected: dict[str, int]
) -> None:
    place = tmp_path / "t"
    _of_delta_rs(lake, place, spark)
    table = f"delta.`{place}`"
    updated = lake.sql(f"UPDATE {table} SET t = 'found' WHERE s.x >= double('Infinity')")
    assert updated.collect()[0][0] == expected["s.x > 5"]
    merged = lake.sql(
        f"MERGE INTO {table} t USING (SELECT explode(array(double('NaN'), 0.0D)) AS x) s "
        "ON t.x = s.x WHEN MATCHED THEN DELETE"
    )
    found = expected["x = double('NaN')"] + expected["x = 0.0D"]
    assert merged.collect()[0].num_deleted_rows == found
    assert lake.read(str(place)).count() == ROWS.num_rows - found


@pytest.mark.broad
def test_nan_and_zeros_are_found_among_partition_values(
    lake: txlake.Lake, tmp_path: Path, spark: SparkSession
) -> None:
    place = tmp_path / "t"
    lake.sql(f"CREATE TABLE delta.`{place}` (id INT, x DOUBLE) PARTITIONED BY (x)")
    rows = pa.table({"id": pa.array(range(6), pa.int32()), "x": [1.0, NAN, -0.0, 0.0, INF, None]})
    lake.write(rows, str(place), mode="append")
    questions = [text.replace("{}", "x") for text in FRACTIONS]
    assert _counts(lake.read(str(place)), questions) == _counts(
        spark.createDataFrame(rows), questions
    )
    for text in ("x > 5", "x = -0.0D", "NOT (x <= 2)", "x = double('NaN')"):
        found = lake.sql(f"SELECT count(*) FROM delta.`{place}` WHERE {text}").collect()[0][0]
        assert found == spark.createDataFrame(rows).where(text).count(), text


def test_the_files_of_rows_that_a_filter_finds_are_shown(
    lake: txlake.Lake, tmp_path: Path, spark: SparkSession
) -> None:
    place = tmp_path / "t"
    _of_delta_rs(lake, place, spark)
    text = "SELECT DISTINCT _metadata.file_name FROM delta.`{}` WHERE x > 5"
    assert len(lake.sql(text.format(place)).collect()) == 2


def test_filters_still_reach_what_they_may(
    lake: txlake.Lake,
    tmp_path: Path,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "t"
    _of_delta_rs(lake, place, spark)
    frame = lake.read(str(place))
    for text, part in (
        ("id > 5", "GreaterThan(id,5)"),
        ("t = 'text 1'", "EqualTo(t,text 1)"),
        ("s.i = 1", "EqualTo(s.i,1)"),
        ("d > DATE'2020-01-01'", ""),
    ):
        frame.where(f"x > 5 AND s.x > 5 AND {text}").explain()
        pushed = capsys.readouterr().out.partition("PushedFilters: [")[2].partition("]")[0]
        assert part in pushed
        assert "x," not in pushed
    own = tmp_path / "own"
    lake.write(ROWS.filter(pc.greater(ROWS["d"], pa.scalar(OLD))), str(own))
    conditions = {
        "x > 5": "(x,5.0)",
        "d = DATE'2020-01-01'": "(d,2020-01-01)",
        "at > TIMESTAMP'2020-01-01'": "(at,2020-01-01",
        "s.x > 5": "(s.x,5.0)",
    }
    for text, part in conditions.items():
        lake.read(str(own)).where(text).explain()
        assert part in capsys.readouterr().out.partition("PushedFilters: [")[2]


def test_a_widened_column_is_compared_as_what_it_is(lake: txlake.Lake, tmp_path: Path) -> None:
    place = tmp_path / "t"
    lake.sql(
        f"CREATE TABLE delta.`{place}` (n DECIMAL(5,2), k INT) "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    lake.sql(f"INSERT INTO delta.`{place}` VALUES (5.00, 5), (5.00, 5), (5.00, 5)")
    lake.sql(f"ALTER TABLE delta.`{place}` ALTER COLUMN n TYPE DECIMAL(20,2)")
    lake.sql(f"ALTER TABLE delta.`{place}` ALTER COLUMN k TYPE BIGINT")
    for text in ("n < 42949672.98", "n < 999999999999.99", "k NOT IN (1, 4294967301)"):
        assert lake.read(str(place)).where(text).count() == 3, text
        assert lake.read(str(place), where=text).count() == 3, text


def test_a_column_found_by_its_id_is_not_filtered_by_another_ones_name(
    lake: txlake.Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As in a table that came from Iceberg: `a` was renamed to `b` there, and a new `a` added."""
    place = tmp_path_factory.mktemp("renamed") / "t"  # which delta-rs reads by names
    (place / "_delta_log").mkdir(parents=True)
    file = place / "f.parquet"
    schema = pa.schema([pa.field("a", pa.int32(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"a": [5, 5, 5]}, schema), file)
    fields = [
        {"name": name, "type": "integer", "nullable": True,
         "metadata": {"delta.columnMapping.id": number,
                      "delta.columnMapping.physicalName": name}}
        for name, number in (("b", 1), ("a", 2))
    ]  # fmt: skip
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
                      "schemaString": json.dumps({"type": "struct", "fields": fields}),
                      "partitionColumns": [], "createdTime": 1,
                      "configuration": {"delta.columnMapping.mode": "id",
                                        "delta.columnMapping.maxColumnId": "2"}}},
        {"add": {"path": file.name, "partitionValues": {}, "size": file.stat().st_size,
                 "modificationTime": 1, "dataChange": True}},
    ]  # fmt: skip
    log = place / "_delta_log" / f"{0:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
    for text in ("a IS NULL", "b = 5 AND a IS NULL", "b = 5"):
        assert lake.read(str(place)).where(text).count() == 3, text
        assert lake.read(str(place), where=text).count() == 3, text


# Our files in other engines


def _own_files(lake: txlake.Lake, folder: Path, spark: SparkSession) -> list[Path]:
    """Files of all our writers: what they left in the folders of two tables, change files too."""
    tables = [
        rows.append_column("p", pa.array([number] * len(rows), pa.int32()))
        for number, rows in enumerate(TABLES)
    ]
    frames = [spark.createDataFrame(rows).coalesce(1) for rows in tables]
    bulk = reduce(lambda one, other: one.unionAll(other), frames).withColumn("id", F.expr("-id"))
    for name, more in (("plain", ""), ("parts", "PARTITIONED BY (p)")):
        table = f"delta.`{folder / name}`"
        lake.sql(
            f"CREATE TABLE {table} ({COLUMNS}, p INT) {more} "
            "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
        )
        for rows in tables if name == "plain" else [pa.concat_tables(tables)]:
            lake.write(rows, str(folder / name), mode="append")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inserts, "_FEW_BYTES_MAX", -1)  # as if they were many rows
            lake.write(bulk, str(folder / name), mode="append")
        lake.sql(f"UPDATE {table} SET t = upper(t), x = -x WHERE id % 2 = 0")
        source = f"(SELECT id + 500 AS id, x, f, d, at, s, t, p FROM {table} WHERE id > 0)"
        lake.sql(
            f"MERGE INTO {table} t USING {source} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        lake.sql(f"OPTIMIZE {table}" + ("" if name == "parts" else " ZORDER BY (x, id)"))
    return sorted(folder.rglob("*.parquet"))


@pytest.fixture(scope="module")
def own_files(
    lake: txlake.Lake, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> list[Path]:
    files = _own_files(lake, tmp_path_factory.mktemp("own"), spark)
    data = [file for file in files if "_delta_log" not in file.parts]
    assert len(data) > 20
    assert any("_change_data" in file.parts for file in data)
    assert any(file.parent.name.startswith("part-") for file in data), "of Spark's own writer"
    return data


def test_spark_reads_our_files_with_push_down_as_without(
    own_files: list[Path], spark: SparkSession
) -> None:
    with_nan = [file for file in own_files if _holds_nan(file)]
    assert len(with_nan) > 5
    urls = [f"file:{file}" for file in own_files]
    reader = spark.read.schema(COLUMNS)
    without = _counts(reader.options(**NO_FILTERS).parquet(*urls), SPARKS_OWN)
    reader = spark.read.schema(COLUMNS)
    assert _counts(reader.parquet(*urls), SPARKS_OWN) == without


def _holds_nan(file: Path) -> bool:
    return bool(pc.any(pc.is_nan(pq.read_table(file, columns=["x"])["x"])).as_py())


IN_DUCKDB = [
    *("x > 5", "x = 'nan'::DOUBLE", "x <> 1", "NOT (x <= 2)", "x >= 'inf'::DOUBLE", "x = 0.0"),
    *("x = -0.0::DOUBLE", "x >= 0.0", "x <= -0.0::DOUBLE", "x IS NULL", "f > 5", "f = 0.0"),
    *("s.x > 5", "s.x = 0.0", "d = DATE '1582-10-10'", "d < DATE '1582-10-11'", "t = 'text 1'"),
]


def test_duckdb_reads_our_files_with_push_down_as_without(own_files: list[Path]) -> None:
    counted = ", ".join(f"count(*) FILTER (WHERE {text})" for text in IN_DUCKDB)
    with duckdb.connect() as duck:
        for file in own_files:
            duck.execute(f"CREATE OR REPLACE TEMP TABLE held AS FROM read_parquet('{file}')")
            without = duck.execute(f"SELECT {counted} FROM held").fetchone()
            found = tuple(
                duck.execute(
                    f"SELECT count(*) FROM read_parquet('{file}') WHERE {text}"
                ).fetchone()[0]  # type: ignore[index]
                for text in IN_DUCKDB
            )
            assert found == without, file


def test_polars_reads_our_files_with_push_down_as_without(own_files: list[Path]) -> None:
    x, f, inner = pl.col("x"), pl.col("f"), pl.col("s").struct.field("x")
    conditions = [
        *(x > 5, x == NAN, x.is_nan(), x != 1, ~(x <= 2), x >= INF, x == 0.0, x >= 0.0, x <= -0.0),
        *(f > 5, f == 0.0, inner > 5, x.is_null(), x.is_in([0.0, NAN]), pl.col("d") == OLD),
        *(x.is_between(-1, 1), pl.col("t") == "text 1"),
    ]
    for file in own_files:
        held = pl.read_parquet(file)
        for condition in conditions:
            without = held.filter(condition).height
            assert pl.scan_parquet(file).filter(condition).collect().height == without, (
                file,
                condition,
            )


def test_pyarrow_reads_our_files_with_push_down_as_without(own_files: list[Path]) -> None:
    x, f, inner = pc.field("x"), pc.field("f"), pc.field("s", "x")
    conditions = [
        *(x > 5, x == NAN, pc.is_nan(x), x != 1, ~(x <= 2), x >= INF, x == 0.0, x >= 0.0),
        *(x <= -0.0, f > pa.scalar(5, pa.float32()), inner > 5, x.is_null()),
        *(x.isin([0.0, NAN]), pc.field("d") == pa.scalar(OLD), pc.field("t") == "text 1"),
    ]
    for file in own_files:
        held = pq.read_table(file)
        for condition in conditions:
            found = ds.dataset(file).to_table(filter=condition).num_rows
            assert found == held.filter(condition).num_rows, (file, condition)


def test_no_bound_of_ours_leaves_a_value_out(own_files: list[Path]) -> None:
    for file in own_files:
        parquet = pq.ParquetFile(file)
        for group in range(parquet.num_row_groups):
            rows = parquet.read_row_group(group)
            for place in range(parquet.metadata.num_columns):
                chunk = parquet.metadata.row_group(group).column(place)
                found = chunk.statistics
                if chunk.path_in_schema not in rows.column_names or not found.has_min_max:
                    continue
                values = rows[chunk.path_in_schema].drop_null().to_pylist()
                inside = [found.min <= value <= found.max for value in values]
                assert all(inside), (file, chunk.path_in_schema)


@pytest.mark.broad
def test_decimals_and_texts_cut_in_bounds_are_found(
    lake: txlake.Lake, tmp_path: Path, spark: SparkSession
) -> None:
    place = tmp_path / "t"
    long = "z" * 300
    rows = pa.table(
        {
            "n": pa.array([Decimal("99999999.99"), Decimal("-0.01")], pa.decimal128(10, 2)),
            "t": pa.array([long + "\U0010ffff", "\U0010ffff" * 70]),
            "b": pa.array([b"\xff" * 300, b"\x00"]),
        }
    )
    write_deltalake(str(place), rows)
    questions = [
        *("n = 99999999.99", "n < 0", "n IN (-0.01, 5)", f"t > '{long}'"),
        *(f"t LIKE '{long}%'", "t = concat(repeat('z', 300), '\U0010ffff')"),
        *("b > X'FF'", "b = X'00'", "startswith(t, '\U0010ffff')", "NOT startswith(t, 'zz')"),
    ]
    expected = _counts(spark.createDataFrame(rows), questions)
    assert all(expected.values())
    assert _counts(lake.read(str(place)), questions) == expected
