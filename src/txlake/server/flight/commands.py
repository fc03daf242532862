"""The commands and actions of Flight SQL, each carried out for one caller.

Source: Arrow's "Flight SQL" and FlightSql.proto.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.protocol.type_text import parse_type
from txlake.protocol.types import Struct, to_arrow_type
from txlake.server import scripts
from txlake.server.api_errors import ApiError
from txlake.server.calls import ServedLake
from txlake.server.flight.arrow_stream import batch_data, schema_bytes, schema_data, table_of
from txlake.server.flight.handles import Handles, Prepared
from txlake.server.flight.ingest import ingest, target_of
from txlake.server.flight.messages import Message, decoded, new, packed, unpacked
from txlake.server.flight.metadata import metadata_schema, metadata_table
from txlake.server.flight.parameters import bound_rows, marker_names, parameter_schema
from txlake.server.flight.results import Result
from txlake.server.flight.session_options import get_options, set_options
from txlake.server.flight.statements import FlightCall, Statements, changed_by, is_reading, together
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.session.views.describe import Rows
from txlake.sql.markers import Arguments
from txlake.sql.statements import (
    Begin,
    Commit,
    DescribeQuery,
    ReleaseSavepoint,
    RollbackTo,
    Savepoint,
    Select,
    TableName,
)

# A stream of rows that a client sends at once; it is held until it is written.
_STREAM_BYTES_MAX = 512 * 1024 * 1024
_COMMIT, _ROLLBACK = 1, 2
_RELEASE, _ROLLBACK_TO = 1, 2
_CANCELLED = 1
_CLOSED = 1
_logger = logging.getLogger(__name__)


class Commands:
    """Carries out the commands and actions of all calls."""

    def __init__(self, served: ServedLake, handles: Handles) -> None:
        self._served = served
        self._handles = handles
        self._statements = Statements(served, handles)
        self.actions: Mapping[str, Callable[[FlightCall, bytes], bytes | None]] = {
            "CreatePreparedStatement": self._prepare,
            "ClosePreparedStatement": self._close_prepared,
            "BeginTransaction": self._begin,
            "EndTransaction": self._end,
            "BeginSavepoint": self._begin_savepoint,
            "EndSavepoint": self._end_savepoint,
            "CancelQuery": self._cancel_query,
            "CancelFlightInfo": self._cancel_flight_info,
            "SetSessionOptions": self._set_session_options,
            "GetSessionOptions": self._get_session_options,
            "CloseSession": self._close_session,
        }

    # Queries

    def flight_info(self, call: FlightCall, descriptor: Message) -> Message:
        """Carry out a query, or prepare a table of metadata, and return where its rows are.

        A statement that returns no rows has no place, and the number of rows that it changed.
        Raises as the statement, and ApiError for a command that isn't one.
        """
        name, command = unpacked(descriptor.cmd)
        schema = metadata_schema(name, command)
        if schema is not None:
            return _info(descriptor, schema, descriptor.cmd)
        if name == "CommandStatementQuery":
            transaction = _handle(command, "transaction_id")
            result = self._statements.run(call, self._sql(command), None, transaction)
        elif name == "CommandPreparedStatementQuery":
            result = self._run_prepared(call, command)
        else:
            raise _unknown_command(name)
        if result.changed is not None:
            return new(
                "FlightInfo",
                schema=schema_bytes(pa.schema([])),
                flight_descriptor=descriptor,
                total_records=result.changed,
                total_bytes=-1,
            )
        handle = self._handles.results.add(call.caller, result)
        ticket = packed("TicketStatementQuery", statement_handle=handle.encode())
        return _info(descriptor, result.schema, ticket, result.count)

    def schema(self, call: FlightCall, descriptor: Message) -> Message:
        """Return the columns of a query or a table of metadata, without running it."""
        name, command = unpacked(descriptor.cmd)
        schema = metadata_schema(name, command)
        if schema is None:
            if name == "CommandStatementQuery":
                text, transaction = self._sql(command), _handle(command, "transaction_id")
            elif name == "CommandPreparedStatementQuery":
                prepared = self._prepared(call, command)
                text, transaction = prepared.text, prepared.transaction
            else:
                raise _unknown_command(name)
            schema = self._columns(call, text, transaction, len(marker_names(text)))
        return new("SchemaResult", schema=schema_bytes(schema))

    def rows(self, call: FlightCall, ticket: bytes) -> Iterator[Message]:
        """Yield the messages of a result, or of a table of metadata.

        A call that is cancelled ends the result. Raises ApiError for an unknown ticket (404), and
        as the rows.
        """
        name, command = unpacked(ticket)
        if name == "TicketStatementQuery":
            yield from self._result_rows(call, command.statement_handle.decode())
            return
        if metadata_schema(name, command) is None:
            raise _unknown_command(name)
        with self._statements.session_for(call, None) as session:
            table = metadata_table(self._served, session, name, command)
        yield schema_data(table.schema)
        for batch in table.to_batches():
            yield from batch_data(batch)

    def _result_rows(self, call: FlightCall, handle: str) -> Iterator[Message]:
        results = self._handles.results
        result = results.find(handle, call.caller)
        if not result.take():
            raise ApiError("NotFoundException", "the result was fetched already; query again")
        result.stop = call.cancel
        if not call.on_end(lambda: result.lose(Unavailable("the fetch was cancelled"))):
            return
        try:
            yield schema_data(result.schema)
            for batch in result.batches(self._served.engine.plane, self._served.limits):
                results.touch(handle)  # a client that reads isn't idle
                if result.transaction is not None:
                    self._handles.transactions.touch(result.transaction)
                yield from batch_data(batch)
        finally:
            results.remove(handle, call.caller)

    def _sql(self, command: Message) -> str:
        """Return the text of a command's statement. Raises InvalidRequest if it is too long."""
        text: str = command.query
        size_max = self._served.limits.body_bytes_max
        if len(text) > size_max:
            raise InvalidRequest(
                f"the statement has {len(text):,} characters, and may have {size_max:,}; bind "
                "values or ingest rows instead"
            )
        return text

    # Changes

    def put(self, call: FlightCall, first: Message, rest: Iterator[Message]) -> Iterator[bytes]:
        """Carry out an update, bind values or write rows, and yield what is answered.

        Raises ApiError for a command that isn't one of these, and as the statement.
        """
        name, command = unpacked(first.flight_descriptor.cmd)
        if name == "CommandStatementUpdate":
            transaction = _handle(command, "transaction_id")
            changed = changed_by(self._statements.run(call, self._sql(command), None, transaction))
        elif name == "CommandPreparedStatementUpdate":
            changed = self._update_prepared(call, command, first, rest)
        elif name == "CommandPreparedStatementQuery":
            prepared = self._prepared(call, command)
            table = table_of(first, rest, self._served.limits.body_bytes_max)
            prepared.rows = bound_rows(table, marker_names(prepared.text))
            answer = new(
                "DoPutPreparedStatementResult",
                prepared_statement_handle=command.prepared_statement_handle,
            )
            yield answer.SerializeToString()
            return
        elif name == "CommandStatementIngest":
            changed = self._ingest(call, command, first, rest)
        else:
            raise _unknown_command(name)
        yield new("DoPutUpdateResult", record_count=changed).SerializeToString()

    def _ingest(
        self, call: FlightCall, command: Message, first: Message, rest: Iterator[Message]
    ) -> int:
        scripts.require_writer(call.caller, "INGEST")
        transaction = _handle(command, "transaction_id")
        rows = table_of(first, rest, _STREAM_BYTES_MAX)
        with (
            self._statements.session_for(call, transaction) as session,
            self._statements.running(call, session) as running,
            scripts.statement_timeout(session, self._served.limits) as watch,
        ):
            running.watch = watch
            try:
                table = target_of(self._served, session, command)
                with together(session):
                    ingest(session, table, command, rows)
            except (TxlakeError, ApiError) as error:
                session.fail(error)
                raise
        return int(rows.num_rows)

    # Prepared statements

    def _prepare(self, call: FlightCall, body: bytes) -> bytes:
        """Prepare a statement: find its markers, their types, and the columns of a query."""
        request = _unpacked_as("ActionCreatePreparedStatementRequest", body)
        transaction = _handle(request, "transaction_id")
        text = self._sql(request)
        names = marker_names(text)
        schema = self._columns(call, text, transaction, len(names))
        parameters = pa.schema([])
        if names:
            parameters = parameter_schema(text, names, self._table_columns)
        prepared = Prepared(text, transaction)
        handle = self._handles.prepared.add(call.caller, prepared)
        return packed(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=handle.encode(),
            dataset_schema=schema_bytes(schema),
            parameter_schema=schema_bytes(parameters),
        )

    def _columns(
        self, call: FlightCall, text: str, transaction: str | None, markers: int
    ) -> pa.Schema:
        """Return the columns of a statement's rows; none for one that returns no rows.

        With markers they are found with NULLs for values, outside of the transaction: none where
        that isn't possible.
        """
        if not markers:
            with self._statements.session_for(call, transaction) as session:
                return self._columns_in(call, session, text, None)
        try:
            session = self._served.sessions.create()
            try:
                self._statements.prepare(call, session)
                return self._columns_in(call, session, text, _nulls(text))
            finally:
                session.close()
        except InvalidRequest as error:
            _logger.debug("the columns of a prepared statement aren't known: %s", error)
            return pa.schema([])

    def _columns_in(
        self, call: FlightCall, session: Session, text: str, args: Arguments | None
    ) -> pa.Schema:
        limits = self._served.limits
        with scripts.statement_timeout(session, limits):
            statements = scripts.judged(session, call.caller, limits, text, args)
            if len(statements) != 1:
                return pa.schema([])
            [statement] = statements
            if isinstance(statement, Select):
                described = DescribeQuery(statement.query)
                rows = session.answer_in(session.current, described)(AsRows())
                assert isinstance(rows, Rows)
                return pa.schema([_described_field(*row[:2]) for row in rows.rows])
            if args is None and is_reading(statement):
                found = session.answer_in(session.current, statement)(AsRows())
                return found.table().schema if isinstance(found, Rows) else pa.schema([])
        return pa.schema([])

    def _table_columns(self, parts: tuple[str, ...]) -> Struct | None:
        """Return the columns of a table of the lake; None for any other name."""
        with self._served.sessions.borrow() as session:
            try:
                return session.snapshot(TableName(parts[-2:])).schema
            except TxlakeError:
                return None

    def _prepared(self, call: FlightCall, command: Message) -> Prepared:
        handle = _text(command.prepared_statement_handle)
        return self._handles.prepared.find(handle, call.caller)

    def _run_prepared(self, call: FlightCall, command: Message) -> Result:
        """Run a prepared statement with the values that were bound, once.

        Raises InvalidRequest for several rows of values.
        """
        prepared = self._prepared(call, command)
        rows = prepared.rows
        if rows is not None and len(rows) != 1:
            raise InvalidRequest(
                f"{len(rows)} rows of values are bound, and a query takes one; run it for each, or "
                "run an update"
            )
        args = None if rows is None else rows[0]
        return self._statements.run(call, prepared.text, args or None, prepared.transaction)

    def _update_prepared(
        self, call: FlightCall, command: Message, first: Message, rest: Iterator[Message]
    ) -> int:
        """Run a prepared statement for each row of values that the call sends, all or none."""
        prepared = self._prepared(call, command)
        table = table_of(first, rest, _STREAM_BYTES_MAX)
        rows: Sequence[Arguments] = prepared.rows or ()
        if table.num_columns:
            rows = bound_rows(table, marker_names(prepared.text))
            if not rows:
                return 0
        if rows and rows[0]:
            return self._statements.run_many(call, prepared.text, rows, prepared.transaction)
        return changed_by(self._statements.run(call, prepared.text, None, prepared.transaction))

    def _close_prepared(self, call: FlightCall, body: bytes) -> None:
        request = _unpacked_as("ActionClosePreparedStatementRequest", body)
        self._handles.prepared.remove(_text(request.prepared_statement_handle), call.caller)

    # Transactions

    def _begin(self, call: FlightCall, body: bytes) -> bytes:
        """Begin a transaction, and return its handle."""
        _unpacked_as("ActionBeginTransactionRequest", body)

        def prepare(session: Session) -> None:
            """Begin in a new session, which is the transaction's alone."""
            self._statements.prepare(call, session)
            session.perform(Begin())

        handle = self._handles.transactions.begin(call.caller, prepare)
        return packed("ActionBeginTransactionResult", transaction_id=handle.encode())

    def _end(self, call: FlightCall, body: bytes) -> None:
        """Commit or roll back a transaction, which ends in any case.

        To roll back one that has ended does nothing. Raises as COMMIT.
        """
        request = _unpacked_as("ActionEndTransactionRequest", body)
        handle = _text(request.transaction_id)
        if request.action not in (_COMMIT, _ROLLBACK):
            raise InvalidRequest(f"EndTransaction: expected 1 or 2, found {request.action}")
        try:
            if request.action == _COMMIT:
                with self._handles.transaction(handle, call.caller) as session:
                    session.perform(Commit())
            else:
                self._handles.lose_rows(handle)
        finally:
            try:
                self._handles.transactions.end(handle, call.caller)
            except ApiError as error:
                if error.kind != "NotFoundException":
                    raise

    def _begin_savepoint(self, call: FlightCall, body: bytes) -> bytes:
        request = _unpacked_as("ActionBeginSavepointRequest", body)
        handle = _text(request.transaction_id)
        if not request.name:
            raise InvalidRequest("BeginSavepoint: expected a name")
        with self._handles.transaction(handle, call.caller) as session:
            session.perform(Savepoint(request.name))
        return packed(
            "ActionBeginSavepointResult", savepoint_id=f"{handle}:{request.name}".encode()
        )

    def _end_savepoint(self, call: FlightCall, body: bytes) -> None:
        request = _unpacked_as("ActionEndSavepointRequest", body)
        handle, _, name = _text(request.savepoint_id).partition(":")
        if request.action not in (_RELEASE, _ROLLBACK_TO):
            raise InvalidRequest(f"EndSavepoint: expected 1 or 2, found {request.action}")
        with self._handles.transaction(handle, call.caller) as session:
            if request.action == _RELEASE:
                session.perform(ReleaseSavepoint(name))
            else:
                session.perform(RollbackTo(name))
                self._handles.lose_rows(handle)

    # Cancellation and sessions

    def _cancel_query(self, call: FlightCall, body: bytes) -> bytes:
        request = _unpacked_as("ActionCancelQueryRequest", body)
        self._cancel(call, decoded("FlightInfo", request.info))
        return packed("ActionCancelQueryResult", result=_CANCELLED)

    def _cancel_flight_info(self, call: FlightCall, body: bytes) -> bytes:
        self._cancel(call, decoded("CancelFlightInfoRequest", body).info)
        answer = new("CancelFlightInfoResult", status=_CANCELLED)
        return bytes(answer.SerializeToString())

    def _cancel(self, call: FlightCall, info: Message) -> None:
        """End the results of a query, whether they are being fetched or not."""
        for endpoint in info.endpoint:
            name, ticket = unpacked(endpoint.ticket.ticket)
            if name == "TicketStatementQuery":
                handle = _text(ticket.statement_handle)
                result = self._handles.results.remove(handle, call.caller)
                if result is not None:
                    result.lose(Unavailable("the query was cancelled"))

    def _set_session_options(self, call: FlightCall, body: bytes) -> bytes:
        request = decoded("SetSessionOptionsRequest", body)
        handle = call.session
        if handle is None:
            handle = self._handles.sessions.begin(
                call.caller, lambda session: self._statements.prepare(call, session)
            )
            call.set_cookie(handle)
        with self._handles.sessions.acquire(handle, call.caller) as session:
            return set_options(self._served, session, request)

    def _get_session_options(self, call: FlightCall, body: bytes) -> bytes:
        decoded("GetSessionOptionsRequest", body)
        if call.session is None:
            return bytes(new("GetSessionOptionsResult").SerializeToString())
        with self._handles.sessions.acquire(call.session, call.caller) as session:
            return get_options(self._served, session)

    def _close_session(self, call: FlightCall, body: bytes) -> bytes:
        decoded("CloseSessionRequest", body)
        if call.session is not None:
            self._handles.sessions.end(call.session, call.caller)
        return bytes(new("CloseSessionResult", status=_CLOSED).SerializeToString())


def _info(descriptor: Message, schema: pa.Schema, ticket: bytes, count: int = -1) -> Message:
    return new(
        "FlightInfo",
        schema=schema_bytes(schema),
        flight_descriptor=descriptor,
        endpoint=[new("FlightEndpoint", ticket=new("Ticket", ticket=ticket))],
        total_records=count,
        total_bytes=-1,
        ordered=True,
    )


def _described_field(name: object, kind: object) -> pa.Field:
    """Return a column of DESCRIBE QUERY; of a type that Arrow doesn't have as text."""
    text = str(kind)
    if text.startswith("interval day") or text.endswith("to second"):
        return pa.field(str(name), pa.duration("us"))
    try:
        return pa.field(str(name), to_arrow_type(parse_type(text)))
    except (ValueError, TxlakeError):
        return pa.field(str(name), pa.string())


def _nulls(text: str) -> Arguments:
    names = marker_names(text)
    return [None] * len(names) if None in names else {str(name): None for name in names}


def _handle(message: Message, name: str) -> str | None:
    """Return a handle of a message; None if it has none, or an empty one."""
    value = getattr(message, name) if message.HasField(name) else b""
    return _text(value) or None


def _text(handle: bytes) -> str:
    """Return a handle as text. Raises InvalidRequest for bytes that are none of this server's."""
    try:
        return handle.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("expected a handle that this server gave") from error


def _unpacked_as(name: str, body: bytes) -> Message:
    """Return the message of an action. Raises InvalidRequest for another one."""
    found, message = unpacked(body)
    if found != name:
        raise InvalidRequest(f"expected the message {name}, found {found}")
    return message


def _unknown_command(name: str) -> ApiError:
    return ApiError("NotImplementedException", f"this server has no {name} for this call")
