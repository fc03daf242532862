"""Queries of a table with many small files, which pyarrow reads in Spark's tasks."""

from __future__ import annotations

import datetime
import decimal
import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import txlake
from tests.lake import small_file_queries
from tests.spark.session_settings import settings_made
from txlake.errors import InvalidRequest, TxlakeError
from txlake.spark import driver_frames, reading

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_FILES = 8
_COLUMNS = {
    "id": ("long", pa.int64()),
    "Small": ("short", pa.int16()),
    "x": ("double", pa.float64()),
    "f": ("float", pa.float32()),
    "s": ("string", pa.string()),
    "b": ("binary", pa.binary()),
    "y": ("boolean", pa.bool_()),
    "d": ("decimal(9,2)", pa.decimal128(9, 2)),
}


# What sqlglot takes for a function or a keyword, and Spark for a column, if there is one.
_KEYWORDS = {
    name: ("integer", pa.int32())
    for name in ("current_user", "current_date", "all", "select", "1a")
}


def _rows(number: int) -> dict[str, list[Any]]:
    return {
        "id": [2 * number, None],
        "Small": [number, -number],
        "x": [float("nan"), -0.0 if number % 2 else number / 3],
        "f": [float("inf"), 0.5],
        "s": [f"é{number}", None],
        "b": [b"\xff", b""],
        "y": [True, None],
        "d": [decimal.Decimal("1.25"), None],
    }


def _write(folder: Path, names: dict[str, tuple[str, pa.DataType]], **more: list[Any]) -> None:
    """A Delta table of files of other writers: their columns in any order, some narrower, some
    missing.
    """
    files = []
    for number in range(_FILES):
        columns = {**_rows(number), **more}
        arrays = {name: pa.array(columns[name], kind) for name, (_, kind) in names.items()}
        if number == 1 and "id" in arrays:
            arrays["id"] = arrays["id"].cast(pa.int32())
        if number == 2:
            arrays = dict(reversed(arrays.items()))
        if number == 3:
            arrays.pop("s", None)
        files.append(pa.table(arrays))
    _write_table(folder, {name: kind for name, (kind, _) in names.items()}, files)


def _write_table(folder: Path, names: dict[str, str], files: list[pa.Table]) -> None:
    """A Delta table of these columns and files."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in names.items()
    ]
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    for number, rows in enumerate(files):
        path = folder / f"part {number}.parquet"
        pq.write_table(rows, path)
        add = {
            "path": f"part%20{number}.parquet",
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
        }
        actions.append({"add": add})
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


def _by_pyarrow(frame: DataFrame) -> bool:
    return "MapInArrow" in frame._jdf.queryExecution().executedPlan().toString()


def _sorted(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


@pytest.fixture
def lake(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> txlake.LakeSession:
    monkeypatch.setattr(reading, "_MANY_FILES", _FILES)
    monkeypatch.setattr(driver_frames, "_READ_ROWS_MAX", 0)  # the driver finds no rows by itself
    _write(tmp_path / "t", _COLUMNS)
    words = {"x": ("double", pa.float64()), **_KEYWORDS}
    _write(tmp_path / "words", words, **{name: [1, 2] for name in _KEYWORDS})
    dates = {**_COLUMNS, "day": ("date", pa.date32())}
    _write(tmp_path / "dates", dates, day=[datetime.date(1500, 1, 1), None])
    return txlake.connect(str(tmp_path / "lake"), spark=spark)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {t}",
        "SELECT count(*) FROM {t}",
        "SELECT sum(id), max(S), min(small) FROM {t} AS x",
        "SELECT x.`Small`, count(*) AS n FROM {t} x WHERE x.ID > 3 GROUP BY 1 ORDER BY n, 1",
        "SELECT x, f, count(y) FROM {t} GROUP BY ALL HAVING count(*) > 0",
        "SELECT s FROM {t} WHERE s > 'a' OR y QUALIFY row_number() OVER (ORDER BY id, d) > 1",
        "SELECT count(DISTINCT *) FROM {t}",
        "SELECT IDENTIFIER('d') FROM {t}",
        "SELECT * EXCEPT (s) FROM {t} WHERE x = 0",
        "SELECT struct(*) FROM {t} WHERE isnan(x)",
        "SELECT * FROM (SELECT id, small FROM {t}) PIVOT (sum(id) FOR small IN (1, 2))",
        "SELECT * FROM {t} PIVOT (count(id) FOR small IN (1, 2))",
        "SELECT 1 FROM {t} LIMIT 3",
    ],
)
def test_queries_see_what_sparks_reader_sees(
    lake: txlake.LakeSession, tmp_path: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = query.format(t=f"delta.`{tmp_path}/t`")
    found = lake.sql(text)
    assert _by_pyarrow(found) == ("(SELECT" not in query)
    monkeypatch.setattr(reading, "_MANY_FILES", _FILES + 1)
    expected = lake.sql(text)
    assert not _by_pyarrow(expected)
    assert found.schema == expected.schema
    assert _sorted(found) == _sorted(expected)


def test_columns_may_be_called_as_keywords(lake: txlake.LakeSession, tmp_path: Path) -> None:
    sums = ", ".join(f"sum({name})" for name in _KEYWORDS)
    found = lake.sql(f"SELECT {sums} FROM delta.`{tmp_path}/words`")
    assert _by_pyarrow(found)
    assert tuple(found.collect()[0]) == (3 * _FILES,) * len(_KEYWORDS)


@pytest.mark.parametrize(
    ("setting", "query", "columns"),
    [
        ("parser.quotedRegexColumnNames", "SELECT `(s|b)` FROM {t}", ["s", "b"]),
        ("ansi.doubleQuotedIdentifiers", 'SELECT "s" FROM {t}', ["s"]),
        ("variable.substitute", "SELECT `${tests.column}` FROM {t}", ["s"]),
    ],
)
def test_names_are_those_of_the_sessions_rules(
    lake: txlake.LakeSession,
    tmp_path: Path,
    spark: SparkSession,
    setting: str,
    query: str,
    columns: list[str],
) -> None:
    settings = {f"spark.sql.{setting}": "true", "tests.column": "s"}
    with settings_made(spark, settings):
        found = lake.sql(query.replace("{t}", f"delta.`{tmp_path}/t`"))
        assert found.columns == columns
        assert found.count() == 2 * _FILES


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, _metadata.file_path FROM {t}",
        "SELECT id, input_file_name() FROM {t}",
        "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id",
        "WITH a AS (SELECT id FROM {t}) SELECT x.id FROM a x JOIN a y ON x.id = y.id",
        "SELECT day FROM {dates}",
        "SELECT id FROM {dates}",
    ],
)
def test_other_queries_are_left_to_sparks_reader(
    lake: txlake.LakeSession, tmp_path: Path, query: str
) -> None:
    places = {name: f"delta.`{tmp_path}/{name}`" for name in ("t", "dates")}
    assert not _by_pyarrow(lake.sql(query.format(**places)))


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("seed", range(3, 6))
def test_random_queries_see_what_sparks_reader_sees(
    lake: txlake.LakeSession,
    tmp_path: Path,
    spark: SparkSession,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = Random(seed)
    plan = small_file_queries.random_plan(rng, _FILES)
    arrow = {name: small_file_queries.KINDS[kind][0] for name, kind in plan.kinds.items()}
    files = [
        pa.table({name: pa.array(values, arrow[name]) for name, values in rows.items()})
        for rows in plan.files
    ]
    _write_table(tmp_path / "random", plan.kinds, files)
    kinds: Counter[type] = Counter()
    with settings_made(spark, plan.settings):
        for query in small_file_queries.random_queries(rng, plan, 20):
            text = query.replace("{t}", f"delta.`{tmp_path}/random`")
            monkeypatch.setattr(reading, "_MANY_FILES", _FILES)
            found = _answer(lake, text)
            monkeypatch.setattr(reading, "_MANY_FILES", _FILES + 1)
            assert found == _answer(lake, text), text
            kinds[type(found)] += 1
    assert set(kinds) == {str, tuple}


def _answer(lake: txlake.LakeSession, text: str) -> str | tuple[str, list[str]]:
    """A query's columns and rows; of an error its class."""
    try:
        frame = lake.sql(text)
        return frame.schema.simpleString(), _sorted(frame)
    except (PySparkException, TxlakeError) as error:
        return str(getattr(error, "getCondition", lambda: None)() or type(error))


def test_dataframes_know_the_files_of_their_rows(lake: txlake.LakeSession, tmp_path: Path) -> None:
    frame = lake.read(str(tmp_path / "t"))
    assert not _by_pyarrow(frame)
    assert len(frame.select("_metadata.file_name").distinct().collect()) == _FILES


def test_files_with_deleted_rows_are_left_to_sparks_reader(
    lake: txlake.LakeSession, tmp_path: Path
) -> None:
    place = f"delta.`{tmp_path}/t`"
    query = f"SELECT count(*), sum(small) FROM {place}"
    assert _by_pyarrow(lake.sql(query))
    lake.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    lake.sql(f"DELETE FROM {place} WHERE small = 3")
    found = lake.sql(query)
    assert not _by_pyarrow(found)
    assert [tuple(row) for row in found.collect()] == [(2 * _FILES - 1, -3)]


def test_a_file_that_was_removed_since_is_explained(
    lake: txlake.LakeSession, tmp_path: Path
) -> None:
    frame = lake.sql(f"SELECT sum(id) FROM delta.`{tmp_path}/t`")
    assert _by_pyarrow(frame)
    lake.sql(f"OPTIMIZE delta.`{tmp_path}/t`")
    (tmp_path / "t" / "part 5.parquet").unlink()
    with pytest.raises(
        InvalidRequest, match=r"version 0 can't be read any more: .*part 5\.parquet"
    ):
        frame.collect()
