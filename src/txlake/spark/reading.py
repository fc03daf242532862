"""Read data files as rows with the files' own columns: by Spark's reader, or decoded by pyarrow.

Owns the manifest of a read, the check that Spark may take partition values from folders, and the
few files that Spark's reader can't decode.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from txlake.datafiles.decode_task import DecodeTask, SmallFilesTask
from txlake.datafiles.many_files import FILE_BYTES_MAX
from txlake.errors import InvalidRequest
from txlake.local.control_columns import FILE, ROW
from txlake.local.file_rows import is_plain_field
from txlake.local.types import parquet_field
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol import paths
from txlake.protocol.actions import Add
from txlake.protocol.reach import Reach
from txlake.protocol.type_widening import TYPE_CHANGES, is_widening
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct
from txlake.spark.manifest import Manifests
from txlake.spark.memory_tables import task_url
from txlake.spark.pushdown import Unfiltered
from txlake.spark.shipping import travelling
from txlake.spark.spark_sessions import create_frame, in_session, is_connect, session_with
from txlake.spark.task_split import sharing
from txlake.spark.types import spark_schema

# Spark's Parquet reader fills a column of this name with the rows' positions. `_metadata` has them
# too, but builds a struct for each row.
_POSITION = "_tmp_metadata_row_index"
_HADOOP_SCHEMES = {"s3": "s3a", "gs": "gs", "az": "abfss"}
# Types whose texts in folder names Spark reads as the log does.
_FOLDER_TYPES = frozenset({"string", "byte", "short", "integer", "long", "date"})
# Writers name the codec in the file's name. Spark has no Brotli.
_BROTLI = re.compile(r"\.(br|brotli)\.parquet$")
# Override the session's settings: no file is skipped, and dates of files from unknown writers are
# in the proleptic Gregorian calendar, as pyarrow and Delta's other writers have them.
_OPTIONS: Mapping[str, str] = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
}
_TASK_FILES = 8
_MANY_FILES = 256
_TOGETHER_BYTES = 32 * 1024 * 1024
_TIMES = frozenset({Primitive("date"), Primitive("timestamp"), Primitive("timestamp_ntz")})
_NO_CLIENT_ERROR = re.compile(r"ClassNotFoundException|No FileSystem for scheme")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Some files of a table, and how they are read.

    Attributes:
        reach: where the files may lie.
        files: the files by their ordinal in the scan.
        partitions_from_log: partition columns whose values don't come from the folders.
        row_id_columns: columns of the files that aren't the table's: materialised row ids.
        file_metadata: whether `_metadata` of the rows is read too.
        unfiltered: the columns that Spark's filters may not reach in these files.
        options: further options of Spark's reader.
    """

    spark: SparkSession
    manifests: Manifests
    snapshot: Snapshot
    store: Store
    reach: Reach
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[int, Add]
    partitions_from_log: tuple[str, ...] = ()
    row_id_columns: tuple[str, ...] = ()
    file_metadata: bool = False
    unfiltered: Unfiltered = field(default_factory=Unfiltered)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def by_id(self) -> bool:
        """Whether columns are found by their field ids."""
        return self.snapshot.column_mapping_mode == "id"

    def url_of(self, add: Add) -> str:
        """Return the URL by which tasks read a file of the table."""
        return task_url(self.spark, self.store, self.reach.url(add.path))

    def columns(self, excluded: Sequence[str]) -> Struct:
        """Return the table's columns, except the excluded ones and those of type void, which no
        file holds.
        """
        return Struct(
            tuple(
                item
                for item in self.snapshot.schema
                if item.name not in excluded and item.type != Primitive("void")
            )
        )


def find_columns_by_id(spark: SparkSession) -> None:
    """Let Spark's reader find columns by the field ids of their schema, if it has any.

    Sets two settings of the session, for good.
    """
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    spark.conf.set("spark.sql.parquet.fieldId.read.ignoreMissing", "true")


def native_rows(reading: Reading, *, positions: bool) -> DataFrame:
    """Return the rows as Spark reads them: physical names, with partition columns from folders,
    except `partitions_from_log`.

    With `positions` also FILE (ordinal) and ROW (position in the file). Deleted rows are among
    them. Raises InvalidRequest for a table in memory that Spark can't reach.
    """
    spark = reading.spark
    schema = read_schema = _spark_schema(reading, reading.partitions_from_log)
    if (
        positions and not reading.file_metadata
    ):  # `_metadata` has the positions too, and Spark can't return both
        read_schema = T.StructType([*schema, T.StructField(_POSITION, T.LongType())])
    url = reading.manifests.write(
        (ordinal, spark_url(reading.url_of(add)), add.size)
        for ordinal, add in reading.files.items()
    )
    options = {**_OPTIONS, **reading.options}
    if reading.partitions_from_log or not reading.snapshot.partition_columns:
        options["recursiveFileLookup"] = "true"
    sizes = [add.size for add in reading.files.values()]
    settings = {} if is_connect(spark) else sharing(spark, reading.store, sizes)
    frame = _parquet(spark, paths.decode_path(spark_url(url)), read_schema, options, settings)
    if not is_connect(spark):  # the plan has read it; Connect reads it with each action
        reading.manifests.drop(url)
    columns = reading.unfiltered.columns(schema.names)
    if positions:
        metadata = frame.metadataColumn("_metadata")
        ordinals = F.unix_millis(metadata.getField("file_modification_time"))
        if read_schema is schema:
            rows = metadata.getField("row_index")
        else:
            # Never null. The plan has to keep a field of `_metadata`: if it names none, Spark reads
            # the whole struct, and refuses it beside this column.
            rows = F.coalesce(F.col(_POSITION), ordinals)
        return frame.select(*columns, ordinals.alias(FILE), rows.alias(ROW))
    return frame.select(*columns) if reading.unfiltered.paths else frame


def _parquet(
    spark: SparkSession,
    path: str,
    schema: T.StructType,
    options: Mapping[str, str],
    settings: Mapping[str, str],
) -> DataFrame:
    """Return the rows of a path, which Spark reads with the settings whatever its session has
    later.
    """
    reader: Any = spark.read
    if settings:
        reader._jreader = session_with(spark, settings).read()
    frame: DataFrame = reader.schema(schema).options(**options).parquet(path)
    return in_session(frame, spark) if settings else frame


def decoded_rows(reading: Reading) -> DataFrame:
    """Return the rows as pyarrow reads them in Spark's tasks, with FILE and ROW.

    Columns have physical names, without partition columns. Deleted rows are among them.
    """
    excluded = reading.snapshot.partition_columns
    columns = reading.columns(excluded)
    positions = [pa.field(FILE, pa.int64()), pa.field(ROW, pa.int64())]
    row_id_columns = [pa.field(name, pa.int64()) for name in reading.row_id_columns]
    arrow = pa.schema([*map(parquet_field, columns), *row_id_columns, *positions])
    schema = _spark_schema(reading, excluded)
    schema = schema.add(FILE, T.LongType()).add(ROW, T.LongType())
    task = DecodeTask(
        schema=arrow.serialize().to_pybytes(),
        by_id=reading.by_id,
        options=dict(reading.storage_options),
    )
    urls = [reading.url_of(add) for add in reading.files.values()]
    files = create_frame(
        reading.spark, pa.table({"ordinal": pa.array(reading.files, pa.int64()), "url": urls})
    )
    files = files.repartition(-(-len(urls) // _TASK_FILES))
    return files.mapInArrow(travelling(reading.spark, task), schema)


def many_small_files(snapshot: Snapshot, store: Store, files: pa.Table) -> bool:
    """Return whether files, in FILES_SCHEMA, are read sooner by pyarrow, many in each batch.

    So are at least 256 files of this machine, none of more than 256 KiB and 32 MiB together, of a
    table without partitions, whose columns are of types that pyarrow reads as Spark does: no dates
    and times, which old versions of Spark wrote in another calendar.
    """
    if files.num_rows < _MANY_FILES or not store.url.startswith("file:"):
        return False
    sizes = files["size"]
    is_small = pc.max(sizes).as_py() <= FILE_BYTES_MAX and pc.sum(sizes).as_py() <= _TOGETHER_BYTES
    if not is_small or files["deletion_vector"].null_count < files.num_rows:
        return False
    return not snapshot.partition_columns and all(
        is_plain_field(item) and item.type not in _TIMES and TYPE_CHANGES not in item.metadata
        for item in snapshot.schema
    )


def small_rows(reading: Reading, excluded: Sequence[str]) -> DataFrame:
    """Return the rows of many small files as pyarrow reads them in Spark's tasks, without the
    excluded columns.

    Columns have physical names. Spark knows neither the file of a row nor the size of the files.
    """
    task = SmallFilesTask(
        schema=pa.schema(map(parquet_field, reading.columns(excluded))).serialize().to_pybytes(),
        by_id=reading.by_id,
        options=dict(reading.storage_options),
    )
    urls = pa.table({"url": [reading.url_of(add) for add in reading.files.values()]})
    files = create_frame(reading.spark, urls)
    return files.mapInArrow(travelling(reading.spark, task), _spark_schema(reading, excluded))


def _spark_schema(reading: Reading, excluded: Sequence[str]) -> T.StructType:
    """Return the schema of the files without the excluded columns, then the row id columns."""
    schema = spark_schema(reading.columns(excluded), physical=True, ids=reading.by_id)
    for name in reading.row_id_columns:
        schema = schema.add(name, T.LongType())
    return schema


def needs_decoding(snapshot: Snapshot, add: Add) -> bool:
    """Return whether Spark's reader can't decode the file: it is Brotli, or its table's schema
    records a widening that Spark refuses.
    """
    return _BROTLI.search(add.path) is not None or _has_unsupported_widening(snapshot.schema)


@functools.lru_cache(maxsize=16)
def has_client(spark: SparkSession, root: str) -> bool:
    """Return whether Spark was started with the client for a bucket, so that it can read there.

    Nothing is read or listed: one file is looked up. `root` is the bucket's URL. Without a client a
    warning is logged. The answer is cached.
    """
    missing_file = f"{spark_url(root)}/_txlake_nothing"
    try:
        _ = spark.read.schema("nothing int").parquet(missing_file).schema
    except Exception as error:  # its class depends on how Spark is reached
        if _NO_CLIENT_ERROR.search(str(error)) is None:
            return True
        logger.warning(
            "Spark has no client for %s: its files are read by pyarrow in Spark's tasks, whole; "
            "start Spark with the client (hadoop-aws, ...) in spark.jars.packages to read less",
            root,
        )
        return False
    return True


def bucket_of(url: str) -> str | None:
    """Return the URL of the bucket (or HDFS cluster) of a table's URL; None for folders and tables
    in memory.
    """
    scheme, separator, rest = url.partition("://")
    if scheme in {"file", "memory"}:
        return None
    return f"{scheme}{separator}{rest.partition('/')[0]}"


def _has_unsupported_widening(data_type: DataType) -> bool:
    """Return whether a field's type was changed in a way that the protocol doesn't allow, at any
    depth.

    Delta 3.3's preview did: a byte became decimal(4,1). Spark refuses to read the older files.
    """
    match data_type:
        case Struct(fields):
            return any(
                _was_widened_unsupported(item) or _has_unsupported_widening(item.type)
                for item in fields
            )
        case Array(element, _):
            return _has_unsupported_widening(element)
        case Map(key, value, _):
            return _has_unsupported_widening(key) or _has_unsupported_widening(value)
        case _:
            return False


def _was_widened_unsupported(item: Field) -> bool:
    """Return whether the field itself records a change of type that is no widening of the
    protocol.
    """
    changes = item.metadata.get(TYPE_CHANGES)
    return any(
        isinstance(change, dict)
        and not is_widening(Primitive(str(change["fromType"])), Primitive(str(change["toType"])))
        for change in (changes if isinstance(changes, list) else ())
    )


def folders_agree(
    snapshot: Snapshot, store: Store, adds: Iterable[Add], partitions: Sequence[Field]
) -> bool:
    """Return whether every file's folders have exactly the log's values.

    Spark may then take partition values from them. True without partitions; False for types whose
    texts Spark reads otherwise, files of other tables, and a table below a folder with `=` in its
    name.
    """
    if not partitions:
        return True
    root = paths.decode_path(store.url)
    if "=" in root or any(
        not isinstance(item.type, Primitive) or item.type.name not in _FOLDER_TYPES
        for item in partitions
    ):
        return False
    by_name = {item.name: item.physical_name for item in partitions}
    ordered = [by_name[name] for name in snapshot.partition_columns]
    for add in adds:
        if paths.is_absolute(add.path):
            return False
        values = [(name, add.partition_values.get(name) or None) for name in ordered]
        folder = paths.decode_path(add.path).rpartition("/")[0]
        if folder != paths.partition_folder(values):
            return False
        if any(value == paths.NULL_PARTITION for _, value in values):
            return False  # a string value, which Spark would read as null
    return True


def spark_url(url: str) -> str:
    """Return the URL that Hadoop's file systems know for a store's URL.

    Raises InvalidRequest for a store in this process's memory, which Spark can't read.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "memory":
        raise InvalidRequest(f"{url}: Spark can't read memory:// tables; use a folder or a bucket")
    return f"{_HADOOP_SCHEMES.get(scheme, scheme)}{separator}{rest}"


def estimated_bytes(frame: DataFrame) -> int | None:
    """Return Spark's estimate of a frame's size; None on Spark Connect, which has none."""
    if is_connect(frame.sparkSession):
        return None
    plan = frame._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))
