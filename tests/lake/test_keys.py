"""Informational keys: kept, shown, never enforced."""

from __future__ import annotations

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=3)


@pytest.fixture
def shop(lake: txlake.Lake) -> txlake.Lake:
    """A lake with `customers` and its child `orders`, which have keys."""
    lake.sql("CREATE TABLE customers (id BIGINT CONSTRAINT customer PRIMARY KEY RELY, name STRING)")
    lake.sql(
        "CREATE TABLE orders (id BIGINT, customer BIGINT, other BIGINT, PRIMARY KEY (id), "
        "CONSTRAINT whose FOREIGN KEY (customer) REFERENCES customers NOT ENFORCED)"
    )
    return lake


def _shown(lake: txlake.Lake, table: str) -> list[tuple[object, ...]]:
    rows = [tuple(row) for row in lake.sql(f"DESCRIBE EXTENDED {table}").collect()]
    if ("# Constraints", "", "") not in rows:
        return []
    return [row[:2] for row in rows[rows.index(("# Constraints", "", "")) + 1 :]]


def test_keys_are_shown(shop: txlake.Lake) -> None:
    assert _shown(shop, "customers") == [("customer", "PRIMARY KEY (id) RELY")]
    assert _shown(shop, "orders") == [
        ("orders_pk", "PRIMARY KEY (id)"),
        ("whose", "FOREIGN KEY (customer) REFERENCES default.customers"),
    ]
    text = str(number(shop, "SHOW CREATE TABLE orders"))
    assert "CONSTRAINT whose FOREIGN KEY (customer) REFERENCES default.customers" in text
    assert "txlake.constraints" not in text
    shop.sql("DROP TABLE orders")
    shop.sql(text)
    assert len(_shown(shop, "orders")) == 2


def test_keys_are_not_enforced_but_a_primary_key_is_not_null(shop: txlake.Lake) -> None:
    shop.sql("INSERT INTO orders VALUES (1, 99, 0), (1, NULL, 0)")
    assert query(shop, "SELECT id FROM orders") == [(1,), (1,)]
    with pytest.raises(InvalidRequest, match="NOT NULL"):
        shop.sql("INSERT INTO orders VALUES (NULL, 1, 0)")


def test_keys_are_added_and_dropped(shop: txlake.Lake) -> None:
    shop.sql("ALTER TABLE orders ADD FOREIGN KEY (other) REFERENCES orders (id) RELY")
    assert _shown(shop, "orders")[0] == (
        "orders_other_fk",
        "FOREIGN KEY (other) REFERENCES default.orders (id) RELY",
    )
    shop.sql("ALTER TABLE orders DROP FOREIGN KEY (Customer)")
    shop.sql("ALTER TABLE orders DROP PRIMARY KEY")
    shop.sql("ALTER TABLE orders DROP PRIMARY KEY IF EXISTS")
    assert [name for name, _ in _shown(shop, "orders")] == ["orders_other_fk"]
    shop.sql("ALTER TABLE orders DROP CONSTRAINT orders_OTHER_fk")
    assert _shown(shop, "orders") == []
    history = query(shop, "SELECT operation FROM (DESCRIBE HISTORY orders) WHERE version > 0")
    assert history == [("ADD CONSTRAINT",), *[("DROP CONSTRAINT",)] * 3]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("ALTER TABLE orders ADD PRIMARY KEY (id)", "orders_pk is there already"),
        ("ALTER TABLE orders ADD CONSTRAINT two PRIMARY KEY (id)", "has one primary key"),
        ("ALTER TABLE orders ADD CONSTRAINT WHOSE CHECK (id > 0)", "WHOSE is there already"),
        ("ALTER TABLE orders ADD CONSTRAINT c FOREIGN KEY (nix) REFERENCES customers", "'nix'"),
        (
            "ALTER TABLE orders ADD CONSTRAINT c FOREIGN KEY (other) REFERENCES nix",
            "no table 'nix'",
        ),
        (
            "ALTER TABLE orders ADD CONSTRAINT c FOREIGN KEY (other) REFERENCES customers (nix)",
            "there is no column 'nix'",
        ),
        (
            "ALTER TABLE orders ADD CONSTRAINT c FOREIGN KEY (id, other) REFERENCES customers",
            "name as many columns",
        ),
        ("CREATE TABLE x (a INT, CONSTRAINT c PRIMARY KEY (b))", "names the column 'b'"),
        (
            "CREATE TABLE x (a INT, CONSTRAINT c CHECK (a > 0), CONSTRAINT C PRIMARY KEY (a))",
            "constraint c is there twice",
        ),
        ("CREATE TABLE x (a INT PRIMARY KEY, b INT, PRIMARY KEY (b))", "x_pk is there already"),
        ("CREATE TABLE x (a INT REFERENCES nix)", "no table 'nix'"),
        ("ALTER TABLE orders DROP COLUMN customer", "drop the constraint"),
        ("ALTER TABLE orders RENAME COLUMN id TO number", "drop the constraint"),
        ("ALTER TABLE orders ALTER COLUMN id DROP NOT NULL", "without the constraint"),
        ("ALTER TABLE orders DROP FOREIGN KEY (other)", "there are: orders_pk"),
        ("ALTER TABLE orders SET TBLPROPERTIES ('txlake.constraints.a' = 'b')", "can't be set"),
        ("CREATE TABLE x (a INT) TBLPROPERTIES ('txlake.constraints.a' = 'b')", "can't be set"),
    ],
)
def test_keys_that_cannot_be_are_refused(shop: txlake.Lake, change: str, problem: str) -> None:
    shop.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    with pytest.raises(InvalidRequest, match=problem):
        shop.sql(change)
    assert len(_shown(shop, "orders")) == 2
    assert query(shop, "SHOW TABLES LIKE 'x'") == []


def test_a_primary_key_needs_columns_that_are_not_null(shop: txlake.Lake) -> None:
    shop.sql("ALTER TABLE orders DROP PRIMARY KEY")
    with pytest.raises(InvalidRequest, match="SET NOT NULL makes it so"):
        shop.sql("ALTER TABLE orders ADD PRIMARY KEY (other)")
    shop.sql("ALTER TABLE orders ALTER COLUMN other SET NOT NULL")
    shop.sql("ALTER TABLE orders ADD PRIMARY KEY (id, other)")
    assert _shown(shop, "orders")[0] == ("orders_pk", "PRIMARY KEY (id, other)")


def test_a_key_keeps_its_columns_when_the_schema_is_overwritten(shop: txlake.Lake) -> None:
    frame = shop.sql("SELECT 1L AS number")
    with pytest.raises(InvalidRequest, match="drop the constraint"):
        shop.write(frame, "orders", mode="overwrite", overwrite_schema=True)


def test_a_parent_in_the_current_database_is_kept_by_its_whole_name(shop: txlake.Lake) -> None:
    shop.sql("CREATE DATABASE d; USE d; CREATE TABLE parents (a INT PRIMARY KEY)")
    shop.sql(
        "CREATE TABLE children (a INT REFERENCES parents, `b c` INT, PRIMARY KEY (`b c`)) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    assert _shown(shop, "children") == [
        ("children_a_fk", "FOREIGN KEY (a) REFERENCES d.parents"),
        ("children_pk", "PRIMARY KEY (`b c`)"),
    ]
