"""Do what a table needs, by the statements that users type.

A statement runs in a session that waits for no lock. While it runs, another session that waits for
one of its locks ends it: users don't wait for maintenance. Work whose result concurrent writers
can't be rebased on excludes them (`_exclusive`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.log_cleanup import clean_log
from txlake.conflict.granularity import PROPERTY as GRANULARITY
from txlake.conflict.granularity import Granularity, coarsest, parse_granularity
from txlake.conflict.locking import LockMode, LockStatus
from txlake.errors import TxlakeError, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.maintenance.needs import MIB, TableFacts, packing_limits
from txlake.maintenance.policy import Policy, Work
from txlake.maintenance.survey import Target
from txlake.protocol.actions import CommitInfo
from txlake.protocol.features import SHREDDING
from txlake.session.branches import drop_expired
from txlake.session.command import AsRows
from txlake.session.engine import Engine, Handle
from txlake.session.membership.dropping import finish_interrupted
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.session.views.describe import Rows
from txlake.sql.statements import (
    AnalyzeTable,
    Optimize,
    Reorg,
    RepairTable,
    Statement,
    TablePath,
    Vacuum,
)

_logger = logging.getLogger(__name__)

DRIVER_STEP_BYTES = 64 * MIB
"""So many bytes of files this process rewrites itself; more are Spark's."""
SPARK_STEP_BYTES = 512 * MIB
_QUIET_MS = 600_000
_LOOK_MS = 500.0
_LOOKS_IN_STORE = 10  # a look at a catalog in a store costs requests
# How long the thread that looks for waiting users may take to end.
_END_S = 60.0
_ORDER_LOST = frozenset({Work.CLUSTER, Work.STATISTICS})
_OPERATIONS = frozenset({"OPTIMIZE", "REORG"})
_ACTIONS = {
    Work.CHECKPOINT: "write a checkpoint",
    Work.LOG_CLEANUP: "delete expired files of the log",
    Work.VACUUM: "VACUUM {} LITE",
    Work.FULL_VACUUM: "VACUUM {}",
    Work.STATISTICS: "ANALYZE TABLE {} COMPUTE DELTA STATISTICS",
    Work.OPTIMIZE: "OPTIMIZE {}",
    Work.PURGE: "REORG TABLE {} APPLY (PURGE)",
    Work.CLUSTER: "OPTIMIZE {}",
    Work.ICEBERG: "REPAIR TABLE {} SYNC METADATA",
    Work.LEFTOVERS: "publish commits, remove dropped tables",
    Work.BRANCHES: "drop expired branches and tags",
}


def action_text(work: Work, name: str) -> str:
    """Return what is done, as a statement where there is one."""
    return _ACTIONS[work].format(name)


@dataclass(frozen=True, slots=True)
class Gain:
    """What a step gained: files fewer, bytes freed, deleted rows dropped; and what it moved.

    Attributes:
        is_all: whether another step would do nothing.
    """

    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    data_bytes: int = 0
    is_all: bool = True


def step_bytes(engine: Engine, cost_bytes: int) -> int:
    """Return how many bytes of files are rewritten at once, if so many are rewritten in all."""
    in_spark = engine.plane.is_started or cost_bytes > 2 * SPARK_STEP_BYTES
    return SPARK_STEP_BYTES if in_spark else DRIVER_STEP_BYTES


class Worker:
    """Does the work that one claim is for. `session` waits for no lock."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._engine = session.engine

    def on_lake(self, work: Work) -> Gain:
        """Do what a lake needs besides its tables."""
        ended = drop_expired(self._engine) if work is Work.BRANCHES else ()
        finish_interrupted(self._engine)  # ended branches have kept dropped tables
        return Gain(files=len(ended))

    def on_table(
        self, target: Target, work: Work, facts: TableFacts, policy: Policy, bytes_max: int
    ) -> Gain:
        """Do one step of the work that a table needs: of rewriting, at most so many bytes.

        Raises what the statements raise: Conflict and Unavailable if others were first.
        """
        handle, table = target.handle, facts.table
        assert handle is not None, "the lake itself is no table"
        place = TablePath(handle.place)
        match work:
            case Work.CHECKPOINT:
                write_checkpoint(handle.log, table)
                return Gain()
            case Work.LOG_CLEANUP:
                return Gain(
                    files=len(clean_log(handle.log, retention_ms=table.properties.log_retention_ms))
                )
            case Work.VACUUM | Work.FULL_VACUUM:
                return self._vacuum(handle, place, is_lite=work is Work.VACUUM, policy=policy)
            case Work.ICEBERG:
                self._session.carry_out(None, RepairTable(table=place))
                return Gain()
            case Work.STATISTICS:
                statement: Statement = AnalyzeTable(table=place, delta=True, only_missing=True)
            case Work.CLUSTER:
                statement = Optimize(table=place)
            case Work.OPTIMIZE:
                limits = packing_limits(facts, policy, bytes_max)
                statement = Optimize(table=place, is_automatic=True, limits=limits)
            case Work.PURGE:
                limits = packing_limits(facts, policy, bytes_max)
                statement = Reorg(table=place, limits=limits)
            case _:
                raise AssertionError(work)
        excludes = work in _ORDER_LOST or not self._is_carried(target, table)
        return self._rewrite(target, handle, statement, facts, excludes=excludes)

    def _vacuum(self, handle: Handle, place: TablePath, *, is_lite: bool, policy: Policy) -> Gain:
        """Run VACUUM; the one by the log only if it would delete enough: it writes two commits."""
        statement = Vacuum(table=place, lite=is_lite)
        if is_lite and len(self._dry_run(place)) < policy.expired_files_min:
            return Gain()
        before = handle.log.latest().version
        self._session.carry_out(None, statement)
        for commit in handle.log.commits(before):
            metrics = _metrics(commit.info)
            if "numFilesToDelete" in metrics:
                return Gain(metrics["numFilesToDelete"], metrics.get("sizeOfDataToDelete", 0))
        return Gain()

    def _dry_run(self, place: TablePath) -> list[str]:
        """Return the files that VACUUM LITE would delete."""
        answer = self._session.carry_out(None, Vacuum(table=place, lite=True, dry_run=True))
        result = answer(AsRows())
        assert isinstance(result, Rows), "VACUUM is no query"
        return [str(row[0]) for row in result.rows]

    def _rewrite(
        self,
        target: Target,
        handle: Handle,
        statement: Statement,
        facts: TableFacts,
        *,
        excludes: bool,
    ) -> Gain:
        """Run a statement that rewrites files, or adds them again, in a transaction of its own.

        If it fails, the session rolls it back when it is closed.
        """
        transaction = self._session.begin(explicit=False)
        if excludes:
            self._exclude_writers(transaction, handle, facts)
        with self._yielding(transaction):
            self._session.carry_out(transaction, statement)
            if excludes:
                self._require_alone(transaction)
            transaction.commit()
        after = handle.log.latest()
        moved = [
            _metrics(commit.info)
            for commit in handle.log.commits(facts.table.version, after.version)
            if commit.info is not None and commit.info.text("operation") in _OPERATIONS
        ]
        return _gain_of(moved[-1], facts.table, after) if moved else Gain()

    # Beside writers

    def _is_carried(self, target: Target, table: Snapshot) -> bool:
        """Return whether writers of the same files can be rebased on a rewriting of them.

        Their changes are carried to the new files by position (docs/how-a-commit-works.md).
        """
        own = table.properties.conflict_granularity
        lake = self._engine.settings.conflict_granularity
        database = target.properties.get(GRANULARITY, Granularity.ROW.value)
        granularity = coarsest(*map(parse_granularity, (own, lake, database)))
        return (
            granularity is Granularity.ROW
            and table.properties.enable_deletion_vectors
            and not table.features & SHREDDING
        )

    def _exclude_writers(self, transaction: Transaction, handle: Handle, facts: TableFacts) -> None:
        """Keep writers from the table until the transaction ends; readers stay.

        Of a path table nobody knows the writers: it has to be quiet for ten minutes. Raises
        Unavailable if there are writers.
        """
        if handle.entry is None:
            quiet_ms = facts.now_ms - facts.table.timestamp_ms
            if quiet_ms < _QUIET_MS:
                raise Unavailable(
                    f"{handle.name}: a commit was made {quiet_ms / 1000:.0f} seconds ago, and this "
                    "would conflict with other writers: it is done after ten minutes without one"
                )
            return
        wanted = [(TablePath(handle.place), LockMode.SIX)]
        with self._session.statement_context(transaction, wanted, writes=True):
            pass
        self._require_alone(transaction)

    def _require_alone(self, transaction: Transaction) -> None:
        """Raise Unavailable if a transaction is open that may write what it read before.

        Writers that have no entry in the catalog yet have to begin again.
        """
        if not self._engine.catalog.is_lake:
            return
        transactions = self._engine.catalog.of_lake().transactions
        transactions.others_open(transaction.id)
        if any(entry.explicit and not entry.read_only for entry in transactions.entries()):
            raise Unavailable(
                "another transaction is open, which this would conflict with if it writes the table"
            )

    @contextmanager
    def _yielding(self, transaction: Transaction) -> Iterator[None]:
        """End the transaction in the block if another session waits for one of its locks."""
        if not self._engine.catalog.is_lake:
            yield
            return
        stopped = threading.Event()
        pause_ms = _LOOK_MS * (_LOOKS_IN_STORE if self._in_store else 1)

        def look() -> None:
            while not stopped.wait(pause_ms / 1000):
                if self._is_awaited(transaction.id):
                    self._engine.catalog.of_lake().transactions.kill(transaction.id)
                    return

        thread = threading.Thread(target=_quietly(look), name="txlake-yielding", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join(_END_S)

    @property
    def _in_store(self) -> bool:
        return self._engine.catalog.of_lake().defers_registration

    def _is_awaited(self, transaction_id: str) -> bool:
        """Return whether another session waits for a lock that the transaction holds."""
        entries = self._engine.catalog.of_lake().locks.entries()
        held = {
            entry.resource
            for entry in entries
            if entry.transaction_id == transaction_id and entry.status is LockStatus.GRANT
        }
        return any(
            entry.status in (LockStatus.WAIT, LockStatus.CONVERT)
            and entry.resource in held
            and entry.transaction_id != transaction_id
            for entry in entries
        )


def _quietly(look: Callable[[], None]) -> Callable[[], None]:
    """Return the function, whose errors of the catalog are logged: nobody waits for its result."""

    def run() -> None:
        try:
            look()
        except TxlakeError as error:
            _logger.info("whether a user waits for a lock can't be seen: %s", error)

    return run


def _metrics(info: CommitInfo | None) -> dict[str, int]:
    """Return the numbers among a commit's metrics."""
    found = None if info is None else info.values.get("operationMetrics")
    if not isinstance(found, dict):
        return {}
    return {key: int(text) for key, text in found.items() if str(text).isdecimal()}


def _gain_of(metrics: Mapping[str, int], before: Snapshot, after: Snapshot) -> Gain:
    """Return what a rewriting commit gained, by its metrics and the versions before and after."""
    removed, added = metrics.get("numRemovedFiles", 0), metrics.get("numAddedFiles", 0)
    removed_bytes = metrics.get("numRemovedBytes", 0)
    added_bytes = metrics.get("numAddedBytes", 0)
    dropped = before.files.totals.deleted_records - after.files.totals.deleted_records
    return Gain(
        files=max(0, removed - added),
        size_bytes=max(0, removed_bytes - added_bytes),
        rows=max(0, dropped),
        data_bytes=removed_bytes + added_bytes,
        is_all=not removed,
    )
