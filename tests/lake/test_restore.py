"""RESTORE to a version before features or settings were dropped: what comes back with its files."""

from __future__ import annotations

import pytest

import txlake
from tests.commit.log_of import LogOf, add
from tests.lake.rows import query
from tests.lake.test_drop_feature import ROWS, created, drop, table, with_vectors
from txlake.commands.restore import restore
from txlake.commit.row_tracking import COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from txlake.protocol.actions import Protocol
from txlake.protocol.clustering import DOMAIN as CLUSTERING

ENABLE = "ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
LIFT = (
    "ALTER TABLE t SET TBLPROPERTIES ('delta.rowTrackingSuspended' = 'false', "
    "'delta.enableRowTracking' = 'true')"
)


def back_to(lake: txlake.Lake, version: int) -> None:
    lake.sql(f"RESTORE TABLE t TO VERSION AS OF {version}")


def ranges_of_ids(lake: txlake.Lake) -> list[tuple[int, int]]:
    """The first row id and the number of rows of each file, which all have ids, in order."""
    found = []
    for file in table(lake).files.adds():
        assert file.base_row_id is not None
        assert file.stats is not None
        found.append((file.base_row_id, int(file.stats.split('"numRecords":')[1].split(",")[0])))
    return sorted(found)


def each_row_has_an_id_of_its_own(lake: txlake.Lake) -> None:
    ranges = ranges_of_ids(lake)
    ids = [number for first, rows in ranges for number in range(first, first + rows)]
    assert len(set(ids)) == len(ids)
    assert max(ids) <= table(lake).row_id_high_water_mark


def test_widened_columns_bring_their_feature_back(row_lake: txlake.Lake) -> None:
    """The first step of DROP FEATURE leaves the type changes, and nothing that asks for them."""
    created(row_lake, enableTypeWidening="true")
    row_lake.sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
    before = table(row_lake).version
    drop(row_lake, "typeWidening")
    back_to(row_lake, before + 1)
    now = table(row_lake)
    assert "delta.enableTypeWidening" not in now.metadata.configuration
    assert "typeChanges" in str(now.metadata.schema_string)
    assert "typeWidening" in now.features
    assert query(row_lake, "SELECT * FROM t") == ROWS


def test_deletion_vectors_bring_their_feature_back(row_lake: txlake.Lake) -> None:
    with_vectors(row_lake)
    before = table(row_lake).version
    drop(row_lake, "deletionVectors")
    back_to(row_lake, before + 1)
    now = table(row_lake)
    assert "delta.enableDeletionVectors" not in now.metadata.configuration
    assert any(file.deletion_vector for file in now.files.adds())
    assert "deletionVectors" in now.features
    assert query(row_lake, "SELECT * FROM t") == [ROWS[0], *ROWS[2:]]


@pytest.mark.parametrize("steps", [0, 1])
def test_row_ids_of_before_a_drop_are_given_anew(row_lake: txlake.Lake, steps: int) -> None:
    """Of a table that had them without relying on them, and of one that was to lose them."""
    created(row_lake, **{"feature.rowTracking": "supported"})
    before = table(row_lake).version
    drop(row_lake, "rowTracking")
    assert table(row_lake).row_id_high_water_mark == -1
    row_lake.sql("DELETE FROM t WHERE id = 1")  # so that RESTORE brings this file back
    back_to(row_lake, before + steps)
    assert "rowTracking" in table(row_lake).features
    row_lake.sql(LIFT if steps else ENABLE)
    row_lake.sql("INSERT INTO t VALUES (5, 'e')")
    each_row_has_an_id_of_its_own(row_lake)


def test_row_ids_of_before_a_drop_meet_those_since(row_lake: txlake.Lake) -> None:
    """Files may hold ids in the hidden columns, which are counted anew since: they're given up."""
    created(row_lake, enableRowTracking="true")
    then = table(row_lake)
    row_lake.sql("DELETE FROM t WHERE id = 1")
    drop(row_lake, "rowTracking")
    row_lake.sql(ENABLE)
    since = table(row_lake)
    back_to(row_lake, then.version)
    for key in (ROW_ID_COLUMN, COMMIT_VERSION_COLUMN):
        now = table(row_lake).metadata.configuration[key]
        assert now == since.metadata.configuration[key] != then.metadata.configuration[key]
    each_row_has_an_id_of_its_own(row_lake)
    row_lake.sql("INSERT INTO t VALUES (5, 'e')")
    each_row_has_an_id_of_its_own(row_lake)
    assert query(row_lake, "SELECT * FROM t") == [*ROWS, (5, "e")]


def test_row_ids_stay_where_none_was_given_twice(row_lake: txlake.Lake) -> None:
    created(row_lake, enableDeletionVectors="false", enableRowTracking="true")
    tracked = table(row_lake)
    row_lake.sql("DELETE FROM t WHERE id IN (1, 3)")
    back_to(row_lake, tracked.version)
    now = table(row_lake)
    assert now.metadata == tracked.metadata
    assert {file.path: file.base_row_id for file in now.files.adds()} == {
        file.path: file.base_row_id for file in tracked.files.adds()
    }


def test_what_a_catalog_and_the_history_ask_for_stays_as_it_is() -> None:
    names = ("catalogManaged", "checkpointProtection", "txlakeCatalog", "vacuumProtocolCheck")
    before = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=names
    )
    plain = Protocol(min_reader_version=1, min_writer_version=2)
    log = LogOf().create(add("a"), protocol=before).commit(1, plain, add("b")).open()
    change = restore(log.snapshot(version=1), log.snapshot(version=0), 1, lambda _: True).change
    [protocol] = [action for action in change.actions if isinstance(action, Protocol)]
    assert protocol.reader_features == ("vacuumProtocolCheck",)
    assert protocol.writer_features == ("appendOnly", "invariants", "vacuumProtocolCheck")


def test_clustering_is_what_it_was(row_lake: txlake.Lake) -> None:
    """A table is partitioned or clustered, and its columns may have had other names."""
    row_lake.sql("CREATE TABLE t (id INT, day STRING) PARTITIONED BY (day)")
    row_lake.sql("CREATE OR REPLACE TABLE t (id INT, day STRING) CLUSTER BY (id)")
    clustered = table(row_lake)
    assert CLUSTERING in clustered.domains
    back_to(row_lake, 0)
    assert table(row_lake).partition_columns == ("day",)
    assert CLUSTERING not in table(row_lake).domains
    back_to(row_lake, 1)
    assert table(row_lake).partition_columns == ()
    assert table(row_lake).domains[CLUSTERING] == clustered.domains[CLUSTERING]
    row_lake.sql("ALTER TABLE t CLUSTER BY (day)")
    back_to(row_lake, 1)
    assert table(row_lake).domains[CLUSTERING] == clustered.domains[CLUSTERING]
