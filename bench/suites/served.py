"""The work on a lake's server: many clients' commits, asked of a server of two processes.

The clients are threads that stage commits as another engine does. Each has a table of its own, so
that none is overtaken; the work checks that each table has as many versions as were answered 200.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

import txlake
from bench.stage import Stage
from txlake.session.command import AsRows
from txlake.session.views.describe import Rows

CLIENTS = 32
PROCESSES = 2
_EACH_AT_LEAST = 2
_ROOT = "/api/2.1/unity-catalog/delta/v1/catalogs/spark_catalog/schemas/default/tables"
_BUSY, _DONE = 429, 200
_WAIT_S = 0.01
_TIMEOUT_S = 120
_START_S = 30


def commits(stage: Stage, number: int) -> float:
    """Milliseconds for each commit that the server ratified, of all clients at once.

    How many it ratified and turned away a second, and how long a client waited, are in the details.
    """
    each = max(_EACH_AT_LEAST, stage.sizes.transactions // 160)
    folder = stage.scratch / f"served {number}"
    with txlake.connect(str(folder)) as lake:
        for one in range(CLIENTS):
            text = (
                f"CREATE TABLE t{one} (id INT) "
                "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"
            )
            lake._run_sql(text, None, AsRows())
    command = ["txlake", "serve", str(folder), "--port", "0", "--processes", str(PROCESSES)]
    with server(command, r"serving at (\S+)") as address:
        clients = [Client(address, f"t{one}") for one in range(CLIENTS)]
        seconds, took = run_all(clients, each)
    with txlake.connect(str(folder)) as lake:
        for client in clients:
            text = f"DESCRIBE HISTORY {client.table} LIMIT 1"
            found = lake._run_sql(text, None, AsRows())
            assert isinstance(found, Rows), "a history needs no Spark"
            stage.expect(found.rows[0][0], each, f"versions of {client.table}")
    count = CLIENTS * each
    stage.details["served: committed a second"] = count / seconds
    stage.details["served: turned away"] = float(sum(client.turned_away for client in clients))
    stage.details["served: p50 ms"] = float(np.median(took))
    stage.details["served: p99 ms"] = float(np.percentile(took, 99))
    return 1_000 * seconds / count


@contextmanager
def server(module: Sequence[str], says: str) -> Iterator[tuple[str, int]]:
    """A server, run as a module of Python with arguments; its host and port, of the URL that it
    says where the pattern finds it.
    """
    command = [sys.executable, "-m", *module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        said = ""
        try:
            while (found := re.search(says, said)) is None:
                line = process.stdout.readline().decode()
                if not line:
                    raise RuntimeError(f"the server didn't start: {said}")
                said += line
            parts = urlsplit(found[1])
            address = str(parts.hostname), int(parts.port or 0)
            _await(address)
            yield address
        finally:
            process.terminate()


def _await(address: tuple[str, int]) -> None:
    """Wait until it takes connections. Raises ConnectionRefusedError if it takes too long."""
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(address, timeout=_TIMEOUT_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_WAIT_S)
        else:
            return


def run_all(clients: Sequence[Client], each: int) -> tuple[float, list[float]]:
    """Let all clients commit so often at once; the seconds of all, the milliseconds of each."""
    start = threading.Barrier(len(clients) + 1)
    with ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(client.run, start, each) for client in clients]
        with suppress(threading.BrokenBarrierError):  # whose error says more
            start.wait()
        began = time.perf_counter()
        took = [one for client in running for one in client.result()]
        return time.perf_counter() - began, took


class Client:
    """One client, which commits to its table again and again."""

    def __init__(self, address: tuple[str, int], table: str) -> None:
        self.table = table
        self.turned_away = 0
        self._http = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)

    def run(self, start: threading.Barrier, count: int) -> list[float]:
        """Commit so often; the milliseconds of each, waits for its turn included."""
        try:
            return self._run(start, count)
        except BaseException:
            start.abort()  # nobody waits for this one
            raise

    def _run(self, start: threading.Barrier, count: int) -> list[float]:
        loaded = self._asked("GET")
        assert loaded is not None, "nobody else asks yet"
        location = unquote(urlsplit(loaded["metadata"]["location"]).path)
        folder = Path(location) / "_delta_log/_staged_commits"
        folder.mkdir(exist_ok=True)
        table_id = loaded["metadata"]["table-uuid"]
        time_ms = int(loaded["metadata"]["properties"]["delta.lastCommitTimestamp"])
        took = []
        start.wait()
        for version in range(1, count + 1):
            time_ms = max(time_ms + 1, time.time_ns() // 1_000_000)
            began = time.perf_counter()
            self._commit(folder, table_id, version, time_ms)
            took.append(1_000 * (time.perf_counter() - began))
        with suppress(OSError):
            self._http.close()
        return took

    def _commit(self, folder: Path, table_id: str, version: int, time_ms: int) -> None:
        name = f"{version:020}.{uuid.uuid4()}.json"
        info = {
            "inCommitTimestamp": time_ms,
            "timestamp": time_ms,
            "operation": "WRITE",
            "operationParameters": {},
            "txnId": name,
        }
        add = {
            "path": f"{name}.parquet",
            "partitionValues": {},
            "size": 1_000,
            "modificationTime": time_ms,
            "dataChange": True,
            "stats": '{"numRecords":1}',
        }
        content = f"{json.dumps({'commitInfo': info})}\n{json.dumps({'add': add})}".encode()
        (folder / name).write_bytes(content)
        commit = {
            "version": version,
            "timestamp": time_ms,
            "file-name": name,
            "file-size": len(content),
            "file-modification-timestamp": time_ms,
        }
        body = {
            "requirements": [{"type": "assert-table-uuid", "uuid": table_id}],
            "updates": [{"action": "add-commit", "commit": commit}],
        }
        while self._asked("POST", body) is None:
            self.turned_away += 1
            time.sleep(_WAIT_S)

    def _asked(self, method: str, body: object = None) -> dict[str, Any] | None:
        """What the server answers; None where it is too busy."""
        content = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"}
        self._http.request(method, f"{_ROOT}/{self.table}", content, headers)
        answer = self._http.getresponse()
        data = answer.read()
        if answer.status == _BUSY:
            return None
        if answer.status != _DONE:
            raise RuntimeError(f"{method} {self.table}: {answer.status}: {data.decode()[:500]}")
        found: dict[str, Any] = json.loads(data)
        return found
