"""DuckDB attaches a served lake by its extension for Unity Catalog, reads and inserts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import txlake.dbapi
from tests.peers import need
from tests.server.process import ServerProcess

TOKEN = "the-token-of-the-owner"
PROGRAM = Path(__file__).with_name("duckdb_program.py")


@pytest.mark.peer("duckdb")
@pytest.mark.no_interop("delta-rs opens no table whose versions a catalog decides")
@pytest.mark.broad
def test_duckdb_reads_and_inserts_by_the_served_catalog(tmp_path: Path) -> None:
    python = Path(__file__).parents[2] / ".cache/duckdb-delta/bin/python"
    need("duckdb", found=python.exists())
    warehouse, tokens = tmp_path / "lake", tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"token": TOKEN, "name": "duck"}]))
    with txlake.dbapi.connect(str(warehouse), autocommit=True) as con:
        con.execute(
            "CREATE TABLE orders (id INT, n BIGINT) "
            "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"
        )
        con.execute("INSERT INTO orders VALUES (1, 10), (2, 20)")
        con.execute("CREATE TABLE closed (id INT)")
        con.execute("INSERT INTO closed VALUES (7)")
    with ServerProcess(warehouse, "--token-file", str(tokens)) as server:
        ran = subprocess.run(
            [
                *(python, PROGRAM, server.url, TOKEN, "lake"),
                "SELECT table_name FROM duckdb_tables() ORDER BY 1",
                "SELECT id, n FROM lake.default.orders ORDER BY id",
                "SELECT id FROM lake.default.closed",
                "INSERT INTO lake.default.orders VALUES (3, 30)",
                "INSERT INTO lake.default.closed VALUES (8)",
                "BEGIN",
                "INSERT INTO lake.default.orders VALUES (4, 40)",
                "ROLLBACK",
                "SELECT count(*) FROM lake.default.orders",
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        answers = [json.loads(line) for line in ran.stdout.splitlines()]
        assert server.stop() in (0, -15)
    assert answers[0] == [["closed"], ["orders"]]
    assert answers[1:4] == [[[1, 10], [2, 20]], [[7]], [[1]]]
    assert "txlakeCatalog" in answers[4]  # its own feature keeps other writers out
    assert answers[-1] == [[3]]
    with txlake.dbapi.connect(str(warehouse)) as con:
        found = con.execute("SELECT id FROM orders ORDER BY id").fetchall()
        assert found == [(1,), (2,), (3,)]
        assert con.execute("SELECT id FROM closed").fetchall() == [(7,)]
