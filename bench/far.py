"""Statements where each request to the store takes a while: medians, requests and round trips.

`python -m bench.far` runs moto's S3 in a process of its own, which answers each request after a
delay, and counts for every statement the requests and the *round trips*: the longest chain of
requests of which each began after the one before was answered, while the statement ran.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

_CONTROL = "/_far/"
_BUCKET = "far"
_REPEATS = 5
_ROWS = 20_000
_TABLES = 20


@dataclass(frozen=True, slots=True)
class Measured:
    """A statement's repeats.

    Attributes:
        seconds: how long each took.
        requests: how many requests each sent before it ended.
        round_trips: how many of them one after the other.
    """

    seconds: Sequence[float]
    requests: Sequence[int]
    round_trips: Sequence[int]

    def text(self) -> str:
        """Return the medians: milliseconds, round trips, requests."""
        middle = statistics.median
        return (
            f"{1000 * middle(self.seconds):.0f} ms, {middle(self.round_trips):g} trips, "
            f"{middle(self.requests):g} requests"
        )


def longest_chain(spans: Iterable[tuple[float, float]]) -> int:
    """Return the largest number of spans of which each begins after the one before has ended."""
    count, end = 0, float("-inf")
    for begun, ended in sorted(spans, key=lambda span: span[1]):
        if begun >= end:
            count, end = count + 1, ended
    return count


class FarStore:
    """The bucket, and the account of its requests."""

    def __init__(self, port: int) -> None:
        self._endpoint = f"http://127.0.0.1:{port}"
        self.options = {
            "aws_endpoint_url": self._endpoint,
            "aws_access_key_id": "access",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def control(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Send a request that isn't delayed or counted, and return the reply's JSON."""
        with urllib.request.urlopen(f"{self._endpoint}{_CONTROL}{path}", timeout=30) as reply:
            return json.loads(reply.read())

    def measure(
        self,
        work: Callable[[int], object],
        repeats: int = _REPEATS,
        before: Callable[[], object] = lambda: None,
    ) -> Measured:
        """Run the work once as a rehearsal, then `repeats` times; count what each sends.

        `before` runs before each, and isn't measured.
        """
        work(0)
        seconds, requests, trips = [], [], []
        for number in range(1, repeats + 1):
            before()
            time.sleep(0.5)  # what follows an answer is not the next one's
            self.control("reset")
            begun = time.time()
            work(number)
            ended = time.time()
            spans = [span for span in self.control("spans") if span[0] < ended]
            seconds.append(ended - begun)
            requests.append(len(spans))
            trips.append(longest_chain((one, min(other, ended)) for one, other, _ in spans))
        return Measured(seconds, requests, trips)


@contextmanager
def far_store() -> Iterator[FarStore]:
    """Run the server while the block runs."""
    command = [sys.executable, "-m", "bench.far", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield FarStore(int(server.stdout.readline()))
        finally:
            server.kill()


def _serve() -> None:
    """Serve moto's S3; print the port. Runs until it is killed."""
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    application = DomainDispatcherApplication(create_backend_app)
    spans: list[tuple[float, float, str]] = []
    one_at_a_time = threading.Lock()  # moto's put-if-absent looks first and writes then
    latency_s = 0.0

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            pass

    def answer(environ: Any, start_response: Any) -> Any:  # noqa: ANN401 - WSGI's
        nonlocal latency_s
        path = environ["PATH_INFO"]
        if path.startswith(_CONTROL):
            what, _, value = path.removeprefix(_CONTROL).partition("/")
            body: object = None
            if what == "latency":
                latency_s = float(value) / 1000
            elif what == "reset":
                spans.clear()
            else:
                body = list(spans)
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(body).encode()]
        begun = time.time()
        time.sleep(latency_s / 2)
        with one_at_a_time:
            content = b"".join(application(environ, start_response))
        time.sleep(latency_s / 2)
        spans.append((begun, time.time(), f"{environ['REQUEST_METHOD']} {path}"))
        return [content]

    server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        aws_access_key_id="access",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=_BUCKET)
    print(server.server_port, flush=True)
    threading.Event().wait()


def _rows(first: int, count: int) -> pa.Table:
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": numbers, "value": numbers})


def _txlake(store: FarStore, catalog: str | None, place: str) -> Iterator[tuple[str, Measured]]:
    """Measure txlake's statements on a lake."""
    import txlake

    url = f"s3://{_BUCKET}/{place}"
    lake = txlake.connect(url, catalog=catalog, storage_options=store.options)
    lake.write(_rows(0, _ROWS), "t")
    for number in range(_TABLES):
        lake.write(_rows(0, 1), f"t{number}")
    row = iter(range(10**6, 10**7))

    def insert_into(*tables: str) -> None:
        tx = lake.begin()
        for table in tables:
            tx.sql(f"INSERT INTO {table} VALUES ({next(row)}, 0)")
        tx.commit()

    yield (
        "INSERT of one row",
        store.measure(lambda n: lake.sql(f"INSERT INTO t VALUES ({next(row)}, 0)")),
    )
    path = f"delta.`{url}-path`"
    lake.write(_rows(0, 10), f"{url}-path")
    yield (
        "the same, path table",
        store.measure(lambda n: lake.sql(f"INSERT INTO {path} VALUES ({next(row)}, 0)")),
    )
    yield "one row into each of 2 tables", store.measure(lambda n: insert_into("t0", "t1"))
    yield "BEGIN, ten INSERTs, COMMIT", store.measure(lambda n: insert_into(*["t2"] * 10))
    yield (
        "UPDATE of one row",
        store.measure(lambda n: lake.sql(f"UPDATE t SET value = {n} WHERE id = {100 + n}")),
    )
    yield (
        "DELETE of one row",
        store.measure(lambda n: lake.sql(f"DELETE FROM t WHERE id = {200 + n}")),
    )
    yield (
        "SELECT of one row by key",
        store.measure(lambda n: lake.sql(f"SELECT * FROM t WHERE id = {300 + n}").collect()),
    )
    with txlake.connect(url, catalog=catalog, storage_options=store.options) as other:
        yield (
            "the same, after another's commit",
            store.measure(
                lambda n: lake.sql(f"SELECT * FROM t WHERE id = {400 + n}").collect(),
                before=lambda: other.sql(f"INSERT INTO t VALUES ({next(row)}, 0)"),
            ),
        )
    yield (
        f"{_TABLES} tables in one transaction",
        store.measure(lambda n: insert_into(*(f"t{each}" for each in range(_TABLES))), repeats=3),
    )
    yield (
        "opening the lake and a table",
        store.measure(
            lambda n: txlake.connect(url, catalog=catalog, storage_options=store.options).read("t")
        ),
    )
    lake.close()


def _delta_rs(store: FarStore, place: str) -> Iterator[tuple[str, Measured]]:
    """Measure delta-rs on a table of the same rows."""
    from deltalake import DeltaTable, write_deltalake

    url = f"s3://{_BUCKET}/{place}"
    options = {**store.options, "conditional_put": "etag"}
    write_deltalake(url, _rows(0, _ROWS), storage_options=options)
    row = iter(range(10**6, 10**7))
    yield (
        "INSERT of one row",
        store.measure(
            lambda n: write_deltalake(
                url, _rows(next(row), 1), mode="append", storage_options=options
            )
        ),
    )
    table = DeltaTable(url, storage_options=options)
    yield (
        "UPDATE of one row",
        store.measure(lambda n: table.update(new_values={"value": n}, predicate=f"id = {100 + n}")),
    )
    yield "DELETE of one row", store.measure(lambda n: table.delete(f"id = {200 + n}"))
    yield (
        "opening the lake and a table",
        store.measure(lambda n: DeltaTable(url, storage_options=options).version()),
    )


def main() -> None:
    """Measure, print a table for each latency, and write the numbers as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.far", description=__doc__)
    parser.add_argument("--latency", type=float, nargs="+", default=[30], help="milliseconds")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        _serve()
        return
    console = Console(width=180)
    numbers: dict[str, dict[str, dict[str, object]]] = {}
    for latency in arguments.latency:
        table = Table("statement", "catalog in the store", "SQLite", "delta-rs")
        columns: dict[str, dict[str, Measured]] = {}
        with far_store() as store, tempfile.TemporaryDirectory() as folder:
            store.control(f"latency/{latency}")
            columns["store"] = dict(_txlake(store, None, "store"))
            columns["sqlite"] = dict(_txlake(store, f"sqlite:///{folder}/catalog.db", "sqlite"))
            columns["delta-rs"] = dict(_delta_rs(store, "rs"))
        for statement in columns["store"]:
            cells = [
                column[statement].text() if statement in column else ""
                for column in columns.values()
            ]
            table.add_row(statement, *cells)
        console.print(f"{latency:g} ms a request")
        console.print(table)
        numbers[f"{latency:g}"] = {
            engine: {
                statement: {
                    "seconds": list(each.seconds),
                    "requests": list(each.requests),
                    "round_trips": list(each.round_trips),
                }
                for statement, each in column.items()
            }
            for engine, column in columns.items()
        }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
