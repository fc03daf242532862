"""Hypothesis strategies for the comparison of the planes: tables, changes, queries.

The statements are about one small table with a key, a text for partitions, and a number.
"""

from __future__ import annotations

from hypothesis import strategies as st

COLUMNS = "id BIGINT, p STRING, n INT"
LAYOUTS = (
    f"({COLUMNS})",
    f"({COLUMNS}) PARTITIONED BY (p)",
    f"({COLUMNS}) TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
    (
        "(id BIGINT NOT NULL, p STRING DEFAULT 'a', n INT, m INT GENERATED ALWAYS AS (n * 2))"
        " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    ),
    f"({COLUMNS}, CONSTRAINT small CHECK (n < 100 OR n IS NULL))",
)

_ids = st.sampled_from(["0", "1", "2", "3", "4", "5", "NULL"])
_texts = st.sampled_from(["'a'", "'b'", "'c'", "NULL"])
_numbers = st.sampled_from(["0", "7", "-3", "50", "99", "100", "2147483647", "NULL"])

conditions = st.sampled_from(
    [
        "id = 1",
        "id > 2",
        "id IN (0, 3, 5)",
        "p = 'a'",
        "p IS NULL",
        "p <> 'b' AND n > 0",
        "n BETWEEN 0 AND 50",
        "n + id > 7",
        "NOT n = 7",
        "p LIKE 'a%' OR n IS NULL",
        "coalesce(n, 0) % 2 = 0",
        "id = (SELECT max(id) FROM {t})",
        "id IN (SELECT id + 1 FROM {t} WHERE p = 'b')",
        "length(p) > id",
        "true",
        "NULL",
    ]
)
_values = st.sampled_from(
    [
        "n + 1",
        "n * 2",
        "0",
        "NULL",
        "id",
        "id * 1000000000",
        "CASE WHEN p = 'a' THEN 1 ELSE n END",
        "coalesce(n, 0) + length(p)",
        "2.6",
        "'x'",
        "'7'",
        "n / 2",
        "(SELECT max(n) FROM {t})",
    ]
)
_selected = st.sampled_from(
    [
        "SELECT id, p, n FROM {t}",
        "SELECT id + 1, p, n FROM {t}",
        "SELECT id, p, 3 FROM {t} WHERE n > 0",
        "SELECT max(id), p, CAST(sum(n) AS INT) FROM {t} GROUP BY p",
        "SELECT x.id, y.p, x.n FROM {t} x JOIN {t} y ON x.id = y.id + 1",
        "VALUES (7, 'd', 1), (1, 'a', 8)",
        "SELECT 8, 'e', 2.5",
        "SELECT id, p FROM {t}",
    ]
)
_rows = st.lists(st.tuples(_ids, _texts, _numbers), min_size=1, max_size=3)


@st.composite
def inserts(draw: st.DrawFn) -> str:
    rows = ", ".join(f"({', '.join(row)})" for row in draw(_rows))
    form = draw(st.integers(0, 5))
    if form == 0:
        return f"INSERT INTO {{t}} (id, p, n) {draw(_selected)}"
    if form == 1:
        return f"INSERT OVERWRITE {{t}} (id, p, n) {draw(_selected)}"
    if form == 2:
        return f"INSERT INTO {{t}} (p, id) SELECT p, id FROM {{t}} WHERE {draw(conditions)}"
    if form == 3:
        return (
            f"INSERT INTO {{t}} (id, p, n) REPLACE WHERE p = 'a' SELECT id, 'a', n FROM {{t}} "
            f"WHERE {draw(conditions)}"
        )
    return f"INSERT INTO {{t}} (id, p, n) VALUES {rows}"


@st.composite
def updates(draw: st.DrawFn) -> str:
    where = f" WHERE {draw(conditions)}" if draw(st.booleans()) else ""
    others = draw(st.sampled_from(["", ", p = 'b'", ", p = upper(p)", ", id = id + 1"]))
    return f"UPDATE {{t}} SET n = {draw(_values)}{others}{where}"


@st.composite
def deletes(draw: st.DrawFn) -> str:
    return f"DELETE FROM {{t}} WHERE {draw(conditions)}"


@st.composite
def merges(draw: st.DrawFn) -> str:
    source = draw(
        st.sampled_from(
            [
                "(SELECT 1 AS id, 'a' AS p, 5 AS n UNION ALL SELECT 9, 'z', 6)",
                "(SELECT id, p, n + 1 AS n FROM {t} WHERE n > 0)",
                "(SELECT DISTINCT id AS id, 'b' AS p, 1 AS n FROM {t})",
                "(SELECT CAST(NULL AS BIGINT) AS id, 'a' AS p, 1 AS n)",
                "(SELECT * FROM VALUES (2, 'b', 1), (2, 'b', 2), (6, 'c', 3) AS v(id, p, n))",
            ]
        )
    )
    on = draw(
        st.sampled_from(
            [
                "t.id = s.id",
                "t.id = s.id AND t.p = 'a'",
                "t.id = s.id AND t.p = s.p",
                "t.id <=> s.id",
                "t.n < s.n AND t.id = 1",
                "t.id = s.id AND s.n > 1",
            ]
        )
    )
    clauses = []
    if draw(st.booleans()):
        clauses.append("WHEN MATCHED AND t.n > 5 THEN DELETE")
    last = [
        "",
        "WHEN MATCHED THEN UPDATE SET n = s.n + t.n",
        "WHEN MATCHED THEN UPDATE SET p = s.p",
        "WHEN MATCHED THEN DELETE",
    ]
    clauses.append(draw(st.sampled_from(last)))
    if draw(st.booleans()):
        clauses.append("WHEN NOT MATCHED AND s.n > 1 THEN INSERT (id, n) VALUES (s.id, n)")
    if draw(st.booleans()):
        clauses.append("WHEN NOT MATCHED THEN INSERT (id, p, n) VALUES (s.id, s.p, s.n)")
    if draw(st.integers(0, 3)) == 0:
        clauses.append("WHEN NOT MATCHED BY SOURCE AND t.p = 'b' THEN UPDATE SET n = n + 100")
        clauses.append("WHEN NOT MATCHED BY SOURCE AND n IS NULL THEN DELETE")
    if not any(clauses):
        clauses.append("WHEN MATCHED THEN DELETE")
    return f"MERGE INTO {{t}} t USING {source} s ON {on} {' '.join(filter(None, clauses))}"


upkeep = st.sampled_from(["OPTIMIZE {t}", "REORG TABLE {t} APPLY (PURGE)"])
others = st.sampled_from(
    [
        "TRUNCATE TABLE {t}",
        "RESTORE TABLE {t} TO VERSION AS OF 1",
        "ALTER TABLE {t} ADD CONSTRAINT low CHECK (n < 60 OR n IS NULL)",
        "ALTER TABLE {t} ALTER COLUMN p SET NOT NULL",
        "OPTIMIZE {t} ZORDER BY (id)",
        "CREATE OR REPLACE TABLE {t} AS SELECT id, p, n FROM {t} WHERE id > 1",
    ]
)
queries = st.sampled_from(
    [
        "SELECT p, count(*), sum(n), min(id) FROM {t} GROUP BY p",
        "SELECT count(*) FROM {t} WHERE n > 3",
        "SELECT id, n FROM {t} VERSION AS OF 1 WHERE id > 0",
    ]
)
shared = st.one_of(
    inserts(), inserts(), updates(), updates(), deletes(), merges(), merges(), upkeep, queries
)
"""One statement beside which others may write, with the table's name to be put for {t}."""

statements = st.one_of(shared, shared, shared, shared, others)
"""One statement of any kind."""
