"""Which file systems are the network's."""

from __future__ import annotations

from pathlib import Path

import pytest

from txlake.catalog import Catalog, database
from txlake.catalog.mounts import network_file_system
from txlake.system import System

MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
server:/export /data nfs4 rw 0 0
/dev/sdb1 /data/fast xfs rw 0 0
server:/x /data/with\\040space cifs rw 0 0
tmpfs /over tmpfs rw 0 0
server:/y /over nfs rw 0 0
bucket /bucket fuse.gcsfuse rw 0 0
overlay /layers fuse.fuse-overlayfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/catalog.db", None),
        ("/data/lake/catalog.db", "nfs4"),
        ("/database/catalog.db", None),
        ("/data/fast/catalog.db", None),
        ("/data/fast/../catalog.db", "nfs4"),
        ("/data/with space/catalog.db", "cifs"),
        ("/over/catalog.db", "nfs"),
        ("/bucket/catalog.db", "fuse.gcsfuse"),
        ("/layers/catalog.db", None),
    ],
)
def test_the_nearest_mount_decides(path: str, kind: str | None) -> None:
    assert network_file_system(path, MOUNTS) == kind


def test_nothing_is_known_without_mounts() -> None:
    assert network_file_system("/a", "") is None


def test_sqlite_on_a_network_file_system_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "network_file_system", lambda path: "nfs4")
    with pytest.warns(UserWarning, match=r"catalog\.db is on a network file system \(nfs4\)"):
        Catalog(f"sqlite:///{tmp_path / 'catalog.db'}", System()).close()
    Catalog("sqlite://", System()).close()
