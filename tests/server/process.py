"""A server in a process of its own, as the command starts it."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

START_S = 120
END_S = 60


class ServerProcess:
    """`txlake serve` of a warehouse, or another command; `url` is where it answers, `flight` where
    Flight SQL is.
    """

    def __init__(self, warehouse: Path, *options: str, command: str = "serve") -> None:
        words = [sys.executable, "-m", "txlake", command, str(warehouse), "--port", "0"]
        self._process = subprocess.Popen(
            [*words, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.flight = ""
        self.url = self._told()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _told(self) -> str:
        said: list[str] = []
        while True:
            line = self._lines.get(timeout=START_S)
            found = None if line is None else re.search(r"serving (?:tools )?at (\S+)", line)
            if found is not None:
                self.flight = found.string.strip().rpartition(" with Flight SQL at ")[2]
                return found[1]
            if line is None:
                raise AssertionError("".join(said))
            said.append(line)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port."""
        host, _, port = self.url.partition("://")[2].rpartition(":")
        return host, int(port)

    def said(self) -> list[str]:
        """The lines that it wrote since, once it has ended."""
        self._reader.join(END_S)
        found: list[str] = []
        while line := self._lines.get(timeout=END_S):
            found.append(line)
        return found

    def kill(self) -> None:
        """End it as a machine that fails does."""
        self._process.kill()
        self._process.wait(END_S)

    def stop(self) -> int:
        """Asks it to end; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        self._reader.join(END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
