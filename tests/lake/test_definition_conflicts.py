"""Two changes of one table's definition at the same time, in a lake and on path tables."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import txlake
from tests.lake.rows import query
from txlake.errors import MetadataChangedException

# What an open transaction does, what commits first, and whether the open one follows it.
CASES: dict[str, tuple[str, str, bool]] = {
    "two properties": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('a' = '1')",
        "ALTER TABLE {t} SET TBLPROPERTIES ('b' = '1')",
        True,
    ),
    "a property and a column": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('a' = '1')",
        "ALTER TABLE {t} ADD COLUMN x INT",
        True,
    ),
    "a column and a comment": (
        "ALTER TABLE {t} ADD COLUMN x INT",
        "COMMENT ON TABLE {t} IS 'of orders'",
        True,
    ),
    "two columns": (
        "ALTER TABLE {t} ADD COLUMN x INT",
        "ALTER TABLE {t} ADD COLUMN y INT",
        True,
    ),
    "one property": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('a' = '1')",
        "ALTER TABLE {t} SET TBLPROPERTIES ('a' = '2')",
        False,
    ),
    "one column": (
        "ALTER TABLE {t} ADD COLUMN x INT",
        "ALTER TABLE {t} ADD COLUMN X BIGINT",
        False,
    ),
    "a property, with rows": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('a' = '1'); INSERT INTO {t} VALUES (1, 1)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('b' = '1')",
        False,
    ),
}


def serially(lake: txlake.Lake, first: str, then: str, table: str) -> object:
    """The definition of another table on which both ran one after the other."""
    lake.sql(f"CREATE TABLE {table} (id INT, v INT)")
    lake.sql(first.format(t=table))
    lake.sql(then.format(t=table))
    return definition(lake, table)


def definition(lake: txlake.Lake, name: str) -> object:
    """Columns, comment and properties."""
    [detail] = query(lake, f"DESCRIBE DETAIL {name}")
    return query(lake, f"DESCRIBE {name}"), detail[3], query(lake, f"SHOW TBLPROPERTIES {name}")


def together(lake: txlake.Lake, ours: str, theirs: str, table: str) -> None:
    """Run both at once: ours begins first and commits last."""
    with lake.transaction() as open_one:
        open_one.sql(ours.format(t=table))
        done = threading.Thread(target=lambda: lake.sql(theirs.format(t=table)))
        done.start()
        done.join(timeout=60)
        assert not done.is_alive()


@pytest.mark.parametrize("name", CASES)
def test_by_place(row_lake: txlake.Lake, tmp_path: Path, name: str) -> None:
    ours, theirs, follows = CASES[name]
    table = f"delta.`{tmp_path / 'placed'}`"
    row_lake.sql(f"CREATE TABLE {table} (id INT, v INT)")
    if not follows:
        with pytest.raises(MetadataChangedException):
            together(row_lake, ours, theirs, table)
        return
    together(row_lake, ours, theirs, table)
    other = f"delta.`{tmp_path / 'other'}`"
    assert definition(row_lake, table) == serially(row_lake, theirs, ours, other)


@pytest.mark.parametrize("drops", ["DROP COLUMN v", "REPLACE COLUMNS (id INT, w INT)"])
def test_a_column_is_not_dropped_that_the_table_is_clustered_by_since(
    row_lake: txlake.Lake, tmp_path: Path, drops: str
) -> None:
    table = f"delta.`{tmp_path / 'placed'}`"
    row_lake.sql(
        f"CREATE TABLE {table} (id INT, v INT, w INT) CLUSTER BY (id) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    ours, theirs = f"ALTER TABLE {table} {drops}", f"ALTER TABLE {table} CLUSTER BY (v)"
    with pytest.raises(MetadataChangedException, match=r"delta\.clustering"):
        together(row_lake, ours, theirs, table)
    moved = f"ALTER TABLE {table} REPLACE COLUMNS (id INT, w INT, v INT)"
    together(row_lake, moved, f"ALTER TABLE {table} CLUSTER BY (w)", table)


@pytest.mark.parametrize("name", ["two properties", "one property"])
def test_in_a_lake(row_lake: txlake.Lake, name: str) -> None:
    """Locks keep two ALTERs apart; a transaction whose instant lies before the other's meets it."""
    ours, theirs, follows = CASES[name]
    row_lake.sql("CREATE TABLE t (id INT, v INT); CREATE TABLE u (id INT)")
    with row_lake.transaction() as open_one:
        open_one.sql("INSERT INTO u VALUES (1)")
        row_lake.sql(theirs.format(t="t"))
        open_one.sql(ours.format(t="t"))
        if not follows:
            with pytest.raises(MetadataChangedException):
                open_one.commit()
            return
    assert definition(row_lake, "t") == serially(row_lake, theirs, ours, "other")
    assert query(row_lake, "SELECT id FROM u") == [(1,)]
