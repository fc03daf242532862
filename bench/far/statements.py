"""The statements, the engines that are measured, and what txlake is to reach."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.far.measuring import Measured, Race
from txlake.settings import Settings


@dataclass(frozen=True, slots=True)
class Target:
    """What txlake is to reach for a statement; None is no limit.

    Attributes:
        round_trips: at most so many, one after the other.
        requests: at most so many before the answer.
        ratio: at most this part of the time of the engine `beside`.
        beside: the column of that engine.
        commits: at least so many commits in the time of one request.
        entries: at least so many entries of the catalog's log in the time of one request.
        share: the least and the largest number of commits of a process, divided by the mean.
        wait: the 99th percentile of a commit's time, at most so many times that of a request.
    """

    round_trips: int | None = None
    requests: int | None = None
    ratio: float | None = None
    beside: str = "delta-rs"
    commits: float | None = None
    entries: float | None = None
    share: tuple[float, float] | None = None
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement; its title names sizes in braces, as in `Sizes`."""

    key: str
    title: str
    target: Target = dataclasses.field(default_factory=Target)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of an engine.

    Attributes:
        engine: its module in `bench.far.engines`.
        variant: which catalog, settings or client it uses.
        statements: the keys of those that it measures.
    """

    engine: str
    variant: str
    statements: Sequence[str]


@dataclass(frozen=True, slots=True)
class Column:
    """An engine in one configuration, measured by some processes one after the other.

    Attributes:
        stores: the kinds of what is far away that it is measured with.
    """

    key: str
    title: str
    processes: Sequence[Process]
    stores: Sequence[str] = ("s3", "azurite")

    @property
    def is_txlake(self) -> bool:
        """Whether the targets are this column's."""
        return self.key.startswith("txlake")

    def target(self, key: str) -> Target:
        """Return what is to be reached of a statement."""
        if not self.is_txlake:
            return Target()
        return _BESIDE_DUCKLAKE if DATABASE in self.stores else BY_KEY[key].target


DATABASE = "postgresql"
"""Of what is far away: the catalog's database, and no store."""
_FAIR = (0.6, 1.4)
_BESIDE_DUCKLAKE = Target(ratio=1.0, beside="ducklake")

STATEMENTS = (
    Statement("insert", "INSERT of one row", Target(3, 5, ratio=0.3)),
    Statement("insert_path", "the same, path table", Target(2, 4)),
    Statement("two_tables", "one row into each of 2 tables", Target(4)),
    Statement("ten_inserts", "BEGIN, ten INSERTs, COMMIT", Target(5)),
    Statement("update", "UPDATE of one row", Target(5)),
    Statement("delete", "DELETE of one row", Target(5)),
    Statement("select", "SELECT of one row by key, snapshot known", Target(2)),
    Statement("select_after", "the same, after another's commit", Target(3)),
    Statement("merge", "MERGE of 1,000 rows into {merge_rows}", Target(ratio=1.0)),
    Statement("open", "opening a lake and a table of {commits} commits", Target(4)),
    Statement("many_tables", "one row into each of {tables} tables", Target(5)),
    Statement("writers_1x1", "INSERTs of 1 process"),
    Statement("writers_1x8", "1 process of 8 threads", Target(entries=0.9)),
    Statement(
        "writers_8x1",
        "{processes} processes, own tables",
        Target(commits=0.5, share=_FAIR, wait=50),
    ),
    Statement(
        "writers_8x8", "{processes} processes of 8 threads", Target(commits=2.0, share=_FAIR)
    ),
    Statement(
        "sum_client",
        "sum over {sum_rows} rows, Spark with hadoop-aws",
        Target(ratio=1.05, beside="delta-spark"),
    ),
    Statement("sum_plain", "the same, Spark without it"),
)
BY_KEY = {statement.key: statement for statement in STATEMENTS}

FULL = {
    "repeats": 5,
    "rows": 20_000,
    "tables": 20,
    "merge_rows": 2_000_000,
    "merge_files": 4,
    "commits": 1_000,
    "sum_rows": 20_000_000,
    "sum_files": 8,
    "processes": 8,
    "seconds": 20,
}
QUICK = FULL | {
    "repeats": 3,
    "merge_rows": 200_000,
    "commits": 100,
    "sum_rows": 2_000_000,
    "sum_files": 4,
    "seconds": 6,
}


_ONE_TABLE = ("insert", "update", "delete", "select", "select_after", "merge", "open")
_SEVERAL_TABLES = ("two_tables", "ten_inserts", "many_tables")
_LAKE = (*_ONE_TABLE, "insert_path", *_SEVERAL_TABLES)
_OF_DATABASE = (*_ONE_TABLE, *_SEVERAL_TABLES)
_WRITERS = ("writers_1x1", "writers_1x8", "writers_8x1", "writers_8x8")
_DELTA_SPARK = ("insert", "update", "delete", "select", "merge", "open", "sum_client")


def columns() -> list[Column]:
    """Return the columns of the table, from left to right."""
    found = [
        Column(
            "txlake",
            "txlake, catalog in the store",
            (
                Process("lake", "warehouse", _LAKE),
                Process("writers", "warehouse", _WRITERS),
                Process("spark", "txlake", ("sum_plain",)),
                Process("spark", "txlake-s3a", ("sum_client",)),
            ),
        ),
        Column("txlake-sqlite", "txlake, SQLite", (Process("lake", "sqlite", _LAKE),)),
        Column(
            "txlake-postgresql",
            "txlake, PostgreSQL",
            (Process("lake", DATABASE, _OF_DATABASE),),
            stores=(DATABASE,),
        ),
    ]
    if (publish := other_publication()) is not None:
        process = Process("lake", f"warehouse {publish}", _LAKE)
        found.append(Column(f"txlake-{publish}", f"the first, publish={publish}", (process,)))
    return [
        *found,
        Column("delta-rs", "delta-rs", (Process("delta_rs", "", _ONE_TABLE),)),
        Column("delta-spark", "Delta Spark", (Process("spark", "delta-s3a", _DELTA_SPARK),)),
        Column(
            "ducklake",
            "DuckLake, PostgreSQL",
            (Process("ducklake", "", (*_ONE_TABLE, *_SEVERAL_TABLES)),),
            stores=("s3", "azurite", DATABASE),
        ),
    ]


def other_publication() -> str | None:
    """Return the value of `Settings.publish` that isn't the default; None without that setting."""
    for field in dataclasses.fields(Settings):
        if field.name == "publish":
            values = ("before_answer", "after_answer")
            return next(value for value in values if value != field.default)
    return None


def misses(
    target: Target, result: Measured | Race, seconds: Mapping[str, float]
) -> list[str] | None:
    """Return what a result misses of its target, each as a phrase, or None without a target.

    Args:
        target: what is to be reached.
        result: what was reached.
        seconds: the same statement's median time by column, for targets that are ratios. A target
            beside an engine that wasn't measured is not missed.
    """
    if isinstance(result, Race):
        checks = _checks_of_race(target, result)
    else:
        checks = _checks(target, result, seconds)
    return [text for reached, text in checks if not reached] if checks else None


def _checks(
    target: Target, result: Measured, seconds: Mapping[str, float]
) -> list[tuple[bool, str]]:
    trips, requests = median(result.round_trips), median(result.requests)
    checks: list[tuple[bool, str]] = []
    if target.round_trips is not None:
        text = f"{trips:g} of {target.round_trips} round trips"
        checks.append((trips <= target.round_trips, text))
    if target.requests is not None:
        checks.append((requests <= target.requests, f"{requests:g} of {target.requests} requests"))
    if target.ratio is not None and target.beside in seconds:
        ratio = median(result.seconds) / seconds[target.beside]
        text = f"{ratio:.2f} of {target.ratio:g} x {target.beside}"
        checks.append((ratio <= target.ratio, text))
    return checks


def _checks_of_race(target: Target, race: Race) -> list[tuple[bool, str]]:
    commits, entries = race.commits_s * race.latency_s, race.entries_s * race.latency_s
    wait = race.wait_s_p99 / race.latency_s if race.latency_s else 0.0
    checks: list[tuple[bool, str]] = []
    if race.latency_s == 0:
        return checks
    if target.commits is not None:
        text = f"{commits:.2f} of {target.commits:g} commits a request's time"
        checks.append((commits >= target.commits, text))
    if target.entries is not None:
        text = f"{entries:.2f} of {target.entries:g} entries a request's time"
        checks.append((entries >= target.entries, text))
    if target.share is not None:
        low, high = target.share
        text = f"shares {race.share_min:.2f} to {race.share_max:.2f} of {low:g} to {high:g}"
        checks.append((race.share_min >= low and race.share_max <= high, text))
    if target.wait is not None:
        checks.append((wait <= target.wait, f"p99 {wait:.0f} of {target.wait:g} requests' time"))
    return checks


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the lower of the two middle ones."""
    return sorted(values)[(len(values) - 1) // 2]
