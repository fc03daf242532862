"""The console's ASGI application: a page asks the lake in a thread, and is made of a template.

Owns what every request has to pass: by which name the server is asked, who looks, whether a form
comes from one of its pages, how much there may be at once, and how long it may take.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txlake.console import conflicts, history, instant, now, tables, words
from txlake.console.safety import (
    COOKIE,
    HEADERS,
    Visitor,
    Visitors,
    comes_from_here,
    form_of,
    is_asked_by_its_name,
)
from txlake.console.visits import Act, Look, Visit
from txlake.errors import InvalidRequest, TxlakeError
from txlake.server.api_errors import ApiError
from txlake.server.calls import Limits, SessionPool
from txlake.server.tokens import Tokens
from txlake.session.engine import Engine
from txlake.session.session import Session

_HERE = Path(__file__).parent
_BODY_MAX = 65_536
LIMITS = Limits(workers=4, waiting_max=32, request_s=30.0)
"""Of a console."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """A page, made of a template. `title`: as the menu has it; None: it isn't in the menu."""

    path: str
    template: str
    look: Look
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """A form. `changes`: the lake, which not everybody may."""

    path: str
    act: Act
    changes: bool = False


PAGES = (
    Page("/", "now.html", now.look, "Now"),
    Page("/now", "now_part.html", now.look),
    Page("/kill", "kill.html", now.killing),
    Page("/history", "history.html", history.look, "History"),
    Page("/history/{sequence:int}", "instant.html", instant.look),
    Page("/conflicts", "conflicts.html", conflicts.look, "Conflicts"),
    Page("/conflicts/{number:int}", "conflict.html", conflicts.one),
    Page("/tables", "tables.html", tables.look, "Tables"),
    Page("/tables/{name}", "table.html", tables.one),
    Page("/tables/{name}/restore", "restore.html", tables.restoring),
)
FORMS = (
    Form("/kill", now.kill, changes=True),
    Form("/tables/{name}/restore", tables.restore, changes=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Pages and forms of one topic, and where their templates and files are."""

    pages: Sequence[Page] = ()
    forms: Sequence[Form] = ()
    folder: Path = _HERE
    close: Callable[[], None] = lambda: None


def application(
    engine: Engine,
    tokens: Tokens,
    *,
    host: str = "127.0.0.1",
    limits: Limits = LIMITS,
    rooms: Sequence[Room] = (),
) -> ASGIApp:
    """The console of a lake, for any ASGI server that listens at `host`.

    `rooms`: what it shows besides the lake.
    """
    desk = _Desk(engine, tokens, host, limits, [Room(pages=PAGES, forms=FORMS), *rooms])
    return _Headed(desk.app)


class _Headed:
    """Says in every answer what a browser may do with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_file = scope["type"] == "http" and scope["path"].startswith("/static/")

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = "max-age=3600" if is_file else "no-store"
                said = {**HEADERS, "cache-control": kept}
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in said.items()),
                ]
            await send(message)

        await self._app(scope, receive, headed)


class _Busy(Exception):
    """More is asked for at once than the console takes."""


class _Desk:
    """Lets browsers in, and makes their pages."""

    def __init__(
        self, engine: Engine, tokens: Tokens, host: str, limits: Limits, rooms: Sequence[Room]
    ) -> None:
        self._engine = engine
        self._host = host
        self._limits = limits
        self._rooms = rooms
        self._visitors = Visitors(tokens, engine.system.now_ms)
        self._asks_for_tokens = tokens.are_required
        self._sessions = SessionPool(lambda: Session(engine))
        self._threads = ThreadPoolExecutor(limits.workers, "txlake-console")
        self._inside = 0  # touched by the event loop's thread alone
        folders = list(dict.fromkeys(room.folder for room in rooms))
        self._templates = Environment(
            loader=ChoiceLoader([FileSystemLoader(folder / "templates") for folder in folders]),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(words.FILTERS)
        self._templates.globals["menu"] = [
            (page.path, page.title) for room in rooms for page in room.pages if page.title
        ]
        static = StaticFiles(directory=folders[0] / "static")
        static.all_directories = [folder / "static" for folder in folders]
        routes: list[Route | Mount] = [Mount("/static", static)]
        for room in rooms:
            acts = {form.path: form for form in room.forms}
            for page in room.pages:
                form = acts.pop(page.path, None)
                methods = ["GET"] if form is None else ["GET", "POST"]
                routes.append(Route(page.path, self._answering(page, form), methods=methods))
            routes += [Route(one.path, self._answering(None, one)) for one in acts.values()]
        routes += [
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]
        self.app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: self._unrouted, Exception: self._broken},
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """While the console runs; what was begun is ended before the sessions are."""
        try:
            yield
        finally:
            await asyncio.to_thread(self._threads.shutdown)
            for room in self._rooms:
                room.close()
            self._sessions.close()

    def _answering(
        self, page: Page | None, form: Form | None
    ) -> Callable[[Request], Awaitable[Response]]:
        """The function that starlette calls for a path."""

        async def answer(request: Request) -> Response:
            visitor = self._visitors.of(request.cookies.get(COOKIE))
            if not is_asked_by_its_name(request, self._host):
                return self._problem(visitor, 421, "This server doesn't have that name.")
            if request.method == "POST":
                assert form is not None
                return await self._sent(request, visitor, form)
            assert page is not None
            if visitor.caller is None:
                return RedirectResponse(_login_path(request), 303)
            return await self._in_thread(self._looked, request, visitor, page)

        return answer

    async def _sent(self, request: Request, visitor: Visitor, form: Form) -> Response:
        """What a form asked for is done, unless it may not be."""
        try:
            fields = form_of(await self._content(request))
        except InvalidRequest as error:
            return self._problem(visitor, 400, str(error))
        if not comes_from_here(request, fields, visitor):
            message = "The form wasn't sent from a page of this console, or the page is too old."
            return self._problem(visitor, 403, f"{message} Open the page again, and send it there.")
        if visitor.caller is None:
            return self._problem(visitor, 401, "Log in first.")
        if form.changes and not visitor.may_change:
            return self._problem(visitor, 403, self._read_only(visitor))
        return await self._in_thread(self._acted, request, visitor, form, fields)

    def _read_only(self, visitor: Visitor) -> str:
        if self._asks_for_tokens:
            assert visitor.caller is not None
            return f"The token of {visitor.caller.name!r} may only look."
        return (
            "This console only shows: one that was started with --token-file lets those change "
            "something whose token isn't read_only."
        )

    async def _content(self, request: Request) -> bytes:
        """The body. Raises InvalidRequest: it is too large, too slow or cut off."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.request_s):
                async for part in request.stream():
                    size += len(part)
                    if size > _BODY_MAX:
                        raise InvalidRequest(f"the form is larger than {_BODY_MAX} bytes")
                    parts.append(part)
        except (TimeoutError, ClientDisconnect) as error:
            raise InvalidRequest("the form didn't arrive whole") from error
        return b"".join(parts)

    async def _in_thread(
        self, work: Callable[..., Response], request: Request, visitor: Visitor, *args: object
    ) -> Response:
        """Made in a thread of the pool, where there is room; a late page isn't waited for."""
        if self._inside >= self._limits.workers + self._limits.waiting_max:
            return self._problem(visitor, 503, "Too many look at once. Try again in a moment.")
        self._inside += 1
        made = asyncio.get_running_loop().run_in_executor(
            self._threads, self._guarded, work, request, visitor, *args
        )
        made.add_done_callback(self._left)
        try:
            response = await asyncio.wait_for(asyncio.shield(made), self._limits.request_s)
        except TimeoutError:
            took = f"{self._limits.request_s:g} seconds"
            told = f"No answer within {took}; what was asked for may still happen."
            return self._problem(visitor, 503, told)
        if visitor.is_new:
            self._give(response, request, visitor.key)
        return response

    def _left(self, made: asyncio.Future[Response]) -> None:
        self._inside -= 1

    def _guarded(
        self, work: Callable[..., Response], request: Request, visitor: Visitor, *args: object
    ) -> Response:
        """In a thread of the pool; never raises."""
        try:
            return work(request, visitor, *args)
        except InvalidRequest as error:
            return self._problem(visitor, 404 if request.method == "GET" else 400, str(error))
        except TxlakeError as error:
            return self._problem(visitor, 503, f"{type(error).__name__}: {error}")
        except Exception:
            _log.exception("%s %s", request.method, request.url.path)
            return self._problem(visitor, 500, "The console failed; its log says why.")

    def _looked(self, request: Request, visitor: Visitor, page: Page) -> Response:
        with self._sessions.borrow() as session:
            visit = Visit(
                session=session,
                visitor=visitor,
                path=request.path_params,
                query=dict(request.query_params),
            )
            return self._shown(page.template, visitor, 200, at=page.path, **page.look(visit))

    def _acted(
        self, request: Request, visitor: Visitor, form: Form, fields: dict[str, str]
    ) -> Response:
        with self._sessions.borrow() as session:
            visit = Visit(session=session, visitor=visitor, path=request.path_params, form=fields)
            return RedirectResponse(form.act(visit), 303)

    async def _login(self, request: Request) -> Response:
        """Asks for a token, and takes it."""
        visitor = self._visitors.of(request.cookies.get(COOKIE))
        if not is_asked_by_its_name(request, self._host):
            return self._problem(visitor, 421, "This server doesn't have that name.")
        if request.method == "GET":
            to = request.query_params.get("to", "/")
            response = self._shown("login.html", visitor, 200, wrong="", to=_own_path(to))
            self._give(response, request, visitor.key)
            return response
        try:
            fields = form_of(await self._content(request))
        except InvalidRequest as error:
            return self._problem(visitor, 400, str(error))
        to = _own_path(fields.get("to", "/"))
        if not comes_from_here(request, fields, visitor):
            wrong = "The page was too old. Give the token once more."
            return self._shown("login.html", visitor, 403, wrong=wrong, to=to)
        try:
            key = self._visitors.login(fields.get("token", ""))
        except ApiError as failure:
            return self._shown("login.html", visitor, 401, wrong=str(failure), to=to)
        answer = RedirectResponse(to, 303)
        self._give(answer, request, key)
        return answer

    async def _logout(self, request: Request) -> Response:
        """Ends the login."""
        visitor = self._visitors.of(request.cookies.get(COOKIE))
        try:
            fields = form_of(await self._content(request))
        except InvalidRequest as error:
            return self._problem(visitor, 400, str(error))
        if not comes_from_here(request, fields, visitor):
            return self._problem(visitor, 403, "The page is too old; open it again.")
        self._visitors.logout(visitor.key)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response

    def _give(self, response: Response, request: Request, key: str) -> None:
        """Tells a browser its cookie."""
        response.set_cookie(
            COOKIE, key, httponly=True, samesite="lax", secure=request.url.scheme == "https"
        )

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        """A page that there isn't."""
        visitor = self._visitors.of(request.cookies.get(COOKIE))
        status = error.status_code if isinstance(error, HTTPException) else 404
        return self._problem(visitor, status, "There is no such page.")

    async def _broken(self, request: Request, error: Exception) -> Response:
        _log.error("%s %s", request.method, request.url.path, exc_info=error)
        visitor = self._visitors.of(request.cookies.get(COOKIE))
        return self._problem(visitor, 500, "The console failed; its log says why.")

    def _problem(self, visitor: Visitor, status: int, message: str) -> Response:
        return self._shown("problem.html", visitor, status, message=message)

    def _shown(
        self, template: str, visitor: Visitor, status: int, *, at: str = "", **values: object
    ) -> Response:
        warehouse = self._engine.warehouse
        text = self._templates.get_template(template).render(
            lake="" if warehouse is None else warehouse.url,
            at=at,
            visitor=visitor,
            csrf=visitor.csrf,
            asks_for_tokens=self._asks_for_tokens,
            **values,
        )
        return HTMLResponse(text, status)


def _login_path(request: Request) -> str:
    """The login, which leads back to the page that was asked for."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/login?{urlencode({'to': asked})}"


def _own_path(path: str) -> str:
    """A path on this server: nobody is led elsewhere."""
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_own and path.isprintable() else "/"
