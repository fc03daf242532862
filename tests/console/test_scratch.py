"""The playground's folders: of one process each, and gone when it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from txlake.console.scratch import ScratchFolder, remove_abandoned

DEADLINE_S = 30
HOLDS = """
import sys
from pathlib import Path
from txlake.console.scratch import ScratchFolder
print(ScratchFolder(Path(sys.argv[1])).folder, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        theirs = Path(one.stdout.readline().strip())
        (theirs / "lake").mkdir()
        mine = ScratchFolder(tmp_path)
        assert theirs.is_dir()  # its process lives
        one.kill()
        one.wait(DEADLINE_S)
        other = ScratchFolder(tmp_path)
    assert not theirs.exists()
    assert {mine.folder, other.folder} == set(tmp_path.iterdir())
    for scratch in (mine, other, other):
        scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_is_nobodys_lake_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere"
    kept.mkdir()
    (kept / "in_use").touch()
    (tmp_path / "txlake-playground-just-made").mkdir()
    (tmp_path / "txlake-playground-file").touch()
    link = tmp_path / "txlake-playground-link"
    link.mkdir()
    (link / "in_use").symlink_to(kept / "in_use")
    remove_abandoned(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
