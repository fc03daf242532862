"""`txlake.configure`: a session builder whose Spark sessions are enabled for a lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from txlake.lake.lake import connect
from txlake.lake.tables.enabled_sessions import enabled_session
from txlake.lake.tables.errors import ArgumentTypeRefused, raises_delta_spark_errors
from txlake.settings import Settings
from txlake.spark_integration.enabling import enable
from txlake.spark_integration.overrides import with_overrides
from txlake.storage import canonical_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = "spark.sql.extensions"
_PACKAGES = "spark.jars.packages"
_CATALOG = "spark.sql.catalog."
# Prefixes of Delta Spark's classes and Maven packages.
_DELTA_SPARK = ("io.delta", "org.apache.spark.sql.delta")


@raises_delta_spark_errors
def configure(
    builder: SparkSession.Builder,
    location: str,
    *,
    catalog: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    isolation: str | None = None,
    settings: Settings | None = None,
) -> SparkSession.Builder:
    """Return a copy of a session builder that enables its sessions for a lake.

    `getOrCreate` and `create` of the copy open the lake (`connect`) and enable the session. A
    session that is enabled for this warehouse already keeps its lake, with the catalog, isolation
    and settings of that lake. Options that name Delta Spark's own classes and packages (extension,
    catalog, JARs) are removed. The lake itself is `txlake.connect(location, spark=spark)`.

    Args:
        builder: `SparkSession.builder...`; it isn't changed.
        location: the warehouse; this and the other arguments are those of `connect`.

    Raises a TypeError for another builder; `getOrCreate` and `create` raise what `connect` and
    `enable` do.
    """
    if not hasattr(builder, "getOrCreate") or not hasattr(builder, "_options"):
        raise ArgumentTypeRefused(
            f"expected a builder, of SparkSession.builder, found {type(builder).__qualname__}"
        )

    def enable_for_lake(spark: SparkSession) -> SparkSession:
        """Return the session, enabled for the lake, which is opened unless the session has it."""
        enabled = enabled_session(spark)
        engine = (
            None if enabled is None or enabled.session.engine.is_closed else enabled.session.engine
        )
        warehouse = None if engine is None else engine.warehouse
        if warehouse is not None and warehouse.url == canonical_url(location):
            return spark
        lake = connect(
            location,
            catalog=catalog,
            spark=spark,
            storage_options=storage_options,
            isolation=isolation,
            settings=settings,
        )
        return enable(spark, lake)

    copy: SparkSession.Builder = with_overrides(
        builder, _LakeBuilder, _options=dict(builder._options), _lake_enable=enable_for_lake
    )
    return copy


class _LakeBuilder:
    """The methods of a session builder that a lake overrides."""

    _options: dict[str, Any]
    _lake_enable: Callable[[SparkSession], SparkSession]

    def getOrCreate(self) -> SparkSession:
        """Return the existing session or a new one, enabled."""
        self._remove_delta_spark()
        return self._lake_enable(super().getOrCreate())  # type: ignore[misc]

    def create(self) -> SparkSession:
        """Return a new session, enabled."""
        self._remove_delta_spark()
        return self._lake_enable(super().create())  # type: ignore[misc]

    def _remove_delta_spark(self) -> None:
        """Remove Delta Spark's classes and packages from the builder's options."""
        for name, value in list(self._options.items()):
            if name not in (_EXTENSIONS, _PACKAGES) and not name.startswith(_CATALOG):
                continue
            parts = str(value).split(",")
            remaining = [part for part in parts if not part.strip().startswith(_DELTA_SPARK)]
            if len(remaining) == len(parts):
                continue
            if remaining:
                self._options[name] = ",".join(remaining)
            else:
                del self._options[name]
