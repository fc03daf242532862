"""The audit of a round: the lake compared with the outcomes that its processes were told.

The logs decide which transactions are committed. Replaying their effects gives each table's rows,
which delta-rs and txlake then read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.disasters import journal
from tests.disasters.catalogs import Catalog, Ratified
from tests.disasters.journal import Effect, Journals
from tests.disasters.worker import ACCOUNTS, TABLES, close_session, open_session, recover_lake
from tests.interop import delta_tables
from tests.simulation.rows import RowSession

_COMMIT = re.compile(r"\d{20}\.json")
_LEASE_MS = 30_000
NEXT_STEPS = re.compile(
    r"connect again|lake\.recover\(\)|run (it|the transaction|the statement) again|try again|"
    r"begin it again|drop the table|VERSION AS OF",
    re.IGNORECASE,
)
"""What a refusal has to name."""


@dataclass(frozen=True, slots=True)
class Restore:
    """An older catalog was restored.

    `lost`: the ratified transactions that weren't fully published.
    """

    stopped: str
    lost: frozenset[str]


@dataclass(slots=True)
class Verdict:
    """The events of a round, or of all rounds, and `faults`: what is wrong."""

    events: Counter[str] = field(default_factory=Counter)
    processes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    rows: int = 0
    lost_transactions: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        self.events += other.events
        self.processes += other.processes
        self.outcomes += other.outcomes
        self.refusals += other.refusals
        self.recoveries += other.recoveries
        self.rows += other.rows
        self.lost_transactions += other.lost_transactions
        self.faults += other.faults

    def report(self) -> str:
        """Return the report, a line for each count."""
        counters = {
            "events": self.events,
            "transactions": self.outcomes,
            "refusals": self.refusals,
            "given up": self.lost_transactions,
        }
        return "\n".join(
            (
                *(f"{name:<14}{_text(counter)}" for name, counter in counters.items()),
                f"processes     {self.processes}",
                f"recoveries    {self.recoveries}",
                f"rows read     {self.rows}",
                *(f"FAULT         {fault}" for fault in self.faults),
            )
        )


def _text(counts: Counter[str]) -> str:
    entries = ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"
    return f"{counts.total()} ({entries})"


def unpublished(ratified: Ratified) -> frozenset[str]:
    """Return the transactions with a commit that isn't in its table's log."""
    return frozenset(
        txn_id
        for txn_id, versions in ratified.items()
        if any(_txn_at(location, version) != txn_id for location, version in versions)
    )


def _txn_at(location: str, version: int) -> str | None:
    path = Path(unquote(urlsplit(location).path)) / "_delta_log" / f"{version:020}.json"
    try:
        return _txn_id(path)
    except FileNotFoundError:
        return None


def _txn_id(commit: Path) -> str | None:
    for line in commit.read_text().splitlines():
        if '"commitInfo"' in line:
            txn_id: str | None = json.loads(line)["commitInfo"].get("txnId")
            return txn_id
    return None


def audit(journals: Path, warehouse: Path, catalog: Catalog, restores: list[Restore]) -> Verdict:
    """Audit a round whose processes have all ended."""
    return _Audit(journal.read(journals), warehouse, catalog, restores).run()


class _Audit:
    def __init__(
        self, journals: Journals, warehouse: Path, catalog: Catalog, restores: list[Restore]
    ) -> None:
        self._journals = journals
        self._warehouse = warehouse
        self._catalog = catalog
        self._restores = restores
        # By table, the transactions in the order of its log.
        self._logs: dict[str, list[str]] = {}
        self._verdict = Verdict()

    def run(self) -> Verdict:
        self._recover()
        ratified = self._catalog.ratified()
        lost = frozenset().union(*(one.lost for one in self._restores))
        if self._restores:
            lost |= unpublished(ratified)  # ratified by a catalog that was replaced
        self._logs = {
            folder.name: [
                txn_id
                for path in sorted((folder / "_delta_log").iterdir())
                if _COMMIT.fullmatch(path.name) and (txn_id := _txn_id(path)) is not None
            ]
            for folder in delta_tables(self._warehouse)
        }
        self._check_outcomes(lost)
        self._check_rows()
        self._check_messages()
        return self._verdict

    def _open(self) -> RowSession:
        return open_session(
            str(self._warehouse), self._catalog.url, _LEASE_MS, self._catalog.options
        )

    def _fault(self, text: str) -> None:
        self._verdict.faults.append(text)

    def _recover(self) -> None:
        """Publish what is ratified; after a restore, recover the lake."""
        session = self._open()
        if self._restores:
            recover_lake(session)
        catalog = session.engine.catalog.of_lake()
        for entry in catalog.tables("default"):
            session.rows(f"SELECT k FROM {entry.name}")
        close_session(session)

    # Transactions

    def _check_outcomes(self, lost: frozenset[str]) -> None:
        journals = self._journals
        outcomes = journals.outcomes
        for txn_id, attempt in journals.attempts.items():
            tables = [table for table in attempt.effects if table not in journals.dropped]
            if not tables:
                continue
            tables_with_commit = [table for table in tables if txn_id in self._logs.get(table, ())]
            outcome = outcomes.get(txn_id, "nothing")
            self._verdict.outcomes[outcome] += 1
            if outcome == "failed" and tables_with_commit:
                self._fault(
                    f"{txn_id} was told to have failed, and is committed in {tables_with_commit}"
                )
            if len(tables_with_commit) == len(tables) or (
                not tables_with_commit and outcome != "committed"
            ):
                continue
            if txn_id in lost:
                how = "a part" if tables_with_commit else "whole"
                self._verdict.lost_transactions[f"{how} of one told {outcome}"] += 1
                continue
            self._fault(f"{txn_id}, told {outcome}: committed in {tables_with_commit} of {tables}")
        for table, txn_ids in self._logs.items():
            for txn_id, count in Counter(txn_ids).items():
                if count > 1:
                    self._fault(f"{table} has {txn_id} {count} times")

    # Rows

    def _check_rows(self) -> None:
        session = self._open()
        catalog = session.engine.catalog.of_lake()
        names = {entry.name for entry in catalog.tables("default")}
        dropped_names = {one.entry.name for one in catalog.dropped.entries()}
        partial_sums: list[int] = []
        try:
            for table, txn_ids in self._logs.items():
                expected = self._replay(table, txn_ids)
                by_delta_rs = _rows(self._warehouse / table)
                if table in names:
                    rows_read = session.rows(f"SELECT k, n FROM {table}")
                    by_txlake = Counter((str(row["k"]), int(str(row["n"]))) for row in rows_read)
                else:
                    by_txlake = expected
                    if not self._is_dropped(table, dropped_names):
                        self._fault(f"{table} has a log, and isn't in the catalog")
                self._verdict.rows += by_delta_rs.total()
                for reader, rows in (("delta-rs", by_delta_rs), ("txlake", by_txlake)):
                    if rows != expected:
                        self._fault(
                            f"{table}: {reader} lacks {list((expected - rows).elements())[:3]} and "
                            f"has in addition {list((rows - expected).elements())[:3]}"
                        )
            partial_sums = self._partial_sums()
            total = sum(
                number * count
                for table in TABLES
                for (_, number), count in self._replay(table, self._logs[table]).items()
            )
            if total != sum(partial_sums):
                self._fault(f"the sum is {total}, of transactions in part {partial_sums}")
        finally:
            close_session(session)
        sums = {
            sum(subset)
            for n in range(len(partial_sums) + 1)
            for subset in combinations(partial_sums, n)
        }
        for one in self._journals.notes:
            if one.kind == "sum" and one.number not in sums:
                self._fault(f"a reader saw the sum {one.number}, expected one of {sorted(sums)}")

    def _is_dropped(self, table: str, dropped_names: Collection[str]) -> bool:
        """Return whether a table was dropped according to the journals and to the catalog or its
        folder.
        """
        has_marker = any((self._warehouse / table / "_delta_log").glob("_dropped.*"))
        return table in self._journals.dropped and (table in dropped_names or has_marker)

    def _replay(self, table: str, txn_ids: list[str]) -> Counter[tuple[str, int]]:
        rows = {f"account-{number}": 0 for number in range(ACCOUNTS)} if table in TABLES else {}
        for txn_id in txn_ids:
            attempt = self._journals.attempts.get(txn_id)
            for effect in () if attempt is None else attempt.effects.get(table, ()):
                _apply(rows, effect)
        return Counter(rows.items())

    def _partial_sums(self) -> list[int]:
        """Return what each transaction that is committed in one table only contributes to the
        sum.
        """
        logged = {table: set(self._logs[table]) for table in TABLES}
        numbers: dict[str, int] = {}
        sums: list[int] = []
        for txn_id, attempt in self._journals.attempts.items():
            total = 0
            for table in TABLES:
                for what, key, number in attempt.effects.get(table, ()):
                    if what == "add":
                        numbers[f"{table}/{key}"] = number
                    if txn_id in logged[table]:
                        total += number if what != "take" else -numbers.get(f"{table}/{key}", 0)
            if total:
                sums.append(total)
        return sums

    # Messages

    def _check_messages(self) -> None:
        for one in self._journals.replies:
            if one.outcome != "committed":
                self._verdict.refusals[one.error] += 1
            if one.message and not NEXT_STEPS.search(one.message):
                self._fault(f"no next step: {one.error}: {one.message}")
        for note in self._journals.notes:
            if note.kind == "broken":
                self._fault(f"a process broke: {note.text}")
        self._verdict.recoveries += sum(one.kind == "recovered" for one in self._journals.notes)


def _apply(rows: dict[str, int], effect: Effect) -> None:
    what, key, number = effect
    match what:
        case "add":
            rows[key] = number
        case "by":
            rows[key] = rows.get(key, 0) + number
        case "take":
            rows.pop(key, None)


def _rows(folder: Path) -> Counter[tuple[str, int]]:
    query = QueryBuilder().register("t", DeltaTable(str(folder)))
    rows = pa.table(query.execute("SELECT k, n FROM t").read_all())
    return Counter(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))
