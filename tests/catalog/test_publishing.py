"""The notes of publications: when they are written, and that they say what is true."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from tests.catalog.ledgers import User, version
from tests.catalog.locking import until
from txlake.catalog import Catalog
from txlake.catalog.heartbeat import DelayedCall
from txlake.catalog.publishing import PublicationNote, send_confirmation
from txlake.errors import Unavailable
from txlake.ports import DroppedTable, Ratified, RenamedTable, VersionRange


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note wait for what carries them."""
    monkeypatch.setattr(DelayedCall, "schedule", lambda _: None)


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    made = User(opened())
    made.create("a", "b")
    made.catalog.ledger.record_publication({"a": VersionRange(0, 0), "b": VersionRange(0, 0)})
    return made


@pytest.fixture
def other(user: User, opened: Callable[[], Catalog]) -> User:
    """A session of another process."""
    return User(opened())


def wrote(user: User, table_id: str, number: int) -> str:
    """The transaction that made a version, whose file is there, as the process remembers."""
    transaction_id = user.begin()
    made = user.ratify(version(table_id, number), transaction_id=transaction_id)
    assert isinstance(made, Ratified)
    user.catalog.ledger.record_publication_soon(transaction_id, {table_id: number})
    return transaction_id


def pending(user: User, table_id: str = "a") -> list[int]:
    head = user.catalog.ledger.head(table_id)
    assert head is not None
    return [commit.version for commit in head.pending]


def test_the_next_ratification_carries_the_note(user: User, other: User) -> None:
    wrote(user, "a", 1)
    assert pending(user) == []
    assert pending(other) == [1]
    made = user.write(version("a", 2))
    assert made.published == {"a": 1}
    assert pending(user) == pending(other) == [2]


def test_that_of_another_table_carries_it_too(user: User, other: User) -> None:
    wrote(user, "a", 1)
    user.write(version("b", 1))
    assert pending(other) == []
    assert pending(other, "b") == [1]


def test_one_that_is_refused_carries_it_too(user: User, other: User) -> None:
    wrote(user, "a", 1)
    user.ratify(version("b", 7))
    assert pending(other) == []


def test_one_that_fails_leaves_the_note_to_the_next(
    user: User, other: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote(user, "a", 1)

    def away(*_: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr("txlake.catalog.ratifying.end_transactions", away)
        with pytest.raises(Unavailable, match="away"):
            user.write(version("b", 1))
    assert pending(other) == [1]
    user.write(version("b", 1))
    assert pending(other) == []


def test_it_is_written_a_moment_later(
    user: User, other: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(user.catalog.ledger._publications._later, "_delay_ms", 0)
    wrote(user, "a", 1)
    until(lambda: pending(other) == [])


@pytest.mark.parametrize(
    "asked",
    [
        lambda user: user.catalog.ledger.pending_tables(),
        lambda user: user.catalog.ledger.dropped_tables(),
        lambda user: user.catalog.ledger.newest_commits(),
        lambda user: user.catalog.ledger.forget("gone"),
        lambda user: user.catalog.close(),
        lambda user: user.catalog.ledger.commits_between(0, 1, 1),
    ],
)
def test_who_goes_by_what_is_noted_has_it_written_first(
    user: User, other: User, asked: Callable[[User], object]
) -> None:
    wrote(user, "a", 1)
    wrote(user, "b", 1)
    asked(user)
    assert pending(other) == pending(other, "b") == []


def test_what_cannot_be_written_when_it_ends_is_logged(
    user: User, other: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrote(user, "a", 1)
    monkeypatch.setattr(user.catalog._fence, "epoch", 7)
    with caplog.at_level(logging.WARNING):
        user.catalog.ledger.close()
    assert "publications are recorded when the tables are next opened" in caplog.text
    assert pending(other) == [1]


def test_versions_follow_one_another_whoever_published_them(user: User, other: User) -> None:
    wrote(user, "a", 1)
    assert pending(other) == [1]  # who published it once more notes it
    other.catalog.ledger.record_publication({"a": VersionRange(1, 1)})
    wrote(user, "a", 2)
    user.write(version("b", 1))
    assert pending(other) == []


def test_a_gap_is_not_noted(user: User, other: User) -> None:
    other.write(version("a", 1))  # and its file is nowhere yet
    wrote(user, "a", 2)
    assert pending(user) == [1, 2]
    user.write(version("b", 1))
    assert pending(other) == [1, 2]


def test_a_version_that_another_transaction_made_meanwhile_is_not_vouched_for(
    user: User, direct: None
) -> None:
    transaction_id = wrote(user, "a", 1)
    notes = [
        PublicationNote("a", 1, transaction_id),
        PublicationNote("a", 1, "another"),
        PublicationNote("gone", 1, transaction_id),
    ]
    with user.catalog._database.reading() as connection:
        assert send_confirmation(connection, notes)() == {"a": [VersionRange(1, 1)]}
        assert send_confirmation(connection, notes[1:])() == {}


def test_a_table_that_is_named_anew_is_noted_by_the_same_ratification(
    user: User, other: User
) -> None:
    wrote(user, "a", 1)
    user.ratify(version("a", 2), names=(RenamedTable(id="a", database="default", name="z"),))
    assert pending(other) == [2]


def test_a_delayed_call_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    class Counter:
        def __init__(self) -> None:
            self.count = 0
            self.called = threading.Event()

        def call(self) -> None:
            self.count += 1
            self.called.set()

    counter = Counter()
    slow, delayed = DelayedCall(counter.call, 3_600_000), DelayedCall(counter.call, 20)
    for one in (slow, delayed):
        one.schedule()
        one.schedule()
    assert counter.called.wait(60)
    slow.stop()  # which waits for nothing
    assert counter.count == 1
    slow.schedule()
    assert slow._thread is None


def test_without_notes_the_database_is_not_asked(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it is asked")

    with monkeypatch.context() as patched:
        patched.setattr(user.catalog._database, "write_relaxed", refuse)
        user.catalog.ledger.close()


def test_who_is_closed_writes_nothing_later(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    user.catalog.ledger.close()
    wrote(user, "a", 1)
    assert user.catalog.ledger._publications._later._thread is None


def test_notes_are_carried_by_one_at_a_time(user: User) -> None:
    notes = user.catalog.ledger._publications
    wrote(user, "a", 1)
    with notes.take_deferred() as carried:
        assert notes._writing.locked()
        wrote_later = PublicationNote("b", 1, "another")
        notes.defer("another", {"b": 1})
        assert wrote_later not in carried
    assert notes.deferred_of("a") == frozenset()
    assert notes.deferred_of("b") == {(1, "another")}


def test_a_name_alone_has_no_versions_to_be_noted(user: User, other: User) -> None:
    entry = user.name("alone")
    user.catalog.ledger.record_publication({entry.id: VersionRange(0, 0)})
    assert user.catalog.ledger.head(entry.id) is None


def test_a_table_that_was_forgotten_meanwhile_takes_no_note(user: User, other: User) -> None:
    wrote(user, "a", 1)
    other.catalog.ledger.record_publication({"a": VersionRange(1, 1)})
    other.ratify(names=(DroppedTable(id="a"),))
    other.catalog.ledger.forget("a")
    user.write(version("b", 1))
    assert user.catalog.ledger._publications.deferred_of("a") == frozenset()


def test_a_note_waits_as_long_as_a_statement_takes(
    opened: Callable[[], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a busy process's next ratification carries it."""
    delays: list[float] = []

    class Recorded(DelayedCall):
        def __init__(self, call: Callable[[], None], delay_ms: float) -> None:
            delays.append(delay_ms)
            super().__init__(call, delay_ms)

    monkeypatch.setattr("txlake.catalog.publishing.DelayedCall", Recorded)
    database = opened()._database
    if database.is_replicated:
        assert delays == [2_000]
    elif database.url.get_backend_name() == "sqlite":
        assert delays == [100]
    else:
        assert delays == [500]
