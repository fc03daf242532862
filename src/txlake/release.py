"""The installed release of txlake."""

from __future__ import annotations

from importlib import metadata


def _version() -> str:
    """Return the release that is installed; `unknown` if txlake isn't."""
    try:
        return metadata.version("txlake")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"


VERSION = _version()
