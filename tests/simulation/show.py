"""The simulator's page: a seed's run step by step, with misfortunes that the visitor adds.

python -m tests.simulation show [--seed 7] [--port 0]

Owns what the page says, and what it is asked by. `replay` has the run, `drawing` the picture.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.console.lakes import PlainLake
from tests.simulation.drawing import OVERVIEW, numbered, overview, picture
from tests.simulation.history import Told
from tests.simulation.luck import Fault, Misfortune, Struck
from tests.simulation.replay import SEED_MAX, Changes, Replay, Replayed, case_with, changes
from tests.simulation.runs import Aside, Kept
from tests.simulation.statements import Row, Rows
from tests.simulation.watching import Standing
from txlake.console.app import Page, Section, application
from txlake.errors import InvalidRequest
from txlake.server.serving import ServerSettings, listen, load_tokens

PATH = "/simulator"
FOLDER = Path(__file__).parent / "pages"
_DIGITS_MAX = 12
_COLUMNS = ("k", "v", "tag")
_PUT_BACK = {Misfortune.CATALOG_BACK, Misfortune.CATALOG_GONE}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request asks for."""

    seed: int
    step: int
    faults: tuple[Fault, ...]

    def at(self, step: int) -> str:
        """The same run at another step."""
        return _link(self.seed, step, self.faults)

    def without(self, fault: Fault) -> str:
        """The run without a fault, at a step that it has in common with this one."""
        left = tuple(one for one in self.faults if one != fault)
        return _link(self.seed, min(self.step, fault.step), left)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What `parts.html` makes a table of rows from. A sign: the row came or went."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, Row], ...]
    problem: str = ""
    is_cut: bool = False


class Simulator:
    """The page. `seed`: where it begins."""

    def __init__(self, runs: Kept, seed: int = 1) -> None:
        self._runs = runs
        self._seed = seed

    def shown(self, query: Mapping[str, str]) -> Mapping[str, object]:
        """The page's values. Raises InvalidRequest for what there is no run or step of.

        `query`: `seed`; `step`, 0 being before the first; `fault`, misfortunes as in
        `12:CRASH,40:SLOW`; `add`, one more.
        """
        asked = self._asked(query)
        run = self._runs.of(case_with(asked.seed, asked.faults))
        if asked.step > len(run.steps):
            raise InvalidRequest(
                f"step {asked.step}: the run has {len(run.steps)} steps; choose one from 0 to "
                f"{len(run.steps)}"
            )
        here = run.steps[asked.step - 1] if asked.step else None
        drawn = picture(run, asked.step)
        other = changes(self._runs.of(case_with(asked.seed)), run) if asked.faults else None
        possible = run.possible if here is None else here.possible
        asked_here = {fault.kind for fault in asked.faults if fault.step == asked.step}
        return {
            "asked": asked,
            "run": run,
            "here": here,
            "total": len(run.steps),
            "fault_text": _text(asked.faults),
            "picture": drawn,
            "overview": overview(run, drawn, asked.step),
            "overview_width": OVERVIEW,
            "seed_max": SEED_MAX,
            "struck": _struck(run),
            "struck_here": [one for one in run.all_struck if one.step == asked.step],
            "next_struck": _next_struck(run, asked.step),
            "possible": [kind for kind in possible if kind not in asked_here],
            "tables": _tables(run, here),
            "is_put_back": any(one.kind in _PUT_BACK for one in run.all_struck),
            "attempt": None if here is None else run.attempts.get(here.attempt),
            "attempts": _attempts(run),
            "told": _told(run),
            "changes": other,
            "changed": None if other is None else _changed(other),
            "path": PATH,
        }

    def _asked(self, query: Mapping[str, str]) -> _Asked:
        seed = _number("seed", query.get("seed", ""), self._seed)
        step = _number("step", query.get("step", ""), 0)
        texts = [*query.get("fault", "").split(","), query.get("add", "")]
        faults = dict.fromkeys(_fault(text) for text in texts if text)
        order = sorted(faults, key=lambda fault: (fault.step, fault.kind.name))
        return _Asked(seed, step, tuple(order))


def _number(name: str, text: str, otherwise: int) -> int:
    if not text:
        return otherwise
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        raise InvalidRequest(f"{name}: expected a number from 0 on, found {text!r:.60}")
    return int(text)


def _fault(text: str) -> Fault:
    """As `12:CRASH`. Raises InvalidRequest."""
    step, _, kind = text.partition(":")
    if kind not in Misfortune.__members__:
        names = ", ".join(Misfortune.__members__)
        raise InvalidRequest(
            f"fault {text!r:.60}: expected a step and a misfortune, as 12:CRASH; there are {names}"
        )
    return Fault(_number("the step of a fault", step or "?", 0), Misfortune[kind])


def _text(faults: Sequence[Fault]) -> str:
    return ",".join(f"{fault.step}:{fault.kind.name}" for fault in faults)


def _link(seed: int, step: int, faults: Sequence[Fault]) -> str:
    asked = {"seed": str(seed), "step": str(step)}
    if faults:
        asked["fault"] = _text(faults)
    return f"{PATH}?{urlencode(asked, safe=':,')}"


# Parts of the page


def _struck(run: Replay) -> list[tuple[int, Struck]]:
    return list(enumerate(run.all_struck, start=1))


def _next_struck(run: Replay, step: int) -> int | None:
    return next((one for one in sorted(numbered(run)) if one > step), None)


def _attempts(run: Replay) -> list[tuple[int | None, object]]:
    """Each transaction with the step at which its client was told what became of it."""
    steps = {step.attempt: step.number for step in run.steps if step.told is not None}
    return [(steps.get(name), attempt) for name, attempt in run.attempts.items()]


def _told(run: Replay) -> list[tuple[str, int]]:
    counts = Counter(attempt.told for attempt in run.attempts.values())
    return [(told.value, counts[told]) for told in Told if counts[told]]


def _changed(other: Changes) -> list[str]:
    """How the run differs from the one without faults, a sentence each."""
    if other.first is None:
        return ["Nothing: each step is the same."]
    said = [f"The first step that differs is {other.first}."]
    for name, (was, now) in other.told.items():
        if was is None:
            said.append(f"Transaction {name} wasn't tried before, and is told {_of(now)} now.")
        elif now is None:
            said.append(f"Transaction {name} was told {_of(was)} before, and isn't tried now.")
        else:
            said.append(f"Transaction {name} was told {_of(was)} before, and {_of(now)} now.")
    if not other.told:
        said.append("Each transaction is told the same.")
    said += [f"Table {name} ends with other rows." for name in other.rows]
    if not other.rows:
        said.append("The tables end with the same rows, as far as the logs tell.")
    for kind, (was_times, now_times) in other.struck.items():
        said.append(f"{kind.name} struck {_times(was_times)} before, and {_times(now_times)} now.")
    return said


def _of(told: Told | None) -> str:
    return "nothing (it died)" if told is None or told is Told.DIED else told.value


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _tables(run: Replay, here: Replayed | None) -> list[tuple[Standing, _Shown, bool]]:
    """The tables at a step: how each stands, its rows, and whether the step made its version."""
    standings = run.start if here is None else here.tables
    made = dict(() if here is None else here.made)
    return [
        (standing, _rows(run, standing, is_made=standing.table in made), standing.table in made)
        for standing in standings
    ]


def _rows(run: Replay, standing: Standing, *, is_made: bool) -> _Shown:
    versions = run.rows.get(standing.table, {})
    version = standing.version
    rows = None if version is None else versions.get(version)
    if rows is None:
        return _Shown(_COLUMNS, (), problem="The logs at the end don't tell its rows")
    before = versions.get(version - 1) if is_made and version else None
    if before is None:
        return _Shown(_COLUMNS, tuple(("", row) for row in rows))
    return _Shown(_COLUMNS, tuple(_difference(before, rows)))


def _difference(before: Rows, after: Rows) -> list[tuple[str, Row]]:
    was, now = Counter(before), Counter(after)
    signed = [("−", row) for row in (was - now).elements()]
    signed += [("+", row) for row in (now - was).elements()]
    signed += [(" ", row) for row in (was & now).elements()]
    return sorted(signed, key=lambda pair: (pair[1], pair[0] == "+"))


# The program


def section(simulator: Simulator, aside: Aside) -> Section:
    """The page, for the console."""
    page = Page(PATH, "simulator.html", lambda visit: simulator.shown(visit.query), "Simulator")
    return Section(pages=(page,), folder=FOLDER, close=aside.close)


def main(given: Sequence[str]) -> int:
    """Shows the page until it is told to stop; beside it the console of an empty lake."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation show")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args(given)
    try:
        case_with(asked.seed)
        aside = Aside()
        simulator = Simulator(Kept(aside), asked.seed)
        how = ServerSettings(port=asked.port)
        with tempfile.TemporaryDirectory() as place, PlainLake(Path(place) / "lake") as lake:
            app = application(
                lake.engine, load_tokens(how), host=how.host, sections=[section(simulator, aside)]
            )
            listen(
                app, how, on_started=lambda at: print(f"{at}{PATH}?seed={asked.seed}", flush=True)
            )
    except InvalidRequest as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
