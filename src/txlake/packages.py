"""The message for a missing package.

`txlake.Log` needs few packages (docs/where-it-runs.md), so an installation may lack the others.
"""

from __future__ import annotations


def missing_package(feature: str, error: ModuleNotFoundError) -> str:
    """Return the message that names the package that `feature` lacks, and how to install it."""
    package = (error.name or str(error)).partition(".")[0]
    return (
        f"{feature} needs the package {package}, which isn't installed: pip install txlake "
        "installs all that is missing"
    )
