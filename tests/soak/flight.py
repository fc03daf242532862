"""The soak of Flight SQL: `python -m tests.soak.flight --minutes 10 --clients 64`.

Clients of ADBC, a thread each, work on one server: they transfer pieces between accounts in
transactions, add rows, ingest, and read. Some vanish in the middle. At the end the accounts have
their sum, each acknowledged row is there once, and the server's memory has not grown. Ends with 1
if something is wrong.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa

from tests.server.process import ServerProcess
from tests.soak.accounts import ACCOUNTS, PIECES, audit, make_accounts

# Of the server's resident memory, from the first quarter's median to the last one's.
GROWTH_MAX = 1.25
_SAMPLE_S = 1.0


class _Vanished(Exception):
    """The client is gone in the middle of its transaction."""


class Client(threading.Thread):
    """One client: does one thing after the other until it is told to stop."""

    def __init__(self, address: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"client {seed}", daemon=True)
        self._address, self._random, self._stopped = address, random.Random(seed), stop
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.added: set[int] = set()
        self.unknown: set[int] = set()
        self.faults: list[str] = []
        self.took_ms: list[float] = []
        self._next = seed * 1_000_000

    def run(self) -> None:
        """Work, on a new connection after each error."""
        while not self._stopped.is_set():
            try:
                self._session()
            except _Vanished:
                self.counts["vanished"] += 1
            except flightsql.Error as error:
                self._note(error)
            except Exception as error:
                self.faults.append(repr(error))
                return

    def _session(self) -> None:
        """Work on one connection, which now and then is dropped in the middle."""
        is_auto = self._random.random() < 0.5
        con = flightsql.connect(self._address, autocommit=is_auto)
        try:
            for _ in range(self._random.randint(1, 12)):
                if self._stopped.is_set():
                    return
                work = self._random.choice((self._read, self._add, self._transfer, self._one_row))
                begun = time.perf_counter()
                with con.cursor() as cursor:
                    work(con, cursor, is_auto)
                self.took_ms.append(1000 * (time.perf_counter() - begun))
                self.counts[work.__name__.strip("_")] += 1
        finally:
            con.close()  # with a transaction that is open: its client has vanished

    def _read(self, con: Any, cursor: Any, is_auto: bool) -> None:
        """All accounts have their sum at any instant."""
        cursor.execute("SELECT pieces FROM accounts")
        table = cursor.fetch_arrow_table()
        total = sum(table.column(0).to_pylist())
        if total != ACCOUNTS * PIECES:
            self.faults.append(f"the sum is {total}")
        if not is_auto:
            con.rollback()

    def _one_row(self, con: Any, cursor: Any, is_auto: bool) -> None:
        cursor.execute("SELECT pieces FROM accounts WHERE id = ?", [self._account()])
        if len(cursor.fetchall()) != 1:
            self.faults.append("an account has no row")
        if not is_auto:
            con.rollback()

    def _add(self, con: Any, cursor: Any, is_auto: bool) -> None:
        """Add rows: each acknowledged one is there at the end, once."""
        new = set(range(self._next, self._next + self._random.randint(1, 20)))
        self._next += 100
        self.unknown |= new
        if is_auto and self._random.random() < 0.5:
            cursor.adbc_ingest("added", pa.table({"id": sorted(new)}), mode="append")
        else:
            cursor.executemany("INSERT INTO added VALUES (?)", [(one,) for one in sorted(new)])
            if not is_auto:
                con.commit()
        self.unknown -= new
        self.added |= new

    def _transfer(self, con: Any, cursor: Any, is_auto: bool) -> None:
        """Move a piece from one account to another; an autocommitted MERGE does it at once."""
        one, other = self._account(), self._account()
        if is_auto or one == other:
            return
        cursor.execute("UPDATE accounts SET pieces = pieces - 1 WHERE id = ?", [one])
        if self._random.random() < 0.1:
            raise _Vanished
        cursor.execute("UPDATE accounts SET pieces = pieces + 1 WHERE id = ?", [other])
        con.commit()

    def _account(self) -> int:
        return self._random.randrange(ACCOUNTS)

    def _note(self, error: Exception) -> None:
        """Count an expected error: a conflict, a busy server; any other is a fault."""
        text = str(error)
        for name in ("Aborted", "Unavailable", "ResourceExhausted"):
            if name in text:
                self.counts[name] += 1
                return
        self.faults.append(text[:500])


def soak(folder: Path, seconds: float, clients: int, seed: int = 1) -> list[str]:
    """Run the clients, print what they did, and return what was wrong."""
    # Of few files, as tables should be that many clients change a row at a time.
    make_accounts(folder, {"delta.autoOptimize.autoCompact": "true"})
    stop = threading.Event()
    memory: list[int] = []
    with ServerProcess(folder, "--flight-port", "0") as server:
        made = [Client(server.flight, seed * 1000 + n, stop) for n in range(clients)]
        for client in made:
            client.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(_SAMPLE_S)
            memory.append(_resident_bytes(server.pid))
        stop.set()
        for client in made:
            client.join(120)
        faults = [fault for client in made for fault in client.faults]
        faults += [f"{client.name} hangs" for client in made if client.is_alive()]
    counts = sum((client.counts for client in made), Counter[str]())
    took = sorted(one for client in made for one in client.took_ms)
    added = {one for client in made for one in client.added}
    faults += audit(folder, added, {one for client in made for one in client.unknown})
    quarter = max(1, len(memory) // 4)
    first, last = (
        sorted(part)[len(part) // 2] for part in (memory[quarter : 2 * quarter], memory[-quarter:])
    )
    if last > GROWTH_MAX * first:
        faults.append(f"the server grew from {first >> 20} to {last >> 20} MiB")
    sys.stdout.write(
        f"{clients} clients, {seconds:g} s: {dict(counts)}; p50 {took[len(took) // 2]:.0f} ms, p99 "
        f"{took[len(took) * 99 // 100]:.0f} ms; memory {first >> 20} to {last >> 20} MiB, "
        f"{len(faults)} faults\n"
    )
    return faults


def _resident_bytes(pid: int) -> int:
    """The memory of a process, as Linux counts it."""
    pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    return int(pages) * resource.getpagesize()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="txlake-soak-") as scratch:
        faults = soak(Path(scratch) / "lake", 60 * options.minutes, options.clients, options.seed)
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
