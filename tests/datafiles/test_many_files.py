"""Small files that are read together: which of them are, and that their order stays."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlake.datafiles.many_files import SmallFiles, in_order

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
ROWS = pa.table({"b": ["x", None], "a": [1, 2], "more": [0.5, 1.5]})


def _url(folder: Path, rows: pa.Table, name: str) -> str:
    pq.write_table(rows, folder / name)
    return (folder / name).as_uri()


def test_plain_files_are_read_with_the_columns_of_the_table(tmp_path: Path) -> None:
    small = SmallFiles(SCHEMA, by_id=False)
    tables = [small.read(_url(tmp_path, ROWS, f"é {place} %41")) for place in range(3)]
    found = [one for one in tables if one is not None]
    assert len(found) == 3
    batches = list(small.as_rows(found))
    assert batches[0].schema.equals(SCHEMA, check_metadata=True)
    assert pa.Table.from_batches(batches).to_pydict() == {"a": [1, 2] * 3, "b": ["x", None] * 3}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ROWS.drop_columns("a"), id="a column is missing"),
        pytest.param(ROWS.set_column(1, "a", pa.array([1, 2], pa.int32())), id="narrower"),
        pytest.param(pa.concat_tables([ROWS] * 8_193).combine_chunks(), id="many rows"),
        pytest.param(
            pa.table({"a": [1], "b": ["x" * 9_000_000], "more": [0.5]}), id="much when decoded"
        ),
        pytest.param(
            ROWS.replace_schema_metadata({"org.apache.spark.version": "2.4.0"}), id="old times"
        ),
    ],
)
def test_files_that_need_a_conversion_are_left_to_another_reader(
    tmp_path: Path, rows: pa.Table
) -> None:
    small = SmallFiles(SCHEMA, by_id=False)
    plain = _url(tmp_path, ROWS, "plain")
    assert small.read(_url(tmp_path, rows, "other")) is None
    assert small.read(plain) is not None
    assert small.read(_url(tmp_path, rows, "again")) is None


def test_missing_damaged_and_far_files_are_left_to_another_reader(tmp_path: Path) -> None:
    small = SmallFiles(SCHEMA, by_id=False)
    (tmp_path / "damaged").write_bytes(b"PAR1" * 9)
    for url in ((tmp_path / "missing").as_uri(), (tmp_path / "damaged").as_uri(), "s3://b/t/a"):
        assert small.read(url) is None


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order_and_few_are_ahead(threads: int) -> None:
    begun, lock = [0], threading.Lock()

    def work(item: int) -> int:
        with lock:
            begun[0] += 1
        return item * item

    for place, result in enumerate(in_order(work, range(200), threads)):
        assert result == place * place
        assert begun[0] <= place + 2 * threads + 2


def test_an_error_is_raised_in_its_place() -> None:
    found = list[int]()
    with pytest.raises(ZeroDivisionError):
        found.extend(in_order(lambda item: 6 // (3 - item), range(9), 2))
    assert found == [2, 3, 6]
    assert list(in_order(abs, [], 2)) == []
