"""Which statements are carried out on rows of this process; all others are the engine's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, get_args

from tests.simulation.rows import data, definitions
from tests.simulation.rows.context import RowContext
from tests.simulation.rows.frames import RowFrame, frame_of
from tests.simulation.rows.scopes import Name, Rows
from tests.simulation.rows.values import LONG
from txlake.commands import COMMANDS
from txlake.protocol.types import Struct
from txlake.session.command import Answer, Commands, S
from txlake.session.context import Context
from txlake.statements import (
    AlterStatement,
    Clone,
    CopyInto,
    CreateTable,
    Delete,
    Insert,
    Merge,
    Optimize,
    RenameTable,
    Reorg,
    SparkCommand,
    Statement,
    Truncate,
    Update,
    Write,
)

Run: TypeAlias = Callable[[Context, S], Answer]


def _counts(counts: Mapping[str, int]) -> Answer:
    names = tuple(Name(name, LONG) for name in counts)
    frame: Any = RowFrame(Rows(names, [tuple(counts.values())]))
    return lambda _: frame


def _nothing(_: object) -> Any:
    return frame_of([], Struct(()))


def _counting(handler: Callable[[RowContext, S], Mapping[str, int]]) -> Run[S]:
    def run(context: Context, statement: S) -> Answer:
        assert isinstance(context, RowContext)
        counts = handler(context, statement)
        return _counts(counts) if counts else _nothing

    return run


def _silent(handler: Callable[[RowContext, S], None]) -> Run[S]:
    def run(context: Context, statement: S) -> Answer:
        assert isinstance(context, RowContext)
        handler(context, statement)
        return _nothing

    return run


def _optimized(context: Context, statement: Optimize | Reorg) -> Answer:
    assert isinstance(context, RowContext)
    return data.optimize(context, statement)


def _unknown(_: Context, statement: Statement) -> Answer:
    raise AssertionError(f"{type(statement).__name__} isn't known here")


_RUNS: dict[type[Any], Run[Any]] = {
    Delete: _counting(data.delete),
    Update: _counting(data.update),
    Insert: _counting(data.insert),
    Merge: _counting(data.merge),
    Write: _counting(data.write),
    CopyInto: _counting(data.copy_into),
    Truncate: _silent(data.truncate),
    Optimize: _optimized,
    Reorg: _optimized,
    CreateTable: _silent(definitions.create_table),
    Clone: _counting(definitions.clone_table),
    SparkCommand: _unknown,
    **{
        kind: _silent(definitions.alter_table)
        for kind in get_args(AlterStatement)
        if kind is not RenameTable
    },
}
ROW_COMMANDS: Commands = {
    **COMMANDS,
    **{kind: replace(COMMANDS[kind], run=run) for kind, run in _RUNS.items()},
}
