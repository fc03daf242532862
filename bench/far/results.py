"""The results of a run, as JSON keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.far.measuring import Measured, Race
from bench.far.statements import median


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a statement has no result."""

    reason: str


Cell = Measured | Race | Missing
_KINDS: Mapping[str, type[Cell]] = {kind.__name__: kind for kind in (Measured, Race, Missing)}


@dataclass
class AtLatency:
    """What was measured while each request took so long.

    Attributes:
        server: the server's own milliseconds a request by kind, and `requests_s`, how many requests
            a second it answers to eight clients, all without any delay.
        cells: by column and statement.
    """

    server: dict[str, float] = field(default_factory=dict)
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)

    def seconds(self, key: str) -> dict[str, float]:
        """Return a statement's median time by column."""
        return {
            column: median(cell.seconds)
            for column, cells in self.cells.items()
            if isinstance(cell := cells.get(key), Measured)
        }


@dataclass
class Results:
    """One run.

    Attributes:
        date: the day.
        machine: the machine and its load, in words.
        store: what is far away: `s3`, `azurite` or `postgresql`.
        sizes: how many rows, commits, seconds and repeats, by name.
        latencies: by milliseconds a request.
    """

    date: str
    machine: str
    store: str
    sizes: dict[str, int]
    latencies: dict[str, AtLatency] = field(default_factory=dict)


def save(results: Results, path: Path) -> None:
    """Write the results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = asdict(results)
    for latency, at_latency in results.latencies.items():
        record["latencies"][latency]["cells"] = {
            column: {key: {type(cell).__name__: asdict(cell)} for key, cell in cells.items()}
            for column, cells in at_latency.cells.items()
        }
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")


def load(path: Path) -> Results:
    """Return the results that `save` wrote."""
    record = json.loads(path.read_text(encoding="utf-8"))
    latencies = {
        latency: AtLatency(
            at_latency["server"],
            {
                column: {key: cell_of(cell) for key, cell in cells.items()}
                for column, cells in at_latency["cells"].items()
            },
        )
        for latency, at_latency in record.pop("latencies").items()
    }
    return Results(**record, latencies=latencies)


def cell_of(record: Mapping[str, Mapping[str, object]]) -> Cell:
    """Return a cell from its JSON: the fields below the name of the class."""
    [(kind, fields)] = ((name, record[name]) for name in _KINDS if name in record)
    return _KINDS[kind](**fields)  # type: ignore[arg-type]
