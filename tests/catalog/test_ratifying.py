"""What a group of requests changes, and what of others it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import User, execute, new, selected, version
from tests.catalog.open_transactions import write_transaction
from txlake.catalog import prepared as prepared_statements
from txlake.catalog import ratifying
from txlake.catalog.fence import Fence
from txlake.catalog.prepared import Prepared
from txlake.catalog.publishing import PublicationNote
from txlake.catalog.ratifying import Decision, Ratifier
from txlake.catalog.relations import commits
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import InvalidRequest
from txlake.ports import Head, HeadsMoved, NewTable, Ratification, Ratified, TurnTaken

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def user(sqlite_user: User) -> User:
    return sqlite_user


def pipelined(user: User, *requests: Ratification) -> list[Decision]:
    """The decisions on a group."""
    database = user.catalog._database
    with write_transaction(database) as connection:
        ratifier = Ratifier(database, Fence("catalog"), user.catalog.unregistered)
        decided = ratifier.decide(connection, requests)
        decided.commit()
    return list(decided.decisions)


def hold(user: User, transaction_id: str, resource: Resource) -> None:
    request = LockRequest(resource=resource, mode=LockMode.X)
    user.catalog.locks.acquire(user.session, transaction_id, [request], 0)


def test_each_table_has_its_own_head(user: User) -> None:
    user.create("a", "b")
    for number in (1, 2, 3):
        user.write(version("a", number))
    user.write(version("b", 1))
    heads = {name: user.catalog.ledger.head(name) for name in "ab"}
    assert {name: head and head.version for name, head in heads.items()} == {"a": 3, "b": 1}


def test_a_table_without_a_version_stays_so_when_others_are_written(user: User) -> None:
    user.create("a")
    user.ratify(names=(new("empty", head=-1),))
    user.write(version("a", 1))
    assert user.catalog.ledger.head("empty") == Head(version=-1)


def test_a_turn_is_one_tables(user: User) -> None:
    user.create("a", "b")
    assert user.catalog.ledger.reserve(user.begin(), ["a"])
    assert isinstance(user.ratify(version("b", 1)), Ratified)
    assert isinstance(user.ratify(version("a", 1)), TurnTaken)


def test_a_turn_that_is_not_asked_for_is_not_taken(user: User) -> None:
    user.create("a", "b")
    assert user.catalog.ledger.reserve(user.begin(), ["a"])
    assert user.catalog.ledger.reserve(user.begin(), ["b"])


def test_a_turn_ends_with_its_lease_though_nobody_looked(
    user: User, sqlite_other: User, sqlite_url: str
) -> None:
    user.create("a")
    assert sqlite_other.catalog.ledger.reserve(sqlite_other.begin(), ["a"])
    dead = (
        f"UPDATE txlake_sessions SET lease_ms = 1, warned = true WHERE id = {sqlite_other.session}"
    )
    execute(sqlite_url, dead)
    assert isinstance(user.ratify(version("a", 1)), Ratified)


@pytest.mark.parametrize(
    ("kind", "subtype"), [(ResourceType.OBJECT, ""), (ResourceType.KEY, "COMMIT")]
)
def test_other_locks_are_no_turn(user: User, kind: ResourceType, subtype: str) -> None:
    user.create("a")
    entry = user.catalog.find("default", "a")
    assert entry is not None
    locked = Resource(type=kind, database=1, entity=entry.number, subtype=subtype)
    hold(user, user.begin(), locked)
    assert isinstance(user.ratify(version("a", 1)), Ratified)


def test_a_name_alone_is_attached_without_a_commit(user: User) -> None:
    entry = user.name("t")
    attached = replace(new("t", head=3), id=entry.id)
    assert isinstance(user.ratify(names=(attached,)), Ratified)
    found = user.catalog.find("default", "t")
    assert found is not None
    assert (found.number, found.head) == (entry.number, 3)


def test_a_transaction_is_ratified_once_in_a_group(user: User) -> None:
    user.create("a", "b")
    one = Ratification(transaction_id=user.begin(), commits=(version("a", 1),))
    again = Ratification(transaction_id=one.transaction_id, commits=(version("b", 1),))
    first, second = pipelined(user, one, again)
    assert isinstance(first, Ratified)
    assert isinstance(second, InvalidRequest)
    assert "ratified already" in str(second)
    assert user.catalog.ledger.head("b") == Head(version=0, pending=(version("b", 0),))


def test_a_new_table_is_not_made_where_another_one_is(user: User) -> None:
    user.create("a")
    twin = NewTable(id="b", database="default", name="b", location="file:///a", managed=True)
    with pytest.raises(InvalidRequest, match="another table at file:///a"):
        user.ratify(version("b", 0), names=(twin,))


def test_a_table_that_comes_leaves_the_versions_of_others(user: User) -> None:
    user.create("a")
    for number in (1, 2):
        user.write(version("a", number))
    user.ratify(names=(new("b", head=1),))
    ledger = user.catalog.ledger
    pending = tuple(version("a", number) for number in range(3))
    assert ledger.head("a") == Head(version=2, pending=pending)
    user.ratify(names=(new("c", head=-1),))
    assert ledger.head("a") == Head(version=2, pending=pending)


def test_a_commit_is_trace_enough(user: User, sqlite_url: str) -> None:
    user.create("a")
    user.write(version("a", 1))
    assert selected(sqlite_url, "SELECT count(*) FROM txlake_bare_ratifications") == [(0,)]


def test_what_is_written_is_sent_at_one_go(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.create("a")
    given, text_of = prepared_statements.pipelined, Prepared._text
    sent: list[list[str]] = []
    inside: list[bool] = []

    @contextmanager
    def watched(connection: sa.Connection, *, commits: bool = False) -> Iterator[None]:
        inside.append(True)
        sent.append([])
        with given(connection, commits=commits):
            yield
        inside.clear()

    def noted(self: Prepared, *given: Any) -> Any:
        text = text_of(self, *given)
        if inside:
            sent[-1].append(" ".join(text.sql.split()[:3]))
        return text

    transaction_id = user.begin()
    monkeypatch.setattr(ratifying, "pipelined", watched)
    monkeypatch.setattr(Prepared, "_text", noted)
    user.ratify(version("a", 1), transaction_id=transaction_id)
    assert sent[-1] == [
        "INSERT INTO txlake_commits", "UPDATE txlake_tables SET",
        "DELETE FROM txlake_transactions", "DELETE FROM txlake_locks",
        "UPDATE txlake_counters SET",
    ]  # fmt: skip


def test_a_lost_attempt_is_counted_for_its_transaction_alone(user: User) -> None:
    user.create("a")
    mine, other = user.begin(), user.begin()
    late = Ratification(transaction_id=mine, commits=(version("a", 7),))
    for _ in range(2):
        assert pipelined(user, late) == [HeadsMoved(heads={"a": 0})]
    counts = {one.id: one.lost_attempts for one in user.catalog.transactions.entries()}
    assert (counts[mine], counts[other]) == (2, 0)


def test_what_was_published_is_noted_where_nothing_is_ratified(user: User) -> None:
    user.create("a")
    made = user.write(version("a", 1))
    database = user.catalog._database
    with write_transaction(database) as connection:
        maker = connection.execute(
            sa.select(commits.c.transaction_id).where(commits.c.sequence == made.sequence)
        ).scalar_one()
        first = connection.execute(
            sa.select(commits.c.transaction_id).where(commits.c.version == 0)
        ).scalar_one()
        notes = [PublicationNote("a", 0, first), PublicationNote("a", 1, maker)]
        ratifier = Ratifier(database, Fence("catalog"), user.catalog.unregistered)
        decided = ratifier.decide(connection, [], notes)
        assert decided.decisions == []
        decided.commit()
    assert user.catalog.ledger.head("a") == Head(version=1)
