"""Sessions that write on a path table's branch, end it and die, interleaved as a seed says.

`SEEDS=1000 FIRST=1 python -m pytest tests/session/test_table_branch_schedules.py` for more. After
each run somebody finishes what is there; then the table has every commit on the branch that was
acknowledged, once, if the branch was published, and none of them if it was dropped.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import pytest

from tests.session.offline import plane_without_spark
from tests.session.test_table_branches import Place
from tests.simulation.scheduler import Killed, Scheduler
from txlake.commands import HANDLERS
from txlake.errors import Conflict, InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.ports import Store
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

SEEDS = int(os.environ.get("SEEDS", "6"))
FIRST = int(os.environ.get("FIRST", "13"))
_REQUESTS = frozenset({"get", "get_range", "head", "list", "put", "put_if_absent", "delete"})


class _Taking:
    """A store whose every request gives up the turn before it, and may be its process's last."""

    def __init__(self, inner: Store, before: Callable[[str, str], None]) -> None:
        self._inner = inner
        self._before = before

    def __getattr__(self, name: str) -> Any:
        made = getattr(self._inner, name)
        if name not in _REQUESTS:
            return made

        def request(path: Any, *given: Any, **named: Any) -> Any:
            self._before(name, str(path))
            found = made(path, *given, **named)
            return list(found) if name == "list" else found

        return request

    def at(self, folder: str) -> _Taking:
        return _Taking(self._inner.at(folder), self._before)


class Run:
    """One table with a branch, and processes that work on both."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scheduler = Scheduler(self.chance)
        self.place = Place(f"memory://schedule{seed}")
        self.place.do("CREATE TABLE {t} (id BIGINT, v BIGINT); INSERT INTO {t} VALUES (0, 0)")
        self.place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (1, 0)")
        self.done: set[int] = {1}
        self.tried: set[int] = {1}
        self.ended: list[str] = []
        self.unknown: list[str] = []

    def process(self) -> Session:
        """A process of its own, whose commits on main fail now and then, and which may die."""
        left = self.chance.choice([self.chance.randrange(1, 60), 10**9, 10**9])
        failing = self.chance.choice([0.0, 0.5])

        def before(name: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Killed
            self.scheduler.pause()
            is_commit = name == "put_if_absent" and path.startswith("_delta_log/0")
            if is_commit and self.chance.random() < failing:
                raise Unavailable("a request fails")

        def opened(location: str, options: Mapping[str, str]) -> Store:
            return cast(Store, _Taking(open_store(location, options), before))

        system, settings = System(), Settings()
        engine = Engine(
            system=system,
            settings=settings,
            plane=plane_without_spark(system, settings),
            open_store=opened,
        )
        return Session(engine, HANDLERS)

    def write(self, number: int) -> None:
        """Insert rows on the branch, each acknowledged or not."""
        session = self.process()
        for turn in range(8):
            row = number * 10 + turn
            self.tried.add(row)
            try:
                self.place.do(f"INSERT INTO {{b}} VALUES ({row}, 0)", session)
            except (Conflict, InvalidRequest, OutcomeUnknown, Unavailable):
                continue
            self.done.add(row)

    def change_main(self) -> None:
        """Commit on main; the second time what conflicts with the branch."""
        session = self.process()
        self.place.do("INSERT INTO {t} VALUES (-1, 0)", session)
        self.place.do("UPDATE {t} SET v = 1 WHERE id = 0", session)

    def change_branch(self) -> None:
        """Commit on the branch what may conflict with main."""
        self.place.do("UPDATE {b} SET v = 2 WHERE id = 0", self.process())

    def end(self, statement: str) -> None:
        """End the branch."""
        try:
            self.place.do(f"{statement} BRANCH b FOR TABLE {{t}}", self.process())
        except OutcomeUnknown:
            self.unknown.append(statement)
            raise
        self.ended.append(statement)

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Start a process that does some work, and may fail or die."""

        def run() -> None:
            with suppress(TxlakeError, Killed):
                work()

        self.scheduler.start(name, run)

    def check(self) -> None:
        """Finish, and judge what is there."""
        last = Place(self.place.place)
        is_open = bool(last.rows("SHOW BRANCHES FOR TABLE {t}"))
        assert self.ended.count("PUBLISH") + self.ended.count("DROP") <= 1
        if is_open:
            assert not {"PUBLISH", "DROP"} & set(self.ended)
            try:
                last.do("PUBLISH BRANCH b FOR TABLE {t}")
            except Conflict:
                assert self.done <= {row[0] for row in last.rows("SELECT id FROM {b}")}
                last.do("INSERT INTO {b} VALUES (7, 0)")
                return
        rows = [cast(int, row[0]) for row in last.rows("SELECT id FROM {t}")]
        assert len(rows) == len(set(rows))
        is_published = "PUBLISH BRANCH" in {row["operation"] for row in last.main.log.history()}
        if is_published:
            assert self.done <= set(rows) <= self.tried | {0, -1}
        else:
            assert "DROP" in self.starts
            assert set(rows) <= {0, -1}

    starts: tuple[str, ...] = ()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_no_acknowledged_commit_is_lost_or_published_twice(seed: int) -> None:
    run = Run(seed)
    endings = run.chance.choice(
        [
            ("PUBLISH", "PUBLISH"),
            ("PUBLISH", "REBASE"),
            ("PUBLISH", "DROP"),
            ("REBASE", "REBASE"),
            ("PUBLISH", "PUBLISH", "PUBLISH", "REBASE"),
        ]
    )
    run.starts = endings
    for number in (1, 2):
        run.start(f"writer{number}", lambda number=number: run.write(number))  # type: ignore[misc]
    for number, statement in enumerate(endings):
        run.start(f"{statement}{number}", lambda statement=statement: run.end(statement))  # type: ignore[misc]
    if run.chance.random() < 0.7:
        run.start("main", run.change_main)
    if run.chance.random() < 0.5:
        run.start("branch", run.change_branch)
    run.scheduler.run()
    run.check()
