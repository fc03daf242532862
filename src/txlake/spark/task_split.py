"""How Spark shares a scan's files out to its tasks, where its own way leaves cores idle.

Owns the settings for one read. Spark fills tasks with 128 MiB each and counts a file as 4 MiB more
than it is, since many tasks hide how long a bucket takes to open a file. On one machine that makes
three tasks for two cores, the last of which runs alone, and hundreds of tasks for small files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from txlake.ports import Store

_TASK_BYTES = 128 * 1024 * 1024
_OPEN_BYTES = 4 * 1024 * 1024
# What opening a file of this machine costs, in bytes that are read meanwhile.
_LOCAL_OPEN_BYTES = 128 * 1024
_BYTES, _OPEN = "spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"
# What Spark has when nobody said otherwise.
_DEFAULTS = {_BYTES: f"{_TASK_BYTES}b", _OPEN: f"{_OPEN_BYTES}b"}
_ROUNDS_MAX = 4  # of tasks on all cores; of more, the last one matters little
_STEPS, _STEP = 20, 0.05


def sharing(spark: SparkSession, store: Store, sizes: Sequence[int]) -> Mapping[str, str]:
    """Return settings of Spark with which all cores finish together; {} if Spark's own do.

    Only for a Spark of this machine alone, whose cores are known, and never against a setting that
    somebody made. `sizes` are those of the files, in bytes. Not for Spark Connect.
    """
    if len(sizes) * _OPEN_BYTES + sum(sizes) <= _TASK_BYTES:  # one task a core as it is
        return {}
    if not (spark.conf.get("spark.master", "") or "").startswith("local"):
        return {}
    if any(spark.conf.get(key) != default for key, default in _DEFAULTS.items()):
        return {}
    opening = _LOCAL_OPEN_BYTES if store.url.startswith("file://") else _OPEN_BYTES
    cores = spark.sparkContext.defaultParallelism
    limit = task_bytes(sizes, opening, cores)
    return {
        _BYTES: str(limit),
        _OPEN: str(opening),
        "spark.sql.files.minPartitionNum": "1",
    }


def task_bytes(sizes: Sequence[int], opening: int, cores: int) -> int:
    """Return the bytes of a task with which tasks fill whole rounds of cores.

    At most about the 128 MiB that Spark gives a task, and exactly that where more than 4 rounds are
    needed. `opening`: what opening a file costs, in bytes.
    """
    total = sum(sizes) + len(sizes) * opening
    rounds = max(1, -(-total // (cores * _TASK_BYTES)))
    if rounds > _ROUNDS_MAX:
        return _TASK_BYTES
    tasks = rounds * cores
    least = -(-total // tasks)
    limits = [least + int(least * _STEP * step) for step in range(_STEPS)]
    fitting = (limit for limit in limits if _tasks(sizes, opening, limit) <= tasks)
    return next(fitting, least)


def _tasks(sizes: Sequence[int], opening: int, limit: int) -> int:
    """Return how many tasks Spark makes of the files' pieces, of `limit` bytes at most."""
    pieces = [limit for size in sizes for _ in range(size // limit)]
    pieces += [size % limit for size in sizes if size % limit]
    tasks, filled = 1, 0
    for piece in sorted(pieces, reverse=True):
        if filled and filled + piece > limit:
            tasks, filled = tasks + 1, 0
        filled += piece + opening
    return tasks
