"""The extension of the Delta API: commits of several tables, all of them or none."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from tests.server.client import CATALOG, OPEN, Client, failed, file
from txlake.commit.foreign_commit import StagedFile
from txlake.protocol.actions import Add, TransactionGroup
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
    answer = ask(client, asked)
    assert answer.status_code == 200
    made = [{**told(client, name), "version": 2} for name in ("a", "b")]
    assert answer.json() == {"tables": made}
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


# With an id of the client's own


def group(client: Client, transaction_id: str = "mine", **versions: int) -> TransactionGroup:
    """What the commits of a transaction say of it."""
    participants = [(client.uuid(name), version) for name, version in versions.items()]
    lake = client.engine.catalog.of_lake().lake_id
    return TransactionGroup.of(transaction_id, participants, lake)


def named(client: Client, *files: Add, transaction_id: str = "mine") -> dict[str, Any]:
    """The request for an append to a and b, whose commits name their transaction."""
    versions = {name: client.version(name) + 1 for name in ("a", "b")}
    says = group(client, transaction_id, **versions)
    staged = {name: client.stage(name, says, *files) for name in versions}
    return {**body(client, staged), "transaction-id": transaction_id}


def test_the_catalog_that_the_commits_name_is_the_metastore(client: Client) -> None:
    summary = client.call("GET", "/metastore_summary").json()
    assert group(client, a=1, b=1).catalog == summary["metastore_id"]


def test_a_transaction_is_committed_once_by_its_id(client: Client) -> None:
    first, again = named(client, file("x")), named(client, file("y"))
    for asked in (first, first, again):
        answer = ask(client, asked)
        assert answer.status_code == 200, answer.text
        assert answer.json()["transaction-id"] == "mine"
        assert [one["version"] for one in answer.json()["tables"]] == [2, 2]
    assert versions(client) == [2, 2, 1]
    files = client.handle("a").log.latest().files
    assert files.by_path("x") is not None
    assert files.by_path("y") is None
    late = {**again, "transaction-id": "other"}
    failed(ask(client, late), 400, INVALID, "default.a: it is refused: its transactionGroup")


def test_commits_that_say_something_else_are_refused(client: Client) -> None:
    asked = named(client, file("x"))
    for wrong, said in (
        ({**asked, "transaction-id": "other"}, "is of 'mine', not of 'other'"),
        ({**asked, "tables": asked["tables"][:1]}, "has the participants"),
        ({**asked, "transaction-id": ""}, "transaction-id: expected a text"),
        (
            {**body(client, {"a": client.stage("a", file("x"))}), "transaction-id": "mine"},
            "expected one transactionGroup",
        ),
    ):
        failed(ask(client, wrong), 400, INVALID, said)
    assert versions(client) == [1, 1, 1]
    assert ask(client, asked).status_code == 200


def test_a_part_of_a_transaction_is_no_commit_of_its_own(client: Client) -> None:
    says = group(client, a=2, b=2)
    staged = client.stage("a", says, file("x"))
    failed(client.commit("a", staged), 400, INVALID, "has the participants")
    assert versions(client) == [1, 1, 1]


def test_each_table_in_the_way_is_told(client: Client) -> None:
    asked = named(client, file("x"))
    refused = body(client, {"c": client.stage("c", file("z"), file("z"))})["tables"]
    client.lake.sql("INSERT INTO a VALUES (2); INSERT INTO b VALUES (2)")
    answer = ask(client, asked)
    failed(answer, 409, CONFLICT, "default.a: the table is at version 2")
    tables = answer.json()["error"]["tables"]
    assert [(one["table"], one["type"], one["code"]) for one in tables] == [
        ("default.a", CONFLICT, 409),
        ("default.b", CONFLICT, 409),
    ]
    assert "version 2, which the request doesn't follow" in tables[1]["message"]
    plain = body(client, {"a": client.stage("a", file("x"), version=9)})
    answer = ask(client, {**plain, "tables": [*refused, *plain["tables"]]})
    failed(answer, 400, INVALID, "default.a: expected version 3")
    kinds = [(one["table"], one["code"]) for one in answer.json()["error"]["tables"]]
    assert kinds == [("default.c", 409), ("default.a", 400)]
    alone = ask(client, body(client, {"c": client.stage("c", file("z"), file("z"))}))
    assert "tables" not in alone.json()["error"]
    assert versions(client) == [2, 2, 1]
