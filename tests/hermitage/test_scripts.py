"""The grid's own parts: scripts that can show what they are about, and a judge that can say no."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.hermitage.naive import without_checks, without_isolation
from tests.hermitage.running import Ended, cell
from tests.hermitage.scripts import ROWS, SCRIPTS, Script, Seen
from tests.hermitage.serial import is_serial

_BY_NAME = {script.name: script for script in SCRIPTS}


@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_anomaly_is_seen_in_an_engine_that_has_it(script: Script, tables: int) -> None:
    naive = [without_isolation(script, tables), without_checks(script, tables)]
    occurred = [script.occurred(seen) for seen in naive]
    assert any(occurred)
    for seen, bad in zip(naive, occurred, strict=True):
        if bad and script.name != "G1a":  # what was rolled back is in no serial order
            assert not is_serial(script, tables, seen)


@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_no_anomaly_is_seen_where_one_runs_after_the_other(script: Script, tables: int) -> None:
    lines = script.lines(tables)
    for order in permutations(sorted({name for name, _ in lines})):
        in_turn = [line for name in order for line in lines if line[0] == name]
        steps = "\n".join(f"{name}: {text}" for name, text in in_turn)
        alone = Script(script.name, "", "", script.occurred, steps)
        seen = without_checks(alone, tables)
        assert is_serial(script, tables, seen)
        assert not script.occurred(seen)


def test_the_judge_tells_reads_from_writes() -> None:
    skew = _BY_NAME["G2-item"]
    both = (ROWS,)
    seen = Seen({"T1": both, "T2": both}, frozenset({"T1", "T2"}), ((1, 11), (2, 21)))
    assert not is_serial(skew, 1, seen)
    assert is_serial(skew, 1, seen, reads=False)
    lost = Seen({"T1": both, "T2": both}, frozenset({"T1", "T2"}), ((1, 11), (2, 20)))
    assert not is_serial(skew, 1, lost, reads=False)
    assert is_serial(skew, 1, Seen({}, frozenset(), ROWS))
    assert not is_serial(skew, 1, Seen({}, frozenset(), ROWS[:1]))


def test_a_cell_says_how_it_ended() -> None:
    script = _BY_NAME["P4"]
    gone = Seen({}, frozenset({"T1"}), ROWS)
    assert cell(script, Ended(gone, (("T2", "Deadlock"),), None)) == "T2: Deadlock"
    assert cell(script, Ended(gone, (), None)) == "snapshot"
    assert cell(script, Ended(gone, (), ("T1", "InvalidRequest"))) == "refused"
    read = (((1, 10),),)
    both = Seen({"T1": read, "T2": read}, frozenset({"T1", "T2"}), ROWS)
    assert cell(script, Ended(both, (), None)) == "allowed"
