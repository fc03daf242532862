"""A served statement's time and memory are bounded: the server answers after any of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import pytest

import txlake
from tests.server.process import ServerProcess
from txlake.errors import Unavailable
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.server import served_sql
from txlake.server.app import OWN_ROOT
from txlake.server.bodies import Script
from txlake.server.calls import Limits
from txlake.settings import Settings
from txlake.spark import served
from txlake.spark.plane import SparkPlane
from txlake.storage import open_store
from txlake.system import System

TIMEOUT_S = 8
# A text of 2^50 characters, made by a fold that Spark carries out while it plans.
DOUBLED = "aggregate(sequence(1, 50), 'a', (whole, i) -> concat(whole, whole))"
ONES = "aggregate(sequence(1, 1000000), 0L, (sum, i) -> sum + i)"
# 10^12 steps in the thread of the planner, which no cancelled job ends.
FOLDED = f"aggregate(sequence(1, 1000000), 0L, (sum, i) -> sum + i * {ONES})"
JOINED = "SELECT sum(a.id % 7 * b.id) FROM range(1000000000) a, range(1000000000) b"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with Spark in a process of its own."""
    warehouse = tmp_path_factory.mktemp("bounds") / "lake"
    with txlake.connect(str(warehouse)) as lake:
        lake.sql("CREATE TABLE orders (id INT, n BIGINT)")
        lake.sql("INSERT INTO orders VALUES (1, 10), (2, 20)")
    with ServerProcess(warehouse, "--statement-timeout", str(TIMEOUT_S)) as made:
        yield made


def ask(server: ServerProcess, text: str) -> httpx.Response:
    """A statement's answer, however long Spark takes to start."""
    return httpx.post(f"{server.url}{OWN_ROOT}/sql", json={"statement": text}, timeout=300)


def check_answers(server: ServerProcess) -> None:
    """The server answers by a query that needs Spark, and a job."""
    for _ in range(3):  # a Spark that has just been ended fails the statements that it ran
        answer = ask(server, "SELECT sum(n) AS n, count(DISTINCT id) AS ids FROM orders")
        if answer.status_code == 200:
            break
    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"] == [[30, 2]]


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT sha2(repeat('a', 2000000000), 256)", "at most 1000000"),
        ("SELECT length(repeat('a', 1000000 * 2000))", ""),
        (f"SELECT length({DOUBLED})", ""),
        (f"SELECT collect_list({DOUBLED}) FROM orders", ""),
        (JOINED, "longer than 8 s"),
        (f"SELECT {FOLDED}", ""),
    ],
    ids=["literal", "computed", "doubled", "in a task", "long job", "long plan"],
)
def test_the_server_answers_after(server: ServerProcess, text: str, said: str) -> None:
    answer = ask(server, text)
    assert answer.status_code in (400, 403, 503), answer.text
    assert said in answer.text
    check_answers(server)


def test_an_update_that_is_cancelled_changes_nothing(server: ServerProcess) -> None:
    answer = ask(server, f"UPDATE orders SET n = ({JOINED.replace('SELECT', 'SELECT n +', 1)})")
    assert answer.status_code in (400, 503), answer.text
    check_answers(server)


@pytest.mark.parametrize(
    ("error", "answers", "ends"),
    [
        (ConnectionRefusedError(111, "Connection refused"), False, True),
        (ConnectionResetError(104, "Connection reset"), True, False),
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), False, True),
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), True, False),
        (RuntimeError("a table is missing"), False, False),
    ],
)
def test_a_spark_that_answers_no_more_is_ended(
    error: Exception, answers: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM that ends refuses connections while its process is still there."""
    spark, ended = object(), list[object]()
    plane = object.__new__(served.ServedPlane)
    plane._spark = spark  # type: ignore[assignment]
    monkeypatch.setattr(served, "_is_dead", lambda: False)
    monkeypatch.setattr(served, "_answers", lambda _: answers)
    monkeypatch.setattr(served.ServedPlane, "end_spark", lambda _, one: ended.append(one))
    wrapped = Unavailable("Spark can't be reached")
    wrapped.__cause__ = error
    plane._recover(wrapped)
    assert ended == ([spark] if ends else [])


def test_a_spark_that_has_ended_before_a_statement_is_parsed_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = Unavailable("Spark can't be reached")
    gone.__cause__ = ConnectionRefusedError(111, "Connection refused")

    def rules(_: object) -> TextRules:
        raise gone

    recovered: list[object] = []
    monkeypatch.setattr(served.ServedPlane, "text_rules", property(rules))
    monkeypatch.setattr(served.ServedPlane, "_recover", lambda _, error: recovered.append(error))
    plane = object.__new__(served.ServedPlane)
    plane._spark, plane._threads = None, threading.local()
    plane.system = System()
    session: Any = SimpleNamespace(engine=SimpleNamespace(plane=plane), fail=lambda _: None)
    call: Any = SimpleNamespace(caller=None, served_lake=SimpleNamespace(limits=Limits()))
    with pytest.raises(Unavailable, match="can't be reached"):
        served_sql._run_script(call, session, Script(statement="SELECT 1"))
    assert recovered == [gone]


@pytest.mark.parametrize("kind", [SparkPlane, served.ServedPlane])
def test_statements_without_spark_do_not_wait_for_its_start(kind: type[SparkPlane]) -> None:
    """What a statement asks the plane while another one starts Spark."""
    begun, may_start = threading.Event(), threading.Event()

    def make_spark() -> Any:
        begun.set()
        assert may_start.wait(60)
        raise Unavailable("no Spark on this machine")

    def answers() -> tuple[object, ...]:
        with plane.statement(60) if isinstance(plane, served.ServedPlane) else nullcontext():
            found = plane.is_started, plane.setting("spark.k", "unset"), plane.table_defaults()
            with plane.active():
                return (*found, plane.text_rules)

    def start() -> None:
        with suppress(Unavailable):
            _ = plane.spark

    plane = kind(
        make_spark=make_spark,
        system=System(),
        settings=Settings(),
        open_store=open_store,
        takes_active=False,
    )
    with ThreadPoolExecutor(2) as threads:
        starting = threads.submit(start)
        try:
            assert begun.wait(60)
            assert threads.submit(answers).result(30) == (False, "unset", {}, DEFAULT_RULES)
        finally:
            may_start.set()
        starting.result(60)
