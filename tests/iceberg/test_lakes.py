"""Published tables of lakes: branches, transactions, replaced and cloned tables, both catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyiceberg.avro.file
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.table import StaticTable

import txlake
import txlake.dbapi
from tests.iceberg.histories import PROPERTIES, identity, plain
from tests.server.client import Client
from tests.server.test_sql import ALL, READER, TOKENS
from tests.storage.conftest import s3_server
from txlake.dbapi import Connection
from txlake.server.app import ICEBERG_ROOT
from txlake.session.command import AsRows


@pytest.fixture(params=[None, "warehouse"], ids=["SQLite", "the store"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    """A connection to a lake with one published table of two rows."""
    place = str(tmp_path / "lake")
    with txlake.dbapi.connect(place, catalog=request.param, autocommit=True) as made:
        made.execute(f"CREATE TABLE t (id INT, p INT) PARTITIONED BY (p) {PROPERTIES}")
        made.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        yield made


def published(tmp_path: Path, name: str = "t") -> StaticTable:
    folder = tmp_path / "lake" / name
    hint = (folder / "metadata/version-hint.text").read_text()
    return StaticTable.from_metadata(str(folder / f"metadata/v{hint}.metadata.json"))


def rows(connection: Connection, query: str) -> pa.Table:
    return connection.execute(query).fetch_arrow_table()


def test_a_branch_is_published_with_its_publication(connection: Connection, tmp_path: Path) -> None:
    connection.execute("CREATE BRANCH b")
    connection.execute("USE BRANCH b")
    connection.execute("INSERT INTO t VALUES (3, 1)")
    assert published(tmp_path).metadata.properties["delta-version"] == "1"
    connection.execute("USE BRANCH main")
    connection.execute("PUBLISH BRANCH b")
    table = published(tmp_path)
    assert plain(table.scan().to_arrow()) == plain(rows(connection, "SELECT * FROM t"))
    assert table.scan().to_arrow().num_rows == 3


def test_a_transaction_over_two_tables_is_a_version_of_each(
    connection: Connection, tmp_path: Path
) -> None:
    connection.execute(f"CREATE TABLE u (id INT) {PROPERTIES}")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES (3, 3)")
    connection.execute("INSERT INTO u VALUES (3)")
    connection.execute("DELETE FROM t WHERE id = 1")
    assert published(tmp_path).metadata.properties["delta-version"] == "1"
    connection.execute("COMMIT")
    for name in ("t", "u"):
        found = published(tmp_path, name).scan().to_arrow()
        assert plain(found) == plain(rows(connection, f"SELECT * FROM {name}"))
    assert len(published(tmp_path).snapshots()) == 3


def test_replaced_and_restored_tables(connection: Connection, tmp_path: Path) -> None:
    connection.execute(
        f"CREATE OR REPLACE TABLE t (id STRING, p INT) PARTITIONED BY (p) {PROPERTIES}"
    )
    assert published(tmp_path).scan().to_arrow().num_rows == 0
    connection.execute("INSERT INTO t VALUES ('x', 9)")
    table = published(tmp_path)
    assert table.scan().to_arrow().to_pylist() == [{"id": "x", "p": 9}]
    connection.execute("RESTORE TABLE t TO VERSION AS OF 1")
    table = published(tmp_path)
    assert plain(table.scan().to_arrow()) == plain(rows(connection, "SELECT * FROM t"))
    assert table.scan().to_arrow().num_rows == 2
    for snapshot in table.snapshots():
        assert snapshot.summary is not None
        version = int(snapshot.summary["delta-version"] or -1)
        read = table.scan(snapshot_id=identity(table, version)).to_arrow()
        assert plain(read) == plain(rows(connection, f"SELECT * FROM t VERSION AS OF {version}"))


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_rewritten_manifests_keep_numbers_of_partitions(
    connection: Connection, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [0.5, 0.1, -1.5e38, 1e-45] + ([1e300, 5e-324] if kind == "DOUBLE" else [])
    connection.execute(f"CREATE TABLE n (id INT, p {kind}) PARTITIONED BY (p) {PROPERTIES}")
    values = ", ".join(f"({number}, {value!r})" for number, value in enumerate(numbers))
    connection.execute(f"INSERT INTO n VALUES {values}")
    connection.execute("DELETE FROM n WHERE id = 0")
    # pyiceberg's compiled decoder reads doubles as C's float.
    monkeypatch.setattr(pyiceberg.avro.file, "new_decoder", StreamingBinaryDecoder)
    found = {one.file.partition[0] for one in published(tmp_path, "n").scan().plan_files()}
    assert found == set(rows(connection, "SELECT p FROM n")["p"].to_pylist())
    assert len(found) == len(numbers) - 1


def test_a_shallow_clone_shows_the_files_of_its_source(
    connection: Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE c SHALLOW CLONE t")
    connection.execute("INSERT INTO c VALUES (3, 3)")
    connection.execute("DELETE FROM c WHERE id = 1")
    found = published(tmp_path, "c").scan().to_arrow()
    assert plain(found) == plain(rows(connection, "SELECT * FROM c"))
    assert found.num_rows == 2


def test_a_table_that_is_published_later_begins_with_all_its_files(
    connection: Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE late (id INT, l ARRAY<INT>)")
    connection.execute("INSERT INTO late (id) VALUES (1), (2)")
    connection.execute("INSERT INTO late (id) VALUES (3)")
    connection.execute("DELETE FROM late WHERE id = 2")
    connection.execute("REORG TABLE late APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))")
    connection.execute(
        "ALTER TABLE late SET TBLPROPERTIES ('delta.universalFormat.enabledFormats' = 'iceberg')"
    )
    table = published(tmp_path, "late")
    assert len(table.snapshots()) == 1
    assert plain(table.scan().to_arrow()) == plain(rows(connection, "SELECT * FROM late"))
    connection.execute(
        "ALTER TABLE late UNSET TBLPROPERTIES ('delta.universalFormat.enabledFormats')"
    )
    connection.execute("INSERT INTO late (id) VALUES (4)")
    assert published(tmp_path, "late").metadata.properties == table.metadata.properties


def test_a_table_in_a_bucket_is_read_by_the_served_catalogs_configuration() -> None:
    """The publication follows the answer there; loading a table publishes what is missing."""
    with s3_server() as options, txlake.connect("s3://lake/wh", storage_options=options) as lake:
        for text in (
            f"CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p) {PROPERTIES}",
            "INSERT INTO t VALUES (1, 'a b'), (2, 'ä/c')",
            "DELETE FROM t WHERE id = 1",
        ):
            lake._run_sql(text, None, AsRows())
        with Client(lake, tokens=TOKENS, vends_credentials=True) as client:
            path = f"{ICEBERG_ROOT}/namespaces/default/tables/t"
            loaded = client.call("GET", path, token=ALL).json()
            for_reader = client.call("GET", path, token=READER).json()["config"]
        place = {"s3.endpoint": options["AWS_ENDPOINT_URL"], "client.region": "us-east-1"}
        keys = {"s3.access-key-id": "access", "s3.secret-access-key": "secret-of-the-test"}
        assert loaded["config"] == {**place, **keys}
        assert for_reader == place
        table = StaticTable.from_metadata(loaded["metadata-location"], loaded["config"])
        assert loaded["metadata-location"].startswith("s3://lake/wh/")
        assert table.scan().to_arrow().to_pylist() == [{"id": 2, "p": "ä/c"}]
        before = table.scan(snapshot_id=identity(table, 1)).to_arrow()
        assert before.num_rows == 2
