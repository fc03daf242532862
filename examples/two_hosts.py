"""The orders of `demo.py` on a bucket, taken by the clerks of two hosts: `make demo-bucket`.

The hosts share nothing but the bucket: the lake's catalog is in it, and neither a database nor Java
is needed. A server of moto takes S3's place. Each clerk is a process with its host's folder for
temporary files, and with its host's name where the system allows that. One is killed in the middle
of its work.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars
import pyarrow
from deltalake import DeltaTable, QueryBuilder
from pyarrow import csv
from pyarrow.compute import field

import nycflights
import screen
import txlake

BUCKET = "airport"
WAREHOUSE = f"s3://{BUCKET}/warehouse"
HOSTS = ("east", "west")
CLERKS = [f"{host}-{number}" for host in HOSTS for number in (1, 2)]
ORDERS_PER_CLERK = 6
KILLED = "west-1"
KILLED_AFTER = 3
FLIGHTS_SOLD = 40
DOLLARS = 200
TABLES = {"flights": "flights", "orders": "sales.db/orders", "payments": "billing.db/payments"}
ORDERS = pyarrow.schema(
    [("id", "int64"), ("flight", "int64"), ("name", "string"), ("seats", "int64")]
)
PAYMENTS = pyarrow.schema([("order_id", "int64"), ("dollars", "int64")])


def main() -> None:
    """Load the lake, let the clerks work, kill one of them, and check what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clerk", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
    elif arguments.clerk:
        work(arguments.clerk, json.loads(os.environ["STORE"]))
    else:
        with tempfile.TemporaryDirectory(prefix="txlake-demo-") as folder, bucket() as options:
            load(Path(folder), options)
            told = sell(Path(folder), options)
            check(told, options)


@contextmanager
def bucket() -> Iterator[dict[str, str]]:
    """An S3 server with an empty bucket, and the storage options to reach it."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield {
                "aws_endpoint_url": f"http://127.0.0.1:{int(server.stdout.readline())}",
                "aws_access_key_id": "access",
                "aws_secret_access_key": "secret",
                "aws_region": "us-east-1",
                "aws_allow_http": "true",
            }
        finally:
            server.kill()


def serve() -> None:
    """Serve moto's S3, print the port, and go on until killed."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_: object) -> None:
            """Log nothing."""

    # One request at a time: moto's put-if-absent looks first and writes then.
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=False, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT")).close()
    print(server.server_port, flush=True)
    threading.Event().wait()


def load(scratch: Path, options: dict[str, str]) -> None:
    """Write the flights of New Year's Eve with their planes' seats, and the tables of orders."""
    screen.chapter("1. A lake in a bucket: three tables in three databases, and the catalog")
    flights = csv.read_csv(nycflights.csv_file("flights", scratch))
    planes = csv.read_csv(nycflights.csv_file("planes", scratch)).select(["tailnum", "seats"])
    evening = flights.filter((field("month") == 12) & (field("day") == 31))
    seated = evening.join(planes, "tailnum", join_type="inner").sort_by("sched_dep_time")
    rows = seated.select(["carrier", "flight", "origin", "dest", "sched_dep_time", "seats"])
    rows = rows.append_column("id", pyarrow.array(range(1, len(seated) + 1)))
    with txlake.connect(WAREHOUSE, storage_options=options) as lake:
        lake.write(rows.append_column("free", seated["seats"]), "flights")
        lake.write(ORDERS.empty_table(), "sales.orders")
        lake.write(PAYMENTS.empty_table(), "billing.payments")
    screen.say(f"{len(rows):,} flights are in {WAREHOUSE}, beside the lake's catalog.")


def work(clerk: str, options: dict[str, str]) -> None:
    """Take a clerk's orders, each in one transaction over three tables; print those committed."""
    chance = random.Random(clerk)
    first = 1000 * CLERKS.index(clerk)
    with txlake.connect(WAREHOUSE, storage_options=options) as lake:
        for order in range(first + 1, first + 1 + ORDERS_PER_CLERK):
            seats, flight = chance.randint(1, 4), chance.randint(1, FLIGHTS_SOLD)

            def book(
                tx: txlake.Transaction, order: int = order, seats: int = seats, flight: int = flight
            ) -> None:
                taken = {"id": order, "flight": flight, "name": clerk, "seats": seats}
                paid = {"order_id": order, "dollars": DOLLARS * seats}
                tx.write(pyarrow.Table.from_pylist([taken], ORDERS), "sales.orders", "append")
                tx.table("flights").update(f"id = {flight}", {"free": f"free - {seats}"})
                tx.write(pyarrow.Table.from_pylist([paid], PAYMENTS), "billing.payments", "append")

            lake.run(book, attempts=20)
            print(order, flush=True)


def sell(scratch: Path, options: dict[str, str]) -> dict[str, list[int]]:
    """Run the clerks at the same time, and kill one; return the orders that each reported."""
    screen.chapter("2. Four clerks of two hosts take orders, and one is killed with -9")
    told: dict[str, list[int]] = {clerk: [] for clerk in CLERKS}

    def listen(clerk: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            told[clerk].append(int(line))
            if clerk == KILLED and len(told[clerk]) == KILLED_AFTER:
                process.kill()  # its next order may have begun

    processes = {clerk: start(clerk, scratch, options) for clerk in CLERKS}
    try:
        listeners = [
            threading.Thread(target=listen, args=each, daemon=True) for each in processes.items()
        ]
        for listener in listeners:
            listener.start()
        for listener in listeners:
            listener.join()
        codes = {clerk: process.wait() for clerk, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    rows = [
        (clerk, host_of(clerk), len(told[clerk]), "killed" if codes[clerk] < 0 else "done")
        for clerk in CLERKS
    ]
    screen.table("orders that were reported", ("clerk", "host", "orders", "end"), rows)
    assert codes == {clerk: -9 if clerk == KILLED else 0 for clerk in CLERKS}, codes
    return told


def start(clerk: str, scratch: Path, options: dict[str, str]) -> subprocess.Popen[str]:
    """Start a clerk's process, on a host as far as one machine has two."""
    host = host_of(clerk)
    folder = scratch / host
    folder.mkdir(exist_ok=True)
    command = [sys.executable, __file__, "--clerk", clerk]
    if can_name_hosts():
        command = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh", *command]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "TMPDIR": str(folder),
            "STORE": json.dumps(options),
        },
    )


@functools.cache
def can_name_hosts() -> bool:
    """Whether this user may give a process a host name of its own."""
    if shutil.which("unshare") is None:
        return False
    test = ["unshare", "--uts", "hostname", "test"]
    return subprocess.run(test, capture_output=True, check=False).returncode == 0


def host_of(clerk: str) -> str:
    """The name of a clerk's host."""
    return clerk.partition("-")[0]


def check(told: dict[str, list[int]], options: dict[str, str]) -> None:
    """Compare what was reported with what is there, by txlake and by two other engines."""
    screen.chapter("3. Every order that was reported is there, in all three tables or in none")
    with txlake.connect(WAREHOUSE, storage_options=options) as lake:
        recovered = lake.recover()
    screen.say(f"lake.recover() has {'something' if recovered.done else 'nothing'} to do.")
    assert not recovered.done, recovered
    reported = {order for orders in told.values() for order in orders}
    found = {
        "delta-rs": {name: by_delta_rs(place, options) for name, place in TABLES.items()},
        "polars": {name: by_polars(place, options) for name, place in TABLES.items()},
    }
    rows = []
    for engine, tables in found.items():
        orders = set(tables["orders"]["id"].to_pylist())
        assert reported <= orders
        # The killed clerk's last order may have been committed, and never reported.
        assert len(orders - reported) <= 1
        assert orders == set(tables["payments"]["order_id"].to_pylist())
        taken = sum(tables["flights"]["seats"].to_pylist())
        taken -= sum(tables["flights"]["free"].to_pylist())
        sold = sum(tables["orders"]["seats"].to_pylist())
        paid = sum(tables["payments"]["dollars"].to_pylist())
        assert (taken, paid) == (sold, DOLLARS * sold)
        rows.append((engine, len(reported), len(orders), taken, sold, paid))
    columns = ("engine", "orders reported", "orders", "seats taken", "seats sold", "dollars")
    screen.table("what is in the bucket", columns, rows)
    assert rows[0][1:] == rows[1][1:]


def by_delta_rs(place: str, options: dict[str, str]) -> pyarrow.Table:
    """A table's rows, read by delta-rs."""
    read = DeltaTable(f"{WAREHOUSE}/{place}", storage_options=options)
    rows = QueryBuilder().register("t", read).execute("SELECT * FROM t").read_all()
    return pyarrow.table(rows)


def by_polars(place: str, options: dict[str, str]) -> pyarrow.Table:
    """A table's rows, read by polars."""
    return polars.read_delta(f"{WAREHOUSE}/{place}", storage_options=options).to_arrow()


if __name__ == "__main__":
    main()
