"""Row ids of branches: no two lines of a table give out the same, and publishing keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from tests.commit.log_of import add, metadata
from txlake.commit.file_validation import ValidationRequest, row_ids_are_ours
from txlake.commit.row_tracking import NO_ROW_IDS, RowIds, assign, ids_of, needs_ids, reserve_ids
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.protocol.actions import Action, Add, DomainMetadata, Protocol

PROTOCOL = Protocol(
    min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata", "rowTracking")
)
TRACKED = metadata({"delta.enableRowTracking": "true"})
BLOCK = 2**36


def file(path: str, first: int | None = None, rows: int | None = 2) -> Add:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    return replace(add(path, stats=stats), base_row_id=first)


def table(*files: Add, mark: int = -1) -> Snapshot:
    domain = DomainMetadata(
        domain=ROW_TRACKING_DOMAIN,
        configuration=json.dumps({"rowIdHighWaterMark": mark}),
        removed=False,
    )
    return Snapshot.empty("t").apply([PROTOCOL, TRACKED, domain, *files], version=4)


def numbered(previous: Snapshot, *actions: Action, ids: RowIds = NO_ROW_IDS) -> list[int | None]:
    """The first ids of the files that a commit lists, then the mark if it states one."""
    listed = assign(actions, previous, 5, protocol=PROTOCOL, metadata=TRACKED, ids=ids)
    found = [one.base_row_id for one in listed if isinstance(one, Add)]
    marks = [one for one in listed if isinstance(one, DomainMetadata)]
    return [*found, *(json.loads(one.configuration)["rowIdHighWaterMark"] for one in marks)]


def test_a_commit_on_a_branch_begins_with_its_block() -> None:
    ids = RowIds(first=3 * BLOCK)
    assert numbered(table(mark=7), file("a"), file("b"), ids=ids) == [
        3 * BLOCK,
        3 * BLOCK + 2,
        3 * BLOCK + 3,
    ]
    assert numbered(table(mark=9 * BLOCK), file("a"), ids=ids) == [9 * BLOCK + 1, 9 * BLOCK + 2]


PUBLISHED = RowIds(spans=((BLOCK, BLOCK + 1), (3 * BLOCK, 3 * BLOCK + 1)), up_to=3 * BLOCK + 1)


def test_a_published_file_keeps_its_ids_and_the_mark_excludes_them() -> None:
    new = [file("a", BLOCK), file("b", 3 * BLOCK), file("c")]
    mark = 3 * BLOCK + 1
    assert numbered(table(mark=7), *new, ids=PUBLISHED) == [BLOCK, 3 * BLOCK, mark + 1, mark + 2]
    higher = 5 * BLOCK
    assert numbered(table(mark=higher), *new[:2], ids=PUBLISHED) == [BLOCK, 3 * BLOCK]


def test_the_mark_moves_even_if_no_file_is_left() -> None:
    assert numbered(table(mark=7), ids=PUBLISHED) == [3 * BLOCK + 1]


def test_other_ids_beyond_the_mark_are_assigned_anew() -> None:
    assert numbered(table(mark=7), file("a", 2 * BLOCK), ids=PUBLISHED)[0] == 3 * BLOCK + 2


def test_a_file_that_the_branch_numbered_first_keeps_its_ids() -> None:
    before = table(file("a"))
    assert numbered(before, file("a", BLOCK), ids=PUBLISHED) == [BLOCK, 3 * BLOCK + 1]
    assert numbered(before, file("a", BLOCK)) == [0, 1]
    known = table(file("a", 4), mark=5)
    assert numbered(known, file("a", 6)) == [4]


@pytest.mark.parametrize(
    ("first", "rows", "is_taken"),
    [
        (BLOCK - 2, 2, False),
        (BLOCK - 2, 3, True),
        (BLOCK + 1, 2, True),
        (BLOCK + 1, None, True),
        (BLOCK + 2, 2, False),
        (3 * BLOCK - 5, 100, True),
        (3 * BLOCK + 2, 1, False),
        (None, 9, False),
    ],
)
def test_ids_that_others_gave_too_are_refused(
    first: int | None, rows: int | None, is_taken: bool
) -> None:
    previous = table(file("x", first, rows), mark=4 * BLOCK)
    if is_taken:
        with pytest.raises(InvalidRequest, match="file x has row ids from"):
            numbered(previous, file("a", BLOCK), ids=PUBLISHED)
    else:
        assert numbered(previous, file("a", BLOCK), ids=PUBLISHED) == [BLOCK]


def test_the_ids_of_a_branch_are_those_of_its_commits() -> None:
    base = table(file("x", 0), mark=1)
    commits = [
        (file("a", BLOCK), file("x", 0)),
        (file("b", 2 * BLOCK, None), file("n")),
    ]
    assert ids_of(base, table(mark=1), commits) == NO_ROW_IDS
    found = ids_of(base, table(mark=2 * BLOCK), commits)
    assert found == RowIds(spans=((BLOCK, BLOCK + 1), (2 * BLOCK, 2 * BLOCK)), up_to=2 * BLOCK)
    assert [found.has(one) for one in (1, BLOCK, BLOCK + 1, BLOCK + 2)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("actions", "configuration", "needs"),
    [
        ([file("a")], TRACKED.configuration, True),
        ([file("a", 5)], TRACKED.configuration, False),
        ([TRACKED], TRACKED.configuration, True),
        ([], TRACKED.configuration, False),
        ([file("a")], {"delta.rowTrackingSuspended": "true"}, False),
    ],
)
def test_which_commits_give_ids(
    actions: Sequence[Action], configuration: dict[str, str], needs: bool
) -> None:
    assert needs_ids(actions, PROTOCOL, configuration) is needs


class Book:
    """Marks as the catalog has them."""

    def __init__(self) -> None:
        self.marks: dict[tuple[str, str], int] = {}

    def advance(self, table_id: str, column: str, last: Callable[[int | None], int]) -> None:
        key = (table_id, column)
        last(self.marks.get(key))  # it may be called twice
        self.marks[key] = last(self.marks.get(key))

    def give_back(self, table_id: str, column: str, mark: int, earlier: int) -> None:
        raise AssertionError((table_id, column, mark, earlier))


def test_a_block_is_given_once_and_lies_beyond_the_mark() -> None:
    book = Book()
    assert [reserve_ids(book, "x", -1, "t") for _ in range(2)] == [BLOCK, 2 * BLOCK]
    assert reserve_ids(book, "y", 99, "t") == BLOCK
    assert reserve_ids(book, "x", 7 * BLOCK + 3, "t") == 8 * BLOCK
    assert reserve_ids(book, "x", -1, "t") == 9 * BLOCK


def test_the_last_block() -> None:
    book, last = Book(), 2**63 - BLOCK
    assert reserve_ids(book, "x", last - 1, "t") == last
    with pytest.raises(UnsupportedFeature, match=r"t: its branches have used all 134,217,728 bl"):
        reserve_ids(book, "x", last, "t")


def test_only_a_published_branch_may_state_ids_beyond_the_mark() -> None:
    before = table(mark=7)
    beyond = (file("a", BLOCK),)
    row_ids_are_ours(ValidationRequest(beyond, before, before, "", PUBLISHED))
    with pytest.raises(InvalidRequest, match="is beyond the high-water mark 7"):
        row_ids_are_ours(ValidationRequest(beyond, before, before, ""))
