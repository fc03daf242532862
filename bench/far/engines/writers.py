"""Processes that insert rows at once, each thread into a table of its own, and without Spark.

`python -m bench.far.engines.writers TASK NUMBER` is one of them. It reads from its standard input,
a line each, how many threads write and for how many seconds, and answers with the seconds that each
commit took, as JSON.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

import txlake
from bench.far.engines import tables
from bench.far.engines.lake import open_lake
from bench.far.measuring import Meter, Race, Span, Task
from txlake.session.command import AsRows

THREADS = 8
_ENTRY = re.compile(r"/_txlake/.*/log/\d+$")


def measure(meter: Meter) -> None:
    """Measure one process and several, of one thread and of eight each."""
    count = meter.task.sizes["processes"]
    races = {
        f"writers_{processes}x{threads}": (min(processes, count), threads)
        for processes in (1, 8)
        for threads in (1, THREADS)
    }
    if not meter.wants(*races):
        return
    with meter.undelayed():
        open_lake(meter.task).close()
    with ExitStack() as stack, meter.undelayed():
        writers = [stack.enter_context(_writer(meter.task, number)) for number in range(count)]
        for writer in writers:
            _answer(writer)
        for key, (processes, threads) in races.items():
            if meter.wants(key):
                meter.write(key, _race(meter, writers[:processes], threads))


def _race(meter: Meter, writers: Sequence[subprocess.Popen[str]], threads: int) -> Race:
    """Let some writers insert at once, and return what they reached."""
    seconds = meter.task.sizes["seconds"]
    meter.store.set_latency(meter.task.latency_ms)
    meter.store.control("reset")
    begun = time.monotonic()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(f"{threads} {seconds}\n")
        writer.stdin.flush()
    waits = [_answer(writer) for writer in writers]
    elapsed = time.monotonic() - begun
    spans = meter.store.spans()
    meter.store.set_latency(0)
    return race_of(waits, spans, elapsed, meter.task.latency_ms / 1000)


def race_of(
    waits: Sequence[Sequence[float]], spans: Sequence[Span], elapsed_s: float, latency_s: float
) -> Race:
    """Return what writers reached.

    Args:
        waits: the seconds of each commit, by process.
        spans: the store's requests.
        elapsed_s: how long it took.
        latency_s: how long a request takes.
    """
    counts = [len(each) for each in waits]
    every = sorted(wait for each in waits for wait in each)
    if not every:
        raise RuntimeError(f"no commit of {len(waits)} processes in {elapsed_s:.0f} s")
    mean = len(every) / len(waits)
    entries = sum(
        span.method == "PUT" and span.status == 200 and bool(_ENTRY.search(span.key))
        for span in spans
    )
    puts = sorted(span.ended - span.begun for span in spans if span.method == "PUT") or [0.0]
    return Race(
        commits_s=len(every) / elapsed_s,
        entries_s=entries / elapsed_s,
        latency_s=latency_s,
        put_s=puts[len(puts) // 2],
        share_min=min(counts) / mean,
        share_max=max(counts) / mean,
        wait_s_p50=every[len(every) // 2],
        wait_s_p99=every[min(len(every) - 1, len(every) * 99 // 100)],
        requests=len(spans) / len(every),
    )


@contextmanager
def _writer(task: Task, number: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", __name__, json.dumps(asdict(task)), str(number)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _answer(writer: subprocess.Popen[str]) -> list[float]:
    assert writer.stdout is not None
    line = writer.stdout.readline()
    if not line:
        raise RuntimeError(f"a writer ended with {writer.wait()}; it said why above")
    answer: list[float] = json.loads(line)
    return answer


def _serve(task: Task, number: int) -> None:
    """Be one of the writers."""
    with open_lake(task) as lake:
        names = [f"w{number}_{thread}" for thread in range(THREADS)]
        with lake.transaction() as tx:
            for name in names:
                tx.write(tables.rows(0, 1), name)
        sessions = [lake.session() for _ in names]
        _insert(sessions[:1], names, 0)  # what is imported and connected at the first statement
        print("[]", flush=True)
        for line in sys.stdin:
            threads, seconds = line.split()
            print(json.dumps(_insert(sessions[: int(threads)], names, float(seconds))), flush=True)


def _insert(
    sessions: Sequence[txlake.LakeSession], names: Sequence[str], seconds: float
) -> list[float]:
    """Insert rows by all sessions at once, one at least, and return the seconds of each commit."""
    waits: list[float] = []
    limit = time.monotonic() + seconds

    def work(session: txlake.LakeSession, name: str) -> None:
        for number in itertools.count():
            begun = time.monotonic()
            session._run_sql(f"INSERT INTO {name} VALUES ({number}, 0)", None, AsRows())
            waits.append(time.monotonic() - begun)
            if time.monotonic() >= limit:
                return

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(sessions, names, strict=False)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits


if __name__ == "__main__":
    _serve(Task(**json.loads(sys.argv[1])), int(sys.argv[2]))
