"""How Python calls name tables, and how names are written back as SQL."""

from __future__ import annotations

import pytest

from txlake.errors import InvalidRequest
from txlake.sql.statements import Table, TableName, TablePath, TimeTravel, quoted, table_of


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("orders", TableName(("orders",))),
        ("sales.orders", TableName(("sales", "orders"))),
        (" sales . orders ", TableName(("sales", "orders"))),
        ("`my db`.`a``b`", TableName(("my db", "a`b"))),
        ("sales.`or.ders`", TableName(("sales", "or.ders"))),
        ("`a/b`", TableName(("a/b",))),
        ("/data/t", TablePath("/data/t")),
        ("data/t", TablePath("data/t")),
        ("./t", TablePath("./t")),
        (".", TablePath(".")),
        ("..", TablePath("..")),
        ("s3://bucket/t", TablePath("s3://bucket/t")),
        ("memory:x", TablePath("memory:x")),
        ("C:\\data\\t", TablePath("C:\\data\\t")),
        ("delta.`/data/t`", TablePath("/data/t")),
        ("DELTA.`s3://b/t`", TablePath("s3://b/t")),
        ("delta.`orders`", TableName(("delta", "orders"))),
        ("/data/a`b", TablePath("/data/a`b")),
    ],
)
def test_a_text_names_a_table(text: str, table: Table) -> None:
    assert table_of(text) == table


@pytest.mark.parametrize("text", ["", "  ", "a..b", "a.", ".a", "`a", "`a`b", "``"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        table_of(text)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (TableName(("sales", "orders")), "sales.orders"),
        (TableName(("my db", "a`b")), "`my db`.`a``b`"),
        (TableName(("1a",)), "`1a`"),
        (TablePath("/data/t"), "delta.`/data/t`"),
    ],
)
def test_a_table_is_written_as_sql_names_it(table: Table, text: str) -> None:
    assert str(table) == text
    assert table_of(text) == table


def test_a_part_is_quoted_only_where_needed_unless_always() -> None:
    assert (quoted("a"), quoted("a b"), quoted("a", always=True)) == ("a", "`a b`", "`a`")


@pytest.mark.parametrize(
    ("travel", "text"),
    [
        (TimeTravel(version=3), "VERSION AS OF 3"),
        (TimeTravel(version=0), "VERSION AS OF 0"),
        (TimeTravel(timestamp="2026-01-01"), "TIMESTAMP AS OF '2026-01-01'"),
        (TimeTravel(timestamp_expression="now()"), "TIMESTAMP AS OF now()"),
        (TimeTravel(branch_or_tag="nightly"), "VERSION AS OF 'nightly'"),
    ],
)
def test_time_travel_is_written_as_sql(travel: TimeTravel, text: str) -> None:
    assert str(travel) == text
