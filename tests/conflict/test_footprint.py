"""What counts as a blind append, as empty, as a change of data; how a winner is read."""

from __future__ import annotations

import pytest

from tests.conflict.cases import NEW, A, D, add, domain, gone, metadata, read, vector, winner
from txlake.conflict.concurrent_commit import READS_ELSEWHERE, row_changes, summarise
from txlake.conflict.footprint import Footprint, ReadKind
from txlake.log.snapshot import ROW_TRACKING_DOMAIN
from txlake.protocol.actions import Action, CommitInfo, DomainMetadata, Protocol, Txn


def footprint(**parts: object) -> Footprint:
    return Footprint(read_version=1, **{"added": (NEW,), **parts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "blind"),
    [
        ({}, True),
        ({"app_ids": frozenset({"app"}), "read_app_ids": frozenset({"app"})}, True),
        ({"domains": (domain(ROW_TRACKING_DOMAIN),)}, True),
        ({"reads": (read(),)}, False),
        ({"reads": (read("id = 1"),)}, False),
        ({"reads": (read(kind=ReadKind.PLAIN),)}, False),
        ({"reads": (read(files=False),)}, False),
        ({"read_files": frozenset({"a"})}, False),
        ({"reads_elsewhere": frozenset({"other"})}, True),
        ({"removed": (gone(A),)}, False),
        ({"metadata": metadata()}, False),
        ({"protocol": Protocol(min_reader_version=1, min_writer_version=2)}, False),
        ({"domains": (domain("mine"),)}, False),
        ({"change_files": True}, False),
    ],
)
def test_blind_appends(parts: dict[str, object], blind: bool) -> None:
    assert footprint(**parts).is_blind_append is blind


@pytest.mark.parametrize(
    ("writes", "reads", "blind", "fits"),
    [
        (set(), set(), True, True),
        (set(), {"staging"}, True, True),
        ({"x"}, {"staging"}, True, True),
        ({"x", "staging"}, {"y", "staging"}, True, False),
        (None, {"staging"}, True, False),
        (None, set(), True, True),
        ({"x"}, set(), True, True),
        (set(), set(), False, False),
    ],
)
def test_who_fits_in_before_a_winner(
    writes: set[str] | None, reads: set[str], blind: bool, fits: bool
) -> None:
    ours = footprint(writes_elsewhere=None if writes is None else frozenset(writes))
    theirs = winner(is_blind_append=blind, reads_elsewhere=frozenset(reads))
    assert ours.can_precede(theirs) is fits


def test_empty_and_changing_data() -> None:
    assert footprint(added=()).is_empty
    assert footprint(added=(), reads=(read(),)).is_empty
    assert not footprint(added=(), app_ids=frozenset({"app"})).is_empty
    assert not footprint(added=(), domains=(domain("mine"),)).is_empty
    assert footprint().changes_data
    assert not footprint(added=(), metadata=metadata()).changes_data
    compaction = footprint(
        added=(add("x", data_change=False),), removed=(gone(A, data_change=False),)
    )
    assert not compaction.changes_data
    assert footprint(added=(add("x", data_change=False),), removed=(gone(A),)).changes_data


@pytest.mark.parametrize(
    ("info", "actions", "blind"),
    [
        ({"isBlindAppend": True}, [NEW], True),
        ({"isBlindAppend": False}, [NEW], False),
        ({}, [NEW], False),
        ({"isBlindAppend": "true"}, [NEW], False),
        ({"isBlindAppend": True}, [NEW, gone(A)], False),
    ],
)
def test_a_winner_is_blind_when_it_says_so_and_removes_nothing(
    info: dict[str, object], actions: list[Action], blind: bool
) -> None:
    assert summarise(1, [CommitInfo(info), *actions]).is_blind_append is blind


@pytest.mark.parametrize(
    ("tags", "blind", "tables"),
    [
        (None, True, set()),
        ({"other": "x"}, True, set()),
        ({READS_ELSEWHERE: '["a","b"]'}, True, {"a", "b"}),
        ({READS_ELSEWHERE: '["a",2]'}, False, set()),
        ({READS_ELSEWHERE: "a"}, False, set()),
        ({READS_ELSEWHERE: ["a"]}, False, set()),
    ],
)
def test_what_a_winner_says_that_it_read_elsewhere(
    tags: object, blind: bool, tables: set[str]
) -> None:
    found = summarise(1, [CommitInfo({"isBlindAppend": True, "tags": tags}), NEW])
    assert found.is_blind_append is blind
    assert found.reads_elsewhere == tables


def test_a_winner_without_a_commit_info() -> None:
    found = summarise(3, [NEW])
    assert (found.version, found.operation, found.txn_id) == (3, None, None)
    assert not found.is_blind_append


def test_a_winners_parts() -> None:
    info = CommitInfo(
        {"operation": "MERGE", "userName": "ada", "txnId": "x", "timestamp": 7, "userId": "1"}
    )
    hidden = DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration="{}", removed=False)
    found = summarise(
        3, [info, metadata(), Txn(app_id="app", version=1), domain("mine"), hidden, NEW, gone(A)]
    )
    assert (found.operation, found.user, found.txn_id, found.timestamp_ms) == (
        "MERGE",
        "ada",
        "x",
        7,
    )
    assert found.app_ids == {"app"}
    assert found.domains == {"mine"}
    assert found.metadata == metadata()
    assert (found.added, found.removed) == ((NEW,), (gone(A),))


def changes(*actions: Action) -> dict[str, list[str]]:
    live = {A.key, D.key}
    found = row_changes(summarise(1, actions), live.__contains__)
    names = ("added", "maybe_added", "deleted", "moved")
    return {
        name: [file.path for file in getattr(found, name)] for name in names if getattr(found, name)
    }


def test_what_became_of_rows() -> None:
    assert changes(NEW, gone(A)) == {"added": ["new"], "deleted": ["a"]}
    assert changes(A) == {}
    assert changes(A, gone(A)) == {}
    assert changes(add("a", dv=vector(3)), gone(A)) == {"deleted": ["a"]}
    assert changes(add("d", dv=vector(3)), gone(D)) == {"maybe_added": ["d"], "deleted": ["d"]}
    assert changes(add("d", dv=vector(1)), gone(D)) == {"added": ["d"], "deleted": ["d"]}
    assert changes(add("d"), gone(D)) == {"added": ["d"], "deleted": ["d"]}
    moved: list[Action] = [add("ad", data_change=False), gone(A, data_change=False)]
    assert changes(*moved) == {"moved": ["a"]}
