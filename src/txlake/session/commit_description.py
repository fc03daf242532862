"""What the Spark session's settings say of a commit's `commitInfo`, as in Delta Spark."""

from __future__ import annotations

from txlake.errors import InvalidRequest
from txlake.session.engine import Engine

_ENABLED = "spark.databricks.delta.commitInfo.enabled"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def is_described(engine: Engine) -> bool:
    """Return whether a commit's `commitInfo` has its parameters, metrics and `userMetadata`.

    The operation, time, isolation level, `isBlindAppend` and transaction id are always in it: other
    transactions need them.

    Raises InvalidRequest for a setting that is neither true nor false.
    """
    text = engine.plane.setting(_ENABLED, "true").strip().lower()
    if text not in {"true", "false"}:
        raise InvalidRequest(f"{_ENABLED}: expected true or false, found {text!r}; set it anew")
    return text == "true"


def user_metadata(engine: Engine, own: str | None) -> str | None:
    """Return a commit's `userMetadata`: the transaction's own, or the session's; None for none."""
    return own or engine.plane.setting(_USER_METADATA, "") or None
