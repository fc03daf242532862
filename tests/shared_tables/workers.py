"""Worker processes from outside: started once, asked by many tests, killed by the soak."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.shared_tables.operations import Operation

WRITERS = ("txlake", "delta-spark", "delta-rs")
ENGINES = (*WRITERS, "polars")
_REPOSITORY = Path(__file__).parents[2]


class Refused(Exception):
    """The engine ended the request with an error.

    `conflict` says whether others were faster, `conflicts` how often.
    """

    def __init__(self, engine: str, answer: dict[str, Any]) -> None:
        super().__init__(f"{engine}: {answer['error']}: {answer['message']}")
        self.name = str(answer["error"])
        self.conflict = bool(answer.get("conflict"))
        self.conflicts = int(answer.get("conflicts", 0))


class Died(Exception):
    """The worker's process ended before it answered."""


@dataclass(slots=True)
class Worker:
    """One process with one engine, used by one thread at a time."""

    engine: str
    process: subprocess.Popen[str]

    def ask(self, **request: object) -> dict[str, Any]:
        """The answer. Raises Refused with the engine's error, Died when the process is gone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise Died(self.engine) from error
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise Died(f"{self.engine} ended with {self.process.wait(120)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Refused(self.engine, answer)
        return answer

    def apply(self, folder: Path, operation: Operation) -> int:
        """Carries it out, trying again after conflicts; how many there were."""
        answer = self.ask(ask="apply", folder=str(folder), operation=operation.to_json())
        return int(answer["conflicts"])

    def read(self, folder: Path, versions: Sequence[int]) -> list[list[str]]:
        """The rows at each of these versions, as sorted text."""
        answer = self.ask(ask="read", folder=str(folder), versions=list(versions))
        return list(answer["rows"])

    def sql(self, statement: str) -> list[str]:
        return list(self.ask(ask="sql", statement=statement)["rows"])

    def kill(self) -> None:
        """SIGKILL for it and its JVM."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(120)

    def end(self) -> None:
        """The end of its input is its end."""
        with self.process:
            try:
                self.process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)


def start_all(scratch: Path, jars: Sequence[str]) -> dict[str, Worker]:
    """A worker for each engine, by its name; `jars` are Delta Spark's."""
    return {engine: start(engine, scratch / engine, jars) for engine in ENGINES}


def start(
    engine: str,
    scratch: Path,
    jars: Sequence[str],
    module: str = "tests.shared_tables.worker",
) -> Worker:
    """A new process with this engine; its errors are in `<engine>.log` of the scratch folder."""
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / f"{engine}.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, engine, str(scratch), *jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=_REPOSITORY,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(_REPOSITORY / "src"), str(_REPOSITORY))),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TZ": "UTC",
            },
            start_new_session=True,
        )
    return Worker(engine, process)
