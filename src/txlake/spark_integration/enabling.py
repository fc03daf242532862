"""`txlake.enable` and `txlake.disable`: attach a Spark session to a lake, and detach it.

A program gets its session in many ways: the object that `enable` was called with,
`SparkSession.builder.getOrCreate()` and `SparkSession.active()`, which wrap the JVM's session anew,
`df.sparkSession`, and the clone in which a stream runs its batches. A proxy returned by `enable`,
or attributes set on one object, would miss all others, and a DataFrame takes `write` from its
class, even if it was made before `enable`. So `enable` overrides methods in PySpark's classes
`SparkSession` and `DataFrame` of the session's kind (classic or Connect). Each override checks at
every call whether its session is enabled (`lake.tables.enabled_sessions`); other sessions behave as
before. The last `disable` restores the original methods.

txlake itself uses Spark through the same objects. Calls from its own modules go to Spark's
methods: a lake reads Parquet files to answer `spark.table`. So do calls made during an overridden
call, as when another library has wrapped PySpark's methods.

The lake's sessions commit the micro-batches of a stream (`lake.streams`), and call Spark's own
methods in the same way.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from txlake.errors import InvalidRequest
from txlake.lake.tables import enabled_sessions
from txlake.lake.tables.errors import ArgumentTypeRefused, raises_delta_spark_errors
from txlake.spark.spark_sessions import is_connect, is_same
from txlake.spark_integration import merging, reading, sql, streams, writing, writing_v2
from txlake.spark_integration.catalog import LakeCatalog
from txlake.spark_integration.catalog_since_4_2 import LakeCatalogSince42
from txlake.spark_integration.errors import is_in_call
from txlake.spark_integration.lake_binding import LakeBinding, binding_of
from txlake.spark_integration.overrides import with_overrides

if TYPE_CHECKING:
    from txlake.lake.lake import LakeSession

_OWN = __name__.partition(".")[0] + "."
_ATTRIBUTE = "_txlake_override"


@raises_delta_spark_errors
def enable(spark: SparkSession, lake: LakeSession) -> SparkSession:
    """Enable a Spark session for a lake: from now on Spark's own API works on the lake's tables.

    `spark.sql`, `spark.table`, `spark.read`, `spark.readStream`, `df.write`, `df.writeTo`,
    `df.mergeInto`, `df.writeStream` and `spark.catalog` know the lake's tables, and the formats
    `delta` and `txlake`; `DeltaTable.forName(spark, ...)` finds the lake's names. Everything else
    goes to Spark as before. This holds for every object of this Spark session, and for DataFrames
    that were made before, until `disable`.

    Args:
        lake: a lake, or one of its sessions (`lake.session()`). The Spark session shares its
            current database and SQL transaction. The lake has to use this Spark session:
            `txlake.connect(..., spark=spark)`.

    Returns the same Spark session. Raises InvalidRequest for a lake that is closed or uses another
    Spark session, a TypeError for arguments of another type.
    """
    session = getattr(lake, "_session", None)
    if not hasattr(lake, "begin") or session is None:
        raise ArgumentTypeRefused(
            f"expected a lake, of txlake.connect(...), found {type(lake).__qualname__}"
        )
    if not hasattr(spark, "createDataFrame"):
        raise ArgumentTypeRefused(f"expected a SparkSession, found {type(spark).__qualname__}")
    session.engine.require_open()
    if not is_same(session.engine.spark, spark):
        raise InvalidRequest(
            "the lake works with another Spark session: open it with "
            "txlake.connect(..., spark=spark), with the session that is to be enabled"
        )
    with _lock:
        enabled_sessions.enable_session(spark, session)
        _install(*_classes(spark))
    return spark


@raises_delta_spark_errors
def disable(spark: SparkSession) -> SparkSession:
    """Restore a Spark session to its state before `enable`; the lake stays open.

    Returns the same Spark session. Raises InvalidRequest when it isn't enabled.
    """
    with _lock:
        if not enabled_sessions.disable_session(spark):
            raise InvalidRequest("the Spark session isn't enabled: there is nothing to take back")
        if not enabled_sessions.any_enabled():
            _uninstall()
    return spark


# --- overrides in PySpark's classes --------------------------------------------------------------

# The set of enabled sessions and the overrides change together.
_lock = threading.Lock()
# (class, name) to the original member.
_replaced: dict[tuple[type, str], Any] = {}


def _classes(spark: SparkSession) -> tuple[type, type]:
    """Return the classes of the session and of its DataFrames."""
    if is_connect(spark):
        from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        return ConnectSession, ConnectDataFrame
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    return SparkSession, Classic


def _install(session: type, frame: type) -> None:
    """Override the methods of PySpark's classes, once."""
    for name, override in _SESSION_OVERRIDES.items():
        _replace(session, name, lambda spark: spark, override)
    for name, override in _FRAME_OVERRIDES.items():
        _replace(frame, name, lambda rows: rows.sparkSession, override)


def _uninstall() -> None:
    """Restore the original methods of PySpark's classes.

    A method that another library has wrapped stays, and passes every call through.
    """
    for (kind, name), before in list(_replaced.items()):
        # Another library may have wrapped the override: it stays, and passes every call through.
        if hasattr(_function(vars(kind).get(name)), _ATTRIBUTE):
            setattr(kind, name, before)
            del _replaced[kind, name]


def _replace(
    kind: type, name: str, session_of: Callable[[Any], SparkSession], override: Callable[..., Any]
) -> None:
    """Override one method or property of a class, unless it is overridden already."""
    if (kind, name) in _replaced:
        return
    before = vars(kind)[name]
    _replaced[kind, name] = before
    is_method = callable(before)
    plain: Callable[..., Any] = before if is_method else before.__get__
    member = _dispatching(plain, session_of, override, is_method=is_method)
    wraps(_function(before))(member)
    setattr(member, _ATTRIBUTE, True)
    setattr(kind, name, member if is_method else property(member))


def _dispatching(
    plain: Callable[..., Any],
    session_of: Callable[[Any], SparkSession],
    override: Callable[..., Any],
    *,
    is_method: bool,
) -> Callable[..., Any]:
    """Return a method, or with `is_method` false a property's getter, that calls `override` for an
    enabled session and `plain` for others.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the override or Spark's method, by the session of `self`."""
        binding = None if _is_own() or is_in_call() else binding_of(session_of(self))
        if binding is None:
            return plain(self, *args, **kwargs)
        return override(binding, self, partial(plain, self), *args, **kwargs)

    def value(self: Any) -> Any:
        """Return the property's value by the override or by Spark."""
        binding = None if _is_own() or is_in_call() else binding_of(session_of(self))
        before = plain(self, type(self))
        return before if binding is None else override(binding, self, before)

    return method if is_method else value


def _is_own() -> bool:
    """Return whether the caller's caller is a module of txlake."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith(_OWN)


def _function(member: Any) -> Any:
    """Return the function of a method, a property or a cached property."""
    return getattr(member, "fget", None) or getattr(member, "func", None) or member


def _sql(
    binding: LakeBinding, spark: Any, plain: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    return sql.sql(binding, plain, *args, **kwargs)


def _table(binding: LakeBinding, spark: Any, plain: Callable[..., Any], tableName: str) -> Any:
    return reading.table(binding, plain, tableName)


def _read(binding: LakeBinding, spark: Any, plain: Any) -> Any:
    return reading.reader(binding, plain)


def _catalog(binding: LakeBinding, spark: Any, plain: Any) -> Any:
    # A program finds exactly the methods of its PySpark version.
    overrides = LakeCatalogSince42 if hasattr(plain, "listPartitions") else LakeCatalog
    return with_overrides(plain, overrides, _lake_binding=binding)


def _write(binding: LakeBinding, frame: Any, plain: Any) -> Any:
    return writing.writer(binding, frame, plain)


def _write_to(binding: LakeBinding, frame: Any, plain: Callable[..., Any], table: str) -> Any:
    return writing_v2.writer_to(binding, frame, plain(binding.spark_name(table)), table)


def _merge_into(
    binding: LakeBinding, frame: Any, plain: Callable[..., Any], table: str, condition: Any
) -> Any:
    return merging.merge_writer(binding, frame, plain, table, condition)


def _read_stream(binding: LakeBinding, spark: Any, plain: Any) -> Any:
    return streams.reader(binding, plain)


def _write_stream(binding: LakeBinding, frame: Any, plain: Any) -> Any:
    return streams.writer(binding, frame, plain)


_SESSION_OVERRIDES: dict[str, Callable[..., Any]] = {
    "sql": _sql,
    "table": _table,
    "read": _read,
    "readStream": _read_stream,
    "catalog": _catalog,
}
_FRAME_OVERRIDES: dict[str, Callable[..., Any]] = {
    "write": _write,
    "writeTo": _write_to,
    "mergeInto": _merge_into,
    "writeStream": _write_stream,
}
