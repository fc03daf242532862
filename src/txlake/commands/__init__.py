"""The command of each kind of statement, one module a family of statements.

A session looks a statement's handler up in HANDLERS and runs it (`session.command`).
"""

from __future__ import annotations

from txlake.commands import (
    analyze,
    controls,
    convert_table,
    copy_into,
    data,
    databases,
    explain_conflicts,
    identity,
    inspection,
    maintenance,
    queries,
    tables,
    undrop,
    views,
)
from txlake.session.command import Commands
from txlake.session.session import Handlers

_FAMILIES: tuple[Commands, ...] = (
    queries.COMMANDS,
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
COMMANDS: Commands = {
    statement: entry for family in _FAMILIES for statement, entry in family.items()
}
HANDLERS = Handlers(controls=controls.CONTROLS, commands=COMMANDS)

__all__ = ["COMMANDS", "HANDLERS"]
