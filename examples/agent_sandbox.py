"""A sandbox for agents: programs that may try anything on branches of their own, and nothing else.

`python examples/agent_sandbox.py FOLDER` makes a small shop in a lake at FOLDER and serves it. Two
agents work over HTTP with a token that has `"branches": true`. The first one makes prices lower,
and tries to do so on main, which the server refuses. The second one deletes what it takes for
leftovers. A reviewer looks at each branch with a token of his own: he publishes the first and
drops the second. No agent needs to be trusted with the shop's tables, nor with a copy of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AGENT, REVIEWER = "the-token-of-an-agent", "the-token-of-the-reviewer"
TOKENS = [
    {"token": AGENT, "name": "agent", "branches": True},
    {"token": REVIEWER, "name": "reviewer"},
]
SHOP = """
CREATE TABLE IF NOT EXISTS stock (item STRING, pieces INT, price DOUBLE);
DELETE FROM stock;
INSERT INTO stock VALUES ('nails', 100, 10.0), ('nuts', 3, 20.0), ('bolts', 0, 30.0)
"""


class Caller:
    """Somebody who calls the server with a token."""

    def __init__(self, address: str, token: str) -> None:
        self._url = f"{address}/api/txlake/v1/sql"
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def sql(self, script: str) -> list[dict[str, Any]]:
        """Run a script, and return the rows of its last statement. Raises HTTPError."""
        body = json.dumps({"statement": script}).encode()
        request = urllib.request.Request(self._url, body, self._headers)
        with urllib.request.urlopen(request, timeout=300) as answer:
            found = json.load(answer)
        names = [column["name"] for column in found["columns"]]
        return [dict(zip(names, row, strict=True)) for row in found["rows"]]


def lower_prices(agent: Caller) -> str:
    """Work as the first agent, which forgets its branch once; return the branch's name."""
    change = "UPDATE stock SET price = price * 0.9 WHERE pieces > 50"
    agent.sql("CREATE BRANCH `agent/prices` RETAIN 1 DAY")
    try:
        agent.sql(change)
    except urllib.error.HTTPError as error:
        print(f"  on main: {error.code}, {json.load(error)['error']['message']}")
    agent.sql(f"USE BRANCH `agent/prices`; {change}")
    return "agent/prices"


def clean_up(agent: Caller) -> str:
    """Work as the second agent; return its branch's name."""
    agent.sql(
        "CREATE BRANCH `agent/leftovers` RETAIN 1 DAY; USE BRANCH `agent/leftovers`; "
        "DELETE FROM stock WHERE pieces < 5"
    )
    return "agent/leftovers"


def objections(reviewer: Caller, branch: str) -> Iterator[str]:
    """Yield what speaks against publishing a branch."""
    before = reviewer.sql("SELECT item FROM stock")
    after = reviewer.sql(f"USE BRANCH `{branch}`; SELECT item, price FROM stock")
    missing = {row["item"] for row in before} - {row["item"] for row in after}
    if missing:
        yield f"items are gone: {', '.join(sorted(missing))}"
    cheap = [row["item"] for row in after if row["price"] < 5]
    if cheap:
        yield f"prices below 5: {', '.join(sorted(cheap))}"
    for row in reviewer.sql(f"EXPLAIN PUBLISH BRANCH `{branch}`"):
        if row["answer"] != "publishes":
            yield f"{row['table']} would conflict: {row['detail']}"


def review(reviewer: Caller, branch: str) -> str:
    """Publish a branch if nothing speaks against it, drop it otherwise; return what happened."""
    for row in reviewer.sql(f"DESCRIBE BRANCH `{branch}`"):
        print(f"  {branch}: {row['table']} {row['change']}")
    for objection in objections(reviewer, branch):
        reviewer.sql(f"DROP BRANCH `{branch}`")
        return f"{branch}: dropped, {objection}"
    reviewer.sql(f"PUBLISH BRANCH `{branch}`")
    return f"{branch}: published"


@contextmanager
def served(warehouse: str) -> Iterator[str]:
    """`txlake serve` of a warehouse with the two tokens, and its address."""
    tokens = Path(warehouse).with_name(f"{Path(warehouse).name}-tokens.json")
    tokens.touch(mode=0o600)
    tokens.write_text(json.dumps(TOKENS))
    command = [sys.executable, "-m", "txlake", "serve", warehouse, "--port", "0"]
    command += ["--token-file", os.fspath(tokens)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        assert server.stdout is not None
        try:
            said = ""
            while (found := re.search(r"serving at (\S+)", said)) is None:
                line = server.stdout.readline().decode()
                if not line:
                    raise RuntimeError(f"the server didn't start: {said}")
                said += line
            yield found[1]
        finally:
            server.terminate()


def main(folder: str) -> list[str]:
    """Run the example in a lake at a folder; return what became of the agents' branches."""
    with served(folder) as address:
        agent, reviewer = Caller(address, AGENT), Caller(address, REVIEWER)
        reviewer.sql(SHOP)
        outcomes = [review(reviewer, lower_prices(agent)), review(reviewer, clean_up(agent))]
        stock = reviewer.sql("SELECT item, pieces, price FROM stock")
    prices = sorted((row["item"], row["price"]) for row in stock)
    return [*outcomes, ", ".join(f"{item} {price:g}" for item, price in prices)]


if __name__ == "__main__":
    for line in main(sys.argv[1]):
        print(line)
