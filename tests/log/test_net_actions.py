"""The actions between two versions of a table, as one commit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.commit.log_of import PROTOCOL, VECTORS, add, metadata, vector
from tests.conflict.cases import PROTOCOL as FULL
from txlake.log.net_actions import net_actions
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Remove,
    Txn,
)
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text

Line = list[list[Action]]
NOW = 9_000
A, B, C = (add(path, stats='{"numRecords":10}') for path in "abc")
BASE = Snapshot.empty("t").apply(
    [
        VECTORS,
        metadata(),
        A,
        B,
        C,
        Txn(app_id="x", version=1),
        DomainMetadata(domain="d", configuration="1", removed=False),
        DomainMetadata(domain="e", configuration="1", removed=False),
    ],
    version=7,
    timestamp_ms=1_000,
)


def gone(file: Add, *, data_change: bool = True) -> Remove:
    """The file's remove."""
    return file.tombstone(timestamp_ms=1, data_change=data_change)


def marked(file: Add, offset: int) -> Add:
    """The file with a vector of its own."""
    return msgspec.structs.replace(file, deletion_vector=vector(offset=offset), data_change=True)


def moved(path: str, *sources: str) -> Add:
    """A file to which rows were moved, and where they come from if that is recorded."""
    runs = [Source(path=one, vector_id=None, first=0, rows=10) for one in sources]
    tags = {SOURCES_TAG: sources_text(runs)} if runs else None
    return msgspec.structs.replace(add(path, tags=tags), data_change=False)


def head_of(*commits: Sequence[Action], base: Snapshot = BASE) -> Snapshot:
    """The version after the commits."""
    for actions in commits:
        base = base.apply(actions, version=base.version + 1, timestamp_ms=2_000)
    return base


def net(*commits: Sequence[Action], base: Snapshot = BASE) -> tuple[Action, ...]:
    """What the commits come to."""
    return net_actions(base, head_of(*commits, base=base), commits, timestamp_ms=NOW)


def files(actions: Sequence[Action]) -> dict[str, bool]:
    """Which files are removed (-) and added (+), with their vectors, and if that changes data."""
    return {
        ("+" if isinstance(one, Add) else "-")
        + one.path
        + ("" if one.deletion_vector is None else str(one.deletion_vector.offset)): one.data_change
        for one in actions
        if isinstance(one, Add | Remove)
    }


def test_equal_versions_have_no_actions() -> None:
    assert net() == ()
    assert net_actions(BASE, BASE, None, timestamp_ms=NOW) == ()


def test_a_commit_alone_is_itself() -> None:
    assert net([gone(A), marked(A, 1), gone(B), add("d")]) == (
        msgspec.structs.replace(gone(A), deletion_timestamp=NOW),
        msgspec.structs.replace(gone(B), deletion_timestamp=NOW),
        marked(A, 1),
        add("d"),
    )


def test_files_are_removed_as_the_base_lists_them() -> None:
    listed = msgspec.structs.replace(
        marked(A, 1), partition_values={"p": "x"}, size=5, tags={"k": "v"}
    )
    base = head_of([gone(A), listed])
    bare = Remove(path="a", data_change=True, deletion_vector=listed.deletion_vector)
    (found,) = net([bare], base=base)
    assert found == listed.tombstone(timestamp_ms=NOW)


def test_files_that_came_and_went_are_left_out() -> None:
    assert net([add("d")], [gone(add("d"))]) == ()
    assert files(net([add("d")], [gone(add("d")), add("e")])) == {"+e": True}


def test_only_the_last_vector_counts() -> None:
    commits: Line = [[gone(A), marked(A, 1)], [gone(marked(A, 1)), marked(A, 2)]]
    assert files(net(*commits)) == {"-a": True, "+a2": True}
    assert files(net(*commits, [gone(marked(A, 2))])) == {"-a": True}


def test_a_file_that_was_removed_and_brought_back_stays() -> None:
    assert net([gone(A)], [A]) == ()
    restated = msgspec.structs.replace(A, stats='{"numRecords":10,"nullCount":{}}')
    assert net([gone(A)], [restated]) == (msgspec.structs.replace(restated, data_change=False),)


def test_a_file_listed_again_changes_no_data() -> None:
    tagged = msgspec.structs.replace(A, tags={"k": "v"})
    assert net([tagged]) == (msgspec.structs.replace(tagged, data_change=False),)
    assert net([tagged], [A]) == ()


def test_another_spelling_of_a_path_is_the_same_file() -> None:
    base = head_of([add("/t/f")])
    assert net([gone(add("file:/t/f"))], [add("file:/t/f")], base=base) == ()


def test_settings_are_those_of_the_head() -> None:
    renamed = msgspec.structs.replace(BASE.metadata, name="other")
    found = net(
        [FULL, metadata({"k": "1"}), Txn(app_id="y", version=1)],
        [renamed, Txn(app_id="y", version=2), Txn(app_id="x", version=1)],
        [DomainMetadata(domain="f", configuration="2", removed=False)],
        [DomainMetadata(domain="d", configuration="1", removed=True)],
        [DomainMetadata(domain="e", configuration="1", removed=False)],
    )
    assert found == (
        FULL,
        renamed,
        Txn(app_id="y", version=2),
        DomainMetadata(domain="f", configuration="2", removed=False),
        DomainMetadata(domain="d", configuration="1", removed=True),
    )


def test_settings_that_came_and_went_are_left_out() -> None:
    domain = DomainMetadata(domain="f", configuration="2", removed=False)
    off = msgspec.structs.replace(domain, removed=True)
    assert net([metadata({"k": "1"}), domain], [BASE.metadata, off]) == ()


def test_a_new_table_is_all_that_it_has() -> None:
    found = net([PROTOCOL, metadata(), A], base=Snapshot.empty("t"))
    assert found == (PROTOCOL, metadata(), A)


# Rows that were moved, and rows that were changed


def test_a_compaction_changes_no_data() -> None:
    compaction: list[Action] = [gone(A, data_change=False), gone(B, data_change=False), moved("d")]
    assert files(net(compaction)) == {"-a": False, "-b": False, "+d": False}
    assert files(net(compaction, [add("n")])) == {
        "-a": False,
        "-b": False,
        "+d": False,
        "+n": True,
    }


def test_a_compaction_of_a_compaction_changes_no_data() -> None:
    found = net(
        [gone(A, data_change=False), moved("d")],
        [gone(moved("d"), data_change=False), gone(B, data_change=False), moved("f")],
    )
    assert files(found) == {"-a": False, "-b": False, "+f": False}


@pytest.mark.parametrize(
    "commits",
    [
        pytest.param(
            [[gone(A), marked(A, 1)], [gone(marked(A, 1), data_change=False), moved("d")]],
            id="rows deleted before",
        ),
        pytest.param(
            [
                [gone(A, data_change=False), moved("e")],
                [gone(moved("e")), marked(moved("e"), 1)],
                [gone(marked(moved("e"), 1), data_change=False), moved("d")],
            ],
            id="rows deleted between",
        ),
        pytest.param(
            [[add("n")], [gone(A, data_change=False), gone(add("n")), moved("d", "a", "n")]],
            id="rows removed",
        ),
    ],
)
def test_a_rewrite_of_changed_rows_changes_data(commits: Sequence[Sequence[Action]]) -> None:
    assert files(net(*commits)) == {"-a": True, "+d": True}


def test_a_rewrite_together_with_new_rows_changes_data() -> None:
    found = net(
        [add("n")], [gone(A, data_change=False), gone(add("n"), data_change=False), moved("d")]
    )
    assert files(found) == {"-a": True, "+d": True}


def test_a_file_listed_again_before_its_rewrite_has_the_same_rows() -> None:
    restated = msgspec.structs.replace(A, stats="{}")
    found = net([restated], [gone(A, data_change=False), moved("d")])
    assert files(found) == {"-a": False, "+d": False}


def test_rows_that_came_back_before_a_rewrite_are_new() -> None:
    found = net([gone(A, data_change=False)], [A], [gone(A, data_change=False), moved("d")])
    assert files(found) == {"-a": True, "+d": True}


def test_deleted_rows_of_a_rewritten_file_change_data() -> None:
    found = net([gone(A, data_change=False), moved("d")], [gone(moved("d")), marked(moved("d"), 1)])
    assert files(found) == {"-a": True, "+d1": True}


def test_recorded_sources_keep_rewrites_of_one_commit_apart() -> None:
    sources: list[Action] = [gone(one, data_change=False) for one in (A, B, C)]
    deletion: list[Action] = [gone(moved("d", "a")), marked(moved("d", "a"), 1)]
    recorded = [*sources, moved("d", "a"), moved("f", "b", "c")]
    assert files(net(recorded, deletion)) == {
        "-a": True,
        "-b": False,
        "-c": False,
        "+d1": True,
        "+f": False,
    }
    for outputs in (
        [moved("d"), moved("f", "b", "c")],
        [moved("d", "a"), moved("f", "b")],
        [moved("d", "a"), msgspec.structs.replace(moved("f"), tags={SOURCES_TAG: "?"})],
    ):
        deletion = [gone(outputs[0]), marked(outputs[0], 1)]
        assert set(files(net([*sources, *outputs], deletion)).values()) == {True}


@pytest.mark.parametrize(("removed", "added"), [(True, False), (False, True)])
def test_a_vector_changes_data_if_its_remove_or_its_add_does(removed: bool, added: bool) -> None:
    listed = msgspec.structs.replace(marked(A, 1), data_change=added)
    assert files(net([gone(A, data_change=removed), listed])) == {"-a": True, "+a1": True}


def test_a_file_with_another_vector_is_no_output_of_a_rewrite() -> None:
    anew = msgspec.structs.replace(marked(A, 1), data_change=False)
    rewrite: list[Action] = [gone(A, data_change=False), anew, gone(B, data_change=False)]
    found = net([*rewrite, moved("d")], [gone(anew), marked(A, 2)])
    assert files(found) == {"-a": True, "+a2": True, "-b": False, "+d": False}


def test_a_vector_written_anew_changes_no_data() -> None:
    anew = msgspec.structs.replace(marked(A, 1), data_change=False)
    assert files(net([gone(A, data_change=False), anew])) == {"-a": False, "+a1": False}


def test_without_the_commits_every_file_that_came_or_went_changes_data() -> None:
    head = head_of(
        [gone(A, data_change=False), moved("d"), msgspec.structs.replace(B, stats="{}")],
        [gone(C), marked(C, 1)],
    )
    assert files(net_actions(BASE, head, None, timestamp_ms=NOW)) == {
        "-a": True,
        "+b": False,
        "-c": True,
        "+c1": True,
        "+d": True,
    }


# Row ids

TRACKED = head_of(
    [
        FULL,
        DomainMetadata(
            domain=ROW_TRACKING_DOMAIN, configuration='{"rowIdHighWaterMark":29}', removed=False
        ),
        *(
            msgspec.structs.replace(one, base_row_id=10 * number, default_row_commit_version=7)
            for number, one in enumerate((A, B, C))
        ),
    ]
)


def with_ids(file: Add, row_id: int, version: int = 9) -> Add:
    """The file with row ids."""
    return msgspec.structs.replace(file, base_row_id=row_id, default_row_commit_version=version)


def test_new_files_have_row_ids_and_no_commit_version() -> None:
    mark = DomainMetadata(
        domain=ROW_TRACKING_DOMAIN, configuration='{"rowIdHighWaterMark":39}', removed=False
    )
    [new] = net([with_ids(add("n"), 30), mark], base=TRACKED)
    assert new == msgspec.structs.replace(add("n"), base_row_id=30)


def test_files_keep_the_row_ids_that_they_have() -> None:
    a = with_ids(A, 0, 7)
    removed, listed = net([gone(a), with_ids(marked(A, 1), 50)], base=TRACKED)
    assert removed == a.tombstone(timestamp_ms=NOW)
    assert listed == with_ids(marked(A, 1), 0, 7)


def test_files_get_the_row_ids_that_they_lacked() -> None:
    listed = msgspec.structs.replace(A, base_row_id=0, data_change=False)
    assert net([FULL, with_ids(A, 0)]) == (FULL, listed)


def test_row_ids_are_taken_away_with_the_feature() -> None:
    found = net(
        [VECTORS, DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration="", removed=True), A],
        base=TRACKED,
    )
    assert found == (
        VECTORS,
        DomainMetadata(
            domain=ROW_TRACKING_DOMAIN, configuration='{"rowIdHighWaterMark":29}', removed=True
        ),
        msgspec.structs.replace(A, data_change=False),
    )


# Any line of commits


def _path(file: Add) -> str:
    return file.path


@st.composite
def commits(draw: st.DrawFn) -> list[list[Action]]:
    """Commits that follow `BASE`."""
    made: list[list[Action]] = []
    head = BASE
    for number in range(draw(st.integers(0, 6))):
        live = sorted(head.files.adds(), key=lambda file: file.path)
        actions: list[Action] = [CommitInfo({})]
        taken = draw(st.lists(st.sampled_from(live), max_size=2, unique_by=_path)) if live else []
        match draw(st.sampled_from(["append", "delete", "mark", "restate", "compact", "set"])):
            case "append":
                actions.append(add(f"n{number}"))
            case "delete":
                actions += map(gone, taken)
            case "mark":
                for one in taken:
                    actions += [gone(one), marked(one, draw(st.integers(1, 2)) + 10 * number)]
            case "restate":
                actions += [msgspec.structs.replace(one, stats=f"{number}") for one in taken]
            case "compact":
                actions += [gone(one, data_change=False) for one in taken]
                actions.append(moved(f"m{number}", *(one.path for one in taken)))
            case _:
                actions += draw(st.lists(st.sampled_from(SETTINGS), max_size=2, unique_by=type))
        if draw(st.booleans()) and number:  # what an earlier commit removed comes back
            back = [one for one in (A, B) if head.files.by_path(one.path) is None]
            actions += back
        made.append(actions)
        head = head.apply(actions, version=head.version + 1, timestamp_ms=2_000)
    return made


SETTINGS: tuple[Action, ...] = (
    FULL,
    VECTORS,
    metadata({"k": "1"}),
    BASE.metadata,
    Txn(app_id="x", version=2),
    Txn(app_id="y", version=1, last_updated=5),
    DomainMetadata(domain="d", configuration="1", removed=True),
    DomainMetadata(domain="d", configuration="2", removed=False),
    DomainMetadata(domain="f", configuration="3", removed=False),
)


def state(snapshot: Snapshot) -> tuple[object, ...]:
    """What a reader sees of a version."""
    listed = {
        file.key: msgspec.structs.replace(file, data_change=True) for file in snapshot.files.adds()
    }
    return (
        snapshot.protocol,
        snapshot.metadata,
        listed,
        dict(snapshot.app_transactions),
        dict(snapshot.domains),
        snapshot.files.totals,
    )


@settings(max_examples=300)
@given(commits(), st.booleans())
def test_the_base_with_the_net_actions_is_the_head(
    line: list[list[Action]], with_commits: bool
) -> None:
    head, given_commits = head_of(*line), line if with_commits else None
    found = net_actions(BASE, head, given_commits, timestamp_ms=NOW)
    after = BASE.apply(found)
    assert state(after) == state(head)
    assert net_actions(after, head, given_commits, timestamp_ms=NOW) == ()
    paths = [one.path for one in found if isinstance(one, Add)]
    assert len(paths) == len(set(paths))
    for one in found:
        if isinstance(one, Remove):
            assert one.key in BASE.files
            assert one.key not in head.files
