"""Flight SQL's own calls, as no driver sends them; what is kept, and who may use it."""

from __future__ import annotations

import datetime
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flightsql
import grpc
import pyarrow as pa
import pytest

import txlake
from tests.server.flight.raw import RawClient
from tests.server.flight.serving import HEADER, READER, TOKENS, WRITER, ServedFlight, rows
from tests.server.process import ServerProcess
from txlake.errors import (
    Conflict,
    CorruptTable,
    Evidence,
    InvalidRequest,
    LockTimeout,
    OutcomeUnknown,
    Unavailable,
    UnsupportedFeature,
)
from txlake.protocol.types import Field, Primitive, Struct
from txlake.server.api_errors import ApiError
from txlake.server.calls import Limits
from txlake.server.flight import handles
from txlake.server.flight.arrow_stream import batch_data, schema_data, table_of
from txlake.server.flight.messages import decoded, new, packed, unpacked
from txlake.server.flight.parameters import bound_rows, marker_names, parameter_schema
from txlake.server.flight.statements import FlightCall, Statements
from txlake.server.flight.statuses import status_of
from txlake.server.tokens import Tokens
from txlake.session.permission import NotPermitted

CODE = grpc.StatusCode


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedFlight]:
    with txlake.connect(str(tmp_path / "lake")) as lake, ServedFlight(lake) as made:
        client = RawClient(made.address)
        client.update("CREATE TABLE t (id INT, name STRING)")
        client.update("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        client.close()
        yield made


@pytest.fixture
def client(served: ServedFlight) -> Iterator[RawClient]:
    made = RawClient(served.address)
    yield made
    made.close()


def begin(client: RawClient) -> bytes:
    """The handle of a new transaction."""
    answer = client.sql_action("BeginTransaction", "ActionBeginTransactionRequest")
    handle: bytes = answer.transaction_id
    return handle


def end(client: RawClient, handle: bytes, action: int) -> None:
    """Commit (1) or roll back (2)."""
    client.sql_action(
        "EndTransaction", "ActionEndTransactionRequest", transaction_id=handle, action=action
    )


def held(client: RawClient, text: str, transaction: bytes | None = None) -> list[tuple[Any, ...]]:
    """The rows of a query, sorted."""
    first, *rest = client.rows(client.query(text, transaction))
    table = table_of(first, iter(rest), 1 << 20)
    return sorted(zip(*(column.to_pylist() for column in table.columns)))


def refused(call: Any) -> grpc.RpcError:
    """The error of a call."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def test_savepoints(client: RawClient) -> None:
    one = begin(client)
    assert client.update("DELETE FROM t WHERE id = 1", one) == 1
    answer = client.sql_action(
        "BeginSavepoint", "ActionBeginSavepointRequest", transaction_id=one, name="s"
    )
    fields = {"savepoint_id": answer.savepoint_id}
    assert client.update("DELETE FROM t WHERE id = 2", one) == 1
    assert held(client, "SELECT id FROM t", one) == []
    client.sql_action("EndSavepoint", "ActionEndSavepointRequest", **fields, action=2)
    assert held(client, "SELECT id FROM t", one) == [(2,)]
    client.sql_action("EndSavepoint", "ActionEndSavepointRequest", **fields, action=1)
    for action in (1, 2):
        found = refused(
            lambda action=action: client.sql_action(
                "EndSavepoint", "ActionEndSavepointRequest", **fields, action=action
            )
        )
        assert found.code() in (CODE.INVALID_ARGUMENT, CODE.NOT_FOUND)
    end(client, one, 2)
    assert held(client, "SELECT id FROM t") == [(1,), (2,)]


def test_the_end_of_a_transaction(served: ServedFlight, client: RawClient) -> None:
    one = begin(client)
    client.update("DELETE FROM t WHERE id = 1", one)
    end(client, one, 1)
    assert held(client, "SELECT id FROM t") == [(2,)]
    assert refused(lambda: end(client, one, 1)).code() is CODE.NOT_FOUND
    end(client, one, 2)  # whatever has ended is rolled back, for a client that cleans up
    assert refused(lambda: client.update("DELETE FROM t", one)).code() is CODE.NOT_FOUND
    two = begin(client)
    assert refused(lambda: end(client, two, 3)).code() is CODE.INVALID_ARGUMENT
    client.update("DELETE FROM t WHERE id = 2", two)
    client.update("COMMIT", two)
    found = refused(lambda: client.update("INSERT INTO t VALUES (3, 'c')", two))
    assert (found.code(), "has ended" in str(found.details())) == (CODE.INVALID_ARGUMENT, True)
    assert held(client, "SELECT id FROM t") == []
    assert len(served.handles.transactions._open) == 1


def test_another_token_has_none_of_these(served: ServedFlight, client: RawClient) -> None:
    other = RawClient(served.address, READER)
    one = begin(client)
    info = client.query("SELECT id FROM t")
    prepared = client.sql_action(
        "CreatePreparedStatement", "ActionCreatePreparedStatementRequest", query="SELECT id FROM t"
    )
    command = packed(
        "CommandPreparedStatementQuery",
        prepared_statement_handle=prepared.prepared_statement_handle,
    )
    assert refused(lambda: held(other, "SELECT id FROM t", one)).code() is CODE.NOT_FOUND
    assert refused(lambda: list(other.rows(info))).code() is CODE.NOT_FOUND
    assert refused(lambda: other.info(command)).code() is CODE.NOT_FOUND
    end(other, one, 2)
    other.cancel(info)
    other.sql_action(
        "ClosePreparedStatement",
        "ActionClosePreparedStatementRequest",
        prepared_statement_handle=prepared.prepared_statement_handle,
    )
    assert held(client, "SELECT id FROM t", one) == [(1,), (2,)]
    assert len(list(client.rows(info))) == 2
    client.info(command)
    other.close()


def test_a_result_is_fetched_once(client: RawClient) -> None:
    info = client.query("SELECT id FROM t")
    assert info.total_records == 2
    assert len(list(client.rows(info))) == 2
    assert refused(lambda: list(client.rows(info))).code() is CODE.NOT_FOUND
    taken = client.query("SELECT id FROM t")
    assert client.cancel(taken) == 1
    assert client.cancel(taken) == 1
    assert refused(lambda: list(client.rows(taken))).code() is CODE.NOT_FOUND
    old = client.sql_action(
        "CancelQuery", "ActionCancelQueryRequest", info=taken.SerializeToString()
    )
    assert old.result == 1


def test_what_is_idle_is_forgotten(
    served: ServedFlight, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = client.query("SELECT id FROM t")
    one = begin(client)
    served.handles.sweep()
    assert len(list(client.rows(info))) == 2
    again = client.query("SELECT id FROM t")
    for store in (served.handles.results, served.handles.prepared, served.handles.transactions):
        monkeypatch.setattr(store, "_idle_ms", -1)
    served.handles.sweep()
    assert refused(lambda: list(client.rows(again))).code() is CODE.NOT_FOUND
    assert refused(lambda: client.update("DELETE FROM t", one)).code() is CODE.NOT_FOUND
    monkeypatch.setattr(handles, "_COUNT_MAX", 0)
    full = refused(lambda: client.query("SELECT id FROM t"))
    assert full.code() is CODE.RESOURCE_EXHAUSTED


def test_the_sweeper_works_while_no_calls_arrive(tmp_path: Path) -> None:
    limits = Limits(client_session_idle_s=0.2, sql_lock_ms=60_000)
    with txlake.connect(str(tmp_path / "lake")) as lake, ServedFlight(lake, limits) as served:
        client = RawClient(served.address)
        client.update("CREATE TABLE t (id INT)")
        client.update("LOCK TABLE t IN EXCLUSIVE MODE", begin(client))
        assert client.update("INSERT INTO t VALUES (1)") == 1  # once the lock is free
        client.close()


def test_actions_and_commands_that_are_wrong(client: RawClient) -> None:
    assert "CreatePreparedStatement" in client.listed()
    cases: list[tuple[Any, grpc.StatusCode]] = [
        (lambda: client.action("Dance", b""), CODE.UNIMPLEMENTED),
        (lambda: client.action("BeginTransaction", b"\xff"), CODE.INVALID_ARGUMENT),
        (lambda: client.action("BeginTransaction", b""), CODE.INVALID_ARGUMENT),
        (
            lambda: client.sql_action("BeginTransaction", "ActionEndTransactionRequest"),
            CODE.INVALID_ARGUMENT,
        ),
        (
            lambda: client.sql_action("BeginSavepoint", "ActionBeginSavepointRequest"),
            CODE.INVALID_ARGUMENT,
        ),
        (lambda: client.info(b"SELECT 1"), CODE.INVALID_ARGUMENT),
        (lambda: client.info(packed("CommandStatementUpdate", query="x")), CODE.UNIMPLEMENTED),
        (lambda: client.update("SELECT id FROM t"), CODE.INVALID_ARGUMENT),
        (lambda: client.update("SELECT 1", b"\xff"), CODE.INVALID_ARGUMENT),
        (lambda: client.query("SELECT ? = :a"), CODE.INVALID_ARGUMENT),
        (lambda: client.query(""), CODE.INVALID_ARGUMENT),
        (lambda: client.put(new("FlightData")), CODE.INVALID_ARGUMENT),
        (lambda: client.query("SELECT 1 -- " + "x" * (4 << 20)), CODE.INVALID_ARGUMENT),
    ]
    for call, code in cases:
        assert refused(call).code() is code
    assert client.put() == []


def test_a_command_of_a_newer_protocol_is_unimplemented() -> None:
    content = packed("CommandGetCatalogs").replace(b"GetCatalogs", b"GetFutures_")
    with pytest.raises(ApiError, match="doesn't have CommandGetFutures_"):
        unpacked(content)


def test_ingestion_options_that_are_wrong(client: RawClient) -> None:
    table = pa.table({"id": [3], "name": ["c"]})

    def ingest(**fields: Any) -> Any:
        """Send the rows."""
        command = packed("CommandStatementIngest", **fields)
        first = schema_data(table.schema)
        first.flight_descriptor.CopyFrom(new("FlightDescriptor", type=2, cmd=command))
        messages = [one for batch in table.to_batches() for one in batch_data(batch)]
        return client.put(first, *messages)

    good = new("TableDefinitionOptions", if_not_exist=2, if_exists=2)
    found = refused(lambda: ingest(table="t"))
    assert (found.code(), "what to do" in str(found.details())) == (CODE.INVALID_ARGUMENT, True)
    found = refused(
        lambda: ingest(table="t", table_definition_options=good, options={"colour": "red"})
    )
    assert "'colour'" in str(found.details())
    one = begin(client)
    ingest(table="T", schema="DEFAULT", table_definition_options=good, transaction_id=one)
    assert held(client, "SELECT id FROM t WHERE id = 3") == []
    end(client, one, 1)
    assert held(client, "SELECT id FROM t WHERE id = 3") == [(3,)]


def test_a_stream_that_is_too_large_or_none() -> None:
    batch = pa.record_batch({"x": pa.array(range(1_000_000))})
    messages = list(batch_data(batch))
    assert len(messages) == 4
    first = schema_data(batch.schema)
    assert table_of(first, iter(messages), 1 << 30).num_rows == 1_000_000
    with pytest.raises(InvalidRequest, match="more than 1,000,000 bytes"):
        table_of(first, iter(messages), 1_000_000)
    with pytest.raises(InvalidRequest, match="stream of Arrow"):
        table_of(new("FlightData", data_header=b"nonsense"), iter(()), 1 << 20)
    empty = pa.record_batch({"x": pa.array([], pa.int32())})
    assert len(list(batch_data(empty))) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Conflict("x"), CODE.ABORTED),
        (
            Conflict("x", Evidence(table="t", read_version=1, winning_version=2, retry=False)),
            CODE.FAILED_PRECONDITION,
        ),
        (LockTimeout("x"), CODE.UNAVAILABLE),
        (OutcomeUnknown("x"), CODE.UNKNOWN),
        (NotPermitted("x"), CODE.PERMISSION_DENIED),
        (InvalidRequest("there is no table 'x'"), CODE.NOT_FOUND),
        (InvalidRequest("[TABLE_OR_VIEW_ALREADY_EXISTS] x"), CODE.ALREADY_EXISTS),
        (InvalidRequest("x"), CODE.INVALID_ARGUMENT),
        (UnsupportedFeature("x"), CODE.UNIMPLEMENTED),
        (CorruptTable("x"), CODE.DATA_LOSS),
        (ApiError("NotAuthorizedException", "x"), CODE.UNAUTHENTICATED),
        (ApiError("CommitStateUnknownException", "x"), CODE.INTERNAL),
        (ValueError("a secret"), CODE.INTERNAL),
    ],
)
def test_statuses(error: Exception, code: grpc.StatusCode) -> None:
    found, message, _ = status_of(error)
    assert found is code
    assert "secret" not in message


def test_large_evidence_is_shortened() -> None:
    large = Evidence(
        table="t",
        read_version=1,
        winning_version=2,
        rows=tuple({"name": "x" * 1000} for _ in range(10)),
        files=tuple(f"part-{n}" for n in range(1000)),
    )
    _, message, details = status_of(Conflict("y" * 10_000, large))
    assert len(message) < 2_000
    assert details is not None
    assert len(details) < 3_000
    assert b'"winning_version":2' in details


def test_markers_and_their_types() -> None:
    schema = Struct((Field("id", Primitive("integer")), Field("day", Primitive("date"))))

    def kinds(text: str) -> list[tuple[str, pa.DataType]]:
        """The parameters of a statement."""
        found = parameter_schema(text, marker_names(text), lambda _: schema)
        return [(one.name, one.type) for one in found]

    assert kinds("SELECT * FROM t WHERE id = ? AND ? < day") == [
        ("1", pa.int32()),
        ("2", pa.date32()),
    ]
    assert kinds("SELECT * FROM t WHERE day BETWEEN :a AND :b OR day = :a") == [
        ("a", pa.date32()),
        ("b", pa.date32()),
    ]
    assert kinds("INSERT INTO t VALUES (?, ?)") == [("1", pa.int32()), ("2", pa.date32())]
    assert kinds("UPDATE t SET day = ? WHERE id IN (?)") == [("1", pa.date32()), ("2", pa.int32())]
    assert kinds("SELECT upper(?)") == [("1", pa.string())]
    assert kinds("SOME OTHER SQL ?") == [("1", pa.string())]
    table = pa.table([[1, 2], ["x", "y"]], names=["b", "a"])
    assert bound_rows(table, ["a", "b"]) == [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
    assert bound_rows(table, [None, None]) == [[1, "x"], [2, "y"]]
    with pytest.raises(InvalidRequest, match="2 values were bound"):
        bound_rows(table, [None])


def test_sessions_by_their_actions(served: ServedFlight, client: RawClient) -> None:
    answer = client.action("GetSessionOptions", b"")
    assert not decoded("GetSessionOptionsResult", answer or b"").session_options
    assert client.action("CloseSession", b"") is not None
    owner = Tokens(TOKENS).caller(f"Bearer {WRITER}", 0)
    handle = served.handles.sessions.begin(owner, lambda _: None)
    mine = RawClient(served.address, WRITER, ("cookie", f"arrow_flight_session_id={handle}"))
    mine.update("BEGIN")
    mine.update("DELETE FROM t WHERE id = 1")
    mine.action("CloseSession", b"")
    found = refused(lambda: mine.update("DELETE FROM t WHERE id = 1"))
    assert found.code() is CODE.NOT_FOUND
    assert held(client, "SELECT id FROM t") == [(1,), (2,)]
    mine.close()
    odd = RawClient(served.address, WRITER, ("cookie", "; ==a b"))
    assert held(odd, "SELECT id FROM t") == [(1,), (2,)]
    odd.close()


@pytest.mark.broad
def test_tls_and_the_command(tmp_path: Path) -> None:
    """`txlake serve --flight-port 0` with a certificate, in a process of its own."""
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    where = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make, *where, *files], check=True, timeout=60, capture_output=True)
    tokens = tmp_path / "tokens.json"
    tokens.write_text(f'[{{"token": "{WRITER}", "name": "etl"}}]')
    options = ["--flight-port", "0", "--tls-certificate", str(certificate), "--tls-key", str(key)]
    with ServerProcess(tmp_path / "lake", *options, "--token-file", str(tokens)) as process:
        address = process.flight
        assert address.startswith("grpc+tls://127.0.0.1:")
        kwargs = {
            HEADER: f"Bearer {WRITER}",
            "adbc.flight.sql.client_option.tls_root_certs": certificate.read_text(),
            "adbc.flight.sql.client_option.tls_override_hostname": "localhost",
        }
        with flightsql.connect(address, db_kwargs=kwargs, autocommit=True) as con:
            assert rows(con, "SHOW DATABASES") == [("default",)]
        assert process.stop() in (0, -signal.SIGTERM)


@pytest.mark.broad
def test_a_missing_package_is_told(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['grpc'] = None\n"
        "from txlake.__main__ import main\n"
        f"sys.argv = ['txlake', 'serve', {str(tmp_path)!r}, '--flight-port', '0']\n"
        "main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode != 0
    assert 'pip install "txlake[flight]"' in found.stderr


@pytest.mark.broad
def test_dates_of_far_values_arrive(client: RawClient) -> None:
    client.update("CREATE TABLE d (x DATE)")
    client.update("INSERT INTO d VALUES (DATE'9999-12-31'), (DATE'0001-01-01')")
    assert held(client, "SELECT x FROM d") == [
        (datetime.date(1, 1, 1),),
        (datetime.date(9999, 12, 31),),
    ]


def test_a_call_that_has_ended_runs_no_statement(served: ServedFlight, client: RawClient) -> None:
    """It was cancelled while it waited for a worker."""
    caller = Tokens(TOKENS).caller(f"Bearer {WRITER}", 0)
    call = FlightCall(
        caller=caller,
        isolation=None,
        database=None,
        session=None,
        on_end=lambda _: False,
        cancel=lambda: None,
        set_cookie=lambda _: None,
    )
    statements = Statements(served.served, served.handles)
    with pytest.raises(Unavailable, match="cancelled"):
        statements.run(call, "DELETE FROM t WHERE id = 1", None, None)
    one = begin(client)
    client.update("DELETE FROM t WHERE id = 2", one)
    with pytest.raises(Unavailable, match="cancelled"):
        statements.run(call, "DELETE FROM t WHERE id = 1", None, one.decode())
    assert "rolled back because" in str(refused(lambda: end(client, one, 1)).details())
    assert held(client, "SELECT id FROM t") == [(1,), (2,)]
