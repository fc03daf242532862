"""ALTER TABLE ... DROP FEATURE: what goes from the table, and what of its history stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

import txlake
from tests.lake.rows import query
from txlake.commit import log_cleanup
from txlake.commit.checkpoint_protection import BEFORE_VERSION
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, InvalidRequest, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import StoredObject
from txlake.protocol.file_names import V2Checkpoint, parse_name, version_of
from txlake.protocol.statistics import FileStatistics
from txlake.session.engine import Handle
from txlake.sql.statements import TableName

ROWS = [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
AT_ONCE = "delta.dropFeatureTruncateHistory.retentionDuration"
PROTECTED = "checkpointProtection"


def handle(lake: txlake.Lake, name: str = "t") -> Handle:
    found = lake._session.engine.find(TableName((name,)), "default")
    assert found is not None
    return found


def table(lake: txlake.Lake, name: str = "t") -> Snapshot:
    return handle(lake, name).log.latest()


def operations(lake: txlake.Lake) -> list[str]:
    """Of all versions, oldest first."""
    return [str(row["operation"]) for row in reversed(handle(lake).log.history())]


def created(lake: txlake.Lake, **properties: str) -> txlake.Lake:
    """A table `t` of four rows in two files."""
    given = {"own": "x", **{f"delta.{key}": value for key, value in properties.items()}}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    lake.sql(f"CREATE TABLE t (id INT, s STRING) TBLPROPERTIES ({listed})")
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    lake.sql("INSERT INTO t VALUES (3, 'c'), (4, 'd')")
    return lake


def drop(lake: txlake.Lake, feature: str, truncate: bool = False) -> None:
    lake.sql(f"ALTER TABLE t DROP FEATURE {feature}{' TRUNCATE HISTORY' if truncate else ''}")


def protected(lake: txlake.Lake) -> None:
    """The versions so far are protected by three checkpoints, and the newest one has another."""
    now = table(lake)
    assert PROTECTED in now.features
    assert now.metadata.configuration[BEFORE_VERSION] == str(now.version)
    found = [one.version for one in handle(lake).log.listing().checkpoints]
    assert found[-4:] == list(range(now.version - 3, now.version + 1))


def with_vectors(lake: txlake.Lake) -> None:
    created(lake)
    lake.sql("DELETE FROM t WHERE id = 2")
    assert any(add.deletion_vector for add in table(lake).files.adds())


@pytest.fixture
def t(row_lake: txlake.Lake) -> txlake.Lake:
    """A table with a deletion vector."""
    with_vectors(row_lake)
    return row_lake


def test_deletion_vectors_are_purged_and_old_versions_protected(t: txlake.Lake) -> None:
    before = table(t).version
    vectors = [add.deletion_vector for add in table(t).files.adds() if add.deletion_vector]
    drop(t, "DeletionVectors")
    now = table(t)
    assert not {"deletionVectors"} & now.features
    assert "delta.enableDeletionVectors" not in now.metadata.configuration
    assert all(add.deletion_vector is None for add in now.files.adds())
    assert now.protocol.min_reader_version == 1
    assert operations(t)[before + 1 :] == [
        "UNSET TBLPROPERTIES",
        "REORG",
        *["Empty Commit"] * 3,
        "DROP FEATURE",
    ]
    protected(t)
    assert query(t, "SELECT * FROM t") == [ROWS[0], *ROWS[2:]]
    assert query(t, f"SELECT * FROM t VERSION AS OF {before}") == [ROWS[0], *ROWS[2:]]
    # A client that doesn't know vectors sees that their files aren't leftovers.
    assert vectors
    (listed,) = (path for path, vector in now.tombstones if vector is None and ".bin" in path)
    assert handle(t).store.head(listed) is not None
    t.sql("DELETE FROM t WHERE id = 1")
    assert query(t, "SELECT * FROM t") == ROWS[2:]


def test_a_checkpoint_after_it_still_tells_removed_files_apart(t: txlake.Lake) -> None:
    drop(t, "deletionVectors")
    before = set(table(t).tombstones)
    log = handle(t).log
    log.forget()
    assert {key for key in log.latest().tombstones if key[1]} == {key for key in before if key[1]}


def test_without_a_trace_nothing_is_protected(row_lake: txlake.Lake) -> None:
    created(row_lake)
    drop(row_lake, "deletionVectors")
    now = table(row_lake)
    assert not {"deletionVectors", PROTECTED} & now.features
    assert (now.protocol.min_reader_version, now.protocol.min_writer_version) == (1, 7)
    assert operations(row_lake)[3:] == ["UNSET TBLPROPERTIES", "DROP FEATURE"]


def test_the_history_is_truncated_where_it_may_be(t: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"^default.t: feature deletionVectors .*24 hours"):
        drop(t, "deletionVectors", truncate=True)
    assert "deletionVectors" in table(t).features
    assert query(t, "SELECT * FROM t") == [ROWS[0], *ROWS[2:]]
    t.sql(f"ALTER TABLE t SET TBLPROPERTIES ('{AT_ONCE}' = '0 hours')")
    write_checkpoint(handle(t).log)
    drop(t, "deletionVectors", truncate=True)
    now = table(t)
    assert not {"deletionVectors", PROTECTED} & now.features
    listing = handle(t).log.listing()
    assert listing.earliest_version == listing.checkpoints[0].version > 4
    assert query(t, "SELECT * FROM t") == [ROWS[0], *ROWS[2:]]
    with pytest.raises(InvalidRequest, match="version 4"):
        query(t, "SELECT * FROM t VERSION AS OF 4")


def old_until(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commits up to that version are older than any retention, and the others are new."""

    real = log_cleanup.files_until

    def until(objects: Iterable[StoredObject], time_ms: int) -> tuple[int, list[StoredObject]]:
        """Take the objects for older, or younger, than they are."""
        aged = (
            replace(item, modified_ms=0 if version_of(item.path) <= version else 10**15)
            for item in objects
        )
        return real(aged, time_ms)

    monkeypatch.setattr(log_cleanup, "files_until", until)


# The version that the log would begin with has the type changes, of which no later one tells.
WIDENED = """
    ALTER TABLE t ALTER COLUMN id TYPE BIGINT;
    ALTER TABLE t UNSET TBLPROPERTIES ('delta.enableTypeWidening');
    INSERT INTO t VALUES (5, 'e')
"""


@pytest.mark.parametrize(
    ("feature", "statement", "old", "message"),
    [
        ("deletionVectors", "DELETE FROM t WHERE id = 2", 0, "up to 5 need readers"),
        ("typeWidening", WIDENED, 1, "up to 4 need readers"),
    ],
)
def test_history_that_would_not_suffice_is_not_deleted(
    row_lake: txlake.Lake,
    feature: str,
    statement: str,
    old: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is a checkpoint from which the log could begin, but the feature is needed after it."""
    created(row_lake, enableTypeWidening="true")
    if old:
        row_lake.sql(statement)
    write_checkpoint(handle(row_lake).log)
    old_until(table(row_lake).version, monkeypatch)
    if not old:
        row_lake.sql(statement)
    with pytest.raises(InvalidRequest, match=message):
        drop(row_lake, feature, truncate=True)
    assert handle(row_lake).log.listing().earliest_version == 0
    assert query(row_lake, "SELECT * FROM t VERSION AS OF 1") == ROWS[:2]


def test_protected_history_is_kept_as_long_as_a_part_of_it_is_young(
    t: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableExpiredLogCleanup' = 'false')")
    write_checkpoint(handle(t).log)
    old_until(table(t).version, monkeypatch)
    drop(t, "deletionVectors")
    with pytest.raises(InvalidRequest, match="too young"):
        drop(t, PROTECTED, truncate=True)
    assert handle(t).log.listing().earliest_version == 0


def test_a_checkpoint_that_fails_after_it_is_no_failure(
    t: txlake.Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The feature is dropped by then: raised, the error would say that it isn't."""

    def failing(log: TableLog) -> int:
        if log.latest().protocol.min_reader_version < 3:
            raise Unavailable("the store is away")
        return write_checkpoint(log)

    monkeypatch.setattr("txlake.commands.drop_feature.write_checkpoint", failing)
    drop(t, "deletionVectors")
    assert "deletionVectors" not in table(t).features
    assert "no checkpoint after DROP FEATURE: the store is away" in caplog.text


def test_its_last_checkpoint_waits_for_the_published_commit(
    t: txlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of a version whose commit isn't in the log could tell of what isn't so."""

    def lacking(log: TableLog) -> None:
        if log.latest().protocol.min_reader_version < 3:
            raise CorruptTable("the commit isn't there")

    monkeypatch.setattr(TableLog, "require_published", lacking)
    drop(t, "deletionVectors")
    now = table(t)
    assert "deletionVectors" not in now.features
    assert handle(t).log.listing().checkpoints[-1].version == now.version - 1


def test_the_protection_goes_with_the_versions(t: txlake.Lake) -> None:
    drop(t, "deletionVectors")
    until = table(t).version
    with pytest.raises(InvalidRequest, match="TRUNCATE HISTORY deletes them"):
        drop(t, PROTECTED)
    with pytest.raises(InvalidRequest, match=rf"before {until}, .* too young .* 24 hours"):
        drop(t, PROTECTED, truncate=True)
    t.sql(f"ALTER TABLE t SET TBLPROPERTIES ('{AT_ONCE}' = '0 hours')")
    write_checkpoint(handle(t).log)
    drop(t, PROTECTED, truncate=True)
    now = table(t)
    assert PROTECTED not in now.features
    assert BEFORE_VERSION not in now.metadata.configuration
    assert query(t, "SELECT * FROM t") == [ROWS[0], *ROWS[2:]]


def test_the_protection_outlives_what_replaces_the_metadata(t: txlake.Lake) -> None:
    drop(t, "deletionVectors")
    until = str(table(t).version)
    with pytest.raises(InvalidRequest, match="kept by the engine"):
        t.sql(f"ALTER TABLE t UNSET TBLPROPERTIES ('{BEFORE_VERSION}')")
    t.sql("RESTORE TABLE t TO VERSION AS OF 2")
    assert table(t).metadata.configuration[BEFORE_VERSION] == until
    t.sql(
        "CREATE OR REPLACE TABLE t (id INT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    assert table(t).metadata.configuration[BEFORE_VERSION] == until
    assert "deletionVectors" in table(t).features
    t.sql("CREATE TABLE copy SHALLOW CLONE t")
    assert BEFORE_VERSION not in table(t, "copy").metadata.configuration


def test_log_clean_up_keeps_to_the_protection(t: txlake.Lake) -> None:
    """It may only delete what lies before a checkpoint that is there."""
    drop(t, "deletionVectors")
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.logRetentionDuration' = '0 seconds')")
    for number in range(12):
        t.sql(f"INSERT INTO t VALUES ({number + 10}, 'x')")
    assert handle(t).log.listing().checkpoints[0].version <= table(t).version
    assert len(query(t, "SELECT * FROM t")) == 15


def test_v2_checkpoints_give_way_to_classic_ones(row_lake: txlake.Lake) -> None:
    created(row_lake, checkpointPolicy="v2")
    log = handle(row_lake).log
    write_checkpoint(log)
    assert any(
        isinstance(parse_name(one.paths[0]), V2Checkpoint) for one in log.listing().checkpoints
    )
    drop(row_lake, "v2Checkpoint")
    assert "v2Checkpoint" not in table(row_lake).features
    assert table(row_lake).metadata.configuration["delta.checkpointPolicy"] == "classic"
    protected(row_lake)
    newest = log.listing().checkpoints[-4:]
    assert not any(isinstance(parse_name(one.paths[0]), V2Checkpoint) for one in newest)
    assert query(row_lake, "SELECT * FROM t") == ROWS


def test_type_widening_rewrites_narrow_files(row_lake: txlake.Lake) -> None:
    created(row_lake, enableTypeWidening="true")
    row_lake.sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
    row_lake.sql("INSERT INTO t VALUES (5000000000, 'e')")
    wide = {add.path for add in table(row_lake).files.adds()}
    drop(row_lake, "typeWidening")
    now = table(row_lake)
    assert "typeWidening" not in now.features
    assert "typeChanges" not in str(now.metadata.schema_string)
    assert len(wide & {add.path for add in now.files.adds()}) == 1  # the one that was wide
    protected(row_lake)
    assert query(row_lake, "SELECT * FROM t") == [*ROWS, (5_000_000_000, "e")]
    assert query(row_lake, "SELECT * FROM t VERSION AS OF 2") == ROWS


def test_column_mapping_renames_the_columns_in_files(row_lake: txlake.Lake) -> None:
    created(row_lake, **{"columnMapping.mode": "name"})
    row_lake.sql("ALTER TABLE t RENAME COLUMN s TO text")
    row_lake.sql("DELETE FROM t WHERE id = 1")
    drop(row_lake, "columnMapping")
    now = table(row_lake)
    assert "columnMapping" not in now.features
    assert "columnMapping" not in str(now.metadata.schema_string)
    assert now.column_mapping_mode == "none"
    assert all('"text"' in str(add.stats) for add in now.files.adds())
    protected(row_lake)
    assert query(row_lake, "SELECT id, text FROM t") == ROWS[1:]
    assert query(row_lake, "SELECT id, s FROM t VERSION AS OF 2") == ROWS


def test_clustering_columns_keep_their_statistics_without_a_mapping(row_lake: txlake.Lake) -> None:
    """Every file of a clustered table has them, whatever else is indexed."""
    row_lake.sql(
        "CREATE TABLE t (id INT, s STRING) CLUSTER BY (s) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    row_lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    row_lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')")
    drop(row_lake, "columnMapping")
    [file] = table(row_lake).files.adds()
    statistics = FileStatistics.from_json(file.stats)
    assert (statistics.min_values, statistics.max_values) == ({"s": "a"}, {"s": "b"})


def test_columns_with_odd_names_keep_their_mapping(row_lake: txlake.Lake) -> None:
    created(row_lake, **{"columnMapping.mode": "name"})
    row_lake.sql("ALTER TABLE t RENAME COLUMN s TO `a b`")
    before = table(row_lake).version
    with pytest.raises(InvalidRequest, match="a b"):
        drop(row_lake, "columnMapping")
    assert table(row_lake).version == before


def test_row_tracking_takes_row_ids_away(row_lake: txlake.Lake) -> None:
    created(row_lake, enableRowTracking="true")
    drop(row_lake, "rowTracking")
    now = table(row_lake)
    assert "rowTracking" not in now.features
    assert not any("owTracking" in key for key in now.metadata.configuration)
    assert "delta.rowTracking" not in now.domains
    assert all(add.base_row_id is None for add in now.files.adds())
    assert PROTECTED not in now.features
    assert query(row_lake, "SELECT * FROM t") == ROWS


def test_in_a_transaction_only_what_is_one_commit(t: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match="more than one commit"), t.transaction() as tx:
        tx.sql("ALTER TABLE t DROP FEATURE deletionVectors")
    t.sql(
        "CREATE TABLE u (id INT) TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')"
    )
    with t.transaction() as tx:
        tx.sql("ALTER TABLE u DROP FEATURE vacuumProtocolCheck")
    assert not {"vacuumProtocolCheck", PROTECTED} & table(t, "u").features


def test_history_can_be_truncated_only_for_features_of_readers(t: txlake.Lake) -> None:
    t.sql("ALTER TABLE t ADD CONSTRAINT c CHECK (id > 0)")
    with pytest.raises(InvalidRequest, match="without TRUNCATE HISTORY"):
        drop(t, "checkConstraints", truncate=True)


def test_features_of_writers_alone_go_in_one_commit(row_lake: txlake.Lake) -> None:
    """The change feed of versions before is still read; the domain of clustering goes."""
    row_lake.sql(
        "CREATE TABLE t (id INT, s STRING) CLUSTER BY (id) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    row_lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    before = table(row_lake).version
    drop(row_lake, "changeDataFeed")
    drop(row_lake, "clustering")
    now = table(row_lake)
    assert now.version == before + 2
    assert not {"changeDataFeed", "clustering", PROTECTED} & now.features
    assert "delta.enableChangeDataFeed" not in now.metadata.configuration
    assert "delta.clustering" not in now.domains
    row_lake.sql("INSERT INTO t VALUES (3, 'c')")
    assert query(row_lake, "SELECT * FROM t") == ROWS[:3]


def test_identity_columns_keep_their_feature(row_lake: txlake.Lake) -> None:
    row_lake.sql("CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY, s STRING)")
    before = table(row_lake).version
    with pytest.raises(InvalidRequest, match=r"identityColumns.*while columns use it: id"):
        drop(row_lake, "identityColumns")
    assert table(row_lake).version == before
