"""What is killed and started again: streaming queries, without Spark, with it, and on Connect.

A life of the queries begins with `start`; `kill` kills some of their processes and `end` all that a
new life doesn't go on with.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lake.streaming.engine import SINKS
from tests.lake.streaming.processes import END_S, end_session, members, what_runs
from tests.spark_session import connect_server

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOO_SLOW = ("Timed out while waiting for the Python worker", "CANNOT_OPEN_SOCKET")
_LAST_RUNS = 5
_ANSWER_S = 6.0


class Classic:
    """The queries' own process, with Spark's JVM and its Python processes in its session.

    Attributes:
        longest_s: a life is at most so long, from the start of the queries on.
        pause_s: between the rows that are appended to the sources.
    """

    module = "tests.lake.streaming.worker"
    longest_s = 25.0
    pause_s = 1.5

    def __init__(self, place: Path) -> None:
        self.place = place
        self._process: subprocess.Popen[str] | None = None

    def start(self, dice: random.Random) -> None:
        """Start the queries."""
        self._start(*self._chosen(dice))

    def wait_for_queries(self) -> None:
        """Return when the queries run, or their process has ended."""
        assert self._queries.stdout is not None
        self._queries.stdout.readline()

    def fell(self) -> bool:
        """Whether the queries ended by themselves because Spark gave up waiting for a process.

        On a machine with too much to do it does; the stream has to stand that as it stands a kill.
        Raises AssertionError when they ended with anything else.
        """
        if not self._queries.poll():
            return False
        said = (self.place / "worker.log").read_text()
        assert any(text in said for text in _TOO_SLOW), said[-8000:]
        return True

    def kill(self, dice: random.Random) -> str:
        """Kills one process or all. Returns what it killed."""
        victims = members(self._queries.pid)
        if not victims:
            return "nobody"
        if dice.random() < 0.5:
            os.killpg(self._queries.pid, signal.SIGKILL)
            return "all"
        victim = dice.choice(victims)
        name = "query" if victim == self._queries.pid else what_runs(victim)
        self._kill_one(victim, dice)
        return name

    def end(self) -> None:
        """What is left of this life ends."""
        end_session(self._queries)

    def finish(self) -> None:
        """The queries read what is left, and end."""
        self._finish()

    def close(self) -> None:
        """Nothing of any life is left."""

    @property
    def _queries(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def _chosen(self, dice: random.Random) -> Sequence[str]:
        """The arguments of a life."""
        return ()

    def _finish(self, *arguments: str) -> None:
        for _ in range(_LAST_RUNS):
            self._start(*arguments, "once")
            try:
                self._queries.wait(timeout=END_S)
                if not self.fell():
                    return
            finally:
                self.end()
        raise AssertionError(f"the queries didn't end in {_LAST_RUNS} runs")

    def _start(self, *arguments: str) -> None:
        with (self.place / "worker.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(self.place), *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _kill_one(self, victim: int, dice: random.Random) -> None:
        """Kills a process; what is left may do something wrong for a moment."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self._linger(dice)

    def _linger(self, dice: random.Random) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._queries.wait(timeout=dice.uniform(0, _ANSWER_S))


class Rows(Classic):
    """One query at a time, in one process without Spark."""

    module = "tests.lake.streaming.engine"
    longest_s = 1.5
    pause_s = 0.2

    def _chosen(self, dice: random.Random) -> Sequence[str]:
        return (dice.choice(SINKS),)

    def finish(self) -> None:
        for sink in SINKS:
            self._finish(sink)


class Connect(Classic):
    """A client and its Spark Connect server, which outlives most clients.

    It goes on with the queries of a client that was killed until the next one starts them again.
    """

    longest_s = 8.0
    pause_s = 1.0

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._server: subprocess.Popen[str] | None = None
        self._url = ""

    def kill(self, dice: random.Random) -> str:
        """Kills the client, a Python process of the server, or the server whole."""
        assert self._server is not None
        chosen = dice.random()
        if chosen < 0.65:
            os.killpg(self._queries.pid, signal.SIGKILL)
            return "client"
        if chosen < 0.9:
            found = {one: what_runs(one) for one in members(self._server.pid)}
            spared = ("", "java", what_runs(self._server.pid))
            if victims := [one for one, name in found.items() if name not in spared]:
                victim = dice.choice(victims)
                self._kill_one(victim, dice)
                return found[victim]
        os.killpg(self._server.pid, signal.SIGKILL)
        self._linger(dice)
        self.close()
        return "server"

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            end_session(self._server)
            self._server = None

    def _start(self, *arguments: str) -> None:
        if self._server is None:
            scratch = Path(tempfile.mkdtemp(prefix="server-", dir=self.place))
            with (self.place / "server.log").open("a") as log:
                self._server, self._url = connect_server(scratch, log)
        assert self._server.poll() is None, "the server ended by itself"
        super()._start(self._url, *arguments)
