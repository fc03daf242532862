"""Visitors of the console: their logins, and the checks of their requests.

Owns the login, by which a random cookie stands for a token, and the proof that a form comes from a
page of this server.
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
"""The field of every form that proves its origin."""
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
"""The headers of every response."""

_ID_BYTES = 32
_ID_LENGTH = 43
_LOGIN_MS = 12 * 3_600_000
_LOGINS_MAX = 1_000
_FIELDS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A browser.

    Attributes:
        key: its cookie.
        is_new: whether the cookie must still be set.
        csrf: the proof in the forms of its pages.
        caller: the owner of its token; None: it must log in first.
        may_change: whether it may change the lake, which needs a token.
    """

    key: str
    is_new: bool
    csrf: str
    caller: Caller | None
    may_change: bool


@dataclass(frozen=True, slots=True)
class _Login:
    digest: bytes
    expires_ms: int


class Visitors:
    """The browsers that use the console. Thread-safe."""

    def __init__(self, tokens: Tokens, now_ms: Callable[[], int]) -> None:
        self._tokens = tokens
        self._now_ms = now_ms
        self._secret = secrets.token_bytes(_ID_BYTES)
        self._logins: dict[str, _Login] = {}
        self._lock = threading.Lock()

    def visitor(self, cookie: str | None) -> Visitor:
        """Return the visitor with a cookie; a new one for a cookie that this server can't have
        set.
        """
        is_valid = cookie is not None and len(cookie) == _ID_LENGTH and cookie.isascii()
        key = cookie if is_valid and cookie is not None else secrets.token_urlsafe(_ID_BYTES)
        caller = self._caller(key)
        return Visitor(
            key=key,
            is_new=not is_valid,
            csrf=hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest(),
            caller=caller,
            may_change=self._tokens.are_required and caller is not None and not caller.read_only,
        )

    def login(self, token: str) -> str:
        """Log in by a token, and return the new cookie, valid for twelve hours.

        Beyond a thousand logins the oldest one ends. Raises ApiError (401) for a token that isn't
        valid.
        """
        digest = digest_of(token.strip())
        self._tokens.caller_of_digest(digest, self._now_ms())
        key = secrets.token_urlsafe(_ID_BYTES)
        with self._lock:
            if len(self._logins) >= _LOGINS_MAX:
                del self._logins[next(iter(self._logins))]
            self._logins[key] = _Login(digest, self._now_ms() + _LOGIN_MS)
        return key

    def logout(self, key: str) -> None:
        """End the cookie's login."""
        with self._lock:
            self._logins.pop(key, None)

    def _caller(self, key: str) -> Caller | None:
        """Return the caller who logged in with this cookie; None without a login.

        ANYONE where the console requires no tokens. A login that has expired, or whose token has,
        ends.
        """
        if not self._tokens.are_required:
            return ANYONE
        login, now_ms = self._logins.get(key), self._now_ms()
        if login is None:
            return None
        try:
            if login.expires_ms >= now_ms:
                return self._tokens.caller_of_digest(login.digest, now_ms)
        except ApiError:
            pass  # the token has expired
        self.logout(key)
        return None


def has_valid_host(request: Request, host: str) -> bool:
    """Return whether the request names a loopback host; always True if the console listens
    elsewhere.

    Another site may resolve its own name to this host's address (DNS rebinding).
    """
    if not is_loopback(host):
        return True
    try:
        hostname = urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        return False
    return hostname is not None and is_loopback(hostname)


def is_same_origin_form(request: Request, form: Mapping[str, str], visitor: Visitor) -> bool:
    """Return whether a form was sent from a page of this server, made for this browser.

    It needs the proof in its field `csrf`, and the Origin header must not name another host.
    """
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        return False
    return hmac.compare_digest(form.get(CSRF, "").encode(), visitor.csrf.encode())


def parse_form(content: bytes) -> Mapping[str, str]:
    """Return the fields of a form; of a field that is there twice, the last one.

    Raises InvalidRequest for an invalid body, and for too many fields.
    """
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
