"""Each guard of these folders, switched off, makes the test fail that guards.toml names for it."""

from __future__ import annotations

from tests.mutation.killed import survivors


def test_every_mutant_is_killed() -> None:
    assert survivors("session.", "storage.") == ""
