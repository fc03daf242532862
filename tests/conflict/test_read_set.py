"""Joined read sets: what is kept of many reads, and that no conflict is lost by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.conflict.cases import TABLE, A, B, C, D, add, gone, metadata, read, vector, winner
from txlake.conflict.check import check_all
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext
from txlake.conflict.evidence import Conflicted
from txlake.conflict.footprint import Footprint, Read, ReadKind
from txlake.conflict.levels import Level
from txlake.conflict.read_set import READ_BYTES_MAX, READS_MAX, ReadSet, join_reads
from txlake.log.predicates import Comparison, In, Opaque, Operator, Or, to_text
from txlake.log.skipping import LIST_VALUES_MAX
from txlake.protocol.actions import Add, DeletionVector, Remove

PLAIN = ReadKind.PLAIN
FOR_WRITE = ReadKind.FOR_WRITE
GUARD = ReadKind.GUARD


def joined(*reads: Read) -> tuple[Read, ...]:
    """What is kept of the reads of as many commits."""
    return join_reads(ReadSet(reads=(one,)) for one in reads).reads


def point(value: int, kind: ReadKind = FOR_WRITE) -> Read:
    """A read of the rows with that id."""
    return Read(predicate=Comparison(("id",), Operator.EQUAL, value), text=f"i={value}", kind=kind)


def nothing_in_common(count: int, kind: ReadKind = FOR_WRITE) -> list[Read]:
    """Reads that can't be merged."""
    predicates = (Comparison(("id",), Operator.GREATER, value) for value in range(count))
    return [Read(predicate=one, kind=kind) for one in predicates]


def test_sets_are_united() -> None:
    one = ReadSet(
        read_files=frozenset({"a"}), read_app_ids=frozenset({"x"}), read_domains=frozenset({"d"})
    )
    other = ReadSet(read_files=frozenset({"b"}), read_app_ids=frozenset({"y"}))
    assert join_reads([one, other]) == ReadSet(
        read_files=frozenset({"a", "b"}),
        read_app_ids=frozenset({"x", "y"}),
        read_domains=frozenset({"d"}),
    )
    assert not join_reads([one, ReadSet.unknown(), other]).is_complete
    assert join_reads([]) == ReadSet()


def test_a_footprint_gives_its_reads() -> None:
    reads = (read("id = 5"), read(kind=PLAIN))
    footprint = Footprint(
        read_version=5,
        reads=reads,
        read_files=frozenset({"a"}),
        read_app_ids=frozenset({"x"}),
        read_domains=frozenset({"d"}),
        added=(A,),
    )
    assert ReadSet.of(footprint) == ReadSet(
        reads=reads,
        read_files=frozenset({"a"}),
        read_app_ids=frozenset({"x"}),
        read_domains=frozenset({"d"}),
    )


def test_an_unknown_set_is_the_whole_table_of_every_kind() -> None:
    found = ReadSet.unknown()
    assert {one.kind for one in found.reads} == set(ReadKind)
    assert all(one.predicate is None and one.files for one in found.reads)


@pytest.mark.parametrize(
    ("reads", "kept"),
    [
        pytest.param([read("id > 5"), read("id > 5")], [0], id="repeated"),
        pytest.param([read("id > 5"), read()], [1], id="the whole table"),
        pytest.param([read("p = '1' AND id > 5"), read("id > 5")], [1], id="fewer conjuncts"),
        pytest.param([read("id > 5"), read("id > 6")], [0, 1], id="other conjuncts"),
        pytest.param([read("id > 5", PLAIN), read()], [0, 1], id="another kind"),
        pytest.param([read("id > 5", GUARD), read()], [0, 1], id="a guard"),
        pytest.param([read("id > 5"), read(files=False)], [0, 1], id="no files"),
        pytest.param([read("id > 5", files=False), read()], [1], id="files too"),
        pytest.param([replace(read(), deletes_all=True), read()], [1], id="deletes all"),
        pytest.param([read("id > 5"), replace(read(), deletes_all=True)], [0, 1], id="deletes"),
        pytest.param([read("id > 5"), replace(read(), is_assumed=True)], [0, 1], id="assumed"),
        pytest.param([replace(read(), is_assumed=True), read("id > 5")], [0, 1], id="assumed 2"),
        pytest.param([replace(read(), is_assumed=True), read()], [1], id="assumed 3"),
        pytest.param(
            [
                Read(predicate=Comparison(("id",), Operator.LESS, 0.0)),
                Read(predicate=Comparison(("id",), Operator.LESS, -0.0)),
            ],
            [0, 1],
            id="two zeros",
        ),
        pytest.param(
            [
                Read(predicate=Comparison(("id",), Operator.LESS, float("nan"))),
                Read(predicate=Comparison(("id",), Operator.LESS, float("nan"))),
            ],
            [0],
            id="NaN twice",
        ),
    ],
)
def test_covered_reads_are_left_out(reads: Sequence[Read], kept: Sequence[int]) -> None:
    assert joined(*reads) == tuple(reads[place] for place in kept)


def test_a_repeated_read_has_no_condition_of_its_own() -> None:
    mine = replace(read("id > 5"), condition=object())
    assert joined(mine, mine)[0].condition is mine.condition
    assert joined(mine, read("id > 5"))[0].condition is None


def test_single_values_become_lists() -> None:
    (found,) = joined(point(1), point(2), replace(read("id IN (2, 3)"), text=None))
    assert found.predicate == In(("id",), (1, 2, 3))
    assert found.text == "id IN (1, 2, 3)"


def test_a_single_read_keeps_its_text() -> None:
    assert joined(point(1)) == (point(1),)


def test_values_of_different_kinds_stay_apart() -> None:
    assert joined(point(1), point(2, PLAIN)) == (point(1), point(2, PLAIN))


def test_the_conjuncts_beside_the_values_are_kept() -> None:
    found = joined(*(read(f"p = '1' AND id = {value}") for value in range(3)), read("id = 7"))
    assert [to_text(one.predicate) for one in found if one.predicate is not None] == [
        "p = '1' AND id IN (0, 1, 2)",
        "id = 7",
    ]


def test_the_column_whose_values_differ_becomes_the_list() -> None:
    found = joined(*(read(f"p = '{name}' AND id = 1") for name in "abc"))
    assert [to_text(one.predicate) for one in found if one.predicate is not None] == [
        "id = 1 AND p IN ('a', 'b', 'c')"
    ]


def test_lists_are_as_long_as_file_skipping_compares() -> None:
    found = joined(*map(point, range(LIST_VALUES_MAX + 1)))
    assert [len(one.predicate.values) for one in found if isinstance(one.predicate, In)] == [
        LIST_VALUES_MAX,
        1,
    ]


def test_long_lists_stay_as_they_are() -> None:
    long = Read(predicate=In(("id",), tuple(range(LIST_VALUES_MAX + 1))))
    assert joined(long, point(70)) == (long, point(70))


def test_a_comparison_with_null_is_no_value_of_a_list() -> None:
    null = Read(predicate=Comparison(("id",), Operator.EQUAL, None))
    assert joined(null, point(1)) == (null, point(1))


def test_too_many_reads_become_one_of_the_whole_table() -> None:
    few = nothing_in_common(READS_MAX)
    assert joined(*few) == tuple(few)
    (found,) = joined(*nothing_in_common(READS_MAX + 1))
    assert found == Read(text="257 conditions, too many to keep apart")


def test_the_largest_kind_becomes_the_whole_table_first() -> None:
    selects, guard = nothing_in_common(READS_MAX, PLAIN), read("id > 5", GUARD)
    found = joined(read("id > 5"), *selects, guard)
    assert [(one.kind, one.predicate is None) for one in found] == [
        (FOR_WRITE, False),
        (GUARD, False),
        (PLAIN, True),
    ]


def test_large_reads_become_the_whole_table() -> None:
    large = Read(predicate=Opaque("x" * READ_BYTES_MAX), kind=GUARD, deletes_all=True)
    (found,) = joined(large)
    assert (found.predicate, found.kind, found.deletes_all) == (None, GUARD, False)


def test_reads_of_added_rows_alone_stay_such() -> None:
    reads = [replace(one, files=False) for one in nothing_in_common(READS_MAX + 1)]
    (found,) = joined(*reads)
    assert not found.files


def test_too_many_files_become_the_whole_table() -> None:
    paths = frozenset(f"{number:0100}" for number in range(READ_BYTES_MAX // 100 + 1))
    found = join_reads([ReadSet(reads=(read("id > 5"),), read_files=paths)])
    assert found.read_files == frozenset()
    assert found.reads == (Read(text="656 files, too many to keep apart"),)


def test_a_predicate_nested_too_deeply_is_the_whole_table() -> None:
    predicate = read("id > 5").predicate
    assert predicate is not None
    for _ in range(100_000):
        predicate = Or((predicate,))
    (found,) = joined(Read(predicate=predicate, kind=PLAIN, deletes_all=True))
    assert (found.predicate, found.kind, found.deletes_all) == (None, PLAIN, False)


class Vectors:
    """Vectors that delete the first rows of their files."""

    def of(self, vector: DeletionVector) -> BitMap64:
        return BitMap64(range(vector.cardinality))

    def of_id(self, vector_id: str) -> BitMap64:
        return BitMap64(range(int(vector_id.split("-")[1].split("@")[0])))


MARKED = TABLE.apply([metadata(delta__enableDeletionVectors="true")])
CONDITIONS = ("id = 5", "id = 15", "id > 8", "p = '1'", "p = '1' AND id = 5", "id IN (3, 15)")
READS = st.builds(
    replace,
    st.sampled_from([read(), *map(read, CONDITIONS)]),
    kind=st.sampled_from(ReadKind),
    files=st.booleans(),
    deletes_all=st.booleans(),
    is_assumed=st.booleans(),
)


def _change(file: Add, marks: int, *, data_change: bool) -> tuple[Remove, Add | None]:
    """The file removed, or listed again with a vector of that many rows."""
    removed = gone(file, data_change=data_change)
    if not marks:
        return removed, None
    listed = add(file.path, file.partition_values["p"], dv=vector(marks), data_change=data_change)
    return removed, listed


CHANGES = st.lists(
    st.builds(
        _change,
        st.sampled_from([A, B, C, D]),
        st.sampled_from([0, 1, 5]),
        data_change=st.booleans(),
    ),
    max_size=2,
    unique_by=lambda change: change[0].path,
)
ADDED = st.lists(
    st.builds(
        add,
        st.sampled_from(["w1", "w2", "w3"]),
        st.sampled_from(["1", "2"]),
        st.sampled_from([None, (1, 10), (11, 20), (5, 5)]),
        data_change=st.booleans(),
    ),
    max_size=2,
    unique_by=lambda file: file.path,
)


def _parts(changes: Sequence[tuple[Remove, Add | None]], added: Sequence[Add]) -> dict[str, object]:
    """The files that a transaction with these changes removes and adds."""
    listed = [again for _, again in changes if again is not None]
    return {"removed": tuple(one for one, _ in changes), "added": (*listed, *added)}


def _conflicts(
    footprint: Footprint, winners: Sequence[ConcurrentCommit], level: Level, *, by_rows: bool
) -> bool:
    context = CheckContext(
        base=MARKED,
        metadata=MARKED.metadata,
        protocol=MARKED.protocol,
        level=level,
        vectors=Vectors() if by_rows else None,
    )
    return isinstance(check_all(footprint, winners, context), Conflicted)


@settings(max_examples=400)
@given(
    reads=st.lists(READS, max_size=6),
    limit=st.sampled_from([1, 3, READS_MAX]),
    ours=st.builds(_parts, CHANGES, st.just([add("ours", "2", (11, 20))])),
    theirs=st.lists(st.builds(_parts, CHANGES, ADDED), min_size=1, max_size=2),
    blind=st.booleans(),
    level=st.sampled_from(Level),
    by_rows=st.booleans(),
    read_files=st.frozensets(st.sampled_from(["a", "b"])),
)
def test_no_conflict_is_lost(
    reads: list[Read],
    limit: int,
    ours: dict[str, object],
    theirs: list[dict[str, object]],
    blind: bool,
    level: Level,
    by_rows: bool,
    read_files: frozenset[str],
) -> None:
    single = Footprint(
        read_version=5,
        reads=tuple(reads),
        read_files=read_files,
        **ours,  # type: ignore[arg-type]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txlake.conflict.read_set.READS_MAX", limit)
        found = join_reads(ReadSet(reads=(one,), read_files=read_files) for one in reads)
    many = replace(single, reads=found.reads, read_files=found.read_files)
    winners = [
        winner(6 + place, is_blind_append=blind, **parts) for place, parts in enumerate(theirs)
    ]
    assert {one.kind for one in found.reads} == {one.kind for one in reads}
    if _conflicts(single, winners, level, by_rows=by_rows):
        assert _conflicts(many, winners, level, by_rows=by_rows)
