"""Opening a lake by the command's arguments, and the listings that need no SQL.

The only module of the command line that knows where a listing comes from.
"""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from txlake.cli.worker import LakeWorker
from txlake.errors import InvalidRequest
from txlake.session.views.results import Result, mappings_result
from txlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txlake.catalog import Catalog
    from txlake.lake.lake import Lake
    from txlake.ports import Store
    from txlake.server.processes import Shared
    from txlake.server.serving import ServerSettings
    from txlake.session.session import Session
    from txlake.session.views.describe import Rows

HISTORY = {
    "version": "bigint",
    "timestamp": "timestamp",
    "userId": "string",
    "userName": "string",
    "operation": "string",
    "operationParameters": "map<string,string>",
    "job": "struct",
    "notebook": "struct",
    "clusterId": "string",
    "readVersion": "bigint",
    "isolationLevel": "string",
    "isBlindAppend": "boolean",
    "operationMetrics": "map<string,string>",
    "userMetadata": "string",
    "engineInfo": "string",
}
"""The columns of DESCRIBE HISTORY, with their types."""
# Beyond the time that requests have: for what follows them.
_END_S = 15.0
_LOG4J_FILE = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Which lake to open, and how, in the terms of `txlake.connect`.

    `location` is None if no lake was named, which is enough for a table named by its path. It may
    be a Unity Catalog's address, whose token is `token`.
    """

    location: str | None
    catalog: str | None = None
    isolation: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_outside_paths: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    openlineage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerArguments:
    """The arguments of the commands `serve` and `console`."""

    host: str
    port: int
    token_file: Path | None
    certificate: tuple[Path, Path] | None
    lends_credentials: bool = False
    workers: int = 8
    statement_timeout_s: float = 300.0
    flight_port: int | None = None
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArguments:
    """The arguments of the command `mcp`."""

    name: str
    rows_max: int
    may_publish: bool


@contextmanager
def open_lake(
    connection: ConnectionSettings, spark_settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Lake, Session]]:
    """Open the lake, and yield it with its default session, whose open transaction is rolled back
    at the end.

    A lake that doesn't exist is created. `spark_settings`: further settings that Spark is started
    with. Raises InvalidRequest if no lake is named.
    """
    from txlake.catalog.unity import is_unity
    from txlake.lake.lake import Lake, open_session

    if connection.location is None:
        raise InvalidRequest("no lake is named; say --lake or set TXLAKE_LAKE")
    is_unity_catalog = is_unity(connection.location)
    session = open_session(
        None if is_unity_catalog else connection.location,
        make_spark=lambda: quiet_spark(spark_settings),
        catalog=connection.location if is_unity_catalog else connection.catalog,
        token=connection.token if is_unity_catalog else None,
        storage_options=connection.storage_options,
        isolation=connection.isolation,
        settings=Settings(
            allow_outside_paths=connection.allow_outside_paths,
            openlineage=connection.openlineage,
        ),
    )
    with Lake(session) as lake:
        yield lake, session


@contextmanager
def open_existing_lake(
    connection: ConnectionSettings, spark_settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Lake, Session]]:
    """Open a lake that exists, so that a mistyped location creates none.

    Takes and yields what `open_lake` does. Raises InvalidRequest if no lake is named, and if there
    is none at the location, which isn't checked for a Unity Catalog.
    """
    from txlake.session.membership.opening import MARKER, read_marker

    warehouse = _warehouse(connection)
    if warehouse is not None and read_marker(warehouse) is None:
        raise _lake_missing(warehouse.url, f"has no {MARKER}")
    with open_lake(connection, spark_settings) as opened:
        yield opened


def _warehouse(connection: ConnectionSettings) -> Store | None:
    """Return the connection's store; None for a Unity Catalog, and if no lake was named."""
    from txlake.catalog.unity import is_unity
    from txlake.storage import open_store

    if connection.location is None or is_unity(connection.location):
        return None
    return open_store(connection.location, connection.storage_options)


def _lake_missing(url: str, reason: str) -> InvalidRequest:
    """Return the error for a location without a lake."""
    return InvalidRequest(
        f"there is no lake at {url}, which {reason}; name the lake's own folder or URL, or make "
        "one "
        "there with `txlake sql`"
    )


def quiet_spark(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the Spark session of a command, without Spark's own messages."""
    from txlake.lake.lake import local_spark

    # PySpark warns on standard error, where a script's messages are lines of JSON. Appended last,
    # so that the user's filters (PYTHONWARNINGS) win.
    warnings.filterwarnings(
        "ignore", "PySpark does not yet fully support pandas", FutureWarning, append=True
    )
    # First among the JVM's options, so that the user's options win.
    log = {
        "spark.driver.defaultJavaOptions": f'"-Dlog4j2.configurationFile={_LOG4J_FILE.as_uri()}"'
    }
    return local_spark({**log, **(settings or {})})


@contextmanager
def lake_catalog(connection: ConnectionSettings) -> Iterator[Catalog]:
    """Open the lake, which must exist, and yield its catalog."""
    with open_existing_lake(connection) as (_, session):
        yield session.engine.catalog.of_lake()


@contextmanager
def lake_worker(connection: ConnectionSettings) -> Iterator[LakeWorker]:
    """Open the lake, and yield a worker on it."""
    with open_lake(connection) as (lake, session):
        yield LakeWorker(lake, session)


def is_table_path(table: str) -> bool:
    """Return whether a table is named by its folder or URL, so that no lake is needed."""
    from txlake.sql.statements import is_place

    return is_place(table)


def history(connection: ConnectionSettings, table: str, limit: int | None) -> Result:
    """Return a table's commits, newest first, from its log alone; all of them if `limit` is None.

    Starts no Spark. Raises InvalidRequest if there is no such table.
    """
    from txlake.lake.log import Log
    from txlake.session.catalog_access import refuse_lost
    from txlake.session.unknown_names import unknown_table
    from txlake.sql.statements import TablePath, table_of

    reference = table_of(table)
    if isinstance(reference, TablePath):
        rows = Log(reference.location, connection.storage_options).history(limit)
    else:
        with open_existing_lake(connection) as (_, session):
            refuse_lost(session.engine)
            handle = session.engine.find(reference, session.database)
            if handle is None:
                raise unknown_table(session.engine, None, session.database, reference)
            rows = Log.over(handle.log).history(limit)
    return mappings_result(
        HISTORY, [{**row, "timestamp": _to_datetime(row["timestamp"])} for row in rows]
    )


def locks(connection: ConnectionSettings) -> Result:
    """Return the locks of all processes, held and waited for: `sys.dm_tran_locks`.

    Starts no Spark.
    """
    return _read_view(connection, "sys.dm_tran_locks")


def transactions(connection: ConnectionSettings) -> Result:
    """Return the open transactions of all processes, oldest first: `txlake.transactions`.

    Starts no Spark.
    """
    return _read_view(connection, "txlake.transactions")


def branches(connection: ConnectionSettings) -> Result:
    """Return the branches and tags, with what each costs: `txlake.branches`. Starts no Spark.

    Unlike the other listings it reads logs of tables.
    """
    from txlake.session.catalog_access import refuse_lost

    with open_existing_lake(connection) as (_, session):
        refuse_lost(session.engine)
        return _rows_of(session.catalog_view("txlake.branches"))


def conflicts(connection: ConnectionSettings) -> Result:
    """Return the conflicts of all processes, oldest first: `txlake.conflicts`. Starts no Spark."""
    return _read_view(connection, "txlake.conflicts")


def kill(connection: ConnectionSettings, transaction: str) -> None:
    """End a transaction of any session, by its id or its number.

    Raises InvalidRequest if no such transaction is open.
    """
    with lake_catalog(connection) as catalog:
        open_transactions = [
            entry for entry in catalog.transactions.entries() if entry.state != "killed"
        ]
        for entry in open_transactions:
            if transaction in {entry.id, str(entry.number)} and catalog.transactions.kill(entry.id):
                return
    raise InvalidRequest(
        f"there is no open transaction {transaction!r}; there are: "
        f"{', '.join(entry.id for entry in open_transactions if entry.explicit) or 'none'}"
    )


def recover(connection: ConnectionSettings, locations: Sequence[str]) -> Result:
    """Recover the catalog from the tables' logs; `locations` are tables outside of the warehouse.

    Returns a row for each recovered table, each other change, and each fact that is unknown.

    Raises InvalidRequest for an empty location, which has no log to recover from and is probably
    mistyped.
    """
    warehouse = _warehouse(connection)
    if warehouse is not None and next(iter(warehouse.list("")), None) is None:
        raise _lake_missing(warehouse.url, "holds no file")
    with open_lake(connection) as (lake, _):
        report = lake.recover(*locations)
    rows = [{"kind": "table", "what": name} for name in report.tables]
    rows += [{"kind": "done", "what": text} for text in report.done]
    rows += [{"kind": "unknown", "what": text} for text in report.unknown]
    return mappings_result({"kind": "string", "what": "string"}, rows)


def move_catalog(connection: ConnectionSettings, to: str) -> None:
    """Move the lake's catalog to a URL, as `Lake.move_catalog`.

    Raises InvalidRequest for a place without a lake, and as `Lake.move_catalog`.
    """
    with open_existing_lake(connection) as (lake, _):
        lake.move_catalog(to)


# Bounds the rows that the driver holds, and keeps texts like ${env:HOME} as they are.
_SERVER_SPARK_SETTINGS = {
    "spark.driver.maxResultSize": "256m",
    "spark.sql.variable.substitute": "false",
}


def serve(
    connection: ConnectionSettings, arguments: ServerArguments, on_started: Callable[[str], None]
) -> None:
    """Serve the lake, which is created if it doesn't exist, until the process is stopped.

    `on_started` gets the address. Spark starts with the first statement that needs it, in each
    process that runs such statements. Raises InvalidRequest if packages of the extras `server` or
    `flight` aren't installed, if several processes can't serve the lake, and as `serving.serve`.
    """
    try:
        from txlake.server.serving import serve as run
    except ModuleNotFoundError as error:
        raise _missing_extra(error, "server") from error
    if arguments.processes > 1:
        _serve_in_processes(connection, arguments, on_started)
        return
    if arguments.flight_port is not None:
        # PySpark forks to start Spark, and executes Java at once: gRPC has nothing to do there.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        try:
            import_module("txlake.server.flight.serving")
        except ModuleNotFoundError as error:
            raise _missing_extra(error, "flight") from error
    _run_server(open_lake(connection, _SERVER_SPARK_SETTINGS), arguments, run, on_started)


def _serve_in_processes(
    connection: ConnectionSettings, arguments: ServerArguments, on_started: Callable[[str], None]
) -> None:
    """Serve the lake in several processes until this one is stopped.

    Raises InvalidRequest where that is impossible, as `_run_server` if the lake can't be opened,
    and as `processes.run`.
    """
    from txlake.server import processes
    from txlake.server.calls import Limits
    from txlake.server.serving import load_tokens
    from txlake.session.catalog_access import refuse_lost
    from txlake.system import System

    processes.check_supported()
    if arguments.flight_port is not None:
        raise InvalidRequest(
            f"--processes {arguments.processes}: Flight SQL keeps statements and transactions in "
            "one process; leave out --flight-port, or serve it by a command of its own"
        )
    if _is_in_memory(connection):
        raise InvalidRequest(
            f"--processes {arguments.processes}: the lake is in the memory of one process, and "
            "others wouldn't see its commits; serve one in a folder or a bucket"
        )
    load_tokens(_server_settings(arguments))
    with open_lake(connection, _SERVER_SPARK_SETTINGS) as (_, session):
        refuse_lost(session.engine)
    processes.run(
        partial(_serve_one_of_many, connection, arguments),
        arguments.processes,
        address=(arguments.host, arguments.port),
        end_s=Limits().request_s + _END_S,
        system=System(),
        on_started=on_started,
    )


def _is_in_memory(connection: ConnectionSettings) -> bool:
    """Return whether the lake or its catalog is gone when this process ends."""
    location, catalog = connection.location or "", connection.catalog or ""
    backend, _, database = catalog.partition("://")
    is_sqlite = backend.partition("+")[0] == "sqlite"
    return location.startswith("memory:") or (
        is_sqlite and database.lstrip("/").partition("?")[0] in ("", ":memory:")
    )


def _serve_one_of_many(
    connection: ConnectionSettings,
    arguments: ServerArguments,
    shared: Shared,
    *,
    on_started: Callable[[str], None],
) -> None:
    """Serve the lake in this process, which is one of several. Raises as `serving.serve`."""
    from txlake.server.serving import serve as run

    run_shared = partial(run, shared=shared)
    _run_server(open_lake(connection, _SERVER_SPARK_SETTINGS), arguments, run_shared, on_started)


def serve_console(
    connection: ConnectionSettings, arguments: ServerArguments, on_started: Callable[[str], None]
) -> None:
    """Serve the console of the lake, which must exist, until the process is stopped. Starts no
    Spark.

    `on_started` gets the address. Raises InvalidRequest if packages of the extra `console` aren't
    installed, if there is no lake, and as `serving.serve` of the console.
    """
    try:
        from txlake.console.serving import serve as run
    except ModuleNotFoundError as error:
        raise _missing_extra(error, "console") from error
    _run_server(open_existing_lake(connection), arguments, run, on_started)


def serve_tools(
    connection: ConnectionSettings,
    arguments: ToolArguments,
    server: ServerArguments | None,
    on_started: Callable[[str], None],
) -> None:
    """Serve the lake's tools for agents; the lake must exist.

    `server`: over HTTP, until the process is stopped, and `on_started` gets the address; None: to
    the program at standard input and output, until it ends. Raises InvalidRequest if packages of
    the extra `mcp` aren't installed, if there is no lake, and as `app.serve_http`.
    """
    try:
        from txlake.server.mcp.app import serve_http, serve_stdio
        from txlake.server.mcp.tools import ToolSettings
    except ModuleNotFoundError as error:
        raise _missing_extra(error, "mcp") from error
    from txlake.session.catalog_access import refuse_lost

    settings = ToolSettings(rows_max=arguments.rows_max, may_publish=arguments.may_publish)
    opening = open_existing_lake(connection, _SERVER_SPARK_SETTINGS)
    if server is not None:
        run = partial(serve_http, tool_settings=settings)
        _run_server(opening, server, run, on_started)
        return
    with opening as (_, session):
        refuse_lost(session.engine)
        serve_stdio(session, arguments.name, settings)


def _missing_extra(error: ModuleNotFoundError, extra: str) -> InvalidRequest:
    """Return the error for a package of an extra that isn't installed."""
    return InvalidRequest(
        f"the {extra} needs the package {error.name}, which isn't installed: "
        f'pip install "txlake[{extra}]" installs it'
    )


def _run_server(
    opening: AbstractContextManager[tuple[Lake, Session]],
    arguments: ServerArguments,
    serve_lake: Callable[..., None],
    on_started: Callable[[str], None],
) -> None:
    """Open the lake and run a server on it until the process is stopped.

    Raises InvalidRequest or CorruptTable if the lake's catalog isn't recovered yet.
    """
    from txlake.session.catalog_access import refuse_lost

    settings = _server_settings(arguments)
    with opening as (_, session):
        refuse_lost(session.engine)
        serve_lake(session, settings, on_started=on_started)


def _server_settings(arguments: ServerArguments) -> ServerSettings:
    from txlake.server.calls import Limits
    from txlake.server.serving import ServerSettings

    return ServerSettings(
        host=arguments.host,
        port=arguments.port,
        token_file=arguments.token_file,
        certificate=arguments.certificate,
        vends_credentials=arguments.lends_credentials,
        flight_port=arguments.flight_port,
        limits=Limits(workers=arguments.workers, statement_s=arguments.statement_timeout_s),
    )


def _read_view(connection: ConnectionSettings, name: str) -> Result:
    """Return the rows of a catalog view, which reads no tables."""
    from txlake.session.views import VIEWS, CatalogEntrySource

    with lake_catalog(connection) as catalog:
        return _rows_of(VIEWS[name].read(CatalogEntrySource(catalog, lambda _: None)))


def _rows_of(rows: Rows) -> Result:
    """Return a view's rows as a result."""
    from txlake.protocol.type_text import short_text

    columns = {field.name: short_text(field.type) for field in rows.schema.fields}
    return mappings_result(columns, [dict(zip(columns, row)) for row in rows.rows])


def _to_datetime(time_ms: object) -> datetime.datetime | None:
    """Return milliseconds since the epoch as a time in UTC; None for anything but a whole
    number.
    """
    if not isinstance(time_ms, int):
        return None
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
