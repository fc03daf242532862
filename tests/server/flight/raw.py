"""A client of Flight's service that sends what others' clients don't."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc

from tests.server.flight.serving import WRITER
from txlake.server.flight.messages import decoded, decoder, new, packed, unpacked

_SERVICE = "/arrow.flight.protocol.FlightService"


class RawClient:
    """Calls a server; its failures are gRPC's."""

    Failed = grpc.RpcError

    def __init__(self, address: str, token: str = WRITER, *headers: tuple[str, str]) -> None:
        self._channel = grpc.insecure_channel(address.partition("://")[2])
        self._metadata = (("authorization", f"Bearer {token}"), *headers)

    def info(self, content: bytes) -> Any:
        """The answer of GetFlightInfo for a command."""
        call = self._channel.unary_unary(
            f"{_SERVICE}/GetFlightInfo",
            request_serializer=_serialized,
            response_deserializer=decoder("FlightInfo"),
        )
        return call(new("FlightDescriptor", type=2, cmd=content), metadata=self._metadata)

    def query(self, text: str, transaction: bytes | None = None) -> Any:
        """The answer of GetFlightInfo for a query."""
        fields = {} if transaction is None else {"transaction_id": transaction}
        return self.info(packed("CommandStatementQuery", query=text, **fields))

    def query_prepared(self, text: str) -> Any:
        """The answer of GetFlightInfo for a prepared statement."""
        made = self.sql_action(
            "CreatePreparedStatement", "ActionCreatePreparedStatementRequest", query=text
        )
        handle = made.prepared_statement_handle
        return self.info(packed("CommandPreparedStatementQuery", prepared_statement_handle=handle))

    def rows(self, info: Any) -> Iterator[Any]:
        """The messages of a result."""
        call = self._channel.unary_stream(
            f"{_SERVICE}/DoGet",
            request_serializer=_serialized,
            response_deserializer=decoder("FlightData"),
        )
        return iter(call(info.endpoint[0].ticket, metadata=self._metadata))

    def put(self, *messages: Any) -> list[Any]:
        """The answers of DoPut."""
        call = self._channel.stream_stream(
            f"{_SERVICE}/DoPut",
            request_serializer=_serialized,
            response_deserializer=decoder("PutResult"),
        )
        return list(call(iter(messages), metadata=self._metadata))

    def update(self, text: str, transaction: bytes | None = None) -> int:
        """How many rows an update changed."""
        fields = {} if transaction is None else {"transaction_id": transaction}
        command = packed("CommandStatementUpdate", query=text, **fields)
        descriptor = new("FlightDescriptor", type=2, cmd=command)
        [answer] = self.put(new("FlightData", flight_descriptor=descriptor))
        count: int = decoded("DoPutUpdateResult", answer.app_metadata).record_count
        return count

    def action(self, name: str, body: bytes) -> bytes | None:
        """The answer of an action; None without one."""
        call = self._channel.unary_stream(
            f"{_SERVICE}/DoAction",
            request_serializer=_serialized,
            response_deserializer=decoder("Result"),
        )
        found = list(call(new("Action", type=name, body=body), metadata=self._metadata))
        return found[0].body if found else None

    def sql_action(self, action: str, message: str, /, **fields: Any) -> Any:
        """The answer of an action of Flight SQL; None without one."""
        answer = self.action(action, packed(message, **fields))
        return None if answer is None else unpacked(answer)[1]

    def cancel(self, info: Any) -> int:
        """The status of CancelFlightInfo."""
        body = new("CancelFlightInfoRequest", info=info).SerializeToString()
        answer = self.action("CancelFlightInfo", body)
        status: int = decoded("CancelFlightInfoResult", answer or b"").status
        return status

    def listed(self) -> list[str]:
        """The names of ListActions."""
        call = self._channel.unary_stream(
            f"{_SERVICE}/ListActions",
            request_serializer=_serialized,
            response_deserializer=decoder("ActionType"),
        )
        return [one.type for one in call(new("Empty"), metadata=self._metadata)]

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _serialized(message: Any) -> bytes:
    content: bytes = message.SerializeToString()
    return content
