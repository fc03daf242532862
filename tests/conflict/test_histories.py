"""Any interleaving of transactions: what the rules let pass equals a serial order of the level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.conflict.histories import Condition, History, Transaction, between, value_is
from txlake.conflict.levels import Level
from txlake.conflict.rules import RULES, Rule

CONDITIONS = st.one_of(
    st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda ends: between(*sorted(ends))),
    st.integers(0, 3).map(value_is),
)
ROWS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=2)
COMMITTED_MAX = 6


def machine(
    level: Level,
    rules: Sequence[Rule] = RULES,
    *,
    probing: bool = True,
    restoring: bool = False,
    by_tombstones: bool = False,
) -> type[RuleBasedStateMachine]:
    """Transactions that begin, change rows and commit in any order."""

    class Histories(RuleBasedStateMachine):
        transactions: Bundle[Transaction] = Bundle("transactions")
        compactions: Bundle[Transaction] = Bundle("compactions")

        def __init__(self) -> None:
            super().__init__()
            self.history = History(level, rules, probing=probing, by_tombstones=by_tombstones)
            self.names = 0

        @rule(target=transactions, behind=st.integers(0, 1))
        def begin(self, behind: int) -> Transaction:
            self.names += 1
            return self.history.begin(f"t{self.names}", behind)

        @rule(transaction=transactions, rows=ROWS)
        def insert(self, transaction: Transaction, rows: list[tuple[int, int]]) -> None:
            transaction.insert(rows)

        @rule(transaction=transactions, condition=CONDITIONS, shift=st.integers(-2, 2))
        def copy(self, transaction: Transaction, condition: Condition, shift: int) -> None:
            transaction.insert_select(condition, shift)

        @rule(transaction=transactions, condition=CONDITIONS)
        def select(self, transaction: Transaction, condition: Condition) -> None:
            transaction.select(condition)

        @rule(transaction=transactions, condition=CONDITIONS)
        def delete(self, transaction: Transaction, condition: Condition) -> None:
            transaction.change(condition, None)

        @rule(transaction=transactions, condition=CONDITIONS)
        def update(self, transaction: Transaction, condition: Condition) -> None:
            transaction.change(condition, lambda row: (row[0], row[1] + 1))

        @rule(transaction=transactions, condition=CONDITIONS, to=st.integers(0, 8))
        def move(self, transaction: Transaction, condition: Condition, to: int) -> None:
            transaction.change(condition, lambda row: (to, row[1]))

        @precondition(lambda _: restoring)
        @rule(transaction=transactions, condition=CONDITIONS)
        def restore(self, transaction: Transaction, condition: Condition) -> None:
            transaction.restore(condition)

        @rule(target=compactions, files=st.integers(1, 3), recorded=st.sampled_from([1, 1, 0]))
        def compact(self, files: int, recorded: int) -> Transaction:
            compaction = self.history.begin("compaction")
            compaction.compact(files, recorded=bool(recorded))
            return compaction

        @rule(transaction=st.one_of(consumes(transactions), consumes(compactions)))
        def commit(self, transaction: Transaction) -> None:
            if len(self.history.committed) < COMMITTED_MAX:
                self.history.commit(transaction)

        @invariant()
        def rows_are_accounted_for(self) -> None:
            self.history.check_rows()

        def teardown(self) -> None:
            self.history.check_order()

    return Histories


def run(machine_type: type[Any], examples: int, *, start: int | None = None) -> None:
    """Plays so many examples. `start` chooses where among all of them the search begins."""
    run_state_machine_as_test(
        machine_type if start is None else seed(start)(machine_type),
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate,),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.broad(keep=4)
@pytest.mark.parametrize("restoring", [False, True], ids=["", "rows come back"])
@pytest.mark.parametrize("probing", [True, False], ids=["rows", "statistics"])
@pytest.mark.parametrize("level", Level)
def test_what_commits_is_what_the_level_promises(
    level: Level, probing: bool, restoring: bool
) -> None:
    run(machine(level, probing=probing, restoring=restoring), 150)


@pytest.mark.parametrize(
    ("level", "name", "start"),  # near a history that goes wrong
    [
        pytest.param(Level.SERIALIZABLE, "select_not_true", 9, marks=pytest.mark.broad),
        (Level.SERIALIZABLE, "rows_added", 4),
        (Level.WRITE_SERIALIZABLE, "rows_added", 4),
        (Level.WRITE_SERIALIZABLE, "rows_deleted", 23),
        (Level.SNAPSHOT, "rows_deleted_by_both", 1),
    ],
)
def test_without_a_rule_a_history_goes_wrong(level: Level, name: str, start: int) -> None:
    rules = [one for one in RULES if one.__name__ != name]
    assert len(rules) == len(RULES) - 1
    with pytest.raises(AssertionError):
        run(machine(level, rules), 3_000, start=start)
