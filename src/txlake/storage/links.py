"""Symbolic links on the way to a local folder: whether it is where its path says.

Other stores have none: buckets don't know them, and HDFS refuses to make them.
"""

from __future__ import annotations

import os

from txlake.storage.locations import canonical_url, local_path


def led_out(root: str, folder: str) -> str | None:
    """Where a folder really is when it isn't at its own place below a root folder; else None.

    Both are canonical URLs, as the answer is. A folder is at its own place when no symbolic link
    stands between the root and it; how the root itself is reached doesn't matter. Folders of other
    stores are always at theirs.
    """
    root_path, path = local_path(root), local_path(folder)
    if root_path is None or path is None:
        return None
    real_root, real = os.path.realpath(root_path), os.path.realpath(path)
    # The outermost folder that is the root: a link back to the root is a link like any other.
    below = [one for one in _and_above(path) if os.path.realpath(one) == real_root]
    if below:
        own = os.path.join(real_root, os.path.relpath(path, below[-1]))
        if real == os.path.normpath(own):
            return None
    return canonical_url(real)


def _and_above(path: str) -> list[str]:
    """The folder, the one that it is in, and so on to the root of the file system."""
    found = [path]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found
