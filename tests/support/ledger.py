"""A lake's catalog in memory: `ports.Ledger` with its exact semantics, and hooks for misfortune."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from txlake.errors import InvalidRequest
from txlake.ports import (
    DroppedTable,
    Head,
    HeadsMoved,
    NameChange,
    NewTable,
    Ratification,
    Ratified,
    RenamedTable,
    TableCommit,
    TurnTaken,
    VersionRange,
)


@dataclass
class LedgerTable:
    """What the catalog knows of one table."""

    name: str
    head: int
    published: int = -1
    is_dropped: bool = False
    # By version, since which instant it is true.
    since: dict[int, int] = field(default_factory=dict)
    commits: dict[int, TableCommit] = field(default_factory=dict)


def nothing(moment: str) -> None:
    """The hook of a ledger that all goes well with."""


class SimulatedLedger:
    """`ports.Ledger` in a dictionary.

    `hook` is called with `ratify`, `ratify done` ... before and after every request: what it raises
    is what the caller gets.
    """

    def __init__(self, now_ms: Callable[[], int], hook: Callable[[str], None] = nothing) -> None:
        self.tables: dict[str, LedgerTable] = {}
        self.reserved: dict[str, str] = {}
        self.ratified: list[str] = []
        self.read: list[int] = []  # the instants of open transactions
        self.ended: set[str] = set()
        self.requests: list[str] = []
        self.losses: Counter[str] = Counter()  # by transaction
        self.hook = hook
        self._now_ms = now_ms

    def _request(self, kind: str) -> None:
        self.requests.append(kind)
        self.hook(kind)

    def sequence(self) -> int:
        self._request("sequence")
        return len(self.ratified)

    def head(self, table_id: str) -> Head | None:
        self._request("head")
        table = self.tables.get(table_id)
        if table is None or table.is_dropped:
            return None
        pending = range(table.published + 1, table.head + 1)
        return Head(
            version=table.head,
            pending=tuple(table.commits[version] for version in pending),
        )

    def known_head(self, table_id: str) -> Head | None:
        return self.head(table_id)

    def version_at(self, table_id: str, sequence: int) -> int | None:
        self._request("version_at")
        table = self.tables.get(table_id)
        if table is None:
            return None
        versions = [version for version, since in table.since.items() if since <= sequence]
        return max(versions, default=None)

    def oldest_read(self, table_id: str, *, by_branches: bool = True) -> int | None:
        self._request("oldest_read")
        table = self.tables.get(table_id)
        if table is None:
            return None
        instant = min(self.read, default=len(self.ratified))
        versions = [version for version, since in table.since.items() if since <= instant]
        return max(versions, default=min(table.since, default=None))

    def ratify(self, request: Ratification) -> Ratified | HeadsMoved | TurnTaken:
        self._request("ratify")
        answer = self._ratified(request)
        self.hook("ratify done")
        return answer

    def _ratified(self, request: Ratification) -> Ratified | HeadsMoved | TurnTaken:
        if request.transaction_id in self.ended:
            raise InvalidRequest(f"transaction {request.transaction_id} was ended")
        for commit in request.commits:
            holder = self.reserved.get(commit.table_id, request.transaction_id)
            if holder != request.transaction_id:
                return TurnTaken(transaction_id=holder)
        for name in request.names:
            self._check(name)
        new = {name.id: name for name in request.names if isinstance(name, NewTable)}
        expected = dict(request.unchanged)
        for commit in request.commits:
            known = new.get(commit.table_id)
            if known is None:
                expected[commit.table_id] = commit.version - 1
            else:
                assert commit.version == (-1 if known.head is None else known.head) + 1
        moved = {}
        for table_id, version in expected.items():
            table = self._live(table_id)
            if table.head != version:
                moved[table_id] = table.head
        if moved:
            self.losses[request.transaction_id] += 1
            return HeadsMoved(heads=moved)
        self.ratified.append(request.transaction_id)
        self.end(request.transaction_id)
        for name in request.names:
            self._name(name)
        for commit in request.commits:
            table = self.tables[commit.table_id]
            table.head = commit.version
            table.commits[commit.version] = commit
            table.since[commit.version] = len(self.ratified)
        published = {
            commit.table_id: self.tables[commit.table_id].published for commit in request.commits
        }
        return Ratified(sequence=len(self.ratified), time_ms=self._now_ms(), published=published)

    def _check(self, change: NameChange) -> None:
        if isinstance(change, NewTable | RenamedTable):
            taken = {table.name for table in self.tables.values() if not table.is_dropped}
            if f"{change.database}.{change.name}" in taken:
                raise InvalidRequest(f"{change.database}.{change.name} exists")
        else:
            self._live(change.id)

    def _name(self, change: NameChange) -> None:
        match change:
            case NewTable():
                name = f"{change.database}.{change.name}"
                head = -1 if change.head is None else change.head
                self.tables[change.id] = LedgerTable(name, head, head)
                if change.head is not None:
                    self.tables[change.id].since[head] = len(self.ratified)
            case DroppedTable():
                self.tables[change.id].is_dropped = True
            case RenamedTable():
                self.tables[change.id].name = f"{change.database}.{change.name}"

    def _live(self, table_id: str) -> LedgerTable:
        table = self.tables.get(table_id)
        if table is None or table.is_dropped:
            raise InvalidRequest(f"table {table_id} isn't in the catalog")
        return table

    def reserve(self, transaction_id: str, table_ids: Collection[str]) -> bool:
        self._request("reserve")
        if any(self.reserved.get(one, transaction_id) != transaction_id for one in table_ids):
            return False
        self.reserved.update(dict.fromkeys(table_ids, transaction_id))
        self.hook("reserve done")
        return True

    def record_publication(self, versions: Mapping[str, VersionRange]) -> None:
        self._request("record_publication")
        self._note(versions)
        self.hook("record_publication done")

    def record_publication_soon(self, transaction_id: str, versions: Mapping[str, int]) -> None:
        assert transaction_id in self.ratified
        self._request("record_publication_soon")
        self._note({one: VersionRange(version, version) for one, version in versions.items()})

    def _note(self, versions: Mapping[str, VersionRange]) -> None:
        for table_id, some in versions.items():
            table = self.tables[table_id]
            if some.first <= table.published + 1:
                table.published = max(table.published, some.last)

    def end(self, transaction_id: str) -> None:
        """The transaction is over, by whatever way, and what it had reserved is free."""
        self.ended.add(transaction_id)
        for table_id in [one for one, who in self.reserved.items() if who == transaction_id]:
            del self.reserved[table_id]
