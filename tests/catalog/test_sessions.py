"""Sessions: whose lease is renewed, which are known here, and what is logged."""

from __future__ import annotations

import pwd
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.catalog.ledgers import User, execute, living, selected
from txlake.errors import Unavailable

LEASES = "SELECT id, lease_ms FROM txlake_sessions ORDER BY id"


@pytest.fixture
def user(sqlite_user: User) -> User:
    return sqlite_user


def refuse(*_: object) -> None:
    raise Unavailable("catalog: it rains")


def refuse_user(_: int) -> None:
    raise KeyError


def test_each_process_renews_its_own(user: User, sqlite_other: User, sqlite_url: str) -> None:
    execute(sqlite_url, "UPDATE txlake_sessions SET lease_ms = lease_ms - 60000")
    before = selected(sqlite_url, LEASES)
    user.catalog.sessions.renew()
    assert [entry.id for entry in sqlite_other.catalog.sessions.entries()] == [user.session]
    assert selected(sqlite_url, LEASES)[1:] == before[1:]


def test_a_closed_session_is_not_renewed(user: User, caplog: pytest.LogCaptureFixture) -> None:
    closed = user.catalog.sessions.open()
    user.catalog.sessions.renew()
    user.catalog.sessions.close(closed)
    user.catalog.sessions.renew()
    assert [entry.id for entry in user.catalog.sessions.entries()] == [user.session]
    assert caplog.text == ""


def test_a_closed_sessions_transactions_end_and_no_others(user: User, sqlite_other: User) -> None:
    user.begin()
    stays = sqlite_other.begin()
    user.catalog.sessions.close(user.session)
    assert [entry.id for entry in sqlite_other.catalog.transactions.entries()] == [stays]


def test_without_sessions_the_database_is_not_asked(
    user: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = user.catalog.sessions
    sessions.close(user.session)
    monkeypatch.setattr(user.catalog._database, "write_relaxed", refuse)
    sessions.renew()
    sessions.stop()
    assert caplog.text == ""


def test_what_can_not_be_ended_ends_by_itself(
    user: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(user.catalog._database, "write_relaxed", refuse)
        user.catalog.sessions.stop()
    assert f"sessions [{user.session}] end when their leases do" in caplog.text
    assert [entry.id for entry in user.catalog.sessions.entries()] == [user.session]


def test_a_catalog_that_stops_ends_its_sessions(user: User, sqlite_other: User) -> None:
    transaction_id = sqlite_other.begin()
    sqlite_other.catalog.sessions.stop()
    assert [entry.id for entry in user.catalog.sessions.entries()] == [user.session]
    assert transaction_id not in living(user.catalog.transactions)


class Heart:
    """Notes when it is to beat."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self) -> None:
        self.told.append("start")

    def stop(self) -> None:
        self.told.append("stop")


def test_the_heart_beats_while_sessions_are_open(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = user.catalog.sessions
    sessions._heartbeat.stop()
    heart = Heart()
    monkeypatch.setattr(sessions, "_heartbeat", heart)
    sessions.open()
    sessions.stop()
    assert heart.told == ["start", "stop"]


def test_a_user_without_a_name_has_sessions(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", refuse_user)
    nameless = user.catalog.sessions.open()
    names = {entry.id: entry.user_name for entry in user.catalog.sessions.entries()}
    assert names[nameless] is None


class Guarded(set[int]):
    """A set that is only looked at and changed by who has the lock."""

    def __init__(self, lock: threading.Lock, given: set[int]) -> None:
        super().__init__(given)
        self._lock = lock

    def add(self, element: int, /) -> None:
        assert self._lock.locked()
        super().add(element)

    def discard(self, element: object, /) -> None:
        assert self._lock.locked()
        super().discard(element)

    def __iter__(self) -> Iterator[int]:
        assert self._lock.locked()
        return super().__iter__()


@pytest.mark.parametrize(
    "do",
    [
        lambda user: user.catalog.sessions.open(),
        lambda user: user.catalog.sessions.close(user.session),
        lambda user: user.catalog.sessions.renew(),
        lambda user: user.catalog.sessions.stop(),
    ],
    ids=["open", "close", "renew", "stop"],
)
def test_threads_change_the_open_ones_in_turn(user: User, do: Callable[[User], object]) -> None:
    sessions = user.catalog.sessions
    sessions._open = Guarded(sessions._changing, sessions._open)
    do(user)
    assert not sessions._changing.locked()
