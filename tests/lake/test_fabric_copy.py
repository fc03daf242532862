"""COPY INTO in Fabric's words: WITH (FILE_TYPE = ...)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=3)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


@pytest.fixture
def table(lake: txlake.Lake) -> txlake.Lake:
    lake.sql("CREATE TABLE t (id INT, name STRING, price DECIMAL(10,2))")
    return lake


ALL = "SELECT id, name, price FROM t"


def shown(lake: txlake.Lake) -> list[tuple[object, ...]]:
    return [
        (one, name, None if price is None else str(price)) for one, name, price in query(lake, ALL)
    ]


def test_a_csv_file_is_copied_as_often_as_it_is_told(table: txlake.Lake, files: Path) -> None:
    (files / "a.csv").write_text(
        'id,name,price\r\n1,"Ada, ""the"" first\n(two lines)",1.50\r\n2,,\r\n3,"",2\r\n'
    )
    copy = f"COPY INTO dbo.t FROM '{files}/a.csv' WITH (FILE_TYPE = 'CSV', FIRSTROW = 2)"
    rows = [(1, 'Ada, "the" first\n(two lines)', "1.50"), (2, None, None), (3, "", "2.00")]
    assert number(table, copy) == 3
    assert shown(table) == rows
    assert number(table, copy) == 3
    assert len(shown(table)) == 6
    # What Databricks' form finds copied stays copied.
    assert number(table, f"COPY INTO t FROM '{files}/a.csv' FILEFORMAT = CSV") == 0


def test_terminators_quotes_and_field_numbers(table: txlake.Lake, files: Path) -> None:
    (files / "a.txt").write_text("1|;'x|;y'|;z|;9.5~2|;b|;'it''s'|;8~")
    table.sql(f"""
        COPY INTO t (name 3, id 1) FROM '{files}/a.txt'
        WITH (FIELDTERMINATOR = '|;', ROWTERMINATOR = '0x7E', FIELDQUOTE = "'")
    """)
    assert shown(table) == [(1, "z", None), (2, "it's", None)]
    with pytest.raises(InvalidRequest, match="field 6 is requested, but the files have 5 fields"):
        table.sql(
            f"COPY INTO t (name 6) FROM '{files}/a.txt' "
            "WITH (FIELDTERMINATOR = '|;', ROWTERMINATOR = '~')"
        )


def test_several_places_and_utf16(table: txlake.Lake, files: Path) -> None:
    for name in ("a", "b"):
        (files / f"{name}.csv").write_bytes(f"1,é{name},1\n".encode("utf-16"))
    table.sql(
        f"COPY INTO t FROM '{files}/a.csv', '{files}/*.csv' "
        "WITH (FILE_TYPE = 'CSV', ENCODING = 'UTF16')"
    )
    assert shown(table) == [(1, "éa", "1.00"), (1, "éb", "1.00")]


@pytest.mark.parametrize(
    ("text", "columns", "problem"),
    [
        ("1,a,1\n2,b\n", "", "a row of .*a.csv doesn't fit: .*2,b"),
        ("1,a,1\n2,b,1,9\n", "", "a row of .*a.csv doesn't fit: .*2,b,1,9"),
        ("1,a,1\n2,b\n", "(id 1, name 2)", "a row of .*a.csv doesn't fit: .*2,b"),
        ("1,a,1\nx,b,1\n", "", "can't hold the value x"),
        ("1,a\n2,b\n", "", "2"),
    ],
)
def test_a_row_that_does_not_fit_ends_the_statement(
    table: txlake.Lake, files: Path, text: str, columns: str, problem: str
) -> None:
    (files / "a.csv").write_text(text)
    with pytest.raises(InvalidRequest, match=problem):
        table.sql(f"COPY INTO t {columns} FROM '{files}/a.csv' WITH (FILE_TYPE = 'CSV')")
    assert shown(table) == []


def test_parquet_goes_by_order_and_by_the_tables_own_names(table: txlake.Lake, files: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": ["a"], "z": [1.5]}), files / "order.parquet")
    pq.write_table(pa.table({"PRICE": [2.5], "name": ["b"], "Id": [2]}), files / "names.parquet")
    for name in ("order", "names"):
        table.sql(f"COPY INTO t FROM '{files}/{name}.parquet' WITH (FILE_TYPE = 'PARQUET')")
    table.sql(
        f"COPY INTO t (name 2, id 3) FROM '{files}/names.parquet' WITH (FILE_TYPE = 'PARQUET')"
    )
    assert shown(table) == [(1, "a", "1.50"), (2, "b", "2.50"), (2, "b", None)]


def test_json_lines_go_by_name(table: txlake.Lake, files: Path) -> None:
    (files / "a.jsonl").write_text('{"name": "a", "id": 1, "price": 12345678.91}\n{"id": 2}\n')
    copy = f"FROM '{files}/a.jsonl' WITH (FILE_TYPE = 'JSONL')"
    table.sql(f"COPY INTO t {copy}")
    table.sql(f"COPY INTO t (id) {copy}")
    assert shown(table) == [
        (1, "a", "12345678.91"), (1, None, None), (2, None, None), (2, None, None),
    ]  # fmt: skip
    with pytest.raises(InvalidRequest, match="the files have no property 'nothing'"):
        table.sql(f"COPY INTO t (nothing) {copy}")
    (files / "a.jsonl").write_text('{"id": 1}\n{"id": \n')
    with pytest.raises(InvalidRequest, match="Malformed records are detected"):
        table.sql(f"COPY INTO t {copy}")
    assert len(shown(table)) == 4


def test_a_secret_is_not_shown(table: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match="storage_options") as caught:
        table.sql(
            "COPY INTO t FROM 'https://a.blob.core.windows.net/c/f' WITH (FILE_TYPE = 'CSV', "
            "CREDENTIAL = (IDENTITY = 'Shared Access Signature', SECRET = 'hunter2'))"
        )
    assert "hunter2" not in str(caught.value)
