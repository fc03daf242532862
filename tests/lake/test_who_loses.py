"""Who loses to whom: pairs of statements at each level, on rows, and some of them on Spark."""

from __future__ import annotations

from itertools import cycle

import pytest

import txlake
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    Conflict,
    UpdateConflict,
)


def with_t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a table `t` of two partitions, a file each."""
    lake.sql("CREATE TABLE t (id BIGINT, p INT) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    return lake


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    return with_t(lake)


@pytest.fixture
def row_t(row_lake: txlake.Lake) -> txlake.Lake:
    return with_t(row_lake)


# The statement of a transaction that is open, the one that commits first, and what the open one
# gets at each level: None for a commit.
W, S, N = "write_serializable", "serializable", "snapshot"
CASES: dict[str, tuple[str, str, dict[str, type[Conflict] | None]]] = {
    "delete, blind insert of matching rows": (
        "DELETE FROM t WHERE p = 1",
        "INSERT INTO t VALUES (7, 1)",
        {N: None, W: None, S: ConcurrentAppendException},
    ),
    "delete, blind insert of other rows": (
        "DELETE FROM t WHERE p = 1",
        "INSERT INTO t VALUES (7, 2)",
        {N: None, W: None, S: None},
    ),
    "delete, insert of matching rows of another table": (
        "DELETE FROM t WHERE p = 1",
        "INSERT INTO t SELECT id, 1 FROM staging",
        {N: None, W: None, S: ConcurrentAppendException},
    ),
    "delete, insert that read the table": (
        "DELETE FROM t WHERE p = 1",
        "INSERT INTO t SELECT id + 1, 1 FROM t",
        {N: None, W: ConcurrentAppendException, S: ConcurrentAppendException},
    ),
    "update and update of one row": (
        "UPDATE t SET id = 8 WHERE p = 1",
        "UPDATE t SET id = 9 WHERE p = 1",
        {N: ConcurrentDeleteDeleteException, W: Conflict, S: Conflict},
    ),
    "update and update of different rows of one file": (
        "UPDATE t SET id = 31 WHERE id = 21",
        "UPDATE t SET id = 32 WHERE id = 22",
        {N: None, W: None, S: None},
    ),
    "update and compaction of its file": (
        "UPDATE t SET id = 31 WHERE id = 21",
        "OPTIMIZE t",
        {N: None, W: None, S: None},
    ),
    "compaction and update of its files": (
        "OPTIMIZE t",
        "UPDATE t SET id = 31 WHERE id = 21",
        {N: None, W: None, S: None},
    ),
    "Z-order and update of its files": (
        "OPTIMIZE t ZORDER BY (id)",
        "UPDATE t SET id = 31 WHERE id = 21",
        {N: None, W: None, S: None},
    ),
    "update and update of different partitions": (
        "UPDATE t SET id = 8 WHERE p = 1",
        "UPDATE t SET id = 9 WHERE p = 2",
        {N: None, W: None, S: None},
    ),
    "insert that read, delete of what it read": (
        "INSERT INTO t SELECT id, 3 FROM t WHERE p = 1",
        "DELETE FROM t WHERE p = 1",
        {N: None, W: ConcurrentDeleteReadException, S: ConcurrentDeleteReadException},
    ),
    "insert and insert": (
        "INSERT INTO t VALUES (3, 1)",
        "INSERT INTO t VALUES (4, 1)",
        {N: None, W: None, S: None},
    ),
}


@pytest.mark.parametrize("level", [N, W, S])
@pytest.mark.parametrize("case", CASES)
def test_who_loses_to_whom(row_t: txlake.Lake, case: str, level: str) -> None:
    loses_or_not(row_t, case, level)


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize(("case", "level"), list(zip(CASES, cycle([N, W, S]))))
def test_who_loses_to_whom_on_spark(t: txlake.Lake, case: str, level: str) -> None:
    loses_or_not(t, case, level)


def loses_or_not(t: txlake.Lake, case: str, level: str) -> None:
    ours, theirs, outcomes = CASES[case]
    t.sql("INSERT INTO t VALUES (21, 9), (22, 9); INSERT INTO t VALUES (23, 9)")
    t.sql("CREATE TABLE staging AS SELECT 8 AS id")
    tx = t.begin(isolation=level)
    tx.sql(ours)
    t.sql(theirs)
    expected = outcomes[level]
    if expected is None:
        tx.commit()
        assert tx.state == "committed"
        return
    with pytest.raises(expected) as raised:
        tx.commit()
    evidence = raised.value.evidence
    assert evidence is not None
    assert (evidence.read_version, evidence.winning_version) == (3, 4)
    assert evidence.isolation == (N if ours.startswith("OPTIMIZE") else level)
    assert evidence.retry
    assert evidence.advice in str(raised.value)
    assert tx.state == "rolled back"


MERGE = (
    "MERGE INTO e t USING (SELECT '{x}' AS p, 1 AS k, 5 AS v) s ON t.p = s.p AND t.k = s.k{on} "
    "WHEN MATCHED THEN UPDATE SET * {rest}"
)
BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"
# What is added to ON, the clauses, and whether MERGEs of two partitions both commit.
MERGES_OF_PARTITIONS: dict[str, tuple[str, str, bool]] = {
    "no clause": (" AND t.p = '{x}'", "", True),
    "delete": (" AND t.p = '{x}'", f"{BY_SOURCE} AND t.p = '{{x}}' THEN DELETE", True),
    "update": (" AND t.p = '{x}'", f"{BY_SOURCE} AND t.p = '{{x}}' THEN UPDATE SET v = 9", True),
    "delete of some": (
        " AND t.p = '{x}'",
        f"{BY_SOURCE} AND t.p = '{{x}}' AND t.k > 1 THEN DELETE",
        True,
    ),
    "the partition is the source's": ("", f"{BY_SOURCE} AND t.p = '{{x}}' THEN DELETE", True),
    "two clauses": (
        " AND t.p = '{x}'",
        (
            f"{BY_SOURCE} AND p = '{{x}}' AND k = 7 THEN DELETE "
            f"{BY_SOURCE} AND t.p = '{{x}}' THEN UPDATE SET v = 9"
        ),
        True,
    ),
    "one of two clauses is for any row": (
        " AND t.p = '{x}'",
        f"{BY_SOURCE} AND t.p = '{{x}}' AND k = 7 THEN DELETE {BY_SOURCE} THEN UPDATE SET v = 9",
        False,
    ),
    "another partition": (" AND t.p = '{x}'", f"{BY_SOURCE} AND t.p <> '{{x}}' THEN DELETE", False),
    "a column that isn't the partition": (
        " AND t.p = '{x}'",
        f"{BY_SOURCE} AND t.v = 0 THEN DELETE",
        False,
    ),
}


@pytest.mark.parametrize("case", MERGES_OF_PARTITIONS)
def test_merges_of_two_partitions(row_lake: txlake.Lake, case: str) -> None:
    """Of the target's rows count those that may match, and those that a clause may take."""
    on, rest, both = MERGES_OF_PARTITIONS[case]
    row_lake.sql("CREATE TABLE e (p STRING, k INT, v INT) PARTITIONED BY (p)")
    row_lake.sql("INSERT INTO e VALUES ('a', 1, 0), ('a', 2, 0), ('b', 1, 0), ('b', 2, 0)")
    merges = []
    for x in "ab":
        merges.append(row_lake.begin())
        merges[-1].sql(MERGE.format(x=x, on=on, rest=rest).replace("{x}", x))
    merges[0].commit()
    if both:
        merges[1].commit()
        return
    with pytest.raises(Conflict):
        merges[1].commit()


SAME_ROWS = "both change the same rows, and no condition keeps two such transactions apart"
MATCHING = "a narrower condition keeps the two apart"
IN_DOUBT = "a narrower condition, on partition columns above all, keeps two writers apart"


@pytest.mark.parametrize(
    ("ours", "theirs", "advice"),
    [
        ("UPDATE t SET id = 30 WHERE id = 21", "UPDATE t SET id = 21 WHERE id = 21", SAME_ROWS),
        ("DELETE FROM t WHERE id > 20", "UPDATE t SET id = 29 WHERE id = 21", SAME_ROWS),
        (
            "UPDATE t SET id = 30 WHERE id > 20",
            "MERGE INTO t USING (SELECT 21 AS k) ON id = k WHEN MATCHED THEN UPDATE SET p = 9",
            SAME_ROWS,
        ),
        ("DELETE FROM t WHERE id > 20", "INSERT INTO t SELECT 24, 9 FROM t WHERE id = 1", MATCHING),
        (
            "DELETE FROM t WHERE id % 7 = 0 AND p = 9 AND id <> (SELECT 1)",
            "INSERT INTO t SELECT 24, 9 FROM t WHERE id = 1",
            IN_DOUBT,
        ),
    ],
)
def test_the_advice_follows_from_what_was_found(
    row_t: txlake.Lake, ours: str, theirs: str, advice: str
) -> None:
    row_t.sql("INSERT INTO t VALUES (21, 9), (22, 9)")
    tx = row_t.begin(isolation=S)
    tx.sql(ours)
    row_t.sql(theirs)
    with pytest.raises(ConcurrentAppendException) as raised:
        tx.commit()
    assert raised.value.evidence is not None
    assert advice in raised.value.evidence.advice


OWN_ROWS = "INSERT INTO t SELECT id, 3 FROM t WHERE p = 2"
CHANGE = "UPDATE t SET id = 8 WHERE p = 1"


@pytest.mark.parametrize("isolation", [N, W])
@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        (OWN_ROWS, CHANGE, UpdateConflict),
        (CHANGE, OWN_ROWS, UpdateConflict),
        ("INSERT INTO t SELECT id, 1 FROM staging", CHANGE, None),
        (CHANGE, "INSERT INTO t SELECT id, 1 FROM staging", None),
        ("INSERT INTO t VALUES (5, 1)", CHANGE, None),
    ],
)
def test_at_granularity_table_an_insert_counts_by_what_it_read(
    row_t: txlake.Lake, first: str, second: str, error: type[Conflict] | None, isolation: str
) -> None:
    row_t.sql("ALTER TABLE t SET TBLPROPERTIES ('txlake.conflictGranularity' = 'table')")
    row_t.sql("CREATE TABLE staging AS SELECT 7 AS id")
    tx = row_t.begin(isolation=isolation)
    tx.sql(second)
    row_t.sql(first)
    if error is None:
        tx.commit()
        return
    with pytest.raises(error):
        tx.commit()
