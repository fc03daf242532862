"""Names of tables: one to three parts, and T-SQL's `dbo`."""

from __future__ import annotations

import pytest

from txlake.catalog.name_parts import lake_names, qualified
from txlake.errors import InvalidRequest
from txlake.sql.statements import TableName

LAKES = lake_names("file:///data/My%20House/")


def meaning(text: str, *databases: str) -> tuple[str, str]:
    return qualified(
        TableName(tuple(text.split("."))), "used", LAKES, lambda name: name.lower() in databases
    )


def test_what_a_lake_is_called() -> None:
    assert lake_names("file:///data/My%20House/") == {"spark_catalog", "my house"}
    assert lake_names("s3://bucket/wh") == {"spark_catalog", "wh"}
    assert lake_names(None) == {"spark_catalog"}


@pytest.mark.parametrize(
    ("name", "databases", "found"),
    [
        ("t", (), ("used", "t")),
        ("db.t", ("db",), ("db", "t")),
        ("none.t", (), ("none", "t")),
        ("dbo.t", (), ("used", "t")),
        ("DBO.t", (), ("used", "t")),
        ("dbo.t", ("dbo",), ("dbo", "t")),
        ("Spark_Catalog.db.t", ("db",), ("db", "t")),
        ("my house.db.t", (), ("db", "t")),
        ("My House.dbo.t", (), ("used", "t")),
        ("my house.dbo.t", ("dbo",), ("dbo", "t")),
        ("sales.dbo.t", ("sales",), ("sales", "t")),
        # A database may have the lake's name; of three parts the first is the lake.
        ("my house.t", ("my house",), ("my house", "t")),
        ("my house.db.t", ("my house", "db"), ("db", "t")),
    ],
)
def test_what_a_name_means(name: str, databases: tuple[str, ...], found: tuple[str, str]) -> None:
    assert meaning(name, *databases) == found


@pytest.mark.parametrize(
    ("name", "databases"),
    [
        ("other.db.t", ("db",)),
        ("sales.dbo.t", ()),
        ("sales.dbo.t", ("sales", "dbo")),
        ("sales.db.t", ("sales", "db")),
        ("spark_catalog.a.b.t", ()),
    ],
)
def test_a_name_of_another_catalog_is_refused(name: str, databases: tuple[str, ...]) -> None:
    with pytest.raises(
        InvalidRequest, match="of three, the first is the lake: `my house` or spark_"
    ):
        meaning(name, *databases)
