from __future__ import annotations

from dbt.tests.adapter.simple_snapshot.new_record_check_mode import (
    BaseSnapshotNewRecordCheckMode,
)
from dbt.tests.adapter.simple_snapshot.new_record_dbt_valid_to_current import (
    BaseSnapshotNewRecordDbtValidToCurrent,
)
from dbt.tests.adapter.simple_snapshot.new_record_timestamp_mode import (
    BaseSnapshotNewRecordTimestampMode,
)
from dbt.tests.adapter.simple_snapshot.test_ephemeral_snapshot_hard_deletes import (
    BaseSnapshotEphemeralHardDeletes,
    BaseSnapshotNewColumnSpecificCheckCols,
    BaseSnapshotNewColumnTimestampStrategy,
    BaseSnapshotNewColumnWithDeletes,
)
from dbt.tests.adapter.simple_snapshot.test_snapshot import (
    BaseSimpleSnapshot,
    BaseSnapshotCheck,
)
from dbt.tests.adapter.simple_snapshot.test_various_configs import (
    BaseSnapshotColumnNames,
    BaseSnapshotColumnNamesFromDbtProject,
    BaseSnapshotInvalidColumnNames,
    BaseSnapshotMultiUniqueKey,
)


class TestSnapshotNewRecordCheckMode(BaseSnapshotNewRecordCheckMode): ...


class TestSnapshotNewRecordDbtValidToCurrent(BaseSnapshotNewRecordDbtValidToCurrent): ...


class TestSnapshotNewRecordTimestampMode(BaseSnapshotNewRecordTimestampMode): ...


class TestSnapshotEphemeralHardDeletes(BaseSnapshotEphemeralHardDeletes): ...


class TestSnapshotNewColumnTimestampStrategy(BaseSnapshotNewColumnTimestampStrategy): ...


class TestSnapshotNewColumnSpecificCheckCols(BaseSnapshotNewColumnSpecificCheckCols): ...


class TestSnapshotNewColumnWithDeletes(BaseSnapshotNewColumnWithDeletes): ...


class TestSimpleSnapshot(BaseSimpleSnapshot): ...


class TestSnapshotCheck(BaseSnapshotCheck): ...


class TestSnapshotColumnNames(BaseSnapshotColumnNames): ...


class TestSnapshotColumnNamesFromDbtProject(BaseSnapshotColumnNamesFromDbtProject): ...


class TestSnapshotInvalidColumnNames(BaseSnapshotInvalidColumnNames): ...


class TestSnapshotMultiUniqueKey(BaseSnapshotMultiUniqueKey): ...
