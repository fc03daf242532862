"""Work in a fork of the test's own process."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_a_fork(work: Callable[[], object]) -> str:
    """What the child says of its work: nothing when all was well. It runs no exit handlers."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.close(reads)
            work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writes, said.encode())
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said
