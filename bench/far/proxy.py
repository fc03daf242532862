"""A proxy that delays each answer of a store's server, and keeps an account of the requests.

`python -m bench.far.proxy HOST:PORT` prints its port and runs until it is ended. Half of the delay
precedes the request's effect, half follows it. Requests below `measuring.CONTROL` are its own:
`latency/MILLISECONDS`, `reset`, `spans` and `busy`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from bench.far.measuring import CONTROL, Span

_IDLE_S_MAX = 2.0
_HEAD_BYTES_MAX = 1 << 20
_OF_ONE_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}
_WITHOUT_BODY = {204, 304}
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer: its first line, its headers as they came, and its body."""

    first: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return a header's value; None when there is none."""
        return _header(self.headers, name)

    def encoded(self, length: str | None) -> bytes:
        """Return the bytes to send on, with that Content-Length, or without one."""
        lines = [
            self.first,
            *(f"{k}: {v}" for k, v in self.headers if k.lower() not in _OF_ONE_HOP),
        ]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class Account:
    """The requests that a proxy has passed on, and how long it delays each of them.

    Attributes:
        latency_s: how long an answer takes longer.
    """

    def __init__(self) -> None:
        self.latency_s = 0.0
        self._spans: list[Span] = []
        self._in_flight = 0
        self._last_s = time.monotonic()

    def begin(self) -> None:
        """Count a request that isn't answered yet."""
        self._in_flight += 1

    def end(self, span: Span) -> None:
        """Note a request that was answered."""
        self._in_flight -= 1
        self._last_s = time.monotonic()
        self._spans.append(span)

    def answer(self, command: str) -> bytes:
        """Carry out a request to the proxy itself; return the answer as HTTP has it."""
        body = json.dumps(self._carry_out(command)).encode()
        answer = _Message("HTTP/1.1 200 OK", [("Content-Type", "application/json")], body)
        return answer.encoded(str(len(body)))

    def _carry_out(self, command: str) -> object:
        name, _, value = command.partition("/")
        match name:
            case "latency":
                self.latency_s = float(value) / 1000
            case "reset":
                self._spans.clear()
            case "spans":
                return self._spans
            case "busy":
                return {
                    "in_flight": self._in_flight,
                    "idle_s": time.monotonic() - self._last_s,
                }
        return None


async def serve_account(account: Account) -> None:
    """Print a port, and answer the requests to a proxy itself there until the process is ended."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                request = await _read_request(reader, writer)
                _, target, _ = request.first.split(" ")
                writer.write(account.answer(target.removeprefix(CONTROL)))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Proxy:
    """The proxy of one server."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = host, port
        self._connections: list[tuple[float, Connection]] = []
        self._account = Account()

    async def serve(self) -> None:
        """Print the port, and answer until the process is ended."""
        server = await asyncio.start_server(self._serve_client, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                request = await _read_request(reader, writer)
                method, target, _ = request.first.split(" ")
                if target.startswith(CONTROL):
                    writer.write(self._account.answer(target.removeprefix(CONTROL)))
                else:
                    writer.write(await self._delayed(request, method, target))
                await writer.drain()
        writer.close()

    async def _delayed(self, request: _Message, method: str, target: str) -> bytes:
        """Return the answer's bytes after the delay."""
        begun, half_s = time.time(), self._account.latency_s / 2
        self._account.begin()
        status = 0
        try:
            await asyncio.sleep(half_s)
            answer = await self._forward(request, method)
            status = int(answer.first.split(" ")[1])
            await asyncio.sleep(half_s)
            length = str(len(answer.body))
            if method == "HEAD" or status in _WITHOUT_BODY:
                return answer.encoded(answer.header("content-length"))
            return answer.encoded(length)
        finally:
            self._account.end(Span(begun, time.time(), method, key_of(target), status))

    async def _forward(self, request: _Message, method: str) -> _Message:
        connection = await self._connect()
        reader, writer = connection
        has_body = request.body or method in {"PUT", "POST"}
        writer.write(request.encoded(str(len(request.body)) if has_body else None))
        await writer.drain()
        answer = await _read_head(reader)
        if method != "HEAD" and int(answer.first.split(" ")[1]) not in _WITHOUT_BODY:
            answer = _Message(answer.first, answer.headers, await _read_body(answer, reader))
        if (answer.header("connection") or "").lower() == "close":
            writer.close()
        else:
            self._connections.append((time.monotonic(), connection))
        return answer

    async def _connect(self) -> Connection:
        """Return an open connection to the server: one used lately, or a new one."""
        while self._connections:
            used_s, (reader, writer) = self._connections.pop()
            if time.monotonic() - used_s < _IDLE_S_MAX and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(*self._upstream, limit=_HEAD_BYTES_MAX)


def key_of(target: str) -> str:
    """Return a request's path, and for a listing what is listed."""
    parts = urlsplit(target)
    queries = [part.partition("=") for part in parts.query.split("&")]
    listed = [
        f"{name}={unquote(value)}"
        for name, _, value in queries
        if name in {"prefix", "start-after", "marker", "comp", "uploads", "delete"}
    ]
    return unquote(parts.path) + ("?" + "&".join(listed) if listed else "")


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Message:
    head = await _read_head(reader)
    if (head.header("expect") or "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    if head.header("content-length") is None and head.header("transfer-encoding") is None:
        return head
    return _Message(head.first, head.headers, await _read_body(head, reader))


async def _read_head(reader: asyncio.StreamReader) -> _Message:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    pairs = [line.partition(":") for line in lines[1:]]
    return _Message(lines[0], [(name, value.strip()) for name, _, value in pairs])


async def _read_body(head: _Message, reader: asyncio.StreamReader) -> bytes:
    if "chunked" in (head.header("transfer-encoding") or "").lower():
        parts = []
        while size := int((await reader.readline()).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(parts)
    length = head.header("content-length")
    return await (reader.read() if length is None else reader.readexactly(int(length)))


def _header(headers: list[tuple[str, str]], name: str) -> str | None:
    folded: Mapping[str, str] = {key.lower(): value for key, value in headers}
    return folded.get(name)


if __name__ == "__main__":
    upstream_host, _, upstream_port = sys.argv[1].rpartition(":")
    asyncio.run(Proxy(upstream_host, int(upstream_port)).serve())
