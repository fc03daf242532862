"""`txlake.configure`: a builder whose Spark sessions are a lake's from the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from txlake.lake.lake import connect
from txlake.settings import Settings
from txlake.spark_integration.enabling import enable
from txlake.spark_integration.fronts import fronted
from txlake.storage import canonical_url
from txlake.tables.enabled import enabled_in
from txlake.tables.errors import ArgumentTypeRefused, as_delta_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = "spark.sql.extensions"
_PACKAGES = "spark.jars.packages"
_CATALOG = "spark.sql.catalog."
# What begins so is Delta Spark's own: a class, or a package of Maven's.
_OF_DELTA = ("io.delta", "org.apache.spark.sql.delta")


@as_delta_spark
def configure(
    builder: SparkSession.Builder,
    location: str,
    *,
    catalog: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    isolation: str | None = None,
    settings: Settings | None = None,
) -> SparkSession.Builder:
    """A builder as the one given, whose sessions are given to a lake: `connect` and `enable`.

    `getOrCreate` and `create` of the builder that it returns open the lake and enable the session,
    unless that is enabled for this warehouse already: then its lake stays, with the catalog,
    isolation and settings that it was opened with. What the builder says of Delta Spark's own
    classes and packages is left out: its extension, its catalog, its JARs. The lake itself is
    `txlake.connect(location, spark=spark)`.

    Args:
        builder: `SparkSession.builder...`; it stays as it is.
        location: the warehouse, and the rest, as `connect` has them.

    Raises a TypeError for another builder; the methods that make a session raise what `connect` and
    `enable` do.
    """
    if not hasattr(builder, "getOrCreate") or not hasattr(builder, "_options"):
        raise ArgumentTypeRefused(
            f"expected a builder, of SparkSession.builder, found {type(builder).__qualname__}"
        )

    def give(spark: SparkSession) -> SparkSession:
        known = enabled_in(spark)
        engine = None if known is None or known.session.engine.is_closed else known.session.engine
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

    made: SparkSession.Builder = fronted(
        builder, _Configured, _options=dict(builder._options), _lake_give=give
    )
    return made


class _Configured:
    """The part of a builder that a lake has a say in."""

    _options: dict[str, Any]
    _lake_give: Callable[[SparkSession], SparkSession]

    def getOrCreate(self) -> SparkSession:
        """The session that there is, or a new one, enabled."""
        self._leave_out()
        return self._lake_give(super().getOrCreate())  # type: ignore[misc]

    def create(self) -> SparkSession:
        """A new session, enabled."""
        self._leave_out()
        return self._lake_give(super().create())  # type: ignore[misc]

    def _leave_out(self) -> None:
        for name, value in list(self._options.items()):
            if name not in (_EXTENSIONS, _PACKAGES) and not name.startswith(_CATALOG):
                continue
            parts = str(value).split(",")
            kept = [part for part in parts if not part.strip().startswith(_OF_DELTA)]
            if len(kept) == len(parts):
                continue
            if kept:
                self._options[name] = ",".join(kept)
            else:
                del self._options[name]
