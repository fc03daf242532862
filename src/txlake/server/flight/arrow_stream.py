"""Arrow's messages in those of Flight: a schema, record batches out, a stream in.

A message of Arrow's IPC is a header and a body, which FlightData carries apart. Source: Arrow's
"IPC Streaming Format" and Flight.proto.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa

from txlake.errors import InvalidRequest
from txlake.server.flight.messages import Message, new

# What a client that sets nothing accepts in one message is 4 MiB in some libraries of gRPC.
_BATCH_BYTES = 2 * 1024 * 1024
_CONTINUATION = b"\xff\xff\xff\xff"


def schema_bytes(schema: pa.Schema) -> bytes:
    """Return a schema as one message, the form in which FlightInfo has it."""
    return bytes(schema.serialize().to_pybytes())


def schema_data(schema: pa.Schema) -> Message:
    """Return the message that begins a stream."""
    return _flight_data(schema.serialize())


def batch_data(batch: pa.RecordBatch) -> Iterator[Message]:
    """Yield the messages of a record batch: several where it is larger than 2 MiB."""
    pieces = max(1, -(-batch.nbytes // _BATCH_BYTES))
    size = max(1, -(-batch.num_rows // pieces))
    for start in range(0, max(1, batch.num_rows), size):
        yield _flight_data(batch.slice(start, size).serialize())


def _flight_data(content: pa.Buffer) -> Message:
    message = pa.ipc.read_message(content)
    body = b"" if message.body is None else message.body.to_pybytes()
    return new("FlightData", data_header=message.metadata.to_pybytes(), data_body=body)


class _Incoming(io.RawIOBase):
    """The messages of a call as the bytes of a stream of Arrow's."""

    def __init__(self, first: Message, rest: Iterator[Message], size_max: int) -> None:
        self._messages = _each(first, rest)
        self._rest = b""
        self._left = size_max
        self._size_max = size_max

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            message = next(self._messages, None)
            if message is None:
                return 0
            if message.data_header:
                self._rest = self._framed(message)
        taken = self._rest[: len(target)]
        target[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)

    def _framed(self, message: Message) -> bytes:
        """Return a message as Arrow's stream has it. Raises InvalidRequest past the limit."""
        header: bytes = message.data_header
        header += b"\0" * (-len(header) % 8)
        body: bytes = message.data_body
        self._left -= len(header) + len(body)
        if self._left < 0:
            raise InvalidRequest(
                f"the rows have more than {self._size_max:,} bytes, which a server takes at once: "
                "send fewer in one call; several calls in one transaction are one commit"
            )
        return _CONTINUATION + len(header).to_bytes(4, "little") + header + body


def _each(first: Message, rest: Iterator[Message]) -> Iterator[Message]:
    yield first
    yield from rest


def table_of(first: Message, rest: Iterator[Message], size_max: int) -> pa.Table:
    """Return the rows that a client sends, `first` being its first message.

    A stream without a schema has neither columns nor rows. Raises InvalidRequest for messages that
    are no stream of Arrow's, and for more than `size_max` bytes.
    """
    incoming = _Incoming(first, rest, size_max)
    buffered = io.BufferedReader(incoming, 1 << 20)
    try:
        if not buffered.peek(1):
            return pa.table({})
        with pa.ipc.open_stream(buffered) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"expected a stream of Arrow record batches: {error}") from error
