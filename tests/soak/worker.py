"""A process with txlake on a lake, for the soak: requests as JSON lines, answers in lines.

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
from tests.soak.faults import MARK, Faults
from txlake.errors import Conflict, OutcomeUnknown, Unavailable

ATTEMPTS = 25
# What a full disk says, whoever meets it first: the store, Spark's tasks, SQLite.
FULL = (MARK, "No space left", "no space left", "disk is full", "disk I/O error", "Errno 28")


class LakeWorker:
    """One lake after the other."""

    def __init__(self, name: str, scratch: str) -> None:
        self._spark = spark(
            scratch, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
        )
        self._faults = Faults(name)
        self._faults.install()
        self._lake: txlake.Lake | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the request asks for, or the error that it ends with."""
        try:
            match request["ask"]:
                case "open":
                    return self._open(request["warehouse"], request["one_in"])
                case "commit":
                    return self._committed(request)
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
        met, self._faults.met = dict(self._faults.met), type(self._faults.met)()
        return {"met": met}

    def _committed(self, request: dict[str, Any]) -> dict[str, Any]:
        """`outcome` as `audit.Done` has it; `conflicts` by the names of their errors."""
        assert self._lake is not None
        conflicts: list[str] = []
        while True:
            try:
                with self._lake.transaction(isolation=request["isolation"]) as transaction:
                    transaction._held().user_metadata = request["marker"]
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
        """The rows of each, read in one transaction where there is more than one."""
        assert self._lake is not None
        if len(statements) == 1:
            return [lines(self._lake.sql(statements[0]).toArrow())]
        with self._lake.transaction() as transaction:
            return [lines(transaction.sql(one).toArrow()) for one in statements]

    def _read(self, folder: str, versions: list[int]) -> list[list[str]]:
        assert self._lake is not None
        return [lines(self._lake.read(folder, version=one).toArrow()) for one in versions]


def _is_expected(error: Exception) -> bool:
    """Whether a fault or a conflict explains the error: nothing was committed then."""
    if isinstance(error, Conflict | Unavailable):
        return True
    said = f"{error} {error.__cause__} {error.__context__}"
    return any(sign in said for sign in FULL)


def main(name: str, scratch: str) -> None:
    # Answers go where nothing else is printed.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = LakeWorker(name, scratch)
    for request in sys.stdin:
        answers.write(json.dumps(worker.answer(json.loads(request))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
