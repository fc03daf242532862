"""What missed works can't do without: measured on next to nothing, and shown beside the targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import limits
from bench.__main__ import ROOT
from bench.limits import Limit, page_part
from bench.pages import marks
from bench.results import lines, load
from bench.sizes import WARM_UP
from tests.pages import page

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.no_interop("the bench's tables are its own"),
]

RESULTS = load(ROOT / "bench" / "results.json")


@pytest.fixture
def _little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "FULL": WARM_UP,
        "CACHE": tmp_path,
        "CLIENTS": 2,
        "_COMMITS_EACH": 2,
    }.items():
        monkeypatch.setattr(limits, name, value)


@pytest.mark.usefixtures("_little")
def test_each_is_measured() -> None:
    measured = {one.work: one.value for one in [measure() for measure in limits.MEASURES]}
    assert list(measured) == [
        *("sum-deleted", "compact-small", "served", "simulated-writers"),
    ]
    assert all(value > 0 for value in measured.values())
    assert measured["simulated-writers"] > 1


def test_the_least_is_shown_beside_the_target() -> None:
    [line] = [one for one in lines(RESULTS) if one.work.name == "compact-small"]
    text = page_part(RESULTS, [Limit("compact-small", "all of it", 0.123)])
    head, rule, row, *_ = text.splitlines()
    to_reach, own = line.medians["delta-rs"], line.medians["txlake"]
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row == (f"| {line.title} | {to_reach:.2f} s | 0.12 s | all of it | {own:.2f} s |")


def test_the_page_has_a_place_for_it() -> None:
    assert all(page("docs/benchmarks.md").count(mark) == 1 for mark in marks(limits.PART))
