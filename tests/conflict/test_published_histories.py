"""Lines of commits that are published as one: what the rules let pass equals a serial order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tests.conflict.histories import Condition, History, Transaction
from tests.conflict.test_histories import COMMITTED_MAX, CONDITIONS, ROWS, run
from txlake.conflict.footprint import Footprint
from txlake.conflict.levels import Level
from txlake.conflict.read_set import ReadSet, join_reads
from txlake.conflict.read_set_codec import decode_read_sets, encode_read_set
from txlake.log.net_actions import net_actions
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, Remove

Join = Callable[[list[ReadSet]], ReadSet]


@dataclass
class Line(Transaction):
    """Commits of one line after its base; published as their net actions and joined reads."""

    commits: list[tuple[Action, ...]] = field(default_factory=list)
    join: Join = join_reads

    def stage(self, *actions: Action) -> None:
        """Commit changes of files."""
        super().stage(*actions)
        self.commits.append(actions)

    @property
    def head(self) -> Snapshot:
        """The newest version of the line."""
        head = self.base
        for actions in self.commits:
            head = head.apply(actions)
        return head

    def footprint(self) -> Footprint:
        """What the rules are told of the publication."""
        net = net_actions(self.base, self.head, self.commits, timestamp_ms=1)
        assert listing(self.base.apply(net)) == listing(self.head)
        records = [encode_read_set(ReadSet(reads=(one,)), self.base) for one in self.reads]
        return replace(
            super().footprint(),
            reads=self.join(list(decode_read_sets(records, self.base))).reads,
            added=tuple(one for one in net if isinstance(one, Add)),
            removed=tuple(one for one in net if isinstance(one, Remove)),
        )


def listing(snapshot: Snapshot) -> Counter[tuple[object, ...]]:
    """What a reader sees of the files."""
    return Counter(
        (file.key, file.size, file.stats, str(file.tags)) for file in snapshot.files.adds()
    )


def machine(level: Level, join: Join = join_reads) -> type[RuleBasedStateMachine]:
    """Lines and transactions that begin, change rows and are published or commit in any order."""

    class Histories(RuleBasedStateMachine):
        lines: Bundle[Line] = Bundle("lines")
        mains: Bundle[Transaction] = Bundle("mains")

        def __init__(self) -> None:
            super().__init__()
            self.history = History(level)
            self.names = 0

        @rule(target=lines, behind=st.integers(0, 2))
        def begin(self, behind: int) -> Line:
            self.names += 1
            base = self.history.begin("base", behind).base
            return Line(f"line{self.names}", level, base, self.history.disk, join=join)

        @rule(target=mains)
        def begin_main(self) -> Transaction:
            self.names += 1
            return self.history.begin(f"t{self.names}")

        @rule(one=st.one_of(lines, mains), rows=ROWS)
        def insert(self, one: Transaction, rows: list[tuple[int, int]]) -> None:
            one.insert(rows)

        @rule(one=st.one_of(lines, mains), condition=CONDITIONS, shift=st.integers(-2, 2))
        def copy(self, one: Transaction, condition: Condition, shift: int) -> None:
            one.insert_select(condition, shift)

        @rule(one=st.one_of(lines, mains), condition=CONDITIONS)
        def select(self, one: Transaction, condition: Condition) -> None:
            one.select(condition)

        @rule(one=st.one_of(lines, mains), condition=CONDITIONS)
        def delete(self, one: Transaction, condition: Condition) -> None:
            one.change(condition, None)

        @rule(one=st.one_of(lines, mains), condition=CONDITIONS)
        def update(self, one: Transaction, condition: Condition) -> None:
            one.change(condition, lambda row: (row[0], row[1] + 1))

        @rule(line=lines, files=st.integers(1, 3), recorded=st.sampled_from([1, 1, 0]))
        def compact(self, line: Line, files: int, recorded: int) -> None:
            line.compact(files, recorded=bool(recorded))

        @rule(files=st.integers(1, 3))
        def compact_main(self, files: int) -> None:
            compaction = self.history.begin("compaction")
            compaction.compact(files, recorded=True)
            self.commit(compaction)

        @rule(one=st.one_of(consumes(lines), consumes(mains)))
        def finish(self, one: Transaction) -> None:
            self.commit(one)

        def commit(self, one: Transaction) -> None:
            if len(self.history.committed) < COMMITTED_MAX:
                self.history.commit(one)

        @invariant()
        def rows_are_accounted_for(self) -> None:
            self.history.check_rows()

        def teardown(self) -> None:
            self.history.check_order()

    return Histories


@pytest.mark.parametrize("level", Level)
def test_what_is_published_is_what_the_level_promises(level: Level) -> None:
    run(machine(level), 150, start=2)


def test_without_the_reads_a_history_goes_wrong() -> None:
    def without_reads(sets: list[ReadSet]) -> ReadSet:
        return ReadSet()

    with pytest.raises(AssertionError):
        run(machine(Level.SERIALIZABLE, without_reads), 150, start=1)
