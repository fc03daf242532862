"""`_metadata` of the files that rows are in, in queries and COPY INTO."""

from __future__ import annotations

from pathlib import Path

import pytest

import txlake
from tests.lake.rows import query
from txlake.errors import InvalidRequest


def test_a_query_tells_its_files(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'a')")
    lake.sql("INSERT INTO t VALUES (3, 'b')")
    lake.sql("DELETE FROM t WHERE id = 1")  # one file has a deletion vector, the other hasn't
    shown = lake.sql(
        "SELECT *, _metadata.file_path AS path, _metadata.file_name AS name, "
        "_metadata.row_index AS row, _metadata.file_size AS size, "
        "_metadata.file_modification_time AS time FROM t WHERE _metadata.file_size > 0"
    )
    assert shown.columns == ["id", "p", "path", "name", "row", "size", "time"]
    found = sorted(shown.collect())
    assert [(row.id, row.p, row.row) for row in found] == [(2, "a", 1), (3, "b", 0)]
    for row in found:
        path = Path(row.path.removeprefix("file:").replace("///", "/"))
        assert (path.name, path.stat().st_size) == (row.name, row.size)
    # A plain query has no such column, and a table's own column of that name is its own.
    assert lake.sql("SELECT * FROM t").columns == ["id", "p"]
    fields = lake.sql("SELECT id, _metadata.* FROM t").columns
    assert fields[:2] == ["id", "file_path"]
    assert "row_index" in fields
    lake.sql("CREATE TABLE own (`_metadata` INT); INSERT INTO own VALUES (5)")
    assert query(lake, "SELECT *, _metadata + 1 FROM own") == [(5, 6)]
    with pytest.raises(InvalidRequest, match="name the columns"):
        lake.sql("SELECT *, _metadata FROM t JOIN own")


def test_rows_that_are_tracked_tell_who_they_are(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT) TBLPROPERTIES (delta.enableRowTracking = true)")
    lake.sql("INSERT INTO t VALUES (1), (2)")
    lake.sql("UPDATE t SET id = 3 WHERE id = 1")
    asked = "SELECT id, _metadata.row_id, _metadata.row_commit_version FROM t"
    found = {row[0]: (row[1], row[2]) for row in lake.sql(asked).collect()}
    assert found == {3: (0, 2), 2: (1, 1)}


def test_copy_into_takes_what_files_tell(lake: txlake.Lake, tmp_path: Path) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1}\n')
    lake.sql("CREATE TABLE t (id BIGINT, file STRING)")
    lake.sql(
        f"COPY INTO t FROM (SELECT *, _metadata.file_name AS file FROM '{folder}') "
        "FILEFORMAT = JSON"
    )
    assert query(lake, "SELECT * FROM t") == [(1, "a.json")]


@pytest.mark.no_interop("delta-rs reads no version that has no columns")
def test_copy_into_gives_a_table_without_columns_those_of_the_files(
    lake: txlake.Lake, tmp_path: Path
) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1, "name": "one"}\n')
    lake.sql("CREATE TABLE t")
    assert lake.sql("SELECT * FROM t").columns == []
    assert lake.sql("SELECT * FROM t").count() == 0
    copy = f"COPY INTO t FROM '{folder}' FILEFORMAT = JSON"
    with pytest.raises(InvalidRequest, match="id"):
        lake.sql(copy)
    with pytest.raises(InvalidRequest, match="expected 0 values"):
        lake.sql("INSERT INTO t VALUES (1)")
    lake.sql(f"{copy} COPY_OPTIONS ('mergeSchema' = 'true')")
    assert query(lake, "SELECT * FROM t") == [(1, "one")]
    (folder / "b.json").write_text('{"id": 2, "extra": true}\n')
    lake.sql(f"{copy} COPY_OPTIONS ('mergeSchema' = 'true')")
    assert query(lake, "SELECT id, name, extra FROM t") == [(1, "one", None), (2, None, True)]
