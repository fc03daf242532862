"""Who may call: bearer tokens, each with a name, what it is for, and until when.

Owns the file that lists them. What is kept in memory are digests; a token is never shown.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from txlake.errors import InvalidRequest
from txlake.server.failures import Failure

_SCHEME = "bearer "
_LENGTH_MIN = 16


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One token, as the file has it. `expires` is a time with its zone; None: it never does."""

    token: str
    name: str
    read_only: bool = False
    expires: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. `read_only`: changes nothing."""

    name: str
    read_only: bool = False


ANYONE = Caller("anyone")


@dataclass(frozen=True, slots=True)
class _Known:
    digest: bytes
    caller: Caller
    expires_ms: int | None


class Tokens:
    """The tokens that are good; without any, everybody may call."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._known = tuple(_known(token) for token in tokens)

    @property
    def are_asked_for(self) -> bool:
        """Whether who calls has to have one."""
        return bool(self._known)

    @classmethod
    def parse(cls, text: bytes, *, source: str) -> Tokens:
        """The tokens of a file: a JSON list of objects `token`, `name`, `read_only`, `expires`.

        Raises InvalidRequest naming `source`, and never a token.
        """
        try:
            found = msgspec.json.decode(text, type=list[Token])
        except msgspec.MsgspecError as error:
            raise InvalidRequest(
                f"{source}: expected a JSON list of objects with token, name, and where they "
                f"are wanted read_only and expires: {error}"
            ) from error
        if not found:
            raise InvalidRequest(f"{source}: it lists no token")
        for token in found:
            if len(token.token) < _LENGTH_MIN:
                raise InvalidRequest(
                    f"{source}: the token of {token.name!r} is shorter than {_LENGTH_MIN} "
                    "characters"
                )
            if token.expires is not None and token.expires.tzinfo is None:
                raise InvalidRequest(
                    f"{source}: the token of {token.name!r}: expires needs a time zone, as in "
                    "2027-01-31T00:00:00Z"
                )
        return cls(found)

    def caller(self, authorization: str | None, now_ms: int) -> Caller:
        """Who sends the header. Raises Failure: there is none, it is wrong, or it has expired."""
        if not self._known:
            return ANYONE
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise _unauthorized("expected the header Authorization: Bearer <token>")
        return self.known(digest_of(authorization[len(_SCHEME) :].strip()), now_ms)

    def known(self, digest: bytes, now_ms: int) -> Caller:
        """Whose token has that digest. Raises Failure as `caller`."""
        if not self._known:
            return ANYONE
        found = None
        for known in self._known:  # all of them, so that the time doesn't tell which it was
            if hmac.compare_digest(known.digest, digest):
                found = known
        if found is None:
            raise _unauthorized("the token isn't one of this server's")
        if found.expires_ms is not None and found.expires_ms <= now_ms:
            raise _unauthorized(f"the token of {found.caller.name!r} has expired")
        return found.caller


def _known(token: Token) -> _Known:
    expires = None if token.expires is None else int(token.expires.timestamp() * 1000)
    return _Known(digest_of(token.token), Caller(token.name, token.read_only), expires)


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def is_own(host: str) -> bool:
    """Whether a name or an address is this host's own, which nobody else reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unauthorized(message: str) -> Failure:
    return Failure("NotAuthorizedException", message)
