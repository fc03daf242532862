"""docs/connect-your-tool.md, line by line, on a lake in this process and on a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake
from tests.dbapi.served import TOKEN, Served
from tests.pages import blocks, page
from txlake.server.flight.serving import FlightServer
from txlake.server.tokens import Tokens

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = "docs/connect-your-tool.md"


@pytest.mark.broad
def test_the_page_runs_as_written_and_prints_what_it_says(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TXLAKE_TOKEN", TOKEN)
    names: dict[str, object] = {}
    programs = blocks(page(PAGE), "python")
    with txlake.connect(str(tmp_path / "served"), spark=spark) as lake:
        served = Served(lake)
        with served.client:
            served.start()
            flight = FlightServer(
                served.client.served, Tokens(served.tokens), host="127.0.0.1", port=0
            )
            for program in programs:
                program = program.replace("txlake+http://127.0.0.1:8080", served.dsn)
                program = program.replace("grpc://127.0.0.1:8081", flight.address)
                exec(compile(program, PAGE, "exec"), names)
            flight.stop()
            served.stop()
    promised = re.findall(r"^ *print\(.*\)  # (.*)$", "".join(programs), re.MULTILINE)
    for address in ("txlake+http", "grpc://127"):
        assert any(address in program for program in programs)
    assert capfd.readouterr().out.splitlines() == promised
