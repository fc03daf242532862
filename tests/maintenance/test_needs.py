"""What a table needs, by its snapshot and a few facts: each threshold from both sides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest

from tests.session.tables import table
from txlake.log.snapshot import Snapshot
from txlake.maintenance.needs import (
    EXPIRED_BYTES_MIN,
    MIB,
    Expired,
    Need,
    TableFacts,
    needs_of,
    packing_limits,
    quiet_until_ms,
)
from txlake.maintenance.policy import Policy, Work
from txlake.protocol.actions import Add, DeletionVector, Metadata
from txlake.protocol.clustering import Cube, in_cube

DAY = 86_400_000
NOW = 1_800_000_000_000
LARGE = 200 * MIB
DEFAULT = Policy()


def file(
    path: str, size: int = LARGE, *, rows: int | None = 100, deleted: int = 0, p: str | None = None
) -> Add:
    vector = DeletionVector(
        storage_type="u",
        path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^",
        offset=1,
        size_in_bytes=36,
        cardinality=deleted,
    )
    return Add(
        path=path,
        partition_values={} if p is None else {"p": p},
        size=size,
        modification_time=1,
        data_change=True,
        stats=None if rows is None else json.dumps({"numRecords": rows}),
        deletion_vector=vector if deleted else None,
    )


def table_of(files: Sequence[Add] = (), **options: object) -> Snapshot:
    made = table("id INT, p STRING", **options)  # type: ignore[arg-type]
    return made.apply(files, version=made.version + 1, timestamp_ms=NOW - DAY)


def facts_of(files: Sequence[Add] = (), **changed: object) -> TableFacts:
    facts = TableFacts(
        table=table_of(files),
        now_ms=NOW,
        target_file_bytes=1 << 30,
        checkpoint_version=0,
        checkpoint_interval=10,
        expired_log_files=0,
        next_log_expiry_ms=None,
        next_file_expiry_ms=None,
        expired=Expired(0, 0),
        full_vacuum_ms=NOW - DAY,
        iceberg_version=None,
    )
    return replace(facts, **changed)  # type: ignore[arg-type]


def works(facts: TableFacts, policy: Policy = DEFAULT) -> set[Work]:
    return {need.work for need in needs_of(facts, policy)}


def only(facts: TableFacts, policy: Policy = DEFAULT) -> Need:
    [need] = needs_of(facts, policy)
    return need


def test_a_table_in_good_order_needs_nothing() -> None:
    assert works(facts_of([file("a"), file("b")])) == set()
    assert works(facts_of()) == set()


# Checkpoints and the log


@pytest.mark.parametrize(
    ("version", "checkpoint", "due"),
    [(20, 0, True), (19, 0, False), (30, 10, True), (19, None, True), (18, None, False)],
)
def test_a_checkpoint_is_due_when_two_were_missed(
    version: int, checkpoint: int | None, due: bool
) -> None:
    facts = facts_of(checkpoint_version=checkpoint)
    facts = replace(facts, table=replace(facts.table, version=version))
    assert works(facts) == ({Work.CHECKPOINT} if due else set())


def test_a_checkpoint_is_due_by_the_tables_interval() -> None:
    facts = facts_of(checkpoint_interval=100)
    facts = replace(facts, table=replace(facts.table, version=199))
    assert works(facts) == set()
    facts = replace(facts, table=replace(facts.table, version=200))
    assert only(facts).why == "200 commits since the last checkpoint, and one is due every 100"


@pytest.mark.parametrize(("files", "due"), [(20, True), (19, False)])
def test_a_log_is_cleaned_up_when_many_files_have_expired(files: int, due: bool) -> None:
    facts = facts_of(expired_log_files=files)
    assert works(facts) == ({Work.LOG_CLEANUP} if due else set())


def test_a_log_that_is_kept_for_ever_is_kept() -> None:
    kept = table_of(properties={"delta.enableExpiredLogCleanup": "false"})
    assert works(facts_of(expired_log_files=100, table=kept)) == set()


# VACUUM


@pytest.mark.parametrize(
    ("files", "size_bytes", "due"),
    [(20, 0, True), (19, EXPIRED_BYTES_MIN - 1, False), (1, EXPIRED_BYTES_MIN, True)],
)
def test_vacuum_is_due_when_files_or_bytes_have_expired(
    files: int, size_bytes: int, due: bool
) -> None:
    facts = facts_of(expired=Expired(files, size_bytes))
    assert works(facts) == ({Work.VACUUM} if due else set())
    if due:
        need = only(facts)
        assert (need.files, need.size_bytes) == (files, size_bytes)


def test_how_many_expired_files_are_many_is_the_policys() -> None:
    facts = facts_of(expired=Expired(3, 0))
    assert works(facts, Policy(expired_files_min=3)) == {Work.VACUUM}
    assert works(facts, Policy(expired_files_min=4)) == set()


@pytest.mark.parametrize(("age_ms", "due"), [(7 * DAY, True), (7 * DAY - 1, False)])
def test_the_table_is_listed_once_a_week(age_ms: int, due: bool) -> None:
    facts = facts_of(full_vacuum_ms=NOW - age_ms)
    assert works(facts) == ({Work.FULL_VACUUM} if due else set())


def test_how_often_the_table_is_listed_is_the_policys() -> None:
    facts = facts_of(full_vacuum_ms=NOW - DAY)
    assert works(facts, Policy(full_vacuum_interval_ms=DAY)) == {Work.FULL_VACUUM}


@pytest.mark.parametrize(("age_ms", "due"), [(7 * DAY, True), (7 * DAY - 1, False)])
def test_a_table_that_was_never_listed_counts_from_its_creation(age_ms: int, due: bool) -> None:
    made = table_of()
    made = replace(made, metadata=_created(made, NOW - age_ms))
    facts = facts_of(table=made, full_vacuum_ms=None)
    assert works(facts) == ({Work.FULL_VACUUM} if due else set())


def test_a_table_of_unknown_age_is_listed() -> None:
    made = table_of()
    facts = facts_of(table=replace(made, metadata=_created(made, None)), full_vacuum_ms=None)
    need = only(facts)
    assert need.work is Work.FULL_VACUUM
    assert need.why == "it isn't known when the table was created, nor when VACUUM last listed it"


def test_why_a_table_is_listed() -> None:
    facts = facts_of(full_vacuum_ms=NOW - 8 * DAY, expired=Expired(3, 4))
    need = only(facts)
    assert (need.files, need.size_bytes) == (3, 4)
    assert need.why == (
        "the table was listed by VACUUM 8.0 days ago, and is listed every 7.0 days for files that "
        "no commit names"
    )
    assert only(facts_of(full_vacuum_ms=None)).why.startswith("the table was created ")
    assert only(facts_of(full_vacuum_ms=None, expired=None)).why == (
        "the log doesn't reach back to the last VACUUM, so that only a listing finds old files"
    )


def _created(made: Snapshot, time_ms: int | None) -> Metadata:
    return msgspec.structs.replace(made.metadata, created_time=time_ms)


@pytest.mark.parametrize(
    ("last_ms", "due"), [(None, True), (NOW - DAY, True), (NOW - DAY + 1, False)]
)
def test_a_log_that_does_not_reach_back_is_made_up_for_once_a_day(
    last_ms: int | None, due: bool
) -> None:
    made = table_of()
    made = replace(made, metadata=_created(made, NOW - 1))
    facts = facts_of(table=made, expired=None, full_vacuum_ms=last_ms)
    assert works(facts) == ({Work.FULL_VACUUM} if due else set())


# Statistics


def test_files_without_statistics_get_them() -> None:
    facts = facts_of([file("a"), file("b", rows=None)])
    need = only(facts)
    assert need.work is Work.STATISTICS
    assert need.why == "1 of 2 files have no statistics, so that no query can skip them"


# Small files and deleted rows


@pytest.mark.parametrize(("number", "due"), [(50, True), (49, False)])
def test_many_small_files_are_packed(number: int, due: bool) -> None:
    facts = facts_of([file(f"f{n}", MIB) for n in range(number)])
    assert works(facts) == ({Work.OPTIMIZE} if due else set())
    if due:
        need = only(facts)
        assert (need.files, need.cost_bytes) == (49, 100 * MIB)
        assert need.why == "50 small files of 50.0 MiB fit into 1"


def test_small_files_of_several_partitions_are_few_in_each() -> None:
    made = table("id INT, p STRING", partition_by=("p",))
    files = [file(f"f{n}", MIB, p=str(n % 2)) for n in range(98)]
    facts = facts_of(table=made.apply(files, version=1, timestamp_ms=NOW))
    assert works(facts) == set()


def test_how_many_small_files_are_many_is_the_policys() -> None:
    facts = facts_of([file(f"f{n}", MIB) for n in range(5)])
    assert works(facts, Policy(small_files_min=5)) == {Work.OPTIMIZE}
    assert works(facts, Policy(small_files_min=6)) == set()


def test_what_is_small_is_by_the_tables_own_size() -> None:
    small = table_of(
        [file(f"f{n}", MIB) for n in range(50)], properties={"delta.targetFileSize": "2mb"}
    )
    assert works(facts_of(table=small)) == set()
    assert packing_limits(facts_of(table=small), Policy(), 7).file_bytes_max == 2 * MIB


@pytest.mark.parametrize(("deleted", "due"), [(20, True), (19, False)])
def test_files_of_which_many_rows_are_deleted_are_rewritten(deleted: int, due: bool) -> None:
    facts = facts_of([file("a", deleted=deleted), file("b", deleted=1), file("c")])
    assert works(facts) == ({Work.PURGE} if due else set())
    if due:
        need = only(facts)
        assert need.rows == 20
        assert need.size_bytes == LARGE - LARGE * 80 // 100
        assert need.cost_bytes == 2 * LARGE - need.size_bytes


def test_which_share_is_many_is_the_policys() -> None:
    facts = facts_of([file("a", deleted=20)])
    assert works(facts, Policy(deleted_share_min=0.2)) == {Work.PURGE}
    assert works(facts, Policy(deleted_share_min=0.21)) == set()


def test_a_file_of_which_all_rows_are_deleted_is_dropped() -> None:
    need = only(facts_of([file("a", deleted=100)]))
    assert need.size_bytes == LARGE


# Clustering


def clustered(files: Sequence[Add]) -> Snapshot:
    made = table("id INT, p STRING", cluster_by=("id",))
    return made.apply(files, version=1, timestamp_ms=NOW)


CUBE = Cube("one", ("id",))


@pytest.mark.parametrize(("loose", "due"), [(20, True), (19, False)])
def test_a_table_of_which_much_is_unclustered_is_clustered(loose: int, due: bool) -> None:
    files = [in_cube(file("a", (100 - loose) * MIB), CUBE), file("b", loose * MIB)]
    facts = facts_of(table=clustered(files))
    assert works(facts) == ({Work.CLUSTER} if due else set())
    if due:
        assert only(facts).why == "1 files of 20.0 MiB aren't clustered by (id), 20% of the table"
        assert only(facts).cost_bytes == 200 * MIB


def test_how_much_is_much_is_the_policys() -> None:
    files = [in_cube(file("a", 90 * MIB), CUBE), file("b", 10 * MIB)]
    facts = facts_of(table=clustered(files))
    assert works(facts, Policy(unclustered_share_min=0.1)) == {Work.CLUSTER}


def test_clustering_packs_and_purges_too() -> None:
    files = [file(f"f{n}", MIB, deleted=50) for n in range(60)]
    assert works(facts_of(table=clustered(files))) == {Work.CLUSTER}
    off = Policy(off=frozenset({Work.CLUSTER}))
    assert works(facts_of(table=clustered(files)), off) == {Work.OPTIMIZE, Work.PURGE}


def test_only_tables_that_are_clustered_are_clustered() -> None:
    assert works(facts_of(table=clustered([]))) == set()
    by_none = table("id INT, p STRING", cluster_by=())
    assert works(facts_of(table=by_none.apply([file("a")], version=1, timestamp_ms=NOW))) == set()
    made = clustered([file("a")])
    writer = [each for each in made.protocol.writer_features or () if each != "clustering"]
    made = replace(
        made, protocol=msgspec.structs.replace(made.protocol, writer_features=tuple(writer))
    )
    assert works(facts_of(table=made)) == set()


def test_a_table_that_was_just_clustered_is_left_alone() -> None:
    files = [in_cube(file(f"f{n}", MIB), CUBE) for n in range(60)]
    assert works(facts_of(table=clustered(files))) == set()


# Iceberg


@pytest.mark.parametrize(
    ("shown", "age_ms", "due"),
    [
        pytest.param(None, DAY, False, id="none is maintained"),
        pytest.param(20, DAY, False, id="it is current"),
        pytest.param(21, DAY, False, id="a later version is published meanwhile"),
        pytest.param(19, DAY, True, id="one version is missing"),
        pytest.param(19, 60_000, True, id="for a minute"),
        pytest.param(19, 59_999, False, id="its writer may still publish it"),
        pytest.param(10, 0, True, id="many are missing"),
        pytest.param(11, 0, False, id="not so many"),
        pytest.param(-1, 0, True, id="there is none yet"),
    ],
)
def test_iceberg_metadata_that_stays_behind_is_due(
    shown: int | None, age_ms: int, due: bool
) -> None:
    facts = facts_of(iceberg_version=shown, checkpoint_version=20)
    table = replace(facts.table, version=20, timestamp_ms=NOW - age_ms)
    assert works(replace(facts, table=table)) == ({Work.ICEBERG} if due else set())


def test_the_need_says_what_icebergs_readers_see() -> None:
    facts = facts_of(iceberg_version=-1)
    table = replace(facts.table, version=1_200)
    facts = replace(facts, table=table, checkpoint_version=1_200)
    assert only(facts).why == "Iceberg's readers see none, 1,201 behind version 1,200"
    need = only(replace(facts, iceberg_version=1_198))
    assert need.why == "Iceberg's readers see version 1,198, 2 behind version 1,200"
    assert (need.gain, need.cost) == (2, 6)


# Until when nothing is needed


@pytest.mark.parametrize(
    ("changed", "until_ms"),
    [
        pytest.param({}, NOW + DAY, id="a day at most"),
        pytest.param({"next_log_expiry_ms": NOW + 7}, NOW + 7, id="the log's retention"),
        pytest.param({"next_file_expiry_ms": NOW + 7}, NOW + 7, id="the files' retention"),
        pytest.param({"next_file_expiry_ms": NOW + 2 * DAY}, NOW + DAY, id="later than a day"),
        pytest.param({"full_vacuum_ms": NOW - 7 * DAY + 7}, NOW + 7, id="the full VACUUM"),
        pytest.param(
            {"expired": None, "full_vacuum_ms": NOW - DAY + 7}, NOW + 7, id="the log lacks commits"
        ),
        pytest.param({"iceberg_version": 1}, NOW + DAY, id="Iceberg's readers see the version"),
    ],
)
def test_a_table_needs_nothing_until_a_time(changed: dict[str, object], until_ms: int) -> None:
    facts = replace(facts_of(), **changed)  # type: ignore[arg-type]
    assert works(facts) == set()
    assert quiet_until_ms(facts, DEFAULT) == until_ms
    later = replace(facts, now_ms=min(until_ms, NOW + DAY) - 1)
    assert works(later) == set()


def test_what_is_off_is_not_waited_for() -> None:
    facts = facts_of(
        next_log_expiry_ms=NOW + 1, next_file_expiry_ms=NOW + 2, full_vacuum_ms=NOW - 7 * DAY + 3
    )
    assert quiet_until_ms(facts, DEFAULT) == NOW + 1
    off = {Work.LOG_CLEANUP, Work.VACUUM, Work.FULL_VACUUM}
    assert quiet_until_ms(facts, Policy(off=frozenset(off))) == NOW + DAY
    without_log = Policy(off=frozenset({Work.LOG_CLEANUP}))
    assert quiet_until_ms(facts, without_log) == NOW + 2


def test_young_versions_that_icebergs_readers_lack_are_waited_for() -> None:
    facts = facts_of(iceberg_version=0)
    facts = replace(facts, table=replace(facts.table, timestamp_ms=NOW - 1_000))
    assert works(facts) == set()
    assert quiet_until_ms(facts, DEFAULT) == NOW + 59_000
    assert quiet_until_ms(facts, Policy(off=frozenset({Work.ICEBERG}))) == NOW + DAY


# Policy


def test_what_is_off_is_not_needed() -> None:
    everything: Mapping[Work, TableFacts] = {
        Work.CHECKPOINT: facts_of(checkpoint_version=None, table=replace(table_of(), version=99)),
        Work.LOG_CLEANUP: facts_of(expired_log_files=100),
        Work.VACUUM: facts_of(expired=Expired(100, 0)),
        Work.FULL_VACUUM: facts_of(full_vacuum_ms=0),
        Work.ICEBERG: facts_of(iceberg_version=0),
        Work.STATISTICS: facts_of([file("a", rows=None)]),
        Work.OPTIMIZE: facts_of([file(f"f{n}", MIB) for n in range(60)]),
        Work.PURGE: facts_of([file("a", deleted=50)]),
        Work.CLUSTER: facts_of(table=clustered([file("a")])),
    }
    for work, facts in everything.items():
        assert works(facts) == {work}
        assert works(facts, Policy(off=frozenset({work}))) == set()
        assert works(facts, Policy(enabled=False)) == set()


@pytest.mark.parametrize(
    "need",
    [
        *needs_of(facts_of([file(f"f{n}", 1) for n in range(60)]), Policy()),
        *needs_of(facts_of(expired=Expired(1_000, 0)), Policy()),
        *needs_of(facts_of([file("a", 0, rows=None)]), Policy()),
        *needs_of(facts_of([file("a", 1, deleted=50)]), Policy()),
    ],
    ids=lambda need: need.work.value,
)
def test_gains_and_costs_are_more_than_nothing(need: Need) -> None:
    assert need.gain > 0
    assert need.cost > 0
