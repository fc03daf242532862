"""txlake's own route: another process's commits of several tables, all of them or none."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from tests.server.client import CATALOG, OPEN, Client, failed, file
from txlake.commit.foreign_commit import StagedFile
from txlake.server.app import OWN_ROOT

CONFLICT, UNMET = "CommitVersionConflictException", "UpdateRequirementConflictException"
INVALID = "InvalidParameterValueException"


@pytest.fixture(autouse=True)
def tables(client: Client) -> None:
    """Three open tables of one row."""
    for name in ("a", "b", "c"):
        client.lake.sql(f"CREATE TABLE {name} (id INT) {OPEN}; INSERT INTO {name} VALUES (1)")


def told(client: Client, table: str) -> dict[str, Any]:
    """A table, as requests name it."""
    return {"schema": "default", "table": table, "uuid": client.uuid(table)}


def body(
    client: Client, staged: dict[str, StagedFile], unchanged: dict[str, int] | None = None
) -> dict[str, Any]:
    """The request for these commits."""
    commits = {
        name: client.request(name, one)["updates"][0]["commit"] for name, one in staged.items()
    }
    return {
        "catalog": CATALOG,
        "tables": [{**told(client, name), "commit": one} for name, one in commits.items()],
        "unchanged": [
            {**told(client, name), "version": at} for name, at in (unchanged or {}).items()
        ],
    }


def ask(client: Client, asked: dict[str, Any]) -> httpx.Response:
    """One request."""
    return client.call("POST", f"{OWN_ROOT}/transactions", asked)


def versions(client: Client) -> list[int]:
    """Those of the three tables."""
    return [client.version(name) for name in ("a", "b", "c")]


def test_all_are_ratified_at_one_instant(client: Client) -> None:
    before = client.engine.catalog.of_lake().ledger.sequence()
    asked = body(client, {name: client.stage(name, file("x")) for name in ("a", "b")})
    assert ask(client, asked).status_code == 200
    assert client.engine.catalog.of_lake().ledger.sequence() == before + 1
    assert versions(client) == [2, 2, 1]
    # A lost answer is asked for again.
    assert ask(client, asked).status_code == 200
    assert versions(client) == [2, 2, 1]


def test_one_that_lost_stops_all(client: Client) -> None:
    asked = body(client, {name: client.stage(name, file("x")) for name in ("a", "b")})
    client.lake.sql("INSERT INTO b VALUES (2)")
    failed(ask(client, asked), 409, CONFLICT, "default.b: the table is at version 2")
    assert versions(client) == [1, 2, 1]


def test_one_that_is_refused_stops_all(client: Client) -> None:
    twice = {"a": client.stage("a", file("x")), "b": client.stage("b", file("y"), file("y"))}
    failed(ask(client, body(client, twice)), 409, CONFLICT, "default.b: it is refused")
    assert versions(client) == [1, 1, 1]


def test_a_table_that_was_read_must_be_as_it_was(client: Client) -> None:
    asked = body(client, {"a": client.stage("a", file("x"))}, {"c": 1})
    client.lake.sql("INSERT INTO c VALUES (2)")
    failed(ask(client, asked), 409, CONFLICT, "default.c: the table is at version 2")
    assert versions(client) == [1, 1, 2]
    asked = body(client, {"a": client.stage("a", file("x"))}, {"c": 2})
    assert ask(client, asked).status_code == 200


def test_a_half_of_what_came_before_is_no_resent_one(client: Client) -> None:
    first = client.stage("a", file("x"))
    assert ask(client, body(client, {"a": first})).status_code == 200
    both = body(client, {"a": first, "b": client.stage("b", file("y"))})
    failed(ask(client, both), 409, CONFLICT, "default.a")
    assert versions(client) == [2, 1, 1]


def test_bad_requests_change_nothing(client: Client) -> None:
    good = body(client, {"a": client.stage("a", file("x"))})
    one = good["tables"][0]
    for wrong, status, kind, said in (
        ({**good, "tables": []}, 400, INVALID, "at least one"),
        ({**good, "tables": [one, one]}, 400, INVALID, "there twice"),
        ({**good, "unchanged": [{**told(client, "a"), "version": 1}]}, 400, INVALID, "there twice"),
        ({**good, "catalog": "other"}, 404, "NoSuchCatalogException", "no catalog"),
        ({**good, "tables": [{**one, "uuid": "0"}]}, 409, UNMET, "table-uuid"),
        ({**good, "tables": [{**one, "table": "z"}]}, 404, "NoSuchTableException", "default.z"),
        ({**good, "tables": [{**one, "schema": "z"}]}, 404, "NoSuchSchemaException", "'z'"),
        ({"catalog": CATALOG}, 400, INVALID, "tables"),
        (
            {**good, "tables": [{**one, "commit": {**one["commit"], "file-name": "../x.json"}}]},
            *(400, INVALID, "file-name"),
        ),
    ):
        failed(ask(client, wrong), status, kind, said)
    assert versions(client) == [1, 1, 1]
    assert ask(client, good).status_code == 200
