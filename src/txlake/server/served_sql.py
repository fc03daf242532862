"""SQL for those who can't import Python: statements in, rows out as JSON or as an Arrow stream.

Owns what a caller may do: statements about the lake's own tables by name, no changes by a token
that may only read, within the statement's time. The lists of statements are in `refusals`.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pyarrow as pa
from pyspark.sql import DataFrame

from txlake.conflict.levels import parse_level
from txlake.errors import Conflict, InvalidRequest, TxlakeError
from txlake.lake.lake import LakeSession
from txlake.protocol.type_text import parse_type
from txlake.protocol.types import to_arrow_type
from txlake.server.bodies import NewSession, Script
from txlake.server.calls import Answer, Call
from txlake.server.failures import Failure, failure_of
from txlake.server.refusals import may_only_change, parts_of, refusal
from txlake.session.command import AsRows, words_of
from txlake.session.session import Session
from txlake.spark.served import ServedPlane
from txlake.spark.spark_errors import spark_errors
from txlake.sql import parse
from txlake.statements import SetLockTimeout, Statement
from txlake.views.describe import Rows
from txlake.views.json_values import json_value
from txlake.views.results import Result, collected, held

ARROW = "application/vnd.apache.arrow.stream"


def run(call: Call) -> Answer:
    """Carries out a script; the answer is the last statement's."""
    script = call.body(Script)
    with _answering(), _session(call, script.session) as session:
        return _ran(call, session, script)


def begin_session(call: Call) -> Answer:
    """A session that is kept, until it is ended or nobody uses it for long."""
    told = call.body(NewSession) if call.content.strip() else NewSession()

    def prepare(session: Session) -> None:
        session.lock_timeout_ms = call.served.limits.sql_lock_ms
        if told.isolation is not None:
            session.level = parse_level(told.isolation)
        if told.database is not None:
            if session.engine.catalog.database(told.database) is None:
                raise InvalidRequest(f"there is no database {told.database!r}")
            session.database = told.database

    with _answering():
        name = call.served.conversations.begin(call.caller.name, prepare)
    return Answer(200, {"session": name})


def end_session(call: Call) -> Answer:
    """Ends a session; its open transaction is rolled back."""
    call.served.conversations.end(call.path["session"], call.caller.name)
    return Answer(204)


@contextmanager
def _answering() -> Iterator[None]:
    """Tells errors of the lake's with their class, and a conflict with its evidence."""
    try:
        yield
    except TxlakeError as error:
        failure = failure_of(error)
        failure.more = {"class": type(error).__name__, "codes": list(error.codes)}
        if isinstance(error, Conflict) and error.evidence is not None:
            failure.more["evidence"] = json_value(dataclasses.asdict(error.evidence))
        raise failure from error


def _session(call: Call, name: str | None) -> AbstractContextManager[Session]:
    if name is not None:
        return call.served.conversations.one(name, call.caller.name)
    return _one_request(call)


@contextmanager
def _one_request(call: Call) -> Iterator[Session]:
    """A session of this request alone. Raises InvalidRequest where it leaves a transaction open."""
    session = call.served.sessions.fresh()
    session.lock_timeout_ms = call.served.limits.sql_lock_ms
    try:
        yield session
        if session.current is not None:
            raise InvalidRequest(
                "the script leaves its transaction open, which was rolled back: COMMIT it, or open "
                "a session (POST /sessions) and name it in each request"
            )
    finally:
        session.close()


def _ran(call: Call, session: Session, script: Script) -> Answer:
    try:
        rules = session.engine.plane.text_rules
        statements = parse(script.statement, script.parameters, rules)
        _check(call, statements)
    except (TxlakeError, Failure) as error:
        session.fail(error)
        raise
    with _bounded(call, session):
        found = LakeSession(session)._answered(script.statement, script.parameters, AsRows())
        try:
            with spark_errors():
                result = _result(found, call.served.limits.sql_rows_max)
        except BaseException as error:
            session.fail(error)
            raise
    if ARROW in call.accept:
        return Answer(200, content=_stream(result), media=ARROW)
    return Answer(200, _shown(session, result))


def _bounded(call: Call, session: Session) -> AbstractContextManager[None]:
    """The statement's time, where its rows are Spark's."""
    plane = session.engine.plane
    if isinstance(plane, ServedPlane):
        return plane.statement(call.served.limits.statement_s)
    return nullcontext()


def _result(found: DataFrame | Rows, rows_max: int) -> Result:
    return held(found, rows_max) if isinstance(found, Rows) else collected(found, rows_max)


def _shown(session: Session, result: Result) -> dict[str, object]:
    return {
        "columns": [{"name": one.name, "type": one.type} for one in result.columns],
        "rows": [[json_value(value) for value in row] for row in result.rows],
        "total": result.total,
        "truncated": result.total > len(result.rows),
        "transaction": None if session.current is None else session.current.id,
    }


def _stream(result: Result) -> bytes:
    """The rows as an Arrow IPC stream; `total` is in the schema's metadata."""
    types = [to_arrow_type(parse_type(one.type)) for one in result.columns]
    names = [one.name for one in result.columns]
    columns = [
        pa.array([row[place] for row in result.rows], kind) for place, kind in enumerate(types)
    ]
    table = pa.Table.from_arrays(columns, names=names)
    table = table.replace_schema_metadata({"total": str(result.total)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


# What may be said


def _check(call: Call, statements: Sequence[Statement]) -> None:
    """Raises Failure for what isn't served, or not to this caller."""
    reason = refusal(statements)
    if reason is not None:
        raise Failure("PermissionDeniedException", reason)
    for statement in statements:
        for part in parts_of(statement):
            _check_part(call, part)


def _check_part(call: Call, part: object) -> None:
    if call.caller.read_only and may_only_change(part):
        raise Failure(
            "PermissionDeniedException",
            f"{call.caller.name!r} may only read, and {words_of(part)} changes the lake",  # type: ignore[arg-type]
        )
    most = call.served.limits.sql_lock_ms
    if isinstance(part, SetLockTimeout) and not 0 <= part.timeout_ms <= most:
        raise Failure(
            "InvalidParameterValueException",
            f"SET LOCK_TIMEOUT {part.timeout_ms}: a served session waits for 0 to {most} ms",
        )
