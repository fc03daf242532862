"""KILL: end another session's open transactions, by its number in the views and `@@SPID`."""

from __future__ import annotations

from txlake.catalog import Catalog
from txlake.catalog.owners import KILLED
from txlake.errors import InvalidRequest


def kill_session(catalog: Catalog, own: int, session_id: int) -> None:
    """End the open transactions of a session in any process, and release their locks.

    Raises InvalidRequest for the caller's own session, for an unknown one, and for one without an
    open transaction.
    """
    if session_id == own:
        raise InvalidRequest(
            f"KILL {session_id}: this is the session itself; ROLLBACK ends its transaction"
        )
    open_ones = [
        one
        for one in catalog.transactions.entries()
        if one.session_id == session_id and one.state != KILLED
    ]
    ended = [one for one in open_ones if catalog.transactions.kill(one.id)]
    if ended:
        return
    if any(one.id == session_id for one in catalog.sessions.entries()):
        problem = f"session {session_id} has no open transaction, and blocks no other session"
    else:
        problem = f"there is no session {session_id}"
    raise InvalidRequest(
        f"KILL {session_id}: {problem}; sys.dm_exec_sessions lists the sessions, and those with "
        "open_transaction_count above 0, or a row in sys.dm_exec_requests, can be killed"
    )
