"""Tables that are opened to other engines: `catalogManaged` on request."""

from __future__ import annotations

import json

import pytest

import txlake
from tests.commit.lake_of import LakeOf, paths
from tests.commit.log_of import add
from tests.lake.rows import query
from txlake.commit.membership import TABLE_ID, membership_of
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.ports import Head
from txlake.protocol.actions import CommitInfo
from txlake.protocol.file_names import STAGED_FOLDER, commit_path
from txlake.session.engine import Handle
from txlake.sql.statements import TableName

OPEN = "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"
NEEDED = {"catalogManaged", "deletionVectors", "inCommitTimestamp", "v2Checkpoint"}


def handle(lake: txlake.Lake, name: str) -> Handle:
    """A table of the lake."""
    found = lake._session.engine.find(TableName((name,)), "default")
    assert found is not None
    return found


def state(lake: txlake.Lake, name: str) -> Snapshot:
    """The table as it is now."""
    return handle(lake, name).log.latest()


def info(lake: txlake.Lake, name: str) -> CommitInfo:
    """What the newest commit says of itself."""
    log = handle(lake, name).log
    found = log.commit_info(log.latest().version)
    assert found is not None
    return found


def assert_open(lake: txlake.Lake, name: str) -> None:
    """The table is one that other engines write through the lake's server."""
    now = state(lake, name)
    entry = handle(lake, name).entry
    assert entry is not None
    assert now.features >= NEEDED | {"vacuumProtocolCheck"}
    assert "txlakeCatalog" not in now.features
    assert "catalogManaged" in (now.protocol.reader_features or ())
    assert now.metadata.configuration[TABLE_ID] == entry.id
    assert now.metadata.configuration["delta.checkpointPolicy"] == "v2"
    assert now.in_commit_timestamp_ms is not None
    own = membership_of(now)
    assert own is not None
    assert (own.table, own.name) == (entry.id, f"default.{name}")


MAKERS: dict[str, str] = {
    "create": f"CREATE TABLE t (id INT) {OPEN}",
    "replace": f"CREATE TABLE t (x INT); CREATE OR REPLACE TABLE t (id INT) {OPEN}",
    "like": f"CREATE TABLE s (id INT); CREATE TABLE t LIKE s {OPEN}",
    "alter": f"CREATE TABLE t (id INT); ALTER TABLE t SET {OPEN}",
    "in a transaction": f"BEGIN; CREATE TABLE t (id INT) {OPEN}; INSERT INTO t VALUES (1); COMMIT",
}


@pytest.mark.parametrize("how", MAKERS)
def test_a_table_is_opened_on_request(row_lake: txlake.Lake, how: str) -> None:
    row_lake.sql(MAKERS[how])
    assert_open(row_lake, "t")
    row_lake.sql("INSERT INTO t VALUES (7)")
    assert (7,) in query(row_lake, "SELECT id FROM t")
    assert_open(row_lake, "t")


def test_it_is_not_opened_without_being_asked(row_lake: txlake.Lake) -> None:
    row_lake.sql("CREATE TABLE t (id INT)")
    assert "txlakeCatalog" in state(row_lake, "t").features
    assert TABLE_ID not in state(row_lake, "t").metadata.configuration


def test_what_else_the_statement_sets_is_set(row_lake: txlake.Lake) -> None:
    row_lake.sql("CREATE TABLE t (id INT)")
    row_lake.sql(
        "ALTER TABLE t SET TBLPROPERTIES "
        "('delta.feature.catalogManaged' = 'supported', 'owner.team' = 'orders')"
    )
    assert_open(row_lake, "t")
    assert state(row_lake, "t").metadata.configuration["owner.team"] == "orders"
    before = state(row_lake, "t").version
    row_lake.sql(f"ALTER TABLE t SET {OPEN}")
    assert_open(row_lake, "t")
    assert state(row_lake, "t").version <= before + 1


LEFT_OPEN: dict[str, str] = {
    "replace": "CREATE OR REPLACE TABLE t (x STRING)",
    "restore": "RESTORE TABLE t TO VERSION AS OF 0",
    "new column": "ALTER TABLE t ADD COLUMN (more INT)",
}


@pytest.mark.parametrize("how", LEFT_OPEN)
def test_it_stays_open_whatever_becomes_of_it(row_lake: txlake.Lake, how: str) -> None:
    row_lake.sql(f"CREATE TABLE t (id INT); ALTER TABLE t SET {OPEN}")
    row_lake.sql(LEFT_OPEN[how])
    assert_open(row_lake, "t")


def test_a_copy_is_not_open(row_lake: txlake.Lake) -> None:
    row_lake.sql(f"CREATE TABLE s (id INT) {OPEN}; CREATE TABLE t LIKE s")
    now = state(row_lake, "t")
    assert "catalogManaged" not in now.features
    assert TABLE_ID not in now.metadata.configuration


def test_a_rename_and_a_detachment_are_told(row_lake: txlake.Lake) -> None:
    row_lake.sql(f"CREATE TABLE t (id INT) {OPEN}; ALTER TABLE t RENAME TO u")
    assert_open(row_lake, "u")
    log = handle(row_lake, "u").log
    place = row_lake.detach("u")
    assert place == log.store.url
    now = txlake.Log(place).snapshot()
    assert "catalogManaged" not in str(now.protocol)
    assert TABLE_ID not in now.properties


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("ALTER TABLE t SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'false')", "asks"),
        (f"ALTER TABLE t SET TBLPROPERTIES ('{TABLE_ID}' = 'other')", "stays"),
        (f"ALTER TABLE t UNSET TBLPROPERTIES ('{TABLE_ID}')", "stays"),
        ("ALTER TABLE t DROP FEATURE catalogManaged", "detached"),
        ("ALTER TABLE t DROP FEATURE v2Checkpoint", "catalogManaged needs it"),
        ("ALTER TABLE t SET TBLPROPERTIES ('delta.feature.catalogManaged' = 'no')", "expected"),
    ],
)
def test_what_an_open_table_cannot_lose(row_lake: txlake.Lake, sql: str, told: str) -> None:
    row_lake.sql(f"CREATE TABLE t (id INT) {OPEN}")
    version = state(row_lake, "t").version
    with pytest.raises(InvalidRequest, match=told):
        row_lake.sql(sql)
    assert state(row_lake, "t").version == version


def test_a_path_table_cannot_be_opened(row_lake: txlake.Lake) -> None:
    place = "delta.`memory://elsewhere/t`"
    row_lake.sql(f"CREATE TABLE {place} (id INT)")
    with pytest.raises(InvalidRequest, match="attach it to the lake first"):
        row_lake.sql(f"ALTER TABLE {place} SET {OPEN}")


def test_a_transaction_over_open_and_other_tables_is_one_instant(row_lake: txlake.Lake) -> None:
    row_lake.sql(f"CREATE TABLE a (id INT) {OPEN}; CREATE TABLE b (id INT)")
    before = row_lake.view("txlake.commits").num_rows
    row_lake.sql("BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); COMMIT")
    commits = row_lake.view("txlake.commits").to_pylist()
    assert len(commits) == before + 2
    newest = max(one["sequence"] for one in commits)
    assert sorted(one["table"] for one in commits if one["sequence"] == newest) == [
        "default.a",
        "default.b",
    ]


def test_each_commit_of_a_transaction_says_its_group(row_lake: txlake.Lake) -> None:
    row_lake.sql(f"CREATE TABLE a (id INT) {OPEN}; CREATE TABLE b (id INT)")
    row_lake.sql("INSERT INTO a VALUES (0)")
    assert "txlake.transactionGroup" not in str(info(row_lake, "a").values)
    row_lake.sql("BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); COMMIT")
    told = [group(info(row_lake, name)) for name in ("a", "b")]
    ids = [entry.id for name in ("a", "b") if (entry := handle(row_lake, name).entry)]
    assert told[0] == told[1]
    assert told[0] == {"id": info(row_lake, "a").text("txnId"), "tables": sorted(ids)}


def group(told: CommitInfo) -> object:
    """The group that a commit says it is of."""
    tags = told.values["tags"]
    assert isinstance(tags, dict)
    return json.loads(tags["txlake.transactionGroup"])


def test_its_commits_are_staged_where_others_stage_theirs() -> None:
    """What can't be published yet can be found by its file, and the folder is there for others."""
    lake = LakeOf().create("a", opens=True).create("b")
    assert [one.path for one in lake.store("a").list(STAGED_FOLDER)] == []
    for name, is_staged in (("a", True), ("b", False)):
        lake.fake(name).failing.add(commit_path(1))
        lake.append(name, add("x"))
        [pending] = (lake.ledger.head(name) or Head(version=-1)).pending
        assert (pending.staged is not None) is is_staged
        lake.fake(name).failing.clear()
        assert paths(lake, name) == ["x"]
