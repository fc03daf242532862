"""Parquet tables of Spark's own catalog: their locations, and their files by partition.

Uses only SQL and public functions, so that it works on Spark Connect. Files are those that Spark
itself reads for the table, not those in folders that aren't partitions of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.protocol.paths import unescape_partition
from txlake.protocol.types import Struct
from txlake.spark.types import delta_schema
from txlake.sql.statements import TableName, quoted

_PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
# Properties that Hive adds itself.
_NOTES = frozenset({"transient_lastDdlTime", "EXTERNAL", "bucketing_version"})

# A partition's columns and their values as in its folder's name; None for NULL.
Values = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTable:
    """A Parquet table of Spark's own catalog.

    Attributes:
        name: its qualified name.
        location: its location, a local path or a URL.
        schema: its columns, partition columns included.
        partition_by: the partition columns' names.
        files: the values of the partition columns by path relative to `location`, decoded.
        properties: those of TBLPROPERTIES.
        comment: the table's comment.
    """

    name: TableName
    location: str
    schema: Struct
    partition_by: tuple[str, ...]
    files: Mapping[str, Values]
    properties: tuple[tuple[str, str], ...]
    comment: str | None


def parquet_table(spark: SparkSession, name: TableName) -> ParquetTable:
    """Return the table with a name, `spark_catalog.db.t`.

    Raises InvalidRequest if there is no such table, if it is a view, if a partition's files lie
    outside of the table's folder, and if it isn't clear which partition a file is of;
    UnsupportedFeature for a table of another format; Spark's own errors.
    """
    text = ".".join(quoted(part, always=True) for part in name.parts)
    if not spark.catalog.tableExists(text):
        raise InvalidRequest(
            f"{name}: neither the lake nor Spark's own catalog has such a table; a folder of "
            "Parquet files is converted by CONVERT TO DELTA parquet.`/path`"
        )
    entry = _described(spark, text, name)
    location = plain_location(entry["location"])
    frame = spark.table(text)
    partition_by = tuple(entry.get("partition_columns") or ())
    paths = list(_below(frame.inputFiles(), location))
    if not partition_by:
        files: dict[str, Values] = {}
        for path, url in paths:
            if path is None:
                raise InvalidRequest(f"{name}: its file {url} isn't below its folder {location}")
            files[path] = ()
    else:
        files = _by_partition(spark, text, name, location, paths)
    properties = entry.get("table_properties") or {}
    return ParquetTable(
        name=name,
        location=location,
        schema=delta_schema(frame.schema),
        partition_by=partition_by,
        files=files,
        properties=tuple((key, value) for key, value in properties.items() if key not in _NOTES),
        comment=entry.get("comment") or None,
    )


def plain_location(location: str) -> str:
    """Return a location of Spark's catalog, which isn't encoded, as a local path, or as a URL with
    `%` encoded.
    """
    if location.startswith("file:"):
        rest = location.removeprefix("file:")
        return "/" + rest.lstrip("/")
    return location.replace("%", "%25") if "://" in location else location


def _described(spark: SparkSession, text: str, name: TableName) -> dict[str, Any]:
    """Return what DESCRIBE TABLE EXTENDED ... AS JSON says of a Parquet table.

    Raises InvalidRequest for a view, UnsupportedFeature for a table of another format.
    """
    try:
        [[description]] = spark.sql(f"DESCRIBE TABLE EXTENDED {text} AS JSON").collect()
    except AnalysisException as error:
        if "V2_TABLE" not in (error.getCondition() or ""):
            raise
        raise UnsupportedFeature(
            f"{name}: only Parquet tables are converted, and Spark's own catalog has a table of "
            "another format there; a Delta table gets a name in the lake by lake.attach(place, "
            "name)"
        ) from error
    entry: dict[str, Any] = json.loads(description)
    kind, provider = str(entry.get("type")), str(entry.get("provider", "")).lower()
    if kind.endswith("VIEW"):
        raise InvalidRequest(
            f"{name} is a view, not a Parquet table; CREATE TABLE ... AS SELECT keeps its rows"
        )
    if provider == "hive" and entry.get("serde_library") == _PARQUET_SERDE:
        return entry
    if provider != "parquet":
        raise UnsupportedFeature(
            f"{name}: only Parquet tables are converted, found the format {provider!r}; "
            "CREATE TABLE ... AS SELECT makes a Delta table of its rows"
        )
    return entry


def _below(urls: list[str], location: str) -> Iterator[tuple[str | None, str]]:
    """Yield each file's decoded path relative to a location (None outside of it), and its URL."""
    root = location.rstrip("/") + "/"
    for url in urls:
        path = unquote(plain_location(url) if url.startswith("file:") else url)
        yield path.removeprefix(root) if path.startswith(root) else None, url


def _by_partition(
    spark: SparkSession,
    text: str,
    name: TableName,
    location: str,
    paths: list[tuple[str | None, str]],
) -> dict[str, Values]:
    """Return the files' partition values by path.

    A partition is assumed to be in the folder of its own name if the table has files there; the
    catalog is asked for the location of the others. Raises InvalidRequest for a file of no
    partition, or of several, and for a partition outside of the table's folder.
    """
    folders = {(path or "").rpartition("/")[0] for path, _ in paths}
    partitions = [str(row[0]) for row in spark.sql(f"SHOW PARTITIONS {text}").collect()]
    values_of = {partition: _values(partition) for partition in partitions if partition in folders}
    for partition in partitions:
        if partition not in folders:
            values_of[_folder_of(spark, text, name, location, partition)] = _values(partition)
    files: dict[str, Values] = {}
    for path, url in paths:
        folder = (path or "").rpartition("/")[0]
        if path is None or folder not in values_of or path in files:
            raise InvalidRequest(
                f"{name}: it isn't clear which one partition the file {url} is of: several are in "
                "its folder, or none; SHOW PARTITIONS lists them"
            )
        files[path] = values_of[folder]
    return files


def _values(partition: str) -> Values:
    """Return the values of a partition such as `day=2026-01-05/shop=7` (SHOW PARTITIONS)."""
    pairs = (part.partition("=") for part in partition.split("/"))
    return tuple(
        (str(unescape_partition(column)), unescape_partition(text)) for column, _, text in pairs
    )


def _folder_of(
    spark: SparkSession, text: str, name: TableName, location: str, partition: str
) -> str:
    """Return a partition's location in the catalog, relative to the table's.

    Raises InvalidRequest if it lies outside of the table's folder.
    """
    spec = ", ".join(
        f"{quoted(column, always=True)} = {_literal(value)}" for column, value in _values(partition)
    )
    [[description]] = spark.sql(
        f"DESCRIBE TABLE EXTENDED {text} PARTITION ({spec}) AS JSON"
    ).collect()
    partition_location = plain_location(str(json.loads(description).get("location", ""))).rstrip(
        "/"
    )
    root = location.rstrip("/") + "/"
    if not partition_location.startswith(root):
        raise InvalidRequest(
            f"{name}: partition {partition} is at {partition_location}, outside of the table's "
            f"folder {location}: a Delta table has its files below one folder; move it there with "
            "ALTER TABLE ... PARTITION ... SET LOCATION, or CREATE TABLE ... AS SELECT"
        )
    return partition_location.removeprefix(root)


def _literal(text: str | None) -> str:
    """Return a partition value as an SQL literal; NULL for None."""
    if text is None:
        return "NULL"
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
