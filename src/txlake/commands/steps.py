"""Statements of several commits: each step is a transaction of its own on the newest version.

Owns how a step is tried again where others were faster. What was committed before stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from txlake.errors import Conflict
from txlake.session.catalog_access import transaction_of
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.transaction.change import Change

Step = Callable[[Context, Handle], Change | None]
"""What is done to a table as it is; None, or no action, where nothing is left to do."""

_ATTEMPTS = 5


def committed(context: Context, handle: Handle, step: Step) -> bool:
    """Commits what a step does; whether there was anything to do. Raises the last Conflict."""
    for attempt in range(_ATTEMPTS):
        try:
            with transaction_of(context.engine, context.transaction.session_number) as own:
                change = step(replace(context, transaction=own), handle)
                if change is None or not change.actions:
                    return False
                own.stage(handle, change)
            return True
        except Conflict:
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returned or raised")
