"""Every rule of who may commit, as a table of named cases at the three levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from pyroaring import BitMap64

from tests.conflict.cases import (
    CASES,
    IN_1,
    MORE,
    PROTOCOL,
    A,
    B,
    Case,
    D,
    E,
    add,
    gone,
    metadata,
    ours,
    read,
    restating,
    vector,
    winner,
)
from txlake.conflict.check import check, check_all, check_selects
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext, FileRows
from txlake.conflict.evidence import Conflicted, NoConflict, Rebased, conflict_error
from txlake.conflict.footprint import Footprint, ReadKind
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.conflict.rules import RULES, Rule
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    Conflict,
    CorruptTable,
    MetadataChangedException,
    ProtocolChangedException,
    SerializableIsolationViolation,
    UnsupportedFeature,
    UpdateConflict,
)
from txlake.log.files import canonical_path
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DeletionVector, Metadata, Protocol

ERRORS: dict[str, type[Conflict]] = {
    "select_not_true": SerializableIsolationViolation,
    "table_created_by_both": ProtocolChangedException,
    "protocol_changed_by_both": ProtocolChangedException,
    "features_dropped": ProtocolChangedException,
    "feature_came_into_force": ProtocolChangedException,
    "dropped_feature_used": ProtocolChangedException,
    "metadata_changed": MetadataChangedException,
    "domain_changed": MetadataChangedException,
    "app_id_advanced": ConcurrentTransactionException,
    "table_changed_by_both": UpdateConflict,
    "rows_added": ConcurrentAppendException,
    "files_of_old_settings": ConcurrentAppendException,
    "rows_deleted": ConcurrentDeleteReadException,
    "rows_deleted_by_both": ConcurrentDeleteDeleteException,
    "file_added_by_both": ConcurrentAppendException,
}
EVERY = [
    pytest.param(one, level, id=f"{one.name}-{level.value}") for one in CASES for level in Level
]


def answer(case: Case, level: Level, rules: Sequence[Rule] = RULES) -> str | None:
    """The rule that finds the case's conflict."""
    context = case.context(level)
    footprint = case.ours
    for one in case.winners:
        outcome = check(footprint, one, context, rules)
        if isinstance(outcome, Conflicted):
            return outcome.evidence.rule
        context = outcome.context
    return None


@pytest.mark.parametrize(("case", "level"), EVERY)
def test_case(case: Case, level: Level) -> None:
    assert answer(case, level) == case.expected(level)


@pytest.mark.parametrize("left_out", RULES, ids=lambda rule: str(rule.__name__))
def test_each_rule_decides_a_case(left_out: Rule) -> None:
    others = [rule for rule in RULES if rule is not left_out]
    changed = [
        case.name
        for case in CASES
        for level in Level
        if answer(case, level, others) != case.expected(level)
    ]
    assert changed


def test_new_statistics_give_way_file_by_file() -> None:
    footprint = ours(
        added=(restating(A), restating(B), restating(E)),
        restated=frozenset(canonical_path(file.path) for file in (A, B, E)),
    )
    context = context_of(footprint)
    marked = winner(added=(add("a", "1", (1, 10), dv=vector(3)),), removed=(gone(A),))
    listed = winner(7, added=(add("file:///t/e", "4"),))
    outcome = check_all(footprint, [marked, listed], context)
    assert isinstance(outcome, Rebased)
    assert outcome.footprint.added == (restating(B),)
    assert outcome.footprint.restated == {"b"}
    assert outcome.adopted == (
        "the statistics of 1 files of version 6",
        "the statistics of 1 files of version 7",
    )


def test_new_statistics_of_files_that_nobody_touched_stay() -> None:
    footprint = ours(added=(restating(A),), restated=frozenset({"a"}))
    outcome = check(footprint, winner(removed=(gone(B),)), context_of(footprint))
    assert isinstance(outcome, NoConflict)
    footprint = ours()
    assert footprint.without_stale_statistics(winner(removed=(gone(B),))) is footprint


def test_case_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_each_rule_has_its_exception() -> None:
    found = {
        outcome.evidence.rule: outcome.error
        for case in CASES
        for level in Level
        if isinstance(outcome := case.outcome(level), Conflicted)
    }
    assert found == ERRORS
    assert list(ERRORS) == [rule.__name__ for rule in RULES]


def test_stricter_levels_refuse_no_less() -> None:
    for case in CASES:
        if case.snapshot is not None:
            assert case.write_serializable is not None, case.name
        if case.write_serializable is not None:
            assert case.serializable is not None, case.name


def context_of(footprint: Footprint) -> CheckContext:
    return replace(CASES[0], ours=footprint).context(Level.WRITE_SERIALIZABLE)


def conflict(footprint: Footprint, *winners: ConcurrentCommit) -> Conflict:
    outcome = check_all(footprint, winners, context_of(footprint))
    assert isinstance(outcome, Conflicted)
    return conflict_error(outcome)


def test_evidence_says_who_won_where_and_what_to_do() -> None:
    update = ours(added=(), removed=(gone(A),), reads=(read("id  =  5"),))
    theirs = winner(6, added=(IN_1,), operation="MERGE", user="ada", timestamp_ms=1_767_225_600_123)
    error = conflict(update, theirs)
    evidence = error.evidence
    assert evidence is not None
    assert (evidence.table, evidence.read_version, evidence.winning_version) == ("t", 5, 6)
    assert (evidence.winning_operation, evidence.winning_user) == ("MERGE", "ada")
    assert evidence.winning_timestamp_ms == 1_767_225_600_123
    assert (evidence.rule, evidence.predicate, evidence.files) == ("rows_added", "id  =  5", ("w",))
    assert (evidence.isolation, evidence.retry) == ("write_serializable", True)
    assert evidence.advice
    for fact in ("t: ", "version 5", "version 6 (MERGE) by ada at 2026-01-01T00:00:00.123Z"):
        assert fact in str(error)
    for fact in ("[p=1]", "rows_added", "id  =  5", "files w", "write_serializable"):
        assert fact in str(error)
    assert evidence.advice in str(error)


def test_evidence_decodes_paths_and_shows_ten() -> None:
    files = tuple(
        Add(
            path=f"p=1/a%20{number}",
            partition_values={"p": "1"},
            size=1,
            modification_time=1,
            data_change=True,
        )
        for number in range(12)
    )
    error = conflict(ours(reads=(read("p = '1'"),)), winner(added=files))
    assert error.evidence is not None
    assert error.evidence.files[0] == "p=1/a 0"
    assert len(error.evidence.files) == 12
    assert "and 2 more" in str(error)


def test_codes_of_other_systems_are_in_the_message() -> None:
    case = next(one for one in CASES if one.name == "a SELECT would see more")
    outcome = case.outcome(Level.SERIALIZABLE)
    assert isinstance(outcome, Conflicted)
    assert "1023" in str(conflict_error(outcome))


def test_a_creator_can_not_just_retry() -> None:
    case = next(one for one in CASES if one.name == "two creators of a table")
    outcome = case.outcome(Level.WRITE_SERIALIZABLE)
    assert isinstance(outcome, Conflicted)
    assert outcome.evidence.retry is False
    assert "cannot succeed" in str(conflict_error(outcome))


def test_a_winners_protocol_beyond_us() -> None:
    beyond = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=(*(PROTOCOL.reader_features or ()), "teleport"),
        writer_features=(*(PROTOCOL.writer_features or ()), "teleport"),
    )
    context = context_of(ours())
    with pytest.raises(UnsupportedFeature, match="teleport"):
        check(ours(), winner(protocol=beyond), context)


@pytest.mark.parametrize(
    "beyond",
    [
        Protocol(min_reader_version=4, min_writer_version=2),
        Protocol(min_reader_version=1, min_writer_version=8),
    ],
    ids=["to read", "to write"],
)
def test_a_winners_protocol_of_a_version_beyond_us(beyond: Protocol) -> None:
    with pytest.raises(UnsupportedFeature):
        check(ours(), winner(protocol=beyond), context_of(ours()))


FIELD = {"name": "id", "type": "long", "nullable": True}
IN_FORCE: dict[str, Metadata] = {
    "appendOnly": metadata(delta__appendOnly="true"),
    "checkConstraints": metadata(delta__constraints__c="id > 0"),
    "columnMapping": metadata(delta__columnMapping__mode="name"),
    "generatedColumns": metadata(
        {"type": "struct", "fields": [{**FIELD, "metadata": {"delta.generationExpression": "1"}}]}
    ),
    "invariants": metadata(
        {
            "type": "struct",
            "fields": [
                {
                    **FIELD,
                    "metadata": {"delta.invariants": '{"expression":{"expression":"id > 0"}}'},
                }
            ],
        }
    ),
}


def listing(*names: str) -> Protocol:
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=tuple(name for name in names if name == "columnMapping"),
        writer_features=names,
    )


@pytest.mark.parametrize("feature", IN_FORCE)
def test_a_feature_of_rows_that_comes_into_force(feature: str) -> None:
    base = Snapshot.empty("t").apply([listing(), IN_FORCE[feature]], version=5, timestamp_ms=1)
    context = CheckContext(base=base, metadata=base.metadata, protocol=base.protocol)
    outcome = check(ours(), winner(protocol=listing(feature)), context)
    assert isinstance(outcome, Conflicted)
    assert outcome.evidence.rule == "feature_came_into_force"
    assert feature in outcome.finding


def test_a_feature_of_files_that_comes_into_force() -> None:
    name = "materializePartitionColumns"
    base = Snapshot.empty("t").apply([listing(), metadata(), A, B], version=5, timestamp_ms=1)
    context = CheckContext(base=base, metadata=base.metadata, protocol=base.protocol)
    moved = ours(added=(add("ac", data_change=False),), removed=(gone(A, data_change=False),))
    changes = ours(added=(), change_files=True)
    for writing in (ours(), moved, changes):
        outcome = check(writing, winner(protocol=listing(name)), context)
        assert isinstance(outcome, Conflicted)
        assert outcome.evidence.rule == "feature_came_into_force"
        assert f"{name} into force" in outcome.finding
    iceberg = metadata(delta__enableIcebergCompatV2="true")
    used = Snapshot.empty("t").apply([listing(), iceberg, A, B], version=5, timestamp_ms=1)
    of_iceberg = CheckContext(base=used, metadata=used.metadata, protocol=used.protocol)
    listed = winner(protocol=listing("columnMapping", "icebergCompatV2"))
    assert isinstance(check(moved, listed, of_iceberg), Conflicted)
    assert not isinstance(check(moved, listed, context), Conflicted)
    marked = ours(added=(msgspec.structs.replace(A, base_row_id=7),), removed=(gone(A),))
    told_again = ours(added=(A,), restated=frozenset({A.path}))
    for writing_none in (marked, told_again):
        outcome = check(writing_none, winner(protocol=listing(name)), context)
        assert not isinstance(outcome, Conflicted)


def test_a_file_listed_again_with_its_vector_brings_no_row() -> None:
    again = winner(removed=(gone(D),), added=(msgspec.structs.replace(D, base_row_id=7),))
    for context in (context_of(ours()), by_rows(ours(), Vectors({2: [1, 2]}))):
        assert isinstance(check(ours(reads=(read("id = 15"),)), again, context), NoConflict)


def test_what_is_adopted_is_told() -> None:
    context = context_of(ours())
    outcome = check(ours(), winner(protocol=MORE, metadata=metadata()), context)
    assert isinstance(outcome, Rebased)
    assert outcome.adopted == ("the protocol of version 6",)
    assert isinstance(check(ours(), winner(metadata=metadata()), context), NoConflict)


class Vectors:
    """Each vector's positions by its cardinality, as long as they can be read; None: never."""

    def __init__(self, positions: dict[int, list[int] | None], reads_max: int = 99) -> None:
        self.positions = positions
        self.reads_left = reads_max

    def of(self, vector: DeletionVector) -> BitMap64:
        found = self.positions[vector.cardinality]
        self.reads_left -= 1
        if found is None or self.reads_left < 0:
            raise CorruptTable("gone")
        return BitMap64(found)

    def of_id(self, vector_id: str) -> BitMap64:
        raise AssertionError("nothing was moved")


def by_rows(footprint: Footprint, vectors: Vectors, probe: Verdict | None = None) -> CheckContext:
    """Rows are the grain: the table uses deletion vectors."""
    on = metadata(delta__enableDeletionVectors="true")
    context = context_of(footprint)
    return replace(
        context, base=context.base.apply([on]), metadata=on, vectors=vectors, probe=probe
    )


MARKED = Add(
    path="d",
    partition_values={"p": "2"},
    size=10,
    modification_time=1,
    data_change=True,
    stats=D.stats,
    deletion_vector=vector(3),
)
GREW = winner(removed=(gone(D),), added=(MARKED,))


def test_a_vector_that_cannot_be_read_may_have_brought_rows_back() -> None:
    reading = ours(reads=(read("id = 15", files=False),))
    grown = Vectors({2: [1, 2], 3: [1, 2, 3]})
    assert isinstance(check(reading, GREW, by_rows(reading, grown)), NoConflict)
    swapped = Vectors({2: [1, 2], 3: [2, 3, 4]})
    assert isinstance(check(reading, GREW, by_rows(reading, swapped)), Conflicted)
    unreadable = Vectors({2: [1, 2], 3: None})
    assert isinstance(check(reading, GREW, by_rows(reading, unreadable)), Conflicted)


def test_rows_are_told_as_far_as_somebody_looked_at_them() -> None:
    reading = ours(reads=(read("id = 15"),))
    vectors = Vectors({2: [1, 2], 3: [1, 2, 7]})
    looked = check(reading, GREW, by_rows(reading, vectors, Verdict(True)))
    assert isinstance(looked, Conflicted)
    assert looked.evidence.rows == ({"file": "d", "count": 1, "positions": (7,)},)
    for context in (
        by_rows(reading, vectors),
        by_rows(reading, Vectors(vectors.positions, reads_max=2), Verdict(True)),
    ):
        doubtful = check(reading, GREW, context)
        assert isinstance(doubtful, Conflicted)
        assert doubtful.evidence.rule == "rows_deleted"
        assert doubtful.evidence.rows == ({"file": "d"},)


def test_metadata_is_adopted_for_the_winners_after() -> None:
    case = next(one for one in CASES if one.name == "a winner turns deletion vectors on")
    outcome = case.outcome(Level.WRITE_SERIALIZABLE)
    assert isinstance(outcome, Rebased)
    assert outcome.context.metadata == case.winners[0].metadata
    assert outcome.adopted == ("the metadata of version 6",)
    assert isinstance(
        check_all(ours(), [winner(added=(B,))], case.context(Level.SNAPSHOT)), NoConflict
    )


class Verdict:
    """A probe that answers alike for every file, and counts."""

    def __init__(self, holds: bool | None) -> None:
        self.holds = holds
        self.asked: list[str] = []

    def matching(self, read: object, rows: Sequence[FileRows]) -> Sequence[FileRows] | None:
        self.asked += [one.file.path for one in rows]
        return None if self.holds is None else rows if self.holds else []


@pytest.mark.parametrize(("holds", "conflicts"), [(True, True), (None, True), (False, False)])
def test_the_rows_decide_where_they_can_be_looked_at(holds: bool | None, conflicts: bool) -> None:
    probe = Verdict(holds)
    context = replace(context_of(ours()), probe=probe)
    far = winner(added=(IN_1, B))
    outcome = check(ours(reads=(read("id = 5"),)), far, context)
    assert isinstance(outcome, Conflicted) is conflicts
    assert probe.asked == ["w"]  # statistics rule the other file out already


# --- parts of a transaction over several tables ---------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "refusing"),
    [
        (ReadKind.PLAIN, {Level.SERIALIZABLE}),
        (ReadKind.FOR_WRITE, {Level.SERIALIZABLE, Level.WRITE_SERIALIZABLE}),
        (ReadKind.GUARD, set(Level)),
    ],
)
@pytest.mark.parametrize("level", Level)
def test_what_was_only_read_has_to_hold_where_something_changes_elsewhere(
    kind: ReadKind, refusing: set[Level], level: Level
) -> None:
    only_read = ours(added=(), reads=(read("id = 5", kind),))
    elsewhere = replace(only_read, changes_elsewhere=True)
    theirs = winner(added=(IN_1,))
    context = replace(context_of(elsewhere), level=level)
    assert isinstance(check(only_read, theirs, context), NoConflict)
    outcome = check(elsewhere, theirs, context)
    assert isinstance(outcome, Conflicted if level in refusing else NoConflict)
    assert elsewhere.depends_on_table(level) is (level in refusing)


def test_a_table_that_was_only_read_isnt_changed_by_both() -> None:
    part = ours(added=(), reads=(read("id = 5000"),), changes_elsewhere=True)
    context = replace(context_of(part), granularity=Granularity.TABLE)
    merge = winner(added=(IN_1,), operation="MERGE")
    assert isinstance(check(part, merge, context), NoConflict)
    assert isinstance(check(ours(reads=part.reads), merge, context), Conflicted)


def test_selects_are_checked_against_all_winners_before_anything_else() -> None:
    both = ours(removed=(gone(B),), reads=(read("id = 5", ReadKind.PLAIN), read("id = 11")))
    context = replace(context_of(both), level=Level.SERIALIZABLE)
    winners = [winner(6, removed=(gone(B),)), winner(7, added=(IN_1,))]
    found = check_selects(both, winners, context)
    assert found is not None
    assert (found.evidence.rule, found.evidence.winning_version) == ("select_not_true", 7)
    assert check_selects(both, winners[:1], context) is None
    assert check_selects(both, winners, replace(context, level=Level.SNAPSHOT)) is None
    without = replace(both, reads=both.reads[1:])
    assert check_selects(without, winners, context) is None
    idle = ours(added=(), reads=both.reads)
    assert check_selects(idle, winners, context) is None


def test_selects_see_what_earlier_winners_did() -> None:
    part = ours(reads=(read("id = 5", ReadKind.PLAIN),))
    context = replace(context_of(part), level=Level.SERIALIZABLE)
    moved = add("w", "1", (1, 10), data_change=False)
    listed_again = [winner(6, added=(moved,)), winner(7, added=(IN_1,))]
    assert check_selects(part, listed_again, context) is None
    assert check_selects(part, listed_again[1:], context) is not None


def test_selects_beside_a_protocol_beyond_us() -> None:
    part = ours(reads=(read("id = 5", ReadKind.PLAIN),))
    beyond = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("teleport",))
    with pytest.raises(UnsupportedFeature, match="teleport"):
        check_selects(part, [winner(protocol=beyond)], context_of(part))


def test_depending_on_a_table() -> None:
    assert not ours().depends_on_table(Level.SERIALIZABLE)
    for parts in ({"read_app_ids": frozenset({"app"})}, {"read_domains": frozenset({"mine"})}):
        assert all(ours(**parts).depends_on_table(level) for level in Level)
    files = ours(read_files=frozenset({"a"}))
    assert {level for level in Level if files.depends_on_table(level)} == {
        Level.SERIALIZABLE,
        Level.WRITE_SERIALIZABLE,
    }


def test_a_winner_is_grouped_once_for_all_rules_and_anew_after_another_one() -> None:
    context = context_of(ours())
    x, y = add("x"), add("y")
    first, second = winner(added=(x,)), winner(added=(y,))
    assert context.changes_of(first) is context.changes_of(first)
    assert context.changes_of(first).added == (x,)
    assert context.changes_of(second).added == (y,)
    assert context.changes_of(first).added == (x,)
    assert context.after(first).changes_of(first).added == (), "it is there already"
