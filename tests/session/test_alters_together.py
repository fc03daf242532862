"""Two ALTERs at once: where both commit, the table is as if one had followed the other."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from tests.session.tables import after
from txlake.commit.change import Change
from txlake.conflict.check import check
from txlake.conflict.concurrent_commit import summarise
from txlake.conflict.context import CheckContext
from txlake.conflict.evidence import Conflicted, Rebased
from txlake.conflict.footprint import Footprint, Read, ReadKind
from txlake.conflict.levels import Level
from txlake.ddl.alter import alter
from txlake.ddl.create import create
from txlake.ddl.environment import Environment
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import DomainMetadata, Metadata, Protocol
from txlake.protocol.features import supported_features
from txlake.sql import parse
from txlake.sql.statements import CreateTable

ALTERS = [
    "SET TBLPROPERTIES ('a' = '1')",
    "SET TBLPROPERTIES ('a' = '2', 'b' = '1')",
    "UNSET TBLPROPERTIES ('mine')",
    "SET TBLPROPERTIES ('comment' = 'of orders')",
    "SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "SET TBLPROPERTIES ('delta.checkpointInterval' = '5')",
    "SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')",
    "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'id')",
    "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
    "SET TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true')",
    "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
    "ADD COLUMNS (x INT COMMENT 'new')",
    "ADD COLUMNS (X STRING)",
    "ADD COLUMNS (y VARCHAR(3), z STRUCT<a: INT>)",
    "ADD COLUMNS (first INT FIRST)",
    "ADD COLUMNS (s.more INT)",
    "ADD COLUMNS (_change_type STRING)",
    "ADD COLUMNS (t TIMESTAMP_NTZ)",
    "DROP COLUMN v",
    "DROP COLUMN s.inner",
    "RENAME COLUMN v TO w",
    "RENAME COLUMN id TO key",
    "ALTER COLUMN id COMMENT 'the key'",
    "ALTER COLUMN v TYPE BIGINT",
    "ALTER COLUMN v SET NOT NULL",
    "ALTER COLUMN id DROP NOT NULL",
    "ALTER COLUMN v SET DEFAULT 7",
    "ALTER COLUMN v FIRST",
    "ALTER COLUMN s.inner COMMENT 'within'",
    "REPLACE COLUMNS (id BIGINT, s STRUCT<inner: INT, other: INT>, v INT, p STRING)",
    "ADD CONSTRAINT positive CHECK (id > 0)",
    "ADD CONSTRAINT of_s CHECK (s.inner > 0)",
    "ADD CONSTRAINT positive FOREIGN KEY (v) REFERENCES u (id)",
    "ADD CONSTRAINT pk PRIMARY KEY (id)",
    "ADD CONSTRAINT pk2 PRIMARY KEY (id)",
    "DROP CONSTRAINT small",
    "DROP CONSTRAINT known",
    "CLUSTER BY (v)",
    "DROP FEATURE checkConstraints",
    "DROP FEATURE changeDataFeed",
]
COLUMNS = "id BIGINT NOT NULL, v INT, s STRUCT<inner: INT, other: INT>, p STRING"
FEATURES = (
    "'delta.feature.allowColumnDefaults' = 'supported', "
    "'delta.feature.changeDataFeed' = 'supported', "
    "'delta.feature.checkConstraints' = 'supported', "
    "'delta.feature.clustering' = 'supported', "
    "'delta.feature.columnMapping' = 'supported', "
    "'delta.feature.icebergCompatV2' = 'supported', "
    "'delta.feature.inCommitTimestamp' = 'supported', "
    "'delta.feature.rowTracking' = 'supported', "
    "'delta.feature.timestampNtz' = 'supported', "
    "'delta.feature.typeWidening' = 'supported', "
    "'delta.feature.v2Checkpoint' = 'supported'"
)
ICEBERG = "'delta.enableDeletionVectors' = 'false', 'delta.enableIcebergCompatV2' = 'true'"
MAPPED = "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true'"
MET = 400  # pairs of which both commit, at least
RULES = ["ADD CONSTRAINT small CHECK (v < 9)", "ADD CONSTRAINT known FOREIGN KEY (v) REFERENCES u"]
BASES: dict[str, tuple[str, list[str]]] = {
    "plain": ("'mine' = '1'", []),
    "with features": (f"'mine' = '1', {FEATURES}", []),
    "mapped": (f"'mine' = '1', {MAPPED}, {FEATURES}", []),
    "mapped, for Iceberg": (f"{MAPPED}, {FEATURES}, {ICEBERG}", []),
    "mapped, with rules": (f"'mine' = '1', {MAPPED}, {FEATURES}", RULES),
}


def environment(who: str) -> Environment:
    """Give the same ids to one who asks again, and others to somebody else."""
    ids = itertools.count(1)
    return Environment(
        now_ms=1, new_id=lambda: f"{who}-{next(ids)}", violating_row=lambda condition: None
    )


def changed(text: str, snapshot: Snapshot, who: str) -> Change:
    [statement] = parse(f"ALTER TABLE t {text}")
    return alter(statement, snapshot, environment(who))  # type: ignore[arg-type]


def begun(name: str) -> Snapshot:
    """The table, empty."""
    properties, alters = BASES[name]
    [statement] = parse(f"CREATE TABLE t ({COLUMNS}) TBLPROPERTIES ({properties})")
    assert isinstance(statement, CreateTable)
    made = create(statement, None, environment("base"))
    assert made is not None
    found = after(Snapshot.empty("t"), made)
    for text in alters:
        found = after(found, changed(text, found, f"base {text}"))
    return found


def tried(text: str, snapshot: Snapshot, who: str) -> Change | None:
    """The change; None where the statement is refused or changes nothing."""
    try:
        change = changed(text, snapshot, who)
    except (InvalidRequest, UnsupportedFeature):
        return None
    return change if change.actions else None


def rebased(ours: Change, theirs: Change, base: Snapshot) -> Snapshot | None:
    """The table after both, ours last; None where ours is aborted."""
    of_kind = {type(action): action for action in ours.actions}
    footprint = Footprint(
        read_version=base.version,
        reads=tuple(Read(kind=ReadKind.GUARD, files=False) for _ in ours.reads),
        read_domains=frozenset(ours.read_domains),
        metadata=of_kind.get(Metadata),  # type: ignore[arg-type]
        protocol=of_kind.get(Protocol),  # type: ignore[arg-type]
        domains=tuple(one for one in ours.actions if isinstance(one, DomainMetadata)),
    )
    context = CheckContext(
        base=base, metadata=base.metadata, protocol=base.protocol, level=Level.SNAPSHOT
    )
    outcome = check(footprint, summarise(base.version + 1, theirs.actions), context)
    if isinstance(outcome, Conflicted):
        return None
    metadata = outcome.footprint.metadata if isinstance(outcome, Rebased) else footprint.metadata
    others = [one for one in ours.actions if not isinstance(one, Metadata)]
    actions = others if metadata is None else [*others, metadata]
    return after(base, theirs).apply(actions, version=base.version + 2, timestamp_ms=3)


def definition(snapshot: Snapshot) -> tuple[object, ...]:
    """What ALTERs change; the schema as a value, however it is spelled."""
    metadata = snapshot.metadata
    rest = replace(metadata, schema_string=None, configuration={})
    protocol = snapshot.protocol
    versions = protocol.min_reader_version, protocol.min_writer_version
    return (
        rest,
        snapshot.schema,
        dict(metadata.configuration),
        (versions, supported_features(protocol)),
        dict(snapshot.domains),
    )


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("name", BASES)
def test_both_commit_only_where_one_could_follow_the_other(name: str) -> None:
    base, together = begun(name), 0
    for mine, other in itertools.product(ALTERS, repeat=2):
        ours, theirs = tried(mine, base, "ours"), tried(other, base, "theirs")
        if ours is None or theirs is None:
            continue
        both = rebased(ours, theirs, base)
        if both is None:
            continue
        together += 1
        then = after(base, theirs)
        # What one that comes later is refused, or doesn't change any more, must not be committed.
        serial = after(then, changed(mine, then, "ours"))
        assert definition(both) == definition(serial), (mine, other)
    assert together > MET
