"""Commits to a path table in a process of its own:
python -m tests.iceberg.committing URL NAME COUNT KILLED_AT.

Each commit adds a file to the log; there is no such file. With KILLED_AT above 0 the process is
killed before that many writes of Iceberg metadata files of its last commit.
"""

from __future__ import annotations

import os
import signal
import sys

import txlake
from txlake.ports import PutOutcome
from txlake.storage.local import LocalStore


def kill_before(count: int) -> None:
    """Kill this process before that many writes below `metadata/`."""
    put, put_if_absent = LocalStore.put, LocalStore.put_if_absent
    left = [count]

    def writing(path: str) -> None:
        if path.startswith("metadata/"):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted_put(store: LocalStore, path: str, data: bytes) -> None:
        writing(path)
        put(store, path, data)

    def counted_put_if_absent(store: LocalStore, path: str, data: bytes) -> PutOutcome:
        writing(path)
        return put_if_absent(store, path, data)

    LocalStore.put = counted_put  # type: ignore[assignment, method-assign]
    LocalStore.put_if_absent = counted_put_if_absent  # type: ignore[assignment, method-assign]


def main(url: str, name: str, count: int, killed_at: int) -> None:
    """Commit; each file is named after the process and its number."""
    log = txlake.Log(url)
    for number in range(count):
        if killed_at and number == count - 1:
            kill_before(killed_at)
        commit(log, f"{name}-{number}.parquet")


def commit(log: txlake.Log, path: str) -> int:
    """Add a file to the log; return the version."""
    add = {
        "path": path,
        "partitionValues": {},
        "size": 100,
        "modificationTime": 0,
        "dataChange": True,
        "stats": '{"numRecords": 1}',
        "tags": {"ICEBERG_COMPAT_VERSION": "2"},
    }
    return log.start_transaction().commit([{"add": add}], operation="WRITE").version


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
