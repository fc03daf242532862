"""The history in lanes, an instant's page, and the rows that it changed."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.console.browser import Browser
from tests.console.lakes import PlainLake
from txlake.catalog.commits import CommitEntry
from txlake.console.history import draw_lanes


def _entry(sequence: int, time_ms: int, table: str | None, version: int = 1) -> CommitEntry:
    return CommitEntry(
        sequence=sequence,
        time_ms=time_ms,
        transaction_id=f"t{sequence}",
        table_id=table or "gone",
        table=table,
        version=version,
        operation="WRITE",
        is_published=True,
    )


def test_one_transaction_joins_the_lanes_of_its_tables() -> None:
    found = [_entry(2, 1_000, "a"), _entry(2, 1_000, "c"), _entry(1, 0, "b")]
    made = draw_lanes(found, 0, 1_000)
    assert made is not None
    assert [lane.title for lane in made.lanes] == ["a", "b", "c"]
    (joint,) = made.joints
    at = {lane.title: lane.y for lane in made.lanes}
    assert (joint.top, joint.bottom) == (at["a"], at["c"])
    assert {dot.href for dot in made.dots} == {"/history/1", "/history/2"}
    first = next(dot for dot in made.dots if dot.href == "/history/1")
    assert first.x < joint.x
    assert first.y == at["b"]


def test_the_least_busy_tables_share_a_lane() -> None:
    found = [_entry(n, n, f"t{n:02}") for n in range(30)]
    found += [_entry(100 + n, n, f"t{n:02}") for n in range(10)]
    made = draw_lanes(found, 0, 100)
    assert made is not None
    assert len(made.lanes) == 17
    assert made.lanes[-1].title == "other tables"
    assert sum(dot.y == made.lanes[-1].y for dot in made.dots) == 14


def test_many_commits_are_summed_and_each_is_counted_once() -> None:
    found = [_entry(n, n, "ab"[n % 2]) for n in range(5_000)]
    made = draw_lanes(found, 0, 4_999)
    assert made is not None
    assert made.is_summed
    assert sum(dot.count for dot in made.dots) == 5_000
    assert len(made.dots) <= 2 * 80
    assert all(190 <= dot.x <= 1_190 for dot in made.dots)


def test_without_commits_nothing_is_drawn() -> None:
    assert draw_lanes([], 0, 1) is None


def test_a_table_that_is_gone_keeps_its_lane() -> None:
    made = draw_lanes([_entry(1, 0, None)], 0, 1)
    assert made is not None
    assert made.lanes[0].title == "dropped tables"


# Pages


def _book(lake: PlainLake) -> None:
    lake.sql(
        "BEGIN; INSERT INTO stock VALUES ('nail', 5); "
        "UPDATE orders SET pieces = 11 WHERE id = 1; COMMIT"
    )


def _instants(text: str) -> list[int]:
    return [int(found) for found in re.findall(r'<td><a href="/history/(\d+)">', text)]


def test_the_newest_instants_are_listed(lake: PlainLake, browser: Browser) -> None:
    _book(lake)
    text = browser.page("/history")
    listed = _instants(text)
    assert listed == sorted(listed, reverse=True)
    assert "<svg" in text
    newest = browser.page(f"/history/{listed[0]}")
    assert "default.orders</a>, version 2" in newest
    assert "default.stock</a>, version 1" in newest


def test_a_stretch_of_time_has_its_instants_alone(lake: PlainLake, browser: Browser) -> None:
    _book(lake)
    commits = lake.engine.catalog.of_lake().ledger.newest_commits()
    times = sorted({one.time_ms for one in commits})
    whole = _instants(browser.page(f"/history?from={times[0]}&to={times[-1]}"))
    assert len(whole) == len({one.sequence for one in commits})
    before = browser.page(f"/history?from=0&to={times[0] - 1}")
    assert "Nothing was committed then" in before
    for path in re.findall(r'href="(/history\?[^"]+)"', before):
        assert browser.page(path.replace("&amp;", "&"))


def test_pages_have_fifty_instants(lake: PlainLake, browser: Browser) -> None:
    for n in range(60):
        lake.sql(f"INSERT INTO stock VALUES ('nail', {n})")
    now = lake.engine.system.now_ms()
    first = browser.page(f"/history?from=0&to={now}")
    (older,) = re.findall(r'href="([^"]+)">older', first)
    second = browser.page(older.replace("&amp;", "&"))
    assert len(_instants(first)) == 50
    assert len(set(_instants(first) + _instants(second))) == 63  # two tables, and the orders
    assert "newer" in second


@pytest.mark.parametrize("asked", ["from=x&to=1", "from=2&to=1", "from=1", "from=1&to=2&page=x"])
def test_a_stretch_that_is_none_is_refused(browser: Browser, asked: str) -> None:
    answer = browser.get(f"/history?{asked}")
    assert answer.status_code == 404
    assert "expected" in answer.text


@pytest.mark.parametrize("number", ["9999", "99999999999999999999"])
def test_an_instant_that_is_not_there_is_told(browser: Browser, number: str) -> None:
    assert browser.get(f"/history/{number}").status_code in {404, 503}


# Rows that changed


def _changed(browser: Browser, number: int | None = None) -> list[tuple[str, ...]]:
    """Sign and values of an instant's rows; the newest one's."""
    text = browser.page(f"/history/{number or _instants(browser.page('/history'))[0]}")
    rows = re.findall(r'<tr class="(?:plus|minus)">(.*?)</tr>', text)
    return [tuple(re.findall(r"<td[^>]*>(.*?)</td>", row)) for row in rows]


def test_the_rows_that_a_statement_changed(lake: PlainLake, browser: Browser) -> None:
    lake.sql("INSERT INTO stock VALUES ('nail', 1), ('bolt', NULL), ('nut', 3)")
    assert _changed(browser) == [("+", "nail", "1"), ("+", "bolt", "NULL"), ("+", "nut", "3")]
    lake.sql("UPDATE stock SET pieces = 7 WHERE item = 'bolt'")
    assert _changed(browser) == [("−", "bolt", "NULL"), ("+", "bolt", "7")]
    lake.sql("DELETE FROM stock WHERE item = 'nail'")
    assert _changed(browser) == [("−", "nail", "1")]
    lake.sql("DELETE FROM stock")
    assert set(_changed(browser)) == {("−", "nut", "3"), ("−", "bolt", "7")}


@pytest.mark.parametrize("feed", ["true", "false"], ids=["with-feed", "without-feed"])
@pytest.mark.parametrize("vectors", ["true", "false"], ids=["with-vectors", "without-vectors"])
def test_the_rows_that_spark_changed(
    tmp_path: Path, spark: SparkSession, feed: str, vectors: str
) -> None:
    with txlake.connect(str(tmp_path), spark=spark) as opened:
        opened.sql(
            "CREATE TABLE t (id INT, v STRING) TBLPROPERTIES "
            f"('delta.enableChangeDataFeed' = '{feed}', "
            f"'delta.enableDeletionVectors' = '{vectors}')"
        )
        opened.sql("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c')")
        opened.sql("UPDATE t SET v = upper(coalesce(v, 'z')) WHERE id = 2")
        with Browser(opened._session.engine) as browser:
            found = set(_changed(browser))
    told = {("−", "2", "NULL"), ("+", "2", "Z")}
    if "true" in (vectors, feed):
        assert found == told
    else:  # the files tell of all of their rows
        assert told < found


def test_a_rebase_is_told(lake: PlainLake, browser: Browser) -> None:
    first, second = lake.another(), lake.another()
    lake.sql("BEGIN; UPDATE orders SET pieces = 1 WHERE id = 1", first)
    lake.sql("UPDATE orders SET pieces = 2 WHERE id = 2", second)
    lake.sql("COMMIT", first)
    newest = _instants(browser.page("/history"))[0]
    assert "Rebased over version 2, which another transaction wrote" in browser.page(
        f"/history/{newest}"
    )
    assert set(_changed(browser)) == {("−", "1", "ann", "10"), ("+", "1", "ann", "1")}


def test_a_dropped_tables_instant_says_so(lake: PlainLake, browser: Browser) -> None:
    lake.sql("INSERT INTO stock VALUES ('nail', 5)")
    newest = _instants(browser.page("/history"))[0]
    lake.sql("DROP TABLE stock")
    assert "the table is gone" in browser.page(f"/history/{newest}")
    lake.sql("CREATE TABLE stock (item STRING)")  # another one of that name
    assert "the table is gone" in browser.page(f"/history/{newest}")


def test_no_more_rows_are_shown_than_twenty(lake: PlainLake, browser: Browser) -> None:
    values = ", ".join(f"('nail', {n})" for n in range(100))
    lake.sql(f"INSERT INTO stock VALUES {values}")
    newest = _instants(browser.page("/history"))[0]
    assert len(_changed(browser, newest)) == 20
    assert "there are more" in browser.page(f"/history/{newest}")


def test_rows_whose_files_are_gone_are_not_shown(lake: PlainLake, browser: Browser) -> None:
    entry = lake.engine.catalog.find("default", "orders")
    assert entry is not None
    for file in Path(urlsplit(entry.location).path).glob("*.parquet"):
        file.unlink()
    newest = _instants(browser.page("/history"))[0]
    assert "can&#39;t be read" in browser.page(f"/history/{newest}")
    assert "can&#39;t be read" in browser.page("/tables/default.orders")
