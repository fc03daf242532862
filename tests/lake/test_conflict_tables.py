"""Which pairs of writes conflict: Databricks' two tables, cell by cell, on the real engine.

The first transaction's statement runs while the second transaction is open; the second commits
last. Source: "Row-level concurrency" and "Isolation levels" of the Databricks documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import query
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    Conflict,
)

APPEND = ConcurrentAppendException
ROWS = (ConcurrentDeleteDeleteException, ConcurrentDeleteReadException)
LEVELS = ("WriteSerializable", "Serializable")
# Each statement names row 5 or 6 of the first file, or none.
INSERT = "INSERT INTO t VALUES (100, 'new')"
INSERT_MATCHING = "INSERT INTO t VALUES (5, 'new')"
UPDATE = "UPDATE t SET s = 'u' WHERE id = {row}"
DELETE = "DELETE FROM t WHERE id = {row}"
MERGE = (
    "MERGE INTO t USING (SELECT {row} AS id) AS s ON t.id = s.id AND t.id = {row} "
    "WHEN MATCHED THEN UPDATE SET s = 'm'"
)
CHANGES = (UPDATE, DELETE, MERGE)
OPTIMIZE = "OPTIMIZE t"
ZORDER = "OPTIMIZE t ZORDER BY (id)"


@dataclass(frozen=True)
class Cell:
    """Two statements, and the exceptions that the second may end with at each level."""

    first: str
    second: str
    write_serializable: tuple[type[Conflict], ...] = ()
    serializable: tuple[type[Conflict], ...] = ()

    def expected(self, level: str) -> tuple[type[Conflict], ...]:
        return self.write_serializable if level == LEVELS[0] else self.serializable


def always(first: str, second: str, *errors: type[Conflict]) -> Cell:
    return Cell(first, second, errors, errors)


def name(cell: Cell) -> str:
    return f"{cell.first} / {cell.second}"


def by_row() -> Iterator[Cell]:
    """The table with row-level concurrency."""
    yield always(INSERT, INSERT)
    for change in CHANGES:
        this, that = change.format(row=5), change.format(row=6)
        yield always(INSERT, this)
        yield always(this, INSERT)
        yield always(this, INSERT_MATCHING)
        yield Cell(INSERT_MATCHING, this, (), (APPEND,))
        for other in CHANGES:
            yield always(other.format(row=6), this)
            yield always(other.format(row=5), this, *ROWS, APPEND)
        yield always(OPTIMIZE, this)
        yield always(this, OPTIMIZE)
        yield always(ZORDER, that, *ROWS)
        yield always(that, ZORDER, *ROWS)
    yield always(INSERT, OPTIMIZE)
    yield always(OPTIMIZE, INSERT)
    yield always(OPTIMIZE, OPTIMIZE)
    yield always(ZORDER, ZORDER, *ROWS)


def by_file() -> Iterator[Cell]:
    """The table without row-level concurrency: rows 5 and 6 are of one file."""
    yield always(INSERT, INSERT)
    for change in CHANGES:
        this, that = change.format(row=5), change.format(row=6)
        yield always(INSERT, this)
        yield always(this, INSERT)
        yield Cell(INSERT_MATCHING, this, (), (APPEND,))
        for other in CHANGES:
            yield always(other.format(row=6), this, *ROWS, APPEND)
        yield always(OPTIMIZE, that, *ROWS)
        yield always(that, OPTIMIZE, *ROWS)
    yield always(INSERT, OPTIMIZE)
    yield always(OPTIMIZE, INSERT)
    yield always(OPTIMIZE, OPTIMIZE, *ROWS)


def opened(lake: txlake.Lake, place: Path | None, level: str, **properties: str) -> str:
    """A table of two files: rows 1 to 10, and 11 to 20. Its name as SQL has it."""
    table = "t" if place is None else f"delta.`{place}`"
    settings = {"delta.isolationLevel": level, **properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in settings.items())
    lake.sql(f"CREATE TABLE {table} (id BIGINT, s STRING) USING delta TBLPROPERTIES ({listed})")
    for start in (1, 11):
        ids = list(range(start, start + 10))
        lake.write(pa.table({"id": ids, "s": ["old"] * 10}), str(place or "t"), "append")
    return table


def run(lake: txlake.Lake, table: str, cell: Cell, level: str) -> None:
    first, second = (
        text.replace(" t ", f" {table} ", 1) if table != "t" else text
        for text in (f"{cell.first} ", f"{cell.second} ")
    )
    if table != "t":
        first, second = (text.replace("t.id", "target.id") for text in (first, second))
        first, second = (text.replace(" USING (", " AS target USING (") for text in (first, second))
    before = query(lake, f"SELECT * FROM {table}")
    tx = lake.begin()
    tx.sql(second)
    lake.sql(first)
    errors = cell.expected(level)
    if not errors:
        tx.commit()
    else:
        with pytest.raises(errors) as caught:
            tx.commit()
        assert caught.value.evidence is not None
    serial = [first, second] if not errors else [first]
    assert query(lake, f"SELECT * FROM {table}") == after(before, serial)


def after(before: list[tuple[object, ...]], texts: list[str]) -> list[tuple[object, ...]]:
    """The rows after these statements, by a model of them."""
    rows = {row[0]: str(row[1]) for row in before}
    extra: list[tuple[object, ...]] = []
    for text in texts:
        row = 5 if " 5 " in f"{text} ".replace(")", " ") else 6
        if text.startswith("INSERT"):
            extra.append((100, "new") if "100" in text else (5, "new"))
        elif text.startswith("UPDATE") and row in rows:
            rows[row] = "u"
        elif text.startswith("MERGE") and row in rows:
            rows[row] = "m"
        elif text.startswith("DELETE"):
            rows.pop(row, None)
    return sorted([*rows.items(), *extra], key=repr)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cell", list(by_row()), ids=name)
def test_with_row_level_concurrency(lake: txlake.Lake, cell: Cell, level: str) -> None:
    run(lake, opened(lake, None, level), cell, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cell", list(by_file()), ids=name)
@pytest.mark.parametrize("how", ["without vectors", "file"])
def test_without_row_level_concurrency(lake: txlake.Lake, cell: Cell, level: str, how: str) -> None:
    properties = {
        "without vectors": {"delta.enableDeletionVectors": "false"},
        "file": {"txlake.conflictGranularity": "file"},
    }[how]
    run(lake, opened(lake, None, level, **properties), cell, level)
