"""The simulator's page: a seed's run step by step, with faults that the visitor adds.

python -m tests.simulation show [--seed 7] [--port 0]

Owns the page's values and the parameters of its requests. `replay` makes the run, `drawing` the
picture.
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
from tests.simulation.faults import FaultKind, InjectedFault, RequestedFault
from tests.simulation.observing import TableStatus
from tests.simulation.records import ReportedOutcome
from tests.simulation.replay import (
    SEED_MAX,
    Replay,
    ReplayStep,
    RunDifference,
    case_with_faults,
    compare_runs,
)
from tests.simulation.replay_cache import ReplayCache, ReplayWorker
from tests.simulation.statements import Row, Rows
from txlake.console.app import Page, Section, application
from txlake.errors import InvalidRequest
from txlake.server.serving import ServerSettings, listen, load_tokens

PATH = "/simulator"
FOLDER = Path(__file__).parent / "pages"
_DIGITS_MAX = 12
_COLUMNS = ("k", "v", "tag")
_PUT_BACK = {FaultKind.CATALOG_BACK, FaultKind.CATALOG_GONE}


@dataclass(frozen=True, slots=True)
class _PageRequest:
    """The parameters of a request."""

    seed: int
    step: int
    faults: tuple[RequestedFault, ...]

    def at(self, step: int) -> str:
        """Return the link to another step of the run."""
        return _link(self.seed, step, self.faults)

    def without(self, fault: RequestedFault) -> str:
        """Return the link to the run without a fault, at a step that both runs have in common."""
        left = tuple(one for one in self.faults if one != fault)
        return _link(self.seed, min(self.step, fault.step), left)


@dataclass(frozen=True, slots=True)
class _RowsTable:
    """A table of rows for `parts.html`. The sign of a row says whether it was added or deleted."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, Row], ...]
    problem: str = ""
    is_cut: bool = False


class Simulator:
    """The page. `seed`: the seed of a request that names none."""

    def __init__(self, runs: ReplayCache, seed: int = 1) -> None:
        self._runs = runs
        self._seed = seed

    def values(self, query: Mapping[str, str]) -> Mapping[str, object]:
        """Return the page's values.

        Raises InvalidRequest for a seed, step or fault that doesn't exist.

        `query`: `seed`; `step`, where 0 is the time before the first step; `fault`, as in
        `12:CRASH,40:SLOW`; `add`, one more fault.
        """
        request = self._request(query)
        run = self._runs.get(case_with_faults(request.seed, request.faults))
        if request.step > len(run.steps):
            raise InvalidRequest(
                f"step {request.step}: the run has {len(run.steps)} steps; choose one from 0 to "
                f"{len(run.steps)}"
            )
        here = run.steps[request.step - 1] if request.step else None
        drawn = picture(run, request.step)
        difference = (
            compare_runs(self._runs.get(case_with_faults(request.seed)), run)
            if request.faults
            else None
        )
        possible = run.possible if here is None else here.possible
        requested_here = {fault.kind for fault in request.faults if fault.step == request.step}
        return {
            "request": request,
            "run": run,
            "here": here,
            "total": len(run.steps),
            "fault_text": _text(request.faults),
            "picture": drawn,
            "overview": overview(run, drawn, request.step),
            "overview_width": OVERVIEW,
            "seed_max": SEED_MAX,
            "injected": _numbered_faults(run),
            "injected_here": [one for one in run.all_injected if one.step == request.step],
            "next_injected": _next_injected(run, request.step),
            "possible": [kind for kind in possible if kind not in requested_here],
            "tables": _tables(run, here),
            "is_put_back": any(one.kind in _PUT_BACK for one in run.all_injected),
            "attempt": None if here is None else run.attempts.get(here.attempt),
            "attempts": _attempts(run),
            "outcomes": _outcomes(run),
            "changes": difference,
            "changed": None if difference is None else _difference_sentences(difference),
            "path": PATH,
        }

    def _request(self, query: Mapping[str, str]) -> _PageRequest:
        seed = _number("seed", query.get("seed", ""), self._seed)
        step = _number("step", query.get("step", ""), 0)
        texts = [*query.get("fault", "").split(","), query.get("add", "")]
        faults = dict.fromkeys(_fault(text) for text in texts if text)
        order = sorted(faults, key=lambda fault: (fault.step, fault.kind.name))
        return _PageRequest(seed, step, tuple(order))


def _number(name: str, text: str, otherwise: int) -> int:
    if not text:
        return otherwise
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        raise InvalidRequest(f"{name}: expected a number from 0 on, found {text!r:.60}")
    return int(text)


def _fault(text: str) -> RequestedFault:
    """Parse a fault such as `12:CRASH`. Raises InvalidRequest."""
    step, _, kind = text.partition(":")
    if kind not in FaultKind.__members__:
        names = ", ".join(FaultKind.__members__)
        raise InvalidRequest(
            f"fault {text!r:.60}: expected a step and a fault kind, as 12:CRASH; there are {names}"
        )
    return RequestedFault(_number("the step of a fault", step or "?", 0), FaultKind[kind])


def _text(faults: Sequence[RequestedFault]) -> str:
    return ",".join(f"{fault.step}:{fault.kind.name}" for fault in faults)


def _link(seed: int, step: int, faults: Sequence[RequestedFault]) -> str:
    parameters = {"seed": str(seed), "step": str(step)}
    if faults:
        parameters["fault"] = _text(faults)
    return f"{PATH}?{urlencode(parameters, safe=':,')}"


# Parts of the page


def _numbered_faults(run: Replay) -> list[tuple[int, InjectedFault]]:
    return list(enumerate(run.all_injected, start=1))


def _next_injected(run: Replay, step: int) -> int | None:
    return next((one for one in sorted(numbered(run)) if one > step), None)


def _attempts(run: Replay) -> list[tuple[int | None, object]]:
    """Return each transaction with the step that reported its outcome."""
    steps = {step.attempt: step.number for step in run.steps if step.outcome is not None}
    return [(steps.get(name), attempt) for name, attempt in run.attempts.items()]


def _outcomes(run: Replay) -> list[tuple[str, int]]:
    """Return the outcomes that occurred, with their counts."""
    counts = Counter(attempt.outcome for attempt in run.attempts.values())
    return [(outcome.value, counts[outcome]) for outcome in ReportedOutcome if counts[outcome]]


def _difference_sentences(difference: RunDifference) -> list[str]:
    """Return sentences that describe how the run differs from the one without faults."""
    if difference.first is None:
        return ["Nothing: each step is the same."]
    sentences = [f"The first step that differs is {difference.first}."]
    for name, (was, now) in difference.outcomes.items():
        if was is None:
            sentences.append(
                f"Transaction {name} wasn't tried before; its outcome is {_outcome_text(now)}."
            )
        elif now is None:
            sentences.append(
                f"Transaction {name} ended as {_outcome_text(was)} before, and isn't tried now."
            )
        else:
            sentences.append(
                f"Transaction {name} ended as {_outcome_text(was)} before, and ends as "
                f"{_outcome_text(now)} now."
            )
    if not difference.outcomes:
        sentences.append("Each transaction has the same outcome.")
    sentences += [f"Table {name} ends with other rows." for name in difference.rows]
    if not difference.rows:
        sentences.append("The tables end with the same rows, by the logs.")
    for kind, (was_times, now_times) in difference.injected.items():
        sentences.append(
            f"{kind.name} struck {_times(was_times)} before, and {_times(now_times)} now."
        )
    return sentences


def _outcome_text(outcome: ReportedOutcome | None) -> str:
    return (
        "unknown (its process died)"
        if outcome is None or outcome is ReportedOutcome.DIED
        else outcome.value
    )


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _tables(run: Replay, here: ReplayStep | None) -> list[tuple[TableStatus, _RowsTable, bool]]:
    """Return the tables at a step: versions, rows, and whether the step made the version."""
    statuses = run.start if here is None else here.tables
    versions = dict(() if here is None else here.new_versions)
    return [
        (status, _rows(run, status, is_made=status.table in versions), status.table in versions)
        for status in statuses
    ]


def _rows(run: Replay, status: TableStatus, *, is_made: bool) -> _RowsTable:
    versions = run.rows.get(status.table, {})
    version = status.version
    rows = None if version is None else versions.get(version)
    if rows is None:
        return _RowsTable(_COLUMNS, (), problem="The logs at the end don't have its rows")
    before = versions.get(version - 1) if is_made and version else None
    if before is None:
        return _RowsTable(_COLUMNS, tuple(("", row) for row in rows))
    return _RowsTable(_COLUMNS, tuple(_difference(before, rows)))


def _difference(before: Rows, after: Rows) -> list[tuple[str, Row]]:
    was, now = Counter(before), Counter(after)
    signed = [("−", row) for row in (was - now).elements()]
    signed += [("+", row) for row in (now - was).elements()]
    signed += [(" ", row) for row in (was & now).elements()]
    return sorted(signed, key=lambda pair: (pair[1], pair[0] == "+"))


# The program


def section(simulator: Simulator, worker: ReplayWorker) -> Section:
    """Return the page as a section of the console."""
    page = Page(PATH, "simulator.html", lambda visit: simulator.values(visit.query), "Simulator")
    return Section(pages=(page,), folder=FOLDER, close=worker.close)


def main(argv: Sequence[str]) -> int:
    """Serve the page, beside the console of an empty lake, until interrupted.

    Return the exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.simulation show")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args(argv)
    try:
        case_with_faults(arguments.seed)
        worker = ReplayWorker()
        simulator = Simulator(ReplayCache(worker), arguments.seed)
        settings = ServerSettings(port=arguments.port)
        with tempfile.TemporaryDirectory() as place, PlainLake(Path(place) / "lake") as lake:
            app = application(
                lake.engine,
                load_tokens(settings),
                host=settings.host,
                sections=[section(simulator, worker)],
            )
            listen(
                app,
                settings,
                on_started=lambda at: print(f"{at}{PATH}?seed={arguments.seed}", flush=True),
            )
    except InvalidRequest as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
