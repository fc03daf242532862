"""The dialect: how SQLAlchemy connects to a lake, and what a lake can do.

A URL is `txlake:///WAREHOUSE`, where the warehouse is what `txlake.connect` takes: a folder
(relative, or absolute with a fourth slash), `s3://bucket/lake`, `memory://name`. A server is
`txlake+http://:TOKEN@host:8080/[database]`, or `txlake+https`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from sqlalchemy import exc, pool, schema
from sqlalchemy.engine import URL, Connection
from sqlalchemy.engine.default import DefaultExecutionContext
from sqlalchemy.schema import SchemaItem
from sqlalchemy.sql import ClauseElement, sqltypes
from sqlalchemy.types import TypeEngine

import txlake.dbapi
from txlake.errors import OutcomeUnknown
from txlake.sqlalchemy import types
from txlake.sqlalchemy.compiler import TxlakeCompiler
from txlake.sqlalchemy.ddl import NO_STATEMENT, TxlakeDdlCompiler, TxlakeTypeCompiler
from txlake.sqlalchemy.identifiers import TxlakeIdentifierPreparer
from txlake.sqlalchemy.json_paths import JsonIndex, JsonPath
from txlake.sqlalchemy.migrations import TxlakeImpl
from txlake.sqlalchemy.reflection import Reflection

_AUTOCOMMIT = "AUTOCOMMIT"
_IN_URLS = ("catalog", "database", "isolation", "token", "timeout_s")
_KEPT_ROWS_MAX = 10_000
# A server ends sessions that were idle for five minutes.
_SESSION_S = 240
_LEVELS = ("SERIALIZABLE", "WRITE SERIALIZABLE", "SNAPSHOT")

_TYPES: dict[type[TypeEngine[Any]], type[TypeEngine[Any]]] = {
    sqltypes.ARRAY: types.ArrayOf,
    sqltypes.Date: types.Date,
    sqltypes.LargeBinary: types.Binary,
    sqltypes.DateTime: types.DateTime,
    sqltypes.JSON.JSONIndexType: JsonIndex,
    sqltypes.JSON.JSONPathType: JsonPath,
}
_OPTIONS: list[tuple[type[SchemaItem | ClauseElement], Mapping[str, Any]]] = [
    (
        schema.Table,
        {"partitioned_by": None, "cluster_by": None, "properties": None, "location": None},
    )
]


class TxlakeExecutionContext(DefaultExecutionContext):
    """Keeps how many rows an INSERT inserted, too."""

    def post_exec(self) -> None:
        if self.isinsert:
            self._rowcount = self.cursor.rowcount


class TxlakeDialect(Reflection):
    """A lake in this process."""

    name = "txlake"
    driver = "txlake"
    supports_statement_cache = True

    statement_compiler = TxlakeCompiler
    ddl_compiler = TxlakeDdlCompiler
    type_compiler_cls = TxlakeTypeCompiler
    migrations = TxlakeImpl
    preparer = TxlakeIdentifierPreparer  # type: ignore[assignment]
    execution_ctx_cls = TxlakeExecutionContext

    default_paramstyle = "qmark"
    max_identifier_length = 255
    supports_native_boolean = True
    supports_native_decimal = True
    supports_native_enum = False
    supports_multivalues_insert = True
    supports_comments = True
    inline_comments = True
    supports_identity_columns = True
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = True
    supports_empty_insert = False
    supports_default_values = True
    supports_default_metavalue = True
    supports_is_distinct_from = True
    supports_sequences = False
    supports_alter = True
    supports_schemas = True
    supports_views = True
    postfetch_lastrowid = True
    requires_name_normalize = False
    div_is_floordiv = False
    tuple_in_values = False
    cte_follows_insert = False
    insert_executemany_returning = False
    use_insertmanyvalues = False

    colspecs = _TYPES
    construct_arguments = _OPTIONS

    def __init__(
        self,
        json_serializer: Callable[[Any], str] | None = None,
        json_deserializer: Callable[[str], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._json_serializer = json_serializer
        self._json_deserializer = json_deserializer

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return txlake.dbapi

    def create_connect_args(self, url: URL) -> Any:
        if url.host or url.username or url.password or url.port:
            raise exc.ArgumentError(
                f"{url!r}: expected txlake:///WAREHOUSE; a server is txlake+http://host:port"
            )
        return [url.database], _options(url)

    def get_isolation_level_values(self, dbapi_conn: Any) -> Any:
        return [*_LEVELS, _AUTOCOMMIT]

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        if dbapi_connection.autocommit:
            return _AUTOCOMMIT
        level = dbapi_connection.isolation_level
        if level is None:
            cursor = dbapi_connection.cursor()
            [level] = cursor.execute("SHOW TRANSACTION ISOLATION LEVEL").fetchone()
        return level.replace("_", " ").upper()

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        dbapi_connection.autocommit = level == _AUTOCOMMIT
        if level != _AUTOCOMMIT:
            dbapi_connection.isolation_level = level.replace(" ", "_").lower()

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        return bool(dbapi_conn.autocommit)

    def _get_default_schema_name(self, connection: Connection) -> str:
        return "default"

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        if statement != NO_STATEMENT:
            cursor.execute(statement, parameters)

    def do_rollback(self, dbapi_connection: Any) -> None:
        # A pooled connection is rolled back when it is closed, and tools fetch after that.
        dbapi_connection._keep_rows(_KEPT_ROWS_MAX)
        super().do_rollback(dbapi_connection)

    def do_ping(self, dbapi_connection: Any) -> bool:
        dbapi_connection.cursor().execute("SHOW TRANSACTION ISOLATION LEVEL")
        return True

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return isinstance(e, txlake.dbapi.InterfaceError) and "the connection is closed" in str(e)

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return pool.QueuePool

    def get_driver_connection(self, connection: Any) -> Any:
        return connection


class SessionPool(pool.QueuePool):
    """Opens connections anew before the server has ended their sessions for being idle.

    Args:
        recycle: the age in seconds from which a connection isn't used again.
    """

    def __init__(self, creator: Any, *args: Any, recycle: int = _SESSION_S, **options: Any) -> None:
        super().__init__(creator, *args, recycle=recycle, **options)


class TxlakeHttpDialect(TxlakeDialect):
    """A lake that `txlake serve` serves."""

    driver = "http"
    supports_statement_cache = True

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return SessionPool

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        from txlake.dbapi.over_http import Disconnected

        lost = isinstance(e.__cause__, Disconnected | OutcomeUnknown)
        return lost or super().is_disconnect(e, connection, cursor)

    def create_connect_args(self, url: URL) -> Any:
        if url.username:
            raise exc.ArgumentError(
                f"{url!r}: a server has tokens and no users; write txlake+{self.driver}://:TOKEN@..."
            )
        if not url.host:
            raise exc.ArgumentError(
                f"{url!r}: expected txlake+{self.driver}://:TOKEN@host:port/[database]"
            )
        port = "" if url.port is None else f":{url.port}"
        options = _options(url)
        if url.password:
            options["token"] = str(url.password)
        if url.database:
            options["database"] = url.database
        return [f"txlake+{self.driver}://{url.host}{port}"], options


class TxlakeHttpsDialect(TxlakeHttpDialect):
    """A lake that `txlake serve` serves, by TLS."""

    driver = "https"
    supports_statement_cache = True


def _options(url: URL) -> dict[str, object]:
    """Return the options of `txlake.dbapi.connect` in a URL's query. Raises ArgumentError for other
    names, and values that don't fit.
    """
    options: dict[str, object] = {}
    for name, value in url.query.items():
        if name not in _IN_URLS:
            raise exc.ArgumentError(
                f"{url!r}: {name!r}; known are {', '.join(_IN_URLS)}, others are connect_args"
            )
        if not isinstance(value, str):
            raise exc.ArgumentError(f"{url!r}: {name!r} is given twice")
        options[name] = value
        if name == "timeout_s":
            try:
                options[name] = float(value)
            except ValueError as error:
                raise exc.ArgumentError(
                    f"{url!r}: timeout_s: expected a number of seconds, found {value!r}"
                ) from error
    return options
