"""A table that a lake's catalog holds: every engine reads what is published, none of them writes.

Once it is detached, it is theirs to write again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from tests.shared_tables.features.one_session import Peers
from tests.shared_tables.workers import Refused
from txlake.commit.membership import ATTACH, DETACH, Membership, attach_actions, detach_actions
from txlake.commit.rebase import Proposal
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.protocol.actions import Action
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

pytestmark = pytest.mark.no_interop("each engine is asked here")

LAKE = Membership(lake="lake-1", table="table-1", name="sales.orders")
CREATE = {
    # The first protocol that there was, and one with features of readers.
    "numbered": "'delta.enableDeletionVectors' = 'false'",
    "listed": "'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true'",
}


def change(folder: Path, operation: str, actions: Callable[[TableTransaction], object]) -> None:
    """One more version, as the catalog's loop would publish it."""
    log = TableLog(open_store(str(folder)), System(), Settings())
    transaction = TableTransaction(log, log.latest())
    staged = actions(transaction)
    assert isinstance(staged, tuple)
    transaction.stage(staged, operation=operation)
    publish(log, transaction.proposal(txn_id="t"))


def publish(log: TableLog, proposal: Proposal) -> None:
    version = proposal.base.version + 1
    made: list[Action] = list(proposal.actions)
    log.write_commit(version, made)


@pytest.mark.broad
@pytest.mark.parametrize("kind", CREATE)
def test_others_read_it_and_write_it_only_when_it_is_detached(
    kind: str, tmp_path: Path, peers: Peers
) -> None:
    folder = tmp_path / "t"
    table = f"delta.`{folder}`"
    peers.txlake.sql(
        f"CREATE TABLE {table} (id BIGINT) USING delta TBLPROPERTIES ({CREATE[kind]})",
    )
    peers.txlake.sql(f"INSERT INTO {table} VALUES (1), (2), (3)")
    change(folder, ATTACH, lambda own: attach_actions(LAKE, own.base))

    insert = f"INSERT INTO {table} VALUES (4)"
    more = pa.table({"id": pa.array([5], pa.int64())})
    with pytest.raises(Refused, match="txlakeCatalog"):
        peers.delta.sql(insert)
    with pytest.raises(Refused, match="txlakeCatalog"):
        peers.delta.sql(f"DELETE FROM {table} WHERE id = 1")
    with pytest.raises(Refused, match=r"lake lake-1, where its name is sales\.orders"):
        peers.txlake.sql(insert)
    with pytest.raises(DeltaError, match="txlakeCatalog"):
        write_deltalake(folder, more, mode="append")
    with pytest.raises(DeltaError, match="txlakeCatalog"):
        DeltaTable(folder).delete("id = 1")

    expected = [1, 2, 3]
    assert rows_of(folder, peers, 2) == [expected] * 5

    change(folder, DETACH, lambda own: detach_actions(own.base))
    peers.delta.sql(insert)
    peers.txlake.sql(f"INSERT INTO {table} VALUES (6)")
    last = 5
    if kind == "numbered":  # delta-rs doesn't write tables with row tracking
        write_deltalake(folder, more, mode="append")
        expected, last = [5], 6
    assert rows_of(folder, peers, last) == [sorted({1, 2, 3, 4, 6} | set(expected))] * 5


def rows_of(folder: Path, peers: Peers, version: int) -> list[list[int]]:
    """What each engine reads at a version, the newest."""
    by_delta_rs = DeltaTable(folder)
    assert by_delta_rs.version() == version
    query = QueryBuilder().register("t", by_delta_rs)
    found = pa.table(query.execute("SELECT id FROM t").read_all())
    with duckdb.connect() as duck:
        by_duckdb = duck.sql("SELECT id FROM found").fetchall()
    spark = [peer.rows(folder, [version], "id")[0] for peer in (peers.delta, peers.txlake)]
    return [
        sorted(found.column("id").to_pylist()),
        sorted(value for (value,) in by_duckdb),
        sorted(pl.read_delta(str(folder)).get_column("id").to_list()),
        *(sorted(json.loads(line)["id"] for line in lines) for lines in spark),
    ]
