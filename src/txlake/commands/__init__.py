"""Which command carries out which statement: one file a family of statements.

A session finds a statement's command in COMMANDS. What it does with one: `session.command`.
"""

from __future__ import annotations

from txlake.commands import (
    analyze,
    convert_table,
    copy_into,
    data,
    databases,
    explain_conflicts,
    identity,
    inspection,
    maintenance,
    tables,
    undrop,
    views,
)
from txlake.session.command import Commands

_FAMILIES: tuple[Commands, ...] = (
    data.COMMANDS,
    copy_into.COMMANDS,
    tables.COMMANDS,
    undrop.COMMANDS,
    views.COMMANDS,
    databases.COMMANDS,
    maintenance.COMMANDS,
    analyze.COMMANDS,
    convert_table.COMMANDS,
    identity.COMMANDS,
    inspection.COMMANDS,
    explain_conflicts.COMMANDS,
)
COMMANDS: Commands = {kind: one for family in _FAMILIES for kind, one in family.items()}

__all__ = ["COMMANDS"]
