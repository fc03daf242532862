"""The tools in the Model Context Protocol, over standard input and output or streamable HTTP.

Owns the names, texts and arguments of the tools as agents see them, and who calls: over standard
input the one caller that the server was started for, over HTTP the owner of the request's token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from txlake.commands import HANDLERS
from txlake.release import VERSION
from txlake.server.api_errors import ApiError
from txlake.server.calls import ServedLake, SessionPool
from txlake.server.mcp.tools import (
    BranchDescription,
    LakeTools,
    Rows,
    TableDescription,
    TableName,
    ToolSettings,
    Written,
)
from txlake.server.serving import ServerSettings, listen, load_tokens, restricted_engine
from txlake.server.tokens import Caller, Tokens
from txlake.session.session import Session

PATH = "/mcp"
"""The path of the protocol's endpoint over HTTP."""
_CALLER = "txlake.caller"
_INSTRUCTIONS = """A lake of Delta tables, with transactions. You read everything, and write on
branches that you create; main doesn't change. First list_tables and describe_table. To change
something: create_branch, write (one statement a call), then describe_branch, and tell the user
which branch to review. SQL is Spark's. explain_conflicts says which other writers a statement
would meet."""

Branch = Annotated[str | None, Field(description="The branch to read on; main if left out.")]
Database = Annotated[str | None, Field(description="The database of names without one.")]
Table = Annotated[str, Field(description="table or database.table, as in SQL")]
OwnBranch = Annotated[str, Field(description="A branch that you have created.")]
CallContext = Context[Any, Request]


def mcp_server(tools: LakeTools, caller: Caller | None, *, may_publish: bool) -> MCPServer[Any]:
    """Return the server with the tools.

    `caller`: who calls; None: the caller that `authorized` found for the request.
    """
    server: MCPServer[Any] = MCPServer(
        "txlake", instructions=_INSTRUCTIONS, version=VERSION, log_level="WARNING"
    )
    door = _Door(tools, caller)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for read in (
        door.list_tables,
        door.describe_table,
        door.history,
        door.query,
        door.explain_conflicts,
        door.list_branches,
        door.describe_branch,
    ):
        server.add_tool(read, annotations=reads)
    writes = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
    for write in (door.create_branch, door.write):
        server.add_tool(write, annotations=writes)
    destroys = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
    server.add_tool(door.drop_branch, annotations=destroys)
    if may_publish:
        server.add_tool(door.publish_branch, annotations=destroys)
    return server


@dataclass(frozen=True, slots=True)
class _Door:
    """The tools with their arguments. Their docstrings are what agents read."""

    tools: LakeTools
    caller: Caller | None

    def list_tables(self, ctx: CallContext, branch: Branch = None) -> list[TableName]:
        """List the tables and views of all databases."""
        with self._called(ctx) as caller:
            return self.tools.list_tables(caller, branch)

    def describe_table(
        self, ctx: CallContext, table: Table, branch: Branch = None
    ) -> TableDescription:
        """Return the columns of a table or view, with types and comments, and its properties."""
        with self._called(ctx) as caller:
            return self.tools.describe_table(caller, table, branch)

    def history(
        self,
        ctx: CallContext,
        table: Table,
        limit: Annotated[int, Field(ge=1, le=1000)] = 20,
        branch: Branch = None,
    ) -> Rows:
        """Return a table's commits, newest first: version, time, user, operation, metrics."""
        with self._called(ctx) as caller:
            return self.tools.history(caller, table, limit, branch)

    def query(
        self, ctx: CallContext, sql: str, branch: Branch = None, database: Database = None
    ) -> Rows:
        """Run one statement that reads: SELECT, WITH, SHOW, DESCRIBE, also VERSION AS OF.

        The number of rows is limited; a note says so when there are more.
        """
        with self._called(ctx) as caller:
            return self.tools.query(caller, sql, branch, database)

    def explain_conflicts(self, ctx: CallContext, sql: str, branch: Branch = None) -> Rows:
        """Explain which concurrent writers would abort a statement, without running it."""
        with self._called(ctx) as caller:
            return self.tools.explain_conflicts(caller, sql, branch)

    def list_branches(self, ctx: CallContext) -> Rows:
        """List the lake's branches, with who has created each."""
        with self._called(ctx) as caller:
            return self.tools.list_branches(caller)

    def describe_branch(self, ctx: CallContext, branch: str) -> BranchDescription:
        """Return what a branch has changed, and, of one of yours, what publishing would meet."""
        with self._called(ctx) as caller:
            return self.tools.describe_branch(caller, branch)

    def create_branch(
        self,
        ctx: CallContext,
        branch: str,
        keep_days: Annotated[int, Field(ge=1, le=90, description="It ends after them.")] = 7,
    ) -> Rows:
        """Create a branch of main, to write on. It copies no data. Returns all branches."""
        with self._called(ctx) as caller:
            return self.tools.create_branch(caller, branch, keep_days)

    def write(
        self, ctx: CallContext, branch: OwnBranch, sql: str, database: Database = None
    ) -> Written:
        """Run one statement that changes tables, on a branch: INSERT, UPDATE, DELETE, MERGE,
        CREATE, ALTER, DROP. Returns its result, and what the branch has changed by now.
        """
        with self._called(ctx) as caller:
            return self.tools.write(caller, branch, sql, database)

    def drop_branch(self, ctx: CallContext, branch: OwnBranch) -> Rows:
        """Drop a branch with its changes. Returns the branches that are left."""
        with self._called(ctx) as caller:
            return self.tools.drop_branch(caller, branch)

    def publish_branch(self, ctx: CallContext, branch: OwnBranch) -> Rows:
        """Publish a branch: its changes become main's, all or none. Ask the user first."""
        with self._called(ctx) as caller:
            return self.tools.publish_branch(caller, branch)

    @contextmanager
    def _called(self, ctx: CallContext) -> Iterator[Caller]:
        """Yield the caller. Raises an ApiError of the block as the tool's error."""
        try:
            yield self.caller or _caller_of(ctx)
        except ApiError as error:
            kind = error.details.get("class", error.kind)
            raise ToolError(f"{kind}: {error}") from error


def _caller_of(ctx: CallContext) -> Caller:
    """Return the caller whom `authorized` found. Raises ToolError if the request has none."""
    request = ctx.request_context.request
    found = None if request is None else request.scope.get(_CALLER)
    if not isinstance(found, Caller):
        raise ToolError("the request has no caller")
    return found


def authorized(app: ASGIApp, tokens: Tokens, now_ms: Callable[[], int]) -> ASGIApp:
    """Return the application for callers with a valid token; others get 401."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            header = Request(scope).headers.get("authorization")
            try:
                scope[_CALLER] = tokens.caller(header, now_ms())
            except ApiError as error:
                await _unauthorized(error)(scope, receive, send)
                return
        await app(scope, receive, send)

    return checked


def _unauthorized(error: ApiError) -> Response:
    headers = {"www-authenticate": "Bearer"} if error.status == 401 else {}
    return JSONResponse({"error": str(error)}, error.status, headers)


def serve_stdio(session: Session, name: str, settings: ToolSettings) -> None:
    """Serve a lake's tools to the program at standard input and output, until it closes them.

    `name`: the owner of the branches that it creates.
    """
    with _open_tools(session, ServerSettings(), settings) as tools:
        server = mcp_server(tools, Caller(name), may_publish=settings.may_publish)
        anyio.run(server.run_stdio_async)


def serve_http(
    session: Session,
    settings: ServerSettings,
    tool_settings: ToolSettings,
    *,
    on_started: Callable[[str], None],
) -> None:
    """Serve a lake's tools over HTTP until the process is stopped.

    Raises InvalidRequest as `load_tokens` and `listen`.
    """
    tokens = load_tokens(settings)
    with _open_tools(session, settings, tool_settings) as tools:
        server = mcp_server(tools, None, may_publish=tool_settings.may_publish)
        app = server.streamable_http_app(
            streamable_http_path=PATH, stateless_http=True, json_response=True, host=settings.host
        )
        now_ms = session.engine.system.now_ms
        listen(authorized(app, tokens, now_ms), settings, on_started=on_started)


@contextmanager
def _open_tools(
    session: Session, settings: ServerSettings, tool_settings: ToolSettings
) -> Iterator[LakeTools]:
    """Yield the tools of a session's lake, whose Spark runs what served SQL allows."""
    engine, level = restricted_engine(session.engine, owns_spark=True), session.level
    served = ServedLake(
        engine=engine,
        sessions=SessionPool(lambda: Session(engine, HANDLERS, level=level)),
        limits=settings.limits,
    )
    tools = LakeTools(served, tool_settings)
    try:
        yield tools
    finally:
        tools.close()
        engine.plane.close()
