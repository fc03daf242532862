"""What txlake writes with a feature on, Delta Spark reads equal at every version and goes on with.

Rows are compared with those that the statements give; row ids and the versions of rows' last
changes with the rules of PROTOCOL.md, "Row Tracking".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.shared_tables.features.checksums import check_checksums
from tests.shared_tables.features.one_session import Peers

pytestmark = pytest.mark.no_interop("Delta Spark reads every version here")

FEATURES: Mapping[str, str] = {
    "row tracking": "delta.enableRowTracking=true",
    "deletion vectors": "delta.enableDeletionVectors=true",
    "column mapping by name": "delta.columnMapping.mode=name",
    "column mapping by id": "delta.columnMapping.mode=id",
    "v2 checkpoints": "delta.checkpointPolicy=v2",
    "in-commit timestamps": "delta.enableInCommitTimestamps=true",
    "Iceberg's rules": "delta.enableIcebergCompatV2=true",
}
TOGETHER = [name for name in FEATURES if name not in ("column mapping by name", "Iceberg's rules")]
MERGE = (
    "MERGE INTO {t} t USING (SELECT * FROM VALUES {rows} AS r(id, k, s)) u ON t.id = u.id "
    "WHEN MATCHED AND u.s = 'gone' THEN DELETE WHEN MATCHED THEN UPDATE SET k = u.k "
    "WHEN NOT MATCHED THEN INSERT *"
)
# Each is one commit, version 1 first: by whom, what, and the rows after it as `id: k`.
FIRST = {n: n % 2 for n in range(6)}
SECOND = FIRST | {10: 0, 11: 1}
THIRD = SECOND | {3: 11}
FOURTH = {n: k for n, k in THIRD.items() if n != 4}
FIFTH = {n: k for n, k in FOURTH.items() if n != 10} | {1: 7, 20: 8}
EIGHTH = {n: k for n, k in THIRD.items() if n != 11} | {5: 9, 21: 8}
RESTORED, RESTORE_TO = 7, 3
STEPS: Sequence[tuple[str, str, Mapping[int, int]]] = (
    ("txlake", "INSERT INTO {t} SELECT id, id % 2, 's' FROM range(0, 6, 1, 1)", FIRST),
    ("txlake", "INSERT INTO {t} (id, k, s) VALUES (10, 0, 's'), (11, 1, 's')", SECOND),
    ("txlake", "UPDATE {t} SET k = k + 10 WHERE id = 3", THIRD),
    ("txlake", "DELETE FROM {t} WHERE id = 4", FOURTH),
    ("txlake", MERGE.replace("{rows}", "(1L, 7L, 's'), (20L, 8L, 's'), (10L, 0L, 'gone')"), FIFTH),
    ("txlake", "OPTIMIZE {t}", FIFTH),
    ("txlake", f"RESTORE TABLE {{t}} TO VERSION AS OF {RESTORE_TO}", THIRD),
    ("delta", MERGE.replace("{rows}", "(5L, 9L, 's'), (21L, 8L, 's'), (11L, 0L, 'gone')"), EIGHTH),
    ("txlake", "UPDATE {t} SET k = k + 1 WHERE id = 21", EIGHTH | {21: 9}),
)
VERSIONS = range(1, len(STEPS) + 1)


@pytest.fixture(autouse=True)
def _validation(peers: Peers) -> Iterator[None]:
    """Delta Spark's commits begin with a look whether the newest checksum is true."""
    setting = "spark.databricks.delta.versionChecksum.forcedValidation"
    values = {f"{setting}Interval": 1, f"{setting}MinTimeIntevalMinutes": 0}
    for name, value in values.items():
        peers.delta.sql(f"SET {name} = {value}")
    yield
    for name in values:
        peers.delta.sql(f"RESET {name}")


@pytest.mark.broad
@pytest.mark.parametrize("name", [*FEATURES, "all together"])
def test_delta_spark_reads_it_and_goes_on(name: str, peers: Peers, tmp_path: Path) -> None:
    on = TOGETHER if name == "all together" else [name]
    folder = tmp_path / "t"
    table = f"delta.`{folder}`"
    properties = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": "3"}
    properties |= dict(FEATURES[feature].split("=") for feature in on)
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    peers.txlake.sql(
        f"CREATE TABLE {table} (id BIGINT, k BIGINT, s STRING) TBLPROPERTIES ({given})"
    )
    for version, (engine, statement, _) in zip(VERSIONS, STEPS, strict=True):
        {"txlake": peers.txlake, "delta": peers.delta}[engine].sql(statement.format(t=table))
        assert (folder / "_delta_log" / f"{version:020}.json").is_file(), statement

    expected = [
        [json.dumps({"id": n, "k": k, "s": "s"}) for n, k in rows.items()] for _, _, rows in STEPS
    ]
    right = [sorted(rows) for rows in expected]
    assert peers.txlake.rows(folder, VERSIONS) == right
    if "row tracking" in on:
        columns = ["id", "k", "s", "_metadata.row_id AS i", "_metadata.row_commit_version AS v"]
        read = peers.delta.rows(folder, VERSIONS, *columns)
        tracked = [{row["id"]: row for row in map(json.loads, rows)} for rows in read]
        check_row_ids(tracked)
        assert [sorted({n: row["k"] for n, row in rows.items()}.items()) for rows in tracked] == [
            sorted(rows.items()) for _, _, rows in STEPS
        ]
    else:
        assert peers.delta.rows(folder, VERSIONS) == right

    assert check_checksums(folder) == {0, *VERSIONS}
    history = described(peers.txlake.sql(f"DESCRIBE HISTORY {table}"))
    assert history == described(peers.delta.sql(f"DESCRIBE HISTORY {table}"))
    (detail,) = described(peers.txlake.sql(f"DESCRIBE DETAIL {table}"))
    (theirs,) = described(peers.delta.sql(f"DESCRIBE DETAIL {table}"))
    if "in-commit timestamps" in on:
        # Delta Spark says when the commit's file was written, also where commits have their time.
        del theirs["lastModified"]
        assert detail.pop("lastModified") == max(row["timestamp"] for row in history)
    assert detail == theirs
    log = folder / "_delta_log"
    single, sidecars = list(log.glob("*.checkpoint*.parquet")), list(log.glob("_sidecars/*"))
    assert len(single) == 3
    assert bool(sidecars) == ("v2 checkpoints" in on)


def check_row_ids(tracked: Sequence[Mapping[int, Mapping[str, Any]]]) -> None:
    """A row keeps its id for life and its version until it changes; no id is given twice."""
    used: dict[int, int] = {}
    for version, rows in zip(VERSIONS, tracked, strict=True):
        assert len({row["i"] for row in rows.values()}) == len(rows)
        if version == RESTORED:
            assert rows == tracked[RESTORE_TO - 1]
            continue
        before = tracked[version - 2] if version > 1 else {}
        for number, row in rows.items():
            old = before.get(number)
            if old is None:
                assert used.setdefault(row["i"], number) == number
                assert row["v"] == version, (version, row)
            else:
                since = old["v"] if old["k"] == row["k"] else version
                assert (row["i"], row["v"]) == (old["i"], since), (version, row, old)


def described(rows: Sequence[str]) -> list[dict[str, Any]]:
    """What both engines say; maps have no order, and a folder's URL two spellings."""
    found = [json.loads(row) for row in rows]
    for row in found:
        for key, value in row.items():
            if isinstance(value, list):
                row[key] = sorted(value, key=repr)
        if "location" in row:
            row["location"] = row["location"].replace("file:///", "file:/")
    return found
