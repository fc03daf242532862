"""DuckLake, in the environment of tools/python_peer.sh ducklake: transactions of SQL on one lake.

The arguments are what DuckLake attaches and the folder of its data. A line on stdin is JSON: a list
of transactions, each a list of statements. The answer is a line of JSON: for each the milliseconds
that it took, null where another's commit aborted it; for a query alone its rows.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import duckdb

_EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner")
_CONFLICT = ("conflict", "concurrent", "database is locked", "could not serialize")


def main(catalog: str, folder: str) -> None:
    """Answers until stdin ends."""
    duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    site = Path(str(duckdb.__file__)).parent.parent
    for name in _EXTENSIONS:
        [extension] = (site / f"duckdb_extension_{name}").rglob("*.duckdb_extension")
        duck.execute(f"LOAD '{extension}'")
    duck.execute(f"ATTACH 'ducklake:{catalog}' AS lake (DATA_PATH '{folder}')")
    duck.execute("USE lake")
    for line in sys.stdin:
        answers = [_run(duck, statements) for statements in json.loads(line)]
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


def _run(
    duck: duckdb.DuckDBPyConnection, statements: list[str]
) -> float | list[tuple[object, ...]] | None:
    if statements[-1].startswith("SELECT"):
        return duck.execute(statements[-1]).fetchall()
    start = time.perf_counter()
    try:
        for statement in ("BEGIN", *statements, "COMMIT"):
            duck.execute(statement)
    except duckdb.Error as error:
        if not any(word in str(error).lower() for word in _CONFLICT):
            raise
        _roll_back(duck)
        return None
    return 1_000 * (time.perf_counter() - start)


def _roll_back(duck: duckdb.DuckDBPyConnection) -> None:
    try:
        duck.execute("ROLLBACK")
    except duckdb.Error:
        return  # the failed COMMIT ended it


if __name__ == "__main__":
    main(*sys.argv[1:])
