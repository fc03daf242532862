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
    """Return the URL where tasks write the table's new files: of a folder on disk for a table in
    memory, else the store's own.

    Files in that folder enter the table by `import_files`.
    """
    return _on_disk(store.url).as_uri() if store.url.startswith(_SCHEME) else store.url


def import_files(store: Store, paths: Iterable[str]) -> None:
    """Copy files that were written below `task_root` into a table in memory; no-op for other
    stores.

    `paths` are relative to the table and not encoded.
    """
    if store.url.startswith(_SCHEME):
        for path in paths:
            store.put(path, (_on_disk(store.url) / path).read_bytes())


def _on_disk(url: str) -> Path:
    return _copies() / url.removeprefix(_SCHEME)


@functools.cache
def _copies() -> Path:
    return temporary_folder("txlake-memory-")
