"""Attempts of a commit over many tables: what is left behind, what is waited for, what is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.commit.lake_of import LakeOf, lake_of, paths, when, write_both
from tests.commit.log_of import add, metadata
from txlake.commit.commit_loop import CommittedTogether
from txlake.conflict.levels import Level
from txlake.errors import InvalidRequest, Unavailable
from txlake.protocol.file_names import STAGED_FOLDER
from txlake.settings import RetrySettings, Settings

STAGING = Settings(inline_commit_bytes_max=0)


def staged(lake: LakeOf) -> list[str]:
    return [path for path in lake.fake("a").files if path.startswith(STAGED_FOLDER)]


def deletions(lake: LakeOf, name: str) -> list[str]:
    return [path for kind, path in lake.fake(name).requests if kind == "delete"]


def waits_of(lake: LakeOf) -> list[float]:
    waited: list[float] = []
    lake.clock.wait_ms = waited.append  # type: ignore[method-assign, assignment]
    return waited


def test_an_unsafe_store_is_refused_before_the_ratification() -> None:
    lake = lake_of()
    tx = write_both(lake)

    def unsafe() -> None:
        raise InvalidRequest("memory://b overwrites")

    lake.fake("b").ensure_safe = unsafe  # type: ignore[method-assign]
    with pytest.raises(InvalidRequest, match="overwrites"):
        tx.commit()
    assert [paths(lake, name) for name in ("a", "b")] == [[], []]


def reserved_by_another(lake: LakeOf) -> None:
    """Another has its turn on b; it ends when it was met."""
    assert lake.ledger.reserve("other", ["b"])
    when(lake, "ratify done", lambda: lake.ledger.end("other"))


def moved(lake: LakeOf, *, times: int = 1) -> None:
    """Another commits to a first, so often."""
    when(lake, "ratify", *[lambda n=n: lake.append("a", add(f"x{n}")) for n in range(times)])


@pytest.mark.parametrize("met", [reserved_by_another, moved])
def test_what_a_lost_attempt_staged_is_deleted(met: Callable[[LakeOf], None]) -> None:
    lake = lake_of(settings=STAGING)
    tx = write_both(lake)
    met(lake)
    lake.fake("b").requests.clear()
    assert tx.commit().attempts == 2
    assert staged(lake) == []
    assert [path.startswith(STAGED_FOLDER) for path in deletions(lake, "b")] == [True, True]


@pytest.mark.parametrize("met", [reserved_by_another, moved])
def test_a_staged_commit_that_cannot_be_deleted_stops_nothing(
    met: Callable[[LakeOf], None], caplog: pytest.LogCaptureFixture
) -> None:
    lake = lake_of(settings=STAGING)
    tx = write_both(lake)

    def refused(paths: object) -> None:
        raise Unavailable("away")

    lake.fake("b").delete = refused  # type: ignore[method-assign]
    met(lake)
    with caplog.at_level(logging.INFO):
        assert tx.commit().attempts == 2
    assert "a staged commit was left behind: away" in caplog.text


def test_what_is_inline_leaves_nothing_to_delete() -> None:
    lake = lake_of()
    tx = write_both(lake)
    moved(lake)
    assert tx.commit().attempts == 2
    assert deletions(lake, "a") == deletions(lake, "b") == []


def test_who_meets_a_reservation_waits_once() -> None:
    lake = lake_of()
    tx = write_both(lake)
    reserved_by_another(lake)
    waited = waits_of(lake)
    tx.commit()
    assert len(waited) == 1


def test_whose_turn_it_is_does_not_wait() -> None:
    lake = lake_of(settings=Settings(retry=RetrySettings(reserve_after=2)))
    tx = write_both(lake)
    moved(lake, times=2)
    waited = waits_of(lake)
    assert tx.commit().attempts == 3
    assert waited == []


def test_a_new_table_beside_one_that_is_reserved() -> None:
    lake = lake_of()
    tx = lake.begin()
    tx.create("c", metadata())
    tx.table("b").stage([add("b1")], operation="WRITE")
    reserved_by_another(lake)
    assert tx.commit().attempts == 2
    assert lake.open("c").latest().version == 0


def selecting(level: Level) -> CommittedTogether:
    """Select from b, write a, while another appends to b."""
    lake = lake_of()
    tx = lake.begin(level)
    tx.read("b", "id = 5", plain=True)
    tx.table("a").stage([add("a1")], operation="WRITE")
    lake.append("b", add("x"))
    return tx.commit()


def test_a_table_that_was_only_selected_from_may_move_unless_the_level_asks() -> None:
    assert selecting(Level.WRITE_SERIALIZABLE).attempts == 1
