"""Scan manifests: which files Spark reads, without a listing and without a stat.

A manifest is one file in the format of Spark's own file-sink log. Each file's `modificationTime` is
its ordinal in the scan, which then comes back per row as
`unix_millis(_metadata.file_modification_time)`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from txlake.ports import Store, System

_BLOCK_BYTES = 128 * 1024 * 1024


class Manifests:
    """Writes manifests to a scratch folder that the Spark driver can read.

    Without a store the scratch is a temporary folder of this process, removed by `close`.
    """

    def __init__(self, system: System, scratch: Store | None = None) -> None:
        self._system = system
        self._scratch = scratch
        self._folder: Path | None = None

    def write(self, files: Iterable[tuple[int, str, int]]) -> str:
        """The URL of a new manifest of (ordinal, encoded URL, size in bytes)."""
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
            self._scratch.put(f"{name}/_spark_metadata/0", data)
            return f"{self._scratch.url}/{name}"
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="txlake-scan-"))
        folder = self._folder / name / "_spark_metadata"
        folder.mkdir(parents=True)
        (folder / "0").write_bytes(data)
        return folder.parent.as_uri()

    def drop(self, url: str) -> None:
        """Removes a manifest that no plan will read any more."""
        name = url.rsplit("/", 1)[1]
        if self._scratch is not None:
            self._scratch.delete([f"{name}/_spark_metadata/0"])
        elif self._folder is not None:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def close(self) -> None:
        """Removes the temporary folder."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
