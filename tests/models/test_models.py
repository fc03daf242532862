"""Spin goes through every run of the commit protocols and of a catalog's log, as `models/`
describes them.

No run violates an invariant; without any one of the guards that the models name, one does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.peers import need

pytestmark = pytest.mark.timeout(1800)

MODELS = Path(__file__).parents[2] / "models"
RUNS: dict[str, list[tuple[str, ...]]] = {
    "path_commit": [()],
    "lake_commit": [(), ("PUBLISHING",), ("VACUUMING",)],
    "catalog_log": [(), ("DELETING",)],
    "publish_branch": [(), ("READING",), ("VACUUMING",)],
}
# What is taken away, with what else is defined, and the invariant that it was for.
BROKEN: dict[str, list[tuple[tuple[str, ...], str]]] = {
    "path_commit": [
        (("OWN",), "once"),
        (("HOPE",), "told_committed"),
        (("GIVE_UP",), "told_failed"),
        (("NEXT",), "no_gap"),
        (("FIRST_LOOK",), "no_gap"),
        (("OVERWRITE",), "never_replaced"),
        (("ROWS",), "first_wins"),
        (("PROTOCOL",), "governed_alone"),
        (("GOVERNED",), "governed_alone"),
    ],
    "lake_commit": [
        (("HEADS",), "one_version"),
        (("READS",), "first_wins"),
        (("CHECK",), "first_wins"),
        (("INSTANT",), "one_instant"),
        (("TOGETHER",), "one_instant"),
        (("OWNER",), "kill_is_final"),
        (("TURN",), "next_turn"),
        (("LOOK",), "told_failed"),
        (("HOPE",), "told_committed"),
        (("ORDER", "PUBLISHING"), "no_gap"),
        (("NOTE", "PUBLISHING"), "nothing_lost"),
        (("DROP", "PUBLISHING"), "nothing_lost"),
        (("EARLY", "PUBLISHING"), "ratified_alone"),
        (("REAP", "VACUUMING"), "files_stay"),
        (("LIVE", "VACUUMING"), "files_stay"),
    ],
    "catalog_log": [
        (("ID",), "once"),
        (("HOPE",), "told_committed"),
        (("GIVE_UP",), "told_failed"),
        (("UNDECIDED",), "told_failed"),
        (("CHECK",), "true_refusal"),
        (("LOOK",), "newest_read"),
        (("OVERWRITE",), "told_committed"),
        (("FENCE", "DELETING"), "told_committed"),
        (("GAP", "DELETING"), "same_entry"),
        (("EMPTY", "DELETING"), "told_committed"),
        (("DELETE", "DELETING"), "kept"),
        (("ORDER", "DELETING"), "told_committed"),
        (("BEHIND", "DELETING"), "kept"),
        (("AGE", "DELETING"), "told_committed"),
        (("RERUN", "DELETING", "MORE"), "once"),
        (("AGAIN", "DELETING", "MORE"), "told_failed"),
    ],
    "publish_branch": [
        (("FOOTPRINT",), "first_wins"),
        (("FENCE",), "nothing_lost"),
        (("GONE",), "nothing_lost"),
        (("ENDED",), "once"),
        (("DROP",), "told_dropped"),
        (("INSTANT",), "told_failed"),
        (("HOPE",), "told_committed"),
        (("BASE", "READING"), "base_there"),
        (("LINES", "VACUUMING"), "files_stay"),
        (("ORDER", "VACUUMING"), "files_stay"),
    ],
}
needs_spin = pytest.mark.peer("spin")


def searched(model: str, defined: tuple[str, ...], folder: Path, *, optimised: bool) -> str:
    """What Spin's verifier says of all runs, or up to the first that violates something."""
    need("spin", found=shutil.which("spin") is not None and shutil.which("gcc") is not None)
    flags = [f"-D{name}" for name in defined]
    for command in (
        ["spin", "-a", *flags, str(MODELS / f"{model}.pml")],
        ["gcc", "-w", "-O2" if optimised else "-O0", "-DSAFETY", "-DCOLLAPSE", "-opan", "pan.c"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    ran = subprocess.run(
        ["./pan", "-m100000", "-w22"], cwd=folder, check=False, capture_output=True, text=True
    )
    return ran.stdout


@pytest.mark.broad(keep=1)
@needs_spin
@pytest.mark.parametrize(
    ("model", "defined"),
    [(model, run) for model, runs in RUNS.items() for run in runs],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "all",
)
def test_no_run_violates_an_invariant(model: str, defined: tuple[str, ...], tmp_path: Path) -> None:
    said = searched(model, defined, tmp_path, optimised=True)
    assert "errors: 0" in said, said[-3000:]
    assert "Search not completed" not in said
    assert "max search depth too small" not in said


@pytest.mark.broad(keep=4)
@needs_spin
@pytest.mark.parametrize(
    ("model", "defined", "invariant"),
    [(model, broken, which) for model, cases in BROKEN.items() for broken, which in cases],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_without_a_guard_its_invariant_is_violated(
    model: str, defined: tuple[str, ...], invariant: str, tmp_path: Path
) -> None:
    taken, *others = defined
    said = searched(model, (f"BROKEN_{taken}", *others), tmp_path, optimised=False)
    assert re.search(rf"assertion violated {invariant} ", said), said[-3000:]


@pytest.mark.parametrize("model", RUNS)
def test_every_guard_and_every_invariant_of_a_model_is_here(model: str) -> None:
    text = (MODELS / f"{model}.pml").read_text()
    guards = set(re.findall(r"BROKEN_([A-Z_]+)", text))
    assert {taken for (taken, *_), _ in BROKEN[model]} == guards
    invariants = set(re.findall(r"violated\((\w+)\)", text)) - {"invariant"}
    assert {invariant for _, invariant in BROKEN[model]} == invariants
