"""The calls of Arrow Flight's service: each has a caller, a status, and an end when cancelled.

Source: Arrow's Flight.proto; arrow-java's "auth2" for the handshake by name and password, which is
the token.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Any, NoReturn, TypeVar

import grpc

from txlake.errors import TxlakeError
from txlake.server.api_errors import ApiError
from txlake.server.calls import ServedLake
from txlake.server.flight.commands import Commands
from txlake.server.flight.handles import Handles
from txlake.server.flight.messages import Message, decoder, new
from txlake.server.flight.statements import FlightCall
from txlake.server.flight.statuses import DETAILS, status_of
from txlake.server.tokens import Tokens

_SERVICE = "arrow.flight.protocol.FlightService"
_COOKIE = "arrow_flight_session_id"
_ISOLATION, _DATABASE = "txlake-isolation", "txlake-database"
_ACTIONS = "CancelFlightInfo", "SetSessionOptions", "GetSessionOptions", "CloseSession"
Value = TypeVar("Value")
_logger = logging.getLogger(__name__)


class Service:
    """Flight's service for one lake."""

    def __init__(self, served: ServedLake, tokens: Tokens, handles: Handles) -> None:
        self._served = served
        self._tokens = tokens
        self._commands = Commands(served, handles)

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service for a server of gRPC."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        both = grpc.stream_stream_rpc_method_handler
        methods = {
            "Handshake": _method(both, self._handshake, "HandshakeRequest"),
            "GetFlightInfo": _method(unary, self._flight_info, "FlightDescriptor"),
            "GetSchema": _method(unary, self._schema, "FlightDescriptor"),
            "DoGet": _method(stream, self._get, "Ticket"),
            "DoPut": _method(both, self._put, "FlightData"),
            "DoAction": _method(stream, self._action, "Action"),
            "ListActions": _method(stream, self._list_actions, "Empty"),
            "ListFlights": _method(stream, self._list_flights, "Criteria"),
        }
        return grpc.method_handlers_generic_handler(_SERVICE, methods)

    def _flight_info(self, descriptor: Message, context: grpc.ServicerContext) -> Message:
        return self._answered(context, lambda call: self._commands.flight_info(call, descriptor))

    def _schema(self, descriptor: Message, context: grpc.ServicerContext) -> Message:
        return self._answered(context, lambda call: self._commands.schema(call, descriptor))

    def _get(self, ticket: Message, context: grpc.ServicerContext) -> Iterator[Message]:
        yield from self._streamed(context, lambda call: self._commands.rows(call, ticket.ticket))

    def _put(self, messages: Iterator[Message], context: grpc.ServicerContext) -> Iterator[Message]:
        def answers(call: FlightCall) -> Iterator[bytes]:
            """Carry out what the first message asks for."""
            first = next(messages, None)
            if first is None:
                return
            yield from self._commands.put(call, first, messages)

        for answer in self._streamed(context, answers):
            yield new("PutResult", app_metadata=answer)

    def _action(self, action: Message, context: grpc.ServicerContext) -> Iterator[Message]:
        def run(call: FlightCall) -> bytes | None:
            """Carry out the action. Raises ApiError (501) for an unknown one."""
            found = self._commands.actions.get(action.type)
            if found is None:
                raise ApiError(
                    "NotImplementedException", f"this server has no action {action.type!r:.80}"
                )
            return found(call, action.body)

        answer = self._answered(context, run)
        if answer is not None:
            yield new("Result", body=answer)

    def _list_actions(self, _: Message, context: grpc.ServicerContext) -> Iterator[Message]:
        names = self._answered(context, lambda _: list(self._commands.actions))
        for name in names:
            yield new("ActionType", type=name)

    def _list_flights(self, _: Message, context: grpc.ServicerContext) -> Iterator[Message]:
        """List no flights: results are found by queries."""
        self._answered(context, lambda _: None)
        yield from ()

    def _handshake(
        self, messages: Iterator[Message], context: grpc.ServicerContext
    ) -> Iterator[Message]:
        """Let a client that has a name and a password call by a token, which is the password."""

        def token(_: FlightCall) -> str | None:
            """Return the token of the call, which is valid."""
            return _authorization(context)

        found = self._answered(context, token)
        if found is not None:
            context.send_initial_metadata((("authorization", found),))
        for _ in messages:
            yield new("HandshakeResponse")
            return

    # A call's caller and status

    def _answered(
        self, context: grpc.ServicerContext, work: Callable[[FlightCall], Value]
    ) -> Value:
        """Return what the work returns; its error ends the call with a status."""
        try:
            return work(self._call(context))
        except Exception as error:
            _abort(context, error)

    def _streamed(
        self, context: grpc.ServicerContext, work: Callable[[FlightCall], Iterator[Value]]
    ) -> Iterator[Value]:
        """Yield what the work yields; its error ends the call with a status."""
        try:
            yield from work(self._call(context))
        except Exception as error:
            _abort(context, error)

    def _call(self, context: grpc.ServicerContext) -> FlightCall:
        """Return the call. Raises ApiError (401) unless its token is valid."""
        now_ms = self._served.engine.system.now_ms()
        headers = _headers(context)
        return FlightCall(
            caller=self._tokens.caller(_authorization(context), now_ms),
            isolation=headers.get(_ISOLATION),
            database=headers.get(_DATABASE),
            session=_session_of(headers.get("cookie", "")),
            on_end=context.add_callback,
            cancel=context.cancel,
            set_cookie=partial(_send_cookie, context),
        )


def _method(make: Callable[..., Any], run: Callable[..., Any], name: str) -> Any:  # noqa: ANN401
    return make(
        run,
        request_deserializer=decoder(name),
        response_serializer=lambda message: message.SerializeToString(),
    )


def _headers(context: grpc.ServicerContext) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}


def _authorization(context: grpc.ServicerContext) -> str | None:
    """Return the header of a token; for one of a name and a password that of the password."""
    found = _headers(context).get("authorization")
    kind, _, content = (found or "").partition(" ")
    if kind.lower() != "basic":
        return found
    try:
        _, _, password = base64.b64decode(content, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return found
    return f"Bearer {password}"


def _session_of(cookies: str) -> str | None:
    """Return the session that a client's cookies name; None if they name none."""
    found: SimpleCookie = SimpleCookie()
    with suppress(CookieError):
        found.load(cookies)
    return found[_COOKIE].value if _COOKIE in found else None


def _send_cookie(context: grpc.ServicerContext, handle: str) -> None:
    context.send_initial_metadata((("set-cookie", f"{_COOKIE}={handle}"),))


def _abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    """End a call with an error's status. One that isn't txlake's is logged."""
    if not isinstance(error, TxlakeError | ApiError):
        _logger.error("a call of Flight SQL failed", exc_info=error)
    code, message, details = status_of(error)
    if details is not None:
        context.set_trailing_metadata(((DETAILS, details),))
    context.abort(code, message)
    raise AssertionError("unreachable")
