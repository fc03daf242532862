"""Spans and metrics, as OpenTelemetry's own SDK receives them; and nothing without it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import txlake
from tests.pages import ROOT, page, table
from txlake import telemetry
from txlake.errors import Conflict, InvalidRequest
from txlake.session.command import AsRows

SECRET = "nobody-is-told"


def run(lake: txlake.LakeSession, text: str) -> None:
    """Carries SQL out without Spark."""
    lake._run_sql(text, None, AsRows())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Receives all spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """Receives all metrics."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    yield reader
    provider.shutdown()


def values(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    """By metric its points: attributes, and the sum or the count."""
    data = reader.get_metrics_data()
    found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
    for resource in [] if data is None else data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = getattr(point, "value", None)
                    value = point.count if value is None else value  # type: ignore[union-attr]
                    attributes = dict(point.attributes or {})
                    found.setdefault(metric.name, []).append((attributes, value))
    return found


def names(spans: InMemorySpanExporter) -> list[str]:
    """The spans that ended, in order."""
    return [one.name for one in spans.get_finished_spans()]


def one(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    """The only span of that name."""
    [found] = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def test_a_statement_and_its_commit_are_spans(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        run(lake, "CREATE TABLE t (id INT, s STRING)")
        spans.clear()
        run(lake, f"INSERT INTO t VALUES (1, '{SECRET}')")
        told = one(spans, "txlake.statement")
        assert dict(told.attributes or {}) == {"txlake.kind": "INSERT"}
        commit, attempt = one(spans, "txlake.commit"), one(spans, "txlake.attempt")
        assert commit.parent is not None
        assert attempt.parent is not None
        assert commit.parent.span_id == told.context.span_id
        assert attempt.parent.span_id == commit.context.span_id
        assert "txlake.publish" in names(spans)
        run(lake, f"UPDATE t SET id = 2 WHERE s = '{SECRET}'")
        spans.clear()
        with pytest.raises(InvalidRequest, match=SECRET):
            run(lake, f"UPDATE t SET id = '{SECRET}' WHERE id = 2")
        failed = one(spans, "txlake.statement")
        assert failed.status.status_code is trace.StatusCode.ERROR
        assert failed.status.description == "InvalidRequest"
        assert SECRET not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_commits_conflicts_and_retries_are_counted(
    tmp_path: Path, spans: InMemorySpanExporter, meter: InMemoryMetricReader
) -> None:
    place = str(tmp_path / "lake")  # opened twice, as two processes have it
    with txlake.connect(place) as lake, txlake.connect(place) as other:
        run(lake, "CREATE TABLE t (id INT, n INT); INSERT INTO t VALUES (1, 1), (2, 2)")
        run(lake, "BEGIN; UPDATE t SET n = 10 WHERE id = 1")
        run(other, "UPDATE t SET n = 20 WHERE id = 2")
        run(lake, "COMMIT")
        found = values(meter)
        assert found["txlake.commits"] == [({}, 4)]
        assert found["txlake.commit.retries"] == [({}, 1)]
        assert found["txlake.rebase.duration"][0][1] >= 1
        assert found["txlake.commit.duration"] == [({}, 4)]
        assert "txlake.conflicts" not in found
        assert "txlake.rebase" in names(spans)
        run(lake, "BEGIN; UPDATE t SET n = 11 WHERE id = 1")
        run(other, "UPDATE t SET n = 12 WHERE id = 1")
        with pytest.raises(Conflict) as caught:
            run(lake, "COMMIT")
        [(attributes, count)] = values(meter)["txlake.conflicts"]
        assert count == 1
        assert caught.value.evidence is not None
        assert attributes == {
            "txlake.error": type(caught.value).__name__,
            "txlake.rule": caught.value.evidence.rule,
            "txlake.table": "default.t",
        }


def test_waits_for_locks_are_measured(
    tmp_path: Path, spans: InMemorySpanExporter, meter: InMemoryMetricReader
) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake, lake.session() as other:
        run(lake, "CREATE TABLE t (id INT)")
        run(lake, "BEGIN; INSERT INTO t VALUES (1)")
        altering = threading.Thread(target=run, args=(other, "ALTER TABLE t ADD COLUMN n INT"))
        altering.start()
        waiting = False
        while not waiting:
            rows = lake.view("sys.dm_tran_locks").to_pylist()
            waiting = any(row["request_status"] == "WAIT" for row in rows)
        run(lake, "COMMIT")
        altering.join(60)
        assert not altering.is_alive()
    assert values(meter)["txlake.lock.wait"] == [({}, 1)]
    assert one(spans, "txlake.lock.wait").status.is_ok


def test_nothing_is_loaded_and_told_without_it(tmp_path: Path) -> None:
    code = (
        "import sys, txlake\n"
        "from txlake.session.command import AsRows\n"
        f"lake = txlake.connect({str(tmp_path / 'lake')!r})\n"
        "lake._run_sql('CREATE TABLE t (id INT); INSERT INTO t VALUES (1)', None, AsRows())\n"
        "lake.close()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_page_and_the_dashboard_have_all_metrics() -> None:
    rows = table(page("docs/operations.md"), "metric")
    assert [row[0].strip("`") for row in rows] == list(telemetry.METRICS)
    dashboard = json.loads((ROOT / "examples/grafana.json").read_text(encoding="utf-8"))
    shown = json.dumps(dashboard)
    for name, (unit, _) in telemetry.METRICS.items():
        told = name.replace(".", "_") + ("_total" if unit == "1" else "_milliseconds")
        assert told in shown, told
