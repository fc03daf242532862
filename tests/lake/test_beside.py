"""A session's own method, called where a transaction's was probably meant, warns."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import pandas as pd
import pytest

import txlake
from tests.lake.rows import query


@pytest.fixture
def orders(lake: txlake.Lake) -> txlake.Lake:
    """A lake with the empty table `orders`."""
    lake.sql("CREATE TABLE orders (id BIGINT)")
    return lake


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("sql", lambda lake: lake.sql("INSERT INTO orders VALUES (1)")),
        ("read", lambda lake: lake.read("orders")),
        ("write", lambda lake: lake.write(pd.DataFrame({"id": [1]}), "orders", "append")),
        ("table", lambda lake: lake.table("orders")),
    ],
)
def test_it_warns_once_and_says_what_to_use(
    orders: txlake.Lake, method: str, call: Callable[[txlake.Lake], object]
) -> None:
    with orders.transaction():
        with pytest.warns(UserWarning, match=rf"is no part of .*; use tx\.{method}\(\)") as told:
            call(orders)
        assert told[0].filename == __file__
    with orders.transaction(), warnings.catch_warnings():
        warnings.simplefilter("error")
        call(orders)


def test_in_run_too(orders: txlake.Lake) -> None:
    def work(tx: txlake.Transaction) -> None:
        tx.sql("SELECT * FROM orders")
        orders.sql("INSERT INTO orders VALUES (1)")

    with pytest.warns(UserWarning, match=r"lake\.sql\(\) inside"):
        orders.run(work)


def test_what_is_meant_does_not_warn(orders: txlake.Lake) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with orders.transaction() as tx:
            tx.sql("INSERT INTO orders VALUES (1)")
            with orders.session() as other:
                other.sql("SELECT * FROM orders")
            thread = threading.Thread(target=lambda: orders.read("orders"))
            thread.start()
            thread.join(60)
            tx.commit()
            orders.sql("SELECT * FROM orders")
        orders.sql("SELECT * FROM orders")
        begun = orders.begin()
        orders.sql("SELECT * FROM orders")
        begun.rollback()
    with orders.transaction(), pytest.warns(UserWarning, match="is no part of"):
        orders.sql("SELECT * FROM orders")
    assert query(orders, "SELECT * FROM orders") == [(1,)]


def test_the_inner_of_two_blocks_ends(orders: txlake.Lake) -> None:
    with orders.transaction():
        with orders.transaction():
            pass
        with pytest.warns(UserWarning, match="is no part of"):
            orders.sql("SELECT * FROM orders")
