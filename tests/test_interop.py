"""The interop check itself: it must find what it is for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.interop import (
    Disagreement,
    DuckDB,
    check_newest,
    check_table,
    delta_tables,
    marked_versions,
    readable_versions,
)
from tests.peers import need
from tests.session.table_branch_worker import Worker

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "Mixed name": ["a", None, "c"],
        "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(9, 2)),
        "tags": pa.array([[("b", 1), ("a", 2)], [], None], pa.map_(pa.string(), pa.int32())),
        "nested": pa.array([{"x": [1, None]}, None, {"x": []}]),
        "day": ["2026-01-01", "2026-01-02", "a b%c"],
    }
)


def wrote(table: Path) -> None:
    """Two versions of a partitioned table: three rows, then six."""
    write_deltalake(str(table), ROWS, partition_by=["day"])
    write_deltalake(str(table), ROWS, mode="append")


def rows_of(_: Path, version: int) -> pa.Table:
    return pa.concat_tables([ROWS] * (version + 1))


def files_of(table: Path, version: int) -> list[str]:
    adds = pa.table(DeltaTable(str(table), version=version).get_add_actions())
    return [str(path) for path in adds.column("path").to_pylist()]


@pytest.mark.no_interop("this module checks the check")
class TestCheckTable:
    def test_equal_rows_and_files_pass(self, tmp_path: Path) -> None:
        wrote(tmp_path / "t")
        asked = []

        def read_rows(table: Path, version: int) -> pa.Table:
            asked.append(version)
            return rows_of(table, version)

        check_table(tmp_path / "t", read_rows, files_of)
        assert asked == [0, 1]

    def test_a_lost_row_is_found_at_its_version(self, tmp_path: Path) -> None:
        wrote(tmp_path / "t")
        with pytest.raises(Disagreement, match="version 1: delta-rs reads 6 rows, txlake 5"):
            check_table(tmp_path / "t", lambda t, v: rows_of(t, v).slice(v), files_of)

    def test_a_duplicate_is_found(self, tmp_path: Path) -> None:
        wrote(tmp_path / "t")
        with pytest.raises(Disagreement, match="version 0"):
            check_table(tmp_path / "t", lambda t, v: rows_of(t, v + 1), files_of)

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("id", 4),
            ("Mixed name", ""),
            ("at", dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)),
            ("price", Decimal("1.51")),
            ("tags", [("b", 1)]),
            ("nested", {"x": [1, 0]}),
        ],
    )
    def test_a_changed_value_is_found(self, tmp_path: Path, column: str, value: object) -> None:
        write_deltalake(str(tmp_path / "t"), ROWS)
        changed = ROWS.to_pylist()
        changed[0][column] = value
        ours = pa.Table.from_pylist(changed, schema=ROWS.schema)
        with pytest.raises(Disagreement, match="delta-rs alone has 1"):
            check_table(tmp_path / "t", lambda _t, _v: ours)

    def test_the_order_of_rows_and_of_map_entries_is_free(self, tmp_path: Path) -> None:
        write_deltalake(str(tmp_path / "t"), ROWS)
        turned = ROWS.to_pylist()[::-1]
        turned[-1]["tags"] = turned[-1]["tags"][::-1]
        ours = pa.Table.from_pylist(turned, schema=ROWS.schema)
        check_table(tmp_path / "t", lambda _t, _v: ours)

    def test_other_files_are_found_and_rows_of_lost_files_left_out(self, tmp_path: Path) -> None:
        wrote(tmp_path / "t")
        for file in (tmp_path / "t").rglob("*.parquet"):
            file.unlink()

        def unread(_: Path, version: int) -> pa.Table:
            raise AssertionError(f"nobody can read version {version}")

        check_table(tmp_path / "t", unread, files_of)
        with pytest.raises(Disagreement, match="active files differ"):
            check_table(tmp_path / "t", unread, lambda t, v: files_of(t, v)[1:])

    def test_what_delta_rs_cant_open_is_found(self, tmp_path: Path) -> None:
        wrote(tmp_path / "t")
        (tmp_path / "t" / "_delta_log" / f"{1:020}.json").write_text("{not json\n")
        with pytest.raises(Disagreement, match="version 1: delta-rs can't read it"):
            check_table(tmp_path / "t", rows_of)

    def test_tables_and_versions_are_found(self, tmp_path: Path) -> None:
        wrote(tmp_path / "a" / "t")
        wrote(tmp_path / "u")
        (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
        assert list(delta_tables(tmp_path)) == [tmp_path / "a" / "t", tmp_path / "u"]
        assert readable_versions(tmp_path / "u") == [0, 1]
        DeltaTable(str(tmp_path / "u")).create_checkpoint()
        (tmp_path / "u" / "_delta_log" / f"{0:020}.json").unlink()
        assert readable_versions(tmp_path / "u") == [1]

    def test_rows_may_be_compared_at_the_newest_and_the_checkpointed_versions(
        self, tmp_path: Path
    ) -> None:
        wrote(tmp_path / "t")
        DeltaTable(str(tmp_path / "t")).create_checkpoint()
        write_deltalake(str(tmp_path / "t"), ROWS, mode="append")
        write_deltalake(str(tmp_path / "t"), ROWS, mode="append")
        assert marked_versions(tmp_path / "t") == {1, 3}
        asked: dict[str, list[int]] = {"rows": [], "files": []}

        def read_rows(table: Path, version: int) -> pa.Table:
            asked["rows"].append(version)
            return rows_of(table, version)

        def read_files(table: Path, version: int) -> list[str]:
            asked["files"].append(version)
            return files_of(table, version)

        check_table(tmp_path / "t", read_rows, read_files, rows_at=marked_versions)
        assert asked == {"rows": [1, 3], "files": [0, 1, 2, 3]}

    def test_a_deletion_vector_may_be_gone_of_old_versions_alone(self, tmp_path: Path) -> None:
        worker = Worker(f"{tmp_path.as_uri()}/t")
        worker.do("CREATE TABLE {t} (id INT); INSERT INTO {t} VALUES (1), (2), (3)")
        worker.do("DELETE FROM {t} WHERE id = 1")
        next((tmp_path / "t").glob("deletion_vector_*.bin")).unlink()

        def read_rows(_: Path, version: int) -> pa.Table:
            return pa.table({"id": pa.array([1, 2, 3][: 3 * version], pa.int32())})

        with pytest.raises(Disagreement, match="version 2: delta-rs can't read it"):
            check_table(tmp_path / "t", read_rows)
        worker.do("INSERT OVERWRITE {t} VALUES (1), (2), (3)")
        check_table(tmp_path / "t", read_rows)


@pytest.fixture
def duckdb() -> Iterator[DuckDB]:
    """DuckDB with its Delta extension."""
    python = Path(__file__).parents[1] / ".cache/duckdb-delta/bin/python"
    need("duckdb", found=python.exists())
    with closing(DuckDB(python)) as made:
        yield made


@pytest.mark.peer("duckdb")
@pytest.mark.no_interop("this module checks the check")
class TestCheckNewest:
    def test_equal_rows_pass_and_others_are_found(self, tmp_path: Path, duckdb: DuckDB) -> None:
        wrote(tmp_path / "it's")
        check_newest(tmp_path / "it's", duckdb, rows_of)
        with pytest.raises(Disagreement, match="version 1: DuckDB reads 6 rows, txlake 5"):
            check_newest(tmp_path / "it's", duckdb, lambda t, v: rows_of(t, v).slice(1))
        changed = ROWS.set_column(0, "id", pa.array([1, 2, 4], pa.int64()))
        with pytest.raises(Disagreement, match="txlake alone has 2"):
            check_newest(tmp_path / "it's", duckdb, lambda t, v: pa.concat_tables([changed] * 2))

    def test_files_that_are_gone_are_nobodys_fault(self, tmp_path: Path, duckdb: DuckDB) -> None:
        wrote(tmp_path / "t")
        next(tmp_path.rglob("*.parquet")).unlink()
        check_newest(tmp_path / "t", duckdb, rows_of)

    def test_what_cannot_be_read_is_told(self, tmp_path: Path, duckdb: DuckDB) -> None:
        wrote(tmp_path / "t")
        for file in tmp_path.rglob("*.parquet"):
            file.write_bytes(b"PAR1 no more")
        with pytest.raises(Disagreement, match="DuckDB can't read it"):
            check_newest(tmp_path / "t", duckdb, rows_of)
