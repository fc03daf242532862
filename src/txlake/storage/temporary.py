"""The hidden temporary files that a store writes before it renames them, locally and in HDFS."""

from __future__ import annotations

import os

# Hidden from every reader of tables (by the dot) and from txlake's own listings.
_START = ".txlake-"
_END = ".tmp"


def temporary_name() -> str:
    """Return a name that no other process uses. It is gone before any reader, so a replay needn't
    fix it.
    """
    return f"{_START}{os.urandom(12).hex()}{_END}"


def is_temporary(name: str) -> bool:
    """Return whether a file of this name, without its folder, is a temporary file."""
    return name.startswith(_START) and name.endswith(_END)
