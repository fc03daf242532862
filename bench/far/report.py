"""Show results: the table with targets and misses, the profile of each miss, and traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from bench.amounts import count
from bench.far.measuring import Measured, Race
from bench.far.results import AtLatency, Cell, Missing, Results
from bench.far.statements import (
    BY_KEY,
    DATABASE,
    STATEMENTS,
    Column,
    Target,
    columns,
    median,
    misses,
)
from bench.pages import write_part

PART = "far"
DATABASE_PART = "far-database"
PAGE = "docs/benchmarks.md"
_WORD_LENGTH_MAX = 60


def title(key: str, sizes: dict[str, int]) -> str:
    """Return a statement's title with the run's sizes."""
    return BY_KEY[key].title.format(**{name: count(value) for name, value in sizes.items()})


def cell_text(cell: Cell | None) -> str:
    """Return a result in words: the median time, round trips, and requests (and those after)."""
    match cell:
        case None:
            return ""
        case Missing():
            return "no result"
        case Race():
            return _race_text(cell)
    after = median(cell.requests_after)
    return (
        f"{1000 * median(cell.seconds):,.0f} ms, {median(cell.round_trips):g} trips, "
        f"{median(cell.requests):g}{f' + {after:g}' if after else ''} requests"
    )


def _race_text(race: Race) -> str:
    parts = [f"{race.commits_s:.1f} commits/s"]
    if race.latency_s:
        parts.append(
            f"{race.commits_s * race.latency_s:.2f} of the bound "
            f"({race.entries_s * race.latency_s:.2f} entries)"
        )
    parts.append(f"shares {race.share_min:.2f}-{race.share_max:.2f}")
    if race.latency_s:
        parts.append(f"p99 {race.wait_s_p99 / race.latency_s:.0f} latencies")
        parts.append(f"a PUT took {1000 * race.put_s:.0f} ms")
    parts.append(f"{race.requests:.0f} requests each")
    return ", ".join(parts)


def target_text(target: Target) -> str:
    """Return what is to be reached, in words; empty when there is nothing."""
    parts = []
    if target.round_trips is not None:
        parts.append(f"{target.round_trips} trips")
    if target.requests is not None:
        parts.append(f"{target.requests} requests")
    if target.ratio is not None:
        parts.append(f"{target.ratio:g} x {target.beside}")
    if target.commits is not None:
        parts.append(f"{target.commits:g} of the bound")
    if target.entries is not None:
        parts.append(f"{target.entries:g} entries of the bound")
    if target.share is not None:
        parts.append(f"shares {target.share[0]:g}-{target.share[1]:g}")
    if target.wait is not None:
        parts.append(f"p99 {target.wait:g} latencies")
    return ", ".join(parts)


def judged(key: str, column: Column, at_latency: AtLatency) -> tuple[Cell | None, list[str] | None]:
    """Return a cell, and what it misses of its target; None where there is no target."""
    cell, target = at_latency.cells.get(column.key, {}).get(key), column.target(key)
    if not column.is_txlake or cell is None:
        return cell, None
    if isinstance(cell, Missing):
        return cell, None if target == Target() else ["no result"]
    return cell, misses(target, cell, at_latency.seconds(key))


def rows(results: Results, latency: str) -> Iterator[list[str]]:
    """Yield the table's rows: title, a cell for each column, and the target."""
    at_latency = results.latencies[latency]
    shown = shown_columns(at_latency)
    for statement in STATEMENTS:
        cells = []
        targets = [column.target(statement.key) for column in shown if column.is_txlake]
        for column in shown:
            cell, missed = judged(statement.key, column, at_latency)
            verdict = "" if missed is None else ": missed" if missed else ": met"
            cells.append(cell_text(cell) + verdict)
        if any(cells):
            target = target_text(targets[0] if targets else Target())
            yield [title(statement.key, results.sizes), *cells, target]


def shown_columns(at_latency: AtLatency) -> list[Column]:
    """Return the columns that something was measured of."""
    return [column for column in columns() if column.key in at_latency.cells]


def heads(results: Results, latency: str) -> list[str]:
    """Return the table's head."""
    shown = shown_columns(results.latencies[latency])
    return ["statement", *(column.title for column in shown), "to reach"]


def server_text(server: dict[str, float]) -> str:
    """Return in words how long the server itself takes, and the proxy."""
    kinds = ", ".join(f"{kind} {ms:.1f} ms" for kind, ms in server.items() if kind != "requests_s")
    rate = f"{server['requests_s']:.0f} requests/s to 8 clients"
    return f"server and proxy without delay: {kinds}; {rate}"


def console_table(results: Results, latency: str) -> Table:
    """Return one latency's table."""
    table = Table(*heads(results, latency), show_lines=True)
    for row in rows(results, latency):
        table.add_row(*map(escape, row))
    return table


def footers(results: Results, latency: str) -> Iterator[str]:
    """Yield a line for each miss with its profile, and for each statement without a result."""
    at_latency = results.latencies[latency]
    for statement in STATEMENTS:
        for column in shown_columns(at_latency):
            cell, missed = judged(statement.key, column, at_latency)
            place = f"{title(statement.key, results.sizes)}, {column.title}"
            if isinstance(cell, Missing):
                yield f"{place}: no result: {cell.reason}"
            elif missed:
                yield f"{place}: missed: {'; '.join(missed)}"
                if isinstance(cell, Measured):
                    yield f"    waited for: {'; '.join(_chain(cell)) or 'no request'}"


def _chain(cell: Measured) -> Iterator[str]:
    for begun, ended, method, key, _, waited in cell.trace:
        if waited:
            yield f"{begun:.0f}-{ended:.0f} {method} {short(key)}"


def short(key: str) -> str:
    """Return a key without the bucket, shortened in the middle."""
    key = key.removeprefix("/devstoreaccount1").removeprefix("/far").removeprefix("/")
    if len(key) <= _WORD_LENGTH_MAX:
        return key
    half = _WORD_LENGTH_MAX // 2 - 1
    return f"{key[:half]}…{key[-half:]}"


def trace(cell: Measured) -> Iterator[str]:
    """Yield a line for each request of a repeat; `*` marks those of the longest chain."""
    yield f"answered after {1000 * median(cell.seconds):.0f} ms"
    for begun, ended, method, key, status, waited in cell.trace:
        yield f"{'*' if waited else ' '} {begun:8.1f} {ended:8.1f} {method:6} {status} {key}"


def markdown(results: Results) -> str:
    """Return the tables as Markdown, each with its misses."""
    parts = []
    for latency, at_latency in results.latencies.items():
        about = ", ".join((results.store, results.date, results.machine))
        lines = [
            f"{latency} ms a request, {about}; {server_text(at_latency.server)}.",
            "",
            f"| {' | '.join(heads(results, latency))} |",
            f"|{' --- |' * len(heads(results, latency))}",
            *(f"| {' | '.join(row)} |" for row in rows(results, latency)),
            "",
            *(f"- {line}" for line in footers(results, latency) if not line.startswith(" ")),
        ]
        parts.append("\n".join(lines).rstrip() + "\n")
    return "\n".join(parts)


def write_page(results: Results, root: Path) -> None:
    """Write the tables between their marks. Raises SystemExit when the page has no marks."""
    part = DATABASE_PART if results.store == DATABASE else PART
    write_part(root / PAGE, part, markdown(results))
