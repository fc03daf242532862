"""Detection of symbolic links on the way to a local folder.

Other stores have no links: buckets don't know them, and HDFS refuses to make them.
"""

from __future__ import annotations

import os

from txlake.storage.locations import canonical_url, local_path


def symlink_target(root: str, folder: str) -> str | None:
    """Return the real URL of a folder that a symbolic link moves from its place below `root`; else
    None.

    Both arguments and the result are canonical URLs. A folder is at its own place when no symbolic
    link stands between the root and it; how the root itself is reached doesn't matter. A local
    folder that isn't below the root has its real URL returned too, with or without links. Folders
    of other stores are always at their own place.
    """
    root_path, path = local_path(root), local_path(folder)
    if root_path is None or path is None:
        return None
    real_root, real = os.path.realpath(root_path), os.path.realpath(path)
    # Compare from the outermost folder that is the root: a link back to the root is a link too.
    below = [one for one in _and_above(path) if os.path.realpath(one) == real_root]
    if below:
        own = os.path.join(real_root, os.path.relpath(path, below[-1]))
        if real == os.path.normpath(own):
            return None
    return canonical_url(real)


def _and_above(path: str) -> list[str]:
    """Return the folder and all folders above it, up to the root of the file system."""
    found = [path]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found
