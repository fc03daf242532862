"""Unity Catalog's own server, the reference of ours: a process of it, where it has been built."""

from __future__ import annotations

import queue
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pages import ROOT
from tests.peers import need

BUILT = ROOT / ".cache" / "unity_server"
_SOURCE = Path(__file__).with_name("UnityServer.java")
_START_S = 120
_TRIES = 3


def compiled(folder: Path) -> str:
    """The class path of the program; the test is skipped where the server wasn't built."""
    is_there = (BUILT / "server.stamp").exists() and shutil.which("javac") is not None
    need("unity-server", found=is_there)
    jars = (BUILT / "server.class_path").read_text().strip()
    command = ["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(_SOURCE)]
    subprocess.run(command, check=True, timeout=_START_S, capture_output=True)
    return f"{folder}:{jars}"


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """The server's URL; what it keeps, its managed tables alone, is in the folder."""
    classes, tables = folder / "classes", folder / "tables"
    for one in (classes, tables):
        one.mkdir(parents=True)
    class_path = compiled(classes)
    for _ in range(_TRIES):
        # It can't be told to choose a port itself, and another process may be faster.
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = ["java", "-Xmx512m", "-cp", class_path, "UnityServer", str(port), str(tables)]
        with (
            (folder / "server.log").open("w") as log,
            subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            try:
                if _is_up(process):
                    yield f"http://127.0.0.1:{port}"
                    return
            finally:
                process.kill()
    raise AssertionError(f"it never came up: {(folder / 'server.log').read_text()[-4000:]}")


def _is_up(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    lines: queue.Queue[str] = queue.Queue()

    def read(stream: Iterator[str]) -> None:
        for line in stream:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, args=(process.stdout,), daemon=True).start()
    while line := lines.get(timeout=_START_S):
        if line.startswith("> up"):
            return True
    return False
