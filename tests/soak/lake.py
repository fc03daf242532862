"""Rounds of the soak on a lake whose tables several processes write at once.

Owns a round from the lake's creation to its audit. Transfers between two tables keep a sum that any
reader may check at any time; the rest is audited by `shared_tables.audit`. Processes are killed in
the middle, requests fail, and the disk is sometimes full.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID

from tests.shared_tables.audit import Done, audit, commits, latest
from tests.shared_tables.engines import by_place
from tests.shared_tables.operations import COLUMNS, Chooser, Operation, first_rows
from tests.shared_tables.workers import Died, Refused, Worker, start
from tests.soak.report import Counts
from txlake.protocol.deletion_vectors import z85_decode

MODULE = "tests.soak.worker"
DISK_MIB = 192
DISK_FULL_S = 1.0
BANKS = ("bank_1", "bank_2")
# Tables whose old versions lose files by VACUUM; only complete versions are compared.
VACUUMED = (*BANKS, "plain")
CHANGED = ("vectors", "plain", "path")
KINDS = ("append", "append", "update", "update", "delete", "merge", "overwrite", "optimize")
MORE_KINDS = {
    "vectors": (*KINDS, "reorg", "truncate", "restore"),
    "plain": (*KINDS, "add_column"),
    "path": (*KINDS, "restore"),
}
_SUMS = [f"SELECT CAST(SUM(n) AS BIGINT) AS s FROM {table}" for table in BANKS]
# The most commits that may be ratified and unpublished when a process reads the newest version.
_UNPUBLISHED_MAX = 8


@dataclass(frozen=True, slots=True)
class RoundSize:
    """The size of a round: processes, transactions of each, and the rates of kills and faults."""

    processes: int = 3
    transactions: int = 12
    kill_one_in: int = 10
    fault_one_in: int = 250


@dataclass(frozen=True, slots=True)
class TransactionWork:
    """One transaction; the operations on its tables share a marker."""

    marker: str
    parts: tuple[tuple[str, Operation], ...]
    isolation: str | None


class LakeRounds:
    """The processes of all rounds, and their counts."""

    def __init__(self, scratch: Path, size: RoundSize, counts: Counts) -> None:
        self._scratch = scratch
        self._size = size
        self._counts = counts
        self._starts = 0
        self._workers = [self._start_worker(number) for number in range(size.processes)]

    def end(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.end()

    def round(self, seed: int, readers: Sequence[Worker]) -> str:
        """Run one lake from its creation to its audit by txlake and `readers`; return a line
        about it.
        """
        with _disk(self._scratch / f"lake-{seed}") as (place, disk):
            self._open_all(place)
            folders = {name: place / name for name in (*BANKS, "vectors", "plain")}
            folders["path"] = place.parent / "path"
            done: dict[str, list[Done]] = {name: [] for name in folders}
            for one in _create_statements(folders):
                self._ask(0, statements=one)
            for name, folder in folders.items():
                work = TransactionWork("first", ((name, _first_operation(name)),), None)
                for table, operation in self._commit(0, work, folders, is_killed=False):
                    done[table].append(operation)
                assert latest(folder) == 1
            ended = threading.Event()
            filling = threading.Thread(target=self._fill_disk, args=(seed, disk, ended))
            filling.start()
            with ThreadPoolExecutor(len(self._workers)) as pool:
                running = [
                    pool.submit(self._run_process, seed, number, folders)
                    for number in range(len(self._workers))
                ]
                for future in running:
                    for table, operation in future.result(1800):
                        done[table].append(operation)
            ended.set()
            filling.join(1800)
            faults = self._audit(seed, place, folders, done, readers)
            self._counts.faults += [f"lake, seed {seed}: {fault}" for fault in faults]
            if faults:
                self._counts.keep(place.parent, f"lake-{seed}")
        return f"seed {seed}  lake: {len(faults)} faults"

    def _start_worker(self, number: int) -> Worker:
        self._starts += 1
        return start(f"lake-{number}", self._scratch / f"worker-{number}", (), MODULE)

    def _open_all(self, place: Path, *, fault_one_in: int = 0) -> None:
        for number in range(len(self._workers)):
            self._open(number, place, fault_one_in)

    def _open(self, number: int, place: Path, fault_one_in: int) -> None:
        reply = self._workers[number].ask(ask="open", warehouse=str(place), one_in=fault_one_in)
        self._counts.requests.update(reply["injected"])

    def _ask(self, number: int, *, statements: Sequence[str]) -> list[list[str]]:
        reply = self._workers[number].ask(ask="sql", statements=list(statements))
        return list(reply["rows"])

    def _run_process(
        self, seed: int, number: int, folders: dict[str, Path]
    ) -> list[tuple[str, Done]]:
        """Run one process's transactions; return by table what each did and its outcome."""
        rng = random.Random(f"{seed}/{number}")
        choosers = {
            name: Chooser(f"{seed}/{name}", f"p{number}-{name}", number, MORE_KINDS[name])
            for name in CHANGED
        }
        place = folders["plain"].parent
        done: list[tuple[str, Done]] = []
        self._open(number, place, self._size.fault_one_in)
        for turn in range(self._size.transactions):
            is_killed = rng.randrange(self._size.kill_one_in) == 0
            work = _random_work(rng, choosers, f"p{number}-{turn}", folders)
            with self._kill_during(number, rng, is_killed=is_killed):
                if isinstance(work, TransactionWork):
                    done += self._commit(number, work, folders, is_killed=is_killed)
                else:
                    self._run_statements(number, work)
            if is_killed:
                self._workers[number].end()
                self._workers[number] = self._start_worker(number)
                self._open(number, place, self._size.fault_one_in)
        self._open(number, place, 0)
        return done

    @contextmanager
    def _kill_during(self, number: int, rng: random.Random, *, is_killed: bool) -> Iterator[None]:
        """Kill the process at a random moment of this block, if `is_killed`."""
        if not is_killed:
            yield
            return
        worker = self._workers[number]
        timer = threading.Timer(rng.random() * 3, worker.kill)
        timer.start()
        try:
            yield
        finally:
            timer.join(1800)
            self._counts.kills["lake"] += 1

    def _commit(
        self, number: int, work: TransactionWork, folders: dict[str, Path], *, is_killed: bool
    ) -> list[tuple[str, Done]]:
        first = {table: latest(folders[table]) for table, _ in work.parts}
        try:
            reply = self._workers[number].ask(
                ask="commit",
                marker=work.marker,
                isolation=work.isolation,
                parts=[
                    (by_place(str(folders[table])) if table == "path" else table, asdict(one))
                    for table, one in work.parts
                ],
            )
            outcome = str(reply["outcome"])
            self._counts.conflicts.update(reply["conflicts"])
        except Died:
            outcome = "unknown"
            if not is_killed:
                self._counts.faults.append(f"{work}: its process died")
        except Refused as refusal:
            outcome = "given up"
            self._counts.faults.append(f"{work}: {refusal}")
        self._counts.outcomes[outcome] += 1
        last = {table: latest(folders[table]) + _UNPUBLISHED_MAX for table in first}
        return [
            (table, Done(replace(one, marker=work.marker), first[table], last[table], outcome))
            for table, one in work.parts
        ]

    def _run_statements(self, number: int, statements: Sequence[str]) -> None:
        """Run statements that no table's audit covers; check the sum of both banks."""
        self._counts.statements[statements[0].split()[0]] += 1
        try:
            rows = self._ask(number, statements=statements)
        except Died:
            return
        except Refused as refusal:
            if not refusal.conflict:
                self._counts.faults.append(f"{statements}: {refusal}")
            return
        if list(statements) == _SUMS:
            total = sum(json.loads(one)["s"] for (one,) in rows)
            if total != 0:
                self._counts.faults.append(f"a reader saw the sum {total} of both banks")

    def _fill_disk(self, seed: int, disk: Path | None, ended: threading.Event) -> None:
        """Fill the disk for a while, again and again."""
        rng = random.Random(f"{seed}/disk")
        while disk is not None and not ended.wait(4 + 8 * rng.random()):
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            filler = disk / "filler"
            try:
                with filler.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, max(1, free - 4096 * rng.randrange(4)))
            except OSError:
                pass  # the disk is already full
            ended.wait(DISK_FULL_S)
            filler.unlink()
            self._counts.requests["the disk itself was full"] += 1

    def _audit(
        self,
        seed: int,
        place: Path,
        folders: dict[str, Path],
        done: dict[str, list[Done]],
        readers: Sequence[Worker],
    ) -> list[str]:
        self._open_all(place)  # publishes ratified commits
        faults: list[str] = []
        resolved = resolve_unknown(done, folders)
        for name, folder in folders.items():
            verdict = audit(
                folder,
                resolved[name],
                [self._workers[0], *readers],
                read=complete_versions(folder) if name in VACUUMED else None,
            )
            self._counts.add(verdict)
            faults += [f"{name}: {fault}" for fault in verdict.faults]
        sums = [json.loads(one)["s"] for (one,) in self._ask(1, statements=_SUMS)]
        if sum(sums) != 0:
            faults.append(f"the banks have {sums}")
        for name in folders:
            table = by_place(str(folders[name])) if name == "path" else name
            self._ask(0, statements=[f"VACUUM {table} RETAIN 0 HOURS"])
            newest = [latest(folders[name])]
            read = [worker.read(folders[name], newest) for worker in (self._workers[1], *readers)]
            if any(one != read[0] for one in read):
                faults.append(f"{name}: after VACUUM the readers differ")
        return faults


def _create_statements(folders: dict[str, Path]) -> list[list[str]]:
    columns = "(id BIGINT, k BIGINT, n BIGINT, s STRING)"
    interval = "'delta.checkpointInterval' = '5'"
    vectors, none = (f"'delta.enableDeletionVectors' = '{one}'" for one in ("true", "false"))
    return [
        [f"CREATE TABLE bank_1 {columns} TBLPROPERTIES ({interval}, {vectors})"],
        [f"CREATE TABLE bank_2 {columns} TBLPROPERTIES ({interval}, {none})"],
        [f"CREATE TABLE vectors {columns} TBLPROPERTIES ({interval}, {vectors})"],
        [f"CREATE TABLE plain {columns} PARTITIONED BY (k) TBLPROPERTIES ({interval}, {none})"],
        [f"CREATE TABLE {by_place(str(folders['path']))} {columns} TBLPROPERTIES ({interval})"],
    ]


def _first_operation(name: str) -> Operation:
    return replace(first_rows(COLUMNS), marker=f"first {name}")


def _random_work(
    rng: random.Random, choosers: dict[str, Chooser], marker: str, folders: dict[str, Path]
) -> TransactionWork | list[str]:
    """Return a random transaction, or statements that are transactions of their own."""
    isolation = rng.choice([None, None, "serializable"])
    match rng.randrange(12):
        case 0 | 1 | 2:  # a transfer
            amount = rng.randint(1, 9)
            parts = tuple(
                (table, _transfer(marker, rng.randrange(24), by))
                for table, by in zip(BANKS, (-amount, amount), strict=True)
            )
            return TransactionWork(marker, parts, isolation)
        case 3:
            return TransactionWork(
                marker, ((rng.choice(BANKS), Operation(kind="optimize", marker=marker)),), None
            )
        case 4 | 5:  # of two tables
            parts = tuple((name, choosers[name].operation()) for name in ("vectors", "plain"))
            return TransactionWork(
                marker, tuple(_with_restore_target(part, folders) for part in parts), isolation
            )
        case 6 | 7 | 8:
            name = rng.choice(CHANGED)
            return TransactionWork(
                marker,
                (_with_restore_target((name, choosers[name].operation()), folders),),
                isolation,
            )
        case 9:
            return [f"VACUUM {rng.choice(VACUUMED)} RETAIN 0 HOURS"]
        case 10:
            return _SUMS
        case _:
            name = f"made_{marker.replace('-', '_')}"
            return rng.choice(
                [
                    [f"CREATE TABLE {name} AS SELECT * FROM plain"],
                    [f"CREATE TABLE {name} CLONE vectors"],
                    ["CREATE OR REPLACE TABLE made AS SELECT id, n FROM vectors"],
                    ["DROP TABLE IF EXISTS made"],
                    ["SELECT COUNT(*) AS c FROM vectors v JOIN plain p ON v.id = p.id"],
                ]
            )


def _transfer(marker: str, row: int, by: int) -> Operation:
    return Operation(kind="update", marker=marker, column="id", low=row, high=row + 1, by=by)


def _with_restore_target(
    part: tuple[str, Operation], folders: dict[str, Path]
) -> tuple[str, Operation]:
    """Return the operation; a restore gets the version two before the newest."""
    name, operation = part
    if operation.kind != "restore":
        return part
    return name, replace(operation, low=max(1, latest(folders[name]) - 2))


def resolve_unknown(done: dict[str, list[Done]], folders: dict[str, Path]) -> dict[str, list[Done]]:
    """Return the operations, where those with an unknown outcome count as committed if any table of
    their
    transaction has its marker.
    """
    markers = {
        str(action["commitInfo"].get("userMetadata"))
        for folder in folders.values()
        for actions in commits(folder)
        for action in actions
        if "commitInfo" in action
    }
    return {
        name: [
            replace(one, outcome="committed")
            if one.outcome == "unknown" and one.operation.marker in markers
            else one
            for one in operations
        ]
        for name, operations in done.items()
    }


def complete_versions(folder: Path) -> list[int]:
    """Return the versions whose files all exist."""
    active: dict[str, str | None] = {}
    versions = []
    for version, actions in enumerate(commits(folder)):
        for action in actions:
            if "remove" in action:
                active.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                vector = action["add"].get("deletionVector") or {}
                inline = vector.get("storageType") == "i"
                stored = None if inline else vector.get("pathOrInlineDv")
                active[action["add"]["path"]] = stored
        names = {path.name for path in folder.rglob("*")}
        if all(
            (folder / unquote(path)).exists() and (vector is None or _has_vector(names, vector))
            for path, vector in active.items()
        ):
            versions.append(version)
    return versions


def _has_vector(names: set[str], stored: str) -> bool:
    """Return whether the file of a deletion vector exists.

    `stored` is a folder's name and a UUID in Base85, which takes the last 20 characters.
    """
    return f"deletion_vector_{UUID(bytes=z85_decode(stored[-20:]))}.bin" in names


@contextmanager
def _disk(place: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield a warehouse on a small disk of its own, if this process may mount one."""
    place.mkdir(parents=True)
    ran = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    is_mounted = ran.returncode == 0
    try:
        yield place / "warehouse", place if is_mounted else None
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)
