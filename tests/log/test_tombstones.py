from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.commit.log_of import remove
from txlake.log.tombstones import Tombstones
from txlake.protocol.actions import Remove


def test_nothing_is_read_before_someone_looks() -> None:
    calls: list[int] = []

    def load() -> list[Remove]:
        calls.append(1)
        return [remove("a"), remove("b")]

    loaded = Tombstones(load)
    changed = loaded.apply([remove("c")], [("a", None)]).apply([], [("c", None)])
    assert not calls
    assert set(changed) == {("b", None)}
    assert set(loaded) == {("a", None), ("b", None)}
    assert len(changed) == 1
    assert calls == [1, 1]


def test_the_latest_commit_counts() -> None:
    state = Tombstones().apply([remove("a", 1)], []).apply([remove("a", 2)], [])
    assert state["a", None].deletion_timestamp == 2
    assert state["a", None] is state["a", None]
    with pytest.raises(KeyError):
        _ = state["b", None]


def test_long_chains_stay_right() -> None:
    state = Tombstones()
    for step in range(3_000):
        state = state.apply([remove(f"f{step}")], [(f"f{step - 1}", None)] if step % 2 else [])
        if step % 500 == 0:
            assert len(state) > 0
    assert len(state) == 1_500
    assert ("f2999", None) in state
    assert ("f2998", None) not in state


def test_what_a_checkpoint_leaves_out_is_forgotten() -> None:
    state = Tombstones(lambda: [remove("a", 5), remove("b", 6)]).apply([remove("c", 4)], [])
    before = state.apply([remove("d", 9)], [])
    assert {one.path for one in state.removed_after(4)} == {"a", "b"}
    state.forget_until(5)
    after = state.apply([remove("e", 9)], [("b", None)])
    assert set(state) == {("b", None)}
    assert set(after) == {("e", None)}
    assert set(before) == {("a", None), ("b", None), ("c", None), ("d", None)}
    state.forget_until(6)
    assert set(state.apply([], [("b", None)]).apply([remove("f", 9)], [])) == {("f", None)}


def test_what_does_not_say_when_is_older_than_anything_that_does() -> None:
    state = Tombstones().apply([remove("a", 1), Remove(path="b", data_change=True)], [])
    assert {one.path for one in state.removed_after(-1)} == {"a", "b"}
    assert {one.path for one in state.removed_after(0)} == {"a"}
    state.forget_until(0)
    assert list(state.values()) == [remove("a", 1)]


def test_merged_tombstones_do_not_hold_what_they_were_made_of() -> None:
    first = Tombstones(lambda: [remove("a")])
    assert len(first) == 1
    second = first.apply([remove("b")], [])
    held = _Held()
    watch = weakref.ref(held)
    third = Tombstones(held.load).apply([remove("c")], [])
    del held
    assert watch() is not None
    assert set(third) == {("a", None), ("c", None)}
    assert watch() is None
    assert set(second) == {("a", None), ("b", None)}


class _Held:
    """A checkpoint of one tombstone."""

    def load(self) -> list[Remove]:
        return [remove("a")]


def test_threads_see_all_tombstones_while_one_merges_them() -> None:
    for number in range(60):
        state = Tombstones(lambda: [remove("a")])
        for step in range(number % 7):
            state = state.apply([remove(f"f{step}")], [])
        expected = 1 + number % 7
        start = threading.Barrier(4)

        def look(state: Tombstones = state, start: threading.Barrier = start) -> tuple[int, int]:
            start.wait(10)
            later = state.apply([remove("z")], [("a", None)])
            return len(state), len(later)

        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(look) for _ in range(4)]
            assert {one.result(10) for one in running} == {(expected, expected)}


def test_local_spellings_are_one_file() -> None:
    state = Tombstones().apply([remove("/t/a")], [])
    assert ("file:///t/a", None) in state
    assert len(state.apply([], [("file:/t/a", None)])) == 0
