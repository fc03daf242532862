"""Which pairs of writes conflict: Databricks' two tables, cell by cell, on path tables.

Each statement runs once, on Spark; what it did is then committed as the first and as the second of
two in copies of its table. The rows are read by delta-rs. Source: the Databricks documentation,
"Isolation levels and write conflicts" and "Row-level concurrency", its conflict matrix and its
notes: INSERT is one that reads nothing, and concurrency by row needs deletion vectors.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import txlake
from txlake.commit.change import Change
from txlake.conflict.granularity import PROPERTY
from txlake.conflict.levels import Level
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    Conflict,
    UpdateConflict,
)
from txlake.protocol.file_names import commit_path
from txlake.session.engine import Engine, Handle
from txlake.session.transaction import Transaction
from txlake.sql.statements import TablePath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPEND = ConcurrentAppendException
DELETE_READ = ConcurrentDeleteReadException
DELETE_DELETE = ConcurrentDeleteDeleteException
WRITE_SERIALIZABLE, SERIALIZABLE = Level.WRITE_SERIALIZABLE, Level.SERIALIZABLE

# Rows 5 and 6 are in the first of two files, row 100 in none.
INSERT = "INSERT INTO {t} VALUES (100, 'new')"
INSERT_5 = "INSERT INTO {t} VALUES (5, 'new')"
UPDATE_5, UPDATE_6 = ("UPDATE {t} SET s = 'u' WHERE id = " + row for row in "56")
DELETE_5, DELETE_6 = ("DELETE FROM {t} WHERE id = " + row for row in "56")
MERGE_5, MERGE_6 = (
    "MERGE INTO {t} AS t USING (SELECT CAST(" + row + " AS BIGINT) AS id) AS s ON t.id = s.id "
    "AND t.id = " + row + " WHEN MATCHED THEN UPDATE SET s = 'm'"
    for row in "56"
)
CHANGES_5, CHANGES_6 = (UPDATE_5, DELETE_5, MERGE_5), (UPDATE_6, DELETE_6, MERGE_6)
MERGE_NEW = (
    "MERGE INTO {t} AS t USING (SELECT 100L AS id, 'merged' AS s) AS new ON t.id = new.id "
    "WHEN NOT MATCHED THEN INSERT *"
)
OPTIMIZE, ZORDER = "OPTIMIZE {t}", "OPTIMIZE {t} ZORDER BY (id)"
NAMES = {
    INSERT: "insert",
    INSERT_5: "insert 5",
    **dict(zip(CHANGES_5, ("update 5", "delete 5", "merge 5"), strict=True)),
    **dict(zip(CHANGES_6, ("update 6", "delete 6", "merge 6"), strict=True)),
    MERGE_NEW: "add by merge",
    OPTIMIZE: "optimize",
    ZORDER: "zorder",
}
# What a user sees of a statement that ran on the rows that it is given.
Rows = dict[tuple[int, str], int]


@dataclass(frozen=True)
class Cell:
    """Two statements, and how the second to commit ends at each level; None where it commits."""

    first: str
    second: str
    write_serializable: type[Conflict] | None = None
    serializable: type[Conflict] | None = None

    def expected(self, level: Level) -> type[Conflict] | None:
        return self.write_serializable if level is WRITE_SERIALIZABLE else self.serializable


def always(first: str, second: str, error: type[Conflict] | None = None) -> Cell:
    """The same at both levels."""
    return Cell(first, second, error, error)


def name(cell: Cell) -> str:
    return f"{NAMES[cell.first]} then {NAMES[cell.second]}"


def by_row() -> Iterator[Cell]:
    """The table with concurrency by row."""
    yield always(INSERT, INSERT)
    for change, other in zip(CHANGES_5, CHANGES_6, strict=True):
        yield always(change, INSERT)
        yield always(change, INSERT_5)
        yield always(INSERT, change)
        yield Cell(INSERT_5, change, None, APPEND)
        yield from (always(one, change) for one in CHANGES_6)
        yield always(UPDATE_5, change, APPEND)
        yield always(MERGE_5, change, APPEND)
        yield always(DELETE_5, change, DELETE_READ if change is MERGE_5 else DELETE_DELETE)
        for rewrite in (OPTIMIZE, ZORDER):
            yield always(rewrite, other)
            yield always(other, rewrite)
    yield always(MERGE_NEW, UPDATE_5)
    yield always(UPDATE_5, MERGE_NEW)
    yield always(MERGE_NEW, MERGE_NEW, APPEND)
    yield from by_anything()
    for rewrite in (OPTIMIZE, ZORDER):
        yield always(OPTIMIZE, rewrite)
        yield always(ZORDER, rewrite)


def by_file(*, copies: bool) -> Iterator[Cell]:
    """The table without: rows 5 and 6 are in one file. `copies`: a change writes the file anew."""
    yield always(INSERT, INSERT)
    for change in CHANGES_5:
        yield always(change, INSERT)
        yield always(INSERT, change)
        yield Cell(INSERT_5, change, None, APPEND)
        yield from (always(one, change, APPEND if copies else DELETE_READ) for one in CHANGES_6)
        for rewrite in (OPTIMIZE, ZORDER):
            yield always(rewrite, change, DELETE_READ)
            yield always(change, rewrite, DELETE_DELETE)
    yield from by_anything()
    for rewrite in (OPTIMIZE, ZORDER):
        yield always(OPTIMIZE, rewrite, DELETE_DELETE)
        yield always(ZORDER, rewrite, DELETE_DELETE)


def by_table() -> Iterator[Cell]:
    """Microsoft Fabric's: of two that don't only append one fails, whatever they changed."""
    yield always(INSERT, INSERT)
    for change in CHANGES_5:
        yield always(change, INSERT)
        yield always(INSERT, change)
        yield from (always(one, change, UpdateConflict) for one in CHANGES_6)
    yield always(MERGE_NEW, UPDATE_5, UpdateConflict)
    yield always(UPDATE_5, MERGE_NEW, UpdateConflict)
    yield always(MERGE_NEW, MERGE_NEW, UpdateConflict)
    yield always(MERGE_NEW, INSERT)
    yield always(OPTIMIZE, UPDATE_5, UpdateConflict)
    yield always(UPDATE_5, OPTIMIZE, UpdateConflict)


def by_anything() -> Iterator[Cell]:
    """Rewrites beside inserts, and beside one another, where the grain changes nothing."""
    for rewrite in (OPTIMIZE, ZORDER):
        yield always(INSERT, rewrite)
        yield always(rewrite, INSERT)


class Tables:
    """A table with deletion vectors and one without, their copies, what statements do to them."""

    def __init__(self, lake: txlake.Lake, folder: Path) -> None:
        self._lake = lake
        self._folder = folder
        self._changes: dict[tuple[bool, str, bool], Change] = {}
        self._copies = count()
        self.engine: Engine = lake._session.engine

    def made(self, vectors: bool) -> Path:
        """The table: rows 1 to 10 in one file, 11 to 20 in another."""
        place = self._folder / f"vectors {vectors}"
        if not place.exists():
            self._lake.sql(
                f"CREATE TABLE delta.`{place}` (id BIGINT, s STRING) TBLPROPERTIES "
                f"('delta.enableDeletionVectors' = '{vectors}', '{PROPERTY}' = 'row')"
            )
            for start in (1, 11):
                rows = pa.table({"id": range(start, start + 10), "s": ["old"] * 10})
                self._lake.write(rows, str(place), "append")
        return place

    def change(self, vectors: bool, statement: str, *, again: bool = False) -> Change:
        """What the statement does, or does when it runs again; it isn't committed."""
        key = (vectors, statement, again)
        if key not in self._changes:
            place, tx = self.made(vectors), self._lake.begin()
            with mock.patch.object(Transaction, "stage", autospec=True) as stage:
                tx.sql(statement.format(t=f"delta.`{place}`"))
            tx.rollback()
            [call] = stage.call_args_list
            self._changes[key] = call.args[2]
        return self._changes[key]

    def copy(self, vectors: bool, granularity: str) -> Handle:
        """The table somewhere else, with the files that statements have written so far."""
        place = self._folder / f"copy {next(self._copies)}"
        shutil.copytree(self.made(vectors), place, copy_function=os.link)
        first = place / commit_path(0)
        text = first.read_text()
        first.unlink()
        first.write_text(text.replace(f'"{PROPERTY}":"row"', f'"{PROPERTY}":"{granularity}"'))
        return self.engine.at(str(place), TablePath(str(place)))

    def begun(self, handle: Handle, change: Change, level: Level) -> Transaction:
        """A transaction that did this."""
        one = Transaction(
            id="t",
            engine=self.engine,
            session_number=lambda: 1,
            level=level,
            explicit=False,
        )
        one.stage(handle, change)
        return one


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    folder = tmp_path_factory.mktemp("conflict tables")
    with txlake.connect(str(folder / "warehouse"), spark=spark) as lake:
        yield Tables(lake, folder)


def race(
    tables: Tables, cell: Cell, level: Level, *, vectors: bool = True, granularity: str = "row"
) -> None:
    first = tables.change(vectors, cell.first)
    second = tables.change(vectors, cell.second, again=cell.first == cell.second)
    handle = tables.copy(vectors, granularity)
    winner, loser = (tables.begun(handle, one, level) for one in (first, second))
    winner.commit()
    expected = cell.expected(level)
    if expected is None:
        loser.commit()
    else:
        with pytest.raises(Conflict) as caught:
            loser.commit()
        assert type(caught.value) is expected, str(caught.value)
        assert caught.value.evidence is not None
        assert caught.value.evidence.winning_version == 3
    orders = [[cell.first]] if expected else [[cell.first, cell.second]]
    if level is WRITE_SERIALIZABLE and expected is None:
        orders.append([cell.second, cell.first])
    assert read(handle) in [after(one) for one in orders]


def read(handle: Handle) -> Rows:
    """The rows of the newest version, by delta-rs."""
    table = DeltaTable(handle.store.url)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT id, s FROM t").read_all())
    rows: Rows = {}
    for one in found.to_pylist():
        row = (one["id"], one["s"])
        rows[row] = rows.get(row, 0) + 1
    return rows


def after(statements: list[str]) -> Rows:
    """The rows after these statements, one by one."""
    rows: Rows = {(row, "old"): 1 for row in range(1, 21)}
    for statement in statements:
        if statement is MERGE_NEW:
            rows[100, "merged"] = 1
            continue
        kind, _, number = NAMES[statement].partition(" ")
        row = int(number or 100)
        if kind == "insert":
            rows[row, "new"] = rows.get((row, "new"), 0) + 1
        elif kind in ("update", "merge", "delete"):
            taken = sum(rows.pop(one) for one in list(rows) if one[0] == row)
            if taken and kind != "delete":
                rows[row, kind[0]] = taken
    return rows


levels = pytest.mark.parametrize(
    "level", [WRITE_SERIALIZABLE, SERIALIZABLE], ids=lambda level: level.value
)


@pytest.mark.broad(keep=5)
@levels
@pytest.mark.parametrize("cell", list(by_row()), ids=name)
def test_with_concurrency_by_row(tables: Tables, cell: Cell, level: Level) -> None:
    race(tables, cell, level)


@pytest.mark.broad(keep=3)
@levels
@pytest.mark.parametrize("cell", list(by_file(copies=False)), ids=name)
def test_with_concurrency_by_file(tables: Tables, cell: Cell, level: Level) -> None:
    race(tables, cell, level, granularity="file")


@pytest.mark.broad(keep=3)
@levels
@pytest.mark.parametrize("cell", list(by_file(copies=True)), ids=name)
def test_without_deletion_vectors(tables: Tables, cell: Cell, level: Level) -> None:
    race(tables, cell, level, vectors=False)


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("cell", list(by_table()), ids=name)
def test_with_concurrency_by_table(tables: Tables, cell: Cell) -> None:
    race(tables, cell, WRITE_SERIALIZABLE, granularity="table")
