"""Detect whether a path is on a network file system.

SQLite's locks and its shared memory work within one host only.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset(
    {
        "9p", "acfs", "afs", "afp", "beegfs", "ceph", "cifs", "fhgfs", "gfs2", "glusterfs", "gpfs",
        "lustre", "moosefs", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2",
        "smb2", "smb3", "smbfs", "virtiofs", "wekafs",
    }
)  # fmt: skip
# FUSE file systems count as network ones, except these.
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuseblk", "fuse.mergerfs"})


def network_file_system(path: str, mounts: str | None = None) -> str | None:
    """Return the type of the network file system that a path is on; None for a local one.

    `mounts`: the text of /proc/self/mounts, which is read by default. Without that file the result
    is None.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text()
        except OSError:
            return None
    kind = _file_system(PurePosixPath(Path(path).resolve()), mounts)
    is_network = kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)
    return kind if is_network else None


def _file_system(path: PurePosixPath, mounts: str) -> str:
    """Return the type of the file system that is mounted nearest above a path; of two mounts at
    one point, the later.
    """
    nearest, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = PurePosixPath(_unescaped(fields[1]))
        if path.is_relative_to(point) and len(point.parts) >= nearest:
            nearest, kind = len(point.parts), fields[2]
    return kind


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
