"""The lake's tables: what each is, how its files lie, what maintenance would do; and RESTORE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from txlake.conflict.levels import Level
from txlake.console import rows
from txlake.console.features import in_words
from txlake.console.skipping import skipping_of
from txlake.console.visits import Values, Visit
from txlake.console.words import bytes_text
from txlake.errors import InvalidRequest, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.features import supported_features
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.type_text import short_text
from txlake.session.command import AsRows
from txlake.session.engine import Handle
from txlake.spark.compact import pack
from txlake.statements import Restore, TableName, TimeTravel
from txlake.transaction.vacuum import plan_vacuum

PAGE = 500
_HISTORY = 20
_FILES_READ_MAX = 20_000
_EDGES = tuple(1 << power for power in (10, 14, 17, 20, 23, 25, 27, 28, 30))
_SHARES = ((0.0, "none"), (0.01, "up to 1 %"), (0.05, "up to 5 %"), (0.3, "up to 30 %"))


@dataclass(frozen=True, slots=True)
class Bar:
    """So many files of one kind."""

    title: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a version's files lie.

    Attributes:
        rows: the live rows; None where statistics don't tell.
        is_sampled: whether only the first files were looked at.
        to_pack, packed_into: files that OPTIMIZE would put together, and how many they become.
    """

    files: int
    size_bytes: int
    rows: int | None
    deleted: int
    sizes: Sequence[Bar]
    shares: Sequence[Bar]
    is_sampled: bool
    to_pack: int
    packed_into: int
    packed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How far the log's files are.

    Attributes:
        waiting: ratified versions whose files aren't in the log yet.
        checkpoint: the newest checkpoint's version; None without one.
        checksum: the newest checksum's.
        advice: what is to be done; "" where nothing is.
    """

    waiting: Sequence[int]
    checkpoint: int | None
    since_checkpoint: int
    checksum: int | None
    commits: int
    advice: str


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What VACUUM would delete. `problem`: why that isn't told."""

    files: int = 0
    size_bytes: int = 0
    problem: str = ""


def look(visit: Visit) -> Values:
    """All tables by name; their logs aren't read."""
    catalog = visit.engine.catalog.of_lake()
    waiting = Counter({one.table_id: len(one.pending) for one in catalog.ledger.pending_tables()})
    wanted = visit.query.get("name", "").lower()
    every = [
        (f"{database.name}.{table.name}", table)
        for database in catalog.databases()
        for table in catalog.tables(database.name)
    ]
    found = [(name, table) for name, table in every if wanted in name.lower()]
    page = visit.number("page", otherwise=0)
    shown = found[page * PAGE : (page + 1) * PAGE]
    return {
        "tables": [
            {
                "name": name,
                "version": table.head,
                "kind": "managed" if table.managed else "external",
                "location": table.location,
                "waiting": waiting[table.id],
            }
            for name, table in shown
        ],
        "total": len(found),
        "name": visit.query.get("name", ""),
        "page": page,
        "has_more": (page + 1) * PAGE < len(found),
    }


def one(visit: Visit) -> Values:
    """A table's page, now or at a `version`; with `vacuum` also what VACUUM would delete."""
    handle = visit.handle(visit.path["name"])
    newest = handle.log.latest()
    snapshot = newest
    if visit.query.get("version"):
        snapshot = handle.log.snapshot(version=visit.number("version"))
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
        "features": in_words(supported_features(snapshot.protocol)),
        "level": _level(snapshot),
        "layout": layout(snapshot, visit.engine.settings.target_file_bytes),
        "skipping": skipping_of(snapshot),
        "health": None if snapshot is not newest else health(handle, newest),
        "rows": rows.sample(visit.engine, handle, snapshot),
        "history": handle.log.history(_HISTORY),
        "vacuumed": vacuumed(visit, handle) if visit.query.get("vacuum") else None,
    }


def _comment(metadata: Mapping[str, object]) -> str:
    found = metadata.get("comment")
    return found if isinstance(found, str) else ""


def _level(snapshot: Snapshot) -> str:
    return snapshot.metadata.configuration.get(
        "delta.isolationLevel", Level.WRITE_SERIALIZABLE.value
    )


def layout(snapshot: Snapshot, target_bytes: int) -> Layout:
    """How the files lie, and what OPTIMIZE would do to them."""
    adds: list[Add] = []
    for add in snapshot.files.adds():
        if len(adds) == _FILES_READ_MAX:
            break
        adds.append(add)
    counts = [FileStatistics.from_json(add.stats).num_records for add in adds]
    gone = [0 if add.deletion_vector is None else add.deletion_vector.cardinality for add in adds]
    bins = list(pack(list(adds), snapshot.properties.target_file_size or target_bytes))
    packed = [add for one in bins for add in one.files]
    is_sampled = len(adds) < len(snapshot.files)
    known = [count for count in counts if count is not None]
    return Layout(
        files=len(snapshot.files),
        size_bytes=sum(add.size for add in adds),
        rows=sum(known) - sum(gone) if len(known) == len(adds) and not is_sampled else None,
        deleted=sum(gone),
        sizes=_sizes([add.size for add in adds]),
        shares=_shares(
            [away / count for away, count in zip(gone, counts) if count] if adds else []
        ),
        is_sampled=is_sampled,
        to_pack=len(packed),
        packed_into=len(bins),
        packed_bytes=sum(add.size for add in packed),
    )


def _sizes(sizes: Sequence[int]) -> list[Bar]:
    bars = []
    lower = 0
    for upper in (*_EDGES, None):
        count = sum(1 for one in sizes if one >= lower and (upper is None or one < upper))
        if count:
            title = f"from {bytes_text(lower)}" if upper is None else f"under {bytes_text(upper)}"
            bars.append(Bar(title, count))
        lower = upper or lower
    return bars


def _shares(shares: Sequence[float]) -> list[Bar]:
    """How many files have how large a part of their rows deleted."""
    bars = []
    lower = -1.0
    for upper, title in (*_SHARES, (1.0, "more")):
        count = sum(1 for one in shares if lower < one <= upper)
        if count:
            bars.append(Bar(title, count))
        lower = upper
    return bars


def health(handle: Handle, newest: Snapshot) -> Health:
    """How far the log's files are behind."""
    listing = handle.log.listing()
    waiting = [
        version
        for version in range(max(0, newest.version - 100), newest.version + 1)
        if version > max(listing.commits, default=-1)
    ]
    checkpoint = max((one.version for one in listing.checkpoints), default=None)
    since = newest.version + 1 if checkpoint is None else newest.version - checkpoint
    advice = ""
    if waiting:
        advice = "whoever opens the table next publishes them; txlake's commits do it at once"
    elif since > 10 * max(1, newest.properties.checkpoint_interval or 100):
        advice = "checkpoints don't come: the log of the process that commits says why"
    return Health(
        waiting=waiting,
        checkpoint=checkpoint,
        since_checkpoint=since,
        checksum=max(listing.checksums, default=None),
        commits=len(listing.commits),
        advice=advice,
    )


def vacuumed(visit: Visit, handle: Handle) -> Vacuumed:
    """What VACUUM would delete; the table's folders are listed for it."""
    others = visit.engine.catalog.transactions.others_open
    try:
        plan = plan_vacuum(handle.log, others_open=lambda: others(""))
    except TxlakeError as error:
        return Vacuumed(problem=str(error).partition("\n")[0])
    return Vacuumed(len(plan.paths), plan.size_bytes)


# RESTORE


def restoring(visit: Visit) -> Values:
    """Asks whether a table is to be as it was at a version."""
    handle = visit.handle(visit.path["name"])
    version = visit.number("version")
    now, then = handle.log.latest(), handle.log.snapshot(version=version)
    back = [add for add in then.files.adds() if add.key not in now.files]
    gone = [add for add in now.files.adds() if add.key not in then.files]
    return {
        "name": handle.name,
        "version": version,
        "newest": now.version,
        "back": len(back),
        "gone": len(gone),
        "schema_changes": now.schema != then.schema,
    }


def restore(visit: Visit) -> str:
    """RESTORE, unless the table has changed since it was asked whether."""
    handle = visit.handle(visit.path["name"])
    version, newest = visit.number("version"), visit.number("newest")
    found = handle.log.latest().version
    if found != newest:
        raise InvalidRequest(
            f"{handle.name} is at version {found} by now, and was at {newest} when you were asked; "
            "look at it, and ask again"
        )
    assert handle.entry is not None
    assert visit.visitor.caller is not None
    table = TableName((handle.entry.database, handle.entry.name))
    said = f"by {visit.visitor.caller.name} in the console"
    statement = Restore(table=table, travel=TimeTravel(version=version))
    visit.session.carry_out(None, statement, user_metadata=said)(AsRows())
    return f"/tables/{quote(handle.name)}"
