"""The book of commits: what is ratified, what comes too late, what is published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import User, end_lease, living, new, selected, version
from tests.catalog.open_transactions import write_transaction
from txlake.catalog import Catalog
from txlake.catalog.group_commit import GroupCommit, Interrupted
from txlake.catalog.owners import reap_due
from txlake.catalog.relations import counters
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import (
    DroppedTable,
    Head,
    HeadsMoved,
    Ratified,
    TableCommit,
    TurnTaken,
    VersionRange,
)

ENDED = "nothing was heard of its session.*run it again"


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    return User(opened())


def test_all_of_it_is_true_at_one_instant(user: User) -> None:
    ledger = user.catalog.ledger
    assert ledger.sequence() == 0
    assert user.create("a", "b").sequence == 1
    staged = TableCommit(table_id="b", version=1, staged="s.json", operation="MERGE")
    made = user.write(version("a", 1), staged)
    assert made.sequence == ledger.sequence() == 2
    assert ledger.head("a") == Head(version=1, pending=(version("a", 0), version("a", 1)))
    assert ledger.head("b") == Head(version=1, pending=(version("b", 0), staged))
    assert [ledger.version_at("a", sequence) for sequence in range(4)] == [None, 0, 1, 1]
    user.write(version("a", 2))
    assert (ledger.version_at("a", 3), ledger.version_at("b", 3)) == (2, 1)
    assert ledger.known_head("a") == ledger.head("a")
    assert ledger.head("nowhere") is ledger.known_head("nowhere") is None
    assert ledger.version_at("nowhere", 3) is None


def test_several_versions_of_a_table_are_true_at_one_instant(user: User) -> None:
    ledger = user.catalog.ledger
    user.create("a", "b")
    late = user.ratify(version("a", 2), version("a", 3), version("b", 1))
    assert late == HeadsMoved(heads={"a": 0})
    made = user.write(version("a", 1), version("a", 2), version("a", 3), version("b", 1))
    assert made.sequence == 2
    every = tuple(version("a", each) for each in range(4))
    assert ledger.head("a") == Head(version=3, pending=every)
    assert [ledger.version_at("a", sequence) for sequence in (1, 2)] == [0, 3]
    assert [(one.table_id, one.version) for one in ledger.newest_commits(4)] == [
        ("a", 3),
        ("a", 2),
        ("a", 1),
        ("b", 1),
    ]


def test_later_instants_have_later_times(user: User) -> None:
    times = [user.create(name).time_ms for name in ("a", "b", "c")]
    assert times == sorted(times)


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_version_that_does_not_follow_the_head_came_too_late(user: User, number: int) -> None:
    user.create("a", "b")
    loser = user.begin()
    late = user.ratify(version("b", 1), version("a", number), transaction_id=loser)
    assert late == HeadsMoved(heads={"a": 0})
    ledger = user.catalog.ledger
    assert (ledger.sequence(), ledger.head("b")) == (1, Head(version=0, pending=(version("b", 0),)))
    again = user.ratify(version("b", 1), version("a", 1), transaction_id=loser)
    assert isinstance(again, Ratified)


def test_what_was_read_must_be_unchanged(user: User) -> None:
    user.create("a", "b", "c")
    user.write(version("b", 1))
    late = user.ratify(version("a", 1), unchanged={"b": 0, "c": 0})
    assert late == HeadsMoved(heads={"b": 1})
    assert isinstance(user.ratify(version("a", 1), unchanged={"b": 1, "c": 0}), Ratified)


def test_a_read_table_that_is_gone_is_said(user: User) -> None:
    user.create("a")
    with pytest.raises(InvalidRequest, match="table gone was dropped meanwhile"):
        user.ratify(version("a", 1), unchanged={"gone": 0})


def test_a_name_alone_has_no_head_and_takes_no_commit(user: User) -> None:
    user.ratify(names=(new("t"),))
    assert user.catalog.ledger.head("t") is None
    with pytest.raises(InvalidRequest, match=r"name alone.*attach it"):
        user.ratify(version("t", 0))


def test_a_transaction_is_ratified_once(user: User) -> None:
    user.create("a")
    winner = user.begin()
    user.ratify(version("a", 1), transaction_id=winner)
    assert winner not in living(user.catalog.transactions)
    with pytest.raises(Unavailable, match=ENDED):
        user.ratify(version("a", 2), transaction_id=winner)
    assert user.catalog.ledger.sequence() == 2


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda catalog, one: catalog.transactions.end(one), ENDED),
        (lambda catalog, one: catalog.transactions.kill(one), "was killed"),
    ],
)
def test_a_transaction_that_was_ended_is_refused(
    user: User, end: Callable[[Catalog, str], None], said: str
) -> None:
    user.create("a")
    transaction_id = user.begin()
    end(user.catalog, transaction_id)
    with pytest.raises(Unavailable, match=said):
        user.ratify(version("a", 1), transaction_id=transaction_id)
    assert user.catalog.ledger.sequence() == 1


def test_a_late_transaction_is_ratified_while_nobody_has_ended_it(user: User, url: str) -> None:
    user.create("a")
    transaction_id = user.begin()
    end_lease(url, user.session)
    assert isinstance(user.ratify(version("a", 1), transaction_id=transaction_id), Ratified)


def test_a_transaction_whose_session_was_ended_is_refused(
    user: User, opened: Callable[[], Catalog], url: str
) -> None:
    user.create("a")
    transaction_id = user.begin()
    end_lease(url, user.session)
    database = opened()._database
    database.run_shielded(lambda: reap_due(database))
    with pytest.raises(Unavailable, match=ENDED):
        user.ratify(version("a", 1), transaction_id=transaction_id)
    assert isinstance(user.ratify(version("a", 1)), Ratified)


def test_a_ratification_ends_its_transaction_and_its_locks(user: User, url: str) -> None:
    user.create("a")
    transaction_id = user.begin()
    assert user.catalog.ledger.reserve(transaction_id, ["a"])
    user.ratify(version("a", 1), transaction_id=transaction_id)
    assert selected(url, "SELECT count(*) FROM txlake_locks") == [(0,)]
    assert selected(url, "SELECT count(*) FROM txlake_transactions") == [(0,)]


def test_the_oldest_version_that_an_open_transaction_reads(user: User) -> None:
    ledger, transactions = user.catalog.ledger, user.catalog.transactions
    assert ledger.oldest_read("a") is None
    user.create("b")
    early = user.begin()
    user.create("a")
    pinned = user.begin()
    transactions.pin(pinned)
    user.write(version("a", 1))
    unpinned = user.begin()
    user.write(version("a", 2))
    late = user.begin()
    transactions.pin(late)
    # It began before the table came, and may come to read any of its versions.
    assert ledger.oldest_read("a") == 0
    assert ledger.oldest_read("b") == 0
    user.ratify(names=(new("c", head=5),))
    assert ledger.oldest_read("c") == 5
    transactions.end(early)
    assert ledger.oldest_read("a") == 0
    transactions.kill(pinned)
    assert ledger.oldest_read("a") == 1
    transactions.pin(unpinned)
    assert ledger.oldest_read("a") == 2
    transactions.end(unpinned)
    transactions.end(late)
    user.write(version("a", 3))
    assert ledger.oldest_read("a") == 3
    assert ledger.oldest_read("nowhere") is None


def test_a_pin_that_came_later_counts(user: User) -> None:
    user.create("a")
    transaction_id = user.begin()
    user.write(version("a", 1))
    user.catalog.transactions.pin(transaction_id)
    user.write(version("a", 2))
    [entry] = user.catalog.transactions.entries()
    assert (entry.begin_sequence, entry.sequence) == (1, 2)
    assert user.catalog.ledger.oldest_read("a") == 1


def test_who_lost_too_often_has_its_turn(user: User, opened: Callable[[], Catalog]) -> None:
    other = User(opened())
    user.create("a", "b", "c")
    long, longer = user.begin(), other.begin()
    ledger = user.catalog.ledger
    assert ledger.reserve(long, ["a", "b"])
    assert ledger.reserve(long, ["b", "a"])
    assert not other.catalog.ledger.reserve(longer, ["b", "c"])
    assert other.ratify(version("c", 1), version("b", 1)) == TurnTaken(transaction_id=long)
    assert isinstance(other.ratify(version("c", 1), unchanged={"b": 0}), Ratified)
    mine = user.ratify(version("a", 1), version("b", 1), transaction_id=long)
    assert isinstance(mine, Ratified)
    assert other.catalog.ledger.reserve(longer, ["b", "c"])


@pytest.mark.parametrize("end", ["end", "kill", "lease", "close"])
def test_a_turn_ends_with_its_transaction(
    user: User, opened: Callable[[], Catalog], url: str, end: str
) -> None:
    other = User(opened())
    user.create("a")
    dead = other.begin()
    assert other.catalog.ledger.reserve(dead, ["a"])
    match end:
        case "end":
            other.catalog.transactions.end(dead)
        case "kill":
            user.catalog.transactions.kill(dead)
        case "lease":
            end_lease(url, other.session)
        case _:
            other.catalog.sessions.close(other.session)
    assert isinstance(user.ratify(version("a", 1)), Ratified)
    assert user.catalog.ledger.reserve(user.begin(), ["a"])
    with pytest.raises(Unavailable, match=ENDED):
        other.catalog.ledger.reserve(dead, ["a"])


def test_published_commits_lose_their_bytes(user: User, url: str) -> None:
    user.create("a", "b")
    for number in (1, 2):
        user.write(version("a", number))
    ledger = user.catalog.ledger
    ledger.record_publication({"a": VersionRange(0, 1)})
    assert ledger.head("a") == Head(version=2, pending=(version("a", 2),))
    content = "SELECT version, content IS NULL FROM txlake_commits WHERE table_id = 'a' ORDER BY 1"
    assert [bool(row[1]) for row in selected(url, content)] == [True, True, False]
    [b, a] = sorted(ledger.pending_tables(), key=lambda table: table.table_id, reverse=True)
    assert (a.location, a.managed, a.is_dropped, a.pending) == (
        "file:///a", True, False, (version("a", 2),),
    )  # fmt: skip
    assert (b.table_id, b.pending) == ("b", (version("b", 0),))
    ledger.record_publication({"a": VersionRange(0, 0)})  # late, and nothing goes back
    ledger.record_publication({"a": VersionRange(0, 99)})
    ledger.record_publication({"b": VersionRange(0, 0)})
    ledger.record_publication({"nowhere": VersionRange(0, 1)})
    assert ledger.head("a") == Head(version=2)
    assert ledger.pending_tables() == []
    user.write(version("a", 3))
    assert ledger.head("a") == Head(version=3, pending=(version("a", 3),))


def test_a_living_table_is_not_among_the_dropped(sqlite_user: User) -> None:
    sqlite_user.create("a", "b")
    sqlite_user.ratify(names=(DroppedTable(id="a"),))
    dropped = sqlite_user.catalog.ledger.dropped_tables()
    assert [(table.table_id, table.pending) for table in dropped] == [("a", (version("a", 0),))]


class Stopped:
    """A group whose leader is stopped: after it did what is asked, or before."""

    def __init__(self, group: GroupCommit[Any, Any], *, is_done: bool) -> None:
        self._group = group
        self._is_done = is_done
        self.asked = 0

    def submit(self, asked: object) -> object:
        self.asked += 1
        if self.asked == 1:
            if self._is_done:
                self._group.submit(asked)
            raise Interrupted
        return self._group.submit(asked)


@pytest.mark.parametrize("is_done", [True, False])
def test_when_the_leader_was_stopped_it_is_looked_for(
    sqlite_user: User, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_user.create("a")
    ledger = sqlite_user.catalog.ledger
    stopped = Stopped(ledger._group, is_done=is_done)
    monkeypatch.setattr(ledger, "_group", stopped)
    assert sqlite_user.write(version("a", 1)).sequence == ledger.sequence() == 2
    assert stopped.asked == (1 if is_done else 2)


def test_a_publication_whose_leader_was_stopped_is_noted(
    sqlite_user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_user.create("a")
    ledger = sqlite_user.catalog.ledger
    notes = ledger._publications
    monkeypatch.setattr(notes, "_group", Stopped(notes._group, is_done=False))
    ledger.record_publication({"a": VersionRange(0, 0)})
    assert ledger.pending_tables() == []


def test_the_newest_commits_are_listed(user: User) -> None:
    first = user.create("a")
    second = user.create("b")
    third = user.write(version("a", 1), version("b", 1))
    user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    listed = user.catalog.ledger.newest_commits()
    assert [(entry.sequence, entry.table, entry.version) for entry in listed] == [
        (3, "default.a", 1), (3, "default.b", 1), (2, "default.b", 0), (1, "default.a", 0),
    ]  # fmt: skip
    assert [entry.is_published for entry in listed] == [False, False, False, True]
    assert [entry.time_ms for entry in listed] == [
        third.time_ms, third.time_ms, second.time_ms, first.time_ms,
    ]  # fmt: skip
    assert {entry.operation for entry in listed} == {"WRITE"}
    assert [entry.version for entry in user.catalog.ledger.newest_commits(limit=1)] == [1]


def test_the_commits_of_a_stretch_of_time(user: User) -> None:
    first, second = user.create("a"), user.create("b")
    ledger = user.catalog.ledger
    both = ledger.commits_between(first.time_ms, second.time_ms, 10)
    assert [(one.sequence, one.table) for one in both] == [(2, "default.b"), (1, "default.a")]
    assert [one.sequence for one in ledger.commits_between(0, second.time_ms, 1)] == [2]
    assert ledger.commits_between(0, first.time_ms - 1, 10) == []
    assert ledger.commits_between(second.time_ms + 1, second.time_ms + 9, 10) == []


@pytest.mark.usefixtures("direct")
def test_what_one_instant_made(user: User) -> None:
    user.create("a")
    user.create("b")
    user.write(version("a", 1), version("b", 1))
    ledger = user.catalog.ledger
    assert [(one.table_id, one.version) for one in ledger.commits_at(3)] == [("a", 1), ("b", 1)]
    assert [(one.table_id, one.version) for one in ledger.commits_at(2)] == [("b", 0)]
    assert ledger.commits_at(0) == []
    for unknown in (-1, 4):
        with pytest.raises(InvalidRequest, match=f"no instant {unknown} .* expected 0 to 3"):
            ledger.commits_at(unknown)
    with write_transaction(user.catalog._database) as connection:
        connection.execute(sa.insert(counters).values(name="floor", value=3))
    assert ledger.commits_at(3)
    with pytest.raises(Unavailable, match="instant 2 of the lake is too old"):
        ledger.commits_at(2)


def test_an_operation_of_any_length_is_taken(user: User) -> None:
    user.create("a")
    user.write(TableCommit(table_id="a", version=1, content=b"", operation="X" * 500))
    assert user.catalog.ledger.newest_commits(1)[0].operation == "X" * 64
