"""The console's ASGI application: a page queries the lake in a thread, and is rendered by a
template.

Owns the checks that every request passes: the host name, the login, the origin of a form, the
number of requests at once, and the time of each.
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

from txlake.commands import HANDLERS
from txlake.console import (
    branches,
    conflicts,
    formatting,
    history,
    instant,
    maintenance,
    now,
    tables,
)
from txlake.console.page_requests import Action, PageRequest, View
from txlake.console.visitors import (
    COOKIE,
    HEADERS,
    Visitor,
    Visitors,
    has_valid_host,
    is_same_origin_form,
    parse_form,
)
from txlake.errors import InvalidRequest, TxlakeError
from txlake.server.api_errors import ApiError
from txlake.server.calls import Limits, SessionPool
from txlake.server.tokens import Tokens
from txlake.session.engine import Engine
from txlake.session.session import Session

_FOLDER = Path(__file__).parent
_BODY_BYTES_MAX = 65_536
LIMITS = Limits(workers=4, waiting_max=32, request_s=30.0)
"""The limits of a console."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """A page, rendered by a template. `title`: its name in the menu; None: it isn't in the menu."""

    path: str
    template: str
    view: View
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """A form. `changes`: whether it changes the lake, which needs a permission."""

    path: str
    action: Action
    changes: bool = False


PAGES = (
    Page("/", "now.html", now.page, "Now"),
    Page("/now", "now_part.html", now.page),
    Page("/kill", "kill.html", now.kill_page),
    Page("/history", "history.html", history.page, "History"),
    Page("/history/{sequence:int}", "instant.html", instant.page),
    Page("/branches", "branches.html", branches.list_page, "Branches"),
    Page("/branches/one", "branch.html", branches.branch_page),
    Page("/branches/publish", "publish.html", branches.publish_page),
    Page("/branches/drop", "drop_branch.html", branches.drop_page),
    Page("/conflicts", "conflicts.html", conflicts.list_page, "Conflicts"),
    Page("/conflicts/{number:int}", "conflict.html", conflicts.conflict_page),
    Page("/tables", "tables.html", tables.list_page, "Tables"),
    Page("/tables/{name}", "table.html", tables.table_page),
    Page("/tables/{name}/restore", "restore.html", tables.restore_page),
    Page("/maintenance", "maintenance.html", maintenance.page, "Maintenance"),
)
FORMS = (
    Form("/kill", now.kill, changes=True),
    Form("/branches/publish", branches.publish_form, changes=True),
    Form("/branches/drop", branches.drop_form, changes=True),
    Form("/tables/{name}/restore", tables.restore, changes=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Pages and forms of one topic, with the folder of their templates and static files."""

    pages: Sequence[Page] = ()
    forms: Sequence[Form] = ()
    folder: Path = _FOLDER
    close: Callable[[], None] = lambda: None


def application(
    engine: Engine,
    tokens: Tokens,
    *,
    host: str = "127.0.0.1",
    limits: Limits = LIMITS,
    sections: Sequence[Section] = (),
) -> ASGIApp:
    """Return the console of a lake, for any ASGI server that listens at `host`.

    `sections`: further pages beside the lake's.
    """
    app = _App(engine, tokens, host, limits, [Section(pages=PAGES, forms=FORMS), *sections])
    return _ResponseHeaders(app.starlette)


class _ResponseHeaders:
    """A wrapper that adds the security and caching headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_file = scope["type"] == "http" and scope["path"].startswith("/static/")

        async def send_with_headers(message: Message) -> None:
            """Send a message, with the headers if it begins a response."""
            if message["type"] == "http.response.start":
                caching = "max-age=3600" if is_file else "no-store"
                headers = {**HEADERS, "cache-control": caching}
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in headers.items()),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _App:
    """The application: it admits browsers' requests, and renders their pages."""

    def __init__(
        self, engine: Engine, tokens: Tokens, host: str, limits: Limits, sections: Sequence[Section]
    ) -> None:
        self._engine = engine
        self._host = host
        self._limits = limits
        self._rooms = sections
        self._visitors = Visitors(tokens, engine.system.now_ms)
        self._requires_tokens = tokens.are_required
        self._sessions = SessionPool(lambda: Session(engine, HANDLERS))
        self._threads = ThreadPoolExecutor(limits.workers, "txlake-console")
        self._in_flight = 0  # only used in the event loop's thread
        folders = list(dict.fromkeys(section.folder for section in sections))
        self._templates = Environment(
            loader=ChoiceLoader([FileSystemLoader(folder / "templates") for folder in folders]),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(formatting.FILTERS)
        self._templates.globals["menu"] = [
            (page.path, page.title) for section in sections for page in section.pages if page.title
        ]
        static = StaticFiles(directory=folders[0] / "static")
        static.all_directories = [folder / "static" for folder in folders]
        routes: list[Route | Mount] = [Mount("/static", static)]
        for section in sections:
            forms = {form.path: form for form in section.forms}
            for page in section.pages:
                form = forms.pop(page.path, None)
                methods = ["GET"] if form is None else ["GET", "POST"]
                routes.append(Route(page.path, self._endpoint(page, form), methods=methods))
            routes += [Route(form.path, self._endpoint(None, form)) for form in forms.values()]
        routes += [
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]
        self.starlette = Starlette(
            routes=routes,
            exception_handlers={HTTPException: self._no_such_page, Exception: self._internal_error},
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Serve until the shutdown; then let the running requests end, and close sections and
        sessions.
        """
        try:
            yield
        finally:
            await asyncio.to_thread(self._threads.shutdown)
            for section in self._rooms:
                section.close()
            self._sessions.close()

    def _endpoint(
        self, page: Page | None, form: Form | None
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the function that starlette calls for a path."""

        async def answer(request: Request) -> Response:
            """Answer a request with its page, or a POST with its form's result.

            A visitor without a login is redirected to it (303) from a page. A wrong host name gets
            421.
            """
            visitor = self._visitors.visitor(request.cookies.get(COOKIE))
            if not has_valid_host(request, self._host):
                return self._error_page(visitor, 421, "This server doesn't have that name.")
            if request.method == "POST":
                assert form is not None
                return await self._submit_form(request, visitor, form)
            assert page is not None
            if visitor.caller is None:
                return RedirectResponse(_login_path(request), 303)
            return await self._in_thread(self._render_page, request, visitor, page)

        return answer

    async def _submit_form(self, request: Request, visitor: Visitor, form: Form) -> Response:
        """Run a form's action, and return its redirection.

        An error page says why it isn't run: 400 for an unreadable form, 403 for one that isn't from
        this console's pages and for a read-only visitor, 401 without a login.
        """
        try:
            fields = parse_form(await self._read_body(request))
        except InvalidRequest as error:
            return self._error_page(visitor, 400, str(error))
        if not is_same_origin_form(request, fields, visitor):
            message = "The form wasn't sent from a page of this console, or the page is too old."
            return self._error_page(
                visitor, 403, f"{message} Open the page again, and send it there."
            )
        if visitor.caller is None:
            return self._error_page(visitor, 401, "Log in first.")
        if form.changes and not visitor.may_change:
            return self._error_page(visitor, 403, self._read_only(visitor))
        return await self._in_thread(self._run_action, request, visitor, form, fields)

    def _read_only(self, visitor: Visitor) -> str:
        """Return why the visitor may not change the lake."""
        if self._requires_tokens:
            assert visitor.caller is not None
            return f"The token of {visitor.caller.name!r} is read-only."
        return (
            "This console is read-only. Start it with --token-file, and log in with a token that "
            "isn't read_only, to change something."
        )

    async def _read_body(self, request: Request) -> bytes:
        """Return the body. Raises InvalidRequest if it is over 64 KiB, too slow or cut off."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.request_s):
                async for part in request.stream():
                    size += len(part)
                    if size > _BODY_BYTES_MAX:
                        raise InvalidRequest(f"the form is larger than {_BODY_BYTES_MAX} bytes")
                    parts.append(part)
        except (TimeoutError, ClientDisconnect) as error:
            raise InvalidRequest("the form didn't arrive whole") from error
        return b"".join(parts)

    async def _in_thread(
        self, work: Callable[..., Response], request: Request, visitor: Visitor, *args: object
    ) -> Response:
        """Run the work in a thread of the pool, and return its response, with a new visitor's
        cookie.

        With too many requests at once it isn't run, and the response is a 503 error page. So it is
        after the time limit, but then the work goes on.
        """
        if self._in_flight >= self._limits.workers + self._limits.waiting_max:
            return self._error_page(
                visitor, 503, "Too many requests at once. Try again in a moment."
            )
        self._in_flight += 1
        future = asyncio.get_running_loop().run_in_executor(
            self._threads, self._run, work, request, visitor, *args
        )
        future.add_done_callback(self._request_ended)
        try:
            response = await asyncio.wait_for(asyncio.shield(future), self._limits.request_s)
        except TimeoutError:
            limit = f"{self._limits.request_s:g} seconds"
            message = f"No answer within {limit}; what was asked for may still happen."
            return self._error_page(visitor, 503, message)
        if visitor.is_new:
            self._set_cookie(response, request, visitor.key)
        return response

    def _request_ended(self, future: asyncio.Future[Response]) -> None:
        self._in_flight -= 1

    def _run(
        self, work: Callable[..., Response], request: Request, visitor: Visitor, *args: object
    ) -> Response:
        """Return the work's response, or an error page. Blocks: runs in a thread of the pool.

        An InvalidRequest becomes 404 for a GET and 400 for a form, another TxlakeError 503, and any
        other exception is logged and becomes 500.
        """
        try:
            return work(request, visitor, *args)
        except InvalidRequest as error:
            return self._error_page(visitor, 404 if request.method == "GET" else 400, str(error))
        except TxlakeError as error:
            return self._error_page(visitor, 503, f"{type(error).__name__}: {error}")
        except Exception:
            _log.exception("%s %s", request.method, request.url.path)
            return self._error_page(visitor, 500, "The console failed; its log says why.")

    def _render_page(self, request: Request, visitor: Visitor, page: Page) -> Response:
        """Return a page, rendered with the values that its view reads by a session of the pool.

        Blocks: runs in a thread of the pool (`_in_thread`). Errors of the view are raised.
        """
        with self._sessions.borrow() as session:
            page_request = PageRequest(
                session=session,
                visitor=visitor,
                path=request.path_params,
                query=dict(request.query_params),
            )
            return self._render(
                page.template, visitor, 200, at=page.path, **page.view(page_request)
            )

    def _run_action(
        self, request: Request, visitor: Visitor, form: Form, fields: dict[str, str]
    ) -> Response:
        """Carry out a form with a session of the pool, and return the redirection to the path that
        the form's action returns.

        Blocks: runs in a thread of the pool (`_in_thread`). Errors of the action are raised.
        """
        with self._sessions.borrow() as session:
            page_request = PageRequest(
                session=session, visitor=visitor, path=request.path_params, form=fields
            )
            return RedirectResponse(form.action(page_request), 303)

    async def _login(self, request: Request) -> Response:
        """Show the login page, or log in by a token and redirect to the local path `to`.

        A form from elsewhere (403) and an invalid token (401) get the login page again, with the
        reason. A wrong host name gets 421, an unreadable form 400.
        """
        visitor = self._visitors.visitor(request.cookies.get(COOKIE))
        if not has_valid_host(request, self._host):
            return self._error_page(visitor, 421, "This server doesn't have that name.")
        if request.method == "GET":
            to = request.query_params.get("to", "/")
            response = self._render("login.html", visitor, 200, wrong="", to=_local_path(to))
            self._set_cookie(response, request, visitor.key)
            return response
        try:
            fields = parse_form(await self._read_body(request))
        except InvalidRequest as error:
            return self._error_page(visitor, 400, str(error))
        to = _local_path(fields.get("to", "/"))
        if not is_same_origin_form(request, fields, visitor):
            wrong = "The page was too old. Give the token once more."
            return self._render("login.html", visitor, 403, wrong=wrong, to=to)
        try:
            key = self._visitors.login(fields.get("token", ""))
        except ApiError as error:
            return self._render("login.html", visitor, 401, wrong=str(error), to=to)
        answer = RedirectResponse(to, 303)
        self._set_cookie(answer, request, key)
        return answer

    async def _logout(self, request: Request) -> Response:
        """End the login, delete the cookie, and redirect to the login page.

        An error page for a form from elsewhere (403) and an unreadable one (400).
        """
        visitor = self._visitors.visitor(request.cookies.get(COOKIE))
        try:
            fields = parse_form(await self._read_body(request))
        except InvalidRequest as error:
            return self._error_page(visitor, 400, str(error))
        if not is_same_origin_form(request, fields, visitor):
            return self._error_page(visitor, 403, "The page is too old; open it again.")
        self._visitors.logout(visitor.key)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response

    def _set_cookie(self, response: Response, request: Request, key: str) -> None:
        """Set the visitor's cookie."""
        response.set_cookie(
            COOKIE, key, httponly=True, samesite="lax", secure=request.url.scheme == "https"
        )

    async def _no_such_page(self, request: Request, error: Exception) -> Response:
        """Return an error page "no such page": 404 for an unknown path, 405 for a method that it
        doesn't have.
        """
        visitor = self._visitors.visitor(request.cookies.get(COOKIE))
        status = error.status_code if isinstance(error, HTTPException) else 404
        return self._error_page(visitor, status, "There is no such page.")

    async def _internal_error(self, request: Request, error: Exception) -> Response:
        """Log an error that nothing else caught, and return an error page (500) without it."""
        _log.error("%s %s", request.method, request.url.path, exc_info=error)
        visitor = self._visitors.visitor(request.cookies.get(COOKIE))
        return self._error_page(visitor, 500, "The console failed; its log says why.")

    def _error_page(self, visitor: Visitor, status: int, message: str) -> Response:
        return self._render("problem.html", visitor, status, message=message)

    def _render(
        self, template: str, visitor: Visitor, status: int, *, at: str = "", **values: object
    ) -> Response:
        """Return a template rendered for a visitor. `at` is the page's path, for the menu."""
        warehouse = self._engine.warehouse
        text = self._templates.get_template(template).render(
            lake="" if warehouse is None else warehouse.url,
            at=at,
            visitor=visitor,
            csrf=visitor.csrf,
            requires_tokens=self._requires_tokens,
            **values,
        )
        return HTMLResponse(text, status)


def _login_path(request: Request) -> str:
    """Return the path of the login, which redirects to the requested page afterwards."""
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/login?{urlencode({'to': target})}"


def _local_path(path: str) -> str:
    """Return the path if it is on this server, else `/`: nobody is redirected elsewhere.

    A path with unprintable characters becomes `/` too.
    """
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_own and path.isprintable() else "/"
