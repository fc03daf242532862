"""What the loops need from outside, as Protocols: bytes, time, chance, and who ratifies.

Adapters stand in `storage`, `system` and `catalog`; tests put simulated ones in their place.
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
    """What became of a put-if-absent."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"  # the reply was lost: look before retrying


class Store(Protocol):
    """Bytes under one root folder. Paths are relative to it, with `/`, not encoded.

    Every method raises `errors.Unavailable` when the store can't be reached and
    `errors.InvalidRequest` when it refuses (permission, read-only, disk full), naming the path.
    """

    @property
    def url(self) -> str:
        """The root as an encoded URL without a trailing slash: `file:///data/t`, `s3://bucket/t`."""
        ...

    @property
    def is_prompt(self) -> bool:
        """Whether no request can take effect after its answer, or after the end of its sender.

        Over a network a request may be repeated on the way, and arrive late.
        """
        ...

    def get(self, path: str) -> bytes:
        """The object's bytes. Raises FileNotFoundError."""
        ...

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`. Raises FileNotFoundError."""
        ...

    def head(self, path: str) -> StoredObject | None:
        """The object's size and time, or None when there is none."""
        ...

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[StoredObject]:
        """All objects at any depth below the folder `prefix`, by path, after `start_after`."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Writes the object whole, replacing what was there; never half visible."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Creates the object unless it exists.

        What is there is durable when CREATED or EXISTS is returned, whoever wrote it.
        """
        ...

    def put_unsynced(self, path: str, data: bytes) -> None:
        """Creates the object unless it exists; after a power cut it may be gone, or empty.

        For what nothing hangs on: it costs less than `put_if_absent`.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes the objects; those already gone are no error.

        What a symbolic link has put elsewhere than below the root stays.
        """
        ...

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Deletes what killed writers left half-written below the folder `prefix`.

        Only what wasn't touched since `before_ms`, and never an object: those `list` shows.
        """
        ...

    def ensure_safe(self) -> None:
        """Proves once per store that put-if-absent refuses to overwrite.

        Raises errors.InvalidRequest that names the store when it doesn't.
        """
        ...

    def at(self, path: str) -> Store:
        """The store of a folder below this one."""
        ...


class System(Protocol):
    """Clock, identifiers, chance and waiting: everything that a replay must be able to fix."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        ...

    def new_id(self) -> str:
        """A new random UUID, lower-case, with dashes."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def wait_ms(self, duration_ms: float) -> None:
        """Waits."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds of a monotonic clock, the same for all processes of the machine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One version of one catalog table.

    Attributes:
        table_id: the catalog's id of the table.
        version: the version that it makes; the table's head is the one before.
        content: the bytes of the commit file; None where they stand in `staged`.
        staged: the name of a file in `_delta_log/_staged_commits` that holds them.
        operation: as the commit's commitInfo names it.
        is_shared: other engines may be reading the staged file: it stays when the commit is
            published, until the log is cleaned up.
    """

    table_id: str
    version: int
    content: bytes | None = None
    staged: str | None = None
    operation: str | None = None
    is_shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A name that a transaction gives to a table, whose head its first commit here makes.

    Attributes:
        head: the head that the table has already where it was there before (it is attached).
        number: what the views call it; a new number when None.
    """

    id: str
    database: str
    name: str
    location: str
    managed: bool
    head: int | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTable:
    """A table whose name a transaction takes away.

    Attributes:
        stays: its folder isn't the lake's.
        kept_ms: for how long it may come back; 0: it is removed at once.
        dropped_ms: when it was dropped, where that isn't now, by the catalog's clock.
    """

    id: str
    stays: bool = False
    kept_ms: int = 0
    dropped_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndroppedTable:
    """A dropped table that a transaction gives its name back.

    `head`: the version that it has now; None where that is what it was when it was dropped.
    """

    id: str
    database: str
    name: str
    head: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedTable:
    """A table that a transaction gives another name."""

    id: str
    database: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactions:
    """Transactions of a lake that may still be ratified.

    Attributes:
        ids: theirs.
        begin_ms: when the oldest began, by the catalog's clock; None when there is none.
    """

    ids: frozenset[str] = frozenset()
    begin_ms: int | None = None


NameChange = NewTable | DroppedTable | UndroppedTable | RenamedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratification:
    """What a transaction asks to be made true at one instant, all of it or nothing.

    Attributes:
        transaction_id: who asks; a transaction is ratified once, and its locks and its lease end
            with it.
        commits: at most one version of each table.
        unchanged: by table id, the head that a table which was read must still have.
        names: changes of the catalog, in order, before the commits.
    """

    transaction_id: str
    commits: tuple[TableCommit, ...] = ()
    unchanged: Mapping[str, int] = field(default_factory=dict)
    names: tuple[NameChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratified:
    """It is true since this instant of the lake; `time_ms` by the catalog's clock.

    `published`: by table id, up to which version a committed table's log was published before;
    a table that isn't there may have commits to be published first.
    """

    sequence: int
    time_ms: int
    published: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Nothing happened: other transactions came first. Their tables' heads by table id."""

    heads: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Nothing happened: a transaction that lost too often has its turn on one of the tables."""

    transaction_id: str


@dataclass(frozen=True, slots=True)
class Found:
    """A version that a table's log has, as its commitInfo tells of it."""

    version: int
    txn_id: str | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Versions:
    """Consecutive versions of a table, `first` and `last` included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a catalog table stands.

    Attributes:
        version: the newest ratified version; -1 for a table that has none.
        pending: the ratified commits that may not be published yet, by version.
    """

    version: int
    pending: tuple[TableCommit, ...] = ()


class Ledger(Protocol):
    """The catalog's book of commits: the authority over the versions of catalog tables.

    Every method raises `errors.Unavailable` when the catalog can't be reached or isn't any more the
    one that was opened, and CorruptTable when it went back in time.
    """

    def sequence(self) -> int:
        """The newest instant of the lake: grows by one with each ratified transaction."""
        ...

    def head(self, table_id: str) -> Head | None:
        """Where the table stands now; None when it isn't in the catalog (any more)."""
        ...

    def version_at(self, table_id: str, sequence: int) -> int | None:
        """The table's version at an instant; None when it wasn't in the catalog then."""
        ...

    def oldest_read(self, table_id: str) -> int | None:
        """The oldest version of the table that an open transaction may read, or may come to read.

        The head when none reads an older one; None when the table has no versions here.
        """
        ...

    def ratify(self, request: Ratification) -> Ratified | Moved | Reserved:
        """Makes all of it true in one database transaction, or nothing.

        A reply that is lost is looked for. Raises errors.OutcomeUnknown when looking didn't settle
        it, InvalidRequest when a name is taken, or a table or a database is gone, Unavailable when
        the transaction was killed or ended by somebody else or its session's lease is over.
        """
        ...

    def reserve(self, transaction_id: str, table_ids: Collection[str]) -> bool:
        """The next turn to commit to the tables, until the transaction ends or loses its lease.

        All of the tables or none: False while another has one of them.
        """
        ...

    def publishes(self, versions: Mapping[str, Versions]) -> None:
        """Notes which versions are published, by table id.

        The caller has written their files, or compared them with what was ratified. Versions that
        don't follow those noted before are not noted: those between may not be published.
        """
        ...

    def has_published(self, transaction_id: str, versions: Mapping[str, int]) -> None:
        """Notes, soon, that a ratified transaction's versions are published, by table id.

        As `publishes`, but nothing is asked of the catalog now: the next ratification carries the
        note, or what comes a moment later. Until then others may publish them once more.
        """
        ...


class IdentityBook(Protocol):
    """The catalog's book of identity values: up to which mark those of a column are reserved.

    Every method raises `errors.Unavailable` when the catalog can't be reached.
    """

    def advance(self, table_id: str, column: str, last: Callable[[int | None], int]) -> None:
        """Moves a column's mark to what `last` makes of it, which is None where there is none.

        Nobody else moves it meanwhile, and it is never lost while a client is alive that saw it.
        What `last` raises is raised, and nothing is moved then.
        """
        ...

    def give_back(self, table_id: str, column: str, mark: int, earlier: int) -> None:
        """Moves the mark back, unless it isn't that one any more: then nothing happens."""
        ...
