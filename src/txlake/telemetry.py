"""Spans and metrics for OpenTelemetry, where the program has loaded it; nothing otherwise.

Owns their names. Reported are kinds of statements, tables, rules and times: no text of a statement,
no condition and no row. The extra `otel` brings the API; the SDK and its exporters are the
program's own choice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Attribute = str | int | float | bool

METRICS = {
    "txlake.commits": ("1", "transactions that were committed"),
    "txlake.commit.duration": ("ms", "from the COMMIT to its end"),
    "txlake.commit.retries": ("1", "attempts to commit that lost to another writer's commit"),
    "txlake.conflicts": ("1", "transactions that lost, by error, rule and table"),
    "txlake.rebase.duration": ("ms", "to read and check what other writers committed meanwhile"),
    "txlake.auto_compactions": (
        "1",
        "compactions by themselves after a commit, by outcome",
    ),
    "txlake.iceberg_publications": (
        "1",
        "versions published as Iceberg metadata, by outcome",
    ),
    "txlake.maintenance.works": ("1", "works of maintenance, by kind and outcome"),
    "txlake.maintenance.duration": ("ms", "of one work of maintenance, by kind"),
    "txlake.lock.wait": ("ms", "for a lock that another session held"),
}
"""The unit and description of each metric; a unit of ms makes it a histogram, else a counter."""

# By metric name: the provider for which the instrument was created, and the instrument.
_instruments: dict[str, tuple[Any, Any]] = {}


@contextmanager
def span(name: str, **attributes: Attribute | None) -> Iterator[None]:
    """Run the block as a span `txlake.<name>`; report only the class of an error that leaves it.

    The attributes are called `txlake.<attribute>`; those that are None are left out. Also a
    decorator: every call of the function is then a span.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        yield
        return
    # An error's message may quote rows and conditions.
    with api.get_tracer("txlake").start_as_current_span(
        f"txlake.{name}",
        attributes=_named(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as own:
        try:
            yield
        except BaseException as error:
            own.set_status(api.StatusCode.ERROR, type(error).__name__)
            raise


def count(name: str, **attributes: Attribute | None) -> None:
    """Add one to a metric."""
    instrument = _instrument(name)
    if instrument is not None:
        instrument.add(1, _named(attributes))


@contextmanager
def timed(name: str, **attributes: Attribute | None) -> Iterator[None]:
    """Record the block's duration as a value of a metric; also where it fails.

    Also a decorator, as `span`.
    """
    instrument = _instrument(name)
    if instrument is None:
        yield
        return
    start = time.perf_counter()
    try:
        yield
    finally:
        instrument.record(1_000 * (time.perf_counter() - start), _named(attributes))


def _instrument(name: str) -> Any | None:  # noqa: ANN401
    """Return the program's instrument; None where it has loaded no OpenTelemetry."""
    api = sys.modules.get("opentelemetry.metrics")
    if api is None:
        return None
    provider = api.get_meter_provider()
    known = _instruments.get(name)
    if known is not None and known[0] is provider:
        return known[1]
    unit, description = METRICS[name]
    meter = provider.get_meter("txlake")
    make = meter.create_histogram if unit == "ms" else meter.create_counter
    made = make(name, unit=unit, description=description)
    _instruments[name] = (provider, made)
    return made


def _named(attributes: dict[str, Attribute | None]) -> dict[str, Attribute]:
    return {f"txlake.{key}": value for key, value in attributes.items() if value is not None}
