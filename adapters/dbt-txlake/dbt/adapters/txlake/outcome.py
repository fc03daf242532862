"""Whether everything of a dbt command has passed.

dbt tells its plugins of each node and hook that ends, by events. A command has passed if as many
nodes as it announced have ended well, no hook failed, and no exception is on its way.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any

from dbt_common.events.event_manager_client import get_event_manager

_GOOD = frozenset({"success", "pass", "warn", "no-op"})


class Outcome:
    """What the events of a command have said so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._expected: int | None = None
        self._passed: set[str] = set()
        self._failed: dict[str, str] = {}

    def listen(self) -> None:
        """Take part in dbt's events from now on."""
        get_event_manager().add_callback(self.note)

    def note(self, event: Any) -> None:
        """Note what an event says."""
        with self._lock:
            match event.info.name:
                case "ConcurrencyLine":
                    self._expected = (self._expected or 0) + event.data.node_count
                case "NodeFinished":
                    self._end(event.data.node_info, event.data.run_result.status)
                case "LogHookEndLine":
                    if event.data.status not in _GOOD:
                        self._failed[event.data.statement] = event.data.status
                case _:
                    pass

    def _end(self, node: Any, status: str) -> None:
        if status not in _GOOD:
            self._failed[node.unique_id] = status
        elif node.materialized != "ephemeral":
            self._passed.add(node.unique_id)

    def fault(self) -> str | None:
        """Return why the command can't be said to have passed; None if it has.

        Called where dbt cleans up, which it does while an exception is on its way too.
        """
        underway = sys.exc_info()[1]
        if underway is not None:
            return "".join(traceback.format_exception_only(underway)).strip()
        with self._lock:
            for name, status in self._failed.items():
                return f"{name}: {status}"
            if self._expected is None or len(self._passed) < self._expected:
                return f"{len(self._passed)} of {self._expected or 'no'} nodes were run"
        return None
