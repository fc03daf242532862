"""How often a statement waits for a catalog's server, which may be far away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest
import sqlalchemy as sa

from tests.catalog.admitting import Admitting, locks_of, lookup, the_name
from tests.catalog.ledgers import User, version
from tests.catalog.lines import ServerLine, line_to
from txlake.catalog import Catalog
from txlake.catalog.admission import Admission, _AdmissionRequest
from txlake.catalog.counter_rows import newest_sequence
from txlake.catalog.lookup import CatalogView
from txlake.catalog.prepared import pipelined
from txlake.conflict.locking import LockMode, LockRequest
from txlake.errors import Unavailable
from txlake.ports import DroppedTable, Ratified
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")

# The driver prepares a statement when it is executed again and again, which takes a round trip.
_UNTIL_PREPARED = 8


@dataclass(frozen=True, slots=True)
class Far(Admitting):
    """The session's catalog is reached through a line."""

    line: ServerLine

    @contextmanager
    def trips(self, count: int) -> Iterator[None]:
        """Require that many round trips of the block."""
        self.line.round_trips = 0
        yield
        assert self.line.round_trips == count


@pytest.fixture
def far(postgres_url: str) -> Iterator[Far]:
    with line_to(postgres_url) as (url, line):
        catalog, beside = Catalog(url, System()), Catalog(postgres_url, System())
        user = User(catalog)
        user.create("a", "b")
        far = Far(user, User(beside), line)
        for number in (1, 2):  # the pools have their connections
            user.write(version("a", number))
            far.read("b")
        yield far
        catalog.close()
        beside.close()


def test_a_statement_that_changes_a_table(far: Far) -> None:
    """Names; locks, and names again; rows. The second time what the names mean is expected."""
    with far.trips(3):
        far.admit(far.statement(explicit=False), "a")
    with far.trips(2):
        far.admit(far.statement(explicit=False), "a")


def test_later_statements_of_a_transaction_that_has_its_locks(far: Far) -> None:
    who = far.statement()
    first = far.admit(who, "a")
    pinned = replace(who, is_new=False, sequence=first.view.instant)
    far.other.write(version("a", 3))
    with far.trips(1):
        again = far.admit(pinned, "a")
    assert (again.view.instant, again.view.versions) == (first.view.instant, {"a": 2})
    with far.trips(2):
        far.admit(pinned, "b")
    with far.trips(1):
        far.admit(pinned, "b")


def test_a_query(far: Far) -> None:
    far.read("a")
    far.other.write(version("a", 3))
    with far.trips(1):
        found = far.read("a")
    assert (found.is_granted, found.view.versions) == (True, {"a": 3})


def test_a_ratification_and_the_note_of_its_publication(far: Far) -> None:
    ledger = far.user.catalog.ledger
    with far.trips(3 + 2):  # the transaction's row first
        made = far.user.ratify(version("a", 3), version("b", 1))
    assert isinstance(made, Ratified)
    transaction_id = ledger.newest_commits(1)[0].transaction_id
    ledger.record_publication_soon(transaction_id, {"a": 3, "b": 1})
    with far.trips(2):
        ledger._publications.write_deferred()


def test_statements_of_several_threads_are_expected_together(far: Far) -> None:
    """Each has what it names; one that finds something else makes all look again."""
    admissions = far.user.catalog.admissions
    for name in ("a", "b"):
        far.admit(far.statement(explicit=False), name)

    def admitted() -> Sequence[Admission]:
        outcomes = admissions._admit_batch(
            [
                _AdmissionRequest(far.statement(explicit=False), lookup(name), locks_of("IX"), True)
                for name in ("a", "b")
            ]
        )
        found = [outcome.admission for outcome in outcomes if outcome is not None]
        return [admission for admission in found if admission is not None]

    with far.trips(2):
        first, second = admitted()
    assert (first.view.versions, second.view.versions) == ({"a": 2}, {"b": 0})
    far.rename("b", "c")
    first, second = admitted()
    assert first.view.versions == {"a": 2}
    assert second.view.tables == {}


def test_a_stronger_lock_is_requested_alone(far: Far) -> None:
    for _ in range(_UNTIL_PREPARED):
        who = far.statement()
        first = far.admit(who, "a")
        pinned = replace(who, is_new=False, sequence=first.view.instant)
        far.line.round_trips = 0
        again = far.admit(pinned, "a", mode="SIX")
        assert again.view.versions == {"a": 2}
        waits = far.line.round_trips
        with far.trips(1):
            far.user.catalog.transactions.end(who.id)
        far.user.catalog.locks.forget_owner(who.id)
    assert waits == 8


@pytest.mark.parametrize("has_weaker_lock", [True, False])
def test_a_name_that_changes_before_its_lock_is_granted_has_the_new_versions(
    far: Far, has_weaker_lock: bool
) -> None:
    """Where the lock is the name's, whatever it means."""
    who = far.statement()
    weaker = partial(the_name, mode=LockMode.S) if has_weaker_lock else locks_of("IX")
    instant = far.admit(who, "b", locks=weaker).view.instant

    def renames(view: CatalogView) -> list[LockRequest]:
        if view.tables["default", "a"].id == "a":
            far.rename("a", "c")
            far.rename("b", "a")
        return the_name(view)

    admission = far.admit(replace(who, is_new=False, sequence=instant), "a", locks=renames)
    assert admission.view.versions == {"b": 0}


def test_what_is_no_table_any_more_is_expected_once(far: Far) -> None:
    far.read("b")
    far.other.ratify(names=(DroppedTable(id="b"),))
    for _ in range(_UNTIL_PREPARED):
        assert far.read("b").view.tables == {}
    with far.trips(1):
        far.read("b")


def test_a_head_is_read_at_once(far: Far) -> None:
    with far.trips(1):
        head = far.user.catalog.ledger.head("a")
    assert head is not None
    assert head.version == 2


def test_what_is_sent_after_commit_is_refused(far: Far) -> None:
    """The server would carry it out, and commit it by itself."""
    database = far.user.catalog._database

    def both(connection: sa.Connection) -> None:
        with pipelined(connection, commits=True):
            pass
        newest_sequence(connection)

    with pytest.raises(Unavailable, match="after COMMIT"):
        database.write(both)


def test_one_query_is_sent_without_a_transaction(far: Far) -> None:
    """Another one on the same connection would see another state."""
    far.user.catalog.ledger.sequence()
    with far.trips(1):
        far.user.catalog.ledger.sequence()
    database = far.user.catalog._database

    def twice() -> None:
        with database.reading_once() as connection:
            newest_sequence(connection)
            newest_sequence(connection)

    with pytest.raises(Unavailable, match="before BEGIN"):
        twice()
