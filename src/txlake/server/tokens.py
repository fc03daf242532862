"""Bearer tokens, each with a name, its permission, and its expiry.

Owns the file that lists them. Memory holds only digests; a token is never shown.
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
from txlake.server.api_errors import ApiError

_SCHEME = "bearer "
_LENGTH_MIN = 16


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An entry of the token file. `expires` is a time with its zone; None: never.

    `branches`: it writes on branches of its own only.
    """

    token: str
    name: str
    read_only: bool = False
    branches: bool = False
    expires: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token.

    Attributes:
        read_only: may not change anything of the lake itself.
        branches: may work on branches of his own nevertheless, by SQL.
    """

    name: str
    read_only: bool = False
    branches: bool = False

    @property
    def user_name(self) -> str:
        """Return the name that the caller's branches have as their owner's.

        It isn't that of an operating system's user of the same name.
        """
        return f"token:{self.name}"


ANYONE = Caller("anyone")


@dataclass(frozen=True, slots=True)
class _TokenRecord:
    digest: bytes
    caller: Caller
    expires_ms: int | None


class Tokens:
    """The valid tokens; without any, everybody may call."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._records = tuple(_record(token) for token in tokens)

    @property
    def are_required(self) -> bool:
        """Return whether a caller needs a token."""
        return bool(self._records)

    @classmethod
    def parse(cls, text: bytes, *, source: str) -> Tokens:
        """Return the tokens of a file: a JSON list of objects `token`, `name`, `read_only`,
        `branches`, `expires`.

        Raises InvalidRequest, which names `source` and never a token, for another form, an empty
        list, a token that is too short, an expiry without a time zone, and a token that only reads
        and works on branches.
        """
        try:
            tokens = msgspec.json.decode(text, type=list[Token])
        except msgspec.MsgspecError as error:
            raise InvalidRequest(
                f"{source}: expected a JSON list of objects with token, name, and where they "
                f"are wanted read_only, branches and expires: {error}"
            ) from error
        if not tokens:
            raise InvalidRequest(f"{source}: it lists no token")
        for token in tokens:
            if len(token.token) < _LENGTH_MIN:
                raise InvalidRequest(
                    f"{source}: the token of {token.name!r} is shorter than {_LENGTH_MIN} "
                    "characters"
                )
            if token.read_only and token.branches:
                raise InvalidRequest(
                    f"{source}: the token of {token.name!r}: read_only and branches contradict "
                    "each other; with branches alone it reads all and writes on its own branches"
                )
            if token.expires is not None and token.expires.tzinfo is None:
                raise InvalidRequest(
                    f"{source}: the token of {token.name!r}: expires needs a time zone, as in "
                    "2027-01-31T00:00:00Z"
                )
        return cls(tokens)

    def caller(self, authorization: str | None, now_ms: int) -> Caller:
        """Return the caller of an Authorization header; ANYONE, whatever the header, if there are
        no tokens.

        Raises ApiError (401) if the header is missing or wrong, or the token is unknown or has
        expired.
        """
        if not self._records:
            return ANYONE
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise _unauthorized("expected the header Authorization: Bearer <token>")
        return self.caller_of_digest(digest_of(authorization[len(_SCHEME) :].strip()), now_ms)

    def caller_of_digest(self, digest: bytes, now_ms: int) -> Caller:
        """Return the caller whose token has this digest; ANYONE if there are no tokens.

        Raises ApiError (401) if the token is unknown or has expired.
        """
        if not self._records:
            return ANYONE
        matching = None
        for record in self._records:  # all of them: the time must not reveal which one matches
            if hmac.compare_digest(record.digest, digest):
                matching = record
        if matching is None:
            raise _unauthorized("the token isn't one of this server's")
        if matching.expires_ms is not None and matching.expires_ms <= now_ms:
            raise _unauthorized(f"the token of {matching.caller.name!r} has expired")
        return matching.caller


def _record(token: Token) -> _TokenRecord:
    expires = None if token.expires is None else int(token.expires.timestamp() * 1000)
    # What doesn't know of branches refuses such a token as one that only reads.
    caller = Caller(token.name, token.read_only or token.branches, token.branches)
    return _TokenRecord(digest_of(token.token), caller, expires)


def digest_of(token: str) -> bytes:
    """Return a token's digest, which is kept in its place."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback one, which other hosts can't reach.

    Of host names only `localhost` counts as one; others aren't looked up.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unauthorized(message: str) -> ApiError:
    return ApiError("NotAuthorizedException", message)
