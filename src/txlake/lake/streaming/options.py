"""The options of streams: their names, values and forbidden combinations.

The names are Delta Spark's, in two spellings: `maxFilesPerTrigger` for Spark's readers and writers,
case-insensitive, and `max_files_per_trigger` in Python.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.nearest import did_you_mean, nearest

MAX_FILES = 1000
LATEST = "latest"

LAKE, CATALOG, OUTSIDE, STORAGE = "lake", "catalog", "allowOutsidePaths", "storage."
"""Options that locate the table: its lake's warehouse, the catalog's database, the folders outside
the table that its log may refer to, and the prefix of storage options."""
BRANCH, BRANCH_ID = "branch", "branchid"
"""The branch of the lake, by its name; its id, which only `CONNECTION` has."""
CATALOG_URL = "catalogUrl"
"""The catalog's database, by a name whose value Spark redacts in plans and messages."""
CONNECTION = "connectionUrl"
"""All location options in one, as JSON. Spark redacts the values of options with such a name."""

_SOURCE = (
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "startingVersion",
    "startingTimestamp",
    "skipChangeCommits",
    "ignoreDeletes",
    "ignoreChanges",
    "ignoreFileDeletion",
    "failOnDataLoss",
    "excludeRegex",
)
_SINK = ("mergeSchema", "userMetadata", "partitionBy", "checkpointLocation", "queryName")
_PLACE = ("path", LAKE, CATALOG_URL, CATALOG, OUTSIDE, CONNECTION, BRANCH)
_FEED = ("readChangeFeed", "readChangeData")
_UNSUPPORTED = ("schemaTrackingLocation", "schemaLocation", "withEventTimeOrder")
_TRAVEL = ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp")
_BATCH_OPTIONS = {"startingversion", "startingtimestamp"}  # with readChangeFeed
PLACE_NAMES = _PLACE
"""The options that locate a table."""
SOURCE_NAMES = (*_SOURCE, *_FEED, *_UNSUPPORTED)
"""The names of a streaming source's options, refused ones included."""
_BYTES = re.compile(r"(\d+)\s*([kmgtp]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The location of a stream's table.

    Attributes:
        table: a name, path or URL.
        lake: the warehouse of the table's lake; None for a path table.
        catalog: SQLAlchemy's URL of the lake's catalog; None for the warehouse's own.
        outside_paths: folders outside the table that its log may refer to.
        storage_options: as for `txlake.connect`.
        branch: the name of the lake's branch; None for main.
        branch_id: the id that the branch must have; None for any.
    """

    table: str
    lake: str | None = None
    catalog: str | None = None
    outside_paths: tuple[str, ...] = ()
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str | None = None
    branch_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a stream reads of its table, and the limits of a micro-batch.

    Attributes:
        max_files, max_bytes: limits of a micro-batch; None for no limit. A batch has at least one
            file.
        starting_version: the first version whose commit is read; LATEST for the next version.
        starting_timestamp: reading starts with the first commit at or after this time.
        skip_change_commits: skip commits that delete or change rows, whatever the next two say.
        ignore_deletes: skip commits that only delete rows.
        ignore_changes: as `ignore_deletes`; also read the new files of commits that change rows,
            with their unchanged rows.
        fail_on_data_loss: missing versions stop the stream.
        exclude: skip files whose path in the log matches.
        read_change_feed: read the change feed instead of new rows; then nothing is skipped or
            ignored, as in Delta Spark.
    """

    max_files: int | None = MAX_FILES
    max_bytes: int | None = None
    starting_version: int | str | None = None
    starting_timestamp: str | None = None
    skip_change_commits: bool = False
    ignore_deletes: bool = False
    ignore_changes: bool = False
    fail_on_data_loss: bool = True
    exclude: re.Pattern[str] | None = None
    read_change_feed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How a stream writes its table.

    Attributes:
        checkpoint: the query's checkpoint folder, whose id identifies the writer.
        merge_schema: add columns that the table doesn't have.
        user_metadata: the commits' free text.
        partition_by: the partition columns of a table that the stream creates.
    """

    checkpoint: str
    merge_schema: bool = False
    user_metadata: str | None = None
    partition_by: tuple[str, ...] = ()


class _KnownOptions:
    """Options by case-insensitive name. Raises InvalidRequest for an unknown name.

    Storage options are left out.
    """

    def __init__(self, options: Mapping[str, object], known: tuple[str, ...]) -> None:
        self._known = {name.lower(): name for name in known}
        self._values: dict[str, object] = {}
        for name, value in options.items():
            folded = name.lower()
            if folded.startswith(STORAGE):
                continue
            if folded not in self._known:
                raise _unknown(name, known)
            self._values[folded] = value

    def get(self, name: str, read: Callable[[str, object], Value]) -> Value | None:
        value = self._values.get(name.lower())
        return None if value is None else read(name, value)


def place_of(options: Mapping[str, str]) -> Place:
    """Return the location of the table of a Spark reader or writer.

    All but the path comes from the one connection option, if that is given. Raises InvalidRequest
    without a path, and for two different catalogs.
    """
    folded = {name.lower(): value for name, value in options.items()}
    table = folded.get("path")
    if not table:
        raise InvalidRequest(
            "no table is given: expected a path, a URL or a name, as in "
            'spark.read.format("txlake").load("/data/orders")'
        )
    connection = folded.get(CONNECTION.lower())
    if connection is not None:
        folded = json.loads(connection)
    prefix = len(STORAGE)
    return Place(
        table=table,
        lake=folded.get(LAKE.lower()),
        catalog=_catalog(folded),
        outside_paths=tuple(filter(None, folded.get(OUTSIDE.lower(), "").split(","))),
        storage_options={
            name[prefix:]: value for name, value in folded.items() if name.startswith(STORAGE)
        },
        branch=folded.get(BRANCH),
        branch_id=folded.get(BRANCH_ID) if connection is not None else None,
    )


def _catalog(folded: Mapping[str, str]) -> str | None:
    """Return the catalog's URL; None without one. Raises InvalidRequest for two different ones.

    The message doesn't show them, as they may contain a password.
    """
    urls = {folded[name.lower()] for name in (CATALOG_URL, CATALOG) if name.lower() in folded}
    if len(urls) > 1:
        raise InvalidRequest(
            f"{CATALOG_URL} and {CATALOG} are given together, and differ: say {CATALOG_URL} alone, "
            "which Spark doesn't show in its messages"
        )
    return next(iter(urls), None)


def source_options(options: Mapping[str, object]) -> SourceOptions:
    """Parse the options of a stream's reader.

    Raises InvalidRequest for an unknown option, an invalid value, and options that contradict each
    other; UnsupportedFeature for options of Delta Spark that txlake lacks.
    """
    _refuse(options)
    known = _KnownOptions(options, (*_SOURCE, *_FEED, *_PLACE))
    version = known.get("startingVersion", _version)
    timestamp = known.get("startingTimestamp", _text)
    if version is not None and timestamp is not None:
        raise InvalidRequest(
            "[DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET] "
            f"startingVersion={version} and startingTimestamp={timestamp!r} are given together: "
            "say one of the two"
        )
    max_files = known.get("maxFilesPerTrigger", _positive)
    max_bytes = known.get("maxBytesPerTrigger", _bytes)
    # ignoreFileDeletion is the older name of ignoreChanges.
    changes = [known.get(name, _boolean) for name in ("ignoreChanges", "ignoreFileDeletion")]
    loss = known.get("failOnDataLoss", _boolean)
    feeds = [known.get(name, _boolean) for name in _FEED]  # a list, to validate both
    return SourceOptions(
        max_files=MAX_FILES if max_files is None and max_bytes is None else max_files,
        max_bytes=max_bytes,
        starting_version=version,
        starting_timestamp=timestamp,
        skip_change_commits=known.get("skipChangeCommits", _boolean) or False,
        ignore_deletes=known.get("ignoreDeletes", _boolean) or False,
        ignore_changes=any(changes),
        fail_on_data_loss=True if loss is None else loss,
        exclude=known.get("excludeRegex", _pattern),
        read_change_feed=any(feeds),
    )


def require_source_options(options: Mapping[str, object]) -> None:
    """Check as `source_options` if there is an option that only a stream's reader has."""
    stream_only = {name.lower() for name in (*_SOURCE, *_UNSUPPORTED)} - _BATCH_OPTIONS
    if any(name.lower() in stream_only for name in options):
        source_options(options)


def reads_changes(options: Mapping[str, object]) -> bool:
    """Return whether the options ask for the change feed of a stream.

    They do if `readChangeFeed` or `readChangeData` is true, and no end and no time travel is given,
    which only a batch read has. PySpark doesn't say which of the two it is, so a batch read from a
    start may pass too. Raises InvalidRequest for a value of the two that is neither true nor false,
    unless an end or time travel is given.
    """
    given = {name.lower(): value for name, value in options.items()}
    if any(name.lower() in given for name in _TRAVEL):
        return False
    return any(_boolean(name, given.get(name.lower(), "false")) for name in _FEED)


def sink_options(options: Mapping[str, object]) -> SinkOptions:
    """Parse the options of a stream's writer.

    Raises InvalidRequest as `source_options`, and without a checkpoint.
    """
    known = _KnownOptions(options, (*_SINK, *_PLACE))
    checkpoint = known.get("checkpointLocation", _text)
    if checkpoint is None:
        raise InvalidRequest(
            "checkpointLocation isn't given: the sink writes each micro-batch once by the id that "
            'the checkpoint keeps; say .option("checkpointLocation", folder)'
        )
    columns = known.get("partitionBy", _text)
    return SinkOptions(
        checkpoint=checkpoint,
        merge_schema=known.get("mergeSchema", _boolean) or False,
        user_metadata=known.get("userMetadata", _text),
        partition_by=tuple(filter(None, (one.strip() for one in (columns or "").split(",")))),
    )


def place_options(place: Place) -> dict[str, str]:
    """Return the options by which a Spark process opens the same table.

    All but the path is in one option, whose value Spark redacts.
    """
    options = {STORAGE + name: value for name, value in place.storage_options.items()}
    if place.lake is not None:
        options[LAKE] = place.lake
    if place.catalog is not None:
        options[CATALOG.lower()] = place.catalog
    if place.outside_paths:
        options[OUTSIDE.lower()] = ",".join(place.outside_paths)
    if place.branch is not None and place.branch_id is not None:
        options[BRANCH], options[BRANCH_ID] = place.branch, place.branch_id
    return {"path": place.table, CONNECTION: json.dumps(options)}


def camel_options(options: Mapping[str, object]) -> dict[str, str]:
    """Convert Python's options to Spark's: `max_files_per_trigger=10` to `maxFilesPerTrigger`.

    Raises InvalidRequest for a value of a type that no option has.
    """
    converted = {}
    for name, value in options.items():
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, datetime.date):
            value = value.isoformat()
        if not isinstance(value, str | int):
            raise InvalidRequest(f"{name}={value!r:.80}: expected a text, a number or a boolean")
        head, *rest = name.split("_")
        converted[head + "".join(part.capitalize() for part in rest)] = str(value)
    return converted


def _refuse(options: Mapping[str, object]) -> None:
    """Raise for options that only batch reads have, or that txlake's source lacks.

    InvalidRequest for the former, UnsupportedFeature for the latter.
    """
    folded = {name.lower(): name for name in options}
    for name in _UNSUPPORTED:
        if name.lower() in folded:
            raise UnsupportedFeature(f"{name}: txlake's source doesn't have it; leave it out")
    for name in _TRAVEL:
        if name.lower() in folded:
            raise InvalidRequest(
                "[DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS] "
                f"{name} goes with a read, not with a stream, which has no end: say "
                "startingVersion or startingTimestamp"
            )


def _unknown(name: str, known: tuple[str, ...]) -> InvalidRequest:
    """Return the error for an unknown option, with similar names or all known ones."""
    hint = did_you_mean(nearest(name, known)) or f"there are {', '.join(sorted(known))}"
    return InvalidRequest(f"option {name!r} is none of a stream's: {hint}")


def _text(name: str, value: object) -> str:
    """Return an option's text. Raises InvalidRequest for an empty one."""
    text = str(value)
    if not text.strip():
        raise InvalidRequest(f"{name}: expected a text, found an empty one")
    return text


def _boolean(name: str, value: object) -> bool:
    """Return an option that is true or false in any letter case, else raise InvalidRequest."""
    text = str(value).strip().lower()
    if text not in {"true", "false"}:
        raise _illegal(name, value, "expected true or false")
    return text == "true"


def _positive(name: str, value: object) -> int:
    """Return an option's whole number. Raises InvalidRequest for any other value, 0 included."""
    text = str(value).strip()
    if not text.isdecimal() or not int(text):
        raise _illegal(name, value, "expected a whole number above zero")
    return int(text)


def _bytes(name: str, value: object) -> int:
    """Return an option's size in bytes: `10m` is 10 MiB. Raises InvalidRequest for other texts."""
    match = _BYTES.fullmatch(str(value).strip())
    size = 0 if match is None else int(match[1]) * _UNITS[match[2].lower()]
    if not size:
        raise _illegal(name, value, "expected a size like 1048576, 10m or 1g")
    return size


def _version(name: str, value: object) -> int | str:
    """Return an option's version, or LATEST. Raises InvalidRequest for any other value."""
    text = str(value).strip().lower()
    if text == LATEST:
        return LATEST
    if not text.isdecimal():
        raise _illegal(name, value, "expected a version, 0 or more, or 'latest'")
    return int(text)


def _pattern(name: str, value: object) -> re.Pattern[str]:
    """Return an option's regular expression. Raises InvalidRequest for an invalid one."""
    try:
        return re.compile(_text(name, value))
    except re.error as error:
        raise InvalidRequest(
            f"[DELTA_REGEX_OPT_SYNTAX_ERROR] {name}={value!r:.80}: expected a regular expression: "
            f"{error}"
        ) from error


def _illegal(name: str, value: object, expected: str) -> InvalidRequest:
    return InvalidRequest(f"[DELTA_ILLEGAL_OPTION] {name}={value!r:.80}: {expected}")
