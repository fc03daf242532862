"""Served SQL: rows as JSON and Arrow, transactions over many requests, and who may say what."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pyarrow as pa
import pytest

import txlake
from tests.server.client import Client, failed
from txlake.server.api_errors import ApiError
from txlake.server.app import OWN_ROOT
from txlake.server.calls import Limits
from txlake.server.client_sessions import ClientSessions
from txlake.server.served_sql import ARROW
from txlake.server.tokens import Token

ALL, OTHER, READER = "a-token-for-everything", "another-token-for-all", "a-token-that-only-reads"
TOKENS = (
    Token(token=ALL, name="etl"),
    Token(token=OTHER, name="other"),
    Token(token=READER, name="reports", read_only=True),
)
DENIED, INVALID = "PermissionDeniedException", "InvalidParameterValueException"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client of a lake with two tables of two rows; no Spark is started."""
    limits = Limits(sql_rows_max=3, client_sessions_max=3)
    with (
        txlake.connect(str(tmp_path / "lake")) as lake,
        Client(lake, tokens=TOKENS, limits=limits) as made,
    ):
        for name in ("orders", "stock"):
            done(made, f"CREATE TABLE {name} (id INT, n BIGINT)")
            done(made, f"INSERT INTO {name} VALUES (1, 10), (2, 20)")
        yield made


def say(
    client: Client, text: str, session: str | None = None, token: str = ALL, **more: Any
) -> httpx.Response:
    """One request for SQL."""
    body = {"statement": text, **({"session": session} if session else {}), **more}
    return client.call("POST", f"{OWN_ROOT}/sql", body, token=token)


def done(client: Client, text: str, session: str | None = None, **more: Any) -> dict[str, Any]:
    """What a request that succeeds answers."""
    answer = say(client, text, session, **more)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def begin(client: Client, token: str = ALL, **told: str) -> str:
    """A new session."""
    answer = client.call("POST", f"{OWN_ROOT}/sessions", told, token=token)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["session"])


def test_rows_are_json(client: Client) -> None:
    found = done(client, "SELECT * FROM orders WHERE id = 2")
    assert found == {
        "columns": [{"name": "id", "type": "int"}, {"name": "n", "type": "bigint"}],
        "rows": [[2, 20]],
        "total": 1,
        "truncated": False,
        "transaction": None,
    }
    assert done(client, "UPDATE orders SET n = 21 WHERE id = 2")["rows"] == [[1]]
    assert done(client, "SHOW TABLES")["total"] == 2
    named = done(client, "SELECT n FROM orders WHERE id = :id", parameters={"id": 2})
    assert named["rows"] == [[21]]
    assert done(client, "SELECT n FROM orders WHERE id = ?", parameters=[1])["rows"] == [[10]]


def test_parameters_that_json_lacks(client: Client) -> None:
    found = done(client, "SELECT n FROM orders WHERE id = ?", parameters=[typed("decimal", "2")])
    assert found["rows"] == [[20]]
    done(client, "INSERT INTO orders VALUES (:i, 1)", parameters={"i": 7})
    for wrong in (typed("uuid", "x"), typed("date", "never"), {"a": 1}):
        answer = say(client, "SELECT n FROM orders WHERE id = ?", parameters=[wrong])
        failed(answer, 400, INVALID, "a parameter")


def typed(kind: str, text: str) -> dict[str, str]:
    return {"type": kind, "value": text}


def test_an_arrow_stream_tells_of_the_open_transaction(client: Client) -> None:
    session = begin(client)
    headers = {"authorization": f"Bearer {ALL}", "accept": ARROW}
    for text, is_open in (("BEGIN", True), ("SELECT id FROM orders", True), ("COMMIT", False)):
        body = {"statement": text, "session": session}
        answer = client._http.request("POST", f"{OWN_ROOT}/sql", headers=headers, json=body)
        with pa.ipc.open_stream(answer.content) as stream:
            assert (b"transaction" in stream.schema.metadata) == is_open


def test_many_rows_are_cut_and_counted(client: Client) -> None:
    done(client, "INSERT INTO orders VALUES (3, 30), (4, 40)")
    found = done(client, "SELECT id FROM orders")
    assert (len(found["rows"]), found["total"], found["truncated"]) == (3, 4, True)


def test_rows_are_an_arrow_stream(client: Client) -> None:
    path, token = f"{OWN_ROOT}/sql", {"authorization": f"Bearer {ALL}", "accept": ARROW}
    body = {"statement": "SELECT id, n FROM orders"}
    answer = client._http.request("POST", path, headers=token, json=body)
    assert answer.headers["content-type"] == ARROW
    with pa.ipc.open_stream(answer.content) as stream:
        table = stream.read_all()
    assert table.to_pylist() == [{"id": 1, "n": 10}, {"id": 2, "n": 20}]
    assert table.schema.field("n").type == pa.int64()
    assert table.schema.metadata == {b"total": b"2"}


def test_a_transaction_over_many_requests_and_tables(client: Client) -> None:
    session = begin(client)
    assert done(client, "BEGIN", session)["transaction"] is not None
    done(client, "INSERT INTO orders VALUES (3, 30)", session)
    done(client, "UPDATE stock SET n = n - 1 WHERE id = 1", session)
    assert done(client, "SELECT * FROM orders")["total"] == 2
    assert done(client, "SELECT * FROM orders", session)["total"] == 3
    assert done(client, "COMMIT", session)["transaction"] is None
    assert done(client, "SELECT n FROM stock WHERE id = 1")["rows"] == [[9]]
    assert client.call("DELETE", f"{OWN_ROOT}/sessions/{session}", token=ALL).status_code == 204
    failed(say(client, "SELECT 1", session), 404, "NotFoundException", "rolled back")


def test_branches_in_sessions_that_are_kept(client: Client) -> None:
    """A session stays on its branch from request to request; a request without one is on main."""
    session, other = begin(client), begin(client, OTHER)
    done(client, "CREATE BRANCH x; USE BRANCH x; INSERT INTO orders VALUES (3, 30)", session)
    done(client, "BEGIN; UPDATE orders SET n = 0 WHERE id = 1", session)
    done(client, "USE BRANCH x", other, token=OTHER)
    for where, token, total in (
        (session, ALL, 2),
        (other, OTHER, 3),
        (None, ALL, 2),
        (None, READER, 2),
    ):
        found = done(client, "SELECT id FROM orders WHERE n > 0", where, token=token)
        assert found["total"] == total
    failed(say(client, "USE BRANCH main", session), 400, INVALID, "a transaction is open")
    done(client, "ROLLBACK", session)
    assert done(client, "USE BRANCH x; SELECT id FROM orders")["total"] == 3
    assert done(client, "USE BRANCH x; SELECT id FROM orders", token=READER)["total"] == 3
    assert done(client, "SHOW BRANCHES")["rows"][0][3] == "token:etl"
    for text in ("CREATE BRANCH y", "USE BRANCH x; DELETE FROM orders", "PUBLISH BRANCH x"):
        failed(say(client, text, token=READER), 403, DENIED)
    done(client, "PUBLISH BRANCH x", token=OTHER)
    assert done(client, "SELECT id FROM orders")["total"] == 3
    failed(say(client, "INSERT INTO orders VALUES (4, 4)", session), 400, INVALID, "has ended")
    done(client, "USE BRANCH main; INSERT INTO orders VALUES (4, 4)", session)


def test_a_conflict_tells_its_evidence(client: Client) -> None:
    first, second = begin(client), begin(client)
    for session in (first, second):
        done(client, "BEGIN; UPDATE orders SET n = n + 1 WHERE id = 1", session)
    done(client, "COMMIT", first)
    answer = say(client, "COMMIT", second)
    failed(answer, 409, "CommitVersionConflictException", "orders")
    error = answer.json()["error"]
    assert error["class"] == "ConcurrentAppendException"
    assert error["evidence"]["table"] == "default.orders"
    assert error["evidence"]["retry"] is True


def test_a_session_has_a_level_and_a_database(client: Client) -> None:
    done(client, "CREATE DATABASE shop")
    session = begin(client, isolation="serializable", database="shop")
    done(client, "CREATE TABLE own (id INT)", session)
    assert done(client, "SHOW TABLES IN shop")["total"] == 1
    for told, said in (({"isolation": "chaos"}, "chaos"), ({"database": "none"}, "no database")):
        answer = client.call("POST", f"{OWN_ROOT}/sessions", told, token=ALL)
        failed(answer, 400, INVALID, said)
    assert client.call("POST", f"{OWN_ROOT}/sessions", token=ALL).status_code == 200


def test_sessions_are_their_owners_and_bounded(client: Client) -> None:
    session = begin(client)
    failed(say(client, "SELECT 1", session, token=OTHER), 404, "NotFoundException")
    ended = client.call("DELETE", f"{OWN_ROOT}/sessions/{session}", token=OTHER)
    failed(ended, 404, "NotFoundException")
    begin(client)
    begin(client, OTHER)
    full = client.call("POST", f"{OWN_ROOT}/sessions", {}, token=ALL)
    failed(full, 429, "ResourceExhaustedException", "3 sessions are open")


def test_a_request_leaves_no_transaction_behind(client: Client) -> None:
    answer = say(client, "BEGIN; INSERT INTO orders VALUES (3, 30)")
    failed(answer, 400, INVALID, "leaves its transaction open")
    assert done(client, "SELECT * FROM orders")["total"] == 2
    done(client, "BEGIN; INSERT INTO orders VALUES (3, 30); COMMIT")
    assert done(client, "SELECT * FROM orders")["total"] == 3


def test_what_fails_fails_the_transaction(client: Client) -> None:
    session = begin(client)
    done(client, "BEGIN; INSERT INTO orders VALUES (3, 30)", session)
    answer = say(client, "SELEC nonsense", session)
    failed(answer, 400, INVALID)
    assert answer.json()["error"]["class"] == "InvalidRequest"
    failed(say(client, "COMMIT", session), 400, INVALID, "rolled back")
    assert done(client, "SELECT * FROM orders")["total"] == 2


def test_a_token_that_only_reads(client: Client) -> None:
    for text in (
        *("SELECT * FROM orders", "SHOW TABLES", "DESCRIBE orders", "DESCRIBE HISTORY orders"),
        *("BEGIN; SELECT * FROM orders; COMMIT", "SELECT * FROM txlake.transactions"),
    ):
        assert say(client, text, token=READER).status_code == 200, text
    for text in (
        *("INSERT INTO orders VALUES (9, 9)", "DELETE FROM orders", "CREATE TABLE x (id INT)"),
        *("DROP TABLE orders", "OPTIMIZE orders", "VACUUM orders", "CREATE DATABASE x"),
        *("BEGIN; DELETE FROM orders; COMMIT", "LOCK TABLE orders IN EXCLUSIVE MODE", "KILL 1"),
        "BEGIN ATOMIC DELETE FROM orders; END",
    ):
        failed(say(client, text, token=READER), 403, DENIED)
    assert done(client, "SELECT * FROM orders")["total"] == 2


def test_what_reaches_beyond_the_lake_is_not_served(client: Client, tmp_path: Path) -> None:
    for text in (
        f"SELECT * FROM delta.`{tmp_path}/lake/orders`",
        "SELECT * FROM text.`/etc/passwd`",
        f"CREATE TABLE x (id INT) LOCATION '{tmp_path}/x'",
        f"COPY INTO orders FROM '{tmp_path}' FILEFORMAT = CSV",
        f"CONVERT TO DELTA parquet.`{tmp_path}`",
        "SET spark.sql.ansi.enabled = false",
        "SELECT reflect('java.lang.System', 'exit', 3)",
        "SELECT `java_method`('java.lang.System', 'exit', 3)",
        "SELECT TRANSFORM (id) USING 'cat' FROM orders",
        "SELECT TRANSFORM (id) USING/* */'cat' FROM orders",
        "CREATE VIEW v AS SELECT try_reflect('java.lang.System', 'exit', 3)",
        "EXECUTE IMMEDIATE 'DROP TABLE orders'",
        "INSERT INTO orders SELECT * FROM json.`/tmp/x`",
        "BEGIN ATOMIC SELECT * FROM delta.`/x`; END",
    ):
        answer = say(client, text)
        assert answer.status_code in (400, 403), (text, answer.text)
        assert "served" in answer.text, (text, answer.text)
    failed(say(client, "SET LOCK_TIMEOUT -1"), 400, INVALID, "waits for 0 to")
    assert not client.engine.plane.is_started


def test_bad_requests(client: Client) -> None:
    path = f"{OWN_ROOT}/sql"
    for content, said in ((b"{", "body"), (b"{}", "statement"), (b'{"statement": 1}', "str")):
        answer = client.call("POST", path, content=content, token=ALL)
        failed(answer, 400, "InvalidParameterValueException", said)
    failed(say(client, "  "), 400, INVALID, "found no text")
    failed(say(client, "SELECT 1", "none"), 404, "NotFoundException")


# Kept sessions by themselves


class _Kept:
    """A session, as far as conversations look at it."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clock() -> list[int]:
    """The time, in its only item."""
    return [1_000]


@pytest.fixture
def kept(clock: list[int]) -> ClientSessions:
    """At most two, which are kept for a second."""
    return ClientSessions(_Kept, lambda: clock[0], count_max=2, idle_ms=1_000)  # type: ignore[arg-type]


def test_a_session_ends_when_nobody_uses_it(kept: ClientSessions, clock: list[int]) -> None:
    name = kept.begin("a", lambda session: None)
    clock[0] += 900
    with kept.acquire(name, "a") as session:
        clock[0] += 5_000  # a request that takes long uses it
    clock[0] += 900
    kept.sweep()
    with kept.acquire(name, "a") as again:
        assert again is session
    clock[0] += 1_001
    kept.sweep()
    assert session.is_closed  # type: ignore[attr-defined]
    with pytest.raises(ApiError, match="no such session"), kept.acquire(name, "a"):
        pass


def test_one_in_use_is_neither_used_nor_ended(kept: ClientSessions, clock: list[int]) -> None:
    name = kept.begin("a", lambda session: None)
    with kept.acquire(name, "a") as session:
        clock[0] += 5_000
        kept.sweep()
        with pytest.raises(ApiError, match="another request") as caught, kept.acquire(name, "a"):
            pass
        assert caught.value.status == 409
        with pytest.raises(ApiError, match="another request"):
            kept.end(name, "a")
        assert not session.is_closed  # type: ignore[attr-defined]


def test_what_cannot_be_prepared_is_not_kept(kept: ClientSessions) -> None:
    made: list[Any] = []

    def refuse(session: object) -> None:
        made.append(session)
        raise ValueError("no")

    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            kept.begin("a", refuse)
    assert all(one.is_closed for one in made)
    names = [kept.begin("a", lambda session: None) for _ in range(2)]
    assert len(set(names)) == 2


def test_closing_waits_for_who_uses_one(kept: ClientSessions) -> None:
    name = kept.begin("a", lambda session: None)
    closing = threading.Thread(target=kept.close)
    with kept.acquire(name, "a") as session:
        closing.start()
        closing.join(0.05)
        assert not session.is_closed  # type: ignore[attr-defined]
    closing.join(30)
    assert session.is_closed  # type: ignore[attr-defined]


# Versions that the caller read elsewhere


def test_a_script_says_which_version_its_caller_read(client: Client) -> None:
    newest = done(client, "DESCRIBE HISTORY orders LIMIT 1")
    version = newest["rows"][0][[one["name"] for one in newest["columns"]].index("version")]
    done(client, "DELETE FROM orders WHERE id = 2")
    insert = "INSERT INTO orders VALUES (3, 30)"
    lost = say(client, insert, **{"read-version": version})
    assert lost.status_code == 409, lost.text
    evidence = lost.json()["error"]["evidence"]
    assert (evidence["read_version"], evidence["winning_version"]) == (version, version + 1)
    by_table: dict[str, Any] = {
        "read-version": {"orders": version},
        "reads": {"orders": "id = 2"},
    }
    assert say(client, insert, **by_table).status_code == 409
    done(client, insert, **{"read-version": version, "reads": "id = 1"})
    assert done(client, "SELECT * FROM orders")["rows"] == [[1, 10], [3, 30]]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"read-version": {"/etc": 0}}, DENIED),
        ({"read-version": {"orders": 0, "delta.`/etc`": 0}}, DENIED),
        ({"read-version": 0, "reads": "n IN (SELECT id FROM delta.`/etc`)"}, DENIED),
        ({"read-version": 0, "reads": "java_method('java.lang.System', 'exit') = 1"}, DENIED),
        ({"read-version": 99}, INVALID),
        ({"read-version": -1}, INVALID),
        ({"reads": "id = 1"}, INVALID),
        ({"read-version": True}, "no body"),
        ({"read-version": "0"}, "no body"),
    ],
)
def test_versions_that_are_not_served(client: Client, more: dict[str, Any], kind: str) -> None:
    session = begin(client)
    done(client, "BEGIN", session)
    answer = say(client, "INSERT INTO orders VALUES (3, 30)", session, **more)
    failed(answer, 403 if kind == DENIED else 400, DENIED if kind == DENIED else INVALID)
    if kind != "no body":  # the transaction has failed
        failed(say(client, "SELECT 1 FROM orders", session), 400, INVALID)
    assert len(done(client, "SELECT * FROM orders")["rows"]) == 2
