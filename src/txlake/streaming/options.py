"""What a stream's options mean, and which can't be combined.

Owns their names, which are Delta Spark's, in the two spellings: `maxFilesPerTrigger` for Spark's
readers and writers, where letter case doesn't count, and `max_files_per_trigger` in Python.
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
"""Options that say where the table is: a warehouse, its catalog's database, folders in which files
may lie that the table's log names, and storage options."""
CATALOG_URL = "catalogUrl"
"""The catalog's database by a name whose value Spark hides in plans and messages."""
CONNECTION = "connectionUrl"
"""All of that in one option, as JSON. Spark hides the values of options with such a name."""

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
_PLACE = ("path", LAKE, CATALOG_URL, CATALOG, OUTSIDE, CONNECTION)
_FEED = ("readChangeFeed", "readChangeData")
_NOT_YET = ("schemaTrackingLocation", "schemaLocation", "withEventTimeOrder")
_TRAVEL = ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp")
_OF_BATCHES = {"startingversion", "startingtimestamp"}  # with readChangeFeed
PLACE_NAMES = _PLACE
"""The options that say where a table is."""
SOURCE_NAMES = (*_SOURCE, *_FEED, *_NOT_YET)
"""The options of a stream's source by their names, also those that are refused."""
_BYTES = re.compile(r"(\d+)\s*([kmgtp]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a stream's table is.

    Attributes:
        table: a name or a place.
        lake: the warehouse of its lake; None for a table that is named by its place alone.
        catalog: SQLAlchemy's URL of the lake's catalog; None for the warehouse's own.
        outside_paths: folders in which files may lie that its log names, beside its own.
        storage_options: as `txlake.connect` takes them.
    """

    table: str
    lake: str | None = None
    catalog: str | None = None
    outside_paths: tuple[str, ...] = ()
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a stream reads of its table, and how much at once.

    Attributes:
        max_files, max_bytes: of a micro-batch; None for no limit. A batch has at least one file.
        starting_version: the first version whose commit is read, or LATEST: the next one.
        starting_timestamp: the first commit that is read is the first one at or after it.
        skip_change_commits: commits that delete or change rows are left out whole, whatever the
            next two say.
        ignore_deletes: commits that only delete rows are passed over.
        ignore_changes: as well, and of those that change rows the new files are read whole.
        fail_on_data_loss: versions that are gone stop the stream.
        exclude: files whose path in the log it finds are left out.
        read_change_feed: changes are read, whatever they do, and not new rows; then nothing is
            skipped or ignored, as in Delta Spark.
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
        checkpoint: the query's checkpoint folder, whose id names the writer.
        merge_schema: columns that the table doesn't have are added to it.
        user_metadata: the commits' free text.
        partition_by: the partition columns of a table that the stream makes.
    """

    checkpoint: str
    merge_schema: bool = False
    user_metadata: str | None = None
    partition_by: tuple[str, ...] = ()


class _Given:
    """Options by their name, whatever its letter case; what isn't asked for is unknown."""

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
    """Where the table of a reader or writer of Spark's is.

    Raises InvalidRequest without one, and for two catalogs.
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
    )


def _catalog(folded: Mapping[str, str]) -> str | None:
    """The catalog's URL, which the messages don't show: it may hold a password."""
    found = {folded[name.lower()] for name in (CATALOG_URL, CATALOG) if name.lower() in folded}
    if len(found) > 1:
        raise InvalidRequest(
            f"{CATALOG_URL} and {CATALOG} are given together, and differ: say {CATALOG_URL} alone, "
            "which Spark doesn't show in its messages"
        )
    return next(iter(found), None)


def source_options(options: Mapping[str, object]) -> SourceOptions:
    """What a reader's options mean.

    Raises InvalidRequest for an option that there isn't, a value that isn't one of its, and for two
    that contradict each other; UnsupportedFeature for those of Delta Spark that txlake lacks.
    """
    _refuse(options)
    given = _Given(options, (*_SOURCE, *_FEED, *_PLACE))
    version = given.get("startingVersion", _version)
    timestamp = given.get("startingTimestamp", _text)
    if version is not None and timestamp is not None:
        raise InvalidRequest(
            "[DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET] "
            f"startingVersion={version} and startingTimestamp={timestamp!r} are given together: "
            "say one of the two"
        )
    max_files = given.get("maxFilesPerTrigger", _positive)
    max_bytes = given.get("maxBytesPerTrigger", _bytes)
    # The second is the first one's older name.
    changes = [given.get(name, _boolean) for name in ("ignoreChanges", "ignoreFileDeletion")]
    loss = given.get("failOnDataLoss", _boolean)
    feeds = [given.get(name, _boolean) for name in _FEED]  # each is looked at
    return SourceOptions(
        max_files=MAX_FILES if max_files is None and max_bytes is None else max_files,
        max_bytes=max_bytes,
        starting_version=version,
        starting_timestamp=timestamp,
        skip_change_commits=given.get("skipChangeCommits", _boolean) or False,
        ignore_deletes=given.get("ignoreDeletes", _boolean) or False,
        ignore_changes=any(changes),
        fail_on_data_loss=True if loss is None else loss,
        exclude=given.get("excludeRegex", _pattern),
        read_change_feed=any(feeds),
    )


def require_source_options(options: Mapping[str, object]) -> None:
    """Raises as `source_options` where any option is one that a stream's reader alone has."""
    own = {name.lower() for name in (*_SOURCE, *_NOT_YET)} - _OF_BATCHES
    if any(name.lower() in own for name in options):
        source_options(options)


def reads_changes(options: Mapping[str, object]) -> bool:
    """Whether a stream of changes may be asked for; one with an end is a batch's."""
    given = {name.lower(): value for name, value in options.items()}
    if any(name.lower() in given for name in _TRAVEL):
        return False
    return any(_boolean(name, given.get(name.lower(), "false")) for name in _FEED)


def sink_options(options: Mapping[str, object]) -> SinkOptions:
    """What a writer's options mean.

    Raises InvalidRequest as `source_options`, and without a checkpoint.
    """
    given = _Given(options, (*_SINK, *_PLACE))
    checkpoint = given.get("checkpointLocation", _text)
    if checkpoint is None:
        raise InvalidRequest(
            "checkpointLocation isn't given: the sink writes each micro-batch once by the id that "
            'the checkpoint keeps; say .option("checkpointLocation", folder)'
        )
    columns = given.get("partitionBy", _text)
    return SinkOptions(
        checkpoint=checkpoint,
        merge_schema=given.get("mergeSchema", _boolean) or False,
        user_metadata=given.get("userMetadata", _text),
        partition_by=tuple(filter(None, (one.strip() for one in (columns or "").split(",")))),
    )


def place_options(place: Place) -> dict[str, str]:
    """The options by which a process of Spark's opens the same table; plans don't show secrets."""
    found = {STORAGE + name: value for name, value in place.storage_options.items()}
    if place.lake is not None:
        found[LAKE] = place.lake
    if place.catalog is not None:
        found[CATALOG.lower()] = place.catalog
    if place.outside_paths:
        found[OUTSIDE.lower()] = ",".join(place.outside_paths)
    return {"path": place.table, CONNECTION: json.dumps(found)}


def camel_options(options: Mapping[str, object]) -> dict[str, str]:
    """Python's options as Spark's: `max_files_per_trigger=10` is `maxFilesPerTrigger`, `10`.

    Raises InvalidRequest for a value that no option has.
    """
    found = {}
    for name, value in options.items():
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, datetime.date):
            value = value.isoformat()
        if not isinstance(value, str | int):
            raise InvalidRequest(f"{name}={value!r:.80}: expected a text, a number or a boolean")
        head, *rest = name.split("_")
        found[head + "".join(part.capitalize() for part in rest)] = str(value)
    return found


def _refuse(options: Mapping[str, object]) -> None:
    folded = {name.lower(): name for name in options}
    for wanted in _NOT_YET:
        if wanted.lower() in folded:
            raise UnsupportedFeature(f"{wanted}: txlake's source doesn't have it; leave it out")
    for wanted in _TRAVEL:
        if wanted.lower() in folded:
            raise InvalidRequest(
                "[DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS] "
                f"{wanted} goes with a read, not with a stream, which has no end: say "
                "startingVersion or startingTimestamp"
            )


def _unknown(name: str, known: tuple[str, ...]) -> InvalidRequest:
    hint = did_you_mean(nearest(name, known)) or f"there are {', '.join(sorted(known))}"
    return InvalidRequest(f"option {name!r} is none of a stream's: {hint}")


def _text(name: str, value: object) -> str:
    text = str(value)
    if not text.strip():
        raise InvalidRequest(f"{name}: expected a text, found an empty one")
    return text


def _boolean(name: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text not in {"true", "false"}:
        raise _illegal(name, value, "expected true or false")
    return text == "true"


def _positive(name: str, value: object) -> int:
    text = str(value).strip()
    if not text.isdecimal() or not int(text):
        raise _illegal(name, value, "expected a whole number above zero")
    return int(text)


def _bytes(name: str, value: object) -> int:
    found = _BYTES.fullmatch(str(value).strip())
    size = 0 if found is None else int(found[1]) * _UNITS[found[2].lower()]
    if not size:
        raise _illegal(name, value, "expected a size like 1048576, 10m or 1g")
    return size


def _version(name: str, value: object) -> int | str:
    text = str(value).strip().lower()
    if text == LATEST:
        return LATEST
    if not text.isdecimal():
        raise _illegal(name, value, "expected a version, 0 or more, or 'latest'")
    return int(text)


def _pattern(name: str, value: object) -> re.Pattern[str]:
    try:
        return re.compile(_text(name, value))
    except re.error as error:
        raise InvalidRequest(
            f"[DELTA_REGEX_OPT_SYNTAX_ERROR] {name}={value!r:.80}: expected a regular expression: "
            f"{error}"
        ) from error


def _illegal(name: str, value: object, expected: str) -> InvalidRequest:
    return InvalidRequest(f"[DELTA_ILLEGAL_OPTION] {name}={value!r:.80}: {expected}")
