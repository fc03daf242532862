"""A catalog that isn't the one any more that was opened: another epoch, an instant gone back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.catalog.ledgers import User, execute, selected, version
from txlake.catalog import Catalog
from txlake.errors import CorruptTable, OutcomeUnknown, Unavailable
from txlake.ports import Ratification, VersionRange
from txlake.system import System

COUNTERS = "SELECT name, value FROM txlake_counters"


@pytest.fixture
def user(sqlite_url: str) -> User:
    made = User(Catalog(sqlite_url, System()))
    made.create("a")
    return made


OPERATIONS: dict[str, Callable[[User, str], object]] = {
    "instant": lambda user, _: user.catalog.ledger.sequence(),
    "version": lambda user, _: user.catalog.ledger.version_at("a", 1),
    "pin": lambda user, transaction: user.catalog.transactions.pin(transaction),
    "ratify": lambda user, transaction: user.ratify(version("a", 1), transaction_id=transaction),
}
IN_AN_EPOCH: dict[str, Callable[[User, str], object]] = {
    **OPERATIONS,
    "head": lambda user, _: user.catalog.ledger.head("a"),
    "head of no table": lambda user, _: user.catalog.ledger.head("nowhere"),
    "publish": lambda user, _: user.catalog.ledger.record_publication({"a": VersionRange(0, 0)}),
    "ratify what was ended": lambda user, _: user.catalog.ledger.ratify(
        Ratification(transaction_id="nobody's", commits=(version("a", 1),))
    ),
}


@pytest.mark.parametrize("operation", IN_AN_EPOCH)
def test_nothing_is_asked_or_done_in_another_epoch(
    user: User, sqlite_url: str, operation: str
) -> None:
    transaction = user.begin()
    execute(sqlite_url, "INSERT INTO txlake_facts VALUES ('epoch', '2')")
    with pytest.raises(Unavailable, match=r"rebuilt it \(epoch 2\)"):
        IN_AN_EPOCH[operation](user, transaction)


def test_a_copy_from_before_a_recovery_is_told_as_one(user: User) -> None:
    user.catalog._fence.epoch = 3
    with pytest.raises(Unavailable, match=r"a copy from before .* \(epoch 1\).* \(epoch 3\)"):
        user.catalog.ledger.head("a")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_is_asked_or_done_at_an_instant_that_went_back(user: User, operation: str) -> None:
    transaction = user.begin()
    user.catalog._fence.newest += 1
    with pytest.raises(CorruptTable, match="restored from a backup"):
        OPERATIONS[operation](user, transaction)


def test_the_newest_instant_is_that_of_the_own_commit(user: User) -> None:
    made = user.write(version("a", 1))
    assert user.catalog._fence.newest == made.sequence


class Impatient(System):
    """Nobody is to wait."""

    def wait_ms(self, duration_ms: float) -> None:
        raise AssertionError("it waits")


def test_a_lost_reply_isnt_looked_for_where_the_catalog_went_back(sqlite_url: str) -> None:
    catalog = Catalog(sqlite_url, Impatient())
    catalog._fence.newest += 1
    with pytest.raises(OutcomeUnknown, match="restored from a backup"):
        catalog._database.run_shielded(lambda: catalog.ledger._find_ratified(["t"]))


def test_what_does_not_follow_is_not_noted_as_published(user: User) -> None:
    for number in (1, 2):
        user.write(version("a", number))
    user.catalog.ledger.record_publication({"a": VersionRange(1, 2)})
    head = user.catalog.ledger.head("a")
    assert head is not None
    assert [one.version for one in head.pending] == [0, 1, 2]


def test_a_session_that_the_catalog_forgot_keeps_its_number_from_others(
    user: User, sqlite_url: str
) -> None:
    execute(
        sqlite_url,
        "DELETE FROM txlake_transactions",
        "DELETE FROM txlake_sessions",
        "UPDATE txlake_counters SET value = 0 WHERE name = 'session'",
    )
    user.begin()
    counters = selected(sqlite_url, COUNTERS)
    assert ("session", user.session) in counters
    assert ("lock", 0) in counters


def test_a_session_that_is_entered_again_takes_no_number_back(user: User, sqlite_url: str) -> None:
    newer = User(user.catalog)
    execute(sqlite_url, f"DELETE FROM txlake_sessions WHERE id = {user.session}")
    user.begin()
    assert ("session", newer.session) in selected(sqlite_url, COUNTERS)
