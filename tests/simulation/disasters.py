"""What befalls a lake from outside: other writers' files, catalogs from backups, lost catalogs.

Owns when each happens, and who brings the lake's catalog and logs together again. What a catalog
said before is the `chronicle`'s.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.chronicle import OUTSIDER, Chronicle
from tests.simulation.database import disk
from tests.simulation.history import Doubt
from tests.simulation.luck import Misfortune
from tests.simulation.outsider import log_of
from tests.simulation.process import Interrupted, Process
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.in_commit_time import is_enabled
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.ports import Store
from txlake.protocol.actions import Action, Add, CommitInfo, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.session.membership.recovery import Recovered, recover

if TYPE_CHECKING:
    from tests.simulation.world import World

_COPIES_MAX = 4
_COPY_EVERY = 0.02
_EACH_MAX = 2
_RECOVERIES_MAX = 8
_DELAYS_MS = (1, 50, 500, 6_000)
# Between a ratification and its publication.
_COMMITS = {"write done", "create"}
_AT_COMMITS = 8.0
_NOTHING = Recovered((), (), ())
_AWAY = "the store is away"
_TROUBLES = (Misfortune.FOREIGN_FILE, Misfortune.CATALOG_BACK, Misfortune.CATALOG_GONE)


class Disasters:
    """Those of one run.

    Attributes:
        happened: which, in their order.
        counts: how often what was done about them.
    """

    def __init__(self, world: World, empty_catalog: Callable[[str], bytes]) -> None:
        self._world = world
        self._empty_catalog = empty_catalog
        self._chance = random.Random(f"disasters {world.case.seed}")
        # Asking for a copy to be put back changes nothing before that.
        is_by_chance = Misfortune.CATALOG_BACK in world.luck.by_chance
        copying = random.Random(f"copies {world.case.seed}")
        self._copying = self._chance if is_by_chance else copying
        self._copies: list[bytes] = []
        self._is_needed = False
        self._recoveries = 0
        self.happened: list[Misfortune] = []
        self.chronicle = Chronicle(world.storage, world.tables)
        self.chronicle.note(disk().raw)

    def befall(self, process: Process, where: str) -> None:
        """A process makes a request: something may happen just now. Raises Killed."""
        luck = self._world.luck
        if Misfortune.CATALOG_BACK in luck.kinds and (
            not self._copies
            or (len(self._copies) < _COPIES_MAX and self._copying.random() < _COPY_EVERY)
        ):
            self._copies.append(disk().content())
        weight = _AT_COMMITS if where in _COMMITS else 1.0
        if process.is_recovering and process.hits(Misfortune.RECOVERY_DIES, where):
            process.die("while it recovers the lake")
        for kind in _TROUBLES:
            if self.happened.count(kind) < _EACH_MAX and process.hits(kind, where, weight):
                self._strike(kind, process)
        if not self.happened and process.hits(Misfortune.RECOVERY_IDLE, where):
            self._start_recovery(process)

    def noted(self) -> None:
        """The catalog was written."""
        self.chronicle.note(disk().raw)

    def died(self, process: Process) -> None:
        """A process is gone; when it was recovering the lake, another one does."""
        if process.is_recovering and self._is_needed:
            process.is_recovering = False
            self._start_recovery(None)

    def explains(self, error: TxlakeError) -> bool:
        """Whether a statement may be refused in this way, after what happened."""
        text = str(error)
        if not self.happened:
            return False
        if isinstance(error, CorruptTable):
            # A recovery ends transactions: VACUUM doesn't know their files any more.
            return "lake.recover" in text or "is in the log but not in the store" in text
        is_gone = "no table" in text or "is not a Delta table" in text
        return Misfortune.CATALOG_GONE in self.happened and ("lake.recover" in text or is_gone)

    def settle(self) -> None:
        """At the end somebody recovers the lake until nothing is at odds."""
        if self.happened:
            self._world.alone_in(self._recovered_for_good)

    def _recovered_for_good(self, process: Process) -> None:
        for _ in range(3):
            process.open()
            found = recover(process.session(), ())
            if found == _NOTHING:
                return
        raise Doubt(f"recovered three times, and the lake is still at odds: {found}")

    # What happens

    def _strike(self, kind: Misfortune, process: Process) -> None:
        world = self._world
        world.note("disaster", kind.name)
        self.happened.append(kind)
        self._is_needed = True
        is_cold = False
        match kind:
            case Misfortune.FOREIGN_FILE:
                self._intrude()
            case Misfortune.CATALOG_BACK:
                is_cold = self._chance.random() < 0.3
                copy = self._chance.choice([self._copies[0], *self._copies])
                self._replace(copy, is_other=self._chance.random() < 0.15)
            case _:
                is_cold = self._chance.random() < 0.2
                lake = f"ffffffff-0000-4000-8000-00000000gon{len(self.happened)}"
                self._replace(self._empty_catalog(lake), is_other=True)
        if is_cold:
            world.kill_all()
        self._start_recovery(None if is_cold else process)
        if process.hits(Misfortune.RECOVERY_TWICE, "recovery"):
            self._start_recovery(None)
        if is_cold:
            process.step("dead", "")

    def _replace(self, content: bytes, *, is_other: bool) -> None:
        found = sqlite3.connect(":memory:")
        found.deserialize(content)
        self.chronicle.replaced(found)
        if is_other:
            disk().exchange(content)
        else:
            disk().load(content)

    def _intrude(self) -> None:
        """Another writer, that knows no catalogs, makes a table's next version."""
        world, chance = self._world, self._chance
        name = chance.choice(sorted(world.tables))
        log = log_of(world, world.tables[name][1])
        store = log.store
        try:
            snapshot = log.latest()
        except TxlakeError:
            return  # it can't read what another one has left
        version = snapshot.version + 1
        info: dict[str, object] = {
            "operation": "INTRUDE",
            "engineInfo": OUTSIDER,
            "timestamp": int(world.scheduler.now_ms),
            "isBlindAppend": False,
        }
        before_ms = snapshot.in_commit_timestamp_ms
        if is_enabled(snapshot.metadata.configuration) and chance.random() < 0.7:
            info["inCommitTimestamp"] = (before_ms or 0) + 1
        actions: list[Action] = [CommitInfo(info)]
        kind = chance.choice(["nothing", "row", "row", "garbage"])
        if kind == "row":
            actions.append(self._row(store))
        data = b"{nonsense" if kind == "garbage" else encode_actions(actions)
        store.put_if_absent(commit_path(version), data)
        world.note("outsider", name, version, kind)
        if kind != "garbage" and chance.random() < 0.3:
            try:
                write_checkpoint(log)
            except TxlakeError:
                return  # its commit has no time, where commits need one
            world.note("outsider", name, "checkpoint")

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

    # What is done about it

    def _start_recovery(self, living: Process | None) -> None:
        """Somebody recovers the lake: a process that is there, or one of its own."""
        world = self._world
        self._recoveries += 1
        process = living
        if process is None or process.is_dead or self._chance.random() < 0.5:
            process = Process(world, len(world.processes))
            world.processes.append(process)
        chosen, name = process, f"{process} recovery {self._recoveries}"
        delay_ms = self._chance.random() * self._chance.choice(_DELAYS_MS)
        world.scheduler.start(name, lambda: self._recover(chosen, delay_ms), group=chosen)

    def _recover(self, process: Process, delay_ms: float) -> None:
        self._world.scheduler.sleep(delay_ms)
        for attempt in range(_RECOVERIES_MAX):
            found = self._recovered_once(process, is_first=attempt == 0)
            if found == _NOTHING:
                self._is_needed = False
                return
            self._world.scheduler.sleep(self._chance.random() * 100)

    def _recovered_once(self, process: Process, *, is_first: bool) -> Recovered | None:
        """What one attempt found; None where it failed."""
        world = self._world
        before = len(self.chronicle.eras)
        try:
            if process.engine is None or not is_first:
                process.open()
            process.is_recovering = True
            session = process.session()
            found = recover(session, ())
            session.close()
        except (Unavailable, CorruptTable, OutcomeUnknown, Interrupted, InvalidRequest) as error:
            if isinstance(error, InvalidRequest) and not _is_expected(error):
                raise
            world.note(process, "can't recover", str(error)[:300])
            return None
        finally:
            process.is_recovering = process.is_dead and process.is_recovering
        world.note(process, "recovered", found)
        did = (found.tables, found.done, [one for one in found.unknown if _AWAY not in one])
        if not self.happened and (any(did) or len(self.chronicle.eras) > before):
            raise Doubt(f"there was nothing to recover, and recovering it did {found}")
        return found


def _is_expected(error: InvalidRequest) -> bool:
    return "no space" in str(error) or "lake.recover" in str(error)
