"""The bench of a delayed store: what it counts, what it judges, and how it is shown."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from bench.far import __main__ as program
from bench.far.engines.writers import race_of
from bench.far.measuring import Measured, Race, Span, Task, longest_chain, measured
from bench.far.proxy import key_of
from bench.far.report import (
    DATABASE_PART,
    PART,
    cell_text,
    footers,
    markdown,
    rows,
    target_text,
    trace,
    write_page,
)
from bench.far.results import AtLatency, Cell, Missing, Results, load, save
from bench.far.statements import (
    BY_KEY,
    DATABASE,
    QUICK,
    STATEMENTS,
    Target,
    columns,
    misses,
)
from bench.far.stores import running_store
from bench.pages import marks
from bench.sources.lakes import new_postgresql
from tests.pages import page
from txlake.storage import open_store

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.no_interop("the bench's tables are its own"),
]

BEGIN, END = marks(PART)
RACE = Race(
    commits_s=20.0,
    entries_s=30.0,
    latency_s=0.03,
    put_s=0.034,
    share_min=0.7,
    share_max=1.3,
    wait_s_p50=0.3,
    wait_s_p99=1.2,
    requests=12.0,
)


def span(
    begun: float, ended: float, key: str = "k", method: str = "GET", status: int = 200
) -> Span:
    return Span(begun, ended, method, key, status)


def measured_in(seconds: float, trips: int, requests: int, after: int = 0) -> Measured:
    """Three equal repeats, of whose two requests one was waited for."""
    traced = ((0.0, 30.0, "PUT", "/far/a", 200, True), (10.0, 45.0, "GET", "/far/b", 404, False))
    return Measured([seconds] * 3, [trips] * 3, [requests] * 3, [after] * 3, traced)


@pytest.mark.parametrize(
    ("spans", "chain"),
    [
        ([], []),
        ([span(0, 1)], [span(0, 1)]),
        ([span(0, 1), span(0.5, 2), span(1, 3)], [span(0, 1), span(1, 3)]),
        # One that takes long isn't chosen before two that fit into its time.
        ([span(0, 9), span(1, 2), span(3, 4)], [span(1, 2), span(3, 4)]),
        ([span(5, 6), span(0, 1), span(2, 3)], [span(0, 1), span(2, 3), span(5, 6)]),
    ],
)
def test_the_longest_chain_is_of_requests_that_began_after_one_another(
    spans: list[Span], chain: list[Span]
) -> None:
    assert longest_chain(spans) == chain


def test_a_statement_waits_for_no_request_that_is_answered_after_its_end() -> None:
    spans = [span(10.0, 10.1, "a"), span(10.2, 10.3, "b"), span(10.4, 10.9, "c"), span(11, 12, "d")]
    result = measured([(10.0, 10.5, spans)])
    assert (result.round_trips, result.requests, result.requests_after) == ([2], [3], [1])
    assert result.seconds == [0.5]
    assert [(key, waited) for _, _, _, key, _, waited in result.trace] == [
        *(("a", True), ("b", True), ("c", False), ("d", False))
    ]


def test_the_trace_is_of_the_repeat_with_the_median_time() -> None:
    result = measured(
        [
            (0.0, 3.0, [span(1, 2, "slow")]),
            (0.0, 1.0, [span(0, 1, "fast")]),
            (5.0, 7.0, [span(5.5, 6, "x")]),
        ]
    )
    assert result.trace == [(500.0, 1000.0, "GET", "x", 200, True)]


@pytest.mark.parametrize(
    ("target", "missed"),
    [
        (Target(), None),
        (Target(round_trips=3, requests=5), []),
        (Target(round_trips=2), ["3 of 2 round trips"]),
        (Target(round_trips=3, requests=4), ["5 of 4 requests"]),
        (Target(ratio=0.5), []),
        (Target(ratio=0.3), ["0.50 of 0.3 x delta-rs"]),
        (Target(ratio=0.3, beside="delta-spark"), None),
        (Target(2, 4, 0.1), ["3 of 2 round trips", "5 of 4 requests", "0.50 of 0.1 x delta-rs"]),
    ],
)
def test_a_statement_misses_each_limit_that_it_is_over(
    target: Target, missed: list[str] | None
) -> None:
    assert misses(target, measured_in(0.1, 3, 5), {"delta-rs": 0.2}) == missed


@pytest.mark.parametrize(
    ("target", "changed", "missed"),
    [
        (Target(commits=0.5, entries=0.8, share=(0.6, 1.4), wait=50), {}, []),
        (Target(commits=0.7), {}, ["0.60 of 0.7 commits a request's time"]),
        (Target(entries=1.0), {}, ["0.90 of 1 entries a request's time"]),
        (Target(share=(0.6, 1.4)), {"share_min": 0.5}, ["shares 0.50 to 1.30 of 0.6 to 1.4"]),
        (Target(share=(0.6, 1.4)), {"share_max": 1.5}, ["shares 0.70 to 1.50 of 0.6 to 1.4"]),
        (Target(wait=50), {"wait_s_p99": 1.8}, ["p99 60 of 50 requests' time"]),
        (Target(commits=0.5), {"latency_s": 0.0}, None),
    ],
)
def test_writers_miss_each_limit_of_rate_share_and_wait(
    target: Target, changed: dict[str, float], missed: list[str] | None
) -> None:
    assert misses(target, replace(RACE, **changed), {}) == missed


def test_a_race_counts_commits_by_process_and_entries_of_the_log() -> None:
    entry = "/far/lake/_txlake/catalog/log/00000000000000000007"
    spans = [
        span(0, 0.03, entry, "PUT"),
        span(1, 1.05, entry, "PUT", 412),
        span(2, 2.04, "/far/lake/t/_delta_log/00000000000000000001.json", "PUT"),
        span(3, 3.03, entry),
    ]
    race = race_of([[0.1] * 3, [0.2] * 1], spans, elapsed_s=2.0, latency_s=0.03)
    assert (race.commits_s, race.entries_s, race.requests) == (2.0, 0.5, 1.0)
    assert (race.share_min, race.share_max) == (0.5, 1.5)
    assert (race.wait_s_p50, race.wait_s_p99) == (0.1, 0.2)
    assert race.put_s == pytest.approx(0.04)
    with pytest.raises(RuntimeError, match="no commit of 2 processes"):
        race_of([[], []], spans, 2.0, 0.03)


@pytest.mark.parametrize(
    ("target", "key"),
    [
        ("/far/t/part-%20a.parquet", "/far/t/part- a.parquet"),
        ("/far?list-type=2&prefix=t%2F_delta_log%2F", "/far?prefix=t/_delta_log/"),
        ("/far?delete", "/far?delete="),
        ("/far/t?uploadId=7&partNumber=1", "/far/t"),
    ],
)
def test_a_request_is_named_by_its_object_or_by_what_it_lists(target: str, key: str) -> None:
    assert key_of(target) == key


def results_of(cells: dict[str, dict[str, Cell]]) -> Results:
    server = {"PUT": 2.0, "GET": 1.5, "LIST": 4.0, "requests_s": 300.0}
    return Results("2026-01-01", "2 cores", "s3", {**QUICK}, {"30": AtLatency(server, cells)})


RESULTS = results_of(
    {
        "txlake": {
            "insert": measured_in(0.1, 3, 5, after=2),
            "update": measured_in(0.9, 12, 14),
            "writers_8x1": RACE,
            "sum_client": Missing("FileNotFoundError: no jars"),
        },
        "delta-rs": {"insert": measured_in(0.5, 11, 13)},
    }
)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    save(RESULTS, tmp_path / "new" / "far.json")
    found = load(tmp_path / "new" / "far.json")
    assert markdown(found) == markdown(RESULTS)
    assert found.sizes == QUICK
    insert = found.latencies["30"].cells["txlake"]["insert"]
    assert isinstance(insert, Measured)
    assert list(trace(insert)) == [
        "answered after 100 ms",
        "*      0.0     30.0 PUT    200 /far/a",
        "      10.0     45.0 GET    404 /far/b",
    ]


def test_the_table_says_of_each_target_whether_it_is_met() -> None:
    found = {row[0]: row[1:] for row in rows(RESULTS, "30")}
    reached = (
        "20.0 commits/s, 0.60 of the bound (0.90 entries), shares 0.70-1.30, p99 40 latencies, "
        "a PUT took 34 ms, 12 requests each"
    )
    assert found == {
        "INSERT of one row": [
            "100 ms, 3 trips, 5 + 2 requests: met",
            "500 ms, 11 trips, 13 requests",
            "3 trips, 5 requests, 0.3 x delta-rs",
        ],
        "UPDATE of one row": ["900 ms, 12 trips, 14 requests: missed", "", "5 trips"],
        "8 processes, own tables": [
            f"{reached}: met",
            "",
            "0.5 of the bound, shares 0.6-1.4, p99 50 latencies",
        ],
        "sum over 2M rows, Spark with hadoop-aws": [
            *("no result: missed", "", "1.05 x delta-spark")
        ],
    }


def test_each_miss_is_listed_with_what_it_waited_for() -> None:
    unmeasured = "sum over 2M rows, Spark with hadoop-aws, txlake, catalog in the store"
    assert list(footers(RESULTS, "30")) == [
        "UPDATE of one row, txlake, catalog in the store: missed: 12 of 5 round trips",
        "    waited for: 0-30 PUT a",
        f"{unmeasured}: no result: FileNotFoundError: no jars",
    ]


def test_the_page_changes_nothing_but_the_table_of_the_delayed_store(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shown = tmp_path / "docs" / "benchmarks.md"
    shown.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        write_page(RESULTS, tmp_path)
        assert shown.read_text() == f"before\n{BEGIN}\n{markdown(RESULTS)}{END}\nafter\n"
    table = [line for line in markdown(RESULTS).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {5}
    shown.write_text("no place")
    with pytest.raises(SystemExit, match="no place for the table"):
        write_page(RESULTS, tmp_path)
    assert page("docs/benchmarks.md").count(BEGIN) == page("docs/benchmarks.md").count(END) == 1


def test_every_statement_is_measured_and_every_target_names_a_column() -> None:
    keys = {column.key for column in columns()}
    asked = {key for column in columns() for each in column.processes for key in each.statements}
    assert asked == set(BY_KEY)
    assert len(BY_KEY) == len(STATEMENTS)
    for statement in STATEMENTS:
        assert statement.target.beside in keys
        assert statement.title.format(**QUICK)
        assert (target_text(statement.target) == "") == (statement.target == Target())


def test_a_far_database_has_columns_a_target_and_a_page_of_its_own(tmp_path: Path) -> None:
    of_it = [column.key for column in columns() if DATABASE in column.stores]
    assert of_it == ["txlake-postgresql", "ducklake"]
    cells: dict[str, dict[str, Cell]] = {
        "txlake-postgresql": {"insert": measured_in(0.2, 4, 4), "update": measured_in(0.1, 4, 4)},
        "ducklake": {"insert": measured_in(0.1, 9, 9), "update": measured_in(0.2, 9, 9)},
    }
    server = {"SELECT": 1.0, "requests_s": 900.0}
    results = Results("2026-11-30", "a machine", DATABASE, QUICK, {"20": AtLatency(server, cells)})
    found = list(rows(results, "20"))
    assert [row[0] for row in found] == ["INSERT of one row", "UPDATE of one row"]
    assert [row[1].rpartition(": ")[2] for row in found] == ["missed", "met"]
    assert {row[-1] for row in found} == {"1 x ducklake"}
    (tmp_path / "docs").mkdir()
    begin, end = marks(DATABASE_PART)
    shown = tmp_path / "docs" / "benchmarks.md"
    shown.write_text(f"{BEGIN}\nold\n{END}\n{begin}\nold\n{end}\n")
    write_page(results, tmp_path)
    assert shown.read_text() == f"{BEGIN}\nold\n{END}\n{begin}\n{markdown(results)}{end}\n"
    assert page("docs/benchmarks.md").count(begin) == page("docs/benchmarks.md").count(end) == 1


def a_task(folder: Path) -> Task:
    return Task("lake", "", "", "", {}, 0, QUICK, [], "", str(folder), str(folder / "out"))


def test_an_engine_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = (
        "import fcntl, subprocess, sys, time; "
        f"lock = open({str(lock)!r}, 'w'); fcntl.flock(lock, fcntl.LOCK_EX); "
        "command = [sys.executable, '-c', 'import time; time.sleep(600)']; "
        "subprocess.run(command, pass_fds=[lock.fileno()])"
    )
    problem = program.run_process([sys.executable, "-c", code], a_task(tmp_path), 5)
    assert problem == "the process was ended after 5 s"
    with lock.open() as waiting:
        fcntl.flock(waiting, fcntl.LOCK_EX)  # once nobody holds it any more


def test_an_engine_that_fails_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such engine')"]
    problem = program.run_process(command, a_task(tmp_path), 60)
    assert problem == "exit status 1: no such engine"
    assert program.run_process([sys.executable, "-c", ""], a_task(tmp_path), 60) is None


def test_results_before_a_cut_line_are_kept() -> None:
    lines = [
        json.dumps({"key": "insert", "Missing": {"reason": "why"}}),
        json.dumps({"key": "update", "Missing": {"reason": "why"}})[:20],
    ]
    assert program.cells_of("\n".join(lines)) == {"insert": Missing("why")}


def test_the_proxy_delays_and_counts_what_the_server_answers() -> None:
    with running_store("s3") as store:
        client = open_store(f"{store.url}/folder", store.options)
        store.proxy.set_latency(40)
        client.put("a b", b"x" * 3_000_000)
        assert client.get("a b") == b"x" * 3_000_000
        assert [each.path for each in client.list("")] == ["a b"]
        spans = store.proxy.spans()
        store.proxy.control("reset")
        assert store.proxy.spans() == []
        store.proxy.wait_until_idle(0)
    assert [(each.method, each.status) for each in spans] == [
        *(("PUT", 200), ("GET", 200), ("GET", 200))
    ]
    assert spans[0].key == "/far/folder/a b"
    assert all(each.ended - each.begun >= 0.04 for each in spans)
    assert len(longest_chain(spans)) == 3


def test_the_proxy_of_a_database_delays_and_counts_what_is_waited_for() -> None:
    with running_store(DATABASE) as store:
        engine = sa.create_engine(new_postgresql(host=store.database))
        with engine.connect() as connection:
            connection.rollback()
            store.proxy.control("reset")
            store.proxy.set_latency(40)
            assert connection.exec_driver_sql("SELECT 42").scalar_one() == 42
            driver = connection.connection.driver_connection
            assert driver is not None
            with driver.pipeline():
                for number in range(3):
                    driver.execute("SELECT %s", (number,))
            store.proxy.set_latency(0)
            spans = store.proxy.spans()
        engine.dispose()
        store.proxy.wait_until_idle(0)
    assert [span.key for span in spans] == [
        "BEGIN", "SELECT 42", "SELECT $1; SELECT $1; SELECT $1",
    ]  # fmt: skip
    assert all(span.ended - span.begun >= 0.04 for span in spans)
    assert len(longest_chain(spans)) == 3


@pytest.mark.broad
@pytest.mark.parametrize("engine", ["delta-rs", "txlake"])
def test_two_statements_of_an_engine_are_measured_without_delay(
    tmp_path: Path, engine: str
) -> None:
    path = tmp_path / "far.json"
    options = ["--quick", "--repeats", "1", "--latency", "0", "--engines", engine]
    command = [sys.executable, "-m", "bench.far", *options, "--json", str(path)]
    ran = subprocess.run(
        [*command, "--statements", "insert", "delete"], capture_output=True, text=True, check=True
    )
    cells = load(path).latencies["0"].cells[engine]
    assert list(cells) == ["insert", "delete"]
    for cell in cells.values():
        assert isinstance(cell, Measured), cell
        assert cell.seconds[0] > 0
        assert 0 < cell.round_trips[0] <= cell.requests[0]
        assert cell_text(cell) in ran.stdout.replace("\n", "")
    if engine == "delta-rs":
        traced = subprocess.run(
            [*command, "--trace", "insert"], capture_output=True, text=True, check=True
        )
        assert "INSERT of one row, delta-rs:\nanswered after " in traced.stdout
    assert list(load(path).latencies["0"].cells[engine]) == ["insert", "delete"], "both are kept"
