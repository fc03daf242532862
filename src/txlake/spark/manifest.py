"""Scan manifests: tell Spark which files to read, without a listing and without a stat per file.

A manifest is one file in the format of Spark's own file-sink log. Each file's `modificationTime` is
its ordinal in the scan, which is then available per row as
`unix_millis(_metadata.file_modification_time)`.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

from txlake.local.temporary_folders import temporary_folder
from txlake.ports import Store, System

TEMPORARY = "txlake-scan-"
_BLOCK_BYTES = 128 * 1024 * 1024
_ENTRIES = "_spark_metadata/0"


class Manifests:
    """Writes manifests to a scratch folder that the Spark driver can read. Safe for threads.

    Without a store, the scratch folder is a temporary folder of this process, removed when the
    process ends. `close` removes the remaining manifests earlier.
    """

    def __init__(self, system: System, scratch: Store | None = None) -> None:
        self._system = system
        self._scratch = scratch
        self._stored: set[str] = set()
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def write(self, files: Iterable[tuple[int, str, int]]) -> str:
        """Write a manifest of (ordinal, URL for Spark, size in bytes); return its folder's URL."""
        lines = ["v1"]
        for ordinal, url, size in files:
            entry = {
                "path": url,
                "size": size,
                "isDir": False,
                "modificationTime": ordinal,
                "blockReplication": 1,
                "blockSize": _BLOCK_BYTES,
                "action": "add",
            }
            lines.append(json.dumps(entry))
        name = self._system.new_id()
        data = "\n".join(lines).encode()
        if self._scratch is not None:
            self._scratch.put(f"{name}/{_ENTRIES}", data)
            with self._lock:
                self._stored.add(name)
            return f"{self._scratch.url}/{name}"
        manifest = self._temporary() / name
        file = manifest / _ENTRIES
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        return manifest.as_uri()

    def drop(self, url: str) -> None:
        """Remove a manifest, given by its URL, that no plan will read any more."""
        name = url.rsplit("/", 1)[1]
        if self._scratch is not None:
            self._scratch.delete([f"{name}/{_ENTRIES}"])
            with self._lock:
                self._stored.discard(name)
        elif self._folder is not None:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def close(self) -> None:
        """Remove all remaining manifests. `write` may be called again."""
        with self._lock:
            stored, self._stored = self._stored, set()
            folder, self._folder = self._folder, None
        if self._scratch is not None:
            self._scratch.delete([f"{name}/{_ENTRIES}" for name in stored])
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _temporary(self) -> Path:
        """Return the temporary folder, created at the first call."""
        with self._lock:
            if self._folder is None:
                # A temporary folder, because path tables and some lakes are never closed.
                self._folder = temporary_folder(TEMPORARY)
            return self._folder
