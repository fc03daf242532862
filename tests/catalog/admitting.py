"""Short ways to admissions in one process, beside another one that changes names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.catalog.ledgers import System_, User
from txlake.catalog.admission import Admission, StatementTransaction
from txlake.catalog.lookup import CatalogView, LookupRequest
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.ports import RenamedTable

Locks = Callable[[CatalogView], list[LockRequest] | None]


@dataclass(frozen=True, slots=True)
class Admitting:
    """A session, and one of another process. The tables are `a`, at version 2, and `b`."""

    user: User
    other: User

    def statement(self, **given: object) -> StatementTransaction:
        who = StatementTransaction(
            id=System_.new_id(), session_id=self.user.session, is_new=True, pins=True
        )
        return replace(who, **given)  # type: ignore[arg-type]

    def admit(
        self, who: StatementTransaction, *names: str, mode: str = "IX", locks: Locks | None = None
    ) -> Admission:
        return self.user.catalog.admissions.admit(
            who, lookup(*names), locks or locks_of(mode), timeout_ms=0
        )

    def read(self, *names: str, locks: Locks | None = None) -> Admission:
        return self.user.catalog.admissions.admit_without_locks(
            lookup(*names), locks or locks_of("Sch-S")
        )

    def rename(self, table_id: str, name: str) -> None:
        """Another process gives a table another name."""
        self.other.ratify(names=(RenamedTable(id=table_id, database="default", name=name),))


def lookup(*names: str) -> LookupRequest:
    return LookupRequest(names=frozenset(("default", name) for name in names))


def locks_of(mode: str) -> Callable[[CatalogView], list[LockRequest]]:
    """Locks all tables that are found."""

    def locks(view: CatalogView) -> list[LockRequest]:
        numbers = sorted(entry.number for entry in view.tables.values())
        return [
            LockRequest(
                resource=Resource(type=ResourceType.OBJECT, database=1, entity=number),
                mode=LockMode(mode),
            )
            for number in numbers
        ]

    return locks


def the_name(view: CatalogView, mode: LockMode = LockMode.X) -> list[LockRequest]:
    """Locks a name, whatever it means."""
    key = Resource(type=ResourceType.KEY, database=1, entity=1, description="a")
    return [LockRequest(resource=key, mode=mode)]
