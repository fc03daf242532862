"""The tables' list, a table's page, what maintenance would do, and RESTORE."""

from __future__ import annotations

import re

import pytest

from tests.console.browser import Browser
from tests.console.lakes import PlainLake
from txlake.console.features import describe_features
from txlake.console.skipping import skipping_of
from txlake.log.snapshot import Snapshot
from txlake.protocol.features import READABLE, WRITABLE


def _latest(lake: PlainLake, name: str) -> Snapshot:
    entry = lake.engine.catalog.find("default", name)
    assert entry is not None
    return lake.engine.at_entry(entry).log.latest()


def test_tables_are_listed_and_found_by_a_part_of_their_name(browser: Browser) -> None:
    every = browser.page("/tables")
    assert "default.orders" in every
    assert "default.stock" in every
    found = browser.page("/tables?name=STO")
    assert "default.stock" in found
    assert "default.orders" not in found


def test_a_table_is_shown_as_it_was_at_a_version(lake: PlainLake, browser: Browser) -> None:
    lake.sql("UPDATE orders SET customer = 'carl' WHERE id = 1")
    assert "carl" in browser.page("/tables/default.orders")
    then = browser.page("/tables/default.orders?version=1")
    assert "carl" not in then
    assert "Version 1 of 2" in then


@pytest.mark.parametrize(
    "path", ["default.nothing", "orders", "default.orders?version=99", "default.orders?version=x"]
)
def test_a_table_that_is_not_there_is_told(browser: Browser, path: str) -> None:
    assert browser.get(f"/tables/{path}").status_code == 404


def test_the_page_says_what_optimize_would_do(lake: PlainLake, browser: Browser) -> None:
    assert "OPTIMIZE would leave the files as they are" in browser.page("/tables/default.orders")
    for n in range(3):
        lake.sql(f"INSERT INTO orders VALUES ({n}, 'x', 1)")
    assert re.search(r"put 4 files \([^)]+\) into 1\.", browser.page("/tables/default.orders"))
    lake.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.targetFileSize' = '1')")
    assert "OPTIMIZE would leave the files as they are" in browser.page("/tables/default.orders")


def test_vacuum_would_delete_what_it_deletes(lake: PlainLake, browser: Browser) -> None:
    lake.sql(
        "ALTER TABLE orders SET TBLPROPERTIES "
        "('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
    )
    lake.sql("DELETE FROM orders")
    asked = browser.page("/tables/default.orders")
    assert "VACUUM would" not in asked
    text = browser.page("/tables/default.orders?vacuum=1")
    found = re.search(r"VACUUM would delete (\d+) file", text)
    assert found is not None
    assert int(found[1]) == len(lake.sql("VACUUM orders DRY RUN")) == 1


def test_deleted_rows_are_counted(lake: PlainLake, browser: Browser) -> None:
    lake.sql("DELETE FROM orders WHERE id = 1")
    text = browser.page("/tables/default.orders")
    assert "2 rows; 1 rows are deleted" in text


def test_clustered_files_are_skipped_by_their_bounds(lake: PlainLake, browser: Browser) -> None:
    lake.sql("CREATE TABLE c (id INT, v STRING) CLUSTER BY (id)")
    for start in range(4):
        lake.sql(f"INSERT INTO c VALUES ({start * 10}, 'a'), ({start * 10 + 5}, 'b')")
    (apart,) = skipping_of(_latest(lake, "c"))
    assert (apart.column, apart.share, apart.unknown) == ("id", 0.25, 0)
    lake.sql("INSERT INTO c VALUES (-5, 'a'), (100, 'b')")
    (across,) = skipping_of(_latest(lake, "c"))
    assert across.share is not None
    assert across.share > 0.25
    assert "A lookup by one value of <b>id</b> reads" in browser.page("/tables/default.c")


def test_every_feature_has_words() -> None:
    unknown = [
        name for name, words in describe_features(READABLE | WRITABLE) if "not one that" in words
    ]
    assert unknown == ["geospatial-dev"]


# RESTORE


def test_restore_asks_first_and_then_does_it(lake: PlainLake, writer: Browser) -> None:
    lake.sql("DELETE FROM orders WHERE id = 1")
    path = "/tables/default.orders/restore"
    asked = writer.page(f"{path}?version=1")
    assert "Restore default.orders to version 1?" in asked
    assert len(lake.sql("SELECT * FROM orders")) == 2
    done = writer.send(path, {"version": "1", "newest": "2"}, page=f"{path}?version=1")
    assert (done.status_code, done.url.path) == (200, "/tables/default.orders")
    assert len(lake.sql("SELECT * FROM orders")) == 3
    newest = writer.page("/history")
    (sequence,) = re.findall(r'href="/history/(\d+)">\d+</a>', newest)[:1]
    assert "by ann in the console" in writer.page(f"/history/{sequence}")


def test_restore_does_nothing_where_the_table_has_changed_since(
    lake: PlainLake, writer: Browser
) -> None:
    path = "/tables/default.orders/restore"
    writer.page(f"{path}?version=0")
    lake.sql("INSERT INTO orders VALUES (4, 'x', 1)")
    answer = writer.send(path, {"version": "0", "newest": "1"}, page=f"{path}?version=0")
    assert answer.status_code == 400
    assert "is at version 2 now" in answer.text
    assert len(lake.sql("SELECT * FROM orders")) == 4


@pytest.mark.parametrize("version", ["", "99", "x"])
def test_a_version_that_there_is_not_is_not_restored(
    lake: PlainLake, writer: Browser, version: str
) -> None:
    path = "/tables/default.orders/restore"
    assert writer.get(f"{path}?version={version}").status_code == 404
    answer = writer.send(path, {"version": version, "newest": "1"}, page="/")
    assert answer.status_code == 400
    assert _latest(lake, "orders").version == 1


def test_who_may_only_look_restores_nothing(lake: PlainLake, browser: Browser) -> None:
    path = "/tables/default.orders/restore"
    assert "Restore" not in browser.page("/tables/default.orders?version=0")
    answer = browser.send(path, {"version": "0", "newest": "1"}, page=f"{path}?version=0")
    assert answer.status_code == 403
    assert _latest(lake, "orders").version == 1
