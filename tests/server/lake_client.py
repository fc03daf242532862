"""txlake as a process that is told what to do, in the way of Delta Kernel's programs.

Arguments: a server's URI or a lake's folder, a token, the catalog. Tables have a column, `id INT`.
A command that names several (`a,b`) is one transaction over all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import txlake
from txlake import Lake
from txlake.errors import OutcomeUnknown
from txlake.lake.statements import Statements
from txlake.session.command import AsRows
from txlake.session.views.describe import Rows
from txlake.settings import Settings

_LEASE_MS = 5_000


def main(place: str, token: str, catalog: str) -> None:
    with connected(place, token, catalog) as lake:
        for line in sys.stdin:
            command, tables, *rest = line.split()
            sys.stdout.write(f"> {answered(lake, command, tables.split(','), rest)}\n")
            sys.stdout.flush()


def connected(place: str, token: str, catalog: str) -> Lake:
    """The lake in a folder, or the one behind a server."""
    if "://" not in place:
        # What it holds when it is killed is free when its lease ends.
        return txlake.connect(place, settings=Settings(lease_ms=_LEASE_MS))
    url = f"uc+{place}/api/2.1/unity-catalog?catalog={catalog}"
    return txlake.connect(catalog=url, token=token)


def answered(lake: Lake, command: str, tables: Sequence[str], ids: Sequence[str]) -> str:
    """What became of a command, in one line."""
    try:
        return f"ok {carried_out(lake, command, tables, ids)}"
    except OutcomeUnknown as error:
        return f"unknown {_in_one_line(error)}"
    except Exception as error:
        return f"failed {type(error).__name__}: {_in_one_line(error)}"


def carried_out(lake: Lake, command: str, tables: Sequence[str], ids: Sequence[str]) -> str:
    """The answer to a command."""
    match command:
        case "append":
            values = ", ".join(f"({one})" for one in ids)
            return changed(lake, [f"INSERT INTO {table} VALUES {values}" for table in tables])
        case "delete":
            gone = ", ".join(ids)
            return changed(lake, [f"DELETE FROM {table} WHERE id IN ({gone})" for table in tables])
        case "create":
            return changed(
                lake, [f"CREATE TABLE {table} (id INT) {' '.join(ids)}" for table in tables]
            )
        case "read":
            found = read(lake, tables, int(ids[0]), int(ids[1]))
            return "; ".join(" ".join(map(str, one)) for one in found)
        case other:
            raise ValueError(f"no command: {other}")


def changed(lake: Lake, statements: Sequence[str]) -> str:
    """Carries them out in one transaction."""
    with lake.transaction() as transaction:
        for one in statements:
            rows_of(transaction, one)
    return ""


def read(lake: Lake, tables: Sequence[str], low: int, high: int) -> list[list[int]]:
    """The ids from `low` to `high` in the tables, at one instant; few, or Spark is needed."""
    with lake.transaction() as transaction:
        found = (
            rows_of(transaction, f"SELECT id FROM {table} WHERE id BETWEEN {low} AND {high}")
            for table in tables
        )
        return [sorted(int(str(one)) for (one,) in rows) for rows in found]


def rows_of(on: Statements, text: str) -> list[tuple[object, ...]]:
    """A statement's rows, without Spark."""
    found = on._run_sql(text, None, AsRows())
    assert isinstance(found, Rows), f"Spark is needed for: {text}"
    return [tuple(row) for row in found.rows]


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    main(*sys.argv[1:])
