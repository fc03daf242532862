"""Several processes that serve one lake at one address: sessions, deaths, the end, refusals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from typer.testing import CliRunner

from tests.server.process import ServerProcess
from tests.server.test_process import TABLES, made, request
from txlake.cli.app import app
from txlake.server.api_errors import ApiError
from txlake.server.app import OWN_ROOT
from txlake.server.siblings import Siblings

LIMIT_S = 60.0
OK, NO_SESSION = 200, 404

on_linux = pytest.mark.skipif(sys.platform == "win32", reason="Windows can't share the socket")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "warehouse"


@pytest.fixture(scope="module")
def server(warehouse: Path) -> Iterator[ServerProcess]:
    """Two processes; each carries out one request at a time."""
    with ServerProcess(warehouse, "--processes", "2", "--workers", "1") as started:
        for table in ("left", "right"):
            assert said(started, f"CREATE TABLE {table} (id INT)").status_code == OK
        yield started


def asked(server: ServerProcess, method: str, path: str, body: object = None) -> httpx.Response:
    """One request, by a connection of its own, which any of the processes may accept."""
    return httpx.request(method, f"{server.url}{path}", json=body, timeout=LIMIT_S)


def said(server: ServerProcess, text: str, session: str | None = None) -> httpx.Response:
    body = {"statement": text, **({} if session is None else {"session": session})}
    return asked(server, "POST", f"{OWN_ROOT}/sql", body)


def sessions_of_all(server: ServerProcess, *, count: int = 2) -> dict[int, str]:
    """A session of each process, by its number."""
    found: dict[int, str] = {}
    until = time.monotonic() + LIMIT_S
    while len(found) < count:
        assert time.monotonic() < until, f"only of {list(found)}"
        answer = asked(server, "POST", f"{OWN_ROOT}/sessions")
        if answer.status_code == 429:
            continue
        session: str = answer.json()["session"]
        number = int(session.partition(".")[0])
        if number in found:
            assert asked(server, "DELETE", f"{OWN_ROOT}/sessions/{session}").status_code == 204
        else:
            found[number] = session
    return found


def last_version(server: ServerProcess, table: str) -> int:
    found: list[list[Any]] = said(server, f"DESCRIBE HISTORY {table} LIMIT 1").json()["rows"]
    return int(found[0][0])


@on_linux
@pytest.mark.broad(keep=1)
def test_a_transaction_is_reached_through_any_process(server: ServerProcess) -> None:
    """Both processes forward to each other at once, though each runs one request at a time."""
    sessions = sessions_of_all(server)
    before = {table: last_version(server, table) for table in ("left", "right")}
    start = threading.Barrier(2)

    def write(session: str, table: str) -> str:
        start.wait(LIMIT_S)
        transactions = set()
        for text in ("BEGIN", *(f"INSERT INTO {table} VALUES ({n})" for n in range(8))):
            answer = said(server, text, session)
            assert answer.status_code == OK, answer.text
            transactions.add(answer.json()["transaction"])
        (transaction,) = transactions
        assert last_version(server, table) == before[table], "not committed yet"
        assert said(server, "COMMIT", session).json()["transaction"] is None
        return str(transaction)

    with ThreadPoolExecutor(2) as pool:
        made_by = pool.map(write, sessions.values(), before, timeout=LIMIT_S)
        assert len(set(made_by)) == 2
    for table, version in before.items():
        assert last_version(server, table) == version + 1
    for session in sessions.values():
        assert asked(server, "DELETE", f"{OWN_ROOT}/sessions/{session}").status_code == 204
        assert said(server, "SHOW TABLES", session).status_code == NO_SESSION
    for unknown in ("7.abc", "abc", ".", "../x.abc", "9" * 300 + ".abc"):
        assert said(server, "SHOW TABLES", unknown).status_code == NO_SESSION
    assert asked(server, "GET", "/health").json() == {"status": "ok"}


@on_linux
@pytest.mark.broad
def test_a_process_that_is_killed_is_replaced_and_no_commit_is_lost(server: ServerProcess) -> None:
    tables = [made(server, name) for name in ("a", "b")]
    sessions = sessions_of_all(server)
    killed, session = next(iter(sessions.items()))
    assert said(server, "BEGIN", session).status_code == OK
    half = threading.Barrier(3)

    def commit(name: str, table: tuple[str, str]) -> None:
        for version in range(1, 13):
            if version == 6:
                half.wait(LIMIT_S)
            body = request(*table, version, f"{name}{version}")
            until = time.monotonic() + LIMIT_S
            while True:
                assert time.monotonic() < until
                try:
                    answer = asked(server, "POST", f"{TABLES}/{name}", body)
                except httpx.TransportError:
                    continue  # its process was killed: the same again
                if answer.status_code == OK:
                    break
                assert answer.status_code == 429, answer.text

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(commit, name, table) for name, table in zip("ab", tables)]
        half.wait(LIMIT_S)
        os.kill(killed, signal.SIGKILL)
        for one in running:
            one.result(LIMIT_S)
    for name in "ab":
        loaded = asked(server, "GET", f"{TABLES}/{name}").json()
        assert loaded["latest-table-version"] == 12
    answer = said(server, "INSERT INTO left VALUES (1)", session)
    assert answer.status_code == NO_SESSION
    assert "its open transaction was rolled back" in answer.text
    replaced = sessions_of_all(server)
    assert killed not in replaced
    assert len(replaced.keys() & sessions.keys()) == 1
    for remaining in {**sessions, **replaced}.values():
        asked(server, "DELETE", f"{OWN_ROOT}/sessions/{remaining}")


def is_running(number: int) -> bool:
    """Whether a process is there, and isn't one that only waits to be reaped."""
    state = Path(f"/proc/{number}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(number: int) -> set[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(number)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return {int(line) for line in listed.stdout.split()}


@on_linux
@pytest.mark.broad
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_processes_end_with_the_first(warehouse: Path, number: signal.Signals) -> None:
    with ServerProcess(warehouse, "--processes", "2") as server:
        serving = children_of(server.pid)
        assert len(serving) >= 2
        os.kill(server.pid, number)
        until = time.monotonic() + LIMIT_S
        while any(map(is_running, serving)):
            assert time.monotonic() < until
        if number == signal.SIGTERM:
            assert server.stop() == 0
            assert server.said() == []


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--flight-port", "0"), "leave out --flight-port"),
        (("--catalog", "sqlite://"), "memory of one process"),
        (("--catalog", "sqlite:///:memory:"), "memory of one process"),
        (("--token-file", "/nowhere/tokens.json"), "/nowhere/tokens.json"),
        (("--host", "0.0.0.0"), "give --token-file"),
    ],
)
def test_what_several_processes_cannot_serve_is_refused(
    tmp_path: Path, options: tuple[str, ...], found: str
) -> None:
    place = tmp_path / "lake"
    ended = CliRunner().invoke(
        app, ["serve", str(place), "--port", "0", "--processes", "2", *options]
    )
    assert ended.exit_code != 0
    assert found in " ".join(ended.output.split())
    assert not place.exists()


def test_a_lake_in_memory_is_refused() -> None:
    ended = CliRunner().invoke(app, ["serve", "memory://lake", "--processes", "2"])
    assert ended.exit_code != 0
    assert "memory of one process" in " ".join(ended.output.split())


@on_linux
def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = CliRunner().invoke(
            app, ["serve", str(tmp_path / "lake"), "--port", str(port), "--processes", "2"]
        )
    assert ended.exit_code != 0
    assert f"couldn't start at 127.0.0.1:{port}" in " ".join(ended.output.split())


@pytest.mark.parametrize(
    ("session_id", "holder"),
    [
        ("12.ab", "12"),
        ("34.ab", None),
        ("ab", None),
        ("x.ab", None),
        ("../12.ab", None),
        ("", None),
    ],
)
def test_the_process_that_holds_a_session(
    tmp_path: Path, session_id: str, holder: str | None
) -> None:
    assert Siblings(tmp_path, "34").holder_of(session_id) == holder


@on_linux
def test_a_process_that_is_gone_has_no_sessions_and_one_that_ends_leaves_doubt(
    tmp_path: Path,
) -> None:
    siblings = Siblings(tmp_path, "1")

    def forwarded() -> ApiError:
        with pytest.raises(ApiError) as raised:
            siblings.forward("2", "POST", f"{OWN_ROOT}/sql", {}, b"{}", LIMIT_S)
        return raised.value

    assert forwarded().status == NO_SESSION
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(LIMIT_S)
    with listener:
        listener.bind(str(siblings.folder / "2"))
        listener.listen()

        def accept() -> None:
            connection, _ = listener.accept()
            connection.recv(1)
            connection.close()

        with ThreadPoolExecutor(1) as pool:
            accepted = pool.submit(accept)
            error = forwarded()
            accepted.result(LIMIT_S)
    assert (error.kind, error.details["class"]) == ("CommitStateUnknownException", "OutcomeUnknown")
    assert forwarded().status == NO_SESSION
