"""The disasters' short form on both databases, and that the audit sees what must not be."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.disasters.audit import Restore, Verdict, audit
from tests.disasters.catalogs import Catalog, PostgresqlCatalog, SqliteCatalog
from tests.disasters.journal import Answer, Asked, Effect, Journal, Note, Record, Told
from tests.disasters.rounds import LEASE_MS, Plan, Who, make, round_of
from tests.disasters.worker import closed, opened

pytestmark = pytest.mark.no_interop("the audit reads the tables by delta-rs itself")


@pytest.fixture
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    if request.param == "sqlite":
        return SqliteCatalog(tmp_path / "catalog.db")
    server = request.getfixturevalue("postgres")
    return PostgresqlCatalog.made(server, f"disasters_{uuid.uuid4().hex}", tmp_path)


@pytest.mark.broad
@pytest.mark.parametrize(
    ("catalog", "stopped"), [("sqlite", "none"), ("postgresql", "killed")], indirect=["catalog"]
)
def test_a_short_disaster_loses_and_doubles_nothing(
    tmp_path: Path, catalog: Catalog, stopped: Who
) -> None:
    plan = Plan(kills=3, freezes=1, restores=(stopped,), processes=3)
    verdict = round_of(tmp_path, catalog, plan, seed=1)
    assert verdict.faults == []
    assert verdict.happened == {"kill": 3, "freeze": 1, "restore": 1, "copy": 1}
    assert verdict.told["committed"] > 0
    assert verdict.recoveries > 0


# --- the audit ------------------------------------------------------------------------------------

BOTH: dict[str, list[Effect]] = {"debit": [("add", "x", -5)], "credit": [("add", "x", 5)]}


def one_transaction(
    tmp_path: Path,
    asked: dict[str, list[Effect]],
    told: Callable[[str], Sequence[Record]],
    lost: bool = False,
) -> Verdict:
    """The verdict on a lake in which one transaction has added rows of key x to both tables.

    It is noted as having `asked` for that; `told` gives the rest of the journal.
    """
    sqlite = SqliteCatalog(tmp_path / "catalog.db")
    warehouse, journals = tmp_path / "warehouse", tmp_path / "journals"
    journals.mkdir()
    make(warehouse, sqlite)
    session = opened(str(warehouse), sqlite.url, LEASE_MS)
    transaction = session.begin()
    for table, number in (("debit", -5), ("credit", 5)):
        session.within(transaction, f"INSERT INTO {table} VALUES ('x', {number})")
    transaction.commit()
    closed(session)
    journal = Journal(str(journals / "1.jsonl"))
    for record in (Asked(transaction.id, asked), *told(transaction.id)):
        journal.write(record)
    journal.close()
    restores = [Restore("killed", frozenset({"ghost"}))] if lost else []
    return audit(journals, warehouse, sqlite, restores)


def committed(txn_id: str) -> Sequence[Record]:
    return [Answer(txn_id, "committed")]


GHOST_TOLD: Sequence[Record] = (Asked("ghost", BOTH), Answer("ghost", "committed"))


@pytest.mark.parametrize("told", ["committed", "unknown"])
def test_what_stands_once_is_no_fault(tmp_path: Path, told: Told) -> None:
    verdict = one_transaction(tmp_path, BOTH, lambda txn_id: [Answer(txn_id, told)])
    assert verdict.faults == []
    assert verdict.told == {told: 1}
    assert verdict.rows == 18


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        (GHOST_TOLD, "told committed: stands in [] of"),
        ([Note("sum", number=7)], "a reader saw the sum 7"),
        ([Note("broken", "KeyError: 1")], "a process broke: KeyError"),
        ([Answer("a", "failed", "Unavailable", "the disk is slow")], "no way out: Unavailable"),
    ],
)
def test_the_audit_sees(tmp_path: Path, records: Sequence[Record], fault: str) -> None:
    verdict = one_transaction(tmp_path, BOTH, lambda txn_id: [*committed(txn_id), *records])
    assert len(verdict.faults) == 1
    assert fault in verdict.faults[0]


def test_what_was_told_to_have_failed_must_not_stand(tmp_path: Path) -> None:
    failed = Answer("", "failed", "Unavailable", "try again")
    verdict = one_transaction(tmp_path, BOTH, lambda txn_id: [replace(failed, id=txn_id)])
    assert any("told to have failed, and stands" in fault for fault in verdict.faults)


def test_a_restore_may_take_what_was_never_published(tmp_path: Path) -> None:
    verdict = one_transaction(
        tmp_path, BOTH, lambda txn_id: [*committed(txn_id), *GHOST_TOLD], lost=True
    )
    assert verdict.faults == []
    assert verdict.given_up == {"whole of one told committed": 1}


@pytest.mark.parametrize(
    ("asked", "faults"),
    [
        ({**BOTH, "side_1_1": [("add", "x", 1)]}, ["stands in ['debit', 'credit'] of"]),
        ({"debit": BOTH["debit"]}, ["credit: delta-rs", "credit: txlake"]),
        (
            {"debit": BOTH["debit"], "credit": [("add", "x", 6)]},
            ["credit: delta-rs", "credit: txlake"],
        ),
    ],
)
def test_rows_are_those_that_were_asked_for(
    tmp_path: Path, asked: dict[str, list[Effect]], faults: Sequence[str]
) -> None:
    verdict = one_transaction(tmp_path, asked, committed)
    for fault in faults:
        assert any(fault in one for one in verdict.faults), verdict.faults
