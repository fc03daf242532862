"""Attaches a served lake in DuckDB, in the environment of tools/python_peer.sh duckdb-delta.

The arguments are the server's address, a token, the lake's name, and statements. The answer is a
line of JSON for each statement: its rows, or its error.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb


def main(address: str, token: str, lake: str, statements: list[str]) -> None:
    """Run the statements, one after the other."""
    duck = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
    for name in ("httpfs", "delta", "unity_catalog"):
        found = find_spec(f"duckdb_extension_{name}")
        assert found is not None
        assert found.origin is not None
        [extension] = Path(found.origin).parent.rglob("*.duckdb_extension")
        duck.execute(f"LOAD '{extension}'")
    duck.execute(
        f"CREATE SECRET (TYPE unity_catalog, TOKEN '{token}', ENDPOINT '{address}', "
        "AWS_REGION 'none')"
    )
    duck.execute(f"ATTACH '{lake}' AS lake (TYPE unity_catalog, DEFAULT_SCHEMA 'default')")
    for statement in statements:
        try:
            answer: object = duck.execute(statement).fetchall()
        except duckdb.Error as error:
            answer = str(error)
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
