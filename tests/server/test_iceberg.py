"""Iceberg's REST catalog: what it lists, whom it refuses, and that Iceberg's clients read by it."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.metadata import TableMetadataUtil

import txlake
from tests.pages import blocks, page
from tests.peers import need
from tests.server.client import Client, failed
from tests.server.process import ServerProcess
from tests.server.test_sql import ALL, READER, TOKENS
from txlake import packages
from txlake.server.app import ENDPOINTS, ICEBERG_ROOT
from txlake.server.iceberg import ENDPOINTS as LISTED

PAGE_TOKEN = "the-token-of-a-reader"
DUCKDB = Path(__file__).parents[1] / "iceberg/duckdb_program.py"
PUBLISHED = (
    "TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true', "
    "'delta.universalFormat.enabledFormats' = 'iceberg')"
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    """A lake with a published table, another one, and a database without tables."""
    with (
        txlake.connect(str(tmp_path / "lake")) as lake,
        Client(lake, tokens=TOKENS) as made,
    ):
        for text in (
            f"CREATE TABLE orders (id INT, p INT) PARTITIONED BY (p) {PUBLISHED}",
            "INSERT INTO orders VALUES (1, 1), (2, 2)",
            "CREATE TABLE plain (id INT)",
            "CREATE DATABASE empty COMMENT 'nothing yet'",
        ):
            run(lake, text)
        yield made


def run(lake: txlake.Lake, text: str) -> None:
    """Run a statement; nothing is asked of its result, so that no Spark is needed."""
    from txlake.session.command import AsRows

    lake._run_sql(text, None, AsRows())


def get(client: Client, path: str, token: str = READER) -> Any:
    answer = client.call("GET", f"{ICEBERG_ROOT}{path}", token=token)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_is_listed(served: Client) -> None:
    assert get(served, "/namespaces")["namespaces"] == [["default"], ["empty"]]
    assert get(served, "/namespaces?parent=empty")["namespaces"] == []
    found = get(served, "/namespaces/empty")
    assert found == {"namespace": ["empty"], "properties": {"comment": "nothing yet"}}
    listed = get(served, "/namespaces/default/tables")
    assert listed["identifiers"] == [{"namespace": ["default"], "name": "orders"}]
    assert get(served, "/namespaces/empty/tables")["identifiers"] == []


def test_pages(served: Client) -> None:
    first = get(served, "/namespaces?pageSize=1")
    assert first == {"namespaces": [["default"]], "next-page-token": "1"}
    token = first["next-page-token"]
    second = get(served, f"/namespaces?pageSize=1&pageToken={token}")
    assert second == {"namespaces": [["empty"]], "next-page-token": None}
    wrong = served.call("GET", f"{ICEBERG_ROOT}/namespaces?pageSize=-1", token=READER)
    failed(wrong, 400, "BadRequestException", "invalid page")


def test_a_table_is_loaded_at_its_newest_version(served: Client) -> None:
    found = get(served, "/namespaces/default/tables/orders")
    metadata = TableMetadataUtil.parse_obj(found["metadata"])
    assert metadata.properties["delta-version"] == "1"
    assert found["metadata-location"].endswith("/metadata/v2.metadata.json")
    assert found["config"] == {}
    assert len(metadata.snapshots) == 2
    refs = get(served, "/namespaces/default/tables/orders?snapshots=refs")["metadata"]
    assert [one["snapshot-id"] for one in refs["snapshots"]] == [metadata.current_snapshot_id]


def test_versions_that_a_killed_process_left_are_published_first(
    served: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr("txlake.commit.checkpointing.publish_after", lambda log, snapshot: None)
        run(served.lake, "INSERT INTO orders VALUES (3, 1)")
    found = get(served, "/namespaces/default/tables/orders")["metadata"]
    assert found["properties"]["delta-version"] == "2"


def test_what_exists(served: Client) -> None:
    for path, status in (
        ("/namespaces/default", 204),
        ("/namespaces/nope", 404),
        ("/namespaces/default/tables/orders", 204),
        ("/namespaces/default/tables/plain", 404),
        ("/namespaces/default/tables/nope", 404),
    ):
        answer = served.call("HEAD", f"{ICEBERG_ROOT}{path}", token=READER)
        assert answer.status_code == status, path
    report = served.call(
        "POST", f"{ICEBERG_ROOT}/namespaces/default/tables/orders/metrics", {}, token=READER
    )
    assert report.status_code == 204


def test_what_is_missing_is_named_as_iceberg_names_it(served: Client) -> None:
    for path, kind, text in (
        ("/namespaces/nope/tables", "NoSuchNamespaceException", "'nope'"),
        ("/namespaces/default%1Finner", "NoSuchNamespaceException", "'default.inner'"),
        ("/namespaces?parent=nope", "NoSuchNamespaceException", "'nope'"),
        ("/namespaces/default/tables/nope", "NoSuchTableException", "default.nope"),
        ("/namespaces/nope/tables/orders", "NoSuchTableException", "nope.orders"),
        # As Iceberg's clients ask for the metadata table default.orders.snapshots at first.
        ("/namespaces/default%1Forders/tables/snapshots", "NoSuchTableException", "default.orders"),
        ("/namespaces/default/tables/plain", "NoSuchTableException", "SET TBLPROPERTIES"),
        ("/config?warehouse=other", "NoSuchWarehouseException", "'other'"),
    ):
        failed(served.call("GET", f"{ICEBERG_ROOT}{path}", token=READER), 404, kind, text)


def test_the_configuration_lists_the_routes_that_read(served: Client) -> None:
    assert get(served, "/config")["endpoints"] == list(LISTED)
    assert get(served, "/config?warehouse=lake") == get(served, "/config")
    own = [one for one in ENDPOINTS if one.path.startswith(ICEBERG_ROOT) and not one.changes]
    routes = {f"{one.method} {one.path}" for one in own if not one.path.endswith("/config")}
    prefixed = {one.replace("/v1/{prefix}", ICEBERG_ROOT) for one in LISTED}
    assert routes == prefixed


def test_every_route_that_writes_is_refused(served: Client) -> None:
    writing = [one for one in ENDPOINTS if one.path.startswith(ICEBERG_ROOT) and one.changes]
    assert len(writing) == 13
    for one in writing:
        path = one.path.format(namespace="default", table="orders", view="v")
        answer = served.call(one.method, path, {}, token=ALL)
        failed(answer, 406, "UnsupportedOperationException", "this catalog is to read")
        assert served.call(one.method, path, {}, token=READER).status_code == 403
    assert get(served, "/namespaces/default/tables/orders")["metadata"]["last-sequence-number"] == 2


def test_without_pyiceberg_the_catalog_says_so(
    served: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    answer = served.call("GET", f"{ICEBERG_ROOT}/config", token=READER)
    failed(answer, 501, "NotImplementedException", "pip install 'txlake[iceberg]'")


def test_pyiceberg_reads_by_the_catalog(tmp_path: Path) -> None:
    warehouse, tokens = tmp_path / "lake", tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"token": READER, "name": "r", "read_only": True}]))
    with txlake.connect(str(warehouse)) as lake:
        run(lake, f"CREATE TABLE orders (id INT, p INT) PARTITIONED BY (p) {PUBLISHED}")
        run(lake, "INSERT INTO orders VALUES (1, 1), (2, 2)")
        run(lake, "DELETE FROM orders WHERE p = 2")
        run(lake, "CREATE TABLE plain (id INT)")
    with ServerProcess(warehouse, "--token-file", str(tokens)) as server:
        catalog = load_catalog("lake", type="rest", uri=f"{server.url}/iceberg", token=READER)
        assert catalog.list_namespaces() == [("default",)]
        assert catalog.list_tables("default") == [("default", "orders")]
        table = catalog.load_table("default.orders")
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "p": 1}]
        before = table.history()[1].snapshot_id
        rows = table.scan(snapshot_id=before, row_filter="id > 1").to_arrow().to_pylist()
        assert rows == [{"id": 2, "p": 2}]
        with pytest.raises(NoSuchTableError, match="SET TBLPROPERTIES"):
            catalog.load_table("default.plain")
        with pytest.raises(NotImplementedError):
            catalog.create_namespace("mine")
        [program] = blocks(page("docs/iceberg.md"), "python")
        local = program.replace("http://127.0.0.1:8080", server.url).replace(PAGE_TOKEN, READER)
        with redirect_stdout(io.StringIO()) as printed:
            exec(local, {})
        assert printed.getvalue().splitlines() == ["[('default', 'orders')]", "[]", "2"]
        assert server.stop() in (0, -15)


@pytest.mark.peer("duckdb")
def test_duckdb_attaches_the_lake_as_the_page_says(tmp_path: Path) -> None:
    python = Path(__file__).parents[2] / ".cache/duckdb-delta/bin/python"
    need("duckdb", found=python.exists())
    warehouse, tokens = tmp_path / "lake", tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"token": READER, "name": "r"}]))
    with txlake.connect(str(warehouse)) as lake:
        run(lake, f"CREATE TABLE orders (id INT, p INT) PARTITIONED BY (p) {PUBLISHED}")
        run(lake, "INSERT INTO orders VALUES (1, 1), (2, 2)")
    own, attached = blocks(page("docs/iceberg.md"), "sql")
    assert "CREATE TABLE" in own
    insert = "INSERT INTO lake.default.orders VALUES (3, 3); SELECT id FROM lake.default.orders"
    with ServerProcess(warehouse, "--token-file", str(tokens)) as server:
        local = attached.replace("http://127.0.0.1:8080", server.url).replace(PAGE_TOKEN, READER)
        statements = [one for one in f"{local.strip()} {insert}".split(";") if one.strip()]
        ran = subprocess.run(
            [python, DUCKDB, *statements], capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0, ran.stderr
        answers = [json.loads(line) for line in ran.stdout.splitlines()]
        assert server.stop() in (0, -15)
    assert answers[2] == [[2, 2]]
    assert "this catalog is to read" in answers[3]
    assert sorted(answers[4]) == [[1], [2]]
