"""The conflict journal: the newest conflicts with their evidence."""

from __future__ import annotations

import datetime
import decimal
import os
from collections.abc import Callable

import pytest

from tests.catalog.ledgers import execute, selected
from txlake.catalog import Catalog, journal
from txlake.errors import ConcurrentAppendException, Deadlock, Evidence, Unavailable

EVIDENCE = Evidence(
    table="db.t",
    read_version=3,
    winning_version=4,
    winning_operation="MERGE",
    winning_timestamp_ms=5,
    rule="append",
    predicate="a = 'é'",
    files=("p=1/a.parquet", "b.parquet"),
    rows=({"a": 1, "d": datetime.date(2026, 1, 2), "n": decimal.Decimal("1.50"), "b": b"\x00"},),
    isolation="serializable",
    retry=False,
    advice="again",
)


def test_conflicts_are_kept_with_their_evidence(opened: Callable[[], Catalog]) -> None:
    here, there = opened(), opened()
    here.journal.record("t1", 7, ConcurrentAppendException("rows came", EVIDENCE))
    here.journal.record("t2", None, Deadlock("victim"))
    newest, older = there.journal.conflicts()
    assert (newest.transaction_id, newest.session_id, newest.error) == ("t2", None, "Deadlock")
    assert (newest.message, newest.evidence) == ("victim (error 1205)", None)
    assert (older.transaction_id, older.session_id) == ("t1", 7)
    assert (older.error, older.message) == ("ConcurrentAppendException", "rows came")
    assert older.time_ms <= newest.time_ms
    assert (older.transaction_number, older.begin_ms, older.process) == (None, None, None)
    evidence = older.evidence
    assert evidence is not None
    assert evidence.rows == ({"a": 1, "d": "2026-01-02", "n": "1.50", "b": "b'\\x00'"},)
    for name in Evidence.__slots__:
        if name != "rows":
            assert getattr(evidence, name) == getattr(EVIDENCE, name), name
    assert there.journal.conflicts(limit=1) == [newest]
    assert there.journal.conflict(older.id) == older
    assert there.journal.conflict(99) is None


def test_of_an_open_transaction_it_is_noted_who_it_was(opened: Callable[[], Catalog]) -> None:
    catalog = opened()
    session = catalog.sessions.open()
    number = catalog.transactions.begin("t1", session)
    (entry,) = catalog.transactions.entries()
    catalog.journal.record("t1", session, Deadlock("victim"))
    catalog.transactions.end("t1")
    (found,) = catalog.journal.conflicts()
    assert (found.transaction_number, found.begin_ms) == (number, entry.begin_ms)
    assert (found.session_id, found.process) == (session, os.getpid())


def test_the_oldest_conflicts_go(
    opened: Callable[[], Catalog], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "CONFLICTS_MAX", 3)
    catalog = opened()
    for number in range(5):
        catalog.journal.record(f"t{number}", None, Deadlock("victim"))
    assert [entry.transaction_id for entry in catalog.journal.conflicts()] == ["t4", "t3", "t2"]
    assert selected(url, "SELECT count(*) FROM txlake_conflicts") == [(3,)]


def test_a_journal_that_can_not_be_written_is_logged(
    opened: Callable[[], Catalog], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = opened()
    execute(url, "DROP TABLE txlake_conflicts")
    catalog.journal.record("t1", None, Deadlock("victim"))
    assert "the conflict of transaction t1 isn't recorded" in caplog.text
    with pytest.raises(Unavailable):
        catalog.journal.conflicts()
