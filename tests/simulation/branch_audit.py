"""The audit of branches: each is a history of its own, and a published one a transaction.

A branch's own transactions are audited like main's, on the branch's versions. Publishing is a
transaction of the parent that read at the instant at which the branch began, and executed the
statements of all of the branch's transactions; a rebase is one of the branch's successor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tests.simulation.audit import Audit
from tests.simulation.branch_journal import BranchJournal, Ending, LedgerCommit, Line
from tests.simulation.branching import BranchEvent, TravelledRead
from tests.simulation.committed_state import BranchHistory, LogHistory
from tests.simulation.records import (
    UNREPORTED,
    CommittedState,
    Record,
    ReportedOutcome,
    Step,
    Violation,
    apply_steps,
)
from tests.simulation.statements import Row, State
from tests.simulation.stores import Storage
from txlake.conflict.levels import Level

PUBLISH = "PUBLISH BRANCH"
MAIN = 0
_TOLD_DONE = ReportedOutcome.COMMITTED


@dataclass(frozen=True, slots=True)
class NetChange:
    """The rows of a table that a branch deleted and added, as a statement."""

    table: str
    deleted: Counter[Row]
    added: Counter[Row]

    def sql(self, names: Mapping[str, str]) -> str:
        raise AssertionError("nobody executes it")

    def apply(self, state: State) -> tuple[State, object]:
        rows = Counter(state[self.table]) - self.deleted + self.added
        return {**state, self.table: tuple(sorted(rows.elements()))}, None


@dataclass(slots=True)
class _History:
    """Main's history, or a branch's.

    Attributes:
        number: of the branch; 0 for main.
        logs: by table name.
        initial: by table, the version that it began with.
        instants, versions: as in `CommittedState`; what it began with is included.
        begin: the instant that it began at.
        parent: the history that it was made from.
        records: its transactions, those of published branches included.
        publications: the ids of the latter.
    """

    number: int
    logs: Mapping[str, LogHistory]
    initial: Mapping[str, int]
    instants: dict[str, int]
    versions: dict[str, dict[str, int]]
    begin: int = 0
    parent: _History | None = None
    records: list[Record] = field(default_factory=list)
    publications: set[str] = field(default_factory=set)

    def committed(self) -> CommittedState:
        rows = {name: log.rows for name, log in self.logs.items()}
        return CommittedState(self.instants, self.versions, rows)

    def inherited(self) -> list[Record]:
        """Return the committed transactions of the parent up to its begin."""
        if self.parent is None:
            return []
        found = [*self.parent.inherited(), *self.parent.records]
        return [one for one in found if self.instants.get(one.id, self.begin + 1) <= self.begin]

    def steps(self) -> list[Step]:
        """Return the statements of its committed transactions, in the order of their instants."""
        found = [record for record in self.records if record.id in self.instants]
        found.sort(key=lambda record: self.instants[record.id])
        return [step for record in found for step in record.steps]


class _LineAudit(Audit):
    """The audit of one history. `publications`: the ids of transactions that publish a branch."""

    def __init__(
        self, history: _History, *, may_be_lost: Set[str], appends_begin_unseen: bool
    ) -> None:
        super().__init__(
            history.records,
            history.committed(),
            history.initial,
            is_lake=True,
            may_be_lost=may_be_lost,
            appends_begin_unseen=appends_begin_unseen,
        )
        self._publications = history.publications
        self._inherited = history.inherited()

    def _check_reads(self, record: Record) -> None:
        if record.id not in self._publications or record.level is Level.SERIALIZABLE:
            super()._check_reads(record)

    def _before_it(self, record: Record) -> Sequence[Record]:
        return [*self._inherited, *super()._before_it(record)]

    def check_level(self, record: Record) -> None:
        if not any(isinstance(step.statement, NetChange) for step in record.steps):
            super().check_level(record)


class BranchAudit:
    """The audit of a run with branches.

    Attributes:
        main: main's history.
        counts: what happened, by name.
    """

    def __init__(
        self,
        journal: BranchJournal,
        storage: Storage,
        roots: Mapping[str, tuple[str, str]],
        main: CommittedState,
        logs: Mapping[str, LogHistory],
        initial: Mapping[str, int],
        level: Level,
        *,
        appends_begin_unseen: bool,
    ) -> None:
        """Prepare the audit.

        Args:
            roots: by table name, its id in the catalog and its key.
            main: what is committed on main.
            logs: the logs of main's tables.
            initial: as in `Audit`.
            level: the isolation level of all transactions.
            appends_begin_unseen: as in `Audit`.
        """
        self._appends_begin_unseen = appends_begin_unseen
        self._journal, self._storage, self._roots, self._level = journal, storage, roots, level
        self._names = {table_id: name for name, (table_id, _) in roots.items()}
        self.main = _History(
            MAIN,
            logs,
            initial,
            dict(main.instants),
            {transaction: dict(made) for transaction, made in main.versions.items()},
        )
        self.histories: dict[str, _History] = {}
        self.counts: Counter[str] = Counter()
        self._by_number = {MAIN: self.main}
        for line in sorted(journal.lines.values(), key=lambda line: line.number):
            history = self._history(line)
            self.histories[line.id] = self._by_number[line.number] = history

    def check(self, records: Iterable[Record], events: Sequence[BranchEvent]) -> None:
        """Check all promises about main's and the branches' transactions. Raises Violation."""
        for record in records:
            history = self.histories[record.line] if record.line else self.main
            named = {self._name_of(key): one for key, one in record.read_versions.items()}
            history.records.append(replace(record, read_versions=named))
        # A branch's own branches end before it does.
        ended = [line for line in self._journal.lines.values() if line.ended_within]
        for line in sorted(ended, key=lambda line: line.ended_within.start):
            self._publish(line, events)
        self._check_endings(events)
        lost = {line.number: self._dropped_with(line, events) for line in ended}
        for history in (self.main, *self.histories.values()):
            audit = _LineAudit(
                history,
                may_be_lost=lost.get(history.number, frozenset()),
                appends_begin_unseen=self._appends_begin_unseen,
            )
            audit.check()
        self._check_identities()

    def _dropped_with(self, line: Line, events: Sequence[BranchEvent]) -> Set[str]:
        """Return the transactions that were committed on a branch in the same transaction of the
        catalog in which it was dropped, which shows no more of them than their instants.
        """
        may_be = {
            event.action
            for event in events
            if event.name == line.name and event.outcome in (_TOLD_DONE, *UNREPORTED)
        }
        if "DROP" not in may_be or "PUBLISH" in may_be or line.ending is Ending.REBASED:
            return frozenset()
        return {
            record.id
            for record in self.histories[line.id].records
            if self.main.instants.get(record.id) in line.ended_within
        }

    def check_open(self) -> None:
        """Raise Violation if a file is gone that an open branch or tag needs."""
        for line in self._journal.lines.values():
            if line.ending is Ending.OPEN:
                for name, log in self.histories[line.id].logs.items():
                    log.require_files(max(log.rows))
                    self.counts[f"open {'tag' if line.is_tag else 'branch'} of {name}"] += 1

    def check_travelled(self, reads: Iterable[TravelledRead], *, only_newest: bool = False) -> None:
        """Raise Violation for a read of a branch or tag with rows that it never had.

        `only_newest`: expected are the rows of the newest version.
        """
        for read in reads:
            had = [
                rows
                for line in self._journal.lines.values()
                if line.name == read.name
                for version, rows in self.histories[line.id].logs[read.table].rows.items()
                if version >= self.histories[line.id].initial[read.table]
            ]
            had = had[-1:] if only_newest else had
            if read.rows not in had:
                raise Violation(
                    f"{read.client} read {read.rows} from {read.table} as of {read.name}, which "
                    f"had {had}"
                )

    # The branches' histories

    def _history(self, line: Line) -> _History:
        """Return a branch's history, without the records of its transactions."""
        logs: dict[str, LogHistory] = {}
        initial: dict[str, int] = {}
        parent = self._by_number[line.parent]
        instants = {one: at for one, at in parent.instants.items() if at <= line.begin}
        versions = {one: parent.versions[one] for one in instants}
        instants[line.id], versions[line.id] = line.begin, initial
        for table_id, (number, _) in self._journal.tables.items():
            name = self._name_of(table_id)
            if number != line.number or name not in self._roots:
                continue
            commits = {
                version: commit
                for (of, version), commit in self._journal.commits.items()
                if of == table_id
            }
            [initial[name]] = [
                version for version, one in commits.items() if one.transaction == line.id
            ]
            del commits[initial[name]]
            for version, commit in commits.items():
                instants[commit.transaction] = commit.sequence
                versions.setdefault(commit.transaction, {})[name] = version
            logs[name] = BranchHistory(
                parent.logs[name],
                initial[name],
                f"{name} on {line.name}",
                {
                    version: self._content(line, name, version, one)
                    for version, one in commits.items()
                },
            )
        return _History(line.number, logs, initial, instants, versions, line.begin, parent)

    def _content(self, line: Line, name: str, version: int, commit: LedgerCommit) -> bytes:
        """Return the bytes of a branch's commit, which may never have been published."""
        folder = f"{self._roots[name][1]}/_delta_log/_branches/{line.id}/_delta_log"
        if commit.content is not None:
            return commit.content
        keys = (f"{folder}/{version:020}.json", f"{folder}/_staged_commits/{commit.staged}")
        written = self._storage.last_written
        found = next((written[key] for key in keys if key in written), None)
        if found is None:
            raise Violation(f"{name} on {line.name}: version {version} was ratified and is lost")
        return found

    def _name_of(self, table_id: str) -> str:
        """Return the name of the table from which a branch's table was made; any other key as it
        is.
        """
        key: str | None = table_id
        while key in self._journal.tables and key not in self._names:
            key = self._journal.tables[key][1]
        return self._names.get(key or "", table_id)

    # How they ended

    def _publish(self, line: Line, events: Sequence[BranchEvent]) -> None:
        """Add the transaction that published or rebased a branch to the history that it changed."""
        history = self.histories[line.id]
        if line.ending is Ending.REBASED:
            target = self.histories[line.successor]
        else:
            target = self._by_number[line.parent]
        made = {
            transaction
            for transaction, sequence in target.instants.items()
            if sequence in line.ended_within and self._publishes(target, transaction, line)
        }
        if len(made) > 1:
            raise Violation(f"{line.name} was published twice: {made}")
        net = _net_changes(history)
        if not made:
            if net and line.ending is Ending.PUBLISHED:
                line.ending = Ending.DROPPED  # together with a commit of another transaction
            elif net:
                raise Violation(f"{line.name} was rebased, and its changes are lost: {net}")
            return
        [transaction] = made
        late = [one for one, at in history.instants.items() if at >= target.instants[transaction]]
        if late:
            raise Violation(f"{line.name} got commits after it was published: {late}")
        target.records.append(self._publication(line, history, target, transaction, net, events))
        target.publications.add(transaction)
        self.counts[f"branches {line.ending.value}"] += 1

    def _publication(
        self,
        line: Line,
        history: _History,
        target: _History,
        transaction: str,
        net: Sequence[NetChange],
        events: Sequence[BranchEvent],
    ) -> Record:
        """Return the record of the transaction that published a branch.

        Its steps are those of the branch's transactions if these, one after the other, do what the
        branch did: below SERIALIZABLE they needn't.
        """
        base: State = {name: log.rows[history.initial[name]] for name, log in history.logs.items()}
        after = {name: log.rows[max(log.rows)] for name, log in history.logs.items()}
        steps = history.steps()
        if apply_steps(steps, base)[0] != after:
            if self._level is Level.SERIALIZABLE:
                raise Violation(f"{line.name}: its transactions aren't serializable")
            steps = [Step(change) for change in net]
        told = [one for one in events if one.name == line.name and one.outcome is _TOLD_DONE]
        told = [one for one in told if one.action == "PUBLISH"]
        is_told = line.ending is Ending.PUBLISHED and bool(told)
        return Record(
            id=transaction,
            client=f"publish {line.name}",
            level=self._level,
            steps=steps,
            outcome=_TOLD_DONE if is_told else ReportedOutcome.DIED,
            read_versions=dict(history.initial),
            end_turn=told[0].end_turn if is_told else 0,
        )

    def _publishes(self, target: _History, transaction: str, line: Line) -> bool:
        """Return whether a transaction's commits say that it published the branch."""
        return any(
            target.logs[name].published.get(version) == line.name
            for name, version in target.versions[transaction].items()
        )

    def _check_endings(self, events: Sequence[BranchEvent]) -> None:
        """Check what clients were told about branches. Raises Violation."""
        last = {line.name: line for line in self._journal.lines.values()}
        for name in {event.name for event in events}:
            told = [event for event in events if event.name == name]
            line = last.get(name)
            done = Counter(event.action for event in told if event.outcome is _TOLD_DONE)
            maybe = {event.action for event in told if event.outcome in UNREPORTED}
            if line is None:
                if done:
                    raise Violation(f"{name}: told {done}, and it never was there")
                continue
            has_changes = bool(_net_changes(self.histories[line.id]))
            if done["PUBLISH"] + done["DROP"] > 1:
                raise Violation(f"{name} ended twice: {told}")
            if done["PUBLISH"] and line.ending is not Ending.PUBLISHED:
                raise Violation(f"{name} was told to be published, and it is {line.ending.value}")
            if done["DROP"] and line.ending is Ending.OPEN:
                raise Violation(f"{name} was told to be dropped, and it is open")
            if done["DROP"] and line.ending is Ending.PUBLISHED and has_changes:
                raise Violation(f"{name} was told to be dropped, and it is published")
            if (
                line.ending is Ending.PUBLISHED
                and has_changes
                and not done["PUBLISH"]
                and "PUBLISH" not in maybe
            ):
                raise Violation(f"{name} is published, and everybody was told that it isn't")

    def _check_identities(self) -> None:
        """Check that no branch has given a value of an identity column that another gave."""
        given: dict[tuple[str, int], str] = {}
        for where, history in (("main", self.main), *self.histories.items()):
            published = {
                (name, version)
                for transaction in history.publications
                for name, version in history.versions[transaction].items()
            }
            for name, log in history.logs.items():
                since = history.initial[name]
                for before, version in pairwise(sorted(one for one in log.ids if one >= since)):
                    if (name, version) in published:
                        continue
                    for value in log.ids[version] - log.ids[before]:
                        other = given.setdefault((name, value), where)
                        if other != where:
                            raise Violation(f"{name}: {value} was given on {where} and {other}")


def _net_changes(history: _History) -> list[NetChange]:
    """Return what a branch changed, without the tables that have the same rows as before."""
    found = []
    for name, log in history.logs.items():
        was, now = Counter(log.rows[history.initial[name]]), Counter(log.rows[max(log.rows)])
        if was != now:
            found.append(NetChange(name, was - now, now - was))
    return found
