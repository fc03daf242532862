"""txlake, Delta Kernel in Java and Delta Kernel in Rust write open tables through one server.

Two processes of txlake, one in the lake's folder and one as the server's client, have transactions
over two tables. Both Kernels append to one table a commit, and the one in Rust deletes by deletion
vectors. All of them are killed at random moments, the server too. Nothing that was acknowledged is
lost, nothing is doubled, no transaction stands in one of its tables alone, and all readers agree.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import txlake
from tests.server.client import OPEN
from tests.server.kernel import Kernel, built, compiled
from tests.server.lake_client import answered
from tests.server.together import TABLES, Done, Kind, Plan, audit, halved, served, together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.no_interop("path readers refuse open tables"),
]
CATALOG = "warehouse"
LAKE = (sys.executable, "-m", "tests.server.lake_client")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Kernel in Java."""
    return compiled(tmp_path_factory.mktemp("classes"))


def written(others: list[Kind], spark: SparkSession, folder: Path, plan: Plan, seed: int) -> None:
    """A round, and what is left of it."""
    warehouse = folder / CATALOG
    kinds = [
        Kind("txlake", LAKE, place=str(warehouse), deletes=True),
        Kind("txlake by the server", LAKE, deletes=True),
        *others,
    ]
    with txlake.connect(str(warehouse), spark=spark) as lake:
        for table in TABLES:
            assert answered(lake, "create", [table], [OPEN]) == "ok "
        with served(warehouse) as server:
            made = together(server, CATALOG, kinds, plan, seed)
            whole = [rows(lake, table) for table in TABLES]
            url = f"uc+{server.url}/api/2.1/unity-catalog?catalog={CATALOG}"
            with txlake.connect(catalog=url, spark=spark) as client:
                assert [rows(client, table) for table in TABLES] == whole, f"seed {seed}"
            for kind in kinds[2:]:
                with Kernel(kind.command, server.url, CATALOG) as kernel:
                    told = [kernel.done(f"read {table}") for table in TABLES]
                expected = [" ".join(map(str, ids)) for ids in whole]
                assert told == expected, f"{kind.name}, seed {seed}"
        done = [one for of_one in made.done.values() for one in of_one]
        faults = [*made.faults, *audit(done, dict(zip(TABLES, whole, strict=True)))]
        assert faults == [], f"seed {seed}"
        assert halved(whole, made.whole) == [], f"seed {seed}"
        for name, of_one in made.done.items():
            assert any(one.told == "committed" for one in of_one), f"{name}, seed {seed}: {of_one}"
            assert made.kills[name], f"{name}, seed {seed}"
        assert made.kills["server"] == plan.server_kills
        for table, ids in zip(TABLES, whole, strict=True):
            assert by_path(lake, table) == ids, f"seed {seed}"


def one_by_one(java: tuple[str, ...]) -> list[Kind]:
    """Both Kernels, which write one table a commit."""
    return [
        Kind("Kernel in Java", java, loads=True),
        Kind("Kernel in Rust", built(), loads=True, deletes=True, stages=True),
    ]


def rows(lake: txlake.Lake, table: str) -> list[int]:
    """What txlake reads."""
    return sorted(row[0] for row in lake.sql(f"SELECT id FROM {table}").collect())


def by_path(lake: txlake.Lake, table: str) -> list[int]:
    """What delta-rs reads of it, once the lake has let it go."""
    place = lake.detach(table)
    lake.sql(f"ALTER TABLE delta.`{place}` DROP FEATURE vacuumProtocolCheck")
    found = QueryBuilder().register("t", DeltaTable(place)).execute("SELECT id FROM t")
    return sorted(pa.table(found)["id"].to_pylist())


@pytest.mark.peer("kernel", "rust-kernel")
def test_nothing_is_lost_or_doubled(
    java: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    written(one_by_one(java), spark, tmp_path, Plan(turns=10, kills=2, server_kills=1), 3)


@pytest.mark.peer("kernel", "rust-kernel")
@pytest.mark.broad
@pytest.mark.parametrize("seed", range(1, 4))
def test_for_longer_nothing_is_lost_or_doubled(
    java: tuple[str, ...], spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    written(one_by_one(java), spark, tmp_path, Plan(turns=60, kills=8, server_kills=5), seed)


@pytest.mark.peer("kernel")
@pytest.mark.broad
@pytest.mark.parametrize("seed", [5])
def test_transactions_of_a_kernel_are_whole(
    java: tuple[str, ...], spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """It commits both tables at once, and asks again for what it was told nothing of."""
    whole = [Kind("Kernel in Java", java, ratifies=True)]
    written(whole, spark, tmp_path, Plan(turns=8, kills=1, server_kills=2), seed)


BOTH, ONE = TABLES, TABLES[:1]


@pytest.mark.parametrize(
    ("done", "orders", "stock", "fault"),
    [
        (Done("append", BOTH, 1, "committed"), [], [], "there {0}"),
        (Done("append", BOTH, 1, "committed"), [1], [], "there {0, 1}"),
        (Done("append", ONE, 1, "committed"), [1, 1], [], "there {2}"),
        (Done("append", ONE, 1, "committed"), [1], [1], "stock: nobody wrote {1: 1}"),
        (Done("append", BOTH, 1, "unknown"), [1], [], "there {0, 1}"),
        (Done("append", ONE, 1, "unknown"), [1, 1], [], "there {2}"),
        (Done("append", ONE, 1, "refused"), [1], [], "there {1}"),
    ],
)
def test_the_audit_finds(done: Done, orders: list[int], stock: list[int], fault: str) -> None:
    [found] = audit([done], {"orders": orders, "stock": stock})
    assert fault in found


@pytest.mark.parametrize(
    ("told", "there"),
    [
        ("committed", [1]),
        ("refused", []),
    ],
)
def test_the_audit_finds_what_was_not_deleted(told: str, there: list[int]) -> None:
    appended = Done("append", ONE, 1, "committed")
    deleted = Done("delete", ONE, 1, "committed" if told == "committed" else "refused")
    [found] = audit([appended, deleted], {"orders": there, "stock": []})
    assert f"there {{{len(there)}}}" in found


def test_halves_are_found() -> None:
    assert halved([[1_000_001, 2_000_001], [1_000_001]], frozenset({1})) == []
    assert halved([[1_000_001], []], frozenset({1})) == [1_000_001]
