"""What the commit loops need from outside, as Protocols: bytes, time, chance, and the ledger.

The adapters are in `storage`, `system` and `catalog`; tests use simulated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object under a store's root. `path` is relative to the root, with `/`, not encoded."""

    path: str
    size_bytes: int
    modified_ms: int


class PutOutcome(Enum):
    """The outcome of a put-if-absent."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"  # the reply was lost: look it up before retrying


class Store(Protocol):
    """Bytes under one root folder. Paths are relative to it, with `/`, not encoded.

    Every method raises `errors.Unavailable` when the store can't be reached and
    `errors.InvalidRequest` when it refuses (permission, read-only, disk full), naming the path.
    """

    @property
    def url(self) -> str:
        """The root as an encoded URL without a trailing slash: `file:///data/t`,
        `s3://bucket/t`.
        """
        ...

    @property
    def excludes_late_writes(self) -> bool:
        """Whether no request can take effect after its reply, or after its sender has ended.

        A network may repeat a request on the way, so that it arrives late.
        """
        ...

    def get(self, path: str) -> bytes:
        """Return the object's bytes. Raises FileNotFoundError."""
        ...

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer at the object's end. Raises FileNotFoundError,
        not necessarily for a length of 0.
        """
        ...

    def head(self, path: str) -> StoredObject | None:
        """Return the object's size and time, or None when it doesn't exist."""
        ...

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        """Yield all objects at any depth below the folder `prefix`, sorted by path, that come after
        the path `start_after` and before the path `before`.

        With `before`, a store that lists in pages reads no page beyond it.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write the object whole, replacing an existing one; it is never half visible."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create the object unless it exists.

        When CREATED or EXISTS is returned, the object is durable, whoever wrote it.
        """
        ...

    def put_unsynced(self, path: str, data: bytes) -> None:
        """Create the object unless it exists; after a power cut it may be gone, or empty.

        For objects that nothing depends on: it costs less than `put_if_absent`.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete the objects; a missing object is no error.

        Files that a symbolic link places outside of the root are kept.
        """
        ...

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Delete the temporary files that killed writers left below the folder `prefix`.

        Only files that weren't touched since `before_ms`, and never an object that `list` shows.
        """
        ...

    def ensure_safe(self) -> None:
        """Prove once per store that put-if-absent refuses to overwrite.

        Raises errors.InvalidRequest that names the store when it overwrites.
        """
        ...

    def at(self, path: str) -> Store:
        """Return the store of a folder below this one."""
        ...


class System(Protocol):
    """Clock, identifiers, chance and waiting: everything that a replay must be able to fix."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch, UTC."""
        ...

    def new_id(self) -> str:
        """Return a new random UUID, lower-case, with dashes."""
        ...

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def wait_ms(self, duration_ms: float) -> None:
        """Wait that long; return at once for zero and less."""
        ...

    def monotonic_ms(self) -> float:
        """Return the milliseconds of a monotonic clock, the same for all processes of the
        machine.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One version of one catalog table.

    Attributes:
        table_id: the catalog's id of the table.
        version: the version that the commit makes, the table's head plus one.
        content: the bytes of the commit file; None where they are in the file `staged`.
        staged: the name of a file in `_delta_log/_staged_commits` that holds the bytes.
        operation: as the commit's commitInfo names it.
        is_shared: whether other engines may be reading the staged file: it is then kept after
            publication, until the log is cleaned up.
    """

    table_id: str
    version: int
    content: bytes | None = None
    staged: str | None = None
    operation: str | None = None
    is_shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A table that a transaction adds to the catalog under a name; its first commit here makes the
    head.

    Attributes:
        head: the head of a table that existed before and is attached.
        number: the table's number in the system views; a new number when None.
        branch: the number of the lake's branch that it belongs to, 0 for none.
    """

    id: str
    database: str
    name: str
    location: str
    managed: bool
    head: int | None = None
    number: int | None = None
    branch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTable:
    """A table that a transaction drops.

    Attributes:
        keeps_files: whether the files are kept for good, because the folder isn't the lake's.
        retention_ms: for how long the table can be undropped; 0 removes it at once.
        dropped_ms: when it was dropped, by the catalog's clock; None for now.
    """

    id: str
    keeps_files: bool = False
    retention_ms: int = 0
    dropped_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndroppedTable:
    """A dropped table that a transaction restores under a name.

    Attributes:
        head: the table's version now; None if it is still the version at the drop.
        branch: the number of the lake's branch that it belongs to, 0 for none.
    """

    id: str
    database: str
    name: str
    head: int | None = None
    branch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedTable:
    """A table that a transaction renames.

    `branch`: the number of the lake's branch that it belongs to, 0 for none.
    """

    id: str
    database: str
    name: str
    branch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenView:
    """A view that a transaction creates, changes or renames, as it is afterwards.

    Attributes:
        query: the query's text; a name in it without a database is one of the view's database.
        columns: the names and comments of its columns.
        properties: with the schema that the view keeps (`catalog.views.stored_properties`).
        is_new: whether the transaction creates it.
        branch: the number of the lake's branch that it belongs to, 0 for none.
    """

    id: str
    database: str
    name: str
    query: str
    columns: tuple[tuple[str, str | None], ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    is_new: bool = False
    branch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedView:
    """A view that a transaction drops."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactions:
    """The transactions of a lake that may still be ratified.

    Attributes:
        ids: the transactions' ids.
        begin_ms: when the oldest began, by the catalog's clock; None when no transaction is open.
    """

    ids: frozenset[str] = frozenset()
    begin_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """What a transaction on a branch read of a table.

    Attributes:
        record: the reads that have to stay true (`conflict.read_set_codec`).
        level: the isolation level at which they were checked, as `conflict.levels` writes it.
        version: the table's version that the transaction committed; None if it changed other tables
            alone, and before it is committed.
    """

    record: str
    level: str
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedTable:
    """A table that was created on a branch, which becomes one of the branch's parent.

    `branch`: the number of the parent, 0 for main.
    """

    id: str
    database: str
    name: str
    branch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedBranch:
    """A branch that ends as it is published.

    Attributes:
        id: the branch's.
        tables: by table id, the version that is published of each of its tables, and when that got
            its name.
        target: the number of the branch that gets its databases and views, 0 for main.
        successor: the id of the branch that gets its name, as it is rebased.
    """

    id: str
    tables: Mapping[str, tuple[int, int]]
    target: int = 0
    successor: str | None = None


ViewChange = WrittenView | DroppedView
NameChange = (
    NewTable
    | DroppedTable
    | UndroppedTable
    | RenamedTable
    | AdoptedTable
    | EndedBranch
    | ViewChange
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratification:
    """A request to make a transaction true at one instant, all of it or nothing.

    Attributes:
        transaction_id: the requesting transaction; it is ratified once, and its locks and its lease
            end with that.
        commits: the next versions of tables, several of one in their order.
        unchanged: by table id, the head that a table which was read must still have.
        names: changes of the catalog, in order, before the commits.
        reads: on a branch, by table id, what the transaction read, to be kept.
    """

    transaction_id: str
    commits: tuple[TableCommit, ...] = ()
    unchanged: Mapping[str, int] = field(default_factory=dict)
    names: tuple[NameChange, ...] = ()
    reads: Mapping[str, ReadRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratified:
    """The transaction is committed at the instant `sequence` of the lake; `time_ms` by the
    catalog's clock.

    `published`: by table id, the version up to which a committed table's log was published before;
    a table that is missing here may have earlier commits to publish first.
    """

    sequence: int
    time_ms: int
    published: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsMoved:
    """Nothing was ratified: other transactions committed first. The new heads by table id."""

    heads: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTaken:
    """Nothing was ratified: a transaction that lost too often has its turn on one of the tables."""

    transaction_id: str


@dataclass(frozen=True, slots=True)
class LoggedVersion:
    """A version in a table's log, with its commitInfo's transaction id and operation."""

    version: int
    txn_id: str | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class VersionRange:
    """A range of versions of a table, `first` and `last` included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A catalog table's newest version and the commits still to be published.

    Attributes:
        version: the newest ratified version; -1 for a table that has none.
        pending: the ratified commits that may not be published yet, by version.
    """

    version: int
    pending: tuple[TableCommit, ...] = ()


class Ledger(Protocol):
    """The catalog's record of commits: the authority over the versions of catalog tables.

    Every method raises `errors.Unavailable` when the catalog can't be reached or is no longer the
    one that was opened, and CorruptTable when it went back in time.
    """

    def sequence(self) -> int:
        """Return the newest instant of the lake; it grows by one with each ratified transaction."""
        ...

    def head(self, table_id: str) -> Head | None:
        """Return the table's head; None when the table isn't in the catalog (any more)."""
        ...

    def known_head(self, table_id: str) -> Head | None:
        """Return the table's head as of the newest state of the catalog that this process has seen.

        It costs no request where the process has a copy of the catalog.
        """
        ...

    def version_at(self, table_id: str, sequence: int) -> int | None:
        """Return the table's version at an instant; None when it wasn't in the catalog then.

        Raises Unavailable for an instant that the catalog no longer keeps.
        """
        ...

    def oldest_read(self, table_id: str, *, by_branches: bool = True) -> int | None:
        """Return the oldest version of the table that an open transaction reads, or may come to
        read, or, if `by_branches` is set, that a branch of the lake began with, its own included.

        The head when none reads an older version; None when the table has no versions here.
        """
        ...

    def ratify(self, request: Ratification) -> Ratified | HeadsMoved | TurnTaken:
        """Apply the whole request in one database transaction, or nothing of it.

        A lost reply is looked up. Raises errors.OutcomeUnknown when the lookup didn't settle it,
        InvalidRequest when a name is taken, or a table or a database is gone, Unavailable when the
        transaction was killed, or ended by another process, or its session's lease is over.
        """
        ...

    def reserve(self, transaction_id: str, table_ids: Collection[str]) -> bool:
        """Reserve the next turn to commit to the tables, until the transaction ends or loses its
        lease.

        All of the tables or none: returns False while another transaction has one of them. Raises
        Unavailable if the transaction was ended or killed.
        """
        ...

    def record_publication(self, versions: Mapping[str, VersionRange]) -> None:
        """Record which versions are published, by table id.

        The caller has written their files, or compared them with the ratified bytes. Versions that
        don't follow the recorded ones are not recorded, since those between may not be published.
        """
        ...

    def record_publication_soon(self, transaction_id: str, versions: Mapping[str, int]) -> None:
        """Record soon that a ratified transaction's versions are published, by table id.

        Sends no request to the catalog now, as `record_publication` does: the next ratification
        carries the record, or a request a moment later. Until then others may publish the versions
        once more.
        """
        ...


class IdentityMarks(Protocol):
    """The catalog's record of identity values: the mark up to which a column's values are reserved.

    Every method raises `errors.Unavailable` when the catalog can't be reached.
    """

    def advance(self, table_id: str, column: str, last: Callable[[int | None], int]) -> None:
        """Move a column's mark to `last(mark)`; `last` gets None where the column has no mark.

        The mark can't be moved concurrently, and is never lost while a client is alive that read
        it. If `last` raises, the error is passed on and the mark stays.
        """
        ...

    def give_back(self, table_id: str, column: str, mark: int, earlier: int) -> None:
        """Move the mark back from `mark` to `earlier`; does nothing if it is no longer `mark`."""
        ...
