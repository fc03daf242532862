"""Each guard of commands/, switched off, makes the test fail that guards.toml names for it."""

from __future__ import annotations

import pytest

from tests.mutation.killed import survivors


@pytest.mark.broad
@pytest.mark.timeout(3600)
def test_every_mutant_is_killed() -> None:
    assert survivors("commands.") == ""
