"""Several processes that serve one lake at one address.

Owns their start and end: the address is bound once, each process accepts connections from it, one
that dies is replaced, and all end when the first one is asked to. A connection that nobody has
accepted yet waits for the next process.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import FrameType
from typing import Protocol

from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.ports import System

_log = logging.getLogger(__name__)
_BACKLOG = 2048
_START_S = 120.0
_LOOK_S = 0.5
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 500.0, 30_000.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the processes of one server share.

    Attributes:
        listener: the socket from which each of them accepts connections.
        folder: where each has a socket for the others, under its number.
    """

    listener: socket.socket
    folder: Path


class Serve(Protocol):
    """Serves the lake in this process until it is stopped; can be sent to another process."""

    def __call__(self, shared: Shared, *, on_started: Callable[[str], None]) -> None:
        """Serve, and call `on_started` with the address when requests are accepted."""
        ...


def check_supported() -> None:
    """Raise InvalidRequest where a socket can't be shared by processes: on Windows."""
    if sys.platform == "win32":
        raise InvalidRequest(
            "--processes: Windows can't share a server's socket; serve with one process"
        )


def run(
    serve: Serve,
    count: int,
    *,
    address: tuple[str, int],
    end_s: float,
    system: System,
    on_started: Callable[[str], None],
) -> None:
    """Serve in so many processes until this one gets SIGINT or SIGTERM.

    `on_started` is called with the address once all accept requests. A process that ends by itself
    is replaced. At the end each has `end_s` seconds for the requests that it has begun.

    Raises InvalidRequest if the address isn't available or a process can't start, and
    KeyboardInterrupt at the end if the signal was SIGINT.
    """
    with (
        tempfile.TemporaryDirectory(prefix="txlake-serve-") as folder,
        _listener(*address) as listener,
        _Stop() as stop,
    ):
        processes = _Processes(serve, Shared(listener, Path(folder)), stop, system)
        try:
            url = processes.start(count)
            if url is not None:
                on_started(url)
                processes.keep()
        finally:
            processes.end(end_s)
        if stop.signal == signal.SIGINT:
            raise KeyboardInterrupt


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens at the address. Raises InvalidRequest if that isn't possible."""
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(place[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InvalidRequest(
            f"the server couldn't start at {host}:{port}: {error.strerror or error}"
        ) from error
    with listener:
        yield listener


class _Stop:
    """The wish to end, which SIGINT and SIGTERM set while the context lasts."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._wake, self.woken = socket.socketpair()
        self._wake.setblocking(False)

    def __enter__(self) -> _Stop:
        self._before = {number: signal.signal(number, self._set) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._wake.close()
        self.woken.close()

    def is_wanted(self) -> bool:
        """Return whether one of the signals arrived."""
        return self.signal is not None

    def _set(self, number: int, _: FrameType | None) -> None:
        self.signal = self.signal or number
        with suppress(OSError):
            self._wake.send(b"\0")


@dataclass(slots=True)
class _Process:
    """One process, and the pipe in which it says that it accepts requests, or why it can't."""

    process: SpawnProcess
    reports: connection.Connection
    has_started: bool = False


@dataclass(slots=True)
class _Processes:
    """The processes that serve."""

    serve: Serve
    shared: Shared
    stop: _Stop
    system: System
    running: list[_Process] = field(default_factory=list)
    wait_ms: float = 0.0

    def start(self, count: int) -> str | None:
        """Start so many; return the address once all accept requests, or None if they are to end.

        Raises InvalidRequest if one can't start.
        """
        for _ in range(count):
            self._start_one()
        url: str | None = None
        until_ms = self.system.monotonic_ms() + 1_000 * _START_S
        while not all(one.has_started for one in self.running):
            self._wait([one.reports for one in self.running if not one.has_started])
            if self.stop.is_wanted():
                return None
            for one in self.running:
                url = self._report_of(one) or url
            if self.system.monotonic_ms() > until_ms:
                raise Unavailable(f"the server's processes didn't start within {_START_S:g} s")
        return url

    def keep(self) -> None:
        """Replace processes that end, until all are to end."""
        while not self.stop.is_wanted():
            self._wait([one.process.sentinel for one in self.running])
            for one in self.running:
                with suppress(InvalidRequest):  # it is replaced as any that ended
                    self._report_of(one)
            ended = [one for one in self.running if not one.process.is_alive()]
            for one in () if self.stop.is_wanted() else ended:
                self._replace(one)

    def _replace(self, one: _Process) -> None:
        """Start another process in place of one that ended; later each time if none can start."""
        _log.warning(
            "a process of the server (%s) ended with code %s, another one starts",
            one.process.pid,
            one.process.exitcode,
        )
        self.running.remove(one)
        self._remove_socket(one)
        one.process.close()
        one.reports.close()
        if one.has_started:
            self.wait_ms = 0.0
        else:
            self.wait_ms = min(_LONGEST_WAIT_MS, max(_FIRST_WAIT_MS, 2 * self.wait_ms))
            connection.wait([self.stop.woken], self.wait_ms / 1_000)
        if not self.stop.is_wanted():
            self._start_one()

    def end(self, end_s: float) -> None:
        """Ask all to end, and kill those that haven't after so many seconds."""
        for one in self.running:
            one.process.terminate()
        until_ms = self.system.monotonic_ms() + 1_000 * end_s
        for one in self.running:
            one.process.join(max(0.0, (until_ms - self.system.monotonic_ms()) / 1_000))
            if one.process.is_alive():
                one.process.kill()
                one.process.join(_START_S)
            one.reports.close()

    def _start_one(self) -> None:
        context = get_context("spawn")
        reports, reporting = context.Pipe(duplex=False)
        process = context.Process(
            target=_serve_in_process,
            args=(self.serve, _Listener(self.shared.listener), self.shared.folder, reporting),
            name="txlake-serve",
        )
        process.start()
        reporting.close()
        self.running.append(_Process(process, reports))

    def _report_of(self, one: _Process) -> str | None:
        """Return the address that a process has reported since; None if it reported nothing.

        Raises InvalidRequest if it can't start.
        """
        try:
            if one.has_started or not one.reports.poll():
                return None
            kind, text = one.reports.recv()
        except (EOFError, OSError):
            kind, text = "failed", "a process of the server ended while it started"
        if kind == "failed":
            raise InvalidRequest(text)
        one.has_started = True
        return str(text)

    def _wait(self, for_any: list[int] | list[connection.Connection]) -> None:
        connection.wait([self.stop.woken, *for_any], _LOOK_S)

    def _remove_socket(self, one: _Process) -> None:
        (self.shared.folder / str(one.process.pid)).unlink(missing_ok=True)


class _Listener:
    """A listening socket on its way to a process that is being started."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def __reduce__(self) -> tuple[Callable[..., socket.socket], tuple[object, ...]]:
        return _received, (self._listener.family, DupFd(self._listener.fileno()))


class _Descriptor(Protocol):
    """A file descriptor on its way to a process."""

    def detach(self) -> int:
        """Return its number in this process."""
        ...


def _received(family: socket.AddressFamily, descriptor: _Descriptor) -> socket.socket:
    return socket.socket(family, socket.SOCK_STREAM, fileno=descriptor.detach())


def _serve_in_process(
    serve: Serve, listener: socket.socket, folder: Path, reports: connection.Connection
) -> None:
    """Serve in this process, which was started for that, until it is asked to end or its parent
    has ended.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's reaches the parent too
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        serve(Shared(listener, folder), on_started=lambda url: reports.send(("started", url)))
    except TxlakeError as error:
        reports.send(("failed", str(error)))
        raise SystemExit(1) from error


def _end(*_: object) -> None:
    raise SystemExit(0)


def _end_with_parent() -> None:
    """Ask this process to end when its parent has ended, however that was."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
