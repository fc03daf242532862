"""A process dies before or after any one request of a two-table commit: all of it, or nothing.

Every call of the stores and of the catalog is walked, the reads that come before included. Then the
lake is opened by others, without help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.commit.lake_of import LakeOf
from tests.commit.log_of import Clock, FakeStore, add
from tests.simulation.scheduler import Killed
from tests.support.ledger import SimulatedLedger
from txlake.protocol.file_names import STAGED_FOLDER, commit_path
from txlake.settings import Settings

BOTH = ("a", "b")


@dataclass
class Death:
    """The process dies at its `at`-th request, before it happens or after."""

    at: int = -1
    is_after: bool = False
    calls: list[str] = field(default_factory=list)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def mortal(*args: object, **more: object) -> object:
            self.calls.append(name)
            is_last = len(self.calls) - 1 == self.at
            if is_last and not self.is_after:
                raise Killed
            try:
                return call(*args, **more)
            finally:
                if is_last:
                    raise Killed

        return mortal


class Mortal:
    """A port of a process that dies."""

    def __init__(self, port: object, name: str, death: Death) -> None:
        self._port = port
        self._name = name
        self._death = death

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found) or name == "end":  # which the end of its lease does for it
            return found
        return self._death.around(f"{self._name}.{name}", found)


@dataclass
class Place:
    """What stays when processes die: the files of two tables, and the catalog."""

    inline_bytes_max: int

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.stores = {name: FakeStore(self.clock, f"memory://{name}") for name in BOTH}
        self.ledger = SimulatedLedger(self.clock.now_ms)
        # A checkpoint and a checksum with every commit.
        self.process().create(*BOTH, configuration={"delta.checkpointInterval": "1"})

    def process(self, death: Death | None = None) -> LakeOf:
        """A process on it, with its own fate."""

        def of(port: object, name: str) -> Any:
            return port if death is None else Mortal(port, name, death)

        return LakeOf(
            Settings(inline_commit_bytes_max=self.inline_bytes_max),
            system=self.clock,
            store=lambda name: of(self.stores[name], name),
            ledger=cast(SimulatedLedger, of(self.ledger, "ledger")),
        )

    def files(self, name: str) -> list[str]:
        """The table's data files as txlake reads them now, and as everybody does."""
        ours = self.process().open(name).latest()
        theirs = self.process().plain(name).latest()
        assert ours.version == theirs.version
        found = sorted(file.path for file in ours.files.adds())
        assert found == sorted(file.path for file in theirs.files.adds())
        return found


def work(lake: LakeOf) -> None:
    tx = lake.begin()
    for name in BOTH:
        tx.table(name).stage([add(f"{name}1")], operation="WRITE")
    tx.commit()


def requests(inline_bytes_max: int) -> list[str]:
    """What a commit that nobody disturbs asks for, in order."""
    death = Death()
    work(Place(inline_bytes_max).process(death))
    return death.calls


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("inline_bytes_max", [1 << 20, 0], ids=["inline", "staged"])
def test_all_of_it_or_nothing(inline_bytes_max: int, is_after: bool) -> None:
    calls = requests(inline_bytes_max)
    outcomes = []
    for at in range(len(calls)):
        place = Place(inline_bytes_max)
        death = Death(at, is_after)
        with pytest.raises(Killed):
            work(place.process(death))
        assert death.calls == calls[: at + 1]
        found = [place.files(name) for name in BOTH]
        assert found in ([[], []], [["a1"], ["b1"]]), calls[at]
        outcomes.append(bool(found[0]))
        # Whoever comes next goes on, and what was published holds just what was ratified.
        work_again(place)
        for name in BOTH:
            ratified = place.ledger.tables[name].commits
            head = place.ledger.tables[name].head
            assert place.ledger.tables[name].published == head
            for version in range(head + 1):
                commit = ratified[version]
                data = place.stores[name].files[commit_path(version)][0]
                assert commit.content in (None, data)
    # Nothing before the one moment, all of it after.
    moment = calls.index("ledger.ratify")
    assert outcomes == [at > moment or (at == moment and is_after) for at in range(len(calls))]


def work_again(place: Place) -> None:
    lake = place.process()
    tx = lake.begin()
    for name in BOTH:
        tx.table(name).stage([add(f"{name}2")], operation="WRITE")
    tx.commit()
    assert place.files("a")[-1] == "a2"


def test_every_write_of_the_protocol_was_a_place_to_die() -> None:
    inline, staged = requests(1 << 20), requests(0)
    kinds = set(staged)
    for name in BOTH:
        assert {f"{name}.put_if_absent", f"{name}.put", f"{name}.delete"} <= kinds
    assert inline.count("ledger.ratify") == 1
    assert inline.count("ledger.record_publication_soon") == 1
    assert staged.count("ledger.record_publication") == 1
    assert staged.count("a.put") == inline.count("a.put") + 1


def test_what_was_staged_by_the_dead_is_no_part_of_any_table() -> None:
    place = Place(0)
    calls = requests(0)
    with pytest.raises(Killed):
        work(place.process(Death(calls.index("ledger.ratify"))))
    left = [path for path in place.stores["a"].files if path.startswith(STAGED_FOLDER)]
    assert len(left) == 1
    work_again(place)
    assert place.files("a") == ["a2"]
