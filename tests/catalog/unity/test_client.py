"""txlake as the client of a Unity Catalog: of a lake's server, and of another system's."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import txlake
from tests.catalog.unity.served import (
    OPEN,
    LakeServer,
    Lossy,
    OtherCatalog,
    on_a_socket,
    run,
    served,
    without_own_api,
)
from tests.storage.conftest import s3_options, servers_folder  # noqa: F401
from txlake.catalog.unity.catalog import UnityCatalog
from txlake.catalog.unity.responses import Credentials, StorageCredential
from txlake.catalog.unity.vended_credentials import VendedCredentials
from txlake.errors import Conflict, InvalidRequest, OutcomeUnknown, Unavailable
from txlake.server.tokens import Token
from txlake.sql.statements import TableName
from txlake.system import System

pytestmark = pytest.mark.no_interop("other engines read open tables through their catalog")
NAMES = ("orders", "stock")
TOKEN = "a-token-of-its-own-length"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[LakeServer]:
    """A lake with two open tables of two rows, served."""
    with served(tmp_path / "lake") as made:
        for name in NAMES:
            run(made.lake, f"CREATE TABLE {name} (id INT, n INT) {OPEN}")
            run(made.lake, f"INSERT INTO {name} VALUES (1, 10), (2, 20)")
        yield made


def rows(lake: txlake.Lake, table: str) -> list[tuple[object, ...]]:
    """A table's rows."""
    return sorted(run(lake, f"SELECT * FROM {table}"))


def test_rows_are_read_and_written_by_name(there: LakeServer) -> None:
    with there.client() as uc:
        assert run(uc, "SHOW TABLES") == [
            ("default", "orders", False),
            ("default", "stock", False),
        ]
        run(uc, "INSERT INTO orders VALUES (3, 30)")
        run(uc, "UPDATE default.orders SET n = n + 1 WHERE id = 1")
        run(uc, "DELETE FROM orders WHERE id = 2")
        assert rows(uc, "orders") == [(1, 11), (3, 30)]
    assert rows(there.lake, "orders") == [(1, 11), (3, 30)]


def test_a_transaction_of_one_table_is_one_commit(there: LakeServer) -> None:
    with there.client() as uc:
        run(uc, "BEGIN; INSERT INTO orders VALUES (3, 30); UPDATE orders SET n = 0 WHERE id = 3")
        assert rows(there.lake, "orders") == [(1, 10), (2, 20)]
        assert rows(uc, "orders") == [(1, 10), (2, 20), (3, 0)]
        run(uc, "COMMIT")
        assert rows(there.lake, "orders") == [(1, 10), (2, 20), (3, 0)]
        assert run(uc, "DESCRIBE HISTORY orders")[0][0] == 2
        run(uc, "BEGIN; DELETE FROM orders; ROLLBACK")
        assert len(rows(uc, "orders")) == 3


def test_different_rows_of_one_file_both_commit(there: LakeServer) -> None:
    with there.client() as first, there.client() as second:
        run(first, "BEGIN; UPDATE orders SET n = 11 WHERE id = 1")
        run(second, "BEGIN; UPDATE orders SET n = 21 WHERE id = 2")
        run(there.lake, "INSERT INTO orders VALUES (3, 30)")
        run(first, "COMMIT")
        run(second, "COMMIT")
        assert rows(there.lake, "orders") == [(1, 11), (2, 21), (3, 30)]


def test_the_same_row_is_a_conflict(there: LakeServer) -> None:
    with there.client() as first, there.client() as second:
        run(first, "BEGIN; UPDATE orders SET n = 11 WHERE id = 1")
        run(second, "UPDATE orders SET n = 12 WHERE id = 1")
        with pytest.raises(Conflict, match="orders"):
            run(first, "COMMIT")
        assert rows(first, "orders") == [(1, 12), (2, 20)]


def test_many_clients_lose_no_update(there: LakeServer) -> None:
    clients, each = 4, 5
    failed: list[BaseException] = []

    def work(own: int) -> None:
        try:
            with there.client() as uc:
                for number in range(each):
                    run(uc, f"INSERT INTO orders VALUES ({100 * own + number}, {own})")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(own + 1,)) for own in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert failed == []
    wanted = {100 * own + number for own in range(1, clients + 1) for number in range(each)}
    assert [row[0] for row in rows(there.lake, "orders")] == sorted({1, 2} | wanted)


# Several tables


def test_tables_of_a_lake_commit_together(there: LakeServer) -> None:
    with there.client() as uc:
        run(uc, "BEGIN; INSERT INTO orders VALUES (3, 30); UPDATE stock SET n = n - 1 WHERE id = 1")
        run(uc, "COMMIT")
    assert rows(there.lake, "orders") == [(1, 10), (2, 20), (3, 30)]
    assert rows(there.lake, "stock") == [(1, 9), (2, 20)]
    listed = there.lake._session.engine.catalog.of_lake().ledger.newest_commits()
    assert len({one.sequence for one in listed[:2]}) == 1


def test_one_of_several_that_conflicts_stops_all(there: LakeServer) -> None:
    with there.client() as uc:
        run(uc, "BEGIN; INSERT INTO orders VALUES (3, 30); UPDATE stock SET n = 0 WHERE id = 1")
        run(there.lake, "UPDATE stock SET n = 5 WHERE id = 1")
        with pytest.raises(Conflict, match="stock"):
            run(uc, "COMMIT")
    assert rows(there.lake, "orders") == [(1, 10), (2, 20)]
    assert rows(there.lake, "stock") == [(1, 5), (2, 20)]


def test_write_skew_is_prevented(there: LakeServer) -> None:
    with there.client(isolation="serializable") as uc:
        run(uc, "BEGIN; SELECT * FROM stock")
        run(uc, "INSERT INTO orders VALUES (3, 30)")
        run(there.lake, "UPDATE stock SET n = 0 WHERE id = 1")
        with pytest.raises(Conflict, match="stock"):
            run(uc, "COMMIT")
        run(uc, "BEGIN; SELECT * FROM stock; INSERT INTO orders VALUES (4, 40); COMMIT")
    assert rows(there.lake, "orders") == [(1, 10), (2, 20), (4, 40)]


def test_another_system_commits_one_table_at_a_time(tmp_path: Path) -> None:
    with served(tmp_path / "lake") as there:
        for name in NAMES:
            run(there.lake, f"CREATE TABLE {name} (id INT) {OPEN}")
        with (
            on_a_socket(without_own_api(there.server)) as address,
            txlake.connect(catalog=address) as uc,
        ):
            run(uc, "BEGIN; INSERT INTO orders VALUES (1); INSERT INTO stock VALUES (1)")
            with pytest.raises(
                InvalidRequest, match=r"orders, default\.stock.*one table at a time"
            ):
                run(uc, "COMMIT")
            run(uc, "INSERT INTO orders VALUES (2)")
        assert (rows(there.lake, "orders"), rows(there.lake, "stock")) == ([(2,)], [])


# Lost answers


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("path", ["tables/orders", "transactions"])
def test_a_commit_without_an_answer_is_there_once(there: LakeServer, when: str, path: str) -> None:
    left = [when]

    def lose(method: str, asked: str) -> str:
        return left.pop() if left and method == "POST" and asked.endswith(path) else ""

    with there.client() as uc:
        run(uc, "BEGIN; INSERT INTO orders VALUES (3, 30)")
        if path == "transactions":
            run(uc, "INSERT INTO stock VALUES (3, 30)")
        there.server.lose = lose
        run(uc, "COMMIT")
        assert left == []
    assert rows(there.lake, "orders") == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_token_that_ends_after_a_lost_answer_settles_nothing(
    there: LakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(System, "wait_ms", lambda system, duration_ms: None)
    left = [when]
    with there.client() as uc:
        run(uc, "BEGIN; INSERT INTO orders VALUES (3, 30)")
        there.server.lose = lambda method, path: left.pop() if left else "denied"
        with pytest.raises(OutcomeUnknown, match="orders"):
            run(uc, "COMMIT")
        there.server.lose = lambda method, path: ""
    # Whoever ratified it may still have to read it.
    staged = list((tmp_path / "lake/orders/_delta_log/_staged_commits").iterdir())
    assert len([path for path in staged if path.name.startswith(f"{2:020d}.")]) == 1
    assert len(rows(there.lake, "orders")) == (3 if when == "after" else 2)


def test_an_answer_that_is_no_table_is_refused(tmp_path: Path) -> None:
    catalog = OtherCatalog(tmp_path)
    with (
        on_a_socket(catalog.app()) as address,
        txlake.connect(catalog=f"{address}?catalog=main") as uc,
    ):
        run(uc, "CREATE TABLE s.t (id INT)")
        [table] = catalog.tables.values()
        table.location = 7  # type: ignore[assignment]
        with pytest.raises(Unavailable, match=r"s\.t: the catalog's answer can't be understood"):
            run(uc, "SELECT * FROM s.t")


def test_an_outcome_that_nobody_tells_is_unknown(
    there: LakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(System, "wait_ms", lambda system, duration_ms: None)
    with there.client() as uc:
        run(uc, "BEGIN; INSERT INTO orders VALUES (3, 30)")
        there.server.lose = lambda method, path: "after" if method == "POST" else "before"
        with pytest.raises(OutcomeUnknown, match="orders"):
            run(uc, "COMMIT")
        there.server.lose = lambda method, path: ""
    assert len(rows(there.lake, "orders")) == 3


def test_a_server_that_is_away_is_unavailable(
    there: LakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(System, "wait_ms", lambda system, duration_ms: None)
    with there.client() as uc:
        there.server.lose = lambda method, path: "before"
        with pytest.raises(Unavailable, match="no answer to"):
            run(uc, "SELECT * FROM orders")
    with pytest.raises(Unavailable, match="can't be reached"):
        txlake.connect(catalog="uc+http://127.0.0.1:1")


# Names


def test_a_table_is_created_renamed_and_dropped(there: LakeServer) -> None:
    with there.client() as uc:
        run(uc, "CREATE TABLE made (id INT, s STRING) PARTITIONED BY (s)")
        run(uc, "INSERT INTO made VALUES (1, 'a')")
        with pytest.raises(InvalidRequest, match="exists"):
            run(uc, "CREATE TABLE made (id INT)")
        run(uc, "ALTER TABLE made SET TBLPROPERTIES ('own' = 'x')")
        assert rows(there.lake, "made") == [(1, "a")]
        run(uc, "ALTER TABLE made RENAME TO other")
        assert rows(uc, "other") == [(1, "a")]
        run(uc, "BEGIN; INSERT INTO other VALUES (2, 'b'); DROP TABLE other; COMMIT")
        with pytest.raises(InvalidRequest, match="no table 'other'"):
            run(uc, "SELECT * FROM other")
    assert run(there.lake, "SHOW TABLES DROPPED")


@pytest.mark.parametrize("isolation", ["write_serializable", "serializable"])
def test_a_table_is_made_of_another(there: LakeServer, isolation: str) -> None:
    with there.client(isolation=isolation) as uc:
        run(uc, "CREATE TABLE made AS SELECT id FROM orders")
        assert rows(uc, "made") == [(1,), (2,)]
        run(uc, "BEGIN; CREATE TABLE late AS SELECT id FROM orders")
        run(there.lake, "DELETE FROM orders WHERE id = 1")
        with pytest.raises(Conflict, match="orders"):
            run(uc, "COMMIT")
        assert ("default", "late", False) not in run(uc, "SHOW TABLES")


def test_a_new_name_and_another_tables_rows_are_refused(there: LakeServer) -> None:
    with there.client() as uc:
        run(uc, "BEGIN; INSERT INTO orders VALUES (3, 30); CREATE TABLE made (id INT)")
        with pytest.raises(InvalidRequest, match="and no other table with it"):
            run(uc, "COMMIT")
    assert rows(there.lake, "orders") == [(1, 10), (2, 20)]


def test_databases_are_schemas(there: LakeServer) -> None:
    with there.client() as uc:
        run(uc, "CREATE DATABASE shop COMMENT 'of ours'")
        assert run(uc, "SHOW DATABASES") == [("default",), ("shop",)]
        run(uc, "USE shop; CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
        assert rows(uc, "shop.t") == [(1,)]
        with pytest.raises(InvalidRequest, match="shop"):
            run(uc, "DROP DATABASE shop")
        run(uc, "DROP DATABASE shop CASCADE")
        assert run(uc, "SHOW DATABASES") == [("default",)]


def test_a_table_that_another_one_replaced_is_told(there: LakeServer) -> None:
    with there.client() as uc:
        run(uc, "BEGIN; INSERT INTO orders VALUES (3, 30)")
        run(there.lake, f"DROP TABLE orders; CREATE TABLE orders (id INT, n INT) {OPEN}")
        with pytest.raises(InvalidRequest, match="dropped, or another"):
            run(uc, "COMMIT")
    assert rows(there.lake, "orders") == []


def test_what_is_a_lakes_own_is_refused_by_name(there: LakeServer) -> None:
    with there.client() as uc:
        for text in ("CREATE VIEW v AS SELECT 1", "SELECT * FROM sys.dm_tran_locks"):
            with pytest.raises(InvalidRequest, match="is a Unity Catalog: "):
                run(uc, text)


def test_tables_that_only_the_lake_writes_are_read(there: LakeServer) -> None:
    run(there.lake, "CREATE TABLE ours (id INT); INSERT INTO ours VALUES (1)")
    with there.client() as uc:
        assert rows(uc, "ours") == [(1,)]
        with pytest.raises(InvalidRequest, match="belongs to the catalog"):
            run(uc, "INSERT INTO ours VALUES (2)")


# Who may


def test_tokens(tmp_path: Path) -> None:
    tokens = (Token(token=TOKEN, name="etl"), Token(token=TOKEN * 2, name="r", read_only=True))
    with served(tmp_path / "lake", tokens=tokens) as there:
        run(there.lake, f"CREATE TABLE t (id INT) {OPEN}")
        with there.client(token=TOKEN) as uc:
            run(uc, "INSERT INTO t VALUES (1)")
        with there.client(token=TOKEN * 2) as uc:
            assert rows(uc, "t") == [(1,)]
            with pytest.raises(InvalidRequest, match="may only read"):
                run(uc, "INSERT INTO t VALUES (2)")
        for token in (None, "wrong"):
            with pytest.raises(InvalidRequest, match="is the token right") as caught:
                there.client(token=token)
            assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"location": "x", "catalog": "uc+https://h"}, "leave out the location"),
        ({"catalog": "uc+http://far.example", "token": TOKEN}, "use uc\\+https"),
        ({"catalog": "uc+https://u:p@h"}, "no user and password"),
        ({"catalog": "uc+https://h:port"}, "invalid host or port"),
        ({"catalog": "uc+https://[::1"}, "invalid host or port"),
        ({"catalog": "uc+https://h?catlog=x"}, "expected uc\\+https"),
        ({"catalog": "uc+https://h", "token": "two words"}, "one word"),
        ({"location": "x", "token": TOKEN}, "token is a Unity Catalog's"),
        ({}, "expected the lake's folder"),
    ],
)
def test_what_cannot_be_connected_to(arguments: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        txlake.connect(**arguments)  # type: ignore[arg-type]
    assert ":p@" not in str(caught.value)


def test_credentials_are_lent(s3_options: dict[str, str], tmp_path: Path) -> None:  # noqa: F811
    own = {key: text for key, text in s3_options.items() if "ACCESS_KEY" not in key}
    assert len(own) == len(s3_options) - 2
    names = f"sqlite:///{tmp_path / 'names.db'}"
    options: dict[str, Any] = {"catalog": names, "storage_options": s3_options}
    with served(f"s3://lake/{uuid.uuid4()}", vends_credentials=True, **options) as there:
        run(there.lake, f"CREATE TABLE t (id INT) {OPEN}")
        with there.client(storage_options=own) as uc:
            run(uc, "INSERT INTO t VALUES (1)")
            run(uc, "CREATE TABLE made (id INT); INSERT INTO made VALUES (1)")
        lent = [path for _, path in there.server.asked if path.endswith("credentials")]
        assert len(lent) == 2  # once for each table
        for table in ("t", "made"):
            handle = there.lake._session.engine.find(TableName((table,)), "default")
            assert handle is not None
            assert handle.log.latest().version == 1
    with (
        served(f"s3://lake/{uuid.uuid4()}", **options) as there,
        there.client(storage_options=own) as uc,
        there.client(storage_options=s3_options) as keyed,
    ):
        with pytest.raises(InvalidRequest, match=r"lends no credentials.*storage_options"):
            run(uc, "INSERT INTO t VALUES (2)")
        run(keyed, "INSERT INTO t VALUES (2)")


# Another system's catalog


def test_another_systems_table(tmp_path: Path) -> None:
    catalog = OtherCatalog(tmp_path)
    server = Lossy(catalog.app())
    with on_a_socket(server) as address:
        with pytest.raises(InvalidRequest, match="main, other"):
            txlake.connect(catalog=address)
        with pytest.raises(InvalidRequest, match="no catalog 'none'"):
            txlake.connect(catalog=f"{address}?catalog=none")
        with txlake.connect(catalog=f"{address}?catalog=main") as uc:
            run(uc, "CREATE TABLE s.t (id INT, n INT)")
            run(uc, "INSERT INTO s.t VALUES (1, 10), (2, 20)")
            run(uc, "UPDATE main.s.t SET n = 11 WHERE id = 1")
            assert rows(uc, "s.t") == [(1, 11), (2, 20)]
            [table] = catalog.tables.values()
            # What was committed is published, and the catalog is told.
            assert (table.version, table.commits) == (2, [])
            assert table.properties["asked-for"] == "t"
            run(uc, "ALTER TABLE s.t SET TBLPROPERTIES ('own' = 'x')")
            assert table.properties["own"] == "x"
            run(uc, "ALTER TABLE s.t UNSET TBLPROPERTIES ('own')")
            assert "own" not in table.properties
            run(uc, "DROP TABLE s.t")
            assert catalog.tables == {}


def test_commits_that_nobody_published_are_read(tmp_path: Path) -> None:
    catalog = OtherCatalog(tmp_path)
    server = Lossy(catalog.app())
    with on_a_socket(server) as address:
        with txlake.connect(catalog=f"{address}?catalog=main") as uc:
            run(uc, "CREATE TABLE s.t (id INT); INSERT INTO s.t VALUES (1)")
            [table] = catalog.tables.values()
            staged = Path(table.location.removeprefix("file://")) / "_delta_log/_staged_commits"
            own = {path.name for path in staged.iterdir()}
            published = staged.parent / f"{1:020d}.json"
            commit = next(one["commit"] for one in catalog.updates if one["action"] == "add-commit")
            assert commit["file-name"] in own  # other readers may be at it
            table.commits.append(commit)
            published.unlink()
        with txlake.connect(catalog=f"{address}?catalog=main") as uc:
            assert rows(uc, "s.t") == [(1,)]
            assert published.exists()
            assert table.commits == []


def test_credentials_that_do_not_end_are_asked_for_once(there: LakeServer) -> None:
    """Unity Catalog's own server gives no time where it lends nothing."""
    with there.client() as uc:
        catalog = uc._session.engine.catalog
        assert isinstance(catalog, UnityCatalog)
        lent = StorageCredential(config={"s3.access-key-id": "k"})
        read = Credentials(storage_credentials=(lent,))
        asked: list[str] = []

        def credentials(table_id: str, operation: str) -> Credentials:
            asked.append(operation)
            return read

        vended = VendedCredentials(catalog.ledger, {})
        vended._ledger = SimpleNamespace(  # type: ignore[assignment]
            credentials=credentials, table_at=lambda location: "t", system=System()
        )
        for _ in range(2):
            assert vended.options("s3://bucket/t") == {"aws_access_key_id": "k"}
        assert asked == ["READ_WRITE"]


def test_a_name_of_a_path_table_is_one(tmp_path: Path) -> None:
    catalog = OtherCatalog(tmp_path)
    place = tmp_path / "outside"
    with txlake.connect(str(tmp_path / "lake")) as lake:
        run(lake, f"CREATE TABLE delta.`{place}` (id INT); INSERT INTO delta.`{place}` VALUES (1)")
    catalog.external["e"] = f"file://{place}"
    with (
        on_a_socket(catalog.app()) as address,
        txlake.connect(catalog=f"{address}?catalog=main") as uc,
    ):
        run(uc, "INSERT INTO s.e VALUES (2)")
        assert rows(uc, "s.e") == [(1,), (2,)]
    assert txlake.Log(str(place)).snapshot().version == 2
