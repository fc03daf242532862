"""`txlake.enable` and `txlake.disable`: a Spark session is given to a lake, and taken back.

A program's session comes from everywhere: the object that `enable` was called with,
`SparkSession.builder.getOrCreate()` and `SparkSession.active()`, which wrap the JVM's session anew,
`df.sparkSession`, and the session that a stream runs its batches in, which is a clone. A proxy that
`enable` returned, or attributes set on one object, would be known to none of the others; and a
DataFrame asks its class for `write`, whoever made it, also before `enable`. So `enable` puts the
doors into PySpark's classes, `SparkSession` and `DataFrame` of the session's kind (classic or
Connect), and each door asks, whenever it is used, whether its session was given to a lake
(`tables.enabled`). Sessions that weren't behave as before. The last `disable` puts back what was
there.

txlake itself works with Spark through the same objects. Calls from its own modules go to Spark
itself: a lake reads Parquet files while it answers `spark.table`. So do calls inside a door that
come through somebody else's function around PySpark's.

A stream's micro-batches are committed by the lake's sessions (`lake.streams`), which call Spark's
own methods in the same way.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from txlake.errors import InvalidRequest
from txlake.spark.spark_sessions import is_connect, is_same
from txlake.spark_integration import merging, reading, sql, streams, writing, writing_v2
from txlake.spark_integration.catalog import Cataloguing
from txlake.spark_integration.catalog_since_4_2 import CataloguingSince42
from txlake.spark_integration.door import Door, door_of
from txlake.spark_integration.errors import is_inside
from txlake.spark_integration.fronts import fronted
from txlake.tables import enabled
from txlake.tables.errors import ArgumentTypeRefused, as_delta_spark

if TYPE_CHECKING:
    from txlake.lake.lake import LakeSession

_OWN = __name__.partition(".")[0] + "."
_ATTRIBUTE = "_txlake_door"


@as_delta_spark
def enable(spark: SparkSession, lake: LakeSession) -> SparkSession:
    """Gives a Spark session to a lake: Spark's own doors lead to it from here on.

    `spark.sql`, `spark.table`, `spark.read`, `spark.readStream`, `df.write`, `df.writeTo`,
    `df.mergeInto`, `df.writeStream` and `spark.catalog` know the lake's tables, and the formats
    `delta` and `txlake`; `DeltaTable.forName(spark, ...)` finds the lake's names. What isn't the
    lake's goes to Spark as before. It holds for every object that stands for this Spark session,
    and for DataFrames that were made before, until `disable`.

    Args:
        lake: a lake, or one of its sessions (`lake.session()`): whose current database and SQL
            transaction the Spark session has. It works with this Spark session:
            `txlake.connect(..., spark=spark)`.

    Returns the same Spark session. Raises InvalidRequest for a lake that is closed, or works with
    another Spark session, a TypeError for arguments of another type.
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
        enabled.give(spark, session)
        _install(*_classes(spark))
    return spark


@as_delta_spark
def disable(spark: SparkSession) -> SparkSession:
    """Takes a Spark session back: it is as it was before `enable`; the lake stays open.

    Returns the same Spark session. Raises InvalidRequest when it isn't enabled.
    """
    with _lock:
        if not enabled.take_back(spark):
            raise InvalidRequest("the Spark session isn't enabled: there is nothing to take back")
        if not enabled.is_any():
            _uninstall()
    return spark


# --- the doors in PySpark's classes --------------------------------------------------------------

# Who is enabled, and what stands in the classes, change together.
_lock = threading.Lock()
# (class, name) to what stood there.
_replaced: dict[tuple[type, str], Any] = {}


def _classes(spark: SparkSession) -> tuple[type, type]:
    """The classes of the session and of its DataFrames."""
    if is_connect(spark):
        from pyspark.sql.connect.dataframe import DataFrame as OfConnect
        from pyspark.sql.connect.session import SparkSession as SessionOfConnect

        return SessionOfConnect, OfConnect
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    return SparkSession, Classic


def _install(session: type, frame: type) -> None:
    for name, door in _OF_SESSION.items():
        _replace(session, name, lambda one: one, door)
    for name, door in _OF_FRAME.items():
        _replace(frame, name, lambda one: one.sparkSession, door)


def _uninstall() -> None:
    for (kind, name), before in list(_replaced.items()):
        # Somebody else's may stand in front of ours by now: it stays, and ours lets all pass.
        if hasattr(_function(vars(kind).get(name)), _ATTRIBUTE):
            setattr(kind, name, before)
            del _replaced[kind, name]


def _replace(
    kind: type, name: str, session_of: Callable[[Any], SparkSession], door: Callable[..., Any]
) -> None:
    if (kind, name) in _replaced:
        return
    before = vars(kind)[name]
    _replaced[kind, name] = before
    is_method = callable(before)
    plain: Callable[..., Any] = before if is_method else before.__get__
    made = _through(plain, session_of, door, is_method=is_method)
    wraps(_function(before))(made)
    setattr(made, _ATTRIBUTE, True)
    setattr(kind, name, made if is_method else property(made))


def _through(
    plain: Callable[..., Any],
    session_of: Callable[[Any], SparkSession],
    door: Callable[..., Any],
    *,
    is_method: bool,
) -> Callable[..., Any]:
    """What a class has instead: the door where the session is a lake's, else what was there."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = None if _is_own() or is_inside() else door_of(session_of(self))
        if found is None:
            return plain(self, *args, **kwargs)
        return door(found, self, partial(plain, self), *args, **kwargs)

    def value(self: Any) -> Any:
        found = None if _is_own() or is_inside() else door_of(session_of(self))
        before = plain(self, type(self))
        return before if found is None else door(found, self, before)

    return method if is_method else value


def _is_own() -> bool:
    """Whether the caller's caller is a module of txlake."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith(_OWN)


def _function(member: Any) -> Any:
    """The function of a method, a property or a cached property."""
    return getattr(member, "fget", None) or getattr(member, "func", None) or member


def _sql(door: Door, spark: Any, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return sql.sql(door, plain, *args, **kwargs)


def _table(door: Door, spark: Any, plain: Callable[..., Any], tableName: str) -> Any:
    return reading.table(door, plain, tableName)


def _read(door: Door, spark: Any, plain: Any) -> Any:
    return reading.reader(door, plain)


def _catalog(door: Door, spark: Any, plain: Any) -> Any:
    # A program finds the methods that its PySpark has, and no others.
    front = CataloguingSince42 if hasattr(plain, "listPartitions") else Cataloguing
    return fronted(plain, front, _lake_door=door)


def _write(door: Door, frame: Any, plain: Any) -> Any:
    return writing.writer(door, frame, plain)


def _write_to(door: Door, frame: Any, plain: Callable[..., Any], table: str) -> Any:
    return writing_v2.writer_to(door, frame, plain(door.for_spark(table)), table)


def _merge_into(
    door: Door, frame: Any, plain: Callable[..., Any], table: str, condition: Any
) -> Any:
    return merging.merger(door, frame, plain, table, condition)


def _read_stream(door: Door, spark: Any, plain: Any) -> Any:
    return streams.reader(door, plain)


def _write_stream(door: Door, frame: Any, plain: Any) -> Any:
    return streams.writer(door, frame, plain)


_OF_SESSION: dict[str, Callable[..., Any]] = {
    "sql": _sql,
    "table": _table,
    "read": _read,
    "readStream": _read_stream,
    "catalog": _catalog,
}
_OF_FRAME: dict[str, Callable[..., Any]] = {
    "write": _write,
    "writeTo": _write_to,
    "mergeInto": _merge_into,
    "writeStream": _write_stream,
}
