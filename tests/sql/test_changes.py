"""UPDATE, DELETE, MERGE and TRUNCATE."""

from __future__ import annotations

import pytest

from tests.sql.parsing import name, one, query, refused, sql
from txlake.sql.statements import (
    DEFAULT,
    STAR,
    Assignment,
    BySourceDelete,
    BySourceUpdate,
    Delete,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    MergeClause,
    NotMatchedInsert,
    Query,
    SqlText,
    Statement,
    TablePath,
    TimeTravel,
    Truncate,
    Update,
)

T = name("t")
A1 = Assignment(("a",), sql("1"))


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("DELETE FROM t", Delete(table=T)),
        ("delete from t where a = 1", Delete(table=T, condition=sql("a = 1"))),
        ("DELETE FROM t x WHERE x.a", Delete(table=T, alias="x", condition=sql("x.a"))),
        ("DELETE FROM t AS x", Delete(table=T, alias="x")),
        ("DELETE FROM t AS `where`", Delete(table=T, alias="where")),
        ("DELETE FROM delta.`/p`", Delete(table=TablePath("/p"))),
        (
            "DELETE FROM t WHERE a /* b */ =\n  'x;' -- c",
            Delete(table=T, condition=sql("a /* b */ =\n  'x;'")),
        ),
        ("DELETE FROM t WHERE (a) OR (b)", Delete(table=T, condition=sql("(a) OR (b)"))),
        ("DELETE FROM t WHERE (SELECT 1)", Delete(table=T, condition=sql("(SELECT 1)"))),
        (
            "DELETE FROM d.t WHERE d.t.a = 1 AND D.T.b.c",
            Delete(
                table=name("d.t"),
                condition=SqlText("d.t.a = 1 AND D.T.b.c", (), ((0, 3, "t"), (14, 17, "t"))),
            ),
        ),
        (
            "DELETE FROM d.t x WHERE d.t.a",
            Delete(table=name("d.t"), alias="x", condition=sql("d.t.a")),
        ),
        ("UPDATE t SET a = 1", Update(table=T, assignments=(A1,))),
        (
            "UPDATE t AS x SET a = 1, b.c = DEFAULT, `d e` = x.a + 1, f = default WHERE a IN (1)",
            Update(
                table=T,
                alias="x",
                assignments=(
                    A1,
                    Assignment(("b", "c"), DEFAULT),
                    Assignment(("d e",), sql("x.a + 1")),
                    Assignment(("f",), DEFAULT),
                ),
                condition=sql("a IN (1)"),
            ),
        ),
        (
            "UPDATE t SET a = CASE WHEN x THEN f(1, 2) ELSE (SELECT 1 WHERE y) END",
            Update(
                table=T,
                assignments=(
                    Assignment(("a",), sql("CASE WHEN x THEN f(1, 2) ELSE (SELECT 1 WHERE y) END")),
                ),
            ),
        ),
        ("TRUNCATE TABLE t", Truncate(T)),
        ("TRUNCATE t", Truncate(T)),
    ],
)
def test_what_a_change_says(text: str, statement: Statement) -> None:
    assert one(text) == statement


def test_tables_in_a_condition_are_references() -> None:
    statement = one(
        "DELETE FROM d.t WHERE a IN (SELECT a FROM d.s@v1) AND d.t.b = (SELECT 1 FROM d.t)"
    )
    assert isinstance(statement, Delete)
    condition = statement.condition
    assert isinstance(condition, SqlText)
    assert [(r.table, r.travel) for r in condition.references] == [
        (name("d.s"), TimeTravel(version=1)),
        (name("d.t"), None),
    ]
    assert condition.text[condition.references[0].start : condition.references[0].end] == "d.s@v1"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("DELETE t", "1:8", "expected FROM, found 't'"),
        ("DELETE FROM", "1:12", "expected a table's name, found the end"),
        ("DELETE FROM a.b.c.d", "1:13", "one to three parts, found 4"),
        ("DELETE FROM t WHERE", "1:20", "expected a condition, found the end"),
        ("DELETE FROM t WHERE a = (1", "1:25", "never closed"),
        ("DELETE FROM t WHERE a)", "1:22", "found ')'"),
        ("DELETE FROM t x y", "1:17", "expected WHERE or the end of the statement, found 'y'"),
        ("DELETE FROM t WHERE a b", "1:23", "no alias here"),
        ("DELETE FROM t WHERE a, b", "1:21", "expected one expression"),
        ("DELETE FROM t WHERE SELECT 1", "1:21", "expected one expression"),
        ("DELETE FROM t WHERE *", "1:21", "expected one expression"),
        ("DELETE FROM t@v1", "1:14", "found '@'"),
        ("DELETE FROM 'x'", "1:13", "expected a table's name"),
        ("UPDATE t a = 1", "1:12", "expected SET, found '='"),
        ("UPDATE t SET", "1:13", "expected a column, found the end"),
        ("UPDATE t SET a", "1:15", "expected =, found the end"),
        ("UPDATE t SET a =", "1:17", "expected a value, found the end"),
        ("UPDATE t SET a = 1,", "1:20", "expected a column, found the end"),
        ("UPDATE t SET a = 1 b = 2", "1:22", "found '='"),
        ("UPDATE t SET a = = 2", "1:18", "unexpected '='"),
        ("UPDATE t SET a = 1, b.c = 2, A = 3", "1:30", "column A is assigned twice"),
        ("UPDATE t SET a = 1 WHERE", "1:25", "expected a condition"),
        ("UPDATE t SET * ", "1:14", "expected a column"),
        ("TRUNCATE", "1:9", "a table"),
        ("TRUNCATE TABLE t PARTITION (a = 1)", "1:18", "use DELETE FROM"),
        ("TRUNCATE TABLE t x", "1:18", "expected the end"),
    ],
)
def test_a_malformed_change_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("WHEN MATCHED THEN DELETE", MatchedDelete()),
        ("WHEN MATCHED AND s.a > 1 THEN DELETE", MatchedDelete(condition=sql("s.a > 1"))),
        ("WHEN MATCHED THEN UPDATE SET *", MatchedUpdate(assignments=STAR)),
        ("WHEN MATCHED THEN UPDATE SET a = 1", MatchedUpdate(assignments=(A1,))),
        (
            "WHEN MATCHED AND CASE WHEN x THEN TRUE END THEN UPDATE SET t.a.b = s.c, d = DEFAULT",
            MatchedUpdate(
                condition=sql("CASE WHEN x THEN TRUE END"),
                assignments=(
                    Assignment(("t", "a", "b"), sql("s.c")),
                    Assignment(("d",), DEFAULT),
                ),
            ),
        ),
        ("WHEN NOT MATCHED THEN INSERT *", NotMatchedInsert(assignments=STAR)),
        ("WHEN NOT MATCHED BY TARGET THEN INSERT *", NotMatchedInsert(assignments=STAR)),
        (
            "WHEN NOT MATCHED AND s.a THEN INSERT (a, b, c) VALUES (1, DEFAULT, f(s.x, 2))",
            NotMatchedInsert(
                condition=sql("s.a"),
                assignments=(
                    A1,
                    Assignment(("b",), DEFAULT),
                    Assignment(("c",), sql("f(s.x, 2)")),
                ),
            ),
        ),
        ("WHEN NOT MATCHED BY SOURCE THEN DELETE", BySourceDelete()),
        (
            "WHEN NOT MATCHED BY SOURCE AND t.a THEN UPDATE SET a = 1",
            BySourceUpdate(assignments=(A1,), condition=sql("t.a")),
        ),
    ],
)
def test_each_clause_of_merge(clause: str, expected: MergeClause) -> None:
    statement = one(f"MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id {clause}")
    assert statement == Merge(
        target=T,
        source=query("SELECT * FROM (SELECT 1 AS id) s"),
        source_alias="s",
        on=sql("t.id = s.id"),
        clauses=(expected,),
    )


def test_merge_keeps_the_order_of_its_clauses() -> None:
    statement = one(
        "MERGE WITH SCHEMA EVOLUTION INTO t AS x USING (VALUES (1)) AS s(id) ON x.id = s.id "
        "WHEN MATCHED AND a THEN DELETE WHEN NOT MATCHED AND b THEN INSERT * "
        "WHEN MATCHED AND c THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND d THEN DELETE WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    assert isinstance(statement, Merge)
    assert statement.schema_evolution
    assert (statement.target_alias, statement.source_alias) == ("x", "s")
    assert [type(clause) for clause in statement.clauses] == [
        MatchedDelete,
        NotMatchedInsert,
        MatchedUpdate,
        NotMatchedInsert,
        BySourceDelete,
        MatchedDelete,
        BySourceDelete,
    ]


@pytest.mark.parametrize(
    ("source", "alias", "new"),
    [
        ("s", "s", "SELECT * FROM <v> AS `s`"),
        ("d.s", "s", "SELECT * FROM <v> AS `s`"),
        ("d.s x", "x", "SELECT * FROM <v> x"),
        ("d.s AS `x y`", "x y", "SELECT * FROM <v> AS `x y`"),
        ("s VERSION AS OF 3", "s", "SELECT * FROM <v> AS `s`"),
        ("s@v3 x", "x", "SELECT * FROM <v> x"),
        ("delta.`/p`", None, "SELECT * FROM <v>"),
        ("delta.`/p@v1` x", "x", "SELECT * FROM <v> x"),
        ("(SELECT * FROM d.s)", None, "SELECT * FROM (SELECT * FROM <v> AS `s`)"),
        ("(SELECT a FROM d.s) AS x(b)", "x", "SELECT * FROM (SELECT a FROM <v> AS `s`) AS x(b)"),
        ("(TABLE s) x", "x", "SELECT * FROM (TABLE <v>) x"),
    ],
)
def test_the_source_of_merge_is_a_query_of_its_rows(
    source: str, alias: str | None, new: str
) -> None:
    statement = one(f"MERGE INTO t USING {source} ON TRUE WHEN MATCHED THEN DELETE")
    assert isinstance(statement, Merge)
    assert isinstance(statement.source, Query)
    assert statement.source_alias == alias
    assert statement.source.sql.rewritten(lambda _: "<v>") == new


def test_full_names_of_both_sides_become_their_aliases() -> None:
    statement = one(
        "MERGE INTO d.t USING e.s ON d.t.id = e.s.id "
        "WHEN MATCHED AND e.s.x THEN UPDATE SET a = d.t.a + e.s.a"
    )
    assert isinstance(statement, Merge)
    clause = statement.clauses[0]
    assert isinstance(clause, MatchedUpdate)
    assert isinstance(clause.assignments, tuple)
    texts = [statement.on, clause.condition, clause.assignments[0].value]
    assert [text.rewritten(lambda _: None) for text in texts if isinstance(text, SqlText)] == [
        "`t`.id = `s`.id",
        "`s`.x",
        "`t`.a + `s`.a",
    ]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("MERGE t", "1:7", "expected INTO"),
        ("MERGE INTO t", "1:13", "expected USING"),
        ("MERGE INTO t USING", "1:19", "expected the source"),
        ("MERGE INTO t USING s WHEN MATCHED THEN DELETE", "1:22", "expected ON, found 'WHEN'"),
        ("MERGE INTO t USING s ON", "1:24", "expected a condition"),
        ("MERGE INTO t USING s ON a", "1:26", "expected WHEN"),
        ("MERGE INTO t USING s, u ON a WHEN MATCHED THEN DELETE", "1:20", "expected one table"),
        (
            "MERGE INTO t USING s JOIN u USING (a) ON a WHEN MATCHED THEN DELETE",
            "1:20",
            "one table",
        ),
        ("MERGE INTO t USING SELECT 1 ON a WHEN MATCHED THEN DELETE", "1:20", ""),
        ("MERGE INTO t USING s ON a WHEN MATCHED", "1:39", "expected THEN"),
        ("MERGE INTO t USING s ON a WHEN MATCHED AND THEN DELETE", "1:44", "expected a condition"),
        (
            "MERGE INTO t USING s ON a WHEN MATCHED THEN INSERT *",
            "1:45",
            "expected UPDATE or DELETE",
        ),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN DELETE", "1:49", "expected INSERT"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED BY x THEN DELETE", "1:47", "TARGET or SOURCE"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT", "1:55", "expected *"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT VALUES (1)", "1:56", "expected *"),
        (
            "MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)",
            "1:67",
            "1 columns, but 2 values",
        ),
        (
            "MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (a, A) VALUES (1, 2)",
            "1:60",
            "column A is assigned twice",
        ),
        (
            "MERGE INTO t USING s ON a WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET *",
            "1:52",
            "only the last WHEN MATCHED may have no condition",
        ),
        (
            "MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT *\nWHEN NOT MATCHED THEN x",
            "2:1",
            "only the last WHEN NOT MATCHED may",
        ),
        (
            (
                "MERGE INTO t USING s ON a\nWHEN NOT MATCHED BY SOURCE THEN DELETE\n"
                "WHEN NOT MATCHED BY SOURCE THEN DELETE"
            ),
            "3:1",
            "only the last WHEN NOT MATCHED BY SOURCE may",
        ),
        (
            "MERGE INTO t USING s ON a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *",
            "1:70",
            "name the values",
        ),
        ("MERGE INTO t USING s ON a WHEN MATCHED THEN UPDATE SET a = 1, a = 2", "1:63", "twice"),
        ("MERGE INTO t USING s ON a WHEN MATCHED THEN DELETE x", "1:52", "expected the end"),
    ],
)
def test_a_malformed_merge_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)
