"""INSERT ... REPLACE USING and REPLACE ON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import query
from txlake.errors import Conflict, InvalidRequest

pytestmark = pytest.mark.broad(keep=2)


@pytest.fixture
def sales(lake: txlake.Lake) -> txlake.Lake:
    """A lake with `sales` (day, id, note) of four rows, one of them of no day."""
    lake.sql("CREATE TABLE sales (day DATE, id INT, note STRING)")
    lake.sql(
        "INSERT INTO sales VALUES ('2026-01-01', 1, 'a'), ('2026-01-01', 2, 'b'), "
        "('2026-01-02', 3, 'c'), (NULL, 4, 'd')"
    )
    return lake


def _ids(lake: txlake.Lake) -> list[object]:
    return [id for (id,) in query(lake, "SELECT id FROM sales")]


def test_using_replaces_rows_of_the_same_values(sales: txlake.Lake) -> None:
    counts = sales.sql(
        "INSERT INTO sales REPLACE USING (day) VALUES ('2026-01-01', 10, 'x'), (NULL, 11, 'y')"
    )
    assert counts.collect()[0].asDict() == {"num_affected_rows": 2, "num_inserted_rows": 2}
    # Null equals nothing: the row without a day stays.
    assert _ids(sales) == [10, 11, 3, 4]
    [row] = sales.sql("DESCRIBE HISTORY sales LIMIT 1").collect()
    assert row.operation == "WRITE"
    assert row.operationParameters["predicate"] == "REPLACE USING (day)"


def test_using_several_columns_by_name_with_a_query(sales: txlake.Lake) -> None:
    sales.sql(
        "WITH n AS (SELECT explode(array(3, 1)) AS id, DATE '2026-01-02' AS day) "
        "INSERT INTO sales BY NAME REPLACE USING (DAY, id) SELECT 'new' AS note, id, day FROM n"
    )
    assert query(sales, "SELECT id, note FROM sales WHERE day = '2026-01-02'") == [
        (1, "new"),
        (3, "new"),
    ]
    assert len(_ids(sales)) == 5


def test_using_with_more_keys_than_are_written_out(sales: txlake.Lake) -> None:
    sales.sql("INSERT INTO sales SELECT DATE '2026-02-01', CAST(id AS INT), 'old' FROM range(200)")
    sales.sql(
        "INSERT INTO sales REPLACE USING (id, day) "
        "SELECT DATE '2026-02-01', CAST(id AS INT), 'new' FROM range(100, 300)"
    )
    found = query(sales, "SELECT note, count(*) FROM sales WHERE day = '2026-02-01' GROUP BY note")
    assert found == [("new", 200), ("old", 100)]


def test_a_source_without_rows_replaces_nothing(sales: txlake.Lake) -> None:
    sales.sql("INSERT INTO sales REPLACE USING (day) SELECT * FROM sales WHERE false")
    sales.sql("INSERT INTO sales AS t REPLACE ON true (SELECT * FROM sales WHERE false) s")
    sales.sql("INSERT INTO sales REPLACE USING (day) SELECT CAST(NULL AS DATE), 5, 'e'")
    assert _ids(sales) == [1, 2, 3, 4, 5]


def test_on_replaces_rows_for_which_the_condition_is_true(sales: txlake.Lake) -> None:
    sales.sql(
        "INSERT INTO sales AS t REPLACE ON t.day <=> s.day AND t.id < s.number "
        "(SELECT CAST(NULL AS DATE) AS day, 20 AS number, 'x' AS note) AS s"
    )
    assert _ids(sales) == [1, 2, 20, 3]
    # The source's own names, where its columns go by position; the table by its own name.
    sales.sql(
        "INSERT INTO sales REPLACE ON sales.id = number SELECT day, id AS number, 'z' FROM sales"
    )
    assert query(sales, "SELECT DISTINCT note FROM sales") == [("z",)]
    assert len(_ids(sales)) == 4


def test_the_source_is_evaluated_once(sales: txlake.Lake) -> None:
    sales.sql(
        "INSERT INTO sales REPLACE USING (note) SELECT day, id, CAST(rand() AS STRING) FROM sales"
    )
    before = query(sales, "SELECT note FROM sales")
    assert len(before) == 8
    sales.sql("INSERT INTO sales t REPLACE ON t.note = s.note (SELECT * FROM sales) s")
    assert query(sales, "SELECT note FROM sales") == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("INSERT INTO sales REPLACE USING (nix) SELECT * FROM sales", "no column 'nix'"),
        ("INSERT INTO sales t REPLACE ON id = id (SELECT * FROM sales) s", "(?i)ambiguous"),
        ("INSERT INTO sales t REPLACE ON t.nix = s.id (SELECT * FROM sales) s", "nix"),
        ("INSERT INTO sales t REPLACE ON t.id = T.id (SELECT * FROM sales) t", "another alias"),
        (
            "INSERT INTO sales t REPLACE ON t.id IN (TABLE sales) (SELECT * FROM sales) s",
            "expected one expression|can't have a query|unexpected|something is missing",
        ),
        ("INSERT INTO sales REPLACE USING (day) SELECT 1, 2, 3", "day"),
        ("INSERT INTO sales REPLACE USING (day) SELECT 1", "expected 3 columns|columns"),
    ],
)
def test_what_cannot_be_replaced_is_refused(sales: txlake.Lake, text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        sales.sql(text)
    assert _ids(sales) == [1, 2, 3, 4]


def test_rows_replaced_count_as_read(sales: txlake.Lake) -> None:
    for text in (
        "INSERT INTO sales REPLACE USING (day) VALUES ('2026-01-02', 9, 'n')",
        "INSERT INTO sales t REPLACE ON t.id = s.id (SELECT DATE '2026-01-02' d, 3 id, 'n' n) s",
    ):
        transaction = sales.begin()
        transaction.sql(text)
        sales.sql("UPDATE sales SET note = concat(note, '!') WHERE day = '2026-01-02'")
        with pytest.raises(Conflict):
            transaction.commit()


def test_few_keys_leave_other_rows_to_others(sales: txlake.Lake) -> None:
    transaction = sales.begin()
    transaction.sql("INSERT INTO sales REPLACE USING (day) VALUES ('2026-01-02', 9, 'n')")
    sales.sql("UPDATE sales SET note = 'other' WHERE day = '2026-01-01'")
    transaction.commit()
    assert _ids(sales) == [1, 2, 4, 9]


def test_an_empty_text_in_a_partition_column(lake: txlake.Lake, tmp_path: Path) -> None:
    """It is NULL there, which every way to write a row has to see."""
    lake.sql(
        "CREATE TABLE t (p STRING, v BIGINT, CONSTRAINT filled CHECK (p IS NOT NULL)) "
        "PARTITIONED BY (p)"
    )
    lake.sql("INSERT INTO t VALUES ('a', 1)")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.json").write_text('{"p": "", "v": 5}\n')
    frame = pa.table({"p": [""], "v": [5]})
    table = lake.table("t")
    ways: list[Callable[[], object]] = [
        lambda: lake.sql("INSERT OVERWRITE t PARTITION (p = '') SELECT 5L"),
        lambda: lake.sql(f"COPY INTO t FROM '{tmp_path / 'in'}' FILEFORMAT = JSON"),
        lambda: lake.write(frame, "t", mode="append"),
        lambda: lake.write(frame, "t", mode="overwrite", partition_overwrite="dynamic"),
        lambda: lake.write(frame, "t", mode="overwrite", replace_where="p <=> ''"),
        lambda: table.update(set={"p": "''"}),
    ]
    for way in ways:
        with pytest.raises(InvalidRequest, match=r"CHECK constraint filled|REPLACE_WHERE_MISMATCH"):
            way()
    assert query(lake, "SELECT * FROM t") == [("a", 1)]
