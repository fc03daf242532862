"""How much may be asked: bodies, requests at once, and how long an answer may take."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from tests.catalog.unity.served import on_a_socket
from tests.server.client import OPEN, Client, failed, file
from tests.simulation.rows.lake import RowLake
from txlake.server import commits, names
from txlake.server.app import ENDPOINTS
from txlake.server.calls import ApiResponse, Call, Limits
from txlake.server.head_timeout import protocol_with_head_timeout

WAIT_S = 30


def test_a_body_of_100_megabytes(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    answer = client.call("POST", client.url("t"), content=b" " * 100_000_000)
    failed(answer, 400, "BadRequestException", "larger than")
    assert client.call("GET", client.url("t")).status_code == 200


def test_a_body_that_does_not_tell_its_size(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")

    def parts() -> Iterator[bytes]:
        for _ in range(50):
            yield b" " * 1_000_000

    answer = client._http.post(
        f"/api/2.1/unity-catalog{client.url('t')}",
        content=parts(),
    )
    failed(answer, 400, "BadRequestException", "larger than")


class Gate:
    """Holds a handler until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, call: Call) -> ApiResponse:
        assert self.opened.wait(WAIT_S)
        return ApiResponse(200, {})


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Behind the listing of catalogs."""
    made = Gate()
    endpoints = tuple(
        replace(one, handler=made) if one.handler is names.catalogs else one for one in ENDPOINTS
    )
    monkeypatch.setattr("txlake.server.app.ENDPOINTS", endpoints)
    return made


def test_more_than_there_is_room_for(row_lake: RowLake, gate: Gate) -> None:
    """Two are carried out, one waits, the next is told to come again; then all go on."""
    limits = Limits(workers=2, waiting_max=1)
    with Client(row_lake, limits=limits) as client, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(client.call, "GET", "/catalogs") for _ in range(4)]
        done, left = wait(asked, WAIT_S, FIRST_COMPLETED)
        [refused] = [one.result(WAIT_S) for one in done]
        failed(refused, 429, "RESOURCE_EXHAUSTED")
        assert refused.headers["retry-after"] == "1"
        gate.opened.set()
        assert [one.result(WAIT_S).status_code for one in left] == [200, 200, 200]
        assert client.call("GET", "/metastore_summary").status_code == 200


def test_commits_beyond_the_queue_are_turned_away_and_none_is_lost(
    row_lake: RowLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six clients, each with a table of its own, have one worker between them."""
    refused, turned_away = threading.Event(), 0
    update = commits.update

    def hold(call: Call) -> ApiResponse:
        refused.wait(WAIT_S)  # the first one, until another one was turned away
        return update(call)

    endpoints = tuple(
        replace(one, handler=hold) if one.handler is update else one for one in ENDPOINTS
    )
    monkeypatch.setattr("txlake.server.app.ENDPOINTS", endpoints)
    names = [f"t{number}" for number in range(6)]
    for name in names:
        row_lake.sql(f"CREATE TABLE {name} (id INT) {OPEN}")
    with Client(row_lake, limits=Limits(workers=1, waiting_max=2)) as client:
        bodies = {
            name: [
                client.request(name, client.stage(name, file(f"{version}"), version=version))
                for version in (1, 2, 3)
            ]
            for name in names
        }

        def commit(name: str) -> None:
            nonlocal turned_away
            for body in bodies[name]:
                while (answer := client.call("POST", client.url(name), body)).status_code == 429:
                    turned_away += 1
                    refused.set()
                assert answer.status_code == 200, answer.text

        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(commit, names))
        assert turned_away > 0
        for name in names:
            live = client.handle(name).log.latest().files.adds()
            assert sorted(one.path for one in live) == ["1", "2", "3"]


def test_a_head_that_never_ends_closes_its_connection(client: Client) -> None:
    with on_a_socket(client.app, http=protocol_with_head_timeout(0.2)) as address:
        parts = urlsplit(address)
        place = (str(parts.hostname), int(parts.port or 0))
        for begun in (b"", b"GET /none HTTP/1.1\r\nHost: x\r\n"):
            with socket.create_connection(place, WAIT_S) as line:
                line.sendall(begun)
                assert line.recv(100) == b""
        with socket.create_connection(place, WAIT_S) as line:
            line.sendall(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith((b"}}", b"}]}")):
                answer += line.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 404")
            line.sendall(b"GET /none HT")  # on the connection that was kept
            assert line.recv(100) == b""


def test_an_answer_that_takes_too_long(row_lake: RowLake, gate: Gate) -> None:
    with Client(row_lake, limits=Limits(request_s=0.05)) as client:
        answer = client.call("GET", "/catalogs")
        failed(answer, 500, "INTERNAL", "may still happen")
        gate.opened.set()


def test_a_failure_of_the_server_is_told_without_its_inside(
    row_lake: RowLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(call: Call) -> ApiResponse:
        raise RuntimeError("secret inside")

    endpoints = tuple(replace(one, handler=fail) for one in ENDPOINTS)
    monkeypatch.setattr("txlake.server.app.ENDPOINTS", endpoints)
    with Client(row_lake) as client:
        answer = client.call("GET", "/catalogs")
        failed(answer, 500, "INTERNAL")
        assert "secret" not in answer.text
        failed(client.call("POST", "/schemas", {}), 500, "COMMIT_STATE_UNKNOWN")


def test_sessions_are_used_again(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    for number in range(5):
        assert client.commit("t", client.stage("t", file(f"{number}"))).status_code == 200
    assert client.served.sessions._idle.qsize() == 1
