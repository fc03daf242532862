"""A browser, played: it keeps a cookie, and sends the forms that it was given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import httpx2 as httpx
from starlette.testclient import TestClient

from txlake.console.app import LIMITS, Section, application
from txlake.server.calls import Limits
from txlake.server.tokens import Token, Tokens
from txlake.session.engine import Engine

HOME = "http://127.0.0.1"
WRITER, READER = "a token that may write", "a token that may only read"
TOKENS = (Token(token=WRITER, name="ann"), Token(token=READER, name="rob", read_only=True))
_CSRF = re.compile(r'name="csrf" value="([0-9a-f]+)"')


class Browser:
    """Looks at a console of a lake."""

    def __init__(
        self,
        engine: Engine,
        tokens: Sequence[Token] = (),
        *,
        host: str = "127.0.0.1",
        limits: Limits = LIMITS,
        sections: Sequence[Section] = (),
    ) -> None:
        self.app = application(engine, Tokens(tokens), host=host, limits=limits, sections=sections)
        self.http = TestClient(self.app, HOME, raise_server_exceptions=False)

    def get(self, path: str) -> httpx.Response:
        """A page, wherever it leads."""
        return self.http.get(path)

    def page(self, path: str) -> str:
        """The text of a page that there is."""
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.text

    def send(
        self, path: str, fields: Mapping[str, str], *, page: str | None = None
    ) -> httpx.Response:
        """Send a form of a page, with what the page says where it comes from."""
        found = _CSRF.search(self.get(page or path).text)
        proof = {} if found is None else {"csrf": found[1]}
        return self.http.post(path, data={**proof, **fields})

    def log_in(self, token: str) -> httpx.Response:
        """Give a token."""
        return self.send("/login", {"token": token})

    def __enter__(self) -> Self:
        self.http.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.__exit__(kind, error, trace)
