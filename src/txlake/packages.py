"""The message for a missing package.

`txlake.Log` needs few packages (docs/where-it-runs.md), so an installation may lack the others.
"""

from __future__ import annotations

from importlib.util import find_spec

WITHOUT_PYICEBERG = (
    "Iceberg metadata is written with the package pyiceberg, which isn't installed: pip install "
    "'txlake[iceberg]'"
)


def has_pyiceberg() -> bool:
    """Return whether the extra `iceberg` is installed; nothing is imported."""
    return find_spec("pyiceberg") is not None


def missing_package(feature: str, error: ModuleNotFoundError) -> str:
    """Return the message that names the package that `feature` lacks, and how to install it."""
    package = (error.name or str(error)).partition(".")[0]
    return (
        f"{feature} needs the package {package}, which isn't installed: pip install txlake "
        "installs all that is missing"
    )
