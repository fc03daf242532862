"""A statement that names an application's version is carried out once, however often it is tried.

Owns where the version comes from: the statement itself, or the Spark session's settings, which are
Delta Spark's ("Idempotent writes" in Delta's documentation).
"""

from __future__ import annotations

from dataclasses import replace

from txlake.errors import InvalidRequest
from txlake.protocol.actions import Txn
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.statements import Delete, Insert, Merge, Truncate, Update, Write
from txlake.transaction.change import Change

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_AUTO_RESET = "spark.databricks.delta.write.txnVersion.autoReset.enabled"

Once = Write | Insert | Update | Delete | Merge | Truncate


def written_before(context: Context, handle: Handle, statement: Once, noted: Change) -> bool:
    """Whether this application version was written already; notes it otherwise.

    `noted`: what the history says of a statement that changes nothing else. Raises InvalidRequest
    for one of the two without the other.
    """
    app_id: str | None = getattr(statement, "app_id", None)
    version: int | None = getattr(statement, "app_version", None)
    if (app_id is None) != (version is None):
        raise InvalidRequest(
            f"{handle.name}: app_id and app_version go together, found {app_id!r} and {version!r}"
        )
    if app_id is None or version is None:
        asked = _of_session(context, handle)
        if asked is None:
            return False
        app_id, version = asked
    table = context.transaction.open(handle)
    newest = table.app_version(app_id)
    if newest is not None and newest >= version:
        return True
    now = context.engine.system.now_ms()
    txn = Txn(app_id=app_id, version=version, last_updated=now)
    context.transaction.stage(handle, replace(noted, actions=(txn,)))
    return False


def _of_session(context: Context, handle: Handle) -> tuple[str, int] | None:
    """What the session's settings say; the version is taken out of them where they ask for it."""
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
