"""Tables that another engine makes: a place, the first commit, the name; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.lake.rows import query
from tests.server.client import CATALOG, OPEN, Client, failed, file
from txlake.commit.membership import membership_of
from txlake.protocol.actions import encode_actions
from txlake.protocol.file_names import commit_path

INVALID = "InvalidParameterValueException"
TAKEN = "AlreadyExistsException"
TABLES = f"/delta/v1/catalogs/{CATALOG}/schemas/default/tables"


def test_a_table_is_made_and_written_by_both(client: Client) -> None:
    answer = client.create("t")
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made["latest-table-version"] == 0
    assert made["metadata"]["table-uuid"] == client.uuid("t")
    assert client.commit("t", client.stage("t", file("x"))).status_code == 200
    with client.lake.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (1)")
    assert client.version("t") == 2
    client.lake.sql("ALTER TABLE t ADD COLUMN (more INT)")
    assert client.commit("t", client.stage("t", file("y"))).status_code == 200


def test_it_says_whose_it_is(client: Client) -> None:
    client.create("t")
    own = membership_of(client.handle("t").log.latest())
    assert own is not None
    assert (own.lake, own.table) == (client.engine.catalog.of_lake().lake_id, client.uuid("t"))
    assert own.name == "default.t"
    client.lake.sql("ALTER TABLE t RENAME TO u")
    renamed = membership_of(client.handle("u").log.latest())
    assert renamed is not None
    assert renamed.name == "default.u"
    assert client.commit("u", client.stage("u", file("x"))).status_code == 200


def test_who_asks_again_for_the_name_is_told_that_it_is_theirs(client: Client) -> None:
    staging = client.staging("t")
    body = client.create_request("t", staging, client.write_first(staging))
    answers = [client.call("POST", TABLES, body).status_code for _ in range(2)]
    assert answers == [200, 200]
    client.commit("t", client.stage("t", file("x")))
    assert client.call("POST", TABLES, body).json()["latest-table-version"] == 1


def test_the_first_of_two_gets_the_name(client: Client) -> None:
    first, second = client.staging("t"), client.staging("t")
    times = [client.write_first(one) for one in (first, second)]
    assert first["location"] != second["location"]
    body = client.create_request("t", second, times[1])
    assert client.call("POST", TABLES, body).status_code == 200
    failed(client.call("POST", TABLES, client.create_request("t", first, times[0])), 409, TAKEN)
    assert client.uuid("t") == second["table-id"]


def test_a_name_that_is_taken_or_none(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}; CREATE VIEW v AS SELECT 1 AS x")
    path = TABLES.replace("/tables", "/staging-tables")
    for name in ("t", "T", "v"):
        failed(client.call("POST", path, {"name": name}), 409, TAKEN)
    for name in ("", "..", "a/b", "x" * 300, "_delta_log"):
        failed(client.call("POST", path, {"name": name}), 400, INVALID)


def changed(**changes: object) -> Callable[[dict[str, Any]], None]:
    """What makes a request say something else."""

    def change(body: dict[str, Any]) -> None:
        body.update({name.replace("_", "-"): value for name, value in changes.items()})

    return change


REQUESTS: dict[str, tuple[Callable[[dict[str, Any]], None], int, str]] = {
    "another place": (changed(location="file:///elsewhere/t"), 400, INVALID),
    "no place": (changed(location=""), 400, INVALID),
    "another name": (changed(name="other"), 400, INVALID),
    "external": (changed(table_type="EXTERNAL"), 501, "NotImplementedException"),
    "another time": (changed(last_commit_timestamp_ms=1), 400, INVALID),
    "no time": (changed(last_commit_timestamp_ms="now"), 400, INVALID),
    "no properties": (changed(properties=None), 400, INVALID),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_that_are_refused(client: Client, name: str) -> None:
    change, status, kind = REQUESTS[name]
    staging = client.staging("t")
    body = client.create_request("t", staging, client.write_first(staging))
    change(body)
    failed(client.call("POST", TABLES, body), status, kind)
    assert client.call("HEAD", client.url("t")).status_code == 404


COMMITS: dict[str, tuple[dict[str, Any], str]] = {
    "a feature is missing": ({"lacking": ["vacuumProtocolCheck"]}, "vacuumProtocolCheck"),
    "another id": ({"properties": {"io.unitycatalog.tableId": "x"}}, "io.unitycatalog.tableId"),
    "another lake": ({"properties": {"txlake.catalog": "{}"}}, "txlake.catalog"),
    "no deletion vectors": (
        {"without": ["delta.enableDeletionVectors"]},
        "delta.enableDeletionVectors",
    ),
    "another kind of checkpoint": (
        {"properties": {"delta.checkpointPolicy": "classic"}},
        "delta.checkpointPolicy",
    ),
    "no times": (
        {"properties": {"delta.enableInCommitTimestamps": "false"}},
        "delta.enableInCommitTimestamps",
    ),
}


@pytest.mark.parametrize("name", COMMITS)
def test_first_commits_that_are_refused(client: Client, name: str) -> None:
    how, told = COMMITS[name]
    staging = client.staging("t")
    time = client.write_first(staging, **how)
    answer = client.call("POST", TABLES, client.create_request("t", staging, time))
    failed(answer, 400, INVALID, told)
    assert query(client.lake, "SHOW TABLES") == []


def test_what_a_client_cannot_write_is_told_by_its_request(client: Client) -> None:
    """Delta Kernel in Rust takes no `delta.checkpointPolicy` for a table that it makes."""
    staging = client.staging("t")
    time = client.write_first(staging, without=["delta.checkpointPolicy"])
    body = client.create_request("t", staging, time)
    silent = {**body, "properties": {}}
    failed(client.call("POST", TABLES, silent), 400, INVALID, "delta.checkpointPolicy")
    assert client.call("POST", TABLES, body).status_code == 200
    client.lake.sql("INSERT INTO t VALUES (1)")
    assert client.version("t") == 1


def test_a_place_without_a_commit_or_with_more_than_one(client: Client) -> None:
    staging = client.staging("t")
    body = client.create_request("t", staging, 1)
    failed(client.call("POST", TABLES, body), 400, INVALID, "write the first commit first")
    time = client.write_first(staging)
    store = client.engine.store_at(staging["location"])
    store.put(commit_path(1), store.get(commit_path(0)))
    answer = client.call("POST", TABLES, client.create_request("t", staging, time))
    failed(answer, 400, INVALID, "its first commit alone")
    store.put(commit_path(0), b"{")
    store.delete([commit_path(1)])
    answer = client.call("POST", TABLES, client.create_request("t", staging, time))
    failed(answer, 400, INVALID)
    store.put(commit_path(0), encode_actions([file("x")]))
    answer = client.call("POST", TABLES, client.create_request("t", staging, time))
    failed(answer, 400, INVALID)


def test_a_client_that_dies_before_it_asks_for_the_name(client: Client) -> None:
    client.write_first(client.staging("t"))
    assert query(client.lake, "SHOW TABLES") == []
    client.lake.sql("CREATE TABLE t (id INT)")
    assert query(client.lake, "SELECT * FROM t") == []


def test_a_dropped_table_is_gone_and_its_name_is_free(client: Client) -> None:
    client.create("t")
    assert client.call("DELETE", client.url("t")).status_code == 204
    assert client.call("HEAD", client.url("t")).status_code == 404
    failed(client.call("DELETE", client.url("t")), 404, "NoSuchTableException")
    assert client.create("t").status_code == 200
