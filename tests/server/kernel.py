"""Delta Kernel in Java, a client that is not ours: a process of it is told what to do."""

from __future__ import annotations

import queue
import shutil
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.pages import ROOT

_FOLDER = ROOT / ".cache" / "servers"
_SOURCE = Path(__file__).with_name("KernelClient.java")
_ANSWER_S = 120


def compiled(folder: Path) -> str:
    """The class path of the program; the test is skipped where Kernel isn't there."""
    if not (_FOLDER / "kernel.stamp").exists() or shutil.which("javac") is None:
        pytest.skip("Delta Kernel isn't there: run tools/servers.sh, which says what it needs")
    jars = f"{_FOLDER / 'kernel'}/*"
    command = ["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(_SOURCE)]
    subprocess.run(command, check=True, timeout=_ANSWER_S, capture_output=True)
    return f"{folder}:{jars}"


class Kernel:
    """A process of it; used by one thread at a time."""

    def __init__(self, class_path: str, url: str, catalog: str, token: str = "any") -> None:
        self._process = subprocess.Popen(
            ["java", "-cp", class_path, "KernelClient", url, token, catalog],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("> "):
                self._answers.put(line[2:].strip())

    def ask(self, command: str) -> str:
        """What it answers, `ok ...` or `failed ...`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answers.get(timeout=_ANSWER_S)

    def done(self, command: str) -> str:
        """What it answers, when it can do that."""
        found = self.ask(command)
        assert found.startswith("ok"), found
        return found[2:].strip()

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(_ANSWER_S)
        self._reader.join(_ANSWER_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
