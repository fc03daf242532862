"""How much may be asked: bodies, requests at once, and how long an answer may take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace

import pytest

from tests.server.client import OPEN, Client, failed, file
from tests.simulation.rows.lake import RowLake
from txlake.server import names
from txlake.server.app import ENDPOINTS
from txlake.server.calls import Answer, Call, Limits

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

    def __call__(self, call: Call) -> Answer:
        assert self.opened.wait(WAIT_S)
        return Answer(200, {})


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
        failed(refused, 429, "TooManyRequestsException")
        assert refused.headers["retry-after"] == "1"
        gate.opened.set()
        assert [one.result(WAIT_S).status_code for one in left] == [200, 200, 200]
        assert client.call("GET", "/metastore_summary").status_code == 200


def test_an_answer_that_takes_too_long(row_lake: RowLake, gate: Gate) -> None:
    with Client(row_lake, limits=Limits(request_s=0.05)) as client:
        answer = client.call("GET", "/catalogs")
        failed(answer, 500, "InternalServerErrorException", "may still happen")
        gate.opened.set()


def test_a_failure_of_the_server_is_told_without_its_inside(
    row_lake: RowLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(call: Call) -> Answer:
        raise RuntimeError("secret inside")

    endpoints = tuple(replace(one, handler=fail) for one in ENDPOINTS)
    monkeypatch.setattr("txlake.server.app.ENDPOINTS", endpoints)
    with Client(row_lake) as client:
        answer = client.call("GET", "/catalogs")
        failed(answer, 500, "InternalServerErrorException")
        assert "secret" not in answer.text
        failed(client.call("POST", "/schemas", {}), 500, "CommitStateUnknownException")


def test_sessions_are_used_again(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    for number in range(5):
        assert client.commit("t", client.stage("t", file(f"{number}"))).status_code == 200
    assert client.served.sessions._idle.qsize() == 1
