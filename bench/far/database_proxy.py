"""A proxy that delays what passes between a PostgreSQL server and its clients, and counts waits.

`python -m bench.far.database_proxy SERVER FOLDER` listens where the socket of a server in FOLDER
would be, prints the port of its account, and runs until it is ended. SERVER is the folder of the
server's socket. Half of the delay precedes a request's effect, half follows it. The account answers
as that of `proxy`: a span is from a client's message to the end of the server's answer to it.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from bench.far.measuring import Span
from bench.far.proxy import Account, serve_account

SOCKET = ".s.PGSQL.5432"
_READ_SIZE = 1 << 16
# A server's last message of an answer: it is ready, in no, an open or a failed transaction.
_READY = re.compile(rb"Z\x00\x00\x00\x05[ITE]\Z")
_WORDS = re.compile(rb"[A-Z]{4,}[^\x00]{0,60}")


class DatabaseProxy:
    """The proxy of one server."""

    def __init__(self, server: str) -> None:
        self._server = f"{server}/{SOCKET}"
        self._account = Account()

    async def serve(self, folder: str) -> None:
        """Print the account's port, and pass messages on until the process is ended."""
        await asyncio.start_unix_server(self._serve_client, f"{folder}/{SOCKET}")
        await serve_account(self._account)

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        answers, requests = await asyncio.open_unix_connection(self._server)
        waits = _Waits(self._account)
        ways = [
            self._pass_on(reader, requests, sees=waits.begin),
            self._pass_on(answers, writer, passed=waits.end),
        ]
        with suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(*ways)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        sees: Callable[[bytes], None] = lambda _: None,
        passed: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """Pass on what comes, each part after half of the delay, in its order."""
        parts: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def write() -> None:
            while True:
                due, part = await parts.get()
                await asyncio.sleep(due - time.monotonic())
                writer.write(part)
                await writer.drain()
                passed(part)
                if not part:
                    writer.close()
                    return

        writing = asyncio.create_task(write())
        with suppress(ConnectionError):
            while True:
                part = await reader.read(_READ_SIZE)
                sees(part)
                parts.put_nowait((time.monotonic() + self._account.latency_s / 2, part))
                if not part:
                    break
        await writing


class _Waits:
    """One connection's waits: from the first message after an answer to the end of the next one."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._begun: float | None = None
        self._sent = b""

    def begin(self, part: bytes) -> None:
        """Note what the client sends."""
        if part and self._begun is None:
            self._begun, self._sent = time.time(), b""
            self._account.begin()
        self._sent += part

    def end(self, part: bytes) -> None:
        """Note what the client has received."""
        if self._begun is not None and (not part or _READY.search(part)):
            texts = (text.decode("utf-8", "replace") for text in _WORDS.findall(self._sent))
            span = Span(self._begun, time.time(), "SQL", "; ".join(texts), 200)
            self._begun = None
            self._account.end(span)


if __name__ == "__main__":
    asyncio.run(DatabaseProxy(sys.argv[1]).serve(sys.argv[2]))
