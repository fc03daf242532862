"""A lake as the arguments name it, and what can be asked of it without SQL.

The only module of the command line that knows where a listing comes from.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from txlake.cli.work import LakeWorker
from txlake.errors import InvalidRequest
from txlake.settings import Settings
from txlake.views.results import Result, listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txlake.catalog import Catalog
    from txlake.lake.lake import Lake
    from txlake.ports import Store
    from txlake.session.session import Session

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
"""The columns of a history with their types: those of DESCRIBE HISTORY."""
_LOG4J = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which lake, and how it is opened; as `txlake.connect` takes it.

    `location` is None where none was named, which is enough for a table named by its place; it may
    be a Unity Catalog's address, whose token `token` is.
    """

    location: str | None
    catalog: str | None = None
    isolation: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_outside_paths: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAs:
    """How a lake is served, or shown, as the arguments say it."""

    host: str
    port: int
    token_file: Path | None
    certificate: tuple[Path, Path] | None
    lends_credentials: bool = False
    workers: int = 8
    statement_timeout_s: float = 300.0


@contextmanager
def opened(
    place: Place, spark_settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Lake, Session]]:
    """The lake and its default session; its open transaction is rolled back at the end.

    `spark_settings`: what Spark is started with besides.
    """
    from txlake.lake.lake import Lake, open_session
    from txlake.unity import is_unity

    if place.location is None:
        raise InvalidRequest("no lake is named; say --lake or set TXLAKE_LAKE")
    is_elsewhere = is_unity(place.location)
    session = open_session(
        None if is_elsewhere else place.location,
        make_spark=lambda: quiet_spark(spark_settings),
        catalog=place.location if is_elsewhere else place.catalog,
        token=place.token if is_elsewhere else None,
        storage_options=place.storage_options,
        isolation=place.isolation,
        settings=Settings(allow_outside_paths=place.allow_outside_paths),
    )
    with Lake(session) as lake:
        yield lake, session


@contextmanager
def opened_there(place: Place) -> Iterator[tuple[Lake, Session]]:
    """As `opened`, of a lake that there is: who only looks makes none at a mistyped place."""
    from txlake.membership.opening import MARKER, marker_of

    warehouse = _warehouse(place)
    if warehouse is not None and marker_of(warehouse) is None:
        raise _no_lake(warehouse.url, f"has no {MARKER}")
    with opened(place) as both:
        yield both


def _warehouse(place: Place) -> Store | None:
    """The place's store; None of a Unity Catalog, and where no place was named."""
    from txlake.storage import open_store
    from txlake.unity import is_unity

    if place.location is None or is_unity(place.location):
        return None
    return open_store(place.location, place.storage_options)


def _no_lake(url: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"there is no lake at {url}, which {why}; name the lake's own folder or URL, or make one "
        "there with `txlake sql`"
    )


def quiet_spark(settings: Mapping[str, str] | None = None) -> SparkSession:
    """The Spark session of a command, whose own chatter isn't among the command's messages."""
    from txlake.lake.lake import local_spark

    # PySpark says it on standard error, where a script's are lines of JSON. The last of the
    # filters: those that a user sets (PYTHONWARNINGS) win.
    warnings.filterwarnings(
        "ignore", "PySpark does not yet fully support pandas", FutureWarning, append=True
    )
    # As the first of the JVM's options: those that a user sets come later and win.
    log = {"spark.driver.defaultJavaOptions": f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"'}
    return local_spark({**log, **(settings or {})})


@contextmanager
def catalog_of(place: Place) -> Iterator[Catalog]:
    """The lake's catalog."""
    with opened_there(place) as (_, session):
        yield session.engine.catalog.of_lake()


@contextmanager
def working(place: Place) -> Iterator[LakeWorker]:
    """A worker on the lake."""
    with opened(place) as (lake, session):
        yield LakeWorker(lake, session)


def names_place(table: str) -> bool:
    """Whether a table is named by its folder or URL, so that no lake is needed to find it."""
    from txlake.statements import is_place

    return is_place(table)


def history(place: Place, table: str, limit: int | None) -> Result:
    """A table's commits, newest first, from its log alone. Starts no Spark."""
    from txlake.lake.log import Log
    from txlake.session.catalog_access import refuse_lost
    from txlake.session.unknown_names import unknown_table
    from txlake.statements import TablePath, table_of

    named = table_of(table)
    if isinstance(named, TablePath):
        rows = Log(named.location, place.storage_options).history(limit)
    else:
        with opened_there(place) as (_, session):
            refuse_lost(session.engine)
            found = session.engine.find(named, session.database)
            if found is None:
                raise unknown_table(session.engine, None, session.database, named)
            rows = Log.over(found.log).history(limit)
    return listed(HISTORY, [{**row, "timestamp": _moment(row["timestamp"])} for row in rows])


def locks(place: Place) -> Result:
    """The locks of all processes, held and waited for: `sys.dm_tran_locks`. Starts no Spark."""
    return _view(place, "sys.dm_tran_locks")


def transactions(place: Place) -> Result:
    """The open transactions of all processes: `txlake.transactions`. Starts no Spark."""
    return _view(place, "txlake.transactions")


def conflicts(place: Place) -> Result:
    """The conflicts that all processes met, oldest first: `txlake.conflicts`. Starts no Spark."""
    return _view(place, "txlake.conflicts")


def kill(place: Place, transaction: str) -> None:
    """Ends a transaction of any session, by its id or its number.

    Raises InvalidRequest when no such one is open.
    """
    with catalog_of(place) as catalog:
        living = [one for one in catalog.transactions.listed() if one.state != "killed"]
        for one in living:
            if transaction in {one.id, str(one.number)} and catalog.transactions.kill(one.id):
                return
    raise InvalidRequest(
        f"there is no open transaction {transaction!r}; there are: "
        f"{', '.join(one.id for one in living if one.explicit) or 'none'}"
    )


def recover(place: Place, locations: Sequence[str]) -> Result:
    """Brings the catalog up to the tables' logs; `locations` are tables outside of the warehouse.

    A row for each table that it has again, for each thing that was changed besides, and for each
    that could not be known.

    Raises InvalidRequest for an empty place: there is no log to recover from, and the folder or URL
    is mistyped.
    """
    warehouse = _warehouse(place)
    if warehouse is not None and next(iter(warehouse.list("")), None) is None:
        raise _no_lake(warehouse.url, "holds no file")
    with opened(place) as (lake, _):
        report = lake.recover(*locations)
    rows = [{"kind": "table", "what": name} for name in report.tables]
    rows += [{"kind": "done", "what": text} for text in report.done]
    rows += [{"kind": "unknown", "what": text} for text in report.unknown]
    return listed({"kind": "string", "what": "string"}, rows)


# Rows of one query that the driver holds, and texts that say what they say: not ${env:HOME}.
_SERVED = {"spark.driver.maxResultSize": "256m", "spark.sql.variable.substitute": "false"}


def serve(place: Place, how: ServedAs, started: Callable[[str], None]) -> None:
    """Serves the lake until the process is told to stop; `started` gets the address. No Spark.

    Raises InvalidRequest where the packages of the extra `server` aren't installed, and as
    `serving.serve`.
    """
    try:
        from txlake.server.serving import serve as run
    except ModuleNotFoundError as error:
        raise _needs(error, "server") from error
    _run(opened(place, _SERVED), how, run, started)


def show(place: Place, how: ServedAs, started: Callable[[str], None]) -> None:
    """Shows the lake in a browser; as `serve`, with the extra `console`."""
    try:
        from txlake.console.serving import serve as run
    except ModuleNotFoundError as error:
        raise _needs(error, "console") from error
    _run(opened_there(place), how, run, started)


def _needs(error: ModuleNotFoundError, extra: str) -> InvalidRequest:
    return InvalidRequest(
        f"the {extra} needs the package {error.name}, which isn't installed: "
        f'pip install "txlake[{extra}]" installs it'
    )


def _run(
    opening: AbstractContextManager[tuple[Lake, Session]],
    how: ServedAs,
    run: Callable[..., None],
    started: Callable[[str], None],
) -> None:
    from txlake.server.calls import Limits
    from txlake.server.serving import ServerSettings
    from txlake.session.catalog_access import refuse_lost

    serving = ServerSettings(
        host=how.host,
        port=how.port,
        token_file=how.token_file,
        certificate=how.certificate,
        vends_credentials=how.lends_credentials,
        limits=Limits(workers=how.workers, statement_s=how.statement_timeout_s),
    )
    with opening as (_, session):
        refuse_lost(session.engine)
        run(session, serving, on_started=started)


def _view(place: Place, name: str) -> Result:
    """What a view of the lake shows now; not one that looks into the tables."""
    from txlake.protocol.type_text import short_text
    from txlake.views import VIEWS, CatalogEntries

    with catalog_of(place) as catalog:
        rows = VIEWS[name].look(CatalogEntries(catalog, lambda _: None))
    columns = {field.name: short_text(field.type) for field in rows.schema.fields}
    return listed(columns, [dict(zip(columns, row)) for row in rows.rows])


def _moment(time_ms: object) -> datetime.datetime | None:
    if not isinstance(time_ms, int):
        return None
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
