"""Bugs that others published about keys that two writers bring at once.

Nobody has the key yet, so that neither writer touches a file of the other's. At Snapshot both
commit here too, which shows what the programs can do; from WriteSerializable on the second may not.
"""

from __future__ import annotations

import pytest

import txlake
from tests.bugs_of_others.conftest import Made, Maker
from tests.lake.rows import number, query
from txlake.errors import ConcurrentAppendException, Conflict

pytestmark = pytest.mark.broad(keep=3)

MERGE = (
    "MERGE INTO {t} AS t USING (SELECT 5 AS id, '{by}' AS who, '{day}' AS day) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET who = s.who WHEN NOT MATCHED THEN INSERT *"
)
UNLESS_THERE = (
    "INSERT INTO {t} SELECT s.* FROM (SELECT 5 AS id, '{by}' AS who, '{day}' AS day) AS s "
    "LEFT ANTI JOIN {t} AS t ON t.id = s.id"
)
DELETE_INSERT = "DELETE FROM {t} WHERE id = 5; INSERT INTO {t} VALUES (5, '{by}', '{day}')"


def both(lake: txlake.Lake, t: Made, program: str, level: str | None) -> list[txlake.Transaction]:
    """Two transactions that have both run the program, and not committed."""
    transactions = [lake.begin(isolation=level) for _ in range(2)]
    for tx, by, day in zip(transactions, ("one", "two"), ("d1", "d2"), strict=True):
        tx.sql(program.format(t=t.sql, by=by, day=day))
    return transactions


def one_key(lake: txlake.Lake, t: Made, program: str) -> None:
    """Run it twice at once, where both may commit and where they may not."""
    first, second = both(lake, t, program, "snapshot")
    first.commit()
    second.commit()
    assert number(lake, f"SELECT count(*) FROM {t.sql} WHERE id = 5") == 2
    lake.sql(f"DELETE FROM {t.sql} WHERE id = 5")
    first, second = both(lake, t, program, None)
    first.commit()
    with pytest.raises(ConcurrentAppendException):
        second.commit()
    assert query(lake, f"SELECT * FROM {t.sql} WHERE id = 5") == [(5, "one", "d1")]


def test_iceberg_12653_merges_that_match_nothing(lake: txlake.Lake, make: Maker) -> None:
    """A MERGE that finds no match is committed as a plain append, which conflicts with nothing."""
    t = make("id INT, who STRING, day STRING")
    lake.sql(f"INSERT INTO {t.sql} VALUES (1, 'seed', 'd0')")
    one_key(lake, t, MERGE)


def test_trino_31072_merges_into_different_partitions(lake: txlake.Lake, make: Maker) -> None:
    """The commit is checked against the partitions that it writes, not those that it read."""
    t = make("id INT, who STRING, day STRING", "PARTITIONED BY (day)")
    lake.sql(f"INSERT INTO {t.sql} VALUES (1, 'seed', 'd0')")
    one_key(lake, t, MERGE)


def test_hudi_9831_inserts_of_what_is_not_there(lake: txlake.Lake, make: Maker) -> None:
    """INSERT unless it is there: each looked before the other had committed."""
    t = make("id INT, who STRING, day STRING")
    one_key(lake, t, UNLESS_THERE)


def test_ducklake_1393_a_delete_of_nothing_then_an_insert(lake: txlake.Lake, make: Maker) -> None:
    """A DELETE that matches no row leaves no trace, so that the upsert is a plain insert."""
    t = make("id INT, who STRING, day STRING")
    one_key(lake, t, DELETE_INSERT)


@pytest.mark.parametrize("level", ["snapshot", "write_serializable", "serializable"])
def test_delta_rs_3622_overwrites_of_the_same_rows(
    lake: txlake.Lake, make: Maker, level: str
) -> None:
    """The second overwrite looks for the files to remove at its commit: the first one's."""
    t = make("id INT, who STRING, day STRING", "PARTITIONED BY (day)")
    lake.sql(f"INSERT INTO {t.sql} VALUES (1, 'seed', 'd1'), (2, 'seed', 'd2')")
    first, second = lake.begin(isolation=level), lake.begin(isolation=level)
    for tx, by in ((first, "one"), (second, "two")):
        tx.sql(f"INSERT INTO {t.sql} REPLACE WHERE day = 'd1' VALUES (3, '{by}', 'd1')")
    first.commit()
    with pytest.raises(Conflict):
        second.commit()
    assert query(lake, f"SELECT * FROM {t.sql}") == [(2, "seed", "d2"), (3, "one", "d1")]


def test_trino_29361_who_loses_deletes_no_file_that_is_in_use(
    lake: txlake.Lake, make: Maker
) -> None:
    """What a failed statement cleans up names the data files that it marked rows of, too."""
    t = make()
    lake.sql(f"INSERT INTO {t.sql} VALUES (1, 10), (2, 20)")
    first, second = lake.begin(), lake.begin()
    for tx, value in ((first, 11), (second, 12)):
        tx.sql(f"UPDATE {t.sql} SET value = {value} WHERE id = 1")
    first.commit()
    in_use = set(t.folder.rglob("*.parquet"))
    with pytest.raises(Conflict):
        second.commit()
    assert query(lake, f"SELECT * FROM {t.sql}") == [(1, 11), (2, 20)]
    third = lake.begin()
    third.sql(f"UPDATE {t.sql} SET value = 13 WHERE id = 1")
    third.rollback()
    listed = {t.folder / str(row["path"]) for row in _files(t)}
    assert listed <= in_use & set(t.folder.rglob("*.parquet"))


def _files(t: Made) -> list[dict[str, object]]:
    files: list[dict[str, object]] = txlake.Log(str(t.folder)).snapshot().files().to_pylist()
    return files
