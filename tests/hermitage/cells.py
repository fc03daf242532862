"""The check of one cell: its outcome, and that the level's promise holds for all that was seen."""

from __future__ import annotations

from tests.hermitage.expected import expected
from tests.hermitage.running import Ended, Level, Place, cell
from tests.hermitage.scripts import Script
from tests.hermitage.serial import is_serial

_EXPECTED = expected()


def check(script: Script, level: Level, place: Place, ended: Ended) -> None:
    """Fails where the script ended otherwise than expected, or the level didn't hold."""
    found = cell(script, ended)
    assert found == _EXPECTED[script.name, level, place]
    if level is Level.SERIALIZABLE and found != "allowed":
        assert is_serial(script, place.tables, ended.seen)
    if level is not Level.SNAPSHOT:
        assert is_serial(script, place.tables, ended.seen, reads=False)
