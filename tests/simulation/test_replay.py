"""Seeds that are replayed step by step: the run stays the same, and takes what is added to it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from tests.console.browser import Browser
from tests.console.lakes import PlainLake
from tests.simulation.case import Case, shape_of
from tests.simulation.history import Doubt, Told
from tests.simulation.luck import Fault, Misfortune
from tests.simulation.replay import FAULTS_MAX, SEED_MAX, Replay, case_with, changes, replay
from tests.simulation.runs import Aside, Kept
from tests.simulation.show import PATH, Simulator, section
from tests.simulation.shrinking import shrunk
from tests.simulation.telling import Doing
from tests.simulation.test_teeth import Off, commits_overwritten, selects_unchecked
from tests.simulation.world import Failure, World
from txlake.errors import InvalidRequest, Unavailable

# A bucket and a disk without a lake, and a lake on either.
BUCKET, DISK, LAKE_ON_DISK, LAKE = 32, 63, 101, 96
WHERE = (
    (Misfortune.PUT_LOST, BUCKET),
    (Misfortune.PUT_UNANSWERED, BUCKET),
    (Misfortune.PUT_LATE, BUCKET),
    (Misfortune.PUT_TWICE, BUCKET),
    (Misfortune.DELETE_LATE, LAKE),
    (Misfortune.STORE_AWAY, BUCKET),
    (Misfortune.LISTING_STALE, BUCKET),
    (Misfortune.WRITE_TORN, 105),
    (Misfortune.DISK_FULL, 105),
    (Misfortune.POWER_LOSS, DISK),
    (Misfortune.REPLY_LOST, LAKE_ON_DISK),
    (Misfortune.REPLY_UNANSWERED, LAKE_ON_DISK),
    (Misfortune.DATABASE_AWAY, LAKE_ON_DISK),
    (Misfortune.CRASH, DISK),
    (Misfortune.STALL, DISK),
    (Misfortune.INTERRUPT, DISK),
    (Misfortune.INTERRUPT_LATE, LAKE_ON_DISK),
    (Misfortune.SLOW, DISK),
    (Misfortune.CLOCK_WRONG, DISK),
    (Misfortune.CLOCK_JUMP, DISK),
    (Misfortune.CLOCK_STEP, DISK),
    (Misfortune.FOREIGN_FILE, LAKE_ON_DISK),
    (Misfortune.CATALOG_BACK, LAKE_ON_DISK),
    (Misfortune.CATALOG_GONE, LAKE_ON_DISK),
    (Misfortune.RECOVERY_IDLE, LAKE_ON_DISK),
    (Misfortune.RECOVERY_TWICE, LAKE_ON_DISK),
    (Misfortune.RECOVERY_DIES, LAKE),
    (Misfortune.LOG_CLEANED, BUCKET),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Looks at the page; runs are made in this process."""
    simulator = Simulator(Kept(replay))
    with (
        PlainLake(tmp_path / "warehouse") as lake,
        Browser(lake.engine, sections=[section(simulator, Aside())]) as made,
    ):
        yield made


@pytest.mark.parametrize("seed", [BUCKET, DISK, LAKE_ON_DISK, LAKE, 7, 12])
def test_the_steps_are_those_of_the_run(seed: int) -> None:
    outcome = World(Case(seed)).run()
    run = replay(Case(seed))
    assert run.digest == outcome.digest
    assert tuple(step.trace for step in run.steps) == outcome.trace
    assert [step.number for step in run.steps] == list(range(1, len(outcome.trace) + 1))
    times = [step.time_ms for step in run.steps]
    assert times == sorted(times)
    told = [step.told for step in run.steps if step.told is not None]
    assert told.count(Told.COMMITTED) > 0
    assert {Told(one.told) for one in outcome.records} <= {*told, Told.DIED}
    assert run.verdict.is_kept
    for standing in run.steps[-1].tables:
        assert standing.version == standing.logged == max(run.rows[standing.table])
    _check_places(run)


def test_each_version_is_made_at_one_step_and_its_rows_are_shown() -> None:
    run = replay(Case(BUCKET))
    (start,) = run.start
    made = [version for step in run.steps for _, version in step.made]
    assert start.version is not None
    assert made == list(range(start.version + 1, max(run.rows["a"]) + 1))
    assert made
    for step in run.steps:
        if step.made:
            assert f"{step.made[0][1]:020}.json" in step.trace


@pytest.mark.parametrize(("kind", "seed"), WHERE)
def test_a_misfortune_strikes_where_it_is_asked_for(kind: Misfortune, seed: int) -> None:
    before: tuple[Fault, ...] = ()
    if kind in (Misfortune.RECOVERY_TWICE, Misfortune.RECOVERY_DIES):  # there is a recovery
        intruder = Misfortune.FOREIGN_FILE
        before = (Fault(_places(replay(Case(seed)), intruder)[0], intruder),)
    calm = replay(case_with(seed, before))
    places = _places(calm, kind)
    fault = Fault(places[len(places) // 2], kind)
    case = case_with(seed, (*before, fault))
    run = replay(case)
    assert run.verdict.is_kept, run.verdict.broken
    assert not run.missed
    _check_places(run)
    asked = [one for one in run.all_struck if one.is_asked]
    assert fault in [Fault(one.step, one.kind) for one in asked]
    assert len(asked) == len(before) + 1
    same = fault.step
    assert [one.trace for one in run.steps[:same]] == [one.trace for one in calm.steps[:same]]
    assert replay(case).digest == run.digest


def _check_places(run: Replay) -> None:
    """Each misfortune is at the step of the request that it struck."""
    for one in run.all_struck:
        process, _, what = one.where.partition(" ")
        if one.step:
            step = run.steps[one.step - 1]
            assert one.kind in step.possible
            # A process that comes in a dead one's place has a number of its own.
            assert step.lane.startswith(process) or one.kind is Misfortune.CLOCK_WRONG
            is_at_request = step.doing is not Doing.TROUBLE  # else one struck before it
            if is_at_request and what not in ("clock", "listing", "recovery"):
                assert what in step.trace


def _places(run: Replay, kind: Misfortune) -> list[int]:
    at_start = [0] if kind in run.possible else []
    return at_start + [step.number for step in run.steps if kind in step.possible]


def test_every_misfortune_is_tried() -> None:
    assert [kind for kind, _ in WHERE] == list(Misfortune)


def test_asking_for_a_copy_of_the_catalog_changes_nothing_before_it() -> None:
    """There is a recovery before it, which chance has a say in too."""
    calm = replay(Case(12))
    recovered = next(one.step for one in calm.all_struck if one.kind is Misfortune.RECOVERY_IDLE)
    place = next(one for one in _places(calm, Misfortune.CATALOG_BACK) if one > 2 * recovered)
    run = replay(case_with(12, [Fault(place, Misfortune.CATALOG_BACK)]))
    assert not run.missed
    assert [one.trace for one in run.steps[:place]] == [one.trace for one in calm.steps[:place]]


def test_what_a_crash_changes_is_told() -> None:
    calm = replay(Case(BUCKET))
    step = next(one for one in calm.steps if one.attempt and Misfortune.CRASH in one.possible)
    run = replay(case_with(BUCKET, [Fault(step.number, Misfortune.CRASH)]))
    told = changes(calm, run)
    assert told.first is not None
    assert told.first > step.number
    assert told.struck[Misfortune.CRASH] == (0, 1)
    assert step.attempt in told.told
    assert run.steps[told.first - 1].words.startswith("the process dies")
    assert changes(calm, calm).first is None


def test_a_fault_without_a_place_is_told_as_missed() -> None:
    calm = replay(Case(BUCKET))
    fault = Fault(len(calm.steps), Misfortune.CRASH)  # the clients have ended
    run = replay(case_with(BUCKET, [fault]))
    assert calm.steps[-1].is_after
    assert run.missed == (fault,)
    assert run.digest == calm.digest


def test_an_asked_misfortune_is_left_out_of_a_smaller_failure() -> None:
    case = case_with(BUCKET, [Fault(3, Misfortune.CRASH)])
    found = shrunk(
        Failure(case, Doubt("lost"), (), ()),
        lambda smaller: Failure(smaller, Doubt("lost"), (), ()),
    )
    assert "with CRASH at step 3" in str(case)
    assert not found.case.faults


def test_a_run_that_takes_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="seed 32: the run takes more than 10 turns; choose"):
        replay(Case(BUCKET), turns_max=10)
    aside = Aside(limit_s=0.0)
    with pytest.raises(InvalidRequest, match="isn't over after 0 seconds; choose another seed"):
        aside(Case(BUCKET))


def test_another_process_makes_the_same_run() -> None:
    aside = Aside()
    try:
        assert aside(Case(BUCKET)) == replay(Case(BUCKET))
        assert aside._process is not None
        aside._process.kill()
        aside._process.join()
        with pytest.raises(Unavailable, match="seed 32: the process that runs it died; try again"):
            aside(Case(BUCKET))
        assert aside(Case(BUCKET)).digest == replay(Case(BUCKET)).digest
    finally:
        aside.close()


def test_the_newest_runs_are_kept() -> None:
    run, asked = replay(Case(BUCKET)), []

    def count(case: Case) -> Replay:
        asked.append(case.seed)
        return run

    kept = Kept(count)
    for seed in [1, 1, *range(2, 9), 1, 9, 1, 2]:
        kept.of(Case(seed))
    assert asked == [*range(1, 10), 2]


# The page


def test_the_page_leads_through_the_steps(browser: Browser) -> None:
    run = replay(Case(BUCKET))
    number = next(step.number for step in run.steps if step.made)
    page = browser.page(f"{PATH}?seed={BUCKET}&step={number}")
    assert "✓ Every promise was kept." in page
    assert f"Step {number}: store" in page
    assert f'href="{PATH}?seed={BUCKET}&amp;step={number - 1}" rel="prev"' in page
    assert f'href="{PATH}?seed={BUCKET}&amp;step={number + 1}" rel="next"' in page
    assert f"version {run.steps[number - 1].made[0][1]} of a" in page
    assert re.search(r'<tr class="plus"><td class="sign">\+</td>', page)
    assert " style=" not in page
    assert not re.search(r"<script(?! src)", page)
    start, end = (browser.page(f"{PATH}?seed={BUCKET}&step={n}") for n in (0, len(run.steps)))
    assert "Before the first step" in start
    assert 'rel="prev"' not in start
    assert 'rel="next"' not in end
    assert browser.get("/static/simulator.css").status_code == 200
    assert browser.get("/static/simulator.js").status_code == 200


def test_a_visitor_adds_a_misfortune_and_takes_it_away(browser: Browser) -> None:
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
    runs = (replay(Case(seed)) for seed in range(1, 200) if not shape_of(Case(seed)).has_catalog)
    run = next(run for run in runs if promise in run.verdict.broken)
    assert run.verdict.broken.startswith("Doubt: ")
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
        ("seed=32&fault=3", "expected a step and a misfortune, as 12:CRASH"),
        ("seed=32&fault=3:NOISE", "fault &#39;3:NOISE&#39;: expected a step and a misfortune"),
        ("seed=32&fault=:CRASH", "the step of a fault: expected a number from 0 on"),
        ("seed=32&fault=3:POWER_LOSS", "seed 32: POWER_LOSS can&#39;t strike in its world; choose"),
        (
            f"seed=32&fault={','.join(f'{n}:SLOW' for n in range(FAULTS_MAX + 1))}",
            f"13 faults: a run takes {FAULTS_MAX} at most; remove some of them",
        ),
    ],
)
def test_what_there_is_no_run_of_is_refused(browser: Browser, query: str, message: str) -> None:
    answer = browser.get(f"{PATH}?{query}")
    assert answer.status_code == 404
    assert message in answer.text
