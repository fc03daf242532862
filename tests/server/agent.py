"""An agent: the official SDK's client of the tools, in a process of the command or in this one."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

CALL_S = 180


class Agent:
    """Calls tools, one after the other."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal = portal
        self._client = client

    def tools(self) -> dict[str, Any]:
        """The tools by their names."""
        found = self._portal.call(self._client.list_tools)
        return {tool.name: tool for tool in found.tools}

    def call(self, tool: str, **arguments: object) -> tuple[bool, Any]:
        """Whether a call was done, and its result, or the error's text."""
        found = self._portal.call(
            lambda: self._client.call_tool(tool, arguments, read_timeout_seconds=CALL_S)
        )
        if found.is_error:
            return False, getattr(found.content[0], "text", "")
        result = found.structured_content
        return True, result["result"] if set(result) == {"result"} else result

    def done(self, tool: str, **arguments: object) -> Any:
        """The result of a call that must succeed."""
        is_done, found = self.call(tool, **arguments)
        assert is_done, found
        return found

    def refused(self, tool: str, **arguments: object) -> str:
        """The error's text of a call that must fail."""
        is_done, found = self.call(tool, **arguments)
        assert not is_done, found
        assert isinstance(found, str)
        return found


@contextmanager
def connected(server: Any) -> Iterator[Agent]:
    """An agent of a server in this process, or by a transport."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(server)) as client,
    ):
        yield Agent(portal, client)


@contextmanager
def over_stdio(warehouse: Path, *options: str) -> Iterator[Agent]:
    """An agent that has started `txlake mcp` itself, as programs for agents do."""
    command = ["-m", "txlake", "mcp", str(warehouse), *options]
    started = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    with connected(stdio_client(started)) as agent:
        yield agent


@contextmanager
def over_http(url: str, token: str | None = None) -> Iterator[Agent]:
    """An agent of a server with HTTP."""

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        headers = {} if token is None else bearer(token)
        async with (
            httpx.AsyncClient(headers=headers, timeout=CALL_S) as client,
            streamable_http_client(url, http_client=client) as streams,
        ):
            yield streams

    with connected(transport()) as agent:
        yield agent


def bearer(token: str) -> dict[str, str]:
    """The header that has a token."""
    return {"authorization": f"Bearer {token}"}
