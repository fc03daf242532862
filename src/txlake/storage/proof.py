"""The self-test of a store: whether put-if-absent refuses to overwrite.

A commit is a put-if-absent, so on a store that overwrites, two writers would destroy each other's
commits. A store's documentation isn't trusted: the test runs once, before the first commit.
"""

from __future__ import annotations

import logging
import os
import threading

from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome, Store

_log = logging.getLogger(__name__)

PROBE_FOLDER = "_txlake_probe"


class Proof:
    """The self-test of one store, done once for all who share it. Safe to use from many threads."""

    __slots__ = ("_found", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found = False

    def ensure(self, store: Store) -> bool:
        """Test `store` unless a test has succeeded before; return whether the test ran now.

        Raises:
            InvalidRequest: the store overwrites, or refuses the probe.
            Unavailable: the store can't be reached, or replies got lost.
        """
        if self._found:
            return False
        with self._lock:
            if self._found:
                return False
            try_store(store)
            self._found = True
            return True


def try_store(store: Store) -> None:
    """Put a probe object twice, if absent, and delete it.

    Raises:
        InvalidRequest: the second put was not refused, or replaced the first one's bytes, or the
            store refuses the probe.
        Unavailable: the store can't be reached, or replies got lost.
    """
    # A name that no other process uses. It never reaches a log, so a replay needn't fix it.
    path = f"{PROBE_FOLDER}/{os.urandom(16).hex()}"
    first, second = b"first", b"second"
    try:
        # EXISTS is fine too: a client sent it twice, and no other process uses this name.
        if store.put_if_absent(path, first) is PutOutcome.UNKNOWN:
            raise _undecided(store)
        match store.put_if_absent(path, second):
            case PutOutcome.CREATED:
                raise _unsafe(store, "a second put-if-absent of one object succeeded")
            case PutOutcome.UNKNOWN:
                raise _undecided(store)
            case PutOutcome.EXISTS:
                kept = store.get(path)
        if kept != first:
            raise _unsafe(store, "a refused put-if-absent replaced the object all the same")
    finally:
        _clean_up(store, path)


def _clean_up(store: Store, path: str) -> None:
    """Delete the probe; only log a warning if that fails."""
    try:
        store.delete([path])
    except (InvalidRequest, Unavailable) as error:
        # Some sites forbid writers to delete; a leftover probe of 5 bytes does no harm.
        _log.warning("the probe %s of %s could not be deleted: %s", path, store.url, error)


def _undecided(store: Store) -> Unavailable:
    return Unavailable(f"{store.url}: the self-test of put-if-absent got no clear reply; try again")


def _unsafe(store: Store, found: str) -> InvalidRequest:
    """Return the error for a store whose put-if-absent overwrites, with what was `found`."""
    return InvalidRequest(
        f"the store {store.url} is unsafe: {found}. Expected: the second one is refused. Two "
        "writers would overwrite each other's commits, so nothing is committed there. Use a "
        "store with conditional writes (for S3-like ones: If-None-Match on PUT)"
    )
