"""A feature that one engine drops is dropped for the other, and both go on with the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared_tables.features.one_session import Peers
from tests.shared_tables.features.test_written_by_delta import features_of, latest

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.no_interop("Delta Spark reads every version here"),
]

PROTECTED = "checkpointProtection"
# The feature, the property that turns it on, and what is done with it then.
USED = {
    "deletionVectors": ("delta.enableDeletionVectors=true", "DELETE FROM {t} WHERE id = 2"),
    "typeWidening": (
        "delta.enableTypeWidening=true",
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
    ),
    "columnMapping": ("delta.columnMapping.mode=name", "ALTER TABLE {t} RENAME COLUMN s TO r"),
    "v2Checkpoint": ("delta.checkpointPolicy=v2", "UPDATE {t} SET s = 'u' WHERE id = 1"),
    "rowTracking": ("delta.enableRowTracking=true", "UPDATE {t} SET s = 'u' WHERE id = 1"),
}


@pytest.mark.broad
@pytest.mark.parametrize("ours", [True, False], ids=["by txlake", "by Delta Spark"])
@pytest.mark.parametrize("feature", USED)
def test_what_is_dropped(feature: str, ours: bool, peers: Peers, tmp_path: Path) -> None:
    first, other = (peers.txlake, peers.delta) if ours else (peers.delta, peers.txlake)
    name, value = USED[feature][0].split("=")
    given = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": "2", name: value}
    listed = ", ".join(f"'{key}' = '{text}'" for key, text in given.items())
    folder = tmp_path / "t"
    t = f"delta.`{folder}`"
    first.sql(f"CREATE TABLE {t} (id INT, s STRING) USING delta TBLPROPERTIES ({listed})")
    first.sql(f"INSERT INTO {t} SELECT CAST(id AS INT), concat('s', id) FROM range(0, 6, 1, 1)")
    first.sql(USED[feature][1].format(t=t))
    first.sql(f"INSERT INTO {t} SELECT CAST(id AS INT), 'later' FROM range(6, 8, 1, 1)")
    used = latest(folder)
    assert feature in features_of(folder)[1]
    first.sql(f"ALTER TABLE {t} DROP FEATURE {feature}")

    found = features_of(folder)[1]
    assert feature not in found
    assert (PROTECTED in found) == (feature != "rowTracking")
    # The other engine reads what was before and what is now, and writes on.
    versions = range(1, latest(folder) + 1)
    assert other.rows(folder, versions) == first.rows(folder, versions)
    assert other.rows(folder, [used]) == other.rows(folder, [latest(folder)])
    column = "r" if feature == "columnMapping" else "s"
    for number, engine in enumerate((other, first)):
        engine.sql(f"UPDATE {t} SET {column} = 'n{number}' WHERE id = {number}")
        engine.sql(f"DELETE FROM {t} WHERE id = {6 + number}")
        engine.sql(f"INSERT INTO {t} VALUES ({10 + number}, 'new')")
    versions = range(1, latest(folder) + 1)
    assert other.rows(folder, versions) == first.rows(folder, versions)
    assert feature not in features_of(folder)[1]
