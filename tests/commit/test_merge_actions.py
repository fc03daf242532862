"""What the statements of one transaction come to."""

from __future__ import annotations

import msgspec

from tests.commit.log_of import add, metadata, vector
from txlake.commit.merge_actions import StagedChanges
from txlake.log.files import Files
from txlake.protocol.actions import Action, Add, Cdc, DomainMetadata, Protocol, Remove, Txn

A = add("a")
BASE = Files.of([A])
A_DV1 = add("a", vector=vector(offset=1))
A_DV2 = add("a", vector=vector(offset=2))


def gone(file: Add, *, data_change: bool = True) -> Remove:
    return file.tombstone(timestamp_ms=1, data_change=data_change)


def moved(path: str) -> Add:
    return msgspec.structs.replace(add(path), data_change=False)


def staged(*statements: list[Action]) -> StagedChanges:
    net = StagedChanges()
    for statement in statements:
        net = net.then(statement, BASE)
    return net


def files(net: StagedChanges) -> tuple[list[tuple[str, str | None]], list[tuple[str, str | None]]]:
    """Keys removed and added."""
    return [file.key for file in net.removed_files], [file.key for file in net.added_files]


def test_nothing_is_empty() -> None:
    assert StagedChanges().is_empty
    assert StagedChanges().actions == ()
    assert not staged([add("b")]).is_empty


def test_a_file_that_is_added_and_removed_again_never_was() -> None:
    net = staged([add("b"), add("c")], [gone(add("b"))])
    assert files(net) == ([], [("c", None)])
    assert staged([add("b")], [gone(add("b"))]).is_empty


def test_two_deletes_from_one_file_are_one() -> None:
    net = staged([gone(A), A_DV1], [gone(A_DV1), A_DV2])
    assert files(net) == ([A.key], [A_DV2.key])


def test_a_delete_and_then_the_whole_file() -> None:
    net = staged([gone(A), A_DV1], [gone(A_DV1)])
    assert files(net) == ([A.key], [])


def test_a_file_that_is_taken_away_and_brought_back_stays() -> None:
    assert staged([gone(A)], [A]).is_empty
    with_statistics = msgspec.structs.replace(A, stats="{}")
    net = staged([gone(A)], [with_statistics])
    assert files(net) == ([], [A.key])
    assert not net.added_files[0].data_change  # no row came or went


def test_a_file_listed_again_and_then_removed_is_removed() -> None:
    with_statistics = msgspec.structs.replace(A, stats="{}")
    assert files(staged([with_statistics], [gone(A)])) == ([A.key], [])


def test_rows_that_were_moved_and_then_changed_are_no_mere_rewrite() -> None:
    net = staged([gone(A, data_change=False), moved("b")], [gone(add("b")), add("c")])
    assert files(net) == ([A.key], [("c", None)])
    assert all(file.data_change for file in net.removed_files)


def test_rows_that_were_written_and_then_moved_are_no_mere_rewrite() -> None:
    net = staged([add("b")], [gone(add("b"), data_change=False), moved("c")])
    assert [(file.path, file.data_change) for file in net.added_files] == [("c", True)]


def test_a_rewrite_beside_other_writes_stays_one() -> None:
    net = staged([gone(A, data_change=False), moved("b")], [add("c")])
    assert [(file.path, file.data_change) for file in net.added_files] == [
        ("b", False),
        ("c", True),
    ]


def test_of_two_settings_the_later_counts() -> None:
    def domain(text: str) -> DomainMetadata:
        return DomainMetadata(domain="d", configuration=text, removed=False)

    low = Protocol(min_reader_version=1, min_writer_version=2)
    high = Protocol(min_reader_version=1, min_writer_version=3)
    change = Cdc(path="c", partition_values={}, size=1, data_change=False)
    net = staged(
        [low, metadata(), Txn(app_id="app", version=1), domain("1"), change],
        [high, metadata({"k": "v"}), Txn(app_id="app", version=2), domain("2")],
    )
    assert net.actions == (
        high,
        metadata({"k": "v"}),
        Txn(app_id="app", version=2),
        domain("2"),
        change,
    )


def test_earlier_moments_stay_as_they_were() -> None:
    before = staged([add("b")])
    before.then([gone(add("b")), add("c")], BASE)
    assert files(before) == ([], [("b", None)])
