"""Rounds of maintenance at an interval, in a thread of this process."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from txlake.errors import TxlakeError
from txlake.maintenance.maintainer import Maintainer
from txlake.session.engine import Engine

_logger = logging.getLogger(__name__)


class Maintenance:
    """Maintenance that goes on until `stop`, or until the lake is closed. A context manager.

    The first round begins at once. An error ends its round, and is logged.
    """

    def __init__(self, engine: Engine, maintainer: Maintainer, every_ms: int) -> None:
        self._engine = engine
        self._maintainer = maintainer
        self._every_s = every_ms / 1000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="txlake-maintenance", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """End the maintenance after the work that it does now; wait for that, up to `timeout_s`.

        Returns whether it has ended.
        """
        self._stopped.set()
        self._maintainer.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while not (self._stopped.is_set() or self._engine.is_closed):
            try:
                self._maintainer.run()
            except TxlakeError as error:
                if not self._engine.is_closed:
                    _logger.warning("a round of maintenance ended early: %s", error)
            self._stopped.wait(self._every_s)
