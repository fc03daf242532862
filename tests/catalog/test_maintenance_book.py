"""The record of maintenance, and the claims by which processes share the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import User
from txlake.catalog import Catalog, maintenance_book
from txlake.catalog.maintenance_book import Leftovers, MaintenanceEntry, QuietTable, claim_on
from txlake.catalog.relations import sessions
from txlake.errors import LockTimeout

WORK = MaintenanceEntry(
    id="1",
    table_name="default.t",
    need="optimize",
    state="running",
    action="OPTIMIZE default.t",
    reason="60 small files fit into 1",
    session_id=7,
)


def test_what_is_recorded_is_seen_by_others(opened: Callable[[], Catalog]) -> None:
    here, there = opened(), opened()
    here.maintenance.add(WORK)
    [running] = there.maintenance.entries()
    assert running.time_ms > 1_700_000_000_000
    assert replace(running, time_ms=0) == WORK
    done = replace(WORK, state="done", files=59, size_bytes=10, row_count=2, duration_ms=12)
    here.maintenance.end(done)
    assert there.maintenance.entries() == [replace(done, time_ms=running.time_ms)]
    here.maintenance.end(replace(done, state="failed", error="CorruptTable: odd"))
    [failed] = there.maintenance.entries()
    assert (failed.state, failed.error) == ("failed", "CorruptTable: odd")


def test_what_is_due_is_replaced_in_its_order(opened: Callable[[], Catalog]) -> None:
    here, there = opened(), opened()
    here.maintenance.add(replace(WORK, state="done"))
    due = [replace(WORK, id="x", state="due", need=need) for need in ("vacuum", "a", "purge")]
    here.maintenance.replace_due(due)
    assert [entry.need for entry in there.maintenance.entries()] == [
        "optimize",
        "vacuum",
        "a",
        "purge",
    ]
    there.maintenance.replace_due(due[:1])
    assert [entry.need for entry in here.maintenance.entries()] == ["optimize", "vacuum"]
    there.maintenance.replace_due([])
    assert [entry.need for entry in here.maintenance.entries()] == ["optimize"]


def test_what_needs_nothing_is_known_to_all(opened: Callable[[], Catalog]) -> None:
    here, there = opened().maintenance, opened().maintenance
    assert there.quiet_tables() == {}
    found = {"a": QuietTable(3, 1_000, "x"), "b": QuietTable(0, 2_000, "x")}
    here.replace_quiet(found)
    assert there.quiet_tables() == found
    changed = {"b": QuietTable(1, 2_000, "x"), "c_%": QuietTable(0, 1, "")}
    there.replace_quiet(changed)
    assert here.quiet_tables() == changed
    here.replace_quiet({})
    assert there.quiet_tables() == {}


def test_what_needs_nothing_as_before_is_not_written_again(
    opened: Callable[[], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    book = opened().maintenance
    found = {"a": QuietTable(3, 1_000, "x")}
    book.replace_quiet(found)

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be written")

    monkeypatch.setattr(book._database, "write_relaxed", refuse)
    book.replace_quiet(found)
    with pytest.raises(AssertionError, match="nothing is to be written"):
        book.replace_quiet({"a": QuietTable(4, 1_000, "x")})


def test_what_is_due_as_before_is_not_written_again(
    opened: Callable[[], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened()
    due = [replace(WORK, id="x", state="due"), replace(WORK, id="y", state="due", need="purge")]
    catalog.maintenance.replace_due(due)
    before = catalog.maintenance.entries()

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be written")

    monkeypatch.setattr(catalog.maintenance._database, "write_relaxed", refuse)
    catalog.maintenance.replace_due(due)
    monkeypatch.undo()
    assert catalog.maintenance.entries() == before
    catalog.maintenance.replace_due([replace(due[0], reason="another"), due[1]])
    assert catalog.maintenance.entries() != before


def test_the_newest_entries_are_kept(
    opened: Callable[[], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance_book, "ROWS_MAX", 3)
    catalog = opened()
    for number in range(5):
        catalog.maintenance.add(replace(WORK, id=str(number)))
    assert [entry.id for entry in catalog.maintenance.entries()] == ["2", "3", "4"]


def test_a_table_is_claimed_by_one_session(opened: Callable[[], Catalog]) -> None:
    here, there = User(opened()), User(opened())
    claim = claim_on(1, 5)
    here.catalog.locks.acquire(here.session, None, [claim], 0)
    with pytest.raises(LockTimeout, match="the maintenance of table"):
        there.catalog.locks.acquire(there.session, None, [claim], 0)
    there.catalog.locks.acquire(there.session, None, [claim_on(1, 6)], 0)
    here.catalog.sessions.close(here.session)
    there.catalog.locks.acquire(there.session, None, [claim], 0)


@pytest.mark.usefixtures("direct")
def test_the_claim_of_a_dead_session_is_taken_over(opened: Callable[[], Catalog]) -> None:
    here, there = User(opened()), User(opened())
    claim = claim_on(1, 5)
    here.catalog.locks.acquire(here.session, None, [claim], 0)
    here.catalog.sessions._heartbeat.stop()
    _let_expire(here)
    there.catalog.locks.acquire(there.session, None, [claim], 60_000)


def _let_expire(user: User) -> None:
    """End the session's lease, as if its process had died long ago."""
    database = user.catalog._database
    if database.is_replicated:
        user.catalog.sessions._database.leases.remove()  # type: ignore[attr-defined]
        return
    database.write(
        lambda connection: connection.execute(
            sa.update(sessions).where(sessions.c.id == user.session).values(lease_ms=0, warned=True)
        )
    )


@pytest.mark.usefixtures("direct")
def test_what_killed_processes_left_is_counted_when_it_is_old(
    opened: Callable[[], Catalog],
) -> None:
    user = User(opened())
    assert user.catalog.maintenance.leftovers() == Leftovers(0, 0)
    user.create("t")
    assert user.catalog.maintenance.leftovers() == Leftovers(0, 0)
    user.catalog._database.write(
        lambda connection: connection.execute(sa.text("UPDATE txlake_commits SET time_ms = 5"))
    )
    assert user.catalog.maintenance.leftovers() == Leftovers(1, 0)
    user.catalog._database.write(
        lambda connection: connection.execute(
            sa.text(
                "UPDATE txlake_tables SET published = head, dropped_sequence = 1, kept_until_ms = 5"
            )
        )
    )
    assert user.catalog.maintenance.leftovers() == Leftovers(0, 1)
