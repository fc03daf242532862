"""What a lake, its transactions and its tables show of themselves in a notebook."""

from __future__ import annotations

from pathlib import Path

import txlake
from txlake.session.command import AsRows


def run(lake: txlake.Lake, text: str) -> None:
    """Carries SQL out without Spark."""
    lake._run_sql(text, None, AsRows())


def test_a_lake_shows_its_tables(tmp_path: Path) -> None:
    names = f"sqlite:///{tmp_path / 'names.db'}"
    options = {"aws_secret_access_key": "hidden-of-the-test"}
    with txlake.connect(str(tmp_path / "<lake>"), catalog=names, storage_options=options) as lake:
        run(lake, "CREATE DATABASE shop")
        for number in range(25):
            run(lake, f"CREATE TABLE shop.t{number:02} (id INT)")
        run(lake, "INSERT INTO shop.t00 VALUES (1); USE shop")
        shown = lake._repr_html_()
        assert "&lt;lake&gt;" in shown or "%3Clake%3E" in shown
        assert "<td>shop</td><td>t00</td><td>1</td>" in shown
        assert "t19" in shown
        assert "t20" not in shown
        assert "and 5 more" in shown
        assert "tables: 25" in shown
        assert "hidden" not in shown + repr(lake)
        assert "database shop" in repr(lake)
        assert not lake._session.engine.plane.is_started
    assert "InvalidRequest: the lake is closed" in lake._repr_html_()
    assert repr(lake).startswith("<Lake at file://")


def test_a_transaction_shows_what_it_changed(tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        run(lake, "CREATE TABLE t (id INT)")
        tx = lake.begin(isolation="snapshot")
        tx._run_sql("INSERT INTO t VALUES (1)", None, AsRows())
        shown = tx._repr_html_()
        assert "state: active &middot; isolation: snapshot &middot; instant: 1" in shown
        assert "<td>default.t</td>" in shown
        tx.commit()
        assert "state: committed" in tx._repr_html_()
        assert repr(tx) == f"<Transaction {tx.id}: committed>"


def test_a_table_shows_its_columns_and_never_fails(tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        run(lake, "CREATE TABLE t (id INT, s STRING) PARTITIONED BY (s) COMMENT 'a & b'")
        table = lake.table("t")
        shown = table._repr_html_()
        assert "version: 0 &middot; files: 0 &middot; partitioned by: s" in shown
        assert "comment: a &amp; b" in shown
        assert "<td>id</td><td>int</td>" in shown
        run(lake, "BEGIN")
        assert table._repr_html_() == "<div><b>DeltaTable(t)</b></div>"
        run(lake, "ROLLBACK; DROP TABLE t")
        assert "InvalidRequest: there is no table" in table._repr_html_()
        run(lake, "SHOW TABLES")
