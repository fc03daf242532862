"""Delta Kernel in Java and in Rust, clients that aren't ours: their processes are told what to do.

Both have the same commands (`KernelClient.java`, `tools/rust_kernel`): each is a line, as is its
answer. The one in Java also commits several tables at once (`StagingClient.java`).
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.pages import ROOT
from tests.peers import need

_FOLDER = ROOT / ".cache" / "servers"
_SOURCES = [str(path) for path in sorted(Path(__file__).parent.glob("*.java"))]
_RUST = ROOT / ".cache" / "rust_kernel" / "rust-kernel"
_ANSWER_S = 120


class Died(Exception):
    """The process ended before it answered."""


def compiled(folder: Path) -> tuple[str, ...]:
    """The command of Kernel in Java; the test is skipped where it isn't there."""
    is_there = (_FOLDER / "kernel.stamp").exists() and shutil.which("javac") is not None
    need("kernel", found=is_there)
    jars = f"{_FOLDER / 'kernel'}/*"
    command = ["javac", "-nowarn", "-cp", jars, "-d", str(folder), *_SOURCES]
    subprocess.run(command, check=True, timeout=_ANSWER_S, capture_output=True)
    return "java", "-cp", f"{folder}:{jars}", "KernelClient"


def built() -> tuple[str, ...]:
    """The command of Kernel in Rust; the test is skipped where it isn't there."""
    need("rust-kernel", found=_RUST.exists())
    return (str(_RUST),)


class Kernel:
    """A process that carries out commands; used by one thread at a time."""

    def __init__(self, command: Sequence[str], url: str, catalog: str, token: str = "any") -> None:
        self._process = subprocess.Popen(
            [*command, url, token, catalog],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("> "):
                self._answers.put(line[2:].strip())
        self._ended.set()
        self._answers.put(None)

    def ask(self, command: str) -> str:
        """What it answers, `ok ...` or `failed ...`. Raises Died when the process is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Died(command) from error
        answer = self._answers.get(timeout=_ANSWER_S)
        if answer is None:
            self._answers.put(None)  # who asks again is told again
            raise Died(command)
        return answer

    def done(self, command: str) -> str:
        """What it answers, when it can do that."""
        found = self.ask(command)
        assert found.startswith("ok"), found
        return found[2:].strip()

    @property
    def is_alive(self) -> bool:
        """Whether the process can still answer."""
        return not self._ended.is_set()

    def kill(self) -> None:
        """End it at once."""
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
            with contextlib.suppress(OSError):  # what was never sent
                pipe.close()
