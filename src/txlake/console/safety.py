"""Who looks, and what a browser may do with a page.

Owns the login, by which a cookie that means nothing elsewhere stands for a token, and the proof
that a form comes from a page of this server.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from txlake.errors import InvalidRequest
from txlake.server.api_errors import ApiError
from txlake.server.tokens import ANYONE, Caller, Tokens, digest_of, is_loopback

COOKIE = "txlake_console"
CSRF = "csrf"
"""The field of every form that proves where it comes from."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Of every answer."""

_ID_BYTES = 32
_ID_LENGTH = 43
_KEPT_MS = 12 * 3_600_000
_LOGINS_MAX = 1_000
_FIELDS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A browser.

    Attributes:
        key: what its cookie says.
        is_new: whether it has to be told that.
        csrf: what the forms of its pages say.
        caller: whose token it gave; None: it has to give one first.
        may_change: whether it may change the lake, which nobody may without a token.
    """

    key: str
    is_new: bool
    csrf: str
    caller: Caller | None
    may_change: bool


@dataclass(frozen=True, slots=True)
class _Login:
    digest: bytes
    until_ms: int


class Visitors:
    """The browsers that look; safe to use from many threads."""

    def __init__(self, tokens: Tokens, now_ms: Callable[[], int]) -> None:
        self._tokens = tokens
        self._now_ms = now_ms
        self._secret = secrets.token_bytes(_ID_BYTES)
        self._logins: dict[str, _Login] = {}
        self._lock = threading.Lock()

    def of(self, cookie: str | None) -> Visitor:
        """Who has that cookie; a new one for none that this server could have made."""
        is_known = cookie is not None and len(cookie) == _ID_LENGTH and cookie.isascii()
        key = cookie if is_known and cookie is not None else secrets.token_urlsafe(_ID_BYTES)
        caller = self._caller(key)
        return Visitor(
            key=key,
            is_new=not is_known,
            csrf=hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest(),
            caller=caller,
            may_change=self._tokens.are_required and caller is not None and not caller.read_only,
        )

    def login(self, token: str) -> str:
        """The cookie of the browser that gave the token, a new one. Raises Failure."""
        digest = digest_of(token.strip())
        self._tokens.caller_of_digest(digest, self._now_ms())
        key = secrets.token_urlsafe(_ID_BYTES)
        with self._lock:
            if len(self._logins) >= _LOGINS_MAX:
                del self._logins[next(iter(self._logins))]
            self._logins[key] = _Login(digest, self._now_ms() + _KEPT_MS)
        return key

    def logout(self, key: str) -> None:
        """The cookie means nothing from here on."""
        with self._lock:
            self._logins.pop(key, None)

    def _caller(self, key: str) -> Caller | None:
        if not self._tokens.are_required:
            return ANYONE
        login, now_ms = self._logins.get(key), self._now_ms()
        if login is None:
            return None
        try:
            if login.until_ms >= now_ms:
                return self._tokens.caller_of_digest(login.digest, now_ms)
        except ApiError:
            pass  # it has expired since
        self.logout(key)
        return None


def is_asked_by_its_name(request: Request, host: str) -> bool:
    """Whether it is asked for by this host's name, where it listens here alone.

    A site elsewhere may give its own name this host's address.
    """
    if not is_loopback(host):
        return True
    try:
        asked = urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        return False
    return asked is not None and is_loopback(asked)


def comes_from_here(request: Request, form: Mapping[str, str], visitor: Visitor) -> bool:
    """Whether a form was sent from a page of this server, made for that browser."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        return False
    return hmac.compare_digest(form.get(CSRF, "").encode(), visitor.csrf.encode())


def form_of(content: bytes) -> Mapping[str, str]:
    """The fields of a form, each once. Raises InvalidRequest for what is none."""
    try:
        pairs = parse_qsl(
            content.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_FIELDS_MAX,
            errors="strict",
        )
    except ValueError as error:  # a UnicodeDecodeError is one
        raise InvalidRequest("expected the fields of a form, found something else") from error
    return dict(pairs)
