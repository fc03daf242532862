"""What OpenLineage is told of transactions: tables, versions, outcomes; no commit waits for it."""

from __future__ import annotations

import json
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde
from pyspark.sql import SparkSession

import txlake
from txlake.cli.connecting import lake_connection
from txlake.errors import Conflict, InvalidRequest
from txlake.session.command import AsRows
from txlake.session.lineage import TransactionFacts, dataset_of, emitter_of
from txlake.session.lineage.emitter import Emitter
from txlake.session.lineage.events import SCHEMAS, events_of, job_name
from txlake.sql.statements import NativeFrame, StreamBatch, TableName, Write

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "openlineage"


class Told:
    """What was sent, as JSON, in a file that the client's own configuration names."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "events.jsonl"
        config = folder / "openlineage.yml"
        config.write_text(f"transport: {{type: file, log_file_path: {self._file}, append: true}}\n")
        monkeypatch.setenv("OPENLINEAGE_CONFIG", str(config))
        self.namespace = f"test-{uuid.uuid4()}"
        self.settings = txlake.Settings(openlineage=self.namespace)

    def events(self) -> list[dict[str, Any]]:
        """All events so far; each is checked."""
        assert emitter_of(self.namespace).flush(60)
        if not self._file.exists():
            return []
        found = [json.loads(line) for line in self._file.read_text().splitlines()]
        for event in found:
            check(event)
        return found

    def last(self) -> dict[str, Any]:
        """The newest event, whose run has begun before."""
        begun, ended = self.events()[-2:]
        assert begun["eventType"] == "START"
        assert begun["run"]["runId"] == ended["run"]["runId"]
        assert begun["job"]["name"] == ended["job"]["name"]
        assert begun["eventTime"] <= ended["eventTime"]
        return ended


def check(event: dict[str, Any]) -> None:
    """Raise unless an event's own facets have their schemas, and the others the client's."""
    assert event["job"]["namespace"].startswith("test-")
    for facet in event["run"]["facets"].values():
        name = facet["_schemaURL"].removeprefix(SCHEMAS)
        if name != facet["_schemaURL"]:
            jsonschema.validate(facet, json.loads((FOLDER / f"{name}.json").read_text()))
        else:
            assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(tmp_path, monkeypatch)


@pytest.fixture
def lake(tmp_path: Path, told: Told) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake"), settings=told.settings) as made:
        run(made, "CREATE TABLE orders (id INT COMMENT 'key', n STRUCT<a: INT>)")
        run(made, "CREATE TABLE stock (id INT, pieces INT)")
        yield made


def run(lake: Any, *texts: str) -> None:
    for text in texts:
        lake._run_sql(text, None, AsRows())


def names(datasets: list[dict[str, Any]]) -> list[str]:
    return [one["facets"]["symlinks"]["identifiers"][0]["name"] for one in datasets]


def test_an_insert_has_an_output_and_no_input(
    lake: txlake.Lake, told: Told, tmp_path: Path
) -> None:
    run(lake, "INSERT INTO stock VALUES (1, 10), (2, 20)")
    event = told.last()
    assert event["eventType"] == "COMPLETE"
    assert event["job"]["name"] == "WRITE default.stock"
    assert event["inputs"] == []
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == ("file", str(tmp_path / "lake" / "stock"))
    facets = output["facets"]
    assert facets["version"]["datasetVersion"] == "1"
    (link,) = facets["symlinks"]["identifiers"]
    assert link == {
        "namespace": (tmp_path / "lake").as_uri(),
        "name": "default.stock",
        "type": "TABLE",
    }
    assert [(one["name"], one["type"]) for one in facets["schema"]["fields"]] == [
        ("id", "int"),
        ("pieces", "int"),
    ]
    assert facets["storage"]["storageLayer"] == "delta"
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (2, 1)
    files = list((tmp_path / "lake" / "stock").glob("*.parquet"))
    assert statistics["size"] == sum(file.stat().st_size for file in files)
    assert event["run"]["facets"]["txlake_transaction"]["outcome"] == "committed"
    assert event["run"]["facets"]["processing_engine"]["name"] == "txlake"


def test_nested_columns_and_comments_are_in_the_schema(lake: txlake.Lake, told: Told) -> None:
    (output,) = next(
        event["outputs"] for event in told.events() if "orders" in str(event["outputs"])
    )
    key, struct = output["facets"]["schema"]["fields"]
    assert (key["name"], key["description"]) == ("id", "key")
    assert struct["type"] == "struct"
    assert [one["name"] for one in struct["fields"]] == ["a"]


def test_a_change_reads_what_it_changes_at_the_version_that_it_read(
    lake: txlake.Lake, told: Told
) -> None:
    run(lake, "INSERT INTO stock VALUES (1, 10), (2, 20)")
    run(lake, "DELETE FROM stock WHERE id = 1")
    event = told.last()
    assert event["job"]["name"] == "DELETE default.stock"
    assert [one["facets"]["version"]["datasetVersion"] for one in event["inputs"]] == ["1"]
    assert [one["facets"]["version"]["datasetVersion"] for one in event["outputs"]] == ["2"]


def test_a_transaction_is_one_run_over_all_of_its_tables(lake: txlake.Lake, told: Told) -> None:
    run(lake, "INSERT INTO stock VALUES (1, 10)")
    before = len(told.events())
    with lake.transaction("serializable") as tx:
        run(tx, "SELECT id FROM stock")
        run(tx, "INSERT INTO orders (id) VALUES (1)")
        run(tx, "UPDATE stock SET pieces = 9 WHERE id = 1")
    event = told.last()
    assert len(told.events()) == before + 2
    assert event["run"]["runId"] == tx.id
    assert names(event["inputs"]) == ["default.stock"]
    assert sorted(names(event["outputs"])) == ["default.orders", "default.stock"]
    assert event["job"]["name"] == "UPDATE default.stock, WRITE default.orders"
    assert event["run"]["facets"]["txlake_transaction"]["isolation"] == "serializable"


def test_a_query_has_inputs_only_and_a_statement_without_tables_isnt_told(
    lake: txlake.Lake, told: Told
) -> None:
    run(lake, "SELECT id FROM stock")
    event = told.last()
    assert (event["eventType"], event["job"]["name"]) == ("COMPLETE", "READ default.stock")
    assert (names(event["inputs"]), event["outputs"]) == (["default.stock"], [])
    before = len(told.events())
    run(lake, "SHOW TABLES", "DESCRIBE DETAIL stock", "VACUUM stock", "BEGIN", "COMMIT")
    assert len(told.events()) == before


def origins(output: dict[str, Any]) -> dict[str, list[tuple[str, str, str]]]:
    """By column, the columns that it is made of: the table, the column, and how."""
    facet = output["facets"]["columnLineage"]
    assert facet["_schemaURL"].endswith("#/$defs/ColumnLineageDatasetFacet")
    fields = {name: one["inputFields"] for name, one in facet["fields"].items()}
    return {
        name: [
            (Path(one["name"]).name, one["field"], f"{way['type']} {way.get('subtype')}")
            for one in inputs
            for way in one["transformations"]
        ]
        for name, inputs in {**fields, "": facet.get("dataset", [])}.items()
    }


def test_an_update_tells_what_its_columns_are_made_of(
    lake: txlake.Lake, told: Told, tmp_path: Path
) -> None:
    run(lake, "INSERT INTO stock VALUES (1, 10)")
    (inserted,) = told.last()["outputs"]
    assert "columnLineage" not in inserted["facets"]
    run(lake, "UPDATE stock SET Pieces = pieces + 1 WHERE id = 1")
    (output,) = told.last()["outputs"]
    assert origins(output) == {
        "pieces": [("stock", "pieces", "DIRECT TRANSFORMATION")],
        "": [("stock", "id", "INDIRECT FILTER")],
    }
    facet = output["facets"]["columnLineage"]
    [source] = facet["fields"]["pieces"]["inputFields"]
    assert (source["namespace"], source["name"]) == ("file", str(tmp_path / "lake" / "stock"))


def test_the_columns_of_a_transaction_are_those_of_the_statements_that_stay(
    lake: txlake.Lake, told: Told
) -> None:
    run(lake, "INSERT INTO stock VALUES (1, 10)")
    with lake.transaction() as tx:
        run(tx, "UPDATE stock SET pieces = id WHERE id = 1", "SAVEPOINT s")
        run(tx, "UPDATE stock SET id = pieces WHERE id = 1", "ROLLBACK TO s")
        run(tx, "DELETE FROM stock WHERE id = 7", "INSERT INTO stock VALUES (2, 20)")
    (output,) = told.last()["outputs"]
    assert origins(output) == {
        "pieces": [("stock", "id", "DIRECT IDENTITY")],
        "": [("stock", "id", "INDIRECT FILTER")],
    }
    with lake.transaction() as tx:
        run(tx, "UPDATE stock SET pieces = id WHERE id = 1")
        run(tx, "ALTER TABLE stock SET TBLPROPERTIES (a = 'b')")
    (output,) = told.last()["outputs"]
    assert "columnLineage" not in output["facets"]
    tx = lake.begin()
    run(tx, "UPDATE stock SET pieces = id WHERE id = 1")
    tx.rollback()
    (output,) = told.last()["outputs"]
    assert "columnLineage" not in output["facets"]


def test_statements_keep_no_texts_where_nothing_is_told(tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "other")) as lake:
        run(lake, "CREATE TABLE t (id INT, n INT)", "INSERT INTO t VALUES (1, 2)")
        with lake.transaction() as tx:
            run(tx, "UPDATE t SET n = id WHERE id = 1")
            assert tx._own_transaction().writes == ()


def test_a_table_that_is_dropped_is_no_output(lake: txlake.Lake, told: Told) -> None:
    before = len(told.events())
    run(lake, "DROP TABLE stock")
    assert len(told.events()) == before
    tx = lake.begin()
    run(tx, "INSERT INTO orders (id) VALUES (1)", "CREATE TABLE made (id INT)", "DROP TABLE made")
    tx.commit()
    assert names(told.last()["outputs"]) == ["default.orders"]


def test_a_micro_batch_of_a_stream_is_told(lake: txlake.Lake, told: Told) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "pieces": pa.array([3, 4], pa.int32())})
    batch = Write(
        table=TableName(("stock",)),
        source=NativeFrame(rows),
        mode="append",
        batch=StreamBatch(query_id="a-query", batch_id=0, output_mode="append"),
    )
    lake._session.perform(batch)
    event = told.last()
    assert event["eventType"] == "COMPLETE"
    assert event["job"]["name"] == "STREAMING UPDATE default.stock"
    assert names(event["outputs"]) == ["default.stock"]
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert "columnLineage" not in event["outputs"][0]["facets"]


def test_a_rollback_aborts_and_makes_no_version(lake: txlake.Lake, told: Told) -> None:
    tx = lake.begin()
    run(tx, "INSERT INTO stock VALUES (1, 10)")
    tx.rollback()
    event = told.last()
    assert event["eventType"] == "ABORT"
    (output,) = event["outputs"]
    assert "version" not in output["facets"]
    assert not output.get("outputFacets")
    tx.rollback()
    assert told.events()[-1] == event


def test_a_conflict_fails_with_its_evidence_and_no_rows(lake: txlake.Lake, told: Told) -> None:
    run(lake, "INSERT INTO stock VALUES (4711, 10)")
    one, two = lake.begin(), lake.begin()
    run(one, "UPDATE stock SET pieces = 1 WHERE id = 4711")
    run(two, "UPDATE stock SET pieces = 2 WHERE id = 4711")
    one.commit()
    with pytest.raises(Conflict):
        two.commit()
    event = told.last()
    assert (event["eventType"], event["run"]["runId"]) == ("FAIL", two.id)
    facets = event["run"]["facets"]
    conflict = facets["txlake_conflict"]
    assert (conflict["table"], conflict["readVersion"], conflict["winningVersion"]) == (
        "default.stock",
        1,
        2,
    )
    assert (conflict["operation"], conflict["retry"]) == ("UPDATE", True)
    assert facets["errorMessage"]["message"].startswith(conflict["error"])
    assert "4711" not in json.dumps(event)


def test_a_failed_statement_fails_its_run_once(lake: txlake.Lake, told: Told) -> None:
    tx = lake.begin()
    run(tx, "INSERT INTO stock VALUES (1, 10)")
    with pytest.raises(InvalidRequest):
        run(tx, "DELETE FROM stock WHERE nothing = 1")
    tx.rollback()
    ends = [one for one in told.events() if one["run"]["runId"] == tx.id]
    assert [one["eventType"] for one in ends] == ["START", "FAIL"]
    assert ends[-1]["run"]["facets"]["errorMessage"]["message"] == "InvalidRequest"


def test_a_branch_is_a_dataset_of_its_own(lake: txlake.Lake, told: Told) -> None:
    run(lake, "CREATE BRANCH work", "USE BRANCH work", "INSERT INTO stock VALUES (1, 10)")
    event = told.last()
    (output,) = event["outputs"]
    assert output["name"].endswith("@branch:work")
    assert event["run"]["facets"]["txlake_transaction"]["branch"] == "work"


def test_a_path_table_has_no_symlink(told: Told, tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "lake"), settings=told.settings) as lake:
        place = tmp_path / "a folder"
        run(lake, f"CREATE TABLE delta.`{place}` (id INT)")
        run(lake, f"INSERT INTO delta.`{place}` VALUES (1)")
    (output,) = told.last()["outputs"]
    assert (output["namespace"], output["name"]) == ("file", str(place))
    assert output["facets"]["version"]["datasetVersion"] == "1"
    assert "symlinks" not in output["facets"]


def test_an_optimize_writes_the_rows_that_it_reads(lake: txlake.Lake, told: Told) -> None:
    run(lake, "INSERT INTO stock VALUES (1, 10)", "INSERT INTO stock VALUES (2, 20)")
    run(lake, "OPTIMIZE stock")
    event = told.last()
    assert event["job"]["name"] == "OPTIMIZE default.stock"
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2


@pytest.mark.parametrize(
    ("url", "dataset"),
    [
        ("file:///data/a%20b/", ("file", "/data/a b")),
        ("s3://bucket/lake/t", ("s3://bucket", "lake/t")),
        ("s3a://bucket/lake/t", ("s3://bucket", "lake/t")),
        ("gs://bucket/t", ("gs://bucket", "t")),
        (
            "abfss://files@account.dfs.core.windows.net/lake/t",
            ("abfss://files@account.dfs.core.windows.net", "lake/t"),
        ),
        ("hdfs://name:8020/lake/t", ("hdfs://name:8020", "/lake/t")),
    ],
)
def test_datasets_are_named_as_the_specification_says(url: str, dataset: tuple[str, str]) -> None:
    assert dataset_of(url) == dataset


def a_transaction(**changes: Any) -> TransactionFacts:
    facts = {
        "id": str(uuid.uuid4()),
        "begin_ms": 1,
        "end_ms": 2,
        "outcome": "committed",
        "level": None,
        "branch": None,
        "tables": (),
    }
    return TransactionFacts(**{**facts, **changes})


def test_an_unknown_outcome_ends_no_run() -> None:
    begun, ended = events_of(a_transaction(outcome="unknown", error="OutcomeUnknown"), "test-a")
    assert isinstance(begun, RunEvent)
    assert [Serde.to_dict(one)["eventType"] for one in (begun, ended)] == ["START", "OTHER"]
    assert job_name(()) == "READ "


def test_what_isnt_received_delays_nothing_and_is_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver answers nothing until the end."""
    release = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            release.wait(60)
            self.send_error(500)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
        emitter = Emitter("test-a", queue_max=2)
        with caplog.at_level(logging.WARNING, "txlake.session.lineage.emitter"):
            for _ in range(8):
                emitter.put(a_transaction())
            assert not emitter.flush(0.1)
        assert emitter.dropped >= 5
        assert "events of 4 transactions were dropped" in caplog.text
        release.set()
        server.shutdown()
        thread.join(60)


def test_a_receiver_that_fails_fails_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "openlineage.yml"
    config.write_text("transport: {type: lost.module.Transport}\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(config))
    namespace = f"test-{uuid.uuid4()}"
    settings = txlake.Settings(openlineage=namespace)
    with (
        caplog.at_level(logging.WARNING, "txlake.session.lineage.emitter"),
        txlake.connect(str(tmp_path / "lake"), settings=settings) as lake,
    ):
        run(lake, "CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)")
        assert emitter_of(namespace).flush(60)
    assert emitter_of(namespace).dropped == 2
    assert "events of 1 transactions were dropped" in caplog.text


def test_facts_that_cant_be_found_fail_no_commit(
    lake: txlake.Lake,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object) -> Any:
        raise ValueError("broken")

    before = len(told.events())
    monkeypatch.setattr("txlake.session.transaction.facts_of", broken)
    run(lake, "INSERT INTO stock VALUES (1, 10)")
    assert len(told.events()) == before
    assert "isn't told to OpenLineage" in caplog.text


def test_nothing_is_told_unless_the_settings_say_so(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with txlake.connect(str(tmp_path / "other")) as lake:
        run(lake, "CREATE TABLE t (id INT)")
    assert told.events() == []
    missing: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", missing)
    with pytest.raises(InvalidRequest, match=r"txlake\[openlineage\]"):
        txlake.connect(str(tmp_path / "lake"), settings=told.settings)
    assert "openlineage.client" in sys.modules  # by this test alone: importing txlake doesn't


def test_the_command_line_is_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXLAKE_OPENLINEAGE", "jobs")
    assert lake_connection("lake", None, None, None).openlineage == "jobs"
    monkeypatch.setenv("TXLAKE_OPENLINEAGE", "")
    assert lake_connection("lake", None, None, None).openlineage is None


@pytest.mark.broad
def test_a_merge_and_a_query_that_makes_a_table_read_their_sources(
    spark: SparkSession, told: Told, tmp_path: Path
) -> None:
    with txlake.connect(str(tmp_path / "lake"), spark=spark, settings=told.settings) as lake:
        run(lake, "CREATE TABLE b (id INT, n INT)", "INSERT INTO b VALUES (1, 1), (2, 2)")
        run(lake, "CREATE TABLE c AS SELECT id, n * 2 AS m FROM b")
        made = told.last()
        assert (names(made["inputs"]), names(made["outputs"])) == (["default.b"], ["default.c"])
        assert origins(made["outputs"][0]) == {
            "id": [("b", "id", "DIRECT IDENTITY")],
            "m": [("b", "n", "DIRECT TRANSFORMATION")],
            "": [],
        }
        run(
            lake,
            "MERGE INTO b USING c ON b.id = c.id AND c.id < 2 WHEN MATCHED THEN UPDATE SET n = c.m "
            "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (c.id, c.m)",
        )
        merged = told.last()
        run(lake, "CREATE VIEW seen AS SELECT id AS k, m FROM c WHERE m > 1")
        run(lake, "INSERT INTO b SELECT s.k, max(s.m) FROM default.seen s GROUP BY s.k")
        assert origins(told.last()["outputs"][0]) == {
            "id": [("c", "id", "DIRECT IDENTITY")],
            "n": [("c", "m", "DIRECT AGGREGATION")],
            "": [("c", "id", "INDIRECT GROUP_BY"), ("c", "m", "INDIRECT FILTER")],
        }
    assert merged["job"]["name"] == "MERGE default.b"
    versions = {
        name: one["facets"]["version"]["datasetVersion"]
        for name, one in zip(names(merged["inputs"]), merged["inputs"], strict=True)
    }
    assert versions == {"default.b": "1", "default.c": "0"}
    assert origins(merged["outputs"][0]) == {
        "id": [("c", "id", "DIRECT IDENTITY")],
        "n": [("c", "m", "DIRECT IDENTITY")],
        "": [("b", "id", "INDIRECT JOIN"), ("c", "id", "INDIRECT JOIN")],
    }
    assert names(merged["outputs"]) == ["default.b"]
    assert merged["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
