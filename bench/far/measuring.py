"""Measure statements by the requests that the proxy saw: time, requests and round trips.

Imports the standard library alone, since DuckLake's engine runs in an environment of its own.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

CONTROL = "/_far/"
"""The path of requests to the proxy itself."""

# Longer than a process waits before it writes notes of publications to a server.
_QUIET_S = 0.6
_QUIET_LATENCIES = 4
_QUIET_LIMIT_S = 10.0
_REASON_LENGTH = 300


class Span(NamedTuple):
    """One request, in seconds of the machine's clock."""

    begun: float
    ended: float
    method: str
    key: str
    status: int


def longest_chain(spans: Sequence[Span]) -> list[Span]:
    """Return the largest number of requests of which each began after the one before had ended."""
    chain: list[Span] = []
    for span in sorted(spans, key=lambda span: span.ended):
        if not chain or span.begun >= chain[-1].ended:
            chain.append(span)
    return chain


@dataclass(frozen=True, slots=True)
class Measured:
    """A statement's repeats, a value for each.

    Attributes:
        seconds: how long each took.
        round_trips: how many requests it waited for, one after the other.
        requests: how many requests were sent before it ended.
        requests_after: how many more were sent until the store was idle.
        trace: the requests of one of the repeats with the median time, in milliseconds since its
            start: begun, ended, method, key, status, and whether it is of the longest chain.
    """

    seconds: Sequence[float]
    round_trips: Sequence[int]
    requests: Sequence[int]
    requests_after: Sequence[int]
    trace: Sequence[tuple[float, float, str, str, int, bool]] = ()


@dataclass(frozen=True, slots=True)
class Race:
    """What concurrent writers reached together.

    Attributes:
        commits_s: commits a second.
        entries_s: entries of the catalog's log a second; 0 for a catalog elsewhere.
        latency_s: how long a request takes.
        put_s: how long a PUT of the race took at the median, the server's own time included.
        share_min: the smallest number of commits of a process, divided by the mean.
        share_max: the largest number of commits of a process, divided by the mean.
        wait_s_p50: the median time of a commit.
        wait_s_p99: the 99th percentile.
        requests: how many requests a commit took on average.
    """

    commits_s: float
    entries_s: float
    latency_s: float
    put_s: float
    share_min: float
    share_max: float
    wait_s_p50: float
    wait_s_p99: float
    requests: float


class FarStore:
    """The proxy of a store, and its account of requests."""

    def __init__(self, address: str) -> None:
        self._address = address

    def control(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Send a request that is neither delayed nor counted, and return the reply's JSON."""
        with urllib.request.urlopen(f"{self._address}{CONTROL}{path}", timeout=30) as reply:
            return json.loads(reply.read())

    def set_latency(self, milliseconds: float) -> None:
        """Delay each answer by so much from now on."""
        self.control(f"latency/{milliseconds}")

    def spans(self) -> list[Span]:
        """Return the requests that were answered since the last reset, in order of their end."""
        return [Span(*span) for span in self.control("spans")]

    def wait_until_idle(self, idle_s: float) -> None:
        """Wait until no request has run for so long, for at most 10 s."""
        limit = time.monotonic() + _QUIET_LIMIT_S
        while time.monotonic() < limit:
            busy = self.control("busy")
            if busy["in_flight"] == 0 and busy["idle_s"] >= idle_s:
                return
            time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Task:
    """What an engine's process is asked to measure, as JSON on its command line.

    Attributes:
        engine: the module in `bench.far.engines`.
        variant: which catalog, settings or client the engine uses.
        address: the proxy.
        url: the folder in the store that is this process's own.
        storage_options: the store's, as txlake and delta-rs take them.
        latency_ms: how long each answer takes while statements are measured.
        sizes: how many rows, commits, seconds and repeats, by name.
        statements: the keys of the statements to measure.
        data: a folder with the rows to merge into and to sum.
        scratch: an empty folder of this machine.
        output: the file for the results, a JSON object a line.
        database: the PostgreSQL database of the catalog, as the engine takes it.
    """

    engine: str
    variant: str
    address: str
    url: str
    storage_options: Mapping[str, str]
    latency_ms: float
    sizes: Mapping[str, int]
    statements: Sequence[str]
    data: str
    scratch: str
    output: str
    database: str = ""


@dataclass
class Meter:
    """Measures the statements of one task, and writes each result as soon as it is there."""

    task: Task
    store: FarStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = FarStore(self.task.address)

    def wants(self, *keys: str) -> bool:
        """Return whether the task asks for one of these statements."""
        return not set(keys).isdisjoint(self.task.statements)

    @contextmanager
    def undelayed(self) -> Iterator[None]:
        """Let the store answer at once while the block runs, to prepare a statement."""
        self.store.set_latency(0)
        try:
            yield
        finally:
            self.store.set_latency(self.task.latency_ms)

    def run(
        self,
        key: str,
        work: Callable[[int], object],
        *,
        prepare: Callable[[], object] = lambda: None,
        before: Callable[[], object] = lambda: None,
        repeats: int | None = None,
    ) -> None:
        """Measure a statement, and write its result, or why there is none.

        Args:
            key: the statement's key.
            work: runs it, given the number of the repeat; 0 is a rehearsal that isn't measured.
            prepare: runs once, while the store answers at once.
            before: runs before each repeat, while the store answers at once.
            repeats: how often, in place of the task's number.
        """
        if not self.wants(key):
            return
        try:
            with self.undelayed():
                prepare()
            self.write(key, self._measure(work, before, repeats or self.task.sizes["repeats"]))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self.refuse(key, reason_of(error))

    def write(self, key: str, result: Measured | Race) -> None:
        """Append a result to the task's output."""
        self._append({"key": key, type(result).__name__: asdict(result)})

    def refuse(self, key: str, reason: str) -> None:
        """Append to the task's output why a statement has no result."""
        if self.wants(key):
            self._append({"key": key, "Missing": {"reason": reason}})

    def _append(self, record: Mapping[str, object]) -> None:
        with Path(self.task.output).open("a", encoding="utf-8") as output:
            output.write(json.dumps(record) + "\n")

    def _measure(
        self, work: Callable[[int], object], before: Callable[[], object], repeats: int
    ) -> Measured:
        idle_s = _QUIET_S + _QUIET_LATENCIES * self.task.latency_ms / 1000
        runs: list[tuple[float, float, list[Span]]] = []
        for number in range(repeats + 1):
            with self.undelayed():
                before()
                self.store.wait_until_idle(_QUIET_S)
            self.store.control("reset")
            begun = time.time()
            work(number)
            ended = time.time()
            self.store.wait_until_idle(idle_s)
            if number:
                runs.append((begun, ended, self.store.spans()))
        return measured(runs)


def measured(runs: Sequence[tuple[float, float, Sequence[Span]]]) -> Measured:
    """Return the account of repeats, each given by its start, its end and its requests.

    A request that was answered after the end is none that the statement waited for.
    """
    seconds = [ended - begun for begun, ended, _ in runs]
    chains = [
        longest_chain([span for span in spans if span.ended <= ended]) for _, ended, spans in runs
    ]
    sent = [sum(span.begun < ended for span in spans) for _, ended, spans in runs]
    middle = seconds.index(statistics.median_low(seconds))
    begun, _, spans = runs[middle]
    chain = set(chains[middle])
    return Measured(
        seconds=seconds,
        round_trips=[len(chain) for chain in chains],
        requests=sent,
        requests_after=[len(spans) - before for (_, _, spans), before in zip(runs, sent)],
        trace=[
            (
                round(1000 * (span.begun - begun), 1),
                round(1000 * (span.ended - begun), 1),
                span.method,
                span.key,
                span.status,
                span in chain,
            )
            for span in sorted(spans)
        ],
    )


def reason_of(error: BaseException) -> str:
    """Return an error's class and the first line of its message, shortened."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:_REASON_LENGTH]
