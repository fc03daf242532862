"""The pages of tables: definition, file layout, what maintenance would do, and RESTORE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from txlake.commit.log_extent import LogExtent, log_extent
from txlake.commit.vacuum import plan_vacuum
from txlake.conflict.levels import Level
from txlake.console import maintenance, rows
from txlake.console.features import describe_features
from txlake.console.formatting import bytes_text
from txlake.console.page_requests import PageRequest, TemplateValues
from txlake.console.skipping import skipping_of
from txlake.errors import InvalidRequest, TxlakeError
from txlake.local.compaction import pack
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.features import supported_features
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.type_text import short_text
from txlake.session.command import AsRows
from txlake.session.engine import Handle
from txlake.sql.statements import Restore, TableName, TimeTravel

PAGE_SIZE = 500
_HISTORY_MAX = 20
_FILES_READ_MAX = 20_000
_SIZE_LIMITS = tuple(1 << power for power in (10, 14, 17, 20, 23, 25, 27, 28, 30))
_SHARE_LIMITS = ((0.0, "none"), (0.01, "up to 1 %"), (0.05, "up to 5 %"), (0.3, "up to 30 %"))


@dataclass(frozen=True, slots=True)
class Bar:
    """The number of files of one kind."""

    title: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The sizes and deleted rows of a version's files.

    Attributes:
        files: the number of all files; the other numbers are of those that were read.
        rows: the live rows; None where statistics are missing.
        is_sampled: whether only the first files were read.
        compactable, compacted_into: the number of files that OPTIMIZE would compact, and of the
            resulting ones.
    """

    files: int
    size_bytes: int
    rows: int | None
    deleted: int
    sizes: Sequence[Bar]
    shares: Sequence[Bar]
    is_sampled: bool
    compactable: int
    compacted_into: int
    compacted_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHealth:
    """The state of a log's publication and checkpoints.

    Attributes:
        extent: how far the log reaches.
        since_checkpoint: how many commits a reader replays.
        commits: the number of commit files.
        advice: what to do; "" if nothing.
    """

    extent: LogExtent
    since_checkpoint: int
    commits: int
    advice: str


@dataclass(frozen=True, slots=True)
class VacuumPreview:
    """The files that VACUUM would delete. `problem`: why they are unknown."""

    files: int = 0
    size_bytes: int = 0
    problem: str = ""


def list_page(request: PageRequest) -> TemplateValues:
    """Return a page of the tables, by database and name, without reading their logs.

    `name` filters them by a part of the full name, in any case; `page` counts from 0.
    """
    catalog = request.engine.catalog.of_lake()
    unpublished = Counter(
        {table.table_id: len(table.pending) for table in catalog.ledger.pending_tables()}
    )
    search = request.query.get("name", "").lower()
    all_tables = [
        (f"{database.name}.{table.name}", table)
        for database in catalog.databases()
        for table in catalog.tables(database.name)
    ]
    matching = [(name, table) for name, table in all_tables if search in name.lower()]
    page = request.number("page", default=0)
    rows_of_page = matching[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
    return {
        "tables": [
            {
                "name": name,
                "version": table.head,
                "kind": "managed" if table.managed else "external",
                "location": table.location,
                "unpublished": unpublished[table.id],
            }
            for name, table in rows_of_page
        ],
        "total": len(matching),
        "name": request.query.get("name", ""),
        "page": page,
        "has_more": (page + 1) * PAGE_SIZE < len(matching),
    }


def table_page(request: PageRequest) -> TemplateValues:
    """Return a table, now or at a `version`; with `vacuum` also what VACUUM would delete.

    Raises InvalidRequest if there is no such table or version.
    """
    handle = request.handle(request.path["name"])
    newest = handle.log.latest()
    snapshot = newest
    if request.query.get("version"):
        snapshot = handle.log.snapshot(version=request.number("version"))
    return {
        "name": handle.name,
        "location": handle.store.url,
        "newest": newest.version,
        "snapshot": snapshot,
        "columns": [
            (item.name, short_text(item.type), item.nullable, _comment(item.metadata))
            for item in snapshot.schema
        ],
        "properties": sorted(snapshot.metadata.configuration.items()),
        "features": describe_features(supported_features(snapshot.protocol)),
        "level": _level(snapshot),
        "layout": layout(snapshot, request.engine.settings.target_file_bytes),
        "skipping": skipping_of(snapshot),
        "health": None if snapshot is not newest else health(handle, newest),
        "rows": rows.sample(request.engine, handle, snapshot),
        "history": handle.log.history(_HISTORY_MAX),
        "now_ms": request.engine.system.now_ms(),
        "maintenance": maintenance.of_table(request, handle),
        "vacuum_preview": vacuum_preview(request, handle) if request.query.get("vacuum") else None,
    }


def _comment(metadata: Mapping[str, object]) -> str:
    comment = metadata.get("comment")
    return comment if isinstance(comment, str) else ""


def _level(snapshot: Snapshot) -> str:
    """Return the isolation level that the table's property sets, WriteSerializable without one."""
    return snapshot.metadata.configuration.get(
        "delta.isolationLevel", Level.WRITE_SERIALIZABLE.value
    )


def layout(snapshot: Snapshot, target_bytes: int) -> FileLayout:
    """Return the layout of a version's first 20,000 files, and what OPTIMIZE would do to them.

    `target_bytes` is the size of OPTIMIZE's files if the table doesn't set one.
    """
    adds: list[Add] = []
    for add in snapshot.files.adds():
        if len(adds) == _FILES_READ_MAX:
            break
        adds.append(add)
    counts = [FileStatistics.from_json(add.stats).num_records for add in adds]
    deleted = [
        0 if add.deletion_vector is None else add.deletion_vector.cardinality for add in adds
    ]
    bins = list(pack(list(adds), snapshot.properties.target_file_size or target_bytes))
    packed = [add for bin_ in bins for add in bin_.files]
    is_sampled = len(adds) < len(snapshot.files)
    recorded = [count for count in counts if count is not None]
    return FileLayout(
        files=len(snapshot.files),
        size_bytes=sum(add.size for add in adds),
        rows=sum(recorded) - sum(deleted)
        if len(recorded) == len(adds) and not is_sampled
        else None,
        deleted=sum(deleted),
        sizes=_size_bars([add.size for add in adds]),
        shares=_share_bars(
            [away / count for away, count in zip(deleted, counts) if count] if adds else []
        ),
        is_sampled=is_sampled,
        compactable=len(packed),
        compacted_into=len(bins),
        compacted_bytes=sum(add.size for add in packed),
    )


def _size_bars(sizes: Sequence[int]) -> list[Bar]:
    """Return the number of files in each range of sizes that has some."""
    bars = []
    lower = 0
    for upper in (*_SIZE_LIMITS, None):
        count = sum(1 for size in sizes if size >= lower and (upper is None or size < upper))
        if count:
            title = f"from {bytes_text(lower)}" if upper is None else f"under {bytes_text(upper)}"
            bars.append(Bar(title, count))
        lower = upper or lower
    return bars


def _share_bars(shares: Sequence[float]) -> list[Bar]:
    """Return the number of files by the share of their rows that is deleted, without empty
    ranges.
    """
    bars = []
    lower = -1.0
    for upper, title in (*_SHARE_LIMITS, (1.0, "more")):
        count = sum(1 for share in shares if lower < share <= upper)
        if count:
            bars.append(Bar(title, count))
        lower = upper
    return bars


def health(handle: Handle, newest: Snapshot) -> LogHealth:
    """Return how far the log is published and checkpointed."""
    extent = log_extent(handle.log, newest)
    unpublished, checkpoint = extent.unpublished, extent.checkpoint
    since = newest.version + 1 if checkpoint is None else newest.version - checkpoint
    advice = ""
    if unpublished:
        advice = (
            "the next process that opens the table publishes them; txlake's commits do so at once"
        )
    elif since > 10 * max(1, newest.properties.checkpoint_interval or 100):
        advice = "checkpoints don't come: the log of the process that commits says why"
    oldest = extent.oldest_commit
    published = newest.version - len(unpublished)
    return LogHealth(
        extent=extent,
        since_checkpoint=since,
        commits=0 if oldest is None else published - oldest + 1,
        advice=advice,
    )


def vacuum_preview(request: PageRequest, handle: Handle) -> VacuumPreview:
    """Return what VACUUM would delete, or the `problem` of finding out.

    Lists the table's folders.
    """
    others = request.engine.catalog.transactions.others_open
    try:
        plan = plan_vacuum(
            handle.log,
            others_open=lambda: others(""),
            other_lines=lambda: request.engine.other_lines(handle),
        )
    except TxlakeError as error:
        return VacuumPreview(problem=str(error).partition("\n")[0])
    return VacuumPreview(len(plan.paths), plan.size_bytes)


# RESTORE


def restore_page(request: PageRequest) -> TemplateValues:
    """Return the values of the page that asks to confirm a RESTORE to `version`: the files that it
    restores and removes, and whether the schema changes.

    Raises InvalidRequest if there is no such table or version.
    """
    handle = request.handle(request.path["name"])
    version = request.number("version")
    newest, target = handle.log.latest(), handle.log.snapshot(version=version)
    restored = [add for add in target.files.adds() if add.key not in newest.files]
    removed = [add for add in newest.files.adds() if add.key not in target.files]
    return {
        "name": handle.name,
        "version": version,
        "newest": newest.version,
        "restored": len(restored),
        "removed": len(removed),
        "schema_changes": newest.schema != target.schema,
    }


def restore(request: PageRequest) -> str:
    """Carry out RESTORE to `version`, and return the path to redirect to.

    Raises InvalidRequest if the table's version isn't `newest`, the one when the confirmation was
    requested.
    """
    handle = request.handle(request.path["name"])
    version, newest = request.number("version"), request.number("newest")
    current = handle.log.latest().version
    if current != newest:
        raise InvalidRequest(
            f"{handle.name} is at version {current} now, and was at {newest} when you were "
            "asked; "
            "look at it, and ask again"
        )
    assert handle.entry is not None
    assert request.visitor.caller is not None
    table = TableName((handle.entry.database, handle.entry.name))
    note = f"by {request.visitor.caller.name} in the console"
    statement = Restore(table=table, travel=TimeTravel(version=version))
    request.session.carry_out(None, statement, user_metadata=note)(AsRows())
    return f"/tables/{quote(handle.name)}"
