"""The soak of maintenance: `python -m tests.soak.maintained --minutes 60`.

Processes write one lake, a row or two at a time, while others maintain it; now and then one of
these is killed. Maintenance must abort no writer, the tables must stay at few files, and nothing
may be lost. Prints what was done; ends with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import txlake
from tests.soak.accounts import ACCOUNTS, audit, make_accounts
from txlake.errors import Conflict
from txlake.session.command import AsRows

# So many small files are packed; more come while that is done.
SMALL_FILES = 20
# Of a table: the median of the second half, and after the last round.
FILES_MEDIAN_MAX, FILES_LEFT_MAX = 150, 2 * SMALL_FILES
PROPERTIES = {
    "txlake.maintenance.minSmallFiles": str(SMALL_FILES),
    "txlake.maintenance.minExpiredFiles": "20",
    "txlake.maintenance.fullVacuumInterval": "interval 2 minutes",
    "delta.deletedFileRetentionDuration": "interval 30 seconds",
    "delta.logRetentionDuration": "interval 1 minute",
}
_KILLED_EACH_S = 30.0
_SAMPLE_S = 1.0
_CLAIM_S_MAX = 120.0


def write(folder: str, seed: int, seconds: float) -> dict[str, Any]:
    """Write until the time is over. Return the counts, the conflicts with what won, and ids."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    conflicts: list[str] = []
    added: list[int] = []
    took_ms: list[float] = []
    end = time.monotonic() + seconds
    number = seed * 10_000_000
    with txlake.connect(folder) as lake:
        while time.monotonic() < end:
            begun = time.perf_counter()
            try:
                if chance.random() < 0.5:
                    new = range(number, number := number + chance.randint(1, 5))
                    listed = ", ".join(f"({one})" for one in new)
                    lake._run_sql(f"INSERT INTO added VALUES {listed}", None, AsRows())
                    added += new
                else:
                    _transfer(lake, chance)
                counts["commits"] += 1
            except Conflict as conflict:
                evidence = conflict.evidence
                won = None if evidence is None else evidence.winning_operation
                conflicts.append(f"{type(conflict).__name__} with {won}")
            took_ms.append(1000 * (time.perf_counter() - begun))
    return {"counts": counts, "conflicts": conflicts, "added": added, "took_ms": took_ms}


def _transfer(lake: txlake.Lake, chance: random.Random) -> None:
    """Move a piece from one account to another, in one transaction."""
    one, other = chance.sample(range(ACCOUNTS), 2)
    with lake.transaction() as transaction:
        for account, change in ((one, -1), (other, 1)):
            update = f"UPDATE accounts SET pieces = pieces + {change} WHERE id = {account}"
            transaction._run_sql(update, None, AsRows())


def maintain(folder: str) -> None:
    """Maintain the lake until the process is killed."""
    with txlake.connect(folder) as lake:
        while True:
            lake.maintain()
            time.sleep(0.5)


def soak(
    folder: Path, seconds: float, *, writers: int = 8, maintainers: int = 2, seed: int = 1
) -> list[str]:
    """Run the processes, print what they did, and return what was wrong."""
    make_accounts(folder, PROPERTIES)
    began = time.monotonic()
    chance = random.Random(seed)
    maintaining = [_process("maintain", folder) for _ in range(maintainers)]
    writing = [
        _process("write", folder, str(seed * 1000 + number), str(seconds))
        for number in range(writers)
    ]
    files: dict[str, list[int]] = {"accounts": [], "added": []}
    kills, next_kill = 0, began + _KILLED_EACH_S
    try:
        while any(process.poll() is None for process in writing):
            if time.monotonic() > next_kill:
                place = chance.randrange(maintainers)
                maintaining[place].kill()
                maintaining[place].wait(60)
                maintaining[place] = _process("maintain", folder)
                kills, next_kill = kills + 1, time.monotonic() + _KILLED_EACH_S
            for table, found in files.items():
                snapshot = txlake.Log(str(folder / table)).snapshot()
                if snapshot.version > 1:  # the writers have begun
                    found.append(snapshot.files().num_rows)
            time.sleep(_SAMPLE_S)
    finally:
        for process in (*writing, *maintaining):
            process.kill()
            process.wait(60)
    told = [json.loads(path.read_text("utf-8")) for path in folder.parent.glob("told-*.json")]
    if len(told) < writers:
        return [f"{writers - len(told)} writers failed"]
    return _judge(folder, told, files, kills, seconds)


def _judge(
    folder: Path,
    told: Sequence[dict[str, Any]],
    files: dict[str, list[int]],
    kills: int,
    seconds: float,
) -> list[str]:
    """Print what was done, and return what was wrong."""
    added = [one for item in told for one in item["added"]]
    faults = audit(folder, added, ())
    conflicts = Counter(text for item in told for text in item["conflicts"])
    by_users = ("UPDATE", "WRITE", "INSERT", "DELETE")
    faults += [
        f"{count} times {text}" for text, count in conflicts.items() if not text.endswith(by_users)
    ]
    for table, found in files.items():
        if (usual := median(found[len(found) // 2 :])) > FILES_MEDIAN_MAX:
            faults.append(f"{table} had {usual:g} files")
    with txlake.connect(str(folder)) as lake:
        end = time.monotonic() + _CLAIM_S_MAX
        while "due" in lake.maintain()["state"].to_pylist() and time.monotonic() < end:
            time.sleep(1)  # a killed maintainer's claim expires
        for table, found in files.items():
            found.append(txlake.Log(str(folder / table)).snapshot().files().num_rows)
            if found[-1] > FILES_LEFT_MAX:
                faults.append(f"a round of maintenance left {found[-1]} files of {table}")
        works = lake.view("txlake.maintenance").to_pylist()
    states = Counter(f"{work['need']} {work['state']}" for work in works)
    faults += [f"{work['need']}: {work['error']}" for work in works if work["state"] == "failed"]
    if not states["optimize done"]:
        faults.append("nothing was packed")
    commits = sum(item["counts"]["commits"] for item in told)
    took = sorted(one for item in told for one in item["took_ms"])
    shown = {table: (median(found), max(found), found[-1]) for table, found in files.items()}
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    sys.stdout.write(
        f"{len(told)} writers, {seconds:g} s: {commits} commits, p50 {p50:.0f} ms, p99 {p99:.0f} "
        f"ms; conflicts {dict(conflicts)}; {kills} kills of maintainers; files, median, most and "
        f"at last: {shown}; newest works: {dict(states)}; {len(faults)} faults\n"
    )
    return faults


def _process(*arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.soak.maintained", "--as", *map(str, arguments)]
    )


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--as"]:
        _, role, folder, *rest = arguments
        if role == "maintain":
            maintain(folder)
        told = json.dumps(write(folder, int(rest[0]), float(rest[1])))
        (Path(folder).parent / f"told-{rest[0]}.json").write_text(told, "utf-8")
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--maintainers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="txlake-soak-") as scratch:
        faults = soak(
            Path(scratch) / "lake",
            60 * options.minutes,
            writers=options.writers,
            maintainers=options.maintainers,
            seed=options.seed,
        )
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
