"""What is said where a package that txlake uses isn't installed.

`txlake.Log` needs few of them (docs/where-it-runs.md), so an installation may lack the others.
"""

from __future__ import annotations


def missing(what: str, error: ModuleNotFoundError) -> str:
    """What needs the package that wasn't found, and how to install it."""
    package = (error.name or str(error)).partition(".")[0]
    return (
        f"{what} needs the package {package}, which isn't installed: pip install txlake installs "
        "all that is missing"
    )
