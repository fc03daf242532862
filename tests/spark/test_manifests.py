"""Scan manifests: where they are written, shared by threads, and removed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from txlake import system
from txlake.spark.manifest import Manifests

WRITERS = 4


class System(system.System):
    """Tells when every writer has begun: an id is the first thing that each asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.all_began = threading.Barrier(WRITERS)

    def new_id(self) -> str:
        self.all_began.wait(30)
        return super().new_id()


def test_threads_that_write_their_first_manifest_at_once_share_one_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []

    def mkdtemp(prefix: str) -> str:
        folder = tmp_path / f"{prefix}{len(made)}"
        folder.mkdir()
        threading.Event().wait(0.05)  # lets the others come this far, if nothing holds them
        made.append(str(folder))
        return str(folder)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    manifests = Manifests(System())
    with ThreadPoolExecutor(WRITERS) as pool:
        urls = list(pool.map(lambda _: manifests.write([(0, "file:/a", 1)]), range(WRITERS)))
    assert [Path(urlsplit(url).path).parent for url in urls] == [Path(made[0])] * WRITERS
    assert all(Path(urlsplit(url).path, "_spark_metadata/0").is_file() for url in urls)
    manifests.drop(urls[0])
    assert not Path(urlsplit(urls[0]).path).exists()
    manifests.close()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_closes_nothing_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "from txlake.spark.manifest import Manifests; from txlake.system import System; "
        "print(Manifests(System()).write([(0, 'file:/a', 1)]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith(tmp_path.as_uri())
    assert list(tmp_path.iterdir()) == []
