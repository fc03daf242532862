"""A transaction over many tables: what a statement costs doesn't grow with their number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.offline import Offline
from txlake.commands import HANDLERS
from txlake.commit.table_transaction import TableTransaction
from txlake.errors import InvalidRequest
from txlake.session.session import Session

TABLES = 6


@pytest.fixture
def lake(tmp_path: Path) -> Offline:
    return Offline((tmp_path / "lake").as_uri())


def test_a_statement_looks_at_its_own_table_alone(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(TABLES):
        lake.run(f"CREATE TABLE t{number} (id INT)")
    looks: list[TableTransaction] = []
    real = TableTransaction.has_changes

    def look(part: TableTransaction) -> bool:
        looks.append(part)
        return bool(real.fget(part))  # type: ignore[attr-defined]

    monkeypatch.setattr(TableTransaction, "has_changes", property(look))
    transaction = Session(lake.engine, HANDLERS).begin()
    counts = []
    for number in range(TABLES):
        looks.clear()
        lake.run_in(transaction, f"INSERT INTO t{number} VALUES (1)")
        counts.append(len(looks))
    assert counts == [counts[0]] * TABLES
    transaction.commit()


def test_a_path_table_is_not_written_beside_tables_of_a_lake(lake: Offline, tmp_path: Path) -> None:
    place = (tmp_path / "alone").as_uri()
    lake.run(f"CREATE TABLE t (id INT); CREATE TABLE delta.`{place}` (id INT)")
    for first, second in (("t", f"delta.`{place}`"), (f"delta.`{place}`", "t")):
        transaction = Session(lake.engine, HANDLERS).begin()
        lake.run_in(transaction, f"INSERT INTO {first} VALUES (1)")
        with pytest.raises(InvalidRequest, match="alone"):
            lake.run_in(transaction, f"INSERT INTO {second} VALUES (1)")
        transaction.rollback()
