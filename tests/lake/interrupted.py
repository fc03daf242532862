"""A lake on Spark whose user is interrupted at random instants.

`python -m tests.lake.interrupted --count 200` counts the interrupts. After each one another
connection to the lake has to get the lock on every table; in the end each row stands in both tables
or in none, as its transaction says.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import txlake
from tests.spark_session import spark_session
from txlake.errors import Unavailable

TABLES = ("a", "b")
_LONGEST_S = 1.5
_A_MOMENT_S = 0.001
_TIMEOUT_MS = 20_000
_TRIES = 5
_IS_LOST = "Answer from Java side is empty"
"""What py4j says now and then of its next connection after an interrupt, whoever uses it."""

_PATIENCE_S = 90.0
"""After so long without an end of one attempt the program says where it hangs, and ends."""


@contextmanager
def _interrupts(counts: Counter[str]) -> Iterator[None]:
    def interrupt(_: int, frame: FrameType | None) -> None:
        if _is_collecting(frame):
            signal.setitimer(signal.ITIMER_REAL, _A_MOMENT_S)
            return
        counts["interrupts"] += 1
        raise KeyboardInterrupt

    kept = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)


def _is_collecting(frame: FrameType | None) -> bool:
    """Whether py4j tells the JVM of what was collected here: Python ignores what that raises."""
    while frame is not None:
        if frame.f_code.co_name.startswith("_garbage_collect"):
            return True
        frame = frame.f_back
    return False


def run(lake: txlake.Lake, other: txlake.LakeSession, count: int, seed: int) -> dict[str, int]:
    """What happened, by name. Raises AssertionError, or what isn't a KeyboardInterrupt."""
    dice = random.Random(seed)
    counts: Counter[str] = Counter()
    for table in TABLES:
        lake.sql(f"CREATE TABLE {table} (n INT)")
    other.sql(f"SET LOCK_TIMEOUT {_TIMEOUT_MS}")
    told: dict[int, str] = {}
    rows = 0
    with _interrupts(counts):
        while counts["interrupts"] < count:
            before = counts["interrupts"]
            faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)
            signal.setitimer(signal.ITIMER_REAL, 0.001 + dice.random() ** 2 * _LONGEST_S)
            told[rows] = _attempt(lake, rows, dice.choice((_together, _alone)), counts)
            for table in TABLES if counts["interrupts"] > before else ():
                _patiently(other, f"ALTER TABLE {table} SET TBLPROPERTIES ('seen' = '{rows}')")
            rows += 1
    faulthandler.cancel_dump_traceback_later()
    _judge(lake, told, counts)
    assert other.transactions().collect() == [], "transactions were left open"
    return dict(sorted(counts.items()))


def _patiently(session: txlake.LakeSession, sql: str) -> None:
    for attempt in range(_TRIES):
        try:
            session.sql(sql)
            return
        except Unavailable as error:
            if _IS_LOST not in str(error) or attempt == _TRIES - 1:
                raise


Work = Callable[[txlake.Lake, int, list[txlake.Transaction]], None]


def _attempt(lake: txlake.Lake, row: int, work: Work, counts: Counter[str]) -> str:
    """What became of it, as far as that is said."""
    begun: list[txlake.Transaction] = []
    before = counts["interrupts"]
    try:
        try:
            work(lake, row, begun)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (KeyboardInterrupt, Unavailable) as error:
        is_interrupt = isinstance(error, KeyboardInterrupt)
        if is_interrupt != (counts["interrupts"] > before) or not (
            is_interrupt or _IS_LOST in str(error)
        ):
            raise
        counts["connections lost"] += not is_interrupt
        for tx in begun:
            tx.rollback()
            return tx.state
        return "not said"
    assert counts["interrupts"] == before, "an interrupt was swallowed"
    return "committed"


def _together(lake: txlake.Lake, row: int, begun: list[txlake.Transaction]) -> None:
    tx = lake.begin()
    begun.append(tx)
    for table in TABLES:
        tx.sql(f"INSERT INTO {table} VALUES ({row})")
    tx.commit()


def _alone(lake: txlake.Lake, row: int, _: list[txlake.Transaction]) -> None:
    with lake.transaction() as tx:
        source = f"(SELECT {row} AS n) s"
        tx.sql(f"MERGE INTO a USING {source} ON a.n = s.n WHEN NOT MATCHED THEN INSERT *")
        tx.sql(f"INSERT INTO b SELECT n FROM a WHERE n = {row}")


def _judge(lake: txlake.Lake, told: dict[int, str], counts: Counter[str]) -> None:
    found = [
        Counter(row["n"] for row in lake.sql(f"SELECT n FROM {table}").collect())
        for table in TABLES
    ]
    assert found[0] == found[1], "a transaction was committed in part"
    for row, said in told.items():
        stands = found[0][row]
        assert stands in (0, 1), f"row {row} stands {stands} times"
        assert stands or said != "committed", f"row {row} is lost"
        assert not stands or said not in ("rolled back", "failed"), f"row {row} stands"
        counts[f"{said}, {'stands' if stands else 'gone'}"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lake.interrupted")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    spark = spark_session()
    with (
        tempfile.TemporaryDirectory(prefix="txlake-interrupted-") as place,
        txlake.connect(f"{place}/lake", spark=spark) as lake,
        txlake.connect(f"{place}/lake", spark=spark) as other,
    ):
        print(json.dumps(run(lake, other, given.count, given.seed)))  # noqa: T201


if __name__ == "__main__":
    main()
