"""Storage options that txlake reads itself, and which options are HDFS's."""

from __future__ import annotations

from collections.abc import Mapping

from txlake.errors import InvalidRequest

RETRIES = "max_retries"
_RETRIES_DEFAULT = "6"
_OF_HDFS = "webhdfs_"


def is_of_hdfs(name: str) -> bool:
    """Return whether an option is for HDFS alone; letter case doesn't count."""
    return name.lower().startswith(_OF_HDFS)


def retries_of(storage_options: Mapping[str, str]) -> int:
    """Return how often a failed read or plain write is repeated; 6 without the option.

    Raises:
        InvalidRequest: the option is no whole number.
    """
    retries = storage_options.get(RETRIES, _RETRIES_DEFAULT)
    if not retries.isdecimal():
        raise InvalidRequest(f"storage option {RETRIES} is a whole number, not {retries!r}")
    return int(retries)
