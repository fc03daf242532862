"""Copies on disk of the files of tables in this process's memory (`memory://`).

The folder is removed when the process ends. The store remains the source of truth.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from txlake.local.temporary_folders import temporary_folder
from txlake.ports import Store

_SCHEME = "memory://"


def task_root(store: Store) -> str:
    """Return the folder's URL where tasks write new files of the table; `import_files` follows."""
    return _on_disk(store.url).as_uri() if store.url.startswith(_SCHEME) else store.url


def import_files(store: Store, paths: Iterable[str]) -> None:
    """Copy files that were written below `task_root` to the table; relative paths, not encoded."""
    if store.url.startswith(_SCHEME):
        for path in paths:
            store.put(path, (_on_disk(store.url) / path).read_bytes())


def _on_disk(url: str) -> Path:
    return _copies() / url.removeprefix(_SCHEME)


@functools.cache
def _copies() -> Path:
    return temporary_folder("txlake-memory-")
