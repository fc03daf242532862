"""Bugs that others published about tables that several engines write: read by five engines.

Each table is read from its whole log, and from its newest checkpoint alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.interop import DuckDB
from tests.peers import need
from tests.shared_tables.conftest import workers  # noqa: F401  a fixture
from tests.shared_tables.engines import by_place, lines
from tests.shared_tables.operations import Operation
from tests.shared_tables.workers import ENGINES, Refused, Worker

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.peer("duckdb"),
    pytest.mark.no_interop("all engines read the tables here"),
]

Rows = list[tuple[int, int]]


@pytest.fixture(scope="session")
def duckdb() -> Iterator[DuckDB]:
    python = Path(__file__).parents[2] / ".cache/duckdb-delta/bin/python"
    need("duckdb", found=python.exists())
    reader = DuckDB(python)
    yield reader
    reader.close()


@pytest.fixture
def table(workers: dict[str, Worker], tmp_path: Path) -> Path:  # noqa: F811
    """A table of two files with two rows each, deletion vectors, and checkpoints at each commit."""
    folder = tmp_path / "t"
    place, sql = by_place(str(folder)), workers["txlake"].sql
    sql(
        f"CREATE TABLE {place} (id BIGINT, n BIGINT) TBLPROPERTIES "
        "('delta.checkpointInterval' = '1')"
    )
    sql(f"INSERT INTO {place} VALUES (1, 10), (2, 20)")
    sql(f"INSERT INTO {place} VALUES (3, 30), (4, 40)")
    return folder


def read_by_all(folder: Path, workers: dict[str, Worker], duckdb: DuckDB) -> dict[str, list[str]]:  # noqa: F811
    """The newest version's rows by each engine."""
    version = DeltaTable(str(folder)).version()
    found = {name: workers[name].read(folder, [version])[0] for name in ENGINES}
    rows = duckdb.rows(folder)
    found["duckdb"] = rows if isinstance(rows, str) else lines(rows)  # type: ignore[assignment]
    return found


def check(
    folder: Path,
    rows: Rows,
    workers: dict[str, Worker],  # noqa: F811
    duckdb: DuckDB,
    tmp_path: Path,
) -> None:
    """All engines read these rows, from the log and from the newest checkpoint alone."""
    expected = sorted(json.dumps({"id": id, "n": n}) for id, n in rows)
    from_log = read_by_all(folder, workers, duckdb)
    assert from_log == dict.fromkeys(from_log, expected)
    # One more commit without rows, which has a checkpoint whichever engine made the last change.
    place = by_place(str(folder))
    workers["txlake"].sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('note' = 'checkpointed')")
    copy = tmp_path / "checkpointed"
    shutil.copytree(folder, copy)
    log = copy / "_delta_log"
    newest = max(log.glob("*.json"))
    assert (log / f"{newest.stem}.checkpoint.parquet").exists()
    for path in log.iterdir():
        if path.name[:20].isdigit() and path.name[:20] < newest.stem:
            path.unlink()
    from_checkpoint = read_by_all(copy, workers, duckdb)
    assert from_checkpoint == dict.fromkeys(from_checkpoint, expected)


def committed(sql: Callable[[str], list[str]]) -> bool:
    """Commit; whether no concurrent commit was in the way. Raises Refused for another error."""
    try:
        sql("COMMIT")
    except Refused as refused:
        if not refused.conflict:
            raise
        return False
    return True


def by_delta_rs(folder: Path, _workers: dict[str, Worker], where: str) -> None:
    DeltaTable(str(folder)).delete(where)


def by_delta_spark(folder: Path, workers: dict[str, Worker], where: str) -> None:  # noqa: F811
    workers["delta-spark"].sql(f"DELETE FROM {by_place(str(folder))} WHERE {where}")


Delete = Callable[[Path, dict[str, Worker], str], None]
OTHERS = pytest.mark.parametrize("delete", [by_delta_rs, by_delta_spark])


@OTHERS
@pytest.mark.parametrize("vectored", [False, True], ids=["a whole file", "a file with a vector"])
def test_an_update_beside_a_delete_of_the_same_row_aborts(
    delete: Delete,
    vectored: bool,
    workers: dict[str, Worker],  # noqa: F811
    table: Path,
    duckdb: DuckDB,
    tmp_path: Path,
) -> None:
    """One delete in two forms: txlake marks the row, the other engine may rewrite its file."""
    place, sql = by_place(str(table)), workers["txlake"].sql
    rows = [(1, 10), (2, 20), (3, 30), (4, 40)]
    if vectored:
        sql(f"DELETE FROM {place} WHERE id = 2")
        rows.remove((2, 20))
    sql("BEGIN")
    sql(f"UPDATE {place} SET n = 11 WHERE id = 1")
    delete(table, workers, "id = 1")
    assert not committed(sql)
    check(table, rows[1:], workers, duckdb, tmp_path)


@OTHERS
def test_a_delete_of_another_row_of_the_file_is_kept_or_refused(
    delete: Delete,
    workers: dict[str, Worker],  # noqa: F811
    table: Path,
    duckdb: DuckDB,
    tmp_path: Path,
) -> None:
    """Rows that one engine's vector and the other's new file delete are all gone, or the later
    transaction aborts. None comes back."""
    place, sql = by_place(str(table)), workers["txlake"].sql
    sql("BEGIN")
    sql(f"UPDATE {place} SET n = 11 WHERE id = 1")
    delete(table, workers, "id = 2")
    rows = [(3, 30), (4, 40)]
    rows.append((1, 11) if committed(sql) else (1, 10))
    check(table, rows, workers, duckdb, tmp_path)


@OTHERS
def test_a_compaction_of_a_file_that_a_delete_emptied(
    delete: Delete,
    workers: dict[str, Worker],  # noqa: F811
    table: Path,
    duckdb: DuckDB,
    tmp_path: Path,
) -> None:
    """delta-io/delta #7302: the compaction commits the rows of a file that is gone."""
    place, sql = by_place(str(table)), workers["txlake"].sql
    sql("BEGIN")
    sql(f"OPTIMIZE {place}")
    delete(table, workers, "id >= 3")
    committed(sql)
    check(table, [(1, 10), (2, 20)], workers, duckdb, tmp_path)


@OTHERS
def test_two_compactors_with_a_delete_between(
    delete: Delete,
    workers: dict[str, Worker],  # noqa: F811
    table: Path,
    duckdb: DuckDB,
    tmp_path: Path,
) -> None:
    """trinodb/trino #31252: a checkpoint keyed by path alone has a file with an old vector too."""
    place, sql = by_place(str(table)), workers["txlake"].sql
    sql(f"DELETE FROM {place} WHERE id = 1")
    sql("BEGIN")
    sql(f"OPTIMIZE {place}")
    delete(table, workers, "id = 3")
    workers["delta-spark"].apply(table, Operation(kind="optimize", marker="compacted"))
    committed(sql)
    check(table, [(2, 20), (4, 40)], workers, duckdb, tmp_path)
    sql(f"DELETE FROM {place} WHERE id = 2")
    shutil.rmtree(tmp_path / "checkpointed")
    check(table, [(4, 40)], workers, duckdb, tmp_path)
