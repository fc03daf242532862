"""Processes that work on one thing until they are killed, and what they were told to be done.

Each kills itself, as SIGKILL does, at a point of its own progress that a seed fixes: so many Python
calls after so many actions. Nothing waits for time to pass.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

_ACTIONS_MAX = 8
_CALLS_MAX = 40_000
_LIMIT_S = 120

Line = list[str]
W = TypeVar("W")


class Killed:
    """Processes that work, and the file in which they tell what they were told.

    `main` takes the arguments, the file and a seed, and calls `work_until_killed`.
    """

    def __init__(
        self, main: Callable[..., None], arguments: tuple[str, ...], folder: Path, seed: int
    ) -> None:
        self._main = main
        self._arguments = arguments
        self._told = folder / "told"
        self._told.touch()
        self._chance = random.Random(seed)
        # Forks of a process that has imported everything, and opened nothing.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([main.__module__])
        self._running: list[BaseProcess] = []

    def run(self, workers: int, kills: int) -> None:
        """Let so many processes work at a time until so many have been killed, then kill the
        others.
        """
        for _ in range(workers):
            self._start()
        for _ in range(kills - 1):
            self._await_death()
            self._start()
        self._await_death()
        self.kill_all()

    def kill_all(self) -> None:
        """Kill the processes that run. None of them has ended by itself."""
        running, self._running = self._running, []
        for each in running:
            each.kill()
            each.join(60)
        assert {each.exitcode for each in running} <= {-signal.SIGKILL}, self.told()[-5:]

    def told(self) -> list[Line]:
        """Return the words of each whole line that was told."""
        lines = self._told.read_bytes().decode().split("\n")[:-1]
        return [line.split() for line in lines]

    def refusals(self) -> Counter[str]:
        """Return the types of the errors that actions were refused with."""
        return Counter(words[2] for words in self.told() if words[0] == "!")

    def _start(self) -> None:
        arguments = (*self._arguments, str(self._told), self._chance.randrange(10**9))
        process = self._processes.Process(target=self._main, args=arguments)
        process.start()
        self._running.append(process)

    def _await_death(self) -> None:
        """Wait until a process has killed itself. Each ends in no other way."""
        dead = wait([each.sentinel for each in self._running], timeout=_LIMIT_S)
        assert dead, f"no process got on for {_LIMIT_S} seconds: {self.told()[-5:]}"
        [victim] = [each for each in self._running if each.sentinel == dead[0]]
        self._running.remove(victim)
        victim.join(60)
        assert victim.exitcode == -signal.SIGKILL, self.told()[-5:]


def work_until_killed(
    open_worker: Callable[[], W],
    step: Callable[[W, str, random.Random], str | None],
    actions: Mapping[str, int],
    told: str,
    seed: int,
    refusals: type[Exception],
) -> None:
    """Carry out actions, and tell of each, until this process kills itself, perhaps as it opens
    its worker.

    Args:
        step: carries out an action; returns the line that tells it, None if there was nothing to
            do.
        actions: how often each is chosen, relative to the others.
        told: the file that gets the lines, one that other processes write too.
        seed: fixes the choices, and the point at which the process is killed.
        refusals: the errors that are told, and passed over.
    """
    chance = random.Random(seed)
    lines_left = chance.randint(0, _ACTIONS_MAX)
    death = _Death(chance.randint(1, _CALLS_MAX))
    with open(told, "ab", buffering=0) as file:

        def tell(text: str) -> None:
            file.write(f"{' '.join(text.split())}\n".encode())

        try:
            if lines_left == 0:
                death.come_near()
            worker = open_worker()
            while True:
                [action] = chance.choices(list(actions), list(actions.values()))
                try:
                    line = step(worker, action, chance)
                except refusals as error:
                    line = f"! {action} {type(error).__name__} {error}"
                if line is not None:
                    tell(line)
                    lines_left -= 1
                    if lines_left == 0:
                        death.come_near()
        except BaseException as error:
            tell(f"!! {type(error).__name__} {error}")
            raise


class _Death:
    """Kills this process after so many calls and returns of its threads, counted from `come_near`
    on, in the thread that calls that and in those that are started after `__init__`.
    """

    def __init__(self, calls: int) -> None:
        self._calls_left = calls
        self._is_near = False
        threading.setprofile(self._count)

    def come_near(self) -> None:
        self._is_near = True
        sys.setprofile(self._count)

    def _count(self, *_: object) -> None:
        if self._is_near:
            self._calls_left -= 1
            if self._calls_left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def require_told(told: list[Line], there: set[str]) -> tuple[int, int]:
    """Require that what was told of branches is on main, whole or not at all where it was not told
    to be.

    Returns how many markers were told to be on main, and how many of ended or open branches are in
    no table.
    """
    of_main = {words[2] for words in told if words[0] == "main"}
    ended = {words[1]: words[0] for words in told if words[0] in ("publish", "drop")}
    by_branch: dict[str, set[str]] = {}
    for action, branch, marker, *_ in told:
        if action == "commit":
            by_branch.setdefault(branch, set()).add(marker)
    assert of_main <= there
    on_main, elsewhere = len(of_main), 0
    for branch, markers in by_branch.items():
        end = ended.get(branch)
        shown = markers & there
        assert shown in (set(), markers), branch
        assert end is None or shown == (markers if end == "publish" else set()), (branch, end)
        on_main += len(shown) if end == "publish" else 0
        elsewhere += len(markers - shown)
    return on_main, elsewhere
