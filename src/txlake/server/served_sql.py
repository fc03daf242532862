"""SQL over HTTP: statements in, rows out as JSON or as an Arrow stream.

Owns the forms of requests and results. What a caller may run is in `scripts`.
"""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from txlake.conflict.levels import parse_level
from txlake.errors import Conflict, InvalidRequest, TxlakeError
from txlake.protocol.type_text import parse_type
from txlake.protocol.types import to_arrow_type
from txlake.server import scripts
from txlake.server.api_errors import api_error_of
from txlake.server.bodies import NewSession, Script
from txlake.server.calls import ApiResponse, Call
from txlake.session.session import Session
from txlake.session.views.describe import Rows
from txlake.session.views.json_values import json_value
from txlake.session.views.results import Result, frame_result, rows_result
from txlake.spark.spark_errors import spark_errors
from txlake.sql.typed_parameters import from_json

_DURATION = re.compile(r"interval (day|hour|minute|second)\b")
ARROW = "application/vnd.apache.arrow.stream"


def run(call: Call) -> ApiResponse:
    """Run a script, and return its last statement's result.

    Raises ApiError for every txlake error, with its class and codes.
    """
    script = call.body(Script)
    with _errors_with_class(), _session_for(call, script.session) as session:
        script = msgspec.structs.replace(script, parameters=_parameters(script.parameters))
        scripts.set_user(session, call.caller)
        return _run_script(call, session, script)


class _ScriptSession(msgspec.Struct):
    session: str | None = None


def session_of_script(content: bytes) -> str | None:
    """Return the id of the session that a request's body names; None if it names none, or isn't a
    script.
    """
    try:
        return msgspec.json.decode(content, type=_ScriptSession).session
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _parameters(found: Mapping[str, Any] | list[Any] | None) -> Any:  # noqa: ANN401
    """Return the values of a script's parameters. Raises InvalidRequest as `from_json`."""
    if isinstance(found, Mapping):
        return {name: from_json(value) for name, value in found.items()}
    return None if found is None else [from_json(value) for value in found]


def begin_session(call: Call) -> ApiResponse:
    """Open a session that is kept until it is ended or idle, and return its id.

    A request without a body has the default settings. Raises ApiError for invalid settings (400),
    and if too many sessions are open (429).
    """
    settings = call.body(NewSession) if call.content.strip() else NewSession()

    def prepare(session: Session) -> None:
        """Apply the request's settings to the session. Raises InvalidRequest for an invalid one."""
        session.lock_timeout_ms = call.served_lake.limits.sql_lock_ms
        if settings.isolation is not None:
            session.level = parse_level(settings.isolation)
        if settings.database is not None:
            if session.engine.catalog.database(settings.database) is None:
                raise InvalidRequest(f"there is no database {settings.database!r}")
            session.database = settings.database

    with _errors_with_class():
        session_id = call.served_lake.client_sessions.begin(call.caller, prepare)
    return ApiResponse(200, {"session": session_id})


def end_session(call: Call) -> ApiResponse:
    """End a session; its open transaction is rolled back.

    Raises ApiError if the caller has no such session (404), or another request uses it (409).
    """
    call.served_lake.client_sessions.end(call.path["session"], call.caller)
    return ApiResponse(204)


@contextmanager
def _errors_with_class() -> Iterator[None]:
    """Raise a txlake error as an ApiError with its class and codes, and a conflict's evidence."""
    try:
        yield
    except TxlakeError as error:
        api_error = api_error_of(error)
        api_error.details = {"class": type(error).__name__, "codes": list(error.codes)}
        if isinstance(error, Conflict) and error.evidence is not None:
            api_error.details["evidence"] = json_value(dataclasses.asdict(error.evidence))
        raise api_error from error


def _session_for(call: Call, session_id: str | None) -> AbstractContextManager[Session]:
    """Return the session for a script: the caller's by its id, or one for this request alone."""
    if session_id is not None:
        return call.served_lake.client_sessions.acquire(session_id, call.caller)
    return _request_session(call)


@contextmanager
def _request_session(call: Call) -> Iterator[Session]:
    """Yield a session for this request alone, and close it, which rolls back an open transaction.

    Raises InvalidRequest if the script leaves its transaction open.
    """
    session = call.served_lake.sessions.create()
    session.lock_timeout_ms = call.served_lake.limits.sql_lock_ms
    try:
        yield session
        if session.current is not None:
            raise InvalidRequest(
                "the script leaves its transaction open, which was rolled back: COMMIT it, or open "
                "a session (POST /sessions) and name it in each request"
            )
    finally:
        session.close()


def _run_script(call: Call, session: Session, script: Script) -> ApiResponse:
    """Check and run a script, and return its result as JSON or, if accepted, as Arrow.

    Of the rows at most `Limits.sql_rows_max` are returned. An error fails the session's open
    transaction, as a failed statement does.
    """
    limits = call.served_lake.limits
    with scripts.statement_timeout(session, limits):
        statements = scripts.judged(
            session, call.caller, limits, script.statement, script.parameters
        )
        versions = scripts.judged_versions(session, statements, script.read_version, script.reads)
        session.last_identity = None
        rows = scripts.run(session, script.statement, script.parameters, statements, versions)
        try:
            with spark_errors():
                result = _result(rows, limits.sql_rows_max)
        except BaseException as error:
            session.fail(error)
            raise
    if ARROW in call.accept:
        return ApiResponse(200, content=_arrow_stream(session, result), media=ARROW)
    return ApiResponse(200, _json_rows(session, result))


def _result(rows: DataFrame | Rows, rows_max: int) -> Result:
    return rows_result(rows, rows_max) if isinstance(rows, Rows) else frame_result(rows, rows_max)


def _json_rows(session: Session, result: Result) -> dict[str, object]:
    """Return the result as JSON values, with the open transaction's id."""
    return {
        "columns": [{"name": column.name, "type": column.type} for column in result.columns],
        "rows": [[json_value(value) for value in row] for row in result.rows],
        "total": result.total,
        "truncated": result.total > len(result.rows),
        "transaction": None if session.current is None else session.current.id,
    }


def _arrow_stream(session: Session, result: Result) -> bytes:
    """Return the rows as an Arrow IPC stream; the schema's metadata has `total`, the id of the open
    `transaction`, and the last `identity` value that the script generated.
    """
    types = [_arrow_type(column.type) for column in result.columns]
    names = [column.name for column in result.columns]
    columns = [
        pa.array([row[position] for row in result.rows], kind)
        for position, kind in enumerate(types)
    ]
    table = pa.Table.from_arrays(columns, names=names)
    metadata = {"total": str(result.total)}
    if session.current is not None:
        metadata["transaction"] = session.current.id
    if session.last_identity is not None:
        metadata["identity"] = str(session.last_identity)
    table = table.replace_schema_metadata(metadata)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type of a column; an interval of days to seconds is a duration.

    Raises InvalidRequest for a type that Delta doesn't have.
    """
    if _DURATION.match(text):
        return pa.duration("us")
    return to_arrow_type(parse_type(text))
