"""Results of Spark over Flight SQL: streamed whatever their size, cut off by errors and cancels."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import txlake
from tests.server.flight.raw import RawClient
from tests.server.flight.serving import ServedFlight, changed, rows, until
from txlake.server.calls import Limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFlight]:
    path = tmp_path_factory.mktemp("streams") / "lake"
    with (
        txlake.connect(str(path), spark=spark) as lake,
        ServedFlight(lake, Limits(statement_s=60)) as made,
    ):
        with made.connect() as con:
            changed(con, "CREATE TABLE t (id INT, n BIGINT)")
            changed(con, "INSERT INTO t SELECT id, id * 2 FROM range(100000)")
        yield made


@pytest.fixture
def con(served: ServedFlight) -> Iterator[Any]:
    with served.connect() as made:
        yield made


def test_a_result_comes_in_order_and_in_pieces(con: Any) -> None:
    with con.cursor() as cursor:
        cursor.execute("SELECT id, CAST(id AS STRING) AS s FROM range(0, 200000, 1, 5)")
        assert cursor.rowcount == -1
        seen, sizes = [], []
        for batch in cursor.fetch_record_batch():
            seen += batch.column(0).to_pylist()
            sizes.append(batch.num_rows)
        assert seen == list(range(200_000))
        assert max(sizes) <= 10_000
    assert rows(con, "SELECT count(*), sum(n) FROM t") == [(100_000, 9_999_900_000)]


@pytest.mark.broad
def test_values_of_all_types(con: Any) -> None:
    changed(
        con,
        "CREATE TABLE v (d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, f DOUBLE, o BOOLEAN, "
        "l BIGINT)",
    )
    value = (
        datetime.date(2026, 11, 28),
        datetime.datetime(2026, 11, 28, 1, 2, 3, 4, datetime.UTC),
        datetime.datetime.fromisoformat("1969-12-31T23:59:59.999999"),
        b"\x00\xff",
        0.1,
        True,
        -5,
    )
    with con.cursor() as cursor:
        cursor.execute("INSERT INTO v VALUES (?, ?, ?, ?, ?, ?, ?)", value)
        cursor.execute("INSERT INTO v VALUES (?, ?, ?, ?, ?, ?, ?)", [None] * 7)
        cursor.execute("SELECT * FROM v WHERE l < 0")
        assert cursor.fetchall() == [value]
        cursor.execute("SELECT * FROM v WHERE l IS NULL")
        assert cursor.fetchall() == [(None,) * 7]


@pytest.mark.broad
def test_types_that_arrow_lacks_have_a_form(con: Any) -> None:
    [row] = rows(
        con,
        "SELECT parse_json('{\"a\":1}') AS v, INTERVAL '3' MONTH AS m, "
        "INTERVAL '1 02' DAY TO HOUR, NULL AS n, "
        "array(named_struct('x', 1)) AS s, map('k', 1.5BD) AS k, 'x' AS `a.b`, 1 AS v",
    )
    assert row[0] == '{"a":1}'
    assert row[1] == "INTERVAL '3' MONTH"
    assert row[2] == datetime.timedelta(days=1, hours=2)
    assert (row[3], row[4], row[6], row[7]) == (None, [{"x": 1}], "x", 1)


def test_an_error_after_some_rows_is_an_error(con: Any) -> None:
    """A task that breaks off isn't taken for the end of its rows."""
    with con.cursor() as cursor:
        cursor.execute("SELECT 1 / (id - 30000) AS q FROM range(0, 60000, 1, 2)")
        with pytest.raises(con.ProgrammingError, match="DIVIDE_BY_ZERO"):
            cursor.fetchall()
        cursor.execute("SELECT 1 / (id - 5) AS q FROM range(10)")
        with pytest.raises(con.ProgrammingError, match="DIVIDE_BY_ZERO"):
            cursor.fetchall()


@pytest.mark.broad
def test_a_fetch_that_stops_ends_the_job(served: ServedFlight, con: Any) -> None:
    with con.cursor() as cursor:
        cursor.execute("SELECT * FROM range(0, 1000000000, 1, 2)")
        assert cursor.fetchone() == (0,)
    _until_idle(served)
    assert rows(con, "SELECT 1 + 1") == [(2,)]


@pytest.mark.broad
def test_a_rollback_takes_away_the_rows_that_were_not_fetched(served: ServedFlight) -> None:
    with served.connect(auto=False) as one, one.cursor() as cursor:
        changed(one, "INSERT INTO t VALUES (-1, 0)")
        cursor.execute("SELECT a.id FROM t a CROSS JOIN range(100000)")
        cursor.fetchone()
        one.rollback()
        with pytest.raises(one.Error, match="rolled back before all rows"):
            cursor.fetchall()


@pytest.mark.broad
def test_a_client_that_stops_reading_loses_its_rows(
    served: ServedFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = RawClient(served.address)
    stream = client.rows(client.query("SELECT * FROM range(0, 1000000000, 1, 2)"))
    next(stream)
    results = served.handles.results
    with monkeypatch.context() as patched:
        patched.setattr(results, "_idle_ms", -1)
        until(lambda: served.handles.sweep() or not results.values())
    with pytest.raises(client.Failed):
        list(stream)
    client.close()
    _until_idle(served)


@pytest.mark.broad
def test_a_client_that_waits_for_rows_is_not_idle(
    served: ServedFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is its transaction, while it reads."""
    with served.connect(auto=False) as one, one.cursor() as cursor:
        transactions = served.handles.transactions
        cursor.execute("SELECT max(length(sha2(CAST(id AS STRING), 512))) FROM range(2000000)")
        monkeypatch.setattr(served.handles.results, "_idle_ms", -1)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(cursor.fetchall()))
        thread.start()
        until(lambda: any(result.is_working for result in served.handles.results.values()))
        served.handles.results.sweep()
        thread.join(120)
        assert found == [[(128,)]]
        monkeypatch.undo()
        cursor.execute("SELECT id FROM range(0, 2000000, 1, 2)")
        reader = cursor.fetch_record_batch()
        reader.read_next_batch()
        entry = list(transactions._open.values())[-1]
        entry.used_ms = long_ago = entry.used_ms - 100_000
        assert sum(batch.num_rows for batch in reader) == 1_990_000
        assert entry.used_ms > long_ago
        one.rollback()


@pytest.mark.broad
def test_a_prepared_statement_of_a_table_that_was_dropped(con: Any) -> None:
    changed(con, "CREATE TABLE gone (id INT)")
    with con.cursor() as cursor:
        cursor.execute("SELECT id FROM gone WHERE id = ?", [1])
        changed(con, "DROP TABLE gone")
        with pytest.raises(con.ProgrammingError, match=r"no table 'gone'.*NotFound"):
            cursor.execute("SELECT id FROM gone WHERE id = ?", [1])
        cursor.executemany("INSERT INTO t VALUES (?, ?)", [(-5, 1), (-6, 2)])
        with pytest.raises(con.ProgrammingError, match="can't hold the value x"):
            cursor.executemany("UPDATE t SET id = ? WHERE n = ?", [("-7", 1), ("x", 2)])
    assert rows(con, "SELECT id FROM t WHERE id < -4") == [(-6,), (-5,)]
    changed(con, "DELETE FROM t WHERE id < 0")


@pytest.mark.broad
def test_a_query_is_cancelled_by_its_flight_info(served: ServedFlight) -> None:
    """By a client that has the FlightInfo, as JDBC's drivers have."""
    client = RawClient(served.address)
    info = client.query("SELECT * FROM range(0, 1000000000, 1, 2)")
    stream = client.rows(info)
    next(stream)
    next(stream)
    client.cancel(info)
    with pytest.raises(client.Failed, match="was cancelled"):
        list(stream)
    client.cancel(info)
    with pytest.raises(client.Failed, match="no such result"):
        list(client.rows(info))
    client.close()
    _until_idle(served)


def _until_idle(served: ServedFlight) -> None:
    """Wait until Spark runs no job, half a minute at most."""
    tracker = served.served.engine.spark.sparkContext.statusTracker()
    until(lambda: not tracker.getActiveJobsIds())
