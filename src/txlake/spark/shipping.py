"""What a Spark task needs of txlake travels with the job, so that a cluster has none installed."""

from __future__ import annotations

from typing import TypeVar

from pyspark import cloudpickle

from txlake import azure, errors, redaction
from txlake.protocol import deletion_vectors, paths
from txlake.spark import executor, executor_compact, executor_files, executor_reads
from txlake.storage.hdfs import webhdfs

SHIPPED = (
    executor,
    executor_compact,
    executor_files,
    executor_reads,
    paths,
    deletion_vectors,
    azure,
    errors,
    redaction,
    webhdfs,
)

T = TypeVar("T")


def travelling(task: T) -> T:
    """The task, pickled from now on together with the code that it needs."""
    for module in SHIPPED:
        cloudpickle.register_pickle_by_value(module)
    return task
