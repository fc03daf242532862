"""Processes that race for the versions of a table, each with a store of its own.

As a program: it forks the processes before anything of a store's client has started, lets them go
together and prints what each of them was told, in lines of version, process and outcome.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys

from txlake.protocol.file_names import commit_path
from txlake.storage import open_store


def race(
    url: str, options: dict[str, str], *, processes: int, versions: int
) -> dict[int, list[tuple[int, str]]]:
    """What each process was told of its put-if-absent, by version."""
    command = [sys.executable, __file__, url, json.dumps(options), str(processes), str(versions)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    told: dict[int, list[tuple[int, str]]] = {}
    for line in ran.stdout.splitlines():
        version, process, outcome = line.split()
        told.setdefault(int(version), []).append((int(process), outcome))
    return told


def _main(url: str, options: dict[str, str], processes: int, versions: int) -> None:
    forking = multiprocessing.get_context("fork")
    start = forking.Barrier(processes)

    def work(number: int) -> None:
        store = open_store(url, options)
        for version in range(versions):
            start.wait(120)
            outcome = store.put_if_absent(commit_path(version), f"{number}".encode() * 100)
            # One write of a line, which a pipe doesn't tear.
            os.write(1, f"{version} {number} {outcome.name}\n".encode())

    workers = [forking.Process(target=work, args=(number,)) for number in range(processes)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(120)
    sys.exit(any(each.exitcode != 0 for each in workers))


if __name__ == "__main__":
    _main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
