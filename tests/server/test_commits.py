"""Another engine's commits through the server: requirements, verdicts, and ours beside them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lake.rows import query
from tests.server.client import OPEN, Client, failed, file
from txlake.commit.foreign_commit import StagedFile
from txlake.conflict.locking import LockMode
from txlake.conflict.positions import deleted_positions
from txlake.datafiles.vectors import VectorCache
from txlake.errors import ConcurrentDeleteReadException, Conflict, Unavailable
from txlake.ports import PutOutcome
from txlake.protocol.file_names import STAGED_FOLDER, commit_path
from txlake.server.calls import Limits
from txlake.sql.statements import TableName

CONFLICT, UNMET = "CommitVersionConflictException", "UpdateRequirementConflictException"
INVALID = "InvalidParameterValueException"


@pytest.fixture(autouse=True)
def table(client: Client) -> None:
    """The open table `t` of one row."""
    client.lake.sql(f"CREATE TABLE t (id INT) {OPEN}; INSERT INTO t VALUES (1)")


def live(client: Client, table: str = "t") -> set[str]:
    """The data files that another engine added, as txlake reads the table now."""
    return {one.path for one in client.handle(table).log.latest().files.adds() if one.size == 1}


def test_a_commit_is_the_tables_next_version(client: Client) -> None:
    staged = client.stage("t", file("x"))
    answer = client.commit("t", staged)
    assert answer.status_code == 200
    assert answer.json()["latest-table-version"] == 2
    assert answer.json()["commits"] == []
    content = client.store("t").get(f"{STAGED_FOLDER}/{staged.name}")
    assert client.store("t").get(commit_path(2)) == content
    assert live(client) == {"x"}
    assert client.load("t")["latest-table-version"] == 2


def test_it_is_one_instant_of_the_lake(client: Client) -> None:
    before = client.engine.catalog.of_lake().ledger.sequence()
    client.commit("t", client.stage("t", file("x")))
    assert client.engine.catalog.of_lake().ledger.sequence() == before + 1
    newest = client.lake.view("txlake.commits").to_pylist()
    assert ("default.t", 2, "WRITE") in [
        (one["table"], one["version"], one["operation"]) for one in newest
    ]


def test_one_that_is_sent_again_is_told_that_it_stands(client: Client) -> None:
    staged = client.stage("t", file("x"))
    body = client.request("t", staged)
    answers = [client.call("POST", client.url("t"), body) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 200]
    assert client.version("t") == 2


def test_the_second_of_two_is_told_who_was_first(client: Client) -> None:
    first, second = client.stage("t", file("x")), client.stage("t", file("y"))
    assert client.commit("t", first).status_code == 200
    failed(client.commit("t", second), 409, CONFLICT, "the table is at version 2")
    assert live(client) == {"x"}


def test_many_at_once_are_put_in_a_row(client: Client) -> None:
    """Each version is one client's, and nothing that was answered 200 is lost."""

    def append(number: int) -> str:
        name = f"f{number}"
        for _ in range(200):
            staged = client.stage("t", file(name))
            answer = client.commit("t", staged)
            if answer.status_code == 200:
                return name
            assert answer.status_code in (409, 429), answer.text
        raise AssertionError("it never got its turn")

    lock = threading.Lock()
    plain = client.next_time

    def locked() -> int:
        with lock:
            return plain()

    client.next_time = locked  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as pool:
        done = set(pool.map(append, range(12)))
    assert live(client) == done
    assert client.version("t") == 13


REQUIREMENTS: dict[str, tuple[Any, int, str]] = {
    "none": ([], 400, INVALID),
    "no uuid": ([{"type": "assert-etag", "etag": "x"}], 400, INVALID),
    "another table's": (
        [{"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}],
        409,
        UNMET,
    ),
    "no table's": ([{"type": "assert-table-uuid", "uuid": "t"}], 409, UNMET),
    "without a value": ([{"type": "assert-table-uuid"}], 409, UNMET),
    "twice": (["uuid", "uuid"], 400, INVALID),
    "unknown": (["uuid", {"type": "assert-moon"}], 400, INVALID),
    "a stale etag": (["uuid", {"type": "assert-etag", "etag": "old"}], 409, UNMET),
    "not a list": ("uuid", 400, INVALID),
}


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_requirements_that_are_not_met(client: Client, name: str) -> None:
    requirements, status, kind = REQUIREMENTS[name]
    body = client.request("t", client.stage("t", file("x")))
    own = body["requirements"][0]
    body["requirements"] = (
        requirements
        if isinstance(requirements, str)
        else [own if one == "uuid" else one for one in requirements]
    )
    failed(client.call("POST", client.url("t"), body), status, kind)
    assert client.version("t") == 1


def test_an_etag_changes_with_the_definition_alone(client: Client) -> None:
    before = client.load("t")["metadata"]["etag"]
    body = client.request("t", client.stage("t", file("x")))
    body["requirements"].append({"type": "assert-etag", "etag": before})
    assert client.call("POST", client.url("t"), body).status_code == 200
    assert client.load("t")["metadata"]["etag"] == before
    client.lake.sql("ALTER TABLE t ADD COLUMN (more INT)")
    after = client.load("t")["metadata"]["etag"]
    assert after != before
    body = client.request("t", client.stage("t", file("y")))
    body["requirements"].append({"type": "assert-etag", "etag": before})
    failed(client.call("POST", client.url("t"), body), 409, UNMET, "load the table again")


def test_a_commit_of_a_definition_is_sent_again_with_the_etag_before_it(client: Client) -> None:
    """Its reply was lost: the etag that it asked for is that of the table before."""
    before = client.load("t")["metadata"]["etag"]
    old = client.handle("t").log.latest().metadata
    changed = msgspec.structs.replace(old, configuration={**old.configuration, "a": "b"})
    body = client.request("t", client.stage("t", changed))
    body["requirements"].append({"type": "assert-etag", "etag": before})
    for _ in range(2):
        answer = client.call("POST", client.url("t"), body)
        assert answer.status_code == 200, answer.text
    assert client.load("t")["metadata"]["etag"] != before
    assert client.version("t") == 2
    # Another one of that version has lost, whatever it asks for.
    body = client.request("t", client.stage("t", file("y"), version=2))
    body["requirements"].append({"type": "assert-etag", "etag": before})
    failed(client.call("POST", client.url("t"), body), 409, CONFLICT)


@pytest.mark.parametrize("version", [2, 7])
def test_a_note_that_is_refused_refuses_its_commit(client: Client, version: int) -> None:
    body = client.request("t", client.stage("t", file("x")))
    note = {"action": "set-latest-backfilled-version", "latest-published-version": version}
    body["updates"].append(note)
    failed(client.call("POST", client.url("t"), body), 400, INVALID, "isn't one that this catalog")
    assert client.version("t") == 1
    assert live(client) == set()


UPDATES: dict[str, tuple[Any, str]] = {
    "none": ([], INVALID),
    "two commits": (["commit", "commit"], INVALID),
    "unknown": ([{"action": "sing"}], INVALID),
    "a commit without one": ([{"action": "add-commit"}], INVALID),
    "a definition without a commit": (
        [{"action": "set-properties", "updates": {"a": "b"}}],
        INVALID,
    ),
    "a comment without a commit": ([{"action": "set-table-comment", "comment": "c"}], INVALID),
    "what external tables have": (
        ["commit", {"action": "update-metadata-snapshot-version"}],
        INVALID,
    ),
    "published without a version": ([{"action": "set-latest-backfilled-version"}], INVALID),
    "published beyond the head": (
        [{"action": "set-latest-backfilled-version", "latest-published-version": 7}],
        INVALID,
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_that_are_refused(client: Client, name: str) -> None:
    updates, kind = UPDATES[name]
    body = client.request("t", client.stage("t", file("x")))
    [commit] = body["updates"]
    body["updates"] = [commit if one == "commit" else one for one in updates]
    failed(client.call("POST", client.url("t"), body), 400, kind)
    assert client.version("t") == 1


def test_what_a_client_published_is_no_news(client: Client) -> None:
    body = client.request("t", client.stage("t", file("x")))
    note = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
    assert client.call("POST", client.url("t"), {**body, "updates": [note]}).status_code == 200
    body["updates"].append(note)
    answer = client.call("POST", client.url("t"), body)
    assert answer.status_code == 200
    assert answer.json()["latest-table-version"] == 2


def told(staged: StagedFile, what: str) -> dict[str, object]:
    """What is told of a staged commit, wrong in one thing."""
    cases: dict[str, dict[str, object]] = {
        "a gap": {"version": 3},
        "an old version": {"version": 1},
        "no version": {"version": -1},
        "another time": {"timestamp": staged.timestamp_ms + 1},
        "another size": {"file_size": staged.size_bytes + 1},
        "no such file": {"file_name": f"{2:020d}.ffffffff-0000-4000-8000-000000000000.json"},
        "another version's name": {"file_name": staged.name.replace("2.", "3.", 1)},
        "a file elsewhere": {"file_name": "../../../t2/_delta_log/_staged_commits/x.json"},
        "a published one": {"file_name": f"{1:020d}.json"},
        "no name": {"file_name": ""},
    }
    return cases[what]


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("a gap", 400),
        ("an old version", 400),
        ("no version", 400),
        ("another time", 409),
        ("another size", 400),
        ("no such file", 400),
        ("another version's name", 400),
        ("a file elsewhere", 400),
        ("a published one", 400),
        ("no name", 400),
    ],
)
def test_a_commit_that_is_not_as_it_was_told(client: Client, what: str, status: int) -> None:
    staged = client.stage("t", file("x"))
    answer = client.commit("t", staged, **told(staged, what))
    failed(answer, status, INVALID if status == 400 else CONFLICT)
    assert client.version("t") == 1
    assert live(client) == set()


def test_a_version_gap(client: Client) -> None:
    staged = client.stage("t", file("x"), version=4)
    failed(client.commit("t", staged), 400, INVALID, "expected version 2, the next one, found 4")


def test_another_tables_staged_file(client: Client) -> None:
    client.lake.sql(f"CREATE TABLE u (id INT) {OPEN}; INSERT INTO u VALUES (1)")
    staged = client.stage("u", file("x"))
    failed(client.commit("t", staged), 400, INVALID, "there is no staged commit")


def test_what_would_corrupt_the_table_is_refused_with_the_reason(client: Client) -> None:
    twice = client.stage("t", file("x"), file("x"))
    failed(client.commit("t", twice), 409, CONFLICT, "is refused: ")
    gone = client.stage("t", file("gone").tombstone(timestamp_ms=1))
    failed(client.commit("t", gone), 409, CONFLICT, "it isn't in the table")
    assert client.version("t") == 1


def test_what_is_the_catalogs_is_refused_as_no_conflict(client: Client) -> None:
    """A client that is told of a conflict does the same again, without end."""
    old = client.handle("t").log.latest().metadata
    others = {**old.configuration, "io.unitycatalog.tableId": "another"}
    staged = client.stage("t", msgspec.structs.replace(old, configuration=others))
    failed(client.commit("t", staged), 400, INVALID, "which is the catalog's")
    assert client.version("t") == 1


def test_a_commit_that_is_too_large(client: Client) -> None:
    staged = client.stage("t", file("x"))
    with Client(client.lake, limits=Limits(commit_bytes_max=10)) as small:
        failed(small.commit("t", staged), 400, INVALID, "a commit at most 10")


def test_a_client_that_dies_between_staging_and_commit_leaves_nothing(client: Client) -> None:
    client.stage("t", file("never"))
    assert client.load("t")["latest-table-version"] == 1
    assert client.commit("t", client.stage("t", file("x"))).status_code == 200
    client.lake.sql("INSERT INTO t VALUES (2)")
    assert client.version("t") == 3


def test_a_table_that_is_not_open_is_only_read(client: Client) -> None:
    client.lake.sql("CREATE TABLE u (id INT); INSERT INTO u VALUES (1)")
    found = client.load("u")
    assert found["metadata"]["table-type"] == "EXTERNAL"
    assert "latest-table-version" not in found
    failed(
        client.commit("u", client.stage("u", file("x"))), 400, INVALID, "opens it to other engines"
    )
    client.lake.sql(f"ALTER TABLE u SET {OPEN}")
    assert client.load("u")["metadata"]["table-type"] == "MANAGED"
    assert client.commit("u", client.stage("u", file("x"))).status_code == 200


def test_whoever_changes_the_definition_makes_it_wait(client: Client) -> None:
    staged = client.stage("t", file("x"))
    session = client.lake.session()
    with session._session.alone([(TableName(("t",)), LockMode.SCH_M)]):
        failed(client.commit("t", staged), 429, "TooManyRequestsException")
    assert client.commit("t", staged).status_code == 200


def test_our_transaction_goes_on_over_a_foreign_append(client: Client) -> None:
    with client.lake.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (2)")
        assert client.commit("t", client.stage("t", file("x"))).status_code == 200
    assert client.version("t") == 3
    assert live(client) == {"x"}


def test_our_transaction_loses_to_a_foreign_delete(client: Client) -> None:
    [added] = client.handle("t").log.latest().files.adds()
    theirs = client.stage("t", added.tombstone(timestamp_ms=1))
    tx = client.lake.begin()
    tx.sql("DELETE FROM t WHERE id = 1")
    assert client.commit("t", theirs).status_code == 200
    with pytest.raises(Conflict) as caught:
        tx.commit()
    assert not isinstance(caught.value, ConcurrentDeleteReadException) or caught.value.evidence
    assert query(client.lake, "SELECT id FROM t") == []


def test_a_transaction_over_many_tables_is_all_or_nothing_beside_it(client: Client) -> None:
    client.lake.sql("CREATE TABLE other (id INT)")
    [added] = client.handle("t").log.latest().files.adds()
    theirs = client.stage("t", added.tombstone(timestamp_ms=1))
    tx = client.lake.begin()
    tx.sql("DELETE FROM t WHERE id = 1")
    tx.sql("INSERT INTO other VALUES (1)")
    assert client.commit("t", theirs).status_code == 200
    with pytest.raises(Conflict):
        tx.commit()
    assert query(client.lake, "SELECT id FROM other") == []
    tx = client.lake.begin()
    tx.sql("INSERT INTO t VALUES (5)")
    tx.sql("INSERT INTO other VALUES (5)")
    ours = client.stage("t", file("x"))
    tx.commit()
    failed(client.commit("t", ours), 409, CONFLICT)
    assert query(client.lake, "SELECT id FROM other") == [(5,)]


def test_what_is_not_published_yet_is_shown_by_its_file(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes no more of the log: the commit stands, and clients read it staged."""
    kind = type(client.store("t"))
    put = kind.put_if_absent

    def fail(store: Any, path: str, data: bytes) -> PutOutcome:
        if path == commit_path(2):
            raise Unavailable("the store is away")
        return put(store, path, data)

    monkeypatch.setattr(kind, "put_if_absent", fail)
    client.lake.sql("INSERT INTO t VALUES (2)")
    shown = client.load("t")
    assert shown["latest-table-version"] == 2
    [commit] = shown["commits"]
    assert commit["version"] == 2
    content = client.store("t").get(f"{STAGED_FOLDER}/{commit['file-name']}")
    assert commit["file-size"] == len(content)
    assert f'"inCommitTimestamp":{commit["timestamp"]}'.encode() in content
    monkeypatch.undo()
    assert client.load("t")["commits"] == []
    assert client.store("t").get(commit_path(2)) == content


def test_a_foreign_commit_that_is_not_published_yet_stands(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(client.store("t"))
    put = kind.put_if_absent

    def fail(store: Any, path: str, data: bytes) -> PutOutcome:
        if path == commit_path(2):
            raise Unavailable("the store is away")
        return put(store, path, data)

    staged = client.stage("t", file("x"))
    monkeypatch.setattr(kind, "put_if_absent", fail)
    answer = client.commit("t", staged)
    assert answer.status_code == 200
    assert [one["file-name"] for one in answer.json()["commits"]] == [staged.name]
    # It is kept in the catalog itself, and clients can't be told of it there.
    failed(client.call("GET", client.url("t")), 503, "InternalServerErrorException")
    monkeypatch.undo()
    assert client.load("t")["latest-table-version"] == 2
    assert live(client) == {"x"}


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
def test_a_compaction_by_another_engine_beside_a_transaction(client: Client, noted: bool) -> None:
    """Its tombstones note where the rows went: the transaction's deletions follow them."""
    client.lake.sql("INSERT INTO t VALUES (2), (3); INSERT INTO t VALUES (4), (5)")
    client.lake.sql("CREATE TABLE other (id INT); DELETE FROM t WHERE id = 2")
    transaction = client.lake.begin()
    transaction.sql("DELETE FROM t WHERE id IN (3, 4); INSERT INTO other VALUES (9)")
    assert client.commit("t", compaction(client, noted=noted)).status_code == 200
    if not noted:
        with pytest.raises(ConcurrentDeleteReadException):
            transaction.commit()
        assert query(client.lake, "SELECT id FROM t") == [(1,), (3,), (4,), (5,)]
        return
    transaction.commit()
    assert query(client.lake, "SELECT id FROM t") == [(1,), (5,)]
    assert query(client.lake, "SELECT id FROM other") == [(9,)]
    [left] = client.handle("t").log.latest().files.adds()
    assert left.path == "theirs.parquet"


def compaction(client: Client, *, noted: bool) -> StagedFile:
    """A staged compaction of all files of `t` to one, as an engine makes it that isn't txlake."""
    log, store = client.handle("t").log, client.store("t")
    vectors = VectorCache(store)
    removed, tables, count = [], [], 0
    for one in log.latest().files.adds():
        gone = deleted_positions(one, vectors)
        rows = pq.read_table(pa.BufferReader(store.get(one.path)))
        live = [place for place in range(rows.num_rows) if place not in gone]
        info = f'[{{"rowOffsetInTarget":{count},"sourceNumPhysicalRecords":{rows.num_rows}}}]'
        tags = {"compactedInto": '["theirs.parquet"]', "compactionInfo": info}
        tombstone = one.tombstone(timestamp_ms=1, data_change=False)
        removed.append(msgspec.structs.replace(tombstone, tags=tags if noted else None))
        tables.append(rows.take(live))
        count += len(live)
    data = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(tables), data)
    store.put("theirs.parquet", data.getvalue().to_pybytes())
    added = msgspec.structs.replace(file("theirs.parquet", count), data_change=False)
    return client.stage("t", *removed, msgspec.structs.replace(added, size=len(data.getvalue())))
