"""The differences that are known, each by a rule that excuses it and nothing else.

docs/differences-from-delta-spark.md says what each is and why; the names are those of its tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.comparing import Difference


@dataclass(frozen=True, slots=True)
class Known:
    """A difference by its name in the docs, and when it is that one."""

    name: str
    is_it: Callable[[Difference], bool]


def _refused_there(*conditions: str) -> Callable[[Difference], bool]:
    """Delta Spark refuses with one of these error conditions what txlake carries out."""
    return lambda one: (
        one.aspect == "outcome"
        and one.txlake == "done"
        and any(f"[{condition}" in one.delta for condition in conditions)
    )


def _is_compaction_that_finds_nothing(one: Difference) -> bool:
    kinds = ("OPTIMIZE", "REORG")
    told = {side.split(" ")[0] for side in (one.delta, one.txlake) if side}
    return one.aspect == "history" and told <= set(kinds) and "" in (one.delta, one.txlake)


def _is_generated_value_missing(one: Difference) -> bool:
    return (
        _refused_there("DELTA_MERGE_UNRESOLVED_EXPRESSION")(one)
        and one.shape is not None
        and any(f"resolve {item.name} in" in one.delta for item in one.shape.generated)
    )


KNOWN: tuple[Known, ...] = (
    Known("which files OPTIMIZE rewrites", _is_compaction_that_finds_nothing),
    Known("`*` in a MERGE beside a generated column", _is_generated_value_missing),
)


def excuse(difference: Difference) -> Known | None:
    """The known difference that this one is, if any."""
    return next((one for one in KNOWN if one.is_it(difference)), None)
