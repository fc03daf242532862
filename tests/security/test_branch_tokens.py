"""Attacks by a token that may work on branches of its own only, and what such a token can do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import txlake
from tests.server.client import Client, failed
from tests.server.test_sql import DENIED, begin, done, say
from txlake.server.app import OWN_ROOT
from txlake.server.refusals import WRITE_STATEMENTS
from txlake.server.tokens import Token
from txlake.session.permission import BranchesOnly, NotPermitted
from txlake.sql import parse
from txlake.sql.statements import Kill

ALL, AGENT, OTHER = "a-token-for-everything", "the-token-of-an-agent", "the-token-of-another"
NAMESAKE, READER = "another-token-named-agent", "a-token-that-only-reads"
TOKENS = (
    Token(token=ALL, name="etl"),
    Token(token=AGENT, name="agent", branches=True),
    Token(token=OTHER, name="other", branches=True),
    Token(token=NAMESAKE, name="agent"),
    Token(token=READER, name="reports", read_only=True),
)
WRITES = {
    "AddColumns": "ALTER TABLE orders ADD COLUMN c INT",
    "AddConstraint": "ALTER TABLE orders ADD CONSTRAINT c CHECK (id > 0)",
    "AlterColumn": "ALTER TABLE orders ALTER COLUMN n COMMENT 'c'",
    "AlterDatabase": "ALTER DATABASE default SET DBPROPERTIES ('a' = 'b')",
    "AlterView": "ALTER VIEW seen AS SELECT 1 AS id",
    "AlterViewSchema": "ALTER VIEW seen WITH SCHEMA EVOLUTION",
    "AnalyzeTable": "ANALYZE TABLE orders COMPUTE DELTA STATISTICS",
    "Clone": "CREATE TABLE made SHALLOW CLONE orders",
    "ClusterBy": "ALTER TABLE orders CLUSTER BY (id)",
    "CreateDatabase": "CREATE DATABASE made",
    "CreateTable": "CREATE TABLE made (id INT)",
    "CreateTableLike": "CREATE TABLE made LIKE orders",
    "CreateView": "CREATE VIEW made AS SELECT id FROM orders",
    "Delete": "DELETE FROM orders",
    "DropColumns": "ALTER TABLE orders DROP COLUMN n",
    "DropConstraint": "ALTER TABLE orders DROP CONSTRAINT c",
    "DropDatabase": "DROP DATABASE empty",
    "DropFeature": "ALTER TABLE orders DROP FEATURE deletionVectors",
    "DropKey": "ALTER TABLE orders DROP PRIMARY KEY",
    "DropTable": "DROP TABLE orders PURGE",
    "DropView": "DROP VIEW seen",
    "Insert": "INSERT INTO orders VALUES (9, 9)",
    "LockTable": "LOCK TABLE orders IN EXCLUSIVE MODE",
    "Merge": "MERGE INTO orders o USING stock s ON o.id = s.id WHEN MATCHED THEN DELETE",
    "Optimize": "OPTIMIZE orders",
    "RenameColumn": "ALTER TABLE orders RENAME COLUMN n TO m",
    "RenameTable": "ALTER TABLE orders RENAME TO made",
    "RenameView": "ALTER VIEW seen RENAME TO made",
    "Reorg": "REORG TABLE orders APPLY (PURGE)",
    "RepairTable": "REPAIR TABLE orders SYNC METADATA",
    "ReplaceColumns": "ALTER TABLE orders REPLACE COLUMNS (id INT)",
    "Restore": "RESTORE TABLE orders TO VERSION AS OF 0",
    "SetComment": "COMMENT ON TABLE orders IS 'c'",
    "SetProperties": "ALTER TABLE orders SET TBLPROPERTIES ('a' = 'b')",
    "SyncIdentity": "ALTER TABLE orders ALTER COLUMN id SYNC IDENTITY",
    "Truncate": "TRUNCATE TABLE orders",
    "UndropTable": "UNDROP TABLE gone",
    "UnsetProperties": "ALTER TABLE orders UNSET TBLPROPERTIES IF EXISTS ('a')",
    "Update": "UPDATE orders SET n = 0",
    "Vacuum": "VACUUM orders",
}
"""Statements that change tables, by their types. On main none is for an agent."""
OF_BRANCHES = frozenset({"CreateBranch", "DropBranch", "RebaseBranch", "ExplainPublish", "Atomic"})
WITHOUT_TEXT = frozenset({"AddFeature", "UpgradeProtocol"})
NEVER = {
    "PublishBranch": "PUBLISH BRANCH own",
    "CreateTag": "CREATE TAG made",
    "DropTag": "DROP TAG old",
    "Kill": "KILL 1",
}
"""What isn't for an agent wherever he is."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A served lake with branches of an agent, of another one and of the owner's."""
    with txlake.connect(str(tmp_path / "lake")) as lake, Client(lake, tokens=TOKENS) as made:
        for name in ("orders", "stock"):
            done(made, f"CREATE TABLE {name} (id INT, n BIGINT)", token=ALL)
            done(made, f"INSERT INTO {name} VALUES (1, 10), (2, 20)", token=ALL)
        done(made, "CREATE VIEW seen AS SELECT id FROM orders; CREATE DATABASE empty", token=ALL)
        done(made, "CREATE TABLE gone (id INT); DROP TABLE gone; CREATE TAG old", token=ALL)
        done(made, "CREATE BRANCH nightly", token=ALL)
        done(made, "CREATE BRANCH own", token=AGENT)
        done(made, "CREATE BRANCH others", token=OTHER)
        yield made


def state(client: Client) -> Any:
    """What main, the tags and the branches of others are: versions, names and rows."""
    shown = [
        "SELECT * FROM orders",
        "SELECT * FROM stock",
        "SELECT id, n FROM orders VERSION AS OF 'nightly'",
        "SELECT id, n FROM orders VERSION AS OF 'others'",
        *("SHOW TABLES", "SHOW VIEWS", "SHOW DATABASES", "SHOW TAGS", "SHOW TBLPROPERTIES orders"),
        "SHOW TABLES DROPPED",
        "SELECT table, version, operation FROM txlake.commits",
        "USE BRANCH nightly; SHOW TABLES",
        "USE BRANCH others; SHOW TABLES",
    ]
    found: list[Any] = [done(client, text, token=ALL)["rows"] for text in shown]
    branches = done(client, "SHOW BRANCHES", token=ALL)["rows"]
    return [*found, [row for row in branches if row[0] != "own"]]


def test_each_statement_that_writes_is_tried() -> None:
    kinds = {kind.__name__ for kind in WRITE_STATEMENTS}
    assert kinds == {*WRITES, *NEVER} | OF_BRANCHES | WITHOUT_TEXT
    for kind, text in {**WRITES, **NEVER}.items():
        [statement] = parse(text)
        assert type(statement).__name__ == kind


@pytest.mark.parametrize("door", ["", "USE BRANCH nightly; ", "USE BRANCH others; "])
def test_nothing_writes_main_or_others_branches(client: Client, door: str) -> None:
    """In a script, in a transaction, in a script of SQL, and in a session that is kept."""
    before = state(client)
    session = begin(client, AGENT)
    done(client, f"{door}SELECT 1", session, token=AGENT)
    for place, text in enumerate((*WRITES.values(), *NEVER.values())):
        failed(say(client, text, session, token=AGENT), 403, DENIED)
        whole = (
            f"{door}{text}",
            f"{door}BEGIN; {text}; COMMIT",
            f"{door}BEGIN ATOMIC {text}; END",
            f"USE BRANCH own; SELECT 1; USE BRANCH main; {door}{text}",
        )[place % 4]
        answer = say(client, whole, token=AGENT)
        if "BEGIN" not in whole or answer.status_code != 400:  # some can't be in a transaction
            failed(answer, 403, DENIED)
    assert state(client) == before


def test_what_concerns_all_branches_is_nobodys_on_his_own(client: Client) -> None:
    before = state(client)
    for text in NEVER.values():
        failed(say(client, f"USE BRANCH own; {text}", token=AGENT), 403, DENIED)
    for kind in ("AlterDatabase", "DropDatabase", "UndropTable", "Vacuum", "SyncIdentity"):
        answer = say(client, f"USE BRANCH own; {WRITES[kind]}", token=AGENT)
        assert answer.status_code == 400, (kind, answer.text)
    assert state(client) == before


def test_on_his_own_branch_an_agent_does_what_he_likes(client: Client) -> None:
    before = state(client)
    session = begin(client, AGENT)
    done(client, "USE BRANCH own", session, token=AGENT)
    for text in (
        "INSERT INTO orders VALUES (3, 30)",
        "BEGIN; UPDATE orders SET n = n + 1 WHERE id = 3; DELETE FROM stock WHERE id = 1; COMMIT",
        "BEGIN ATOMIC INSERT INTO stock VALUES (7, 7); END",
        "BEGIN; LOCK TABLE orders IN EXCLUSIVE MODE; ROLLBACK",
        "CREATE TABLE made (id INT); INSERT INTO made VALUES (1); DROP VIEW seen",
        "CREATE DATABASE mine; CREATE TABLE mine.t (id INT)",
        "EXPLAIN PUBLISH BRANCH own",
        "DESCRIBE BRANCH own",
        "CREATE BRANCH `own/2` FROM BRANCH own; DROP BRANCH `own/2`",
        "OPTIMIZE orders",
    ):
        done(client, text, session, token=AGENT)
    assert done(client, "SELECT * FROM orders WHERE id = 3", session, token=AGENT)["rows"] == [
        [3, 31]
    ]
    assert state(client) == before
    done(client, "INSERT INTO stock VALUES (8, 8)", token=ALL)
    done(client, "REBASE BRANCH own", session, token=AGENT)
    done(client, "USE BRANCH own", session, token=AGENT)
    assert done(client, "SELECT id FROM stock", session, token=AGENT)["total"] == 3
    done(client, "INSERT INTO orders VALUES (4, 40)", session, token=AGENT)
    failed(say(client, "PUBLISH BRANCH own", session, token=AGENT), 403, DENIED)
    failed(say(client, "PUBLISH BRANCH own", token=OTHER), 403, DENIED)
    done(client, "PUBLISH BRANCH own", token=ALL)
    assert done(client, "SELECT * FROM orders", token=AGENT)["total"] == 4
    answer = say(client, "INSERT INTO orders VALUES (5, 50)", session, token=AGENT)
    failed(answer, 400, "InvalidParameterValueException", "has ended")


OF_OTHERS = (
    "DROP BRANCH nightly",
    "DROP BRANCH IF EXISTS NIGHTLY",
    "DROP BRANCH others",
    "REBASE BRANCH nightly",
    "EXPLAIN PUBLISH BRANCH others",
    "PUBLISH BRANCH others",
    "CREATE BRANCH mine FROM BRANCH nightly",
    "CREATE BRANCH IF NOT EXISTS mine FROM BRANCH Others",
    "USE BRANCH nightly; CREATE BRANCH mine",
    "USE BRANCH nightly; CREATE TAG mine",
    "USE BRANCH own; USE BRANCH nightly; CREATE BRANCH mine",
    "CREATE BRANCH mine FOR TABLE orders",
    "DROP BRANCH own FOR TABLE orders",
    "REBASE BRANCH own FOR TABLE orders",
    "EXPLAIN PUBLISH BRANCH own FOR TABLE orders",
    "USE BRANCH own; CREATE BRANCH mine FOR TABLE orders",
    "BEGIN ATOMIC DROP BRANCH nightly; END",
    "BEGIN ATOMIC CREATE BRANCH mine FROM BRANCH nightly; END",
    "BEGIN ATOMIC PUBLISH BRANCH own; END",
)


def test_branches_of_others_stay_theirs(client: Client) -> None:
    """Also by a branch made of them, after which their owners couldn't publish or drop them."""
    before = state(client)
    for text in OF_OTHERS:
        answer = say(client, text, token=AGENT)
        if "ATOMIC" not in text or answer.status_code != 400:  # some are no statements of a script
            failed(answer, 403, DENIED)
    assert state(client) == before


def test_a_branch_of_the_same_name_is_another_one(client: Client) -> None:
    """Who may drop it is decided on the branch, by its owner, not by its name."""
    session = begin(client, AGENT)
    done(client, "USE BRANCH own", session, token=AGENT)
    done(client, "DROP BRANCH own; CREATE BRANCH own", token=ALL)
    for text in ("DROP BRANCH own", "REBASE BRANCH own", "USE BRANCH own; DELETE FROM orders"):
        failed(say(client, text, token=AGENT), 403, DENIED)
    answer = say(client, "DELETE FROM orders", session, token=AGENT)
    failed(answer, 400, "InvalidParameterValueException", "has ended")
    assert done(client, "USE BRANCH own; SELECT * FROM orders", token=ALL)["total"] == 2


def test_a_user_of_the_same_name_elsewhere_is_another_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's own process may run as a user of the operating system of that name."""
    monkeypatch.setenv("LOGNAME", "agent")
    client.lake.sql("CREATE BRANCH machines")
    shown = {row[0]: row[3] for row in done(client, "SHOW BRANCHES", token=READER)["rows"]}
    assert (shown["machines"], shown["own"]) == ("agent", "token:agent")
    failed(say(client, "DROP BRANCH machines", token=AGENT), 403, DENIED)


def test_a_kept_session_is_the_tokens_that_opened_it(client: Client) -> None:
    """Another token of the same name may do more: what it has open isn't the agent's."""
    session = begin(client, NAMESAKE)
    done(client, "BEGIN; DELETE FROM orders", session, token=NAMESAKE)
    for text in ("COMMIT", "DELETE FROM stock", "SELECT 1"):
        failed(say(client, text, session, token=AGENT), 404, "NotFoundException")
    ended = client.call("DELETE", f"{OWN_ROOT}/sessions/{session}", token=AGENT)
    failed(ended, 404, "NotFoundException")
    done(client, "ROLLBACK", session, token=NAMESAKE)


def test_a_transaction_stays_on_its_branch(client: Client) -> None:
    session = begin(client, AGENT)
    done(client, "USE BRANCH own; BEGIN; INSERT INTO orders VALUES (3, 30)", session, token=AGENT)
    answer = say(client, "USE BRANCH main", session, token=AGENT)
    failed(answer, 400, "InvalidParameterValueException", "a transaction is open")
    assert done(client, "SELECT * FROM orders", token=ALL)["total"] == 2
    done(client, "ROLLBACK; USE BRANCH main; BEGIN", session, token=AGENT)
    failed(say(client, "INSERT INTO orders VALUES (3, 30)", session, token=AGENT), 403, DENIED)
    answer = say(client, "COMMIT", session, token=AGENT)
    failed(answer, 400, "InvalidParameterValueException", "rolled back")
    assert done(client, "SELECT * FROM orders", token=ALL)["total"] == 2


@pytest.mark.no_interop("other engines have the newest version of an open table from its catalog")
def test_the_other_api_is_read_only_for_agents(client: Client) -> None:
    """It knows no branches: each of its changes is main's."""
    done(client, "CREATE TABLE open (id INT) TBLPROPERTIES ('delta.feature.catalogManaged' = "
         "'supported')", token=ALL)  # fmt: skip
    path = client.url("open")
    assert client.call("GET", path, token=AGENT).status_code == 200
    for method, where in (
        ("POST", path),
        ("DELETE", path),
        ("POST", f"{path}/rename"),
        ("POST", "/delta/v1/catalogs/spark_catalog/schemas/default/staging-tables"),
        ("POST", f"{OWN_ROOT}/transactions"),
        ("GET", f"{path}/credentials?operation=READ_WRITE"),
    ):
        answer = client.call(method, where, {} if method == "POST" else None, token=AGENT)
        assert answer.status_code == 403, (method, where, answer.text)


def test_identity_values_of_main_are_not_an_agents(client: Client) -> None:
    """They aren't given twice, and an agent can't use them up by a value that he sets."""
    done(client, "CREATE TABLE i (id BIGINT GENERATED BY DEFAULT AS IDENTITY, n INT)", token=ALL)
    done(client, "INSERT INTO i (n) VALUES (1)", token=ALL)
    done(client, "CREATE BRANCH attack", token=AGENT)
    done(client, f"USE BRANCH attack; INSERT INTO i VALUES ({2**63 - 2}, 2)", token=AGENT)
    answer = say(
        client, "USE BRANCH attack; ALTER TABLE i ALTER COLUMN id SYNC IDENTITY", token=AGENT
    )
    failed(answer, 400, "InvalidParameterValueException", "SYNC IDENTITY isn't done on a branch")
    done(client, "INSERT INTO i (n) VALUES (3)", token=ALL)
    ids = [row[0] for row in done(client, "SELECT id FROM i", token=ALL)["rows"]]
    assert len(set(ids)) == 2
    assert max(ids) < 2**62


def test_every_control_statement_is_refused_unless_it_is_listed() -> None:
    """A new one isn't for agents before somebody has thought of it."""
    engine: Any = SimpleNamespace(branch=None)
    unknown: Any = object()
    for statement in (Kill(1), unknown):
        with pytest.raises(NotPermitted, match="'token:agent' may change branches of its own only"):
            BranchesOnly("token:agent").require_control(engine, statement, "IT")
