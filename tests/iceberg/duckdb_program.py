"""Reads Iceberg tables with DuckDB's extension, in the environment of tools/duckdb_venv.sh.

A line on stdin is JSON: the folder of a table, the id of a snapshot, and the file that its rows are
to be written to as Parquet. The answer is a line of JSON: null, or why the table can't be read.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb


def main() -> None:
    """Answers until stdin ends."""
    duck = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
    for name in ("avro", "httpfs", "iceberg"):
        found = find_spec(f"duckdb_extension_{name}")
        assert found is not None
        assert found.origin is not None
        [extension] = Path(found.origin).parent.rglob("*.duckdb_extension")
        duck.execute(f"LOAD '{extension}'")
    duck.execute("SET TimeZone = 'UTC'")
    for line in sys.stdin:
        folder, snapshot, target = json.loads(line)
        problem = None
        try:
            rows = f"SELECT * FROM iceberg_scan('{folder}', snapshot_from_id = {snapshot})"
            duck.execute(f"COPY ({rows}) TO '{target}' (FORMAT parquet)")
        except duckdb.Error as error:
            problem = str(error)
        sys.stdout.write(json.dumps(problem) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
