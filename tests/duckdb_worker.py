"""Reads Delta tables with DuckDB's extension, in the environment .cache/duckdb-delta.

A line on stdin is JSON: the folder of a table, and the file that its rows are to be written to as
Parquet. The answer is a line of JSON: null, or why the table can't be read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_delta


def main() -> None:
    """Answers until stdin ends."""
    [extension] = Path(str(duckdb_extension_delta.__file__)).parent.rglob("*.duckdb_extension")
    duck = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
    duck.execute(f"LOAD '{extension}'")
    duck.execute("SET TimeZone = 'UTC'")
    for line in sys.stdin:
        folder, target = json.loads(line)
        problem = None
        try:
            rows = f"SELECT * FROM delta_scan({_literal(folder)})"
            duck.execute(f"COPY ({rows}) TO {_literal(target)} (FORMAT parquet)")
        except duckdb.Error as error:
            problem = str(error)
        sys.stdout.write(json.dumps(problem) + "\n")
        sys.stdout.flush()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    main()
