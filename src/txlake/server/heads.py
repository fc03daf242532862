"""Connections whose sender doesn't get to the end of a request's head: they are closed.

Owns the one time limit that uvicorn doesn't have: on connections, also kept ones, whose next
request has begun, or never begins, and isn't told whole.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def prompt_protocol(head_s: float) -> type[H11Protocol]:
    """Uvicorn's protocol with a limit in seconds for the head of a request."""

    class Prompt(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._settle()
            elif self._late is None:
                self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._settle()
            super().connection_lost(exc)

        def _expect(self) -> None:
            self._late = self.loop.call_later(head_s, self._give_up)

        def _settle(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _give_up(self) -> None:
            self._late = None
            if not self.transport.is_closing():
                self.transport.close()

    return Prompt
