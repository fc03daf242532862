"""A name that nothing has: the message is txlake's own, and suggests what users can name."""

from __future__ import annotations

import re

import pytest

import txlake
from tests.lake.rows import query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=2)


@pytest.fixture
def orders(lake: txlake.Lake) -> txlake.Lake:
    """A lake with the tables `orders` (one deleted row), `n` and `shop.items`."""
    lake.sql("CREATE TABLE orders (id INT, value INT) PARTITIONED BY (value)")
    lake.sql("INSERT INTO orders VALUES (1, 2), (2, 2); DELETE FROM orders WHERE id = 2")
    lake.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.items (id INT); CREATE TABLE n AS SELECT 1 AS id"
    )
    return lake


STATEMENTS = [
    "SELECT * FROM ordrs",
    "INSERT INTO ordrs VALUES (1, 2)",
    "INSERT INTO n SELECT id FROM ordrs",
    "DELETE FROM ordrs",
    "DELETE FROM n WHERE id IN (SELECT id FROM ordrs)",
    "UPDATE n SET id = (SELECT max(id) FROM ordrs)",
    "MERGE INTO n USING ordrs AS s ON n.id = s.id WHEN MATCHED THEN DELETE",
    "DESCRIBE ordrs",
    "DROP TABLE ordrs",
    "CREATE TABLE copy AS SELECT * FROM ordrs",
    "CREATE OR REPLACE TEMP VIEW v AS SELECT * FROM ordrs",
    "SELECT * FROM n WHERE EXISTS (SELECT 1 FROM ordrs AS x WHERE x.id = n.id)",
]


def test_every_statement_names_the_nearest_table(orders: txlake.Lake) -> None:
    said = "^there is no table 'ordrs' in database 'default'; did you mean orders. SHOW TABLES"
    for statement in STATEMENTS:
        with pytest.raises(InvalidRequest, match=said):
            orders.sql(statement)


NEAREST = {
    "Itmes": "no table 'Itmes' in database 'default'; did you mean shop.items? SHOW TABLES",
    "shop.item": "no table 'item' in database 'shop'; did you mean shop.items? SHOW TABLES",
    "sjop.items": "no table 'items' in database 'sjop' (there is no such database); "
    "did you mean shop.items? SHOW TABLES",
    "shop.itexx": "no table 'itexx' in database 'shop'; SHOW TABLES",
    "nothing_like_it": "no table 'nothing_like_it' in database 'default'; SHOW TABLES",
}


def test_of_all_databases(orders: txlake.Lake) -> None:
    for name, said in NEAREST.items():
        with pytest.raises(InvalidRequest, match=f"^there is {re.escape(said)}"):
            orders.sql(f"SELECT * FROM {name}")


def test_so_do_the_methods(orders: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"did you mean orders\?"):
        orders.read("ordrs")
    with pytest.raises(InvalidRequest, match=r"did you mean orders\?"):
        orders.table("ordrs")
    with pytest.raises(InvalidRequest, match=r"/nowhere is not a Delta table; check the path"):
        orders.table("/nowhere")


def test_a_view_of_the_lakes_own(orders: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"did you mean sys\.dm_tran_locks"):
        orders.sql("SELECT * FROM sys.dm_tran_lock")


def test_the_transactions_own_tables(orders: txlake.Lake) -> None:
    tx = orders.begin()
    tx.sql("CREATE TABLE invoices (id INT); DROP TABLE orders")
    with pytest.raises(InvalidRequest, match=r"did you mean invoices\?"):
        tx.sql("SELECT * FROM invoice")
    tx.rollback()
    with pytest.raises(InvalidRequest, match="'invoice' in database 'default'; SHOW TABLES"):
        orders.sql("SELECT * FROM invoice")
    tx = orders.begin()
    tx.sql("DROP TABLE orders")
    with pytest.raises(InvalidRequest, match="'ordrs' in database 'default'; SHOW TABLES"):
        tx.sql("SELECT * FROM ordrs")
    tx.rollback()


def test_names_of_sparks_own_are_found_and_a_cte_is_none_of_ours(orders: txlake.Lake) -> None:
    orders.sql("CREATE OR REPLACE TEMP VIEW mine AS SELECT 7 AS x")
    assert query(orders, "WITH ordrs AS (SELECT * FROM mine) SELECT * FROM ordrs") == [(7,)]
    orders.sql("DROP VIEW mine")


@pytest.mark.parametrize(
    ("statement", "suggested"),
    [
        ("DELETE FROM orders WHERE vlue % 2 = 0", "`value`, `id`"),
        ("UPDATE orders SET id = vlue + 1", "`value`, `id`"),
        ("UPDATE orders SET id = x.id", "`orders`.`id`, `orders`.`value`"),
        ("DELETE FROM orders WHERE __txlake_x = rand()", "`value`"),
        (
            "MERGE INTO orders t USING n s ON t.id = s.idd WHEN MATCHED THEN DELETE",
            "`s`.`id`, `t`.`id`",
        ),
        (
            "MERGE INTO orders USING n s ON FALSE WHEN NOT MATCHED THEN INSERT (id) VALUES (idd)",
            "`s`.`id`",
        ),
    ],
)
def test_suggested_columns_are_the_users(
    orders: txlake.Lake, statement: str, suggested: str
) -> None:
    with pytest.raises(InvalidRequest, match="cannot be resolved") as caught:
        orders.sql(statement)
    assert "__" not in str(caught.value).split("cannot be resolved")[1]
    assert f"Did you mean one of the following? [{suggested}" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("delta.isolationLevl", "did you mean delta.isolationLevel"),
        ("txlake.conflictgranularit", "did you mean txlake.conflictGranularity?"),
        ("delta.zzz", "known keys are delta.appendOnly, "),
        ("delta.feature.deletionVector", "did you mean deletionVectors"),
    ],
)
def test_properties_suggest_the_nearest(orders: txlake.Lake, key: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        orders.sql(f"ALTER TABLE orders SET TBLPROPERTIES ('{key}' = 'supported')")
