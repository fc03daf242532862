"""The row plane gives expressions and queries the same values and types as Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation.rows import queries
from tests.simulation.rows.frames import RowFrame
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE = """
SELECT CAST(col1 AS TINYINT) AS t, col2 AS i, CAST(col3 AS BIGINT) AS b, CAST(col4 AS FLOAT) AS f,
       CAST(col5 AS DOUBLE) AS d, CAST(col6 AS DECIMAL(7, 2)) AS m, col7 AS s, col8 AS o,
       CAST(col9 AS DATE) AS y, CAST(col10 AS TIMESTAMP) AS w, col11 AS a
FROM (VALUES
  (1, 2, 30, 0.5, 1.25, 10.50, 'a', true, '2024-01-31', '2024-01-31 10:00:00', array(1, 2)),
  (-3, 7, -8, -1.5, 12345.5, -0.25, 'B', false, '2023-12-01', '2023-12-01 00:00:00.5',
   array(3, NULL)),
  (5, NULL, 4, 2.0, NULL, 3.00, NULL, NULL, NULL, NULL, NULL),
  (NULL, -4, NULL, NULL, -0.1, NULL, '', true, '1999-02-03', '1999-02-03 04:05:06', array()),
  (9, 10000, 900000, 3.25, 0.0, 99999.99, '12', false, '2024-02-29', '2024-02-29 23:59:59',
   array(7)))
"""
_NUMBERS = ("t", "i", "b", "f", "d", "m", "3", "2.5", "NULL")
_ORDERED = (*_NUMBERS, "s", "o", "y", "w")
_LIKE = {"s": "'a'", "o": "true", "y": "DATE '2024-01-31'", "w": "TIMESTAMP '2024-01-31 10:00:00'"}
_OTHERS = """
-i|-m|-d|abs(t)|abs(m)|abs(d)|i div 3|b div -7|i % 3|b % -7|d % 3|m % 3|mod(i, 4)|i / 4|b / 3
o AND i > 2|o OR i > 2|NOT o|i = 2 AND NULL|i = 2 OR NULL|o IS TRUE|o IS NOT FALSE|o IS NULL
i IN (2, 7)|i IN (2, NULL)|i NOT IN (2, 7)|i NOT IN (2, NULL)|s IN ('a', 'b')|i IN (2.5, 7)
i BETWEEN 1 AND 7|i NOT BETWEEN b AND 7|y BETWEEN '2024-01-01' AND '2024-02-01'
s LIKE 'a%'|s LIKE '_'|s NOT LIKE '%a'|s LIKE ''|s || 'x'|s || i|concat(s, '-', b)
upper(s)|lower(s)|length(s)|trim(' x ')|startswith(s, 'a')|contains(s, 'B')|endswith(s, '2')
coalesce(i, b)|coalesce(NULL, i, 0)|coalesce(s, 'none')|nvl(d, i)|ifnull(m, 1)|nullif(i, 2)
if(o, i, b)|if(i > 2, 'x', NULL)|CASE WHEN i > 2 THEN 1 WHEN i < 0 THEN 2.5 END
CASE i WHEN 2 THEN 'two' WHEN 7 THEN 'seven' ELSE s END|greatest(i, b, 3)|least(i, d)|least(s, 'b')
CAST(i AS STRING)|CAST(b AS STRING)|CAST(m AS STRING)|CAST(o AS STRING)|CAST(y AS STRING)
CAST(w AS STRING)|CAST(d AS BIGINT)|CAST(m AS INT)|CAST(i AS DOUBLE)|CAST(i AS DECIMAL(12, 3))
CAST(o AS INT)|CAST(i AS BOOLEAN)|CAST(y AS TIMESTAMP)|CAST(w AS DATE)|CAST(f AS DOUBLE)
TRY_CAST(s AS INT)|TRY_CAST(s AS DOUBLE)|TRY_CAST(s AS DATE)|CAST(' 7 ' AS INT)
CAST('1e2' AS DOUBLE)|CAST('-Infinity' AS DOUBLE)|int(d)|bigint(i)|string(i)|double(m)|boolean(i)
array(i, b)|array(1, 2.5)|size(array(i, 1))|array_contains(a, 1)
array_append(a, i)|array_distinct(array(1, 1, NULL))|array_union(array(1), a)
array_except(a, array(1))
array_remove(a, 3)|array_size(a)|array_max(a)|sort_array(array(2, NULL, 1))|concat(a, array(9))
element_at(array(1, 2), -1)|a = array(1, 2)|cardinality(array(1))
isnull(i)|isnotnull(i)|1.5 + 1|1.10 * 2.5|m * m|m + 1|m / 3|m - d|2147483647 + b|1e3|1L|2.5D|X'0F'
'7' + i|'2' * m|i = '2'|o = 'true'|y = '2024-01-31'|w > '2024-01-01'|i <=> NULL|NULL <=> NULL
"""
_QUERIES = (
    "SELECT count(*), count(i), sum(i), sum(b), sum(d), sum(m), avg(i), min(s), max(y) FROM t",
    "SELECT o, count(*) AS n, sum(i) AS total FROM t GROUP BY o ORDER BY o",
    "SELECT o, count(*) AS n FROM t WHERE i > 100 GROUP BY o",
    "SELECT sum(i), count(*) FROM t WHERE false",
    "SELECT sum(i) AS s FROM t HAVING count(*) > 100",
    "SELECT o AS g, max(i) + 1 FROM t GROUP BY g HAVING count(*) > 1 ORDER BY g",
    "SELECT s FROM t GROUP BY s ORDER BY max(i) DESC, s",
    "SELECT 1 + t % 2, count(DISTINCT o) FROM t GROUP BY 1 ORDER BY 1 DESC NULLS FIRST",
    "SELECT sum(i) FILTER (WHERE o) FROM t",
    "SELECT DISTINCT o FROM t ORDER BY o DESC",
    "SELECT i, s FROM t ORDER BY i DESC, s LIMIT 2 OFFSET 1",
    "SELECT s FROM t ORDER BY b NULLS LAST",
    "SELECT x.i, z.b FROM t x JOIN t z ON x.i < z.i ORDER BY 1, 2",
    "SELECT x.i, z.b FROM t x LEFT JOIN t z ON x.t = z.i ORDER BY x.i, z.b",
    "SELECT x.i, z.b FROM t x FULL JOIN t z ON x.i = z.b ORDER BY 1, 2",
    "SELECT * FROM (SELECT o, i FROM t) JOIN (SELECT o, b FROM t) USING (o) ORDER BY 1, 2, 3",
    "SELECT i FROM t x LEFT SEMI JOIN t z ON x.i < z.i ORDER BY 1",
    "SELECT i FROM t x LEFT ANTI JOIN t z ON x.i < z.i ORDER BY 1",
    "SELECT i FROM t WHERE i IN (SELECT i FROM t WHERE o) ORDER BY i",
    "SELECT i FROM t WHERE i NOT IN (SELECT i FROM t WHERE o)",
    "SELECT i FROM t x WHERE EXISTS (SELECT 1 FROM t z WHERE z.i > x.i) ORDER BY i",
    "SELECT i, (SELECT max(z.i) FROM t z WHERE z.i < x.i) FROM t x ORDER BY i",
    "SELECT i FROM t WHERE i = (SELECT max(i) FROM t)",
    "WITH c AS (SELECT i AS n FROM t), e AS (SELECT max(n) FROM c) SELECT n FROM c, e ORDER BY 1",
    "SELECT i FROM t UNION SELECT b FROM t UNION ALL SELECT 1 ORDER BY i",
    "SELECT * FROM VALUES (1, 'a'), (2, NULL) AS v(n, s) ORDER BY n DESC",
    "SELECT id, id * 2 AS twice FROM range(2, 5)",
    "VALUES (1, 2.5), (3, 4)",
)
_REFUSED = (
    "2147483647 + i",
    "CAST(9223372036854775807 AS BIGINT) + i",
    "i / 0",
    "i % (i - i)",
    "CAST('x' AS INT)",
    "CAST(3000000000 AS INT)",
    "a[5]",
    "element_at(array(1), 2)",
    "CAST(100 AS DECIMAL(2, 0))",
    "nothing + 1",
    "(SELECT max(i) FROM t WHERE NULL)",
)


def _expressions() -> list[str]:
    pairs = [(one, other) for one in _NUMBERS for other in _NUMBERS]
    made = [f"{one} {sign} {other}" for one, other in pairs for sign in "+-*"]
    made += [f"{one} {sign} {other}" for one, other in pairs for sign in ("=", "<", "<=>")]
    for one in _ORDERED:
        other = _LIKE.get(one, "3")
        made += [f"{one} {sign} {other}" for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")]
    return made + [one for line in _OTHERS.strip().split("\n") for one in line.split("|") if one]


def plain(value: Any) -> Any:
    """Return a value in a form common to both planes: times without zone, bytes as bytes."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


def _types(frame: Any) -> list[str]:
    return [item.dataType.simpleString() for item in frame.schema]


@pytest.fixture
def spark_with_view(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark with the table as its view `t` during the test."""
    spark.sql(_TABLE).createOrReplaceTempView("t")
    yield spark
    spark.catalog.dropTempView("t")


def test_expressions_have_the_values_and_types_of_spark(spark_with_view: SparkSession) -> None:
    expressions = _expressions()
    query = f"SELECT {', '.join(f'({one}) AS e{n}' for n, one in enumerate(expressions))} FROM t"
    theirs = spark_with_view.sql(query)
    ours = RowFrame(queries.run(query, {"t": queries.run(_TABLE, {})}))
    assert dict(zip(expressions, _types(ours))) == dict(zip(expressions, _types(theirs)))
    rows = theirs.collect()
    for place, one in enumerate(expressions):
        found = [plain(row[place]) for row in ours.collect()]
        assert (one, found) == (one, [plain(row[place]) for row in rows])


@pytest.mark.broad(keep=6)
@pytest.mark.parametrize("query", _QUERIES)
def test_queries_return_the_rows_of_spark(query: str, spark_with_view: SparkSession) -> None:
    theirs = spark_with_view.sql(query)
    ours = RowFrame(queries.run(query, {"t": queries.run(_TABLE, {})}))
    assert _types(ours) == _types(theirs)
    rows = [tuple(map(plain, row)) for row in theirs.collect()]
    found = [tuple(map(plain, row)) for row in ours.collect()]
    if "ORDER BY" not in query:
        rows, found = sorted(rows, key=repr), sorted(found, key=repr)
    assert found == rows


@pytest.mark.parametrize("expression", _REFUSED)
def test_expressions_that_spark_refuses_are_refused(
    expression: str, spark_with_view: SparkSession
) -> None:
    from pyspark.errors import PySparkException

    query = f"SELECT {expression} FROM t"
    with pytest.raises(PySparkException):
        spark_with_view.sql(query).collect()
    with pytest.raises(InvalidRequest):
        queries.run(query, {"t": queries.run(_TABLE, {})})
