"""Reads Iceberg tables with DuckDB's extension, in the environment .cache/duckdb-delta.

The arguments are statements: the answer is a line of JSON for each, its rows or its error. Without
arguments a line on stdin is JSON: the folder of a table, the id of a snapshot, and the file that
its rows are to be written to as Parquet; the answer is null, or why the table can't be read.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb


def connected() -> duckdb.DuckDBPyConnection:
    """Return a connection with the extensions."""
    duck = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
    for name in ("avro", "httpfs", "iceberg"):
        found = find_spec(f"duckdb_extension_{name}")
        assert found is not None
        assert found.origin is not None
        [extension] = Path(found.origin).parent.rglob("*.duckdb_extension")
        duck.execute(f"LOAD '{extension}'")
    duck.execute("SET TimeZone = 'UTC'")
    return duck


def run(duck: duckdb.DuckDBPyConnection, statements: list[str]) -> None:
    """Run the statements, one after the other."""
    for statement in statements:
        try:
            say(duck.execute(statement).fetchall())
        except duckdb.Error as error:
            say(str(error))


def serve(duck: duckdb.DuckDBPyConnection) -> None:
    """Answer until stdin ends."""
    for line in sys.stdin:
        folder, snapshot, target = json.loads(line)
        try:
            rows = f"SELECT * FROM iceberg_scan('{folder}', snapshot_from_id = {snapshot})"
            duck.execute(f"COPY ({rows}) TO '{target}' (FORMAT parquet)")
            say(None)
        except duckdb.Error as error:
            say(str(error))


def say(answer: object) -> None:
    """Print an answer as a line of JSON."""
    sys.stdout.write(json.dumps(answer, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(connected(), sys.argv[1:])
    else:
        serve(connected())
