"""Queries keep their text; the tables that they read are found at their places."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.sql.parsing import name, one, refused
from txlake.errors import InvalidRequest
from txlake.sql import parse
from txlake.sql.statements import (
    AlterView,
    AlterViewSchema,
    CreateTemporaryView,
    CreateView,
    DescribeQuery,
    DropView,
    RelationName,
    RenameView,
    Select,
    ShowViews,
    SparkCommand,
    SqlText,
    TableName,
    TablePath,
    TimeTravel,
)


def read(text: str) -> SqlText:
    statement = one(text)
    assert isinstance(statement, Select)
    assert statement.query.text == text
    return statement.query


def tables(text: str) -> list[str]:
    return [str(reference.table) for reference in read(text).references]


def rewritten(text: str) -> str:
    """The text with each table replaced by `<v>`."""
    return read(text).rewritten(lambda _: "<v>")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1", []),
        ("SELECT * FROM t", ["t"]),
        ("select * from `my db`.`a``b`", ["`my db`.`a``b`"]),
        (
            "SELECT * FROM a, b.c x JOIN d USING (id) LEFT ANTI JOIN e ON TRUE",
            ["a", "b.c", "d", "e"],
        ),
        (
            "SELECT * FROM a WHERE x IN (SELECT y FROM b) AND EXISTS (SELECT * FROM c)",
            ["a", "b", "c"],
        ),
        ("SELECT (SELECT max(x) FROM b) FROM a", ["b", "a"]),
        ("SELECT * FROM (SELECT * FROM a) x, LATERAL (SELECT * FROM b)", ["a", "b"]),
        ("(SELECT * FROM a) UNION ALL (SELECT * FROM b) MINUS SELECT * FROM c", ["a", "b", "c"]),
        ("FROM a SELECT x", ["a"]),
        ("TABLE a.b", ["a.b"]),
        ("SELECT * FROM (TABLE a) x UNION TABLE b", ["a", "b"]),
        ("VALUES (1, 'a'), (2, 'b')", []),
        ("SELECT * FROM VALUES (1), (2) AS v(a)", []),
        ("SELECT * FROM range(3), explode(array(1)) e", []),
        ("SELECT * FROM table_changes('t', 1) JOIN range(3)", ["t"]),
        ("SELECT * FROM parquet.`/p`, csv.`s3://b/c`", []),
        ("SELECT * FROM parquet.orders", ["parquet.orders"]),
        ("SELECT * FROM IDENTIFIER('t')", ["t"]),
        ("SELECT * FROM (DESCRIBE HISTORY a.t LIMIT 3) h JOIN b", ["a.t", "b"]),
        ("SELECT * FROM spark_catalog.a.t", ["spark_catalog.a.t"]),
        ("SELECT * FROM sys.dm_tran_locks", ["sys.dm_tran_locks"]),
        ("WITH c AS (SELECT * FROM a) SELECT * FROM c, b", ["a", "b"]),
        ("WITH c AS (SELECT 1), d AS (SELECT * FROM c) SELECT * FROM C JOIN d", []),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", ["t"]),
        ("WITH c AS (SELECT 1) SELECT * FROM db.c", ["db.c"]),
        ("WITH c (x) AS (WITH d AS (SELECT 1) SELECT * FROM d) SELECT * FROM c, d", ["d"]),
        ("SELECT (WITH c AS (SELECT 1) SELECT * FROM c) FROM c", ["c"]),
        ("WITH RECURSIVE r(n) MAX RECURSION LEVEL 9 AS (SELECT 1 UNION ALL TABLE r) TABLE r", []),
        ("FROM a |> WHERE x > 1 |> SELECT x", ["a"]),
        ("SELECT * FROM a LATERAL VIEW OUTER explode(m) e AS k, v", ["a"]),
        ("SELECT * FROM a PIVOT (sum(v) FOR q IN (1, 2))", ["a"]),
        ("SELECT 'FROM b', `FROM c` /* FROM d */ FROM a -- FROM e", ["a"]),
        ("SELECT /*+ BROADCAST(b) */ * FROM a", ["a"]),
        ("SELECT a >>> 3, CAST(x AS ARRAY<ARRAY<ARRAY<INT>>>) FROM a", ["a"]),
        ("SELECT * FROM a WITH ('k' = 'v')", ["a"]),
        ("SELECT map(1), concat(), abs(1, 2, 3) FROM a", ["a"]),
    ],
)
def test_the_tables_of_a_query(text: str, found: list[str]) -> None:
    statement = one(text)
    assert isinstance(statement, Select)
    assert [str(reference.table) for reference in statement.query.references] == found


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("SELECT * FROM t", "SELECT * FROM <v> AS `t`"),
        ("SELECT * FROM t x", "SELECT * FROM <v> x"),
        ("SELECT * FROM a.t AS x", "SELECT * FROM <v> AS x"),
        ("SELECT t.a, T.* FROM a.t", "SELECT t.a, T.* FROM <v> AS `t`"),
        ("SELECT a.t.x, A.T.* FROM a.t", "SELECT `t`.x, `t`.* FROM <v> AS `t`"),
        ("SELECT a.t.s.f.g FROM a.t", "SELECT `t`.s.f.g FROM <v> AS `t`"),
        ("SELECT a.t.x FROM a.t y", "SELECT a.t.x FROM <v> y"),
        ("SELECT a.t.x FROM t", "SELECT a.t.x FROM <v> AS `t`"),
        (
            "SELECT * FROM a.t, b.t WHERE a.t.x = b.t.x",
            "SELECT * FROM <v> AS `a.t`, <v> AS `b.t` WHERE `a.t`.x = `b.t`.x",
        ),
        (
            "SELECT * FROM a.t WHERE x IN (SELECT t.x FROM b.t)",
            "SELECT * FROM <v> AS `t` WHERE x IN (SELECT t.x FROM <v> AS `t`)",
        ),
        (  # t.y is ambiguous: it must not become that of b.t
            "SELECT a.t.x, t.y FROM a.t, b.t",
            "SELECT `a.t`.x, t.y FROM <v> AS `a.t`, <v> AS `b.t`",
        ),
        (
            "SELECT a.t.x FROM a.t WHERE EXISTS (SELECT 1 FROM b.t WHERE t.y = a.t.x)",
            (
                "SELECT `a.t`.x FROM <v> AS `a.t` "
                "WHERE EXISTS (SELECT 1 FROM <v> AS `b.t` WHERE `b.t`.y = `a.t`.x)"
            ),
        ),
        (
            "SELECT t.x FROM a.t WHERE EXISTS (SELECT a.t.x FROM b.t, c.t WHERE t.y = 1)",
            (
                "SELECT `a.t`.x FROM <v> AS `a.t` "
                "WHERE EXISTS (SELECT `a.t`.x FROM <v> AS `b.t`, <v> AS `c.t` WHERE t.y = 1)"
            ),
        ),
        ("TABLE a.t", "TABLE <v>"),
        ("SELECT * FROM (TABLE t)", "SELECT * FROM (TABLE <v>)"),
        ("SELECT * FROM t@v3", "SELECT * FROM <v> AS `t`"),
        ("SELECT * FROM t@20260102030405678 x", "SELECT * FROM <v> x"),
        ("SELECT * FROM t VERSION AS OF 3 AS x JOIN u", "SELECT * FROM <v> AS x JOIN <v> AS `u`"),
        (
            "SELECT * FROM t TABLESAMPLE (10 PERCENT) REPEATABLE (3) WHERE x",
            "SELECT * FROM <v> TABLESAMPLE (10 PERCENT) REPEATABLE (3) AS `t` WHERE x",
        ),
        (
            "SELECT * FROM t VERSION AS OF 1 WITH ('k' = 'v') WHERE x",
            "SELECT * FROM <v> AS `t` WHERE x",
        ),
        ("SELECT * FROM delta.`/p` WHERE x", "SELECT * FROM <v> WHERE x"),
        ("SELECT *  FROM\n t -- t\n, ü.u x", "SELECT *  FROM\n <v> AS `t` -- t\n, <v> x"),
        (
            "SELECT * FROM t PIVOT (sum(v) FOR q IN (1))",
            "SELECT * FROM <v> AS `t` PIVOT (sum(v) FOR q IN (1))",
        ),
    ],
)
def test_only_names_change_when_a_query_is_rewritten(text: str, new: str) -> None:
    statement = one(text)
    assert isinstance(statement, Select)
    got = statement.query.rewritten(lambda _: "<v>")
    assert got == new


def test_a_database_in_use_names_one_of_two_tables_of_a_name() -> None:
    def is_in_use(one: TableName, other: TableName) -> bool:
        return len({("a", *table.parts)[-2:] for table in (one, other)}) == 1

    def rewritten_in_use(text: str) -> str:
        return read(text).in_database(is_in_use).rewritten(lambda _: "<v>")

    both = rewritten_in_use("SELECT a.t.x, b.t.x, t.x FROM t, b.t")
    assert both == "SELECT `(t)`.x, `b.t`.x, t.x FROM <v> AS `(t)`, <v> AS `b.t`"
    again = rewritten_in_use("SELECT a.t.x FROM t, a.t")
    assert again == "SELECT `(t)`.x FROM <v> AS `(t)`, <v> AS `(t)`", "ambiguous to Spark"
    inside = rewritten_in_use("SELECT t.x FROM t WHERE x IN (SELECT a.t.x + t.y FROM b.t)")
    assert inside == (
        "SELECT `(t)`.x FROM <v> AS `(t)` WHERE x IN (SELECT `(t)`.x + `b.t`.y FROM <v> AS `b.t`)"
    )


# Valid in Spark alone, with the names that its parser finds.
SPARKS_OWN = (
    "SELECT -interval -1 day 1 hour -1 minute 1 second, q.x "
    "FROM a.t TABLESAMPLE (10 ROWS), `u` AS q"
)


def by_spark(text: str, *found: RelationName) -> SqlText:
    def reader(asked: str) -> Sequence[RelationName]:
        assert asked == text
        return found

    [statement] = parse(text, reader=reader)
    assert isinstance(statement, Select)
    return statement.query


def test_a_query_of_sparks_own_has_the_tables_that_spark_finds() -> None:
    with pytest.raises(InvalidRequest, match="not understood"):
        parse(SPARKS_OWN)
    query = by_spark(
        SPARKS_OWN,
        RelationName(("u",), SPARKS_OWN.index("`u`"), True),
        RelationName(("a", "t"), SPARKS_OWN.index("a.t"), False),
    )
    assert [str(one.table) for one in query.references] == ["a.t", "u"]
    assert query.rewritten(lambda _: "<v>") == (
        "SELECT -interval -1 day 1 hour -1 minute 1 second, q.x "
        "FROM <v> TABLESAMPLE (10 ROWS) AS `t`, <v> AS q"
    )


@pytest.mark.parametrize(
    "named",
    [
        None,  # no query, or one that may read others too
        [RelationName(("b", "t"), SPARKS_OWN.index("a.t"), False)],
        [RelationName(("t",), 1, False)],
        [RelationName(("a", "t", "x"), SPARKS_OWN.index("a.t"), False)],
    ],
)
def test_a_query_with_other_names_than_its_text_is_refused(
    named: Sequence[RelationName] | None,
) -> None:
    with pytest.raises(InvalidRequest, match="not understood at line 1"):
        parse(SPARKS_OWN, reader=lambda _: named)


def test_spark_is_not_asked_about_what_is_the_lakes_own() -> None:
    for text in (
        f"SELECT * FROM (DESCRIBE HISTORY t), ({SPARKS_OWN})",
        f"SELECT * FROM table_changes('t', 1), ({SPARKS_OWN})",
        f"{SPARKS_OWN} WHERE x = '${{variable}}'",
        f"DELETE FROM t WHERE x = ({SPARKS_OWN}",
    ):
        with pytest.raises(InvalidRequest):
            parse(text, reader=lambda _: ())


def test_time_travel_stands_in_a_query_of_sparks_own() -> None:
    text = "SELECT -interval -1 day 1 hour -1 minute 1 second FROM t VERSION AS OF 3 WHERE a"
    asked = text.replace("VERSION AS OF 3", " " * len("VERSION AS OF 3"))
    found = RelationName(("t",), text.index("t VERSION"), False)

    def reader(given: str) -> Sequence[RelationName]:
        assert given == asked
        return [found]

    [statement] = parse(text, reader=reader)
    assert isinstance(statement, Select)
    [reference] = statement.query.references
    assert reference.travel == TimeTravel(version=3)
    assert statement.query.rewritten(lambda _: "<v>").endswith("FROM <v> AS `t` WHERE a")


def test_a_text_on_which_sqlglot_fails_is_refused() -> None:
    refused("FROM t |> UNION ALL SELECT * FROM t", "1:1", "this can't be parsed")


NOW = TimeTravel(timestamp="2026-01-02 03:04:05.678")


@pytest.mark.parametrize(
    ("clause", "travel"),
    [
        ("VERSION AS OF 3", TimeTravel(version=3)),
        ("version as of '3'", TimeTravel(version=3)),
        ("FOR VERSION AS OF 0", TimeTravel(version=0)),
        ("FOR SYSTEM_VERSION AS OF 3", TimeTravel(version=3)),
        ("SYSTEM_VERSION AS OF 3", TimeTravel(version=3)),
        ("TIMESTAMP AS OF '2026-01-01'", TimeTravel(timestamp="2026-01-01")),
        ("FOR TIMESTAMP AS OF '2026-01-01'", TimeTravel(timestamp="2026-01-01")),
        ("FOR SYSTEM_TIME AS OF '2026-01-01'", TimeTravel(timestamp="2026-01-01")),
        ("TIMESTAMP AS OF DATE'2026-01-01'", TimeTravel(timestamp_expression="DATE'2026-01-01'")),
        (
            "TIMESTAMP AS OF current_timestamp() - INTERVAL 1 DAY",
            TimeTravel(timestamp_expression="current_timestamp() - INTERVAL 1 DAY"),
        ),
        (
            "TIMESTAMP AS OF date_sub('2026-01-01', 1)",
            TimeTravel(timestamp_expression="date_sub('2026-01-01', 1)"),
        ),
        (
            "TIMESTAMP AS OF CAST('2026-01-01' AS DATE)",
            TimeTravel(timestamp_expression="CAST('2026-01-01' AS DATE)"),
        ),
        ("@v3", TimeTravel(version=3)),
        ("@V3", TimeTravel(version=3)),
        ("@20260102030405678", NOW),
    ],
)
@pytest.mark.parametrize(
    "after",
    ["", " x", " AS x", " x, u", " WHERE a", " JOIN u ON TRUE", " LIMIT 1", " UNION TABLE u"],
)
def test_time_travel_belongs_to_its_table(clause: str, travel: TimeTravel, after: str) -> None:
    space = "" if clause.startswith("@") else " "
    text = f"SELECT * FROM sales.t{space}{clause}{after}"
    reference = read(text).references[0]
    assert (reference.table, reference.travel) == (name("sales.t"), travel)
    assert text[reference.start : reference.end] == f"sales.t{space}{clause}"


@pytest.mark.parametrize(
    ("place", "table", "travel"),
    [
        ("delta.`/p`", TablePath("/p"), None),
        ("DELTA.`s3://b/p`", TablePath("s3://b/p"), None),
        ("delta.`/p@v3`", TablePath("/p"), TimeTravel(version=3)),
        ("delta.`/p`@v3", TablePath("/p"), TimeTravel(version=3)),
        ("delta.`/p@20260102030405678`", TablePath("/p"), NOW),
        ("delta.`/p@x` VERSION AS OF 1", TablePath("/p@x"), TimeTravel(version=1)),
    ],
)
def test_a_place_may_carry_its_moment(
    place: str, table: TablePath, travel: TimeTravel | None
) -> None:
    reference = read(f"SELECT * FROM {place} x").references[0]
    assert (reference.table, reference.travel, reference.alias) == (table, travel, None)


def test_words_of_time_travel_are_names_elsewhere() -> None:
    text = "SELECT version AS of, timestamp AS of, x.version AS OF FROM t WHERE version = 1"
    assert tables(text) == ["t"]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("SELEC 1", "1:1", "expected a statement"),
        ("SELECT * FORM t", "1:15", "unexpected 't'"),
        ("SELECT a FROM", "1:10", "unexpected 'FROM'"),
        ("SELECT * FROM t WHERE", "1:17", "missing at 'WHERE'"),
        ("SELECT (1 FROM t", "1:8", "never closed"),
        ("SELECT 1)", "1:9", "expected the end"),
        ("SELECT a[1) FROM t", "1:11", "expected ]"),
        ("SELECT *\nFROM t\nWHERE a = = 1", "3:11", "missing at '='"),
        ("SELECT * FROM a.b.", "1:18", ""),
        ("SELECT * FROM t VERSION AS OF x", "1:31", "a version is a whole number"),
        ("SELECT * FROM t VERSION AS OF -1", "1:31", "a version is a whole number"),
        ("SELECT * FROM t VERSION AS OF 1.5", "1:31", "a version is a whole number"),
        ("SELECT * FROM (SELECT 1) x VERSION AS OF 1", "1:28", "after the name of a table"),
        (
            "WITH c AS (SELECT 1) SELECT * FROM c VERSION AS OF 1",
            "1:38",
            "after the name of a table",
        ),
        ("SELECT * FROM t TIMESTAMP AS OF (SELECT 1)", "1:33", "no query"),
        ("SELECT * FROM delta.`/p@v1` VERSION AS OF 1", "1:29", "a moment already"),
        ("WITH c AS SELECT 1", "1:11", "expected (, found 'SELECT'"),
        ("TABLE", "1:1", ""),
        ("(SELECT 1", "1:1", "never closed"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "1:1", "can't be parsed"),
    ],
)
def test_a_malformed_query_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)


@pytest.mark.parametrize(
    ("text", "new"),
    [
        (
            "CREATE TEMP VIEW v AS SELECT a.t.x FROM a.t",
            "CREATE TEMP VIEW v AS SELECT `t`.x FROM <v> AS `t`",
        ),
        (
            "CREATE OR REPLACE GLOBAL TEMPORARY VIEW v (a, b) COMMENT 'x' AS (TABLE t)",
            "CREATE OR REPLACE GLOBAL TEMPORARY VIEW v (a, b) COMMENT 'x' AS (TABLE <v>)",
        ),
        ("CREATE TEMPORARY VIEW v USING parquet OPTIONS (path '/p')",) * 2,
        ("CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x + 1",) * 2,
        ("EXPLAIN SELECT * FROM t x", "EXPLAIN SELECT * FROM <v> x"),
        (
            "EXPLAIN FORMATTED WITH c AS (SELECT * FROM t x) TABLE c",
            "EXPLAIN FORMATTED WITH c AS (SELECT * FROM <v> x) TABLE c",
        ),
        (
            "CACHE LAZY TABLE c OPTIONS ('a' = 'b') AS SELECT * FROM t@v1 x",
            "CACHE LAZY TABLE c OPTIONS ('a' = 'b') AS SELECT * FROM <v> x",
        ),
        ("CLEAR CACHE",) * 2,
        ("SET spark.sql.ansi.enabled = false",) * 2,
        ("SET",) * 2,
        ("SET TIME ZONE 'UTC'",) * 2,
        ("RESET spark.sql.ansi.enabled",) * 2,
        ("DROP TEMPORARY FUNCTION f",) * 2,
        ("SHOW FUNCTIONS LIKE 'a*'",) * 2,
        ("DESCRIBE FUNCTION abs",) * 2,
        ("DECLARE VARIABLE x INT DEFAULT 3",) * 2,
    ],
)
def test_commands_of_spark_are_handed_on(text: str, new: str) -> None:
    statement = one(text)
    assert isinstance(statement, SparkCommand | CreateTemporaryView)
    assert statement.command.text == text
    assert statement.command.rewritten(lambda _: "<v>") == new


def test_a_temporary_views_query_is_known_apart() -> None:
    statement = one("CREATE TEMP VIEW v (a COMMENT 'x', b) AS (SELECT id, v FROM t)")
    assert isinstance(statement, CreateTemporaryView)
    assert (statement.name, statement.columns) == (("v",), ("a", "b"))
    assert statement.query.text == statement.command.text[statement.query_at :]
    assert statement.query.rewritten(lambda _: "w") == "(SELECT id, v FROM w AS `t`)"


def test_statements_about_views() -> None:
    view = TableName(("s", "v"))
    created = one("CREATE VIEW IF NOT EXISTS s.v (a COMMENT 'x') COMMENT 'c' AS TABLE t")
    assert isinstance(created, CreateView)
    assert (created.view, created.columns, created.comment) == (view, (("a", "x"),), "c")
    assert (created.mode, created.query.text) == ("if_not_exists", "TABLE t")
    dropped = one("DROP VIEW IF EXISTS s.v")
    assert isinstance(dropped, DropView)
    assert (dropped.view, dropped.if_exists) == (view, True)
    assert dropped.command.text == "DROP VIEW IF EXISTS s.v"
    assert one("ALTER VIEW s.v RENAME TO w") == RenameView(view, TableName(("w",)))
    for columns, mode in (("", "evolution"), ("(a)", "type evolution")):
        evolving = one(f"CREATE VIEW v{columns} WITH SCHEMA EVOLUTION AS SELECT 1")
        assert isinstance(evolving, CreateView)
        assert evolving.schema_mode == mode
    assert one("ALTER VIEW s.v WITH SCHEMA TYPE EVOLUTION") == AlterViewSchema(
        view, "type evolution"
    )
    altered = one("ALTER VIEW s.v AS SELECT 1")
    assert isinstance(altered, AlterView)
    assert altered.query.text == "SELECT 1"
    assert one("SHOW VIEWS IN s LIKE 'a*'") == ShowViews("s", "a*")
    assert one("SHOW VIEWS") == ShowViews()


def test_a_temporary_view_of_files_has_types() -> None:
    text = "CREATE TEMPORARY VIEW v (a INT, b STRING) USING csv OPTIONS (path '/p')"
    found = one(text)
    assert isinstance(found, SparkCommand)
    assert found.command == SqlText(text)


def test_describe_of_a_query_is_no_table() -> None:
    for text in ("DESCRIBE SELECT * FROM t x", "DESC QUERY SELECT * FROM t x"):
        statement = one(text)
        assert isinstance(statement, DescribeQuery)
        assert statement.query.rewritten(lambda _: "v") == "SELECT * FROM v x"


def test_long_conditions_and_lists_are_no_trouble() -> None:
    parse("DELETE FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(2000)))
    parse("SELECT * FROM t WHERE a IN (" + ", ".join(map(str, range(5000))) + ")")


# Spark SQL that must get through: what sqlglot doesn't know would be refused here.
SPARK_SQL = """
SELECT a, any_value(b) FILTER (WHERE c > 1), first(b) IGNORE NULLS FROM t GROUP BY a WITH ROLLUP
SELECT a FROM t GROUP BY CUBE (a, b), GROUPING SETS ((a), ()) HAVING count(*) > 1
SELECT aggregate(xs, 0, (acc, x) -> acc + x, acc -> acc * 10), filter(xs, (x, i) -> x > i) FROM t
SELECT struct(a AS x), (a, b) IN ((1, 2)), s.*, x:y.z[0]::int, a.b.c[0].d, xs[0]['k'].f FROM t
SELECT INTERVAL '1-2' YEAR TO MONTH, INTERVAL 1 YEAR 2 MONTHS, INTERVAL (a + 1) HOURS FROM t
SELECT CAST(a AS ARRAY<STRUCT<x: INT, y: MAP<STRING, INT>>>), try_cast(a AS DOUBLE) FROM t
SELECT timestampdiff(MONTH, a, b), dateadd(day, 1, x), extract(DAYOFWEEK FROM d) FROM t
SELECT * FROM t WHERE a LIKE ANY ('%a') OR a NOT LIKE ALL ('x') OR a LIKE 'x' ESCAPE '!'
SELECT * FROM t WHERE a RLIKE 'b' OR a IS NOT DISTINCT FROM b OR a <=> b OR a == b OR !c
SELECT * FROM t UNPIVOT INCLUDE NULLS (v FOR q IN (a AS x, b)) u
SELECT * EXCEPT (a, b) FROM t TABLESAMPLE (BUCKET 4 OUT OF 10) s
SELECT * FROM t ORDER BY a DESC NULLS FIRST LIMIT 10 OFFSET 2
SELECT * FROM t DISTRIBUTE BY a SORT BY b
SELECT * FROM t CLUSTER BY a
SELECT a FROM t INTERSECT ALL SELECT a FROM t EXCEPT DISTINCT SELECT a FROM t
SELECT 'a' || "b" || r'\\d', X'1F', 1.5e-3, .5, 5., 1BD, 1e3D, 1L, -1S, 1Y FROM t
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a), listagg(DISTINCT a, ',') FROM t
SELECT lag(a, 1) IGNORE NULLS OVER w, sum(a) OVER (v ORDER BY b) FROM t WINDOW w AS (ORDER BY a)
SELECT sum(a) OVER (ORDER BY b RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) FROM t
SELECT inline(xs), stack(2, 1, 2) AS (x), explode(m) AS (k, v) FROM t
SELECT overlay('a' PLACING 'b' FROM 1), trim(BOTH 'x' FROM y), substring(a FROM 1 FOR 2) FROM t
SELECT my.func(a), func(x => 1) FROM t QUALIFY row_number() OVER (ORDER BY a) = 1
SELECT current_date, user, a.value, key, date, first, rows, range, level, end, type FROM t
SELECT zip_with(a, b, (x, y) -> (x, y)), exists(xs, x -> x > 1), transform(xs, x -> x + 1) FROM t
SELECT a DIV b, a % b, ~a, a & b | c ^ d, a << 1, a >> 2, a >>> 3, -a, +a FROM t
SELECT TRANSFORM(a) USING 'cat' AS (b STRING) FROM t
SELECT CASE a WHEN 1 THEN 'x' ELSE 'y' END, IF(a, 1, 2), a COLLATE UTF8_LCASE FROM t
SELECT array_sort(xs, (l, r) -> CASE WHEN l < r THEN -1 ELSE 1 END), left(a, 1) FROM t
SELECT DATE'2020-01-01', TIMESTAMP_LTZ '2020-01-01', TIMESTAMP_NTZ '2020-01-01', date(a) FROM t
"""


@pytest.mark.parametrize("text", SPARK_SQL.strip().splitlines())
def test_spark_sql_gets_through_as_written(text: str) -> None:
    assert set(tables(text)) == {"t"}
