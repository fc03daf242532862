"""The works on Delta's own MERGE cases: the sum over the cases of a group, each on a new table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.sources.merges import CASES, merges
from bench.sources.rows import large_rows
from bench.stage import Stage, timed


def of_group(group: str) -> Callable[[Stage, int], float]:
    """The work of a group: the seconds of each of its cases are in the details."""

    def run(stage: Stage, number: int) -> float:
        size = (stage.data, stage.sizes.few_rows, stage.sizes.few_files)
        rows, sources = large_rows(*size), merges(*size)
        before = stage.keep("all", rows.total)
        whole = 0.0
        for case in CASES:
            if case.group == group:
                table = stage.table("merged", rows.log("live"), rows.data)
                changes = sources.changes(case)
                seconds, _ = timed(partial(stage.engine.merge_case, table, changes, case.kind))
                stage.expect(stage.engine.total(table), before + sources.more(case), case.name)
                stage.details[case.name] = seconds
                whole += seconds
        return whole

    return run
