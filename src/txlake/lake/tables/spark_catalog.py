"""Look up and create Delta tables in a Spark session's own catalog.

Uses only SQL and the public catalog functions, so that it works on Spark Connect.

A table created with a name and no location is managed by the catalog: the catalog decides its
location, and DROP TABLE deletes its files. Only the catalog's own `CREATE TABLE` makes such an
entry, and requires an empty location. So the catalog creates the table without columns, as version
0, and the definition follows as version 1; if that fails, the name is dropped again. With a
location the order is reversed: first the table, then its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from txlake.errors import OutcomeUnknown
from txlake.lake.tables.enabled_sessions import enabled_session
from txlake.lake.tables.errors import refusal
from txlake.spark.catalog_tables import plain_location
from txlake.sql import sql_literal
from txlake.sql.statements import CreateMode, TableName, TablePath, quoted
from txlake.storage.locations import canonical_url, local_path

_SESSION_CATALOG = "spark_catalog"
_DETAILS = "# Detailed Table Information"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """The catalog's entry for a name.

    Attributes:
        provider: the table's format in lower case; None for a view.
        location: a local path or a URL; None for a view.
    """

    provider: str | None
    location: str | None

    @property
    def is_delta(self) -> bool:
        """Whether it is a Delta table with a location."""
        return self.provider == "delta" and self.location is not None


def has_delta_catalog(spark: SparkSession, name: TableName) -> bool:
    """Return whether the name's catalog can hold Delta tables, and no lake is enabled instead.

    It can if its class is Delta Spark's or Unity Catalog's, or if it is the session's own with
    Hive.
    """
    if enabled_session(spark) is not None:
        return False
    catalog = name.parts[0] if len(name.parts) > 2 else spark.catalog.currentCatalog()
    implementation = (spark.conf.get(f"spark.sql.catalog.{catalog}", None) or "").lower()
    if "delta" in implementation or "unitycatalog" in implementation:
        return True
    if catalog != _SESSION_CATALOG:
        return False
    return spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"


def catalog_entry(spark: SparkSession, name: TableName) -> CatalogEntry | None:
    """Return the catalog's entry for a name; None if there is none.

    The entry of a view, temporary or not, has neither format nor location.
    """
    # DESCRIBE alone would do, but PySpark logs its failure for a name that isn't there.
    if not spark.catalog.tableExists(_sql_name(name)):
        return None
    rows = [
        (row["col_name"], row["data_type"])
        for row in spark.sql(f"DESCRIBE TABLE EXTENDED {_sql_name(name)}").collect()
    ]
    starts = [position for position, row in enumerate(rows) if row[0] == _DETAILS]
    details = dict(reversed(rows[starts[-1] :])) if starts else {}
    provider = details.get("Provider")
    location = details.get("Location")
    if details.get("Type") == "VIEW" or not provider or not location:
        return CatalogEntry(None, None)
    return CatalogEntry(provider.lower(), plain_location(location))


def create_named(
    spark: SparkSession,
    name: TableName,
    location: str | None,
    mode: CreateMode,
    write: Callable[[TablePath, CreateMode], object],
) -> TablePath:
    """Create or replace a named table, as the mode says, and return its location.

    Args:
        location: the location of a new table; None leaves it to the catalog.
        write: creates or replaces the table at a location; not called if `if_not_exists` finds the
            name.

    Raises an AnalysisException if the name exists or is missing, against the mode, if it isn't a
    Delta table's, if its table isn't at `location`, or if the catalog refuses; and what `write`
    raises. A refused name of a table with a location leaves the table, without the name.
    """
    entry = catalog_entry(spark, name)
    if entry is None:
        if mode == "replace":
            raise refusal(
                "TABLE_OR_VIEW_NOT_FOUND",
                f"{name} cannot be found in the session's catalog, so there is nothing to replace; "
                "createOrReplace makes the table when there is none",
            )
        if location is None:
            return _create_managed(spark, name, lambda place: write(place, "or_replace"))
        place = TablePath(location)
        write(place, mode)
        _register(spark, name, place)
        return place
    if mode == "create":
        raise refusal(
            "TABLE_OR_VIEW_ALREADY_EXISTS",
            f"{name} already exists in the session's catalog; createIfNotExists keeps it, "
            "createOrReplace replaces it",
        )
    if not entry.is_delta or entry.location is None:
        kind = "a view" if entry.provider is None else f"a table of format {entry.provider}"
        raise refusal(
            "DELTA_NOT_A_DELTA_TABLE", f"{name} is not a Delta table but {kind}; drop it first"
        )
    if location is not None and canonical_url(location) != canonical_url(entry.location):
        raise refusal(
            "DELTA_TABLE_LOCATION_MISMATCH",
            f"{name} is at {entry.location}, which is not the location given, {location}; "
            "leave the location out",
        )
    place = TablePath(entry.location)
    if mode != "if_not_exists":
        write(place, mode)
    return place


def _create_managed(
    spark: SparkSession, name: TableName, write: Callable[[TablePath], object]
) -> TablePath:
    """Create a table where the catalog decides, write its definition there, return the location.

    If `write` fails the name is dropped again, unless the outcome is unknown.
    """
    spark.sql(f"CREATE TABLE {_sql_name(name)} USING delta").collect()
    try:
        entry = catalog_entry(spark, name)
        if entry is None or entry.location is None:
            raise refusal(
                "DELTA_TABLE_NOT_FOUND",
                f"{name}: the catalog created the table but doesn't say where; give a location",
            )
        place = TablePath(entry.location)
        write(place)
    except OutcomeUnknown:
        raise  # the table may well be there
    except BaseException:
        spark.sql(f"DROP TABLE IF EXISTS {_sql_name(name)}").collect()
        raise
    return place


def _register(spark: SparkSession, name: TableName, place: TablePath) -> None:
    """Create the name of a table that exists at a location.

    Raises an AnalysisException if the catalog refuses it.
    """
    location = sql_literal(_catalog_location(place.location))
    try:
        spark.sql(f"CREATE TABLE {_sql_name(name)} USING delta LOCATION {location}").collect()
    except AnalysisException as error:
        raise refusal(
            error.getCondition() or "DELTA_TABLE_NOT_FOUND",
            f"the table at {place.location} is written, but the session's catalog refuses the name "
            f"{name} for it: {error}",
        ) from error


def _sql_name(name: TableName) -> str:
    return ".".join(quoted(part, always=True) for part in name.parts)


def _catalog_location(location: str) -> str:
    """Return a path or URL in the catalog's form: unencoded, local paths absolute."""
    return local_path(canonical_url(location)) or unquote(location)
