"""Idempotent writes: a statement with an application id and version is carried out once.

Both come from the statement or from the Spark session's settings, which are Delta Spark's
("Idempotent writes" in Delta's documentation).
"""

from __future__ import annotations

from dataclasses import replace

from txlake.commit.change import Change
from txlake.errors import InvalidRequest
from txlake.protocol.actions import Txn
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.sql.statements import Delete, Insert, Merge, Truncate, Update, Write

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_AUTO_RESET = "spark.databricks.delta.write.txnVersion.autoReset.enabled"

IdempotentStatement = Write | Insert | Update | Delete | Merge | Truncate


def is_duplicate(
    context: Context, handle: Handle, statement: IdempotentStatement, marker: Change
) -> bool:
    """Return whether the application version was written before; if not, stage its record.

    False without an application id, in the statement or the session's settings. `marker`: the
    change that the history shows for a statement that changes nothing else. Raises InvalidRequest
    for an id without a version, or a version without an id.
    """
    app_id: str | None = getattr(statement, "app_id", None)
    version: int | None = getattr(statement, "app_version", None)
    if (app_id is None) != (version is None):
        raise InvalidRequest(
            f"{handle.name}: app_id and app_version go together, found {app_id!r} and {version!r}"
        )
    if app_id is None or version is None:
        configured = _session_version(context, handle)
        if configured is None:
            return False
        app_id, version = configured
    table = context.transaction.open(handle)
    newest = table.app_version(app_id)
    if newest is not None and newest >= version:
        return True
    now = context.engine.system.now_ms()
    txn = Txn(app_id=app_id, version=version, last_updated=now)
    context.transaction.stage(handle, replace(marker, actions=(txn,)))
    return False


def _session_version(context: Context, handle: Handle) -> tuple[str, int] | None:
    """Return the session settings' id and version; None if neither is set.

    With autoReset the version is unset. Raises InvalidRequest if only one is set, or the version is
    no number.
    """
    app_id, text = (context.plane.setting(key, "") for key in (_APP_ID, _VERSION))
    if not app_id and not text:
        return None
    if not app_id or not text:
        raise InvalidRequest(
            f"{handle.name}: {_APP_ID} and {_VERSION} go together, found {app_id!r} and {text!r}; "
            "set both, or unset both"
        )
    try:
        version = int(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{handle.name}: {_VERSION} is {text!r}: expected a whole number"
        ) from error
    if context.plane.setting(_AUTO_RESET, "false").lower() == "true":
        context.spark.conf.unset(_VERSION)
    return app_id, version
