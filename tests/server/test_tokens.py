"""Who may call, and for how long."""

from __future__ import annotations

import datetime
import json
import logging

import pytest

from tests.server.client import OPEN, Client, failed, file
from tests.simulation.rows.lake import RowLake
from txlake.errors import InvalidRequest
from txlake.server.api_errors import ApiError
from txlake.server.app import ENDPOINTS, OWN_ROOT, ROOT
from txlake.server.tokens import ANYONE, Caller, Token, Tokens

LATER = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)
PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
ALL, READER, OLD = "a-token-for-everything", "a-token-that-only-reads", "a-token-of-yesterday"
AGENT = "a-token-for-branches-alone"
TOKENS = (
    Token(token=ALL, name="etl", expires=LATER),
    Token(token=READER, name="reports", read_only=True),
    Token(token=OLD, name="old", expires=PAST),
)
WRONG = "UNAUTHENTICATED"


def test_calls_without_a_good_token(row_lake: RowLake) -> None:
    with Client(row_lake, tokens=TOKENS) as client:
        for token, told in (
            (None, "expected the header"),
            ("wrong", "isn't one of this server's"),
            ("", "isn't one"),
            (f"{ALL}x", "isn't one"),
            (OLD, "'old' has expired"),
        ):
            answer = client.call("GET", "/catalogs", token=token)
            failed(answer, 401, WRONG, told)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert token is None or not token or token not in answer.text
        assert client.call("GET", "/catalogs", token=ALL).status_code == 200
        assert client.call("GET", "/catalogs", token=READER).status_code == 200


def test_every_route_wants_a_token(row_lake: RowLake) -> None:
    with Client(row_lake, tokens=TOKENS) as client:
        for one in ENDPOINTS:
            path = one.path.removeprefix(ROOT).replace("{", "").replace("}", "")
            assert client.call(one.method, path).status_code == 401, path


def test_a_token_that_only_reads_changes_nothing(row_lake: RowLake) -> None:
    row_lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    with Client(row_lake, tokens=TOKENS) as client:
        staged = client.stage("t", file("x"))
        body = client.request("t", staged)
        failed(
            client.call("POST", client.url("t"), body, token=READER),
            403,
            "PermissionDeniedException",
        )
        assert client.call("GET", client.url("t"), token=READER).status_code == 200
        table = f"{client.url('t')}/credentials?operation="
        assert client.call("GET", f"{table}READ", token=READER).status_code == 200
        failed(
            client.call("GET", f"{table}READ_WRITE", token=READER),
            403,
            "PermissionDeniedException",
        )
        assert client.version("t") == 0
        assert client.call("POST", client.url("t"), body, token=ALL).status_code == 200


def test_what_changes_something_is_not_for_readers() -> None:
    """A GET changes nothing, and the others do, but for a report and a question in a body.

    What SQL changes is told statement by statement.
    """
    for one in ENDPOINTS:
        asks = one.method in ("GET", "HEAD") and "staging-tables" not in one.path
        asks |= one.path.endswith(("/metrics", "/temporary-table-credentials"))
        asks |= one.path.startswith(f"{OWN_ROOT}/s")
        assert one.changes is not asks, one


def test_without_tokens_anyone_may_call() -> None:
    assert Tokens().caller(None, 0) is ANYONE


def test_a_file_of_tokens() -> None:
    text = json.dumps(
        [
            {"token": ALL, "name": "etl"},
            {"token": READER, "name": "r", "read_only": True, "expires": "2999-01-01T00:00:00Z"},
            {"token": AGENT, "name": "agent", "branches": True},
        ]
    )
    tokens = Tokens.parse(text.encode(), source="f")
    assert tokens.caller(f"Bearer {READER}", 1) == Caller("r", read_only=True)
    assert tokens.caller(f"bearer {ALL}", 1) == Caller("etl")
    # Whatever doesn't know of branches takes it for one that only reads.
    agent = Caller("agent", read_only=True, branches=True)
    assert tokens.caller(f"bearer {AGENT}", 1) == agent
    with pytest.raises(ApiError, match="expired"):
        tokens.caller(f"Bearer {READER}", int(LATER.timestamp() * 1000))
    with pytest.raises(ApiError, match="expected the header"):
        tokens.caller(f"Basic {ALL}", 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a JSON list"),
        ("{}", "expected a JSON list"),
        ("[]", "lists no token"),
        ('[{"token": "short", "name": "x"}]', "shorter than 16"),
        ('[{"token": "long-enough-to-be-good"}]', "name"),
        ('[{"token": "long-enough-to-be-good", "name": "x", "admin": true}]', "admin"),
        (
            '[{"token": "long-enough-to-be-good", "name": "x", "expires": "2027-01-31T00:00:00"}]',
            "time zone",
        ),
        (
            '[{"token": "long-enough-to-be-good", "name": "x", "read_only":true,"branches":true}]',
            "read_only and branches contradict each other",
        ),
    ],
)
def test_a_file_that_is_wrong(text: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told) as caught:
        Tokens.parse(text.encode(), source="tokens.json")
    assert str(caught.value).startswith("tokens.json: ")
    assert "long-enough-to-be-good" not in str(caught.value)


def test_tokens_are_not_logged(row_lake: RowLake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Client(row_lake, tokens=TOKENS) as client:
        client.call("GET", "/catalogs", token=ALL)
        client.call("GET", "/catalogs", token="another-one-that-is-wrong")
    ours = [one for one in caplog.records if one.name.startswith(("txlake", "uvicorn"))]
    assert ALL not in str([one.getMessage() for one in ours])
