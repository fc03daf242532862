"""The hidden files that a store writes whole before they get their names, in HDFS and locally."""

from __future__ import annotations

import os

# Hidden from every reader of tables (the dot) and from our own listings.
_START = ".txlake-"
_END = ".tmp"


def temporary_name() -> str:
    """A name that no other process uses. No replay needs it: it is gone before it can be seen."""
    return f"{_START}{os.urandom(12).hex()}{_END}"


def is_temporary(name: str) -> bool:
    """Whether a file of this name, without its folder, is such a one."""
    return name.startswith(_START) and name.endswith(_END)
