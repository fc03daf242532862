from __future__ import annotations

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


def test_local_spellings_are_one_file() -> None:
    state = Tombstones().apply([remove("/t/a")], [])
    assert ("file:///t/a", None) in state
    assert len(state.apply([], [("file:/t/a", None)])) == 0
