"""Clustering by both engines: what one has clustered, the other one leaves alone."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

import txlake
from tests.shared_tables.features.one_session import Peer, Peers
from tests.shared_tables.features.test_written_by_delta import latest

pytestmark = [
    pytest.mark.broad,
    pytest.mark.no_interop("Delta Spark reads the newest version here"),
]

_logger = logging.getLogger(__name__)
COLUMNS = "`9 x` INT, a STRING, s STRUCT<b: INT, `c.d`: DATE>"
ROWS = (
    "SELECT INT(id % 7), IF(id % 3 = 0, NULL, STRING(id)), "
    "named_struct('b', INT(-id), 'c.d', date_add(DATE'2026-01-01', INT(id))) "
    "FROM range({}, {}, 1, 2)"
)


def _leaves_alone(engine: Peer, table: str, folder: Path, *, full: bool = True) -> None:
    """The engine's OPTIMIZE adds no version."""
    before = latest(folder)
    engine.sql(f"OPTIMIZE {table}")
    if full:
        engine.sql(f"OPTIMIZE {table} FULL")
    assert latest(folder) == before, f"{engine.engine} has clustered what was clustered"


@pytest.mark.parametrize("columns", ["s.b, a", "a", "`9 x`, s.`c.d`, a"])
def test_what_one_engine_clustered_the_other_leaves_alone(
    columns: str, tmp_path: Path, peers: Peers
) -> None:
    folder = tmp_path / "t"
    table = f"delta.`{folder}`"
    ours, theirs = peers.txlake, peers.delta
    ours.sql(
        f"CREATE TABLE {table} ({COLUMNS}) USING delta CLUSTER BY ({columns}) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    for engine, other in ((ours, theirs), (theirs, ours), (ours, theirs)):
        for start in (0, 40):
            other.sql(f"INSERT INTO {table} {ROWS.format(start, start + 40)}")
        engine.sql(f"DELETE FROM {table} WHERE s.b = -3")
        before = latest(folder)
        engine.sql(f"OPTIMIZE {table}")
        assert latest(folder) == before + 1
        _leaves_alone(other, table, folder)
        _leaves_alone(engine, table, folder)
    assert ours.rows(folder, [latest(folder)]) == theirs.rows(folder, [latest(folder)])


def test_files_of_other_columns_wait_for_full(tmp_path: Path, peers: Peers) -> None:
    folder = tmp_path / "t"
    table = f"delta.`{folder}`"
    ours, theirs = peers.txlake, peers.delta
    ours.sql(f"CREATE TABLE {table} (k INT, v INT) USING delta CLUSTER BY (k)")
    for engine, other, column in ((ours, theirs, "v"), (theirs, ours, "k")):
        other.sql(f"INSERT INTO {table} SELECT INT(id), INT(-id) FROM range(0, 50, 1, 2)")
        other.sql(f"OPTIMIZE {table}")
        engine.sql(f"ALTER TABLE {table} CLUSTER BY ({column})")
        _leaves_alone(engine, table, folder, full=False)
        _leaves_alone(other, table, folder, full=False)
        engine.sql(f"OPTIMIZE {table} FULL")
        _leaves_alone(other, table, folder)
    assert ours.rows(folder, [latest(folder)]) == theirs.rows(folder, [latest(folder)])


def test_few_files_are_read_for_two_columns(tmp_path: Path, peers: Peers) -> None:
    """The share of all files that conditions on both columns read, by how the table is ordered."""
    ours, theirs = peers.txlake, peers.delta
    ours.sql("CREATE OR REPLACE TEMP VIEW points AS " + POINTS)
    theirs.sql(f"SET spark.databricks.delta.optimize.maxFileSize = {FILE_BYTES}")
    shares = {}
    try:
        for name, engine, clause, optimize in (
            ("unclustered", ours, "", None),
            ("Z-order", ours, "", "OPTIMIZE {} ZORDER BY (x, y)"),
            ("clustered by txlake", ours, "CLUSTER BY (x, y)", "OPTIMIZE {}"),
            ("clustered by Delta Spark", theirs, "CLUSTER BY (x, y)", "OPTIMIZE {}"),
        ):
            folder = tmp_path / name.replace(" ", "-")
            table = f"delta.`{folder}`"
            ours.sql(
                f"CREATE TABLE {table} (x INT, y INT, pad STRING) USING delta {clause} "
                f"TBLPROPERTIES ('delta.targetFileSize' = '{FILE_BYTES}')"
            )
            ours.sql(f"INSERT INTO {table} SELECT /*+ REPARTITION(30) */ * FROM points")
            if optimize is not None:
                engine.sql(optimize.format(table))
            shares[name] = _share_read(folder)
    finally:
        theirs.sql("RESET spark.databricks.delta.optimize.maxFileSize")
    _logger.info("files read of all: %s", {name: round(one, 3) for name, one in shares.items()})
    assert shares["unclustered"] == 1
    assert shares["clustered by txlake"] < 0.3
    assert shares["clustered by txlake"] <= shares["Z-order"]
    assert shares["clustered by txlake"] <= shares["clustered by Delta Spark"] * 1.2


POINTS = (
    "SELECT INT(pmod(hash(id, 1), 10000)) x, INT(pmod(hash(id, 2), 10000)) y, "
    "sha1(STRING(id)) pad FROM range(0, 60000, 1, 2)"
)
FILE_BYTES = 100_000


def _share_read(folder: Path) -> float:
    """Over conditions that a hundredth of the rows match."""
    snapshot = txlake.Log(str(folder)).snapshot()
    total = snapshot.files().num_rows
    assert 20 <= total <= 60
    chance = random.Random(1)
    read = 0
    for _ in range(200):
        x, y = chance.randrange(9_000), chance.randrange(9_000)
        where = f"x BETWEEN {x} AND {x + 999} AND y BETWEEN {y} AND {y + 999}"
        read += snapshot.files(where).num_rows
    return read / 200 / total
