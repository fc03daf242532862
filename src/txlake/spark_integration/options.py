"""What the options of Delta Spark's readers and writers mean here: the one place that knows them.

Names and values are those of Delta Spark (DeltaOptions.scala; "Table batch reads and writes" in
Delta's documentation); letter case of a name doesn't count. Each of its options is obeyed, refused
by name, or ignored because it changes no row (`IGNORED`). An option that isn't known is ignored, as
there, since options of file systems travel in the same mapping; one that looks like a misspelt
option which decides about rows is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.nearest import did_you_mean, nearest
from txlake.statements import TimeTravel
from txlake.streaming.options import PLACE_NAMES, SOURCE_NAMES, STORAGE
from txlake.tables.errors import refused
from txlake.tables.hadoop import storage_options

# By which a program says that a table is a lake's.
FORMATS = frozenset({"delta", "txlake"})

NULL_PARTITIONS_STAY = "useNullIntolerantEqualityWithDPO"

WRITE_OPTIONS = (
    "replaceWhere",
    "replaceUsing",
    "mergeSchema",
    "overwriteSchema",
    "partitionOverwriteMode",
    NULL_PARTITIONS_STAY,
    "txnAppId",
    "txnVersion",
    "dataChange",
)
"""Options of writers that decide which rows a table has, or which columns."""

READ_OPTIONS = (
    "versionAsOf",
    "timestampAsOf",
    "readChangeFeed",
    "readChangeData",
    "startingVersion",
    "startingTimestamp",
    "endingVersion",
    "endingTimestamp",
)
"""Options of batch readers that decide which rows are read."""

OTHER_OPTIONS = ("userMetadata", "path", "checkpointLocation", "queryName")
"""Options that are obeyed, and decide about no row."""

IGNORED = (
    "compression",
    "maxRecordsPerFile",
    "optimizeWrite",
    "autoCompact",
    "parquet.writer.version",
    "spark.sql.parquet.outputTimestampType",
    "writePartitionColumns",
    "streamingSourceTrackingId",
    "allowSourceColumnDrop",
    "allowSourceColumnRename",
    "allowSourceColumnTypeChange",
)
"""Options that change no row: how files are written, which txlake decides, and what a stream does
after a change of the schema, at which a stream of txlake's stops."""

REFUSED_WRITES: Mapping[str, str] = {
    "replaceOn": "use INSERT INTO ... REPLACE ON in SQL",
    "targetAlias": "name the table's columns without an alias",
    "isDataFrameWriterV1SaveAsTableOverwrite": "it is Delta Spark's own; leave it out",
    "__use_null_as_default": "it is Delta Spark's own; leave it out",
}
"""Options of writers that are refused, with what to do instead."""

_FILTERS = "filter the rows in the query"
REFUSED_READS: Mapping[str, str] = {
    "excludeRegex": "a batch reads the whole table; use it with readStream",
    "ignoreCorruptFiles": "a table's rows are never left out; repair the table",
    "ignoreMissingFiles": "a table's rows are never left out; repair the table",
    "modifiedAfter": _FILTERS,
    "modifiedBefore": _FILTERS,
    "pathGlobFilter": _FILTERS,
}
"""Options by which Spark's readers of files leave rows out, refused unless they are `false`."""

_TRAVELS = ("versionAsOf", "timestampAsOf")
_CHANGES = ("startingVersion", "endingVersion", "startingTimestamp", "endingTimestamp")
_PROPERTIES = "delta."
_FILE_SYSTEMS = ("fs.", "dfs.")
_OBEYED = (*WRITE_OPTIONS, *READ_OPTIONS, *OTHER_OPTIONS, *SOURCE_NAMES, *PLACE_NAMES)


def is_ours(source: str | None) -> bool:
    """Whether a format is Delta's or txlake's."""
    return source is not None and source.lower() in FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Which changes of a table are asked for; both ends are inclusive."""

    from_version: int | None = None
    to_version: int | None = None
    from_timestamp: str | None = None
    to_timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read.

    Attributes:
        travel: the moment; None for now.
        changes: the changes of this range instead of rows.
        path: the option `path`.
        storage: credentials and endpoints, as our stores name them.
    """

    travel: TimeTravel | None = None
    changes: Range | None = None
    path: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How rows are written; None where the option isn't given.

    Attributes:
        data_change: False where rows are only rearranged.
        keep_null_partitions: a dynamic overwrite adds rows to partitions with a NULL, and replaces
            none there.
        properties: of a table that is made: the options that begin with `delta.`.
    """

    replace_where: str | None = None
    replace_using: tuple[str, ...] = ()
    merge_schema: bool | None = None
    overwrite_schema: bool | None = None
    partition_overwrite: Literal["static", "dynamic"] | None = None
    app_id: str | None = None
    app_version: int | None = None
    user_metadata: str | None = None
    data_change: bool = True
    keep_null_partitions: bool | None = None
    path: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_options(given: Mapping[str, object]) -> ReadOptions:
    """The options of a reader.

    Raises an AnalysisException for values that can't be, and for options that exclude each other.
    """
    options = _Options(given)
    options.refuse(REFUSED_READS, READ_OPTIONS)
    version, timestamp = (options.text(name) for name in _TRAVELS)
    if version is not None and timestamp is not None:
        raise refused(
            "INVALID_TIME_TRAVEL_SPEC",
            "versionAsOf and timestampAsOf exclude each other: give one of the two",
        )
    travel = None
    if version is not None:
        travel = TimeTravel(version=options.number("versionAsOf"))
    elif timestamp is not None:
        travel = TimeTravel(timestamp=timestamp)
    changes = None
    if options.flag("readChangeFeed") or options.flag("readChangeData"):
        if travel is not None:
            raise InvalidRequest(
                "readChangeFeed reads a range of versions: give startingVersion and endingVersion "
                "instead of versionAsOf or timestampAsOf"
            )
        changes = _range(options)
    return ReadOptions(
        travel=travel, changes=changes, path=options.text("path"), storage=options.storage()
    )


def _range(options: _Options) -> Range:
    for end, version, timestamp in (("start", *_CHANGES[0::2]), ("end", *_CHANGES[1::2])):
        texts = [options.text(version), options.text(timestamp)]
        if None not in texts:
            raise refused(
                "DELTA_MULTIPLE_CDC_BOUNDARY",
                f"{version} and {timestamp} both say where the changes {end}: give one of the two",
            )
    found = Range(
        from_version=options.number("startingVersion"),
        to_version=options.number("endingVersion"),
        from_timestamp=options.text("startingTimestamp"),
        to_timestamp=options.text("endingTimestamp"),
    )
    if found.from_version is None and found.from_timestamp is None:
        raise refused(
            "DELTA_NO_START_FOR_CDC_READ",
            "readChangeFeed needs a start: give startingVersion or startingTimestamp",
        )
    return found


def write_options(given: Mapping[str, object]) -> WriteOptions:
    """The options of a writer.

    Raises an AnalysisException for values that can't be, and for options that exclude each other or
    need another one; an UnsupportedOperationException for those that txlake doesn't have.
    """
    options = _Options(given)
    options.refuse(REFUSED_WRITES, WRITE_OPTIONS)
    found = WriteOptions(
        replace_where=options.text("replaceWhere"),
        replace_using=_columns(options),
        merge_schema=options.flag("mergeSchema"),
        overwrite_schema=options.flag("overwriteSchema"),
        partition_overwrite=_partition_overwrite(options),
        app_id=options.text("txnAppId"),
        app_version=options.number("txnVersion"),
        user_metadata=options.text("userMetadata"),
        data_change=options.flag("dataChange", default=True) is not False,
        keep_null_partitions=options.flag(NULL_PARTITIONS_STAY),
        path=options.text("path"),
        properties=table_properties(given),
        storage=options.storage(),
    )
    if (found.app_id is None) != (found.app_version is None):
        raise refused(
            "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
            "txnAppId and txnVersion go together: give both, or neither",
        )
    partial = "replaceUsing" if found.replace_using else "replaceWhere"
    if found.keep_null_partitions is not None and (found.replace_using or found.replace_where):
        raise _illegal(
            NULL_PARTITIONS_STAY,
            str(found.keep_null_partitions).lower(),
            f"it goes with partitionOverwriteMode 'dynamic', not with {partial}",
        )
    if found.partition_overwrite == "dynamic":
        if found.replace_where is not None:
            raise refused(
                "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
                "replaceWhere and partitionOverwriteMode 'dynamic' exclude each other",
            )
        if found.overwrite_schema:
            raise refused(
                "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
                "overwriteSchema replaces the whole table, and partitionOverwriteMode 'dynamic' "
                "some partitions: give one of the two",
            )
    return found


def table_properties(given: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Those of the options that are properties of a table which is made with them."""
    options = _Options(given)
    names = [name for name in given if name.lower().startswith(_PROPERTIES)]
    return tuple((name, text) for name in names if (text := options.text(name)) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How a stream's rows are written; None where the option isn't given.

    Attributes:
        overwrite_schema: in complete mode the rows' columns replace the table's; means nothing to
            what appends, as in Delta Spark.
    """

    checkpoint: str | None = None
    merge_schema: bool | None = None
    overwrite_schema: bool | None = None
    user_metadata: str | None = None
    path: str | None = None


def stream_options(given: Mapping[str, object]) -> dict[str, str]:
    """Those of a stream reader's options that a source has, as texts.

    What they mean, and which exclude each other, is told by `streaming.options`.
    """
    options = _Options(given)
    found = {name: options.text(name) for name in (*SOURCE_NAMES, *_TRAVELS, *_CHANGES[1::2])}
    return {name: text for name, text in found.items() if text is not None}


def without_stream_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options without those that only a stream's reader has."""
    own = {name.lower() for name in SOURCE_NAMES} - {name.lower() for name in READ_OPTIONS}
    return {name: value for name, value in given.items() if name.lower() not in own}


def sink_options(given: Mapping[str, object]) -> SinkOptions:
    """The options of a stream's writer.

    Raises as `write_options`; an UnsupportedOperationException for those that a stream hasn't.
    """
    asked = write_options(given)
    for name, value in (
        ("replaceWhere", asked.replace_where),
        ("replaceUsing", asked.replace_using or None),
        ("partitionOverwriteMode", asked.partition_overwrite),
        ("txnAppId", asked.app_id),
        ("dataChange", asked.data_change is False or None),
        (NULL_PARTITIONS_STAY, asked.keep_null_partitions),
    ):
        if value is not None:
            raise UnsupportedFeature(
                f"{name} isn't an option of a stream's writer, which appends, or in complete mode "
                "replaces all rows, once a micro-batch; leave it out, or write in foreachBatch"
            )
    if asked.storage:
        raise UnsupportedFeature(
            "settings of file systems aren't taken from a stream's writer: give them to "
            "txlake.connect(..., storage_options=...)"
        )
    return SinkOptions(
        checkpoint=_Options(given).text("checkpointLocation"),
        merge_schema=asked.merge_schema,
        overwrite_schema=asked.overwrite_schema,
        user_metadata=asked.user_metadata,
        path=asked.path,
    )


def _columns(options: _Options) -> tuple[str, ...]:
    text = options.text("replaceUsing")
    if text is None:
        return ()
    columns = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(columns):
        raise _illegal("replaceUsing", text, "must not contain empty column names")
    return columns


def _partition_overwrite(options: _Options) -> Literal["static", "dynamic"] | None:
    text = options.text("partitionOverwriteMode")
    match None if text is None else text.lower():
        case None:
            return None
        case "static":
            return "static"
        case "dynamic":
            return "dynamic"
    raise _illegal("partitionOverwriteMode", text or "", "must be 'STATIC' or 'DYNAMIC'")


class _Options:
    """Options by their name in any letter case."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        self._names = given

    def text(self, name: str) -> str | None:
        """The value as text; None where it isn't given."""
        value = self._given.get(name.lower())
        if value is None:
            return None
        return str(value).lower() if isinstance(value, bool) else str(value)

    def flag(self, name: str, *, default: bool | None = None) -> bool | None:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise _illegal(name, text, "must be 'true' or 'false'")
        return text.lower() == "true"

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal():
            raise _illegal(name, text, "must be a non-negative integer")
        return int(text)

    def refuse(self, refused_names: Mapping[str, str], deciding: Iterable[str]) -> None:
        """Raises UnsupportedFeature for an option that is refused, or misspelt of those deciding.

        An option that is `false` asks for nothing.
        """
        for name, advice in refused_names.items():
            if self.text(name) not in (None, "false"):
                raise UnsupportedFeature(f"option {name!r} isn't supported: {advice}")
        folded = {name.lower() for name in (*_OBEYED, *refused_names, *IGNORED)}
        for name in self._names:
            if name.lower() in folded or "." in name or name.startswith(STORAGE):
                continue
            meant = nearest(name, deciding)
            if meant:
                raise InvalidRequest(
                    f"option {name!r} is unknown, {did_you_mean(meant)} It would be ignored, and "
                    "might have decided which rows stay; correct it, or leave it out"
                )

    def storage(self) -> dict[str, str]:
        """What is said of file systems, which Delta Spark takes from the same mapping."""
        found = {
            key: str(value) for key, value in self._names.items() if key.startswith(_FILE_SYSTEMS)
        }
        return storage_options(found) if found else {}


def storage_in(given: Mapping[str, object]) -> dict[str, str]:
    """Credentials and endpoints among the options, as our stores name them."""
    return _Options(given).storage()


def with_storage(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a data source, what is said of file systems as `storage.<key>`."""
    found = {key: value for key, value in given.items() if not key.startswith(_FILE_SYSTEMS)}
    storage = storage_in(given)
    return {**{f"{STORAGE}{key}": value for key, value in storage.items()}, **found}


def _illegal(name: str, value: str, explanation: str) -> InvalidRequest:
    return refused(
        "DELTA_ILLEGAL_OPTION", f"Invalid value '{value}' for option '{name}', {explanation}"
    )
