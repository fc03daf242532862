"""A table in memory, transactions on it, and the serial orders that could have had their outcome.

Rows are real, files are lists of them: so what the rules let pass can be held against what it did.
Nothing here is Spark's, and nothing of a store's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, permutations

import msgspec
from pyroaring import BitMap64

from tests.conflict.cases import PROTOCOL, metadata
from txlake.commit.merge_actions import StagedChanges
from txlake.commit.tombstone_tags import with_compaction_tags
from txlake.conflict.check import check
from txlake.conflict.concurrent_commit import ConcurrentCommit, summarise
from txlake.conflict.context import CheckContext, FileRows
from txlake.conflict.evidence import Conflicted, Rebased
from txlake.conflict.footprint import Footprint, Read, ReadKind
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level, checked_at
from txlake.conflict.rules import RULES, Rule
from txlake.errors import CorruptTable
from txlake.log.predicates import bind, parse_predicate
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, CommitInfo, DeletionVector, Remove
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text
from txlake.protocol.statistics import loosen

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "v")
    ],
}


@dataclass(frozen=True)
class Row:
    """A row; `token` tells it from all others, whatever its values."""

    token: int
    id: int
    v: int

    @property
    def values(self) -> tuple[int, int]:
        """What a user sees of it."""
        return (self.id, self.v)


@dataclass(frozen=True)
class Condition:
    """A condition as text, and what it says of a row."""

    text: str
    holds: Callable[[tuple[int, int]], bool]


def between(low: int, high: int) -> Condition:
    """Rows with ids of a range."""
    return Condition(f"id >= {low} AND id <= {high}", lambda row: low <= row[0] <= high)


def value_is(value: int) -> Condition:
    """Rows with that v."""
    return Condition(f"v = {value}", lambda row: row[1] == value)


Change = Callable[[tuple[int, int]], tuple[int, int]]
State = Counter[tuple[int, int]]
Replay = Callable[[State], object]


class Disk:
    """Data files and deletion vectors."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[Row, ...]] = {}
        self.vectors: dict[str, BitMap64] = {}
        self.names = count(1)
        self.tokens = count(1)

    def of(self, vector: DeletionVector) -> BitMap64:
        """A vector by its descriptor."""
        return self.of_id(vector.unique_id)

    def of_id(self, vector_id: str) -> BitMap64:
        """A vector by its id."""
        if vector_id not in self.vectors:
            raise CorruptTable(f"there is no vector {vector_id}")
        return self.vectors[vector_id]

    def matching(self, read: Read, rows: Sequence[FileRows]) -> Sequence[FileRows]:
        """The third tier, by looking at the very rows."""
        found = []
        for one in rows:
            places = BitMap64(place for place, row in self._rows(one) if _holds(read, row))
            if places:
                found.append(replace(one, positions=places))
        return found

    def _rows(self, one: FileRows) -> Iterable[tuple[int, Row]]:
        rows = self.files[one.file.path]
        if one.positions is not None:
            return [(place, rows[place]) for place in one.positions]
        return self.live(one.file)

    def deleted(self, file: Add | Remove) -> BitMap64:
        """The positions deleted in a file."""
        return BitMap64() if file.deletion_vector is None else self.of(file.deletion_vector)

    def live(self, file: Add) -> list[tuple[int, Row]]:
        """A file's live rows with their positions."""
        gone = self.deleted(file)
        return [pair for pair in enumerate(self.files[file.path]) if pair[0] not in gone]

    def write(self, rows: Sequence[Row], *, sources: Sequence[Source] = ()) -> Add:
        """A new file; one with sources moves rows."""
        path = f"f{next(self.names)}"
        self.files[path] = tuple(rows)
        columns = {"id": [row.id for row in rows], "v": [row.v for row in rows]}
        stats = {
            "numRecords": len(rows),
            "minValues": {name: min(values) for name, values in columns.items()},
            "maxValues": {name: max(values) for name, values in columns.items()},
            "nullCount": dict.fromkeys(columns, 0),
        }
        return Add(
            path=path,
            partition_values={},
            size=1,
            modification_time=1,
            data_change=not sources,
            stats=json.dumps(stats),
            tags={SOURCES_TAG: sources_text(sources)} if sources else None,
        )

    def marked(self, file: Add, positions: BitMap64) -> Add:
        """The file with these positions deleted."""
        name = f"{next(self.names):020d}"
        vector = DeletionVector(
            storage_type="u",
            path_or_inline_dv=name,
            size_in_bytes=1,
            cardinality=len(positions),
            offset=1,
        )
        self.vectors[vector.unique_id] = positions
        return msgspec.structs.replace(
            file, deletion_vector=vector, data_change=True, stats=loosen(file.stats or "{}")
        )


def _holds(read: Read, row: Row) -> bool:
    if read.text is None:
        return True
    text = read.text  # one of `between` and `value_is`, or a list of the latter's values
    for sql, python in (("AND", "and"), (" = ", " == "), ("IN (", "in {"), (")", "}")):
        text = text.replace(sql, python)
    return bool(eval(text, {"id": row.id, "v": row.v}))


@dataclass
class Transaction:
    """One transaction of a history: what it does, and how it would be done again alone."""

    name: str
    level: Level
    base: Snapshot
    disk: Disk
    staged: StagedChanges = field(default_factory=StagedChanges)
    reads: list[Read] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    answers: list[object] = field(default_factory=list)
    removed: list[Row] = field(default_factory=list)
    added: list[Row] = field(default_factory=list)

    @property
    def view(self) -> Snapshot:
        """The table as it sees it."""
        return self.base.apply(self.staged.actions)

    def _note(self, condition: Condition, kind: ReadKind, *, deletes_all: bool = False) -> None:
        predicate = bind(parse_predicate(condition.text), self.base.schema)
        self.reads.append(
            Read(predicate=predicate, text=condition.text, kind=kind, deletes_all=deletes_all)
        )

    def stage(self, *actions: Action) -> None:
        """Add changes of files."""
        self.staged = self.staged.then(actions, self.base.files)

    def select(self, condition: Condition) -> None:
        """A plain SELECT."""
        self._note(condition, ReadKind.PLAIN)
        rows = [row for add in self.view.files.adds() for _, row in self.disk.live(add)]
        self.answers.append(Counter(row.values for row in rows if condition.holds(row.values)))
        self.replays.append(_selecting(condition))

    def insert(self, rows: Sequence[tuple[int, int]]) -> None:
        """A blind append."""
        self._append(rows)
        self.replays.append(_inserting(rows))

    def _append(self, rows: Sequence[tuple[int, int]]) -> None:
        made = [Row(next(self.disk.tokens), *values) for values in rows]
        if made:
            self.added += made
            self.stage(self.disk.write(made))

    def insert_select(self, condition: Condition, shift: int) -> None:
        """Append copies of the rows for which the condition holds, with other ids."""
        self._note(condition, ReadKind.FOR_WRITE)
        rows = [row for add in self.view.files.adds() for _, row in self.disk.live(add)]
        copies = [(row.id + shift, row.v) for row in rows if condition.holds(row.values)]
        self._append(copies)
        self.replays.append(_copying(condition, shift))

    def change(self, condition: Condition, change: Change | None) -> None:
        """An UPDATE, or without `change` a DELETE."""
        self._note(condition, ReadKind.FOR_WRITE, deletes_all=True)
        images = []
        for add in list(self.view.files.adds()):
            taken = [pair for pair in self.disk.live(add) if condition.holds(pair[1].values)]
            if not taken:
                continue
            self._take(add, BitMap64([place for place, _ in taken]))
            self.removed += [row for _, row in taken]
            if change is not None:
                images += [change(row.values) for _, row in taken]
        self._append(images)
        self.replays.append(_changing(condition, change))

    def _take(self, add: Add, places: BitMap64) -> None:
        every = self.disk.deleted(add) | places
        remove = add.tombstone(timestamp_ms=1)
        if len(every) == len(self.disk.files[add.path]):
            self.stage(remove)
        else:
            self.stage(remove, self.disk.marked(add, every))

    def compact(self, number: int, *, recorded: bool) -> None:
        """The first files become one; without `recorded` in another order that nobody knows."""
        files = list(self.view.files.adds())[:number]
        rows = [row for add in files for _, row in self.disk.live(add)]
        if not rows:
            return
        sources = [
            Source(path=add.path, vector_id=add.key[1], first=0, rows=len(self.disk.live(add)))
            for add in files
        ]
        output = self.disk.write(rows if recorded else rows[::-1], sources=sources)
        if not recorded:
            output = msgspec.structs.replace(output, tags=None)
        removes = [add.tombstone(timestamp_ms=1, data_change=False) for add in files]
        self.stage(*removes, output)
        self.replays.append(lambda _: None)
        self.answers.append(None)

    def compact_elsewhere(self, number: int, order: Sequence[int], outputs: int) -> None:
        """The first files, in an order, become up to so many others; as another engine does it,
        the tombstones say where their rows went.
        """
        files = [
            (add, [row for _, row in self.disk.live(add)])
            for add in list(self.view.files.adds())[:number]
        ]
        files.sort(key=lambda one: order[int(one[0].path[1:]) % len(order)])
        size = -(-len(files) // outputs)
        for start in range(0, len(files), size):
            members = files[start : start + size]
            output = self.disk.write([row for _, rows in members for row in rows])
            self.stage(msgspec.structs.replace(output, data_change=False))
            offset = 0
            for add, rows in members:
                every = len(self.disk.files[add.path])
                tags: dict[str, str | None] = {
                    "compactedInto": f'["{output.path}"]',
                    "compactionInfo": (
                        f'[{{"rowOffsetInTarget":{offset},"sourceNumPhysicalRecords":{every}}}]'
                    ),
                }
                gone = add.tombstone(timestamp_ms=1, data_change=False)
                self.stage(msgspec.structs.replace(gone, tags=tags))
                offset += len(rows)
        self.replays.append(lambda _: None)
        self.answers.append(None)

    def sort(self, number: int, spread: Sequence[int]) -> None:
        """The rows of the first files go to the pieces that `spread` names in turn, two of them a
        new file; in a piece they stand by their old places.
        """
        files = list(self.view.files.adds())[:number]
        rows = [(file, place, row) for file in files for place, row in self.disk.live(file)]
        if not rows:
            return
        pieces: dict[int, list[tuple[Add, int, Row]]] = {}
        for turn, one in enumerate(rows):
            pieces.setdefault(spread[turn % len(spread)], []).append(one)
        outputs: dict[int, list[list[tuple[Add, int, Row]]]] = {}
        for piece in sorted(pieces):
            outputs.setdefault(piece // 2, []).append(pieces[piece])
        for members in outputs.values():
            sources = [source for one in members for source in self._pieces_of(one)]
            self.stage(
                self.disk.write([row for one in members for *_, row in one], sources=sources)
            )
        self.stage(*[file.tombstone(timestamp_ms=1, data_change=False) for file in files])
        self.replays.append(lambda _: None)
        self.answers.append(None)

    def _pieces_of(self, piece: Sequence[tuple[Add, int, Row]]) -> list[Source]:
        """Where the rows of a piece come from: sets of positions, or whole files."""
        places: dict[str, BitMap64] = {}
        files: dict[str, Add] = {}
        for file, place, _ in piece:
            places.setdefault(file.path, BitMap64()).add(place)
            files[file.path] = file
        sources = []
        for path, found in places.items():
            positions_id = f"s{next(self.disk.names)}"
            self.disk.vectors[positions_id] = found
            sources.append(
                Source(
                    path=path,
                    vector_id=files[path].key[1],
                    first=0,
                    rows=len(found),
                    positions_id=(
                        None if len(found) == len(self.disk.live(files[path])) else positions_id
                    ),
                )
            )
        return sources

    def restore(self, condition: Condition) -> None:
        """Rows that were deleted come back where they stood, if the condition holds for them."""
        self._note(condition, ReadKind.FOR_WRITE)
        found = []
        for file in list(self.view.files.adds()):
            rows, deleted = self.disk.files[file.path], self.disk.deleted(file)
            back = BitMap64(place for place in deleted if condition.holds(rows[place].values))
            if not back:
                continue
            found += [rows[place] for place in back]
            left = deleted - back
            listed = msgspec.structs.replace(file, deletion_vector=None, data_change=True)
            self.stage(
                file.tombstone(timestamp_ms=1), self.disk.marked(listed, left) if left else listed
            )
        self.added += found
        self.replays.append(_inserting([row.values for row in found]))

    def footprint(self) -> Footprint:
        """What the rules are told."""
        staged = self.staged
        return Footprint(
            read_version=self.base.version,
            reads=tuple(self.reads),
            added=staged.added_files,
            removed=staged.removed_files,
            metadata=staged.metadata,
            protocol=staged.protocol,
            app_ids=frozenset(staged.app_transactions),
            domains=tuple(staged.domains.values()),
        )

    @property
    def effect(self) -> tuple[State, State]:
        """Which values it took away and which it brought, net of its own."""
        gone, new = Counter(r.values for r in self.removed), Counter(r.values for r in self.added)
        return gone - new, new - gone


def _selecting(condition: Condition) -> Replay:
    return lambda state: Counter({row: n for row, n in state.items() if condition.holds(row)})


def _inserting(rows: Sequence[tuple[int, int]]) -> Replay:
    return lambda state: state.update(rows)


def _copying(condition: Condition, shift: int) -> Replay:
    def replay(state: State) -> None:
        state.update(
            Counter(
                {(row[0] + shift, row[1]): n for row, n in state.items() if condition.holds(row)}
            )
        )

    return replay


def _changing(condition: Condition, change: Change | None) -> Replay:
    def replay(state: State) -> None:
        taken = {row: n for row, n in state.items() if n and condition.holds(row)}
        for row in taken:
            del state[row]
        if change is not None:
            for row, n in taken.items():
                state[change(row)] += n

    return replay


class History:
    """A table and the commits on it."""

    def __init__(
        self,
        level: Level,
        rules: Sequence[Rule] = RULES,
        *,
        probing: bool = True,
        granularity: Granularity = Granularity.ROW,
        enabled: bool = True,
        by_tombstones: bool = False,
    ) -> None:
        """`by_tombstones`: of rewrites, what others see is the tags of their tombstones alone."""
        self.level = level
        self.by_tombstones = by_tombstones
        self.rules = rules
        self.disk = Disk()
        self.probing = probing
        self.granularity = granularity
        settings = metadata(SCHEMA, delta__enableDeletionVectors=str(enabled).lower())
        settings = msgspec.structs.replace(settings, partition_columns=())
        rows = [(number, number % 3) for number in range(9)]
        first = Transaction("first", level, Snapshot.empty("t"), self.disk)
        first.insert(rows[:6])
        first.insert(rows[6:])
        self.start = first
        self.snapshots = [
            Snapshot.empty("t").apply(
                [PROTOCOL, settings, *first.staged.actions], version=0, timestamp_ms=1
            )
        ]
        self.winners: list[ConcurrentCommit] = []
        self.committed: list[Transaction] = []

    @property
    def newest(self) -> Snapshot:
        """The table as it is."""
        return self.snapshots[-1]

    def begin(self, name: str, behind: int = 0) -> Transaction:
        """A transaction on the newest version, or on one that many before it."""
        base = self.snapshots[max(0, len(self.snapshots) - 1 - behind)]
        return Transaction(name, self.level, base, self.disk)

    def commit(self, transaction: Transaction) -> bool:
        """Whether the rules let it pass."""
        footprint = transaction.footprint()
        if footprint.is_empty:
            return True
        context = CheckContext(
            base=transaction.base,
            metadata=transaction.base.metadata,
            protocol=transaction.base.protocol,
            level=checked_at(self.level, changes_data=footprint.changes_data),
            granularity=self.granularity,
            vectors=self.disk,
            probe=self.disk if self.probing else None,
        )
        blind = footprint.is_blind_append
        for winner in self.winners[transaction.base.version :]:
            outcome = check(footprint, winner, context, self.rules)
            if isinstance(outcome, Conflicted):
                return False
            if isinstance(outcome, Rebased):
                footprint = outcome.footprint
                self._check_unwritten(footprint)
            context = outcome.context
        if footprint.is_empty:
            return True
        self._append(footprint, blind, transaction.staged)
        self.committed.append(transaction)
        return True

    def _append(self, footprint: Footprint, blind: bool, staged: StagedChanges) -> None:
        added: list[Add] = [
            msgspec.structs.replace(
                self.disk.marked(file, footprint.unwritten[file.path]), data_change=file.data_change
            )
            if file.path in footprint.unwritten
            else file
            for file in footprint.added
        ]
        version = self.newest.version + 1
        removed: Sequence[Remove] = footprint.removed
        if self.by_tombstones:
            removed = tuple(with_compaction_tags(removed, added))
            added = [msgspec.structs.replace(file, tags=None) for file in added]
        actions: tuple[Action, ...] = (
            CommitInfo({"isBlindAppend": blind}),
            *(one for one in staged.actions if not isinstance(one, Add | Remove)),
            *removed,
            *added,
        )
        for file in footprint.removed:
            assert file.key in self.newest.files, f"{file.key} is not in the table"
        self.snapshots.append(self.newest.apply(actions, version=version, timestamp_ms=1))
        self.winners.append(summarise(version, actions))

    # What must be true of it

    def _check_unwritten(self, footprint: Footprint) -> None:
        """A vector is written for files that are listed, for new deletions, and while rows live."""
        paths = {file.path: file for file in footprint.added}
        for path, positions in footprint.unwritten.items():
            assert path in paths, f"a vector of {path}, which isn't listed"
            assert positions != self.disk.deleted(paths[path]), f"{path} has that vector already"
            assert len(positions) < len(self.disk.files[path]), f"no row of {path} is left"

    def rows(self) -> list[Row]:
        """The table's rows."""
        return [row for add in self.newest.files.adds() for _, row in self.disk.live(add)]

    def check_rows(self) -> None:
        """No row lost, none doubled, none taken twice."""
        expected: Counter[int] = Counter()
        for transaction in (self.start, *self.committed):
            expected.update(row.token for row in transaction.added)
            expected.subtract(row.token for row in transaction.removed)
        assert min(expected.values(), default=0) >= 0, "a row was taken twice"
        found = Counter(row.token for row in self.rows())
        assert +expected == found, f"expected {+expected}, found {found}"

    def check_order(self) -> None:
        """A serial order that the level allows has this outcome."""
        if self.level is Level.SNAPSHOT:
            return
        if self.level is Level.SERIALIZABLE:
            assert self._is_outcome_of(self.committed, answers=True), "not the log's order"
            return
        orders = permutations(self.committed)
        assert any(self._is_outcome_of(order, answers=False) for order in orders), "no serial order"

    def _is_outcome_of(self, order: Sequence[Transaction], *, answers: bool) -> bool:
        state: State = Counter(row.values for row in self.start.added)
        for transaction in order:
            before = state.copy()
            found = [replay(state) for replay in transaction.replays]
            if answers and [one for one in found if one is not None] != [
                one for one in transaction.answers if one is not None
            ]:
                return False
            if (before - state, state - before) != transaction.effect:
                return False
        return True


__all__ = ["Condition", "History", "Transaction", "between", "replace", "value_is"]
