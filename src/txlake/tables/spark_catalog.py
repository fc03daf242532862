"""The names of a Spark session's own catalog: where a named Delta table is, and new names.

Everything goes through SQL and the public catalog functions, so that it works on Spark Connect.

A table that is created with a name and no location is the catalog's own (managed): the catalog
decides where it is, and DROP TABLE deletes its files. Only `CREATE TABLE` of the catalog itself
makes such an entry, and it insists on an empty place. So the catalog creates the table without
columns, as version 0, and the definition follows as version 1; when that fails, the name is dropped
again. With a location the order is the other way round: first the table, then its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from txlake.errors import OutcomeUnknown
from txlake.spark.catalog_tables import plain_location
from txlake.sql import sql_literal
from txlake.statements import CreateMode, TableName, TablePath, quoted
from txlake.storage.locations import canonical_url, local_path
from txlake.tables.enabled import enabled_in
from txlake.tables.errors import refused

_SESSION_CATALOG = "spark_catalog"
_DETAILS = "# Detailed Table Information"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalog says of a name.

    Attributes:
        provider: the table's format in lower case; None for a view.
        location: its place, a local path or a URL; None for a view.
    """

    provider: str | None
    location: str | None

    @property
    def is_delta(self) -> bool:
        """Whether it is a Delta table with a place."""
        return self.provider == "delta" and self.location is not None


def knows_delta(spark: SparkSession, name: TableName) -> bool:
    """Whether the catalog that a name belongs to can hold Delta tables, and no lake has them."""
    if enabled_in(spark) is not None:
        return False
    catalog = name.parts[0] if len(name.parts) > 2 else spark.catalog.currentCatalog()
    implementation = (spark.conf.get(f"spark.sql.catalog.{catalog}", None) or "").lower()
    if "delta" in implementation or "unitycatalog" in implementation:
        return True
    if catalog != _SESSION_CATALOG:
        return False
    return spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"


def entry_of(spark: SparkSession, name: TableName) -> Entry | None:
    """The catalog's entry; None when it has no such name."""
    # DESCRIBE alone would do, but PySpark logs its failure for a name that isn't there.
    if not spark.catalog.tableExists(_text(name)):
        return None
    rows = [
        (row["col_name"], row["data_type"])
        for row in spark.sql(f"DESCRIBE TABLE EXTENDED {_text(name)}").collect()
    ]
    starts = [place for place, row in enumerate(rows) if row[0] == _DETAILS]
    details = dict(reversed(rows[starts[-1] :])) if starts else {}
    provider = details.get("Provider")
    location = details.get("Location")
    if details.get("Type") == "VIEW" or not provider or not location:
        return Entry(None, None)
    return Entry(provider.lower(), plain_location(location))


def create_named(
    spark: SparkSession,
    name: TableName,
    location: str | None,
    mode: CreateMode,
    write: Callable[[TablePath, CreateMode], object],
) -> TablePath:
    """Creates or replaces the table of a name, as the mode says, and gives its place.

    Args:
        location: where a new table is to be; None leaves it to the catalog.
        write: creates or replaces the table at a place; it isn't called when `if_not_exists` finds
            the name.

    Raises an AnalysisException when the name is taken or missing, against the mode, when it is no
    Delta table's, when it is elsewhere than `location`, or when the catalog refuses; and what
    `write` raises.
    """
    entry = entry_of(spark, name)
    if entry is None:
        if mode == "replace":
            raise refused(
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
        raise refused(
            "TABLE_OR_VIEW_ALREADY_EXISTS",
            f"{name} already exists in the session's catalog; createIfNotExists keeps it, "
            "createOrReplace replaces it",
        )
    if not entry.is_delta or entry.location is None:
        found = "a view" if entry.provider is None else f"a table of format {entry.provider}"
        raise refused(
            "DELTA_NOT_A_DELTA_TABLE", f"{name} is not a Delta table but {found}; drop it first"
        )
    if location is not None and canonical_url(location) != canonical_url(entry.location):
        raise refused(
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
    spark.sql(f"CREATE TABLE {_text(name)} USING delta").collect()
    try:
        found = entry_of(spark, name)
        if found is None or found.location is None:
            raise refused(
                "DELTA_TABLE_NOT_FOUND",
                f"{name}: the catalog created the table but doesn't say where; give a location",
            )
        place = TablePath(found.location)
        write(place)
    except OutcomeUnknown:
        raise  # the table may well be there
    except BaseException:
        spark.sql(f"DROP TABLE IF EXISTS {_text(name)}").collect()
        raise
    return place


def _register(spark: SparkSession, name: TableName, place: TablePath) -> None:
    location = sql_literal(_shown(place.location))
    try:
        spark.sql(f"CREATE TABLE {_text(name)} USING delta LOCATION {location}").collect()
    except AnalysisException as error:
        raise refused(
            error.getCondition() or "DELTA_TABLE_NOT_FOUND",
            f"the table at {place.location} is written, but the session's catalog refuses the name "
            f"{name} for it: {error}",
        ) from error


def _text(name: TableName) -> str:
    return ".".join(quoted(part, always=True) for part in name.parts)


def _shown(location: str) -> str:
    """A path or URL of ours as the catalog takes it: unencoded, local ones absolute."""
    return local_path(canonical_url(location)) or unquote(location)
