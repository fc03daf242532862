"""Ctrl-C in the life of a transaction: what it says of itself, and what the catalog has of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.session.offline import plane_without_spark
from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.commit.data_plane import DataPlane
from txlake.commit.lake_commit import commit_together
from txlake.errors import InvalidRequest
from txlake.protocol.types import Struct
from txlake.session import transaction
from txlake.session.command import nothing
from txlake.session.transaction import State, Transaction
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System


@pytest.fixture
def session(request: pytest.FixtureRequest) -> RowSession:
    system = System()
    engine = RowEngine(
        system=system,
        settings=Settings(),
        warehouse=open_store(f"memory://{request.node.name}/lake"),
        catalog=Catalog("sqlite://", system),
    )
    session = RowSession(engine)
    session.rows("CREATE TABLE t (n INT) USING delta")
    return session


def catalog_of(session: RowSession) -> Catalog:
    return session.engine.catalog.of_lake()


def stopped_after(method: Callable[..., Any]) -> Callable[..., Any]:
    def stopped(*args: Any, **kwargs: Any) -> None:
        method(*args, **kwargs)
        raise KeyboardInterrupt

    return stopped


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_beginning_that_nobody_holds_ends(
    session: RowSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = catalog_of(session).transactions
    with monkeypatch.context() as patched:
        patched.setattr(transactions, "announce", stopped_after(transactions.announce))
        with pytest.raises(KeyboardInterrupt):
            session.begin()
    assert len(transactions.entries()) == 1
    session.rows("SELECT n FROM t")
    assert transactions.entries() == []


def test_an_end_that_was_stopped_is_made_up_for(
    session: RowSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions, held = catalog_of(session).transactions, session.begin()
    session.within(held, "INSERT INTO t VALUES (1)")
    with monkeypatch.context() as patched:
        patched.setattr(transactions, "end", stop)
        with pytest.raises(KeyboardInterrupt):
            held.rollback()
    assert held.state is State.ROLLED_BACK
    assert [one.id for one in transactions.entries()] == [held.id]
    catalog_of(session).sessions.renew()
    assert transactions.entries() == []


def test_a_rollback_ends_what_another_one_could_not(
    session: RowSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions, held = catalog_of(session).transactions, session.begin()
    with monkeypatch.context() as patched:
        patched.setattr(transactions, "abandon", stop)
        with pytest.raises(KeyboardInterrupt):
            held.rollback()
    held.rollback()
    assert held.state is State.ROLLED_BACK
    assert transactions.entries() == []


def test_a_commit_that_stands_is_never_told_as_rolled_back(
    session: RowSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = session.begin()
    session.within(held, "INSERT INTO t VALUES (1)")
    monkeypatch.setattr(Transaction, "_end", stop)
    with pytest.raises(KeyboardInterrupt):
        held.commit()
    monkeypatch.undo()
    held.rollback()
    assert held.state is State.COMMITTED
    assert session.rows("SELECT n FROM t") == [{"n": 1}]


def test_a_commit_that_may_stand_is_unknown_whatever_was_stopped(
    session: RowSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = session.begin()
    session.within(held, "INSERT INTO t VALUES (1)")
    with monkeypatch.context() as patched:
        patched.setattr(transaction, "commit_together", stopped_after(commit_together))
        patched.setattr(Transaction, "_fail_as", stop)
        with pytest.raises(KeyboardInterrupt):
            held.commit()
    held.rollback()
    assert held.state is State.UNKNOWN
    assert session.rows("SELECT n FROM t") == [{"n": 1}]


def test_a_statement_whose_failure_was_stopped_is_never_committed(
    session: RowSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.rows("BEGIN")
    session.rows("INSERT INTO t VALUES (1)")
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "_end", stop)
        with pytest.raises(KeyboardInterrupt):
            session.rows("SELECT nothing FROM t")
    with pytest.raises(InvalidRequest, match="rolled back because a statement failed"):
        session.rows("COMMIT")
    session.rows("ROLLBACK")
    assert session.rows("SELECT n FROM t") == []
    assert catalog_of(session).transactions.entries() == []


@pytest.mark.parametrize("last", ["COMMIT", "ROLLBACK"])
def test_a_session_goes_on_after_an_end_that_was_stopped(
    session: RowSession, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    session.rows("BEGIN")
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, last.lower(), stop)
        with pytest.raises(KeyboardInterrupt):
            session.rows(last)
    assert session.current is None
    session.rows("BEGIN; INSERT INTO t VALUES (2); COMMIT")
    assert session.rows("SELECT n FROM t") == [{"n": 2}]


def stumble(*_: object) -> None:
    """As py4j may, whose clean-up fails while an interrupt passes through it."""
    try:
        raise KeyboardInterrupt
    finally:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


@pytest.mark.parametrize(
    "answer",
    [
        lambda plane: plane.counts({"num_affected_rows": 1}),
        lambda plane: plane.frame(Struct(()), []),
        nothing,
    ],
)
def test_an_interrupt_of_an_answer_stays_one(answer: Callable[[DataPlane], object]) -> None:
    plane = plane_without_spark(System(), Settings())
    spark: Any = SimpleNamespace(
        sql=stumble, createDataFrame=stumble, _jvm=MagicMock(), _jsparkSession=None
    )
    plane._spark = spark
    with pytest.raises(KeyboardInterrupt):
        answer(plane)
