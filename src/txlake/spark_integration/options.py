"""The options of Delta Spark's readers and writers: their names, values and meaning in txlake.

Names and values are those of Delta Spark (DeltaOptions.scala; "Table batch reads and writes" in
Delta's documentation); names are case-insensitive. Each of Delta Spark's options is obeyed, refused
by name, or ignored because it changes no row (`IGNORED`). An unknown option is ignored, as in Delta
Spark, since options of file systems share the mapping; but one that looks like a misspelling of an
option that selects rows is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.read_versions import versions_read
from txlake.lake.streaming.options import PLACE_NAMES, SOURCE_NAMES, STORAGE
from txlake.lake.tables.errors import refusal
from txlake.lake.tables.hadoop import storage_options
from txlake.nearest import did_you_mean, nearest
from txlake.session.versions_read import VersionRead
from txlake.sql.statements import Table, TimeTravel
from txlake.sql.statements.branches import branch_name

# The formats of a lake's tables.
FORMATS = frozenset({"delta", "txlake"})

NULL_PARTITIONS_STAY = "useNullIntolerantEqualityWithDPO"
READ_VERSION, READS = "readVersion", "reads"
"""txlake's own options of writers: the arguments `read_version` and `reads` of `Lake.write`."""

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
    READ_VERSION,
)
"""Options of writers that decide which rows or columns a table has."""

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

BRANCH, TAG = "branch", "tag"
"""Iceberg's options of batch readers: the branch or the tag that is read."""

OTHER_OPTIONS = ("userMetadata", "path", "checkpointLocation", "queryName", BRANCH, TAG, READS)
"""Options that are obeyed, and that aren't taken for the meaning of misspelled ones."""

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
"""Options that change no row. txlake itself decides how files are written, and stops a stream at a
schema change."""

_ON_BRANCH = "USE BRANCH, or set spark.wap.branch, before it"
REFUSED_WRITES: Mapping[str, str] = {
    "replaceOn": "use INSERT INTO ... REPLACE ON in SQL",
    "targetAlias": "name the table's columns without an alias",
    BRANCH: _ON_BRANCH,
    TAG: "nothing is written to a tag",
    "isDataFrameWriterV1SaveAsTableOverwrite": "it is Delta Spark's own; leave it out",
    "__use_null_as_default": "it is Delta Spark's own; leave it out",
}
"""Refused options of writers, with the advice for the error message."""

_FILTERS = "filter the rows in the query"
REFUSED_READS: Mapping[str, str] = {
    "excludeRegex": "a batch reads the whole table; use it with readStream",
    "ignoreCorruptFiles": "a table's rows are never left out; repair the table",
    "ignoreMissingFiles": "a table's rows are never left out; repair the table",
    "modifiedAfter": _FILTERS,
    "modifiedBefore": _FILTERS,
    "pathGlobFilter": _FILTERS,
}
"""Options with which Spark's file readers skip rows: refused unless `false`, with the advice."""

_TRAVELS = ("versionAsOf", "timestampAsOf")
_CHANGES = ("startingVersion", "endingVersion", "startingTimestamp", "endingTimestamp")
_PROPERTIES = "delta."
_FILE_SYSTEMS = ("fs.", "dfs.")
_OBEYED = (*WRITE_OPTIONS, *READ_OPTIONS, *OTHER_OPTIONS, *SOURCE_NAMES, *PLACE_NAMES)


def is_lake_format(source: str | None) -> bool:
    """Return whether a format is Delta's or txlake's, in any letter case; False for None."""
    return source is not None and source.lower() in FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRange:
    """A range of versions whose changes are read; both ends are inclusive."""

    from_version: int | None = None
    to_version: int | None = None
    from_timestamp: str | None = None
    to_timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The parsed options of a batch reader.

    Attributes:
        travel: the version or time to read; None for the newest version.
        changes: reads the changes of this range instead of the table's rows.
        path: the option `path`.
        storage: credentials and endpoints by the names of txlake's stores.
    """

    travel: TimeTravel | None = None
    changes: FeedRange | None = None
    path: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The parsed options of a batch writer; None where the option isn't given.

    Attributes:
        data_change: False where the write only rearranges rows.
        keep_null_partitions: a dynamic overwrite adds rows to partitions with a NULL value, and
            replaces none there.
        properties: the properties of a created table: the options that begin with `delta.`.
        read_version, reads: as the arguments of `Lake.write`.
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
    read_version: int | None = None
    reads: str | None = None

    def versions_read(self, table: Table) -> tuple[VersionRead, ...]:
        """Return the version of the table that the rows were made from elsewhere, if it is given.

        Raises as `read_versions.versions_read`.
        """
        return versions_read(self.read_version, self.reads, lambda: table)


def read_options(raw: Mapping[str, object]) -> ReadOptions:
    """Parse the options of a batch reader.

    Raises InvalidRequest for invalid values, misspelled options and options that exclude each
    other; UnsupportedFeature for options that txlake refuses.
    """
    options = _Options(raw)
    options.refuse(REFUSED_READS, READ_OPTIONS)
    travel = _travel(options)
    changes = None
    if options.flag("readChangeFeed") or options.flag("readChangeData"):
        if travel is not None:
            raise InvalidRequest(
                "readChangeFeed reads a range of versions: give startingVersion and endingVersion "
                "instead, and read a branch's on the branch"
            )
        changes = _range(options)
    return ReadOptions(
        travel=travel, changes=changes, path=options.text("path"), storage=options.storage()
    )


def _travel(options: _Options) -> TimeTravel | None:
    """Return the version, time, branch or tag that is read; None if none is given.

    Raises InvalidRequest for two of them, and for a text that is no version's number and can't name
    a branch.
    """
    given = {
        name: text for name in (*_TRAVELS, BRANCH, TAG) if (text := options.text(name)) is not None
    }
    if len(given) > 1:
        raise refusal(
            "INVALID_TIME_TRAVEL_SPEC",
            f"{' and '.join(given)} exclude each other: give one of them",
        )
    for name, text in given.items():
        if name == "timestampAsOf":
            return TimeTravel(timestamp=text)
        if name == "versionAsOf" and text.strip().isdecimal():
            return TimeTravel(version=int(text))
        try:
            return TimeTravel(branch_or_tag=branch_name(text))
        except InvalidRequest as error:
            expected = "" if name != "versionAsOf" else "must be a non-negative integer, or "
            explanation = f"{expected}the name of a branch or a tag: {error}"
            raise _illegal(name, text, explanation) from error
    return None


def _range(options: _Options) -> FeedRange:
    """Return the range of a change feed.

    Raises InvalidRequest without a start, and for a version and a time of one end.
    """
    for end, version, timestamp in (("start", *_CHANGES[0::2]), ("end", *_CHANGES[1::2])):
        texts = [options.text(version), options.text(timestamp)]
        if None not in texts:
            raise refusal(
                "DELTA_MULTIPLE_CDC_BOUNDARY",
                f"{version} and {timestamp} both say where the changes {end}: give one of the two",
            )
    feed_range = FeedRange(
        from_version=options.number("startingVersion"),
        to_version=options.number("endingVersion"),
        from_timestamp=options.text("startingTimestamp"),
        to_timestamp=options.text("endingTimestamp"),
    )
    if feed_range.from_version is None and feed_range.from_timestamp is None:
        raise refusal(
            "DELTA_NO_START_FOR_CDC_READ",
            "readChangeFeed needs a start: give startingVersion or startingTimestamp",
        )
    return feed_range


def write_options(raw: Mapping[str, object]) -> WriteOptions:
    """Parse the options of a batch writer.

    Raises InvalidRequest for invalid values, misspelled options, and options that exclude each
    other or need another one; UnsupportedFeature for options that txlake doesn't have.
    """
    options = _Options(raw)
    options.refuse(REFUSED_WRITES, WRITE_OPTIONS)
    parsed = WriteOptions(
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
        properties=table_properties(raw),
        storage=options.storage(),
        read_version=options.number(READ_VERSION),
        reads=options.text(READS),
    )
    if (parsed.app_id is None) != (parsed.app_version is None):
        raise refusal(
            "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
            "txnAppId and txnVersion go together: give both, or neither",
        )
    partial = "replaceUsing" if parsed.replace_using else "replaceWhere"
    if parsed.keep_null_partitions is not None and (parsed.replace_using or parsed.replace_where):
        raise _illegal(
            NULL_PARTITIONS_STAY,
            str(parsed.keep_null_partitions).lower(),
            f"it goes with partitionOverwriteMode 'dynamic', not with {partial}",
        )
    if parsed.partition_overwrite == "dynamic":
        if parsed.replace_where is not None:
            raise refusal(
                "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
                "replaceWhere and partitionOverwriteMode 'dynamic' exclude each other",
            )
        if parsed.overwrite_schema:
            raise refusal(
                "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
                "overwriteSchema replaces the whole table, and partitionOverwriteMode 'dynamic' "
                "some partitions: give one of the two",
            )
    return parsed


def table_properties(raw: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the options that begin with `delta.`, the properties of a table that is created."""
    options = _Options(raw)
    names = [name for name in raw if name.lower().startswith(_PROPERTIES)]
    return tuple((name, text) for name in names if (text := options.text(name)) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriterOptions:
    """The parsed options of a stream's writer; None where the option isn't given.

    Attributes:
        overwrite_schema: in complete mode the rows' columns replace the table's; ignored in append
            mode, as in Delta Spark.
    """

    checkpoint: str | None = None
    merge_schema: bool | None = None
    overwrite_schema: bool | None = None
    user_metadata: str | None = None
    path: str | None = None


def stream_reader_options(raw: Mapping[str, object]) -> dict[str, str]:
    """Return the options of a streaming source among a reader's options, as texts.

    `lake.streaming.options` interprets them, and refuses the ones that exclude each other, and
    those of batch reads (time travel, ends), which are returned too. Raises UnsupportedFeature for
    a branch or a tag.
    """
    options = _Options(raw)
    options.refuse({BRANCH: _ON_BRANCH, TAG: "a tag's rows don't stream"}, ())
    texts = {name: options.text(name) for name in (*SOURCE_NAMES, *_TRAVELS, *_CHANGES[1::2])}
    return {name: text for name, text in texts.items() if text is not None}


def drop_stream_options(raw: Mapping[str, str]) -> dict[str, str]:
    """Return the options except the ones that only a stream's reader has."""
    dropped = {name.lower() for name in SOURCE_NAMES} - {name.lower() for name in READ_OPTIONS}
    return {name: value for name, value in raw.items() if name.lower() not in dropped}


def stream_writer_options(raw: Mapping[str, object]) -> StreamWriterOptions:
    """Parse the options of a stream's writer.

    Raises as `write_options`, and UnsupportedFeature for options of batches alone and settings of
    file systems.
    """
    options = write_options(raw)
    for name, value in (
        ("replaceWhere", options.replace_where),
        ("replaceUsing", options.replace_using or None),
        ("partitionOverwriteMode", options.partition_overwrite),
        ("txnAppId", options.app_id),
        ("dataChange", options.data_change is False or None),
        (NULL_PARTITIONS_STAY, options.keep_null_partitions),
        (READ_VERSION, options.read_version),
        (READS, options.reads),
    ):
        if value is not None:
            raise UnsupportedFeature(
                f"{name} isn't an option of a stream's writer, which appends, or in complete mode "
                "replaces all rows, once a micro-batch; leave it out, or write in foreachBatch"
            )
    if options.storage:
        raise UnsupportedFeature(
            "settings of file systems aren't taken from a stream's writer: give them to "
            "txlake.connect(..., storage_options=...)"
        )
    return StreamWriterOptions(
        checkpoint=_Options(raw).text("checkpointLocation"),
        merge_schema=options.merge_schema,
        overwrite_schema=options.overwrite_schema,
        user_metadata=options.user_metadata,
        path=options.path,
    )


def _columns(options: _Options) -> tuple[str, ...]:
    """Return the columns of replaceUsing, each once. Raises InvalidRequest for an empty name."""
    text = options.text("replaceUsing")
    if text is None:
        return ()
    columns = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(columns):
        raise _illegal("replaceUsing", text, "must not contain empty column names")
    return columns


def _partition_overwrite(options: _Options) -> Literal["static", "dynamic"] | None:
    """Return the partition overwrite mode; None if not given. Raises InvalidRequest for others."""
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
    """Options by case-insensitive name."""

    def __init__(self, raw: Mapping[str, object]) -> None:
        self._folded = {key.lower(): value for key, value in raw.items()}
        self._raw = raw

    def text(self, name: str) -> str | None:
        """Return the value as text; None where the option isn't given."""
        value = self._folded.get(name.lower())
        if value is None:
            return None
        return str(value).lower() if isinstance(value, bool) else str(value)

    def flag(self, name: str, *, default: bool | None = None) -> bool | None:
        """Return a value that is true or false; the default if it isn't given. Raises
        InvalidRequest for any other value.
        """
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise _illegal(name, text, "must be 'true' or 'false'")
        return text.lower() == "true"

    def number(self, name: str) -> int | None:
        """Return a whole number of 0 or more, else raise InvalidRequest; None if not given."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal():
            raise _illegal(name, text, "must be a non-negative integer")
        return int(text)

    def refuse(self, refused_names: Mapping[str, str], deciding: Iterable[str]) -> None:
        """Raise UnsupportedFeature for a refused option, InvalidRequest for a misspelt one.

        A refused option with the value `false` is allowed. Only unknown options that resemble one
        of `deciding`, the options that select rows, count as misspelt; a name with a dot never
        does.
        """
        for name, advice in refused_names.items():
            if self.text(name) not in (None, "false"):
                raise UnsupportedFeature(f"option {name!r} isn't supported: {advice}")
        folded = {name.lower() for name in (*_OBEYED, *refused_names, *IGNORED)}
        for name in self._raw:
            if name.lower() in folded or "." in name or name.startswith(STORAGE):
                continue
            similar = nearest(name, deciding)
            if similar:
                raise InvalidRequest(
                    f"option {name!r} is unknown, {did_you_mean(similar)} It would be ignored, and "
                    "might have decided which rows stay; correct it, or leave it out"
                )

    def storage(self) -> dict[str, str]:
        """Return the settings of file systems as options of txlake's stores.

        Delta Spark takes them from the same mapping. Raises a ValueError as
        `hadoop.storage_options`.
        """
        settings = {
            key: str(value) for key, value in self._raw.items() if key.startswith(_FILE_SYSTEMS)
        }
        return storage_options(settings) if settings else {}


def find_storage_options(raw: Mapping[str, object]) -> dict[str, str]:
    """Return credentials and endpoints among the options, by the names of txlake's stores."""
    return _Options(raw).storage()


def prefix_storage_options(raw: Mapping[str, str]) -> dict[str, str]:
    """Return a data source's options with the settings of file systems as `storage.<key>`."""
    others = {key: value for key, value in raw.items() if not key.startswith(_FILE_SYSTEMS)}
    storage = find_storage_options(raw)
    return {**{f"{STORAGE}{key}": value for key, value in storage.items()}, **others}


def _illegal(name: str, value: str, explanation: str) -> InvalidRequest:
    """Return the error for an option with an invalid value."""
    return refusal(
        "DELTA_ILLEGAL_OPTION", f"Invalid value '{value}' for option '{name}', {explanation}"
    )
