"""A short round of disasters on each kind of catalog, and checks that the audit finds faults."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.disasters.audit import Restore, Verdict, audit
from tests.disasters.catalogs import Catalog, PostgresqlCatalog, SqliteCatalog, StoreCatalog
from tests.disasters.journal import Attempt, Effect, Journal, Note, Outcome, Record, Reply
from tests.disasters.rounds import LEASE_MS, Plan, Stopped, create_lake, run_round
from tests.disasters.worker import close_session, open_session

pytestmark = pytest.mark.no_interop("the audit reads the tables by delta-rs itself")


@pytest.fixture
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    if request.param == "sqlite":
        return SqliteCatalog(tmp_path / "catalog.db")
    if request.param == "store":
        return StoreCatalog((tmp_path / "catalog").as_uri(), tmp_path)
    server = request.getfixturevalue("postgres")
    return PostgresqlCatalog.create(server, f"disasters_{uuid.uuid4().hex}", tmp_path)


@pytest.mark.broad
@pytest.mark.parametrize(
    ("catalog", "stopped"),
    [("sqlite", "none"), ("postgresql", "killed"), ("store", "none")],
    indirect=["catalog"],
)
def test_a_short_round_neither_loses_nor_doubles_rows(
    tmp_path: Path, catalog: Catalog, stopped: Stopped
) -> None:
    plan = Plan(kills=3, freezes=1, restores=(stopped,), processes=3)
    verdict = run_round(tmp_path, catalog, plan, seed=1)
    assert verdict.faults == []
    assert verdict.events == {"kill": 3, "freeze": 1, "restore": 1, "copy": 1}
    assert verdict.outcomes["committed"] > 0
    assert verdict.recoveries > 0


# --- the audit ------------------------------------------------------------------------------------

BOTH: dict[str, list[Effect]] = {"debit": [("add", "x", -5)], "credit": [("add", "x", 5)]}


def one_transaction(
    tmp_path: Path,
    effects: dict[str, list[Effect]],
    following: Callable[[str], Sequence[Record]],
    lost: bool = False,
) -> Verdict:
    """Return the verdict on a lake with one transaction that adds rows of key x to both tables.

    The journal says that its effects were `effects`; `following` gives the journal's other records.
    """
    sqlite = SqliteCatalog(tmp_path / "catalog.db")
    warehouse, journals = tmp_path / "warehouse", tmp_path / "journals"
    journals.mkdir()
    create_lake(warehouse, sqlite)
    session = open_session(str(warehouse), sqlite.url, LEASE_MS)
    transaction = session.begin()
    for table, number in (("debit", -5), ("credit", 5)):
        session.within(transaction, f"INSERT INTO {table} VALUES ('x', {number})")
    transaction.commit()
    close_session(session)
    journal = Journal(str(journals / "1.jsonl"))
    for record in (Attempt(transaction.id, effects), *following(transaction.id)):
        journal.write(record)
    journal.close()
    restores = [Restore("killed", frozenset({"ghost"}))] if lost else []
    return audit(journals, warehouse, sqlite, restores)


def committed(txn_id: str) -> Sequence[Record]:
    return [Reply(txn_id, "committed")]


GHOST_COMMITTED: Sequence[Record] = (Attempt("ghost", BOTH), Reply("ghost", "committed"))


@pytest.mark.parametrize("outcome", ["committed", "unknown"])
def test_a_commit_that_exists_once_is_no_fault(tmp_path: Path, outcome: Outcome) -> None:
    verdict = one_transaction(tmp_path, BOTH, lambda txn_id: [Reply(txn_id, outcome)])
    assert verdict.faults == []
    assert verdict.outcomes == {outcome: 1}
    assert verdict.rows == 18


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        (GHOST_COMMITTED, "told committed: committed in [] of"),
        ([Note("sum", number=7)], "a reader saw the sum 7"),
        ([Note("broken", "KeyError: 1")], "a process broke: KeyError"),
        ([Reply("a", "failed", "Unavailable", "the disk is slow")], "no next step: Unavailable"),
    ],
)
def test_the_audit_finds_a_fault(tmp_path: Path, records: Sequence[Record], fault: str) -> None:
    verdict = one_transaction(tmp_path, BOTH, lambda txn_id: [*committed(txn_id), *records])
    assert len(verdict.faults) == 1
    assert fault in verdict.faults[0]


def test_a_failed_transaction_must_not_be_committed(tmp_path: Path) -> None:
    failed = Reply("", "failed", "Unavailable", "try again")
    verdict = one_transaction(tmp_path, BOTH, lambda txn_id: [replace(failed, id=txn_id)])
    assert any("told to have failed, and is committed" in fault for fault in verdict.faults)


def test_a_restore_may_lose_unpublished_commits(tmp_path: Path) -> None:
    verdict = one_transaction(
        tmp_path, BOTH, lambda txn_id: [*committed(txn_id), *GHOST_COMMITTED], lost=True
    )
    assert verdict.faults == []
    assert verdict.lost_transactions == {"whole of one told committed": 1}


@pytest.mark.parametrize(
    ("effects", "faults"),
    [
        ({**BOTH, "side_1_1": [("add", "x", 1)]}, ["committed in ['debit', 'credit'] of"]),
        ({"debit": BOTH["debit"]}, ["credit: delta-rs", "credit: txlake"]),
        (
            {"debit": BOTH["debit"], "credit": [("add", "x", 6)]},
            ["credit: delta-rs", "credit: txlake"],
        ),
    ],
)
def test_rows_match_the_recorded_effects(
    tmp_path: Path, effects: dict[str, list[Effect]], faults: Sequence[str]
) -> None:
    verdict = one_transaction(tmp_path, effects, committed)
    for fault in faults:
        assert any(fault in one for one in verdict.faults), verdict.faults
