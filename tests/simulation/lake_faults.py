"""Faults of the whole lake: files of other writers, restored catalogs, lost catalogs.

Owns when each occurs and which process recovers the lake. `catalog_history` has the contents of
former catalogs.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.catalog_history import OTHER_ENGINE, CatalogHistory
from tests.simulation.database import shared_database
from tests.simulation.faults import FaultKind
from tests.simulation.other_engine import open_log
from tests.simulation.process import Interrupted, Process
from tests.simulation.records import Violation
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.in_commit_time import is_enabled
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.ports import Store
from txlake.protocol.actions import Action, Add, CommitInfo, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.session.membership.recovery import Recovered, recover

if TYPE_CHECKING:
    from tests.simulation.world import World

_BACKUPS_MAX = 4
_BACKUP_LIKELIHOOD = 0.02
_KIND_MAX = 2
_RECOVERIES_MAX = 8
_DELAYS_MS = (1, 50, 500, 6_000)
# The requests between a ratification and its publication.
_COMMITS = {"write done", "create"}
_AT_COMMITS = 8.0
_NOTHING = Recovered((), (), ())
_AWAY = "the store is away"
_STRIKING_KINDS = (FaultKind.FOREIGN_FILE, FaultKind.CATALOG_BACK, FaultKind.CATALOG_GONE)


class LakeFaults:
    """The lake faults of one run.

    Attributes:
        happened: the kinds of those that occurred, in order.
        catalog_history: the contents of the catalog so far.
    """

    def __init__(self, world: World, empty_catalog: Callable[[str], bytes]) -> None:
        self._world = world
        self._empty_catalog = empty_catalog
        self._rng = random.Random(f"disasters {world.case.seed}")
        # A requested restore must not change the run before it.
        is_by_chance = FaultKind.CATALOG_BACK in world.injector.random_kinds
        copying = random.Random(f"copies {world.case.seed}")
        self._backup_rng = self._rng if is_by_chance else copying
        self._backups: list[bytes] = []
        self._is_needed = False
        self._recoveries = 0
        self.happened: list[FaultKind] = []
        self.catalog_history = CatalogHistory(world.storage, world.tables)
        self.catalog_history.record(shared_database().raw)

    def inject(self, process: Process, where: str) -> None:
        """Let faults of the lake occur at a process's request.

        Raises Killed if the process dies.
        """
        injector = self._world.injector
        if FaultKind.CATALOG_BACK in injector.kinds and (
            not self._backups
            or (
                len(self._backups) < _BACKUPS_MAX and self._backup_rng.random() < _BACKUP_LIKELIHOOD
            )
        ):
            self._backups.append(shared_database().content())
        weight = _AT_COMMITS if where in _COMMITS else 1.0
        if process.is_recovering and process.fault_occurs(FaultKind.RECOVERY_DIES, where):
            process.die("while it recovers the lake")
        for kind in _STRIKING_KINDS:
            if self.happened.count(kind) < _KIND_MAX and process.fault_occurs(kind, where, weight):
                self._strike(kind, process)
        if not self.happened and process.fault_occurs(FaultKind.RECOVERY_IDLE, where):
            self._start_recovery(process)

    def on_catalog_write(self) -> None:
        """Record the catalog after a transaction."""
        self.catalog_history.record(shared_database().raw)

    def on_death(self, process: Process) -> None:
        """Start another recovery if the process that died was recovering the lake."""
        if process.is_recovering and self._is_needed:
            process.is_recovering = False
            self._start_recovery(None)

    def explains(self, error: TxlakeError) -> bool:
        """Return whether a statement may be refused with this error after the faults so far."""
        text = str(error)
        if not self.happened:
            return False
        if isinstance(error, CorruptTable):
            # A recovery ends transactions, and VACUUM may delete the files of ended ones.
            return "lake.recover" in text or "is in the log but not in the store" in text
        is_gone = "no table" in text or "is not a Delta table" in text
        return FaultKind.CATALOG_GONE in self.happened and ("lake.recover" in text or is_gone)

    def settle(self) -> None:
        """Recover the lake at the end of the run until catalog and logs agree."""
        if self.happened:
            self._world.run_alone(self._recover_until_consistent)

    def _recover_until_consistent(self, process: Process) -> None:
        for _ in range(3):
            process.open()
            recovered = recover(process.session(), ())
            if recovered == _NOTHING:
                return
        raise Violation(f"recovered three times, and the lake is still at odds: {recovered}")

    # What happens

    def _strike(self, kind: FaultKind, process: Process) -> None:
        world = self._world
        world.trace("disaster", kind.name)
        self.happened.append(kind)
        self._is_needed = True
        is_cold = False
        match kind:
            case FaultKind.FOREIGN_FILE:
                self._write_foreign_commit()
            case FaultKind.CATALOG_BACK:
                is_cold = self._rng.random() < 0.3
                copy = self._rng.choice([self._backups[0], *self._backups])
                self._replace(copy, is_other=self._rng.random() < 0.15)
            case _:
                is_cold = self._rng.random() < 0.2
                lake = f"ffffffff-0000-4000-8000-00000000gon{len(self.happened)}"
                self._replace(self._empty_catalog(lake), is_other=True)
        if is_cold:
            world.kill_all()
        self._start_recovery(None if is_cold else process)
        if process.fault_occurs(FaultKind.RECOVERY_TWICE, "recovery"):
            self._start_recovery(None)
        if is_cold:
            process.step("dead", "")

    def _replace(self, content: bytes, *, is_other: bool) -> None:
        database = sqlite3.connect(":memory:")
        database.deserialize(content)
        self.catalog_history.record_replacement(database)
        if is_other:
            shared_database().replace_file(content)
        else:
            shared_database().load(content)

    def _write_foreign_commit(self) -> None:
        """Write a table's next version as another engine does that doesn't know the catalog."""
        world, rng = self._world, self._rng
        name = rng.choice(sorted(world.tables))
        log = open_log(world, world.tables[name][1])
        store = log.store
        try:
            snapshot = log.latest()
        except TxlakeError:
            return  # the log ends with a malformed commit
        version = snapshot.version + 1
        info: dict[str, object] = {
            "operation": "INTRUDE",
            "engineInfo": OTHER_ENGINE,
            "timestamp": int(world.scheduler.now_ms),
            "isBlindAppend": False,
        }
        before_ms = snapshot.in_commit_timestamp_ms
        if is_enabled(snapshot.metadata.configuration) and rng.random() < 0.7:
            info["inCommitTimestamp"] = (before_ms or 0) + 1
        actions: list[Action] = [CommitInfo(info)]
        kind = rng.choice(["nothing", "row", "row", "garbage"])
        if kind == "row":
            actions.append(self._row(store))
        data = b"{nonsense" if kind == "garbage" else encode_actions(actions)
        store.put_if_absent(commit_path(version), data)
        world.trace("outsider", name, version, kind)
        if kind != "garbage" and rng.random() < 0.3:
            try:
                write_checkpoint(log)
            except TxlakeError:
                return  # its commit lacks an in-commit timestamp
            world.trace("outsider", name, "checkpoint")

    def _row(self, store: Store) -> Add:
        file = BytesIO()
        columns = {
            "k": pa.array([9], pa.int32()),
            "v": pa.array([0], pa.int32()),
            "tag": pa.array(["outsider"]),
        }
        pq.write_table(pa.table(columns), file)
        path = f"part-outsider-{self._world.new_id()}.parquet"
        store.put(path, file.getvalue())
        return Add(
            path=path,
            partition_values={},
            size=len(file.getvalue()),
            modification_time=int(self._world.scheduler.now_ms),
            data_change=True,
            stats='{"numRecords":1}',
        )

    # Recoveries

    def _start_recovery(self, living: Process | None) -> None:
        """Start a recovery in `living` or in a new process."""
        world = self._world
        self._recoveries += 1
        process = living
        if process is None or process.is_dead or self._rng.random() < 0.5:
            process = Process(world, len(world.processes))
            world.processes.append(process)
        chosen, name = process, f"{process} recovery {self._recoveries}"
        delay_ms = self._rng.random() * self._rng.choice(_DELAYS_MS)
        world.scheduler.start(name, lambda: self._recover(chosen, delay_ms), group=chosen)

    def _recover(self, process: Process, delay_ms: float) -> None:
        self._world.scheduler.sleep(delay_ms)
        for attempt in range(_RECOVERIES_MAX):
            recovered = self._try_recovery(process, is_first=attempt == 0)
            if recovered == _NOTHING:
                self._is_needed = False
                return
            self._world.scheduler.sleep(self._rng.random() * 100)

    def _try_recovery(self, process: Process, *, is_first: bool) -> Recovered | None:
        """Recover the lake once. Return what was recovered; None for a failed attempt."""
        world = self._world
        before = len(self.catalog_history.epochs)
        try:
            if process.engine is None or not is_first:
                process.open()
            process.is_recovering = True
            session = process.session()
            recovered = recover(session, ())
            session.close()
        except (Unavailable, CorruptTable, OutcomeUnknown, Interrupted, InvalidRequest) as error:
            if isinstance(error, InvalidRequest) and not _is_expected(error):
                raise
            world.trace(process, "can't recover", str(error)[:300])
            return None
        finally:
            process.is_recovering = process.is_dead and process.is_recovering
        world.trace(process, "recovered", recovered)
        changes = (
            recovered.tables,
            recovered.done,
            [one for one in recovered.unknown if _AWAY not in one],
        )
        if not self.happened and (any(changes) or len(self.catalog_history.epochs) > before):
            raise Violation(f"there was nothing to recover, and recovering it did {recovered}")
        return recovered


def _is_expected(error: InvalidRequest) -> bool:
    return "no space" in str(error) or "lake.recover" in str(error)
