"""Replays: the same run as without them, the faults that a visitor adds, and the page."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from tests.console.browser import Browser
from tests.console.lakes import PlainLake
from tests.simulation.case import Case, world_config
from tests.simulation.faults import FaultKind, RequestedFault
from tests.simulation.records import ReportedOutcome, Violation
from tests.simulation.replay import (
    FAULTS_MAX,
    SEED_MAX,
    Replay,
    case_with_faults,
    compare_runs,
    replay,
)
from tests.simulation.replay_cache import ReplayCache, ReplayWorker
from tests.simulation.show import PATH, Simulator, section
from tests.simulation.shrinking import shrink
from tests.simulation.test_mutation_sensitivity import Off, commits_overwritten, selects_unchecked
from tests.simulation.trace_text import StepKind
from tests.simulation.world import Failure, World
from txlake.errors import InvalidRequest, Unavailable

# Seeds: a path table in a bucket and on a disk, a lake on a disk and in a bucket.
BUCKET, DISK, LAKE_ON_DISK, LAKE = 32, 63, 101, 96
WHERE = (
    (FaultKind.PUT_LOST, BUCKET),
    (FaultKind.PUT_UNANSWERED, BUCKET),
    (FaultKind.PUT_LATE, BUCKET),
    (FaultKind.PUT_TWICE, BUCKET),
    (FaultKind.DELETE_LATE, 9),
    (FaultKind.STORE_AWAY, BUCKET),
    (FaultKind.LISTING_STALE, BUCKET),
    (FaultKind.WRITE_TORN, 105),
    (FaultKind.DISK_FULL, 105),
    (FaultKind.POWER_LOSS, DISK),
    (FaultKind.REPLY_LOST, LAKE_ON_DISK),
    (FaultKind.REPLY_UNANSWERED, LAKE_ON_DISK),
    (FaultKind.DATABASE_AWAY, LAKE_ON_DISK),
    (FaultKind.CRASH, DISK),
    (FaultKind.STALL, DISK),
    (FaultKind.INTERRUPT, DISK),
    (FaultKind.INTERRUPT_LATE, LAKE_ON_DISK),
    (FaultKind.SLOW, DISK),
    (FaultKind.CLOCK_WRONG, DISK),
    (FaultKind.CLOCK_JUMP, DISK),
    (FaultKind.CLOCK_STEP, DISK),
    (FaultKind.FOREIGN_FILE, LAKE_ON_DISK),
    (FaultKind.CATALOG_BACK, LAKE_ON_DISK),
    (FaultKind.CATALOG_GONE, LAKE_ON_DISK),
    (FaultKind.RECOVERY_IDLE, LAKE_ON_DISK),
    (FaultKind.RECOVERY_TWICE, LAKE_ON_DISK),
    (FaultKind.RECOVERY_DIES, LAKE),
    (FaultKind.LOG_CLEANED, BUCKET),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser of the page; runs are made in this process."""
    simulator = Simulator(ReplayCache(replay))
    with (
        PlainLake(tmp_path / "warehouse") as lake,
        Browser(lake.engine, sections=[section(simulator, ReplayWorker())]) as browser,
    ):
        yield browser


@pytest.mark.parametrize("seed", [BUCKET, DISK, LAKE_ON_DISK, LAKE, 7, 12])
def test_a_replay_has_the_trace_of_the_run(seed: int) -> None:
    result = World(Case(seed)).run()
    run = replay(Case(seed))
    assert run.digest == result.digest
    assert tuple(step.trace for step in run.steps) == result.trace
    assert [step.number for step in run.steps] == list(range(1, len(result.trace) + 1))
    times = [step.time_ms for step in run.steps]
    assert times == sorted(times)
    outcomes = [step.outcome for step in run.steps if step.outcome is not None]
    assert outcomes.count(ReportedOutcome.COMMITTED) > 0
    assert {ReportedOutcome(one.outcome) for one in result.records} <= {
        *outcomes,
        ReportedOutcome.DIED,
    }
    assert run.verdict.is_kept
    for status in run.steps[-1].tables:
        assert status.version == status.logged == max(run.rows[status.table])
    _check_possible_steps(run)


def test_each_version_is_made_at_one_step() -> None:
    run = replay(Case(BUCKET))
    (start,) = run.start
    versions = [version for step in run.steps for _, version in step.new_versions]
    assert start.version is not None
    assert versions == list(range(start.version + 1, max(run.rows["a"]) + 1))
    assert versions
    for step in run.steps:
        if step.new_versions:
            assert f"{step.new_versions[0][1]:020}.json" in step.trace


@pytest.mark.parametrize(("kind", "seed"), WHERE)
def test_a_requested_fault_strikes_at_its_step(kind: FaultKind, seed: int) -> None:
    before: tuple[RequestedFault, ...] = ()
    if kind in (FaultKind.RECOVERY_TWICE, FaultKind.RECOVERY_DIES):  # need a recovery
        intruder = FaultKind.FOREIGN_FILE
        before = (RequestedFault(_possible_steps(replay(Case(seed)), intruder)[0], intruder),)
    original = replay(case_with_faults(seed, before))
    places = _possible_steps(original, kind)
    fault = RequestedFault(places[len(places) // 2], kind)
    case = case_with_faults(seed, (*before, fault))
    run = replay(case)
    assert run.verdict.is_kept, run.verdict.broken
    assert not run.missed_faults
    _check_possible_steps(run)
    requested = [one for one in run.all_injected if one.is_requested]
    assert fault in [RequestedFault(one.step, one.kind) for one in requested]
    assert len(requested) == len(before) + 1
    same = fault.step
    assert [one.trace for one in run.steps[:same]] == [one.trace for one in original.steps[:same]]
    assert replay(case).digest == run.digest


def _check_possible_steps(run: Replay) -> None:
    """Check that each fault is at the step of the request that it struck."""
    for one in run.all_injected:
        process, _, what = one.where.partition(" ")
        if one.step:
            step = run.steps[one.step - 1]
            assert one.kind in step.possible
            # The successor of a dead process has another number.
            assert step.lane.startswith(process) or one.kind is FaultKind.CLOCK_WRONG
            is_at_request = (
                step.kind is not StepKind.TROUBLE
            )  # otherwise another fault struck before the request
            if is_at_request and what not in ("clock", "listing", "recovery"):
                assert what in step.trace


def _possible_steps(run: Replay, kind: FaultKind) -> list[int]:
    at_start = [0] if kind in run.possible else []
    return at_start + [step.number for step in run.steps if kind in step.possible]


def test_every_fault_kind_has_a_case() -> None:
    assert [kind for kind, _ in WHERE] == list(FaultKind)


def test_a_requested_restore_leaves_the_steps_before_it() -> None:
    """A recovery comes before it, whose faults are drawn from the same random numbers."""
    original = replay(Case(40))
    recovered = next(
        one.step for one in original.all_injected if one.kind is FaultKind.RECOVERY_IDLE
    )
    place = next(
        one for one in _possible_steps(original, FaultKind.CATALOG_BACK) if one > 2 * recovered
    )
    run = replay(case_with_faults(40, [RequestedFault(place, FaultKind.CATALOG_BACK)]))
    assert not run.missed_faults
    assert [one.trace for one in run.steps[:place]] == [one.trace for one in original.steps[:place]]


def test_the_difference_that_a_crash_makes() -> None:
    original = replay(Case(BUCKET))
    step = next(one for one in original.steps if one.attempt and FaultKind.CRASH in one.possible)
    run = replay(case_with_faults(BUCKET, [RequestedFault(step.number, FaultKind.CRASH)]))
    difference = compare_runs(original, run)
    assert difference.first is not None
    assert difference.first > step.number
    assert difference.injected[FaultKind.CRASH] == (0, 1)
    assert step.attempt in difference.outcomes
    assert run.steps[difference.first - 1].words.startswith("the process dies")
    assert compare_runs(original, original).first is None


def test_a_fault_requested_after_the_end_is_missed() -> None:
    original = replay(Case(BUCKET))
    fault = RequestedFault(len(original.steps), FaultKind.CRASH)  # the clients have ended
    run = replay(case_with_faults(BUCKET, [fault]))
    assert original.steps[-1].is_after
    assert run.missed_faults == (fault,)
    assert run.digest == original.digest


def test_reducing_a_failure_removes_requested_faults() -> None:
    case = case_with_faults(BUCKET, [RequestedFault(3, FaultKind.CRASH)])
    found = shrink(
        Failure(case, Violation("lost"), (), ()),
        lambda smaller: Failure(smaller, Violation("lost"), (), ()),
    )
    assert "with CRASH at step 3" in str(case)
    assert not found.case.faults


def test_a_run_that_takes_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="seed 32: the run takes more than 10 turns; choose"):
        replay(Case(BUCKET), turns_max=10)
    worker = ReplayWorker(limit_s=0.0)
    with pytest.raises(InvalidRequest, match="isn't over after 0 seconds; choose another seed"):
        worker(Case(BUCKET))


def test_a_run_is_the_same_in_another_process() -> None:
    worker = ReplayWorker()
    try:
        assert worker(Case(BUCKET)) == replay(Case(BUCKET))
        assert worker._process is not None
        worker._process.kill()
        worker._process.join()
        with pytest.raises(Unavailable, match="seed 32: the process that runs it died; try again"):
            worker(Case(BUCKET))
        assert worker(Case(BUCKET)).digest == replay(Case(BUCKET)).digest
    finally:
        worker.close()


def test_the_cache_keeps_the_newest_runs() -> None:
    run, seeds = replay(Case(BUCKET)), []

    def count(case: Case) -> Replay:
        seeds.append(case.seed)
        return run

    cache = ReplayCache(count)
    for seed in [1, 1, *range(2, 9), 1, 9, 1, 2]:
        cache.get(Case(seed))
    assert seeds == [*range(1, 10), 2]


# The page


def test_the_page_leads_through_the_steps(browser: Browser) -> None:
    run = replay(Case(BUCKET))
    number = next(step.number for step in run.steps if step.new_versions)
    page = browser.page(f"{PATH}?seed={BUCKET}&step={number}")
    assert "✓ Every promise was kept." in page
    assert f"Step {number}: store" in page
    assert f'href="{PATH}?seed={BUCKET}&amp;step={number - 1}" rel="prev"' in page
    assert f'href="{PATH}?seed={BUCKET}&amp;step={number + 1}" rel="next"' in page
    assert f"version {run.steps[number - 1].new_versions[0][1]} of a" in page
    assert re.search(r'<tr class="plus"><td class="sign">\+</td>', page)
    assert " style=" not in page
    assert not re.search(r"<script(?! src)", page)
    start, end = (browser.page(f"{PATH}?seed={BUCKET}&step={n}") for n in (0, len(run.steps)))
    assert "Before the first step" in start
    assert 'rel="prev"' not in start
    assert 'rel="next"' not in end
    assert browser.get("/static/simulator.css").status_code == 200
    assert browser.get("/static/simulator.js").status_code == 200


def test_a_visitor_adds_and_removes_a_fault(browser: Browser) -> None:
    page = browser.page(f"{PATH}?seed={BUCKET}&step=5")
    assert '<option value="5:CRASH">' in page
    page = browser.page(f"{PATH}?seed={BUCKET}&step=5&fault=3:SLOW&add=5:CRASH")
    assert "CRASH: a process dies" in page
    assert "as you asked" in page
    assert 'name="fault" value="3:SLOW,5:CRASH"' in page
    assert '<option value="5:CRASH">' not in page
    assert "The first step that differs is" in page
    assert "CRASH struck never before, and once now." in page
    assert f'href="{PATH}?seed={BUCKET}&amp;step=3&amp;fault=5:CRASH">remove' in page
    assert f'href="{PATH}?seed={BUCKET}&amp;step=5&amp;fault=3:SLOW">remove' in page


@pytest.mark.parametrize(
    ("off", "promise"),
    [(selects_unchecked, "at serializable: "), (commits_overwritten, "it is lost")],
)
def test_a_broken_promise_is_on_the_page(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, off: Off, promise: str
) -> None:
    off(monkeypatch)
    runs = (
        replay(Case(seed)) for seed in range(1, 200) if not world_config(Case(seed)).has_catalog
    )
    run = next(run for run in runs if promise in run.verdict.broken)
    assert run.verdict.broken.startswith("Violation: ")
    page = browser.page(f"{PATH}?seed={run.case.seed}&step={len(run.steps)}")
    assert "✗ A promise was broken." in page
    assert "✓ Every promise was kept." not in page
    assert run.verdict.broken in unescape(page)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("seed=x", "seed: expected a number from 0 on, found &#39;x&#39;"),
        ("seed=0", f"seed 0: expected a number from 1 to {SEED_MAX}; choose another"),
        (f"seed={SEED_MAX + 1}", f"expected a number from 1 to {SEED_MAX}"),
        ("seed=" + "9" * 5_000, "seed: expected a number from 0 on, found"),
        ("seed=32&step=-1", "step: expected a number from 0 on, found &#39;-1&#39;"),
        ("seed=32&step=99999", "step 99999: the run has 39 steps; choose one from 0 to 39"),
        ("seed=32&fault=3", "expected a step and a fault kind, as 12:CRASH"),
        ("seed=32&fault=3:NOISE", "fault &#39;3:NOISE&#39;: expected a step and a fault kind"),
        ("seed=32&fault=:CRASH", "the step of a fault: expected a number from 0 on"),
        ("seed=32&fault=3:POWER_LOSS", "seed 32: POWER_LOSS can&#39;t strike in its world; choose"),
        (
            f"seed=32&fault={','.join(f'{n}:SLOW' for n in range(FAULTS_MAX + 1))}",
            f"13 faults: a run takes {FAULTS_MAX} at most; remove some of them",
        ),
    ],
)
def test_invalid_parameters_are_refused(browser: Browser, query: str, message: str) -> None:
    answer = browser.get(f"{PATH}?{query}")
    assert answer.status_code == 404
    assert message in answer.text
