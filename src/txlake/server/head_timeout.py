"""A timeout for the head of a request, which uvicorn lacks.

Closes a connection, new or kept alive, on which the next request's head doesn't arrive completely
in time.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol_with_head_timeout(head_s: float) -> type[H11Protocol]:
    """Return uvicorn's protocol class with a timeout in seconds for a request's head."""

    class HeadTimeoutProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start_timer()

        def data_received(self, data: bytes) -> None:
            """Stop the timer once a request's head is complete, and start it for the next one."""
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_timer()
            elif self._timer is None:
                self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _start_timer(self) -> None:
            self._timer = self.loop.call_later(head_s, self._close)

        def _stop_timer(self) -> None:
            """Cancel the timer, if it is running."""
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _close(self) -> None:
            """Close the connection on which no head arrived in time."""
            self._timer = None
            if not self.transport.is_closing():
                self.transport.close()

    return HeadTimeoutProtocol
