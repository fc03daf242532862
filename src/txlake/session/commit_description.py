"""Delta Spark's setting that leaves descriptions out of commits, as far as it can be obeyed."""

from __future__ import annotations

from txlake.errors import InvalidRequest
from txlake.session.engine import Engine

_ENABLED = "spark.databricks.delta.commitInfo.enabled"


def is_described(engine: Engine) -> bool:
    """Whether a commit's `commitInfo` has parameters, metrics and the user's own text.

    What others need of it is written all the same: the operation, the time, the level, whether the
    append was blind, and the id by which a commit is found again. Raises InvalidRequest for a value
    that is neither true nor false.
    """
    text = engine.plane.setting(_ENABLED, "true").strip().lower()
    if text not in {"true", "false"}:
        raise InvalidRequest(f"{_ENABLED}: expected true or false, found {text!r}; set it anew")
    return text == "true"
