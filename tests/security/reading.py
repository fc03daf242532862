"""Everything that is read of a table without Spark, and what may become of it."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

import txlake
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.vacuum import plan_vacuum
from txlake.datafiles.vectors import VectorCache
from txlake.errors import InvalidRequest, TxlakeError
from txlake.protocol.actions import encode_actions

MEMORY_MAX = 1536 * 1024 * 1024
"""How much may be set aside beyond what the program has at its start, in bytes."""

CPU_S_MAX = 20
"""How long reading one table may take, in seconds of CPU time."""


def limit_resources(seconds: int) -> None:
    """From now on this process gets no more memory, and dies after so many seconds of CPU time."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_MAX
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def outcome(folder: Path) -> str:
    """The name of the error of ours that reading ends in; `read` where all of it can be read."""
    try:
        read_everything(folder)
    except TxlakeError as error:
        return type(error).__name__
    return "read"


def read_everything(folder: Path) -> None:
    """Read the log in every way. Raises what that raises."""
    log = txlake.Log(str(folder))
    snapshot = log.snapshot()
    _ = (snapshot.schema, snapshot.arrow_schema, snapshot.properties, snapshot.protocol)
    _ = (snapshot.metadata, snapshot.partition_columns, snapshot.timestamp_ms)
    snapshot.files()
    for where in ("id > 1 AND v = 'x'", "id IS NULL OR v >= 'b'", "p = 1"):
        with suppress(InvalidRequest):  # a column that this table hasn't got
            snapshot.files(where)
    log.history()
    state = log._log.latest()
    vectors = VectorCache(log._log.store)
    for add in state.files.adds():
        if add.deletion_vector is not None:
            vectors.of(add.deletion_vector)
            vectors.of_id(add.deletion_vector.unique_id)
    encode_actions([*state.files.adds(), *state.tombstones.values(), state.metadata])
    plan_vacuum(log._log, 0, retention_check=False)
    with suppress(InvalidRequest):  # a log may begin with a checkpoint
        log.snapshot(version=0).files()
    write_checkpoint(log._log)
