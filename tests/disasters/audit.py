"""What is left of a lake, compared with what its processes were told.

The logs' files say which transactions stand; replaying what these asked for gives each table's
rows. delta-rs reads them, and txlake.
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
from tests.disasters.journal import Book, Effect
from tests.disasters.worker import ACCOUNTS, TABLES, bring_up, closed, opened
from tests.interop import delta_tables

_COMMIT = re.compile(r"\d{20}\.json")
_LEASE_MS = 30_000
WAYS_OUT = re.compile(
    r"connect again|lake\.recover\(\)|run (it|the transaction|the statement) again|try again|"
    r"begin it again|drop the table|VERSION AS OF",
    re.IGNORECASE,
)
"""What a refusal has to name."""


@dataclass(frozen=True, slots=True)
class Restore:
    """An older catalog was put back. `lost`: transactions ratified, and not wholly published."""

    stopped: str
    lost: frozenset[str]


@dataclass(slots=True)
class Verdict:
    """What happened in a round, or in all, and `faults`: what must not have."""

    happened: Counter[str] = field(default_factory=Counter)
    processes: int = 0
    told: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    rows: int = 0
    given_up: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        self.happened += other.happened
        self.processes += other.processes
        self.told += other.told
        self.refusals += other.refusals
        self.recoveries += other.recoveries
        self.rows += other.rows
        self.given_up += other.given_up
        self.faults += other.faults

    def report(self) -> str:
        """One line each, for people."""
        listed = {
            "happened": self.happened,
            "transactions": self.told,
            "refusals": self.refusals,
            "given up": self.given_up,
        }
        return "\n".join(
            (
                *(f"{name:<14}{_listed(counted)}" for name, counted in listed.items()),
                f"processes     {self.processes}",
                f"recoveries    {self.recoveries}",
                f"rows read     {self.rows}",
                *(f"FAULT         {fault}" for fault in self.faults),
            )
        )


def _listed(counts: Counter[str]) -> str:
    told = ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"
    return f"{counts.total()} ({told})"


def unpublished(ratified: Ratified) -> frozenset[str]:
    """The transactions of which a commit isn't in its table's log."""
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
            found: str | None = json.loads(line)["commitInfo"].get("txnId")
            return found
    return None


def audit(journals: Path, warehouse: Path, catalog: Catalog, restores: list[Restore]) -> Verdict:
    """Of a round whose processes have all ended."""
    return _Audit(journal.read(journals), warehouse, catalog, restores).run()


class _Audit:
    def __init__(
        self, book: Book, warehouse: Path, catalog: Catalog, restores: list[Restore]
    ) -> None:
        self._book = book
        self._warehouse = warehouse
        self._catalog = catalog
        self._restores = restores
        # Of each table, the transactions in the order of its log.
        self._logs: dict[str, list[str]] = {}
        self._verdict = Verdict()

    def run(self) -> Verdict:
        self._recovered()
        ratified = self._catalog.ratified()
        lost = frozenset().union(*(one.lost for one in self._restores))
        if self._restores:
            lost |= unpublished(ratified)  # by a catalog that was put away
        self._logs = {
            folder.name: [
                txn_id
                for path in sorted((folder / "_delta_log").iterdir())
                if _COMMIT.fullmatch(path.name) and (txn_id := _txn_id(path)) is not None
            ]
            for folder in delta_tables(self._warehouse)
        }
        self._check_told(lost)
        self._check_rows()
        self._check_words()
        return self._verdict

    def _fault(self, text: str) -> None:
        self._verdict.faults.append(text)

    def _recovered(self) -> None:
        """Publishes what is ratified, and recovers the lake where a restore came last."""
        session = opened(str(self._warehouse), self._catalog.url, _LEASE_MS)
        if self._restores:
            bring_up(session)
        catalog = session.engine.catalog.of_lake()
        for entry in catalog.tables("default"):
            session.rows(f"SELECT k FROM {entry.name}")
        closed(session)

    # Transactions

    def _check_told(self, lost: frozenset[str]) -> None:
        book = self._book
        told = book.told
        for txn_id, asked in book.asked.items():
            tables = [table for table in asked.effects if table not in book.dropped]
            if not tables:
                continue
            standing = [table for table in tables if txn_id in self._logs.get(table, ())]
            answer = told.get(txn_id, "nothing")
            self._verdict.told[answer] += 1
            if answer == "failed" and standing:
                self._fault(f"{txn_id} was told to have failed, and stands in {standing}")
            if len(standing) == len(tables) or (not standing and answer != "committed"):
                continue
            if txn_id in lost:
                how = "a part" if standing else "whole"
                self._verdict.given_up[f"{how} of one told {answer}"] += 1
                continue
            self._fault(f"{txn_id}, told {answer}: stands in {standing} of {tables}")
        for table, found in self._logs.items():
            for txn_id, count in Counter(found).items():
                if count > 1:
                    self._fault(f"{table} has {txn_id} {count} times")

    # Rows

    def _check_rows(self) -> None:
        session = opened(str(self._warehouse), self._catalog.url, _LEASE_MS)
        catalog = session.engine.catalog.of_lake()
        names = {entry.name for entry in catalog.tables("default")}
        kept = {one.entry.name for one in catalog.dropped.entries()}
        torn: list[int] = []
        try:
            for table, txn_ids in self._logs.items():
                expected = self._replayed(table, txn_ids)
                other = _rows(self._warehouse / table)
                if table in names:
                    found = session.rows(f"SELECT k, n FROM {table}")
                    ours = Counter((str(row["k"]), int(str(row["n"]))) for row in found)
                else:
                    ours = expected
                    if not self._is_kept(table, kept):
                        self._fault(f"{table} has a log, and isn't in the catalog")
                self._verdict.rows += other.total()
                for who, rows in (("delta-rs", other), ("txlake", ours)):
                    if rows != expected:
                        self._fault(
                            f"{table}: {who} lacks {list((expected - rows).elements())[:3]} and "
                            f"has besides {list((rows - expected).elements())[:3]}"
                        )
            torn = self._torn()
            total = sum(
                number * count
                for table in TABLES
                for (_, number), count in self._replayed(table, self._logs[table]).items()
            )
            if total != sum(torn):
                self._fault(f"the sum is {total}, of transactions in part {torn}")
        finally:
            closed(session)
        sums = {sum(some) for n in range(len(torn) + 1) for some in combinations(torn, n)}
        for one in self._book.notes:
            if one.kind == "sum" and one.number not in sums:
                self._fault(f"a reader saw the sum {one.number}, expected one of {sorted(sums)}")

    def _is_kept(self, table: str, kept: Collection[str]) -> bool:
        """Whether a table was dropped, and the catalog or its folder says so."""
        is_told = any((self._warehouse / table / "_delta_log").glob("_dropped.*"))
        return table in self._book.dropped and (table in kept or is_told)

    def _replayed(self, table: str, txn_ids: list[str]) -> Counter[tuple[str, int]]:
        rows = {f"account-{number}": 0 for number in range(ACCOUNTS)} if table in TABLES else {}
        for txn_id in txn_ids:
            asked = self._book.asked.get(txn_id)
            for effect in () if asked is None else asked.effects.get(table, ()):
                _apply(rows, effect)
        return Counter(rows.items())

    def _torn(self) -> list[int]:
        """What each transaction that stands in one table alone leaves in the sum."""
        standing = {table: set(self._logs[table]) for table in TABLES}
        numbers: dict[str, int] = {}
        left: list[int] = []
        for txn_id, asked in self._book.asked.items():
            total = 0
            for table in TABLES:
                for what, key, number in asked.effects.get(table, ()):
                    if what == "add":
                        numbers[f"{table}/{key}"] = number
                    if txn_id in standing[table]:
                        total += number if what != "take" else -numbers.get(f"{table}/{key}", 0)
            if total:
                left.append(total)
        return left

    # Messages

    def _check_words(self) -> None:
        for one in self._book.answers:
            if one.told != "committed":
                self._verdict.refusals[one.error] += 1
            if one.message and not WAYS_OUT.search(one.message):
                self._fault(f"no way out: {one.error}: {one.message}")
        for note in self._book.notes:
            if note.kind == "broken":
                self._fault(f"a process broke: {note.text}")
        self._verdict.recoveries += sum(one.kind == "recovered" for one in self._book.notes)


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
    found = pa.table(query.execute("SELECT k, n FROM t").read_all())
    return Counter(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))
