"""A process of txlake on a lake, for the soak: requests and replies are lines of JSON.

Arguments: a name, a scratch folder. Ends at the end of its input. `lake.py` is the other end, by
`tests.shared_tables.workers`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import txlake
from tests.shared_tables.engines import lines, statement
from tests.shared_tables.operations import parsed
from tests.shared_tables.worker import spark
from tests.soak.faults import MARKER, Faults
from txlake.errors import Conflict, OutcomeUnknown, Unavailable

ATTEMPTS = 25
# Messages about a full disk: of the store, of Spark's tasks, of SQLite.
FULL = (MARKER, "No space left", "no space left", "disk is full", "disk I/O error", "Errno 28")


class LakeWorker:
    """Serves requests on one lake after another."""

    def __init__(self, name: str, scratch: str) -> None:
        self._spark = spark(
            scratch, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
        )
        self._faults = Faults(name)
        self._faults.install()
        self._lake: txlake.Lake | None = None

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request; return its reply, or the error."""
        try:
            match request["ask"]:
                case "open":
                    return self._open(request["warehouse"], request["one_in"])
                case "commit":
                    return self._commit(request)
                case "sql":
                    return {"rows": self._sql(request["statements"])}
                case "read":
                    return {"rows": self._read(request["folder"], request["versions"])}
                case other:
                    raise ValueError(f"no {other}")
        except Exception as error:
            return {
                "error": type(error).__name__,
                "message": str(error)[:2000],
                "conflict": _is_expected(error),
            }

    def _open(self, warehouse: str, one_in: int) -> dict[str, Any]:
        self._faults.one_in = 0
        if self._lake is not None:
            self._lake.close()
        self._lake = None
        self._lake = txlake.connect(warehouse, spark=self._spark)
        self._faults.one_in = one_in
        injected, self._faults.injected = dict(self._faults.injected), type(self._faults.injected)()
        return {"injected": injected}

    def _commit(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a transaction until it commits; return its `outcome` as in `audit.Done`, and the
        conflicts.
        """
        assert self._lake is not None
        conflicts: list[str] = []
        while True:
            try:
                with self._lake.transaction(isolation=request["isolation"]) as transaction:
                    transaction._own_transaction().user_metadata = request["marker"]
                    for table, operation in request["parts"]:
                        transaction.sql(statement(table, parsed(json.dumps(operation))))
                return {"outcome": "committed", "conflicts": conflicts}
            except Conflict as error:
                conflicts.append(type(error).__name__)
                if len(conflicts) == ATTEMPTS:
                    return {"outcome": "given up", "conflicts": conflicts}
            except OutcomeUnknown:
                return {"outcome": "unknown", "conflicts": conflicts}
            except Exception as error:
                if not _is_expected(error):
                    raise
                return {"outcome": "given up", "conflicts": conflicts}

    def _sql(self, statements: list[str]) -> list[list[str]]:
        """Return the rows of each statement; several statements share a transaction."""
        assert self._lake is not None
        if len(statements) == 1:
            return [lines(self._lake.sql(statements[0]).toArrow())]
        with self._lake.transaction() as transaction:
            return [lines(transaction.sql(one).toArrow()) for one in statements]

    def _read(self, folder: str, versions: list[int]) -> list[list[str]]:
        assert self._lake is not None
        return [lines(self._lake.read(folder, version=one).toArrow()) for one in versions]


def _is_expected(error: Exception) -> bool:
    """Return whether a fault or a conflict explains the error, so that nothing was committed."""
    if isinstance(error, Conflict | Unavailable):
        return True
    text = f"{error} {error.__cause__} {error.__context__}"
    return any(sign in text for sign in FULL)


def main(name: str, scratch: str) -> None:
    # Replies get a stream of their own, to which nothing else prints.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = LakeWorker(name, scratch)
    for request in sys.stdin:
        replies.write(json.dumps(worker.reply(json.loads(request))) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
