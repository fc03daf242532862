"""Another engine, as small as one can be: it appends to an open table through the lake's server.

It knows the Delta protocol and Unity Catalog's Delta API, as Delta Kernel does, and no txlake.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow
import pyarrow.parquet

ROOT = "/api/2.1/unity-catalog/delta/v1"


@contextmanager
def served(warehouse: str) -> Iterator[str]:
    """`txlake serve` of a warehouse, and its address."""
    command = [sys.executable, "-m", "txlake", "serve", warehouse, "--port", "0"]
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


class Appender:
    """It loads a table once, and appends to the version that it loaded."""

    def __init__(self, server: str, catalog: str, schema: str, table: str) -> None:
        self._url = f"{server}{ROOT}/catalogs/{catalog}/schemas/{schema}/tables/{table}"
        self.load()

    def load(self) -> int:
        """Read what the catalog says of the table; its version."""
        found = _asked(self._url)
        self._uuid = found["metadata"]["table-uuid"]
        self._folder = Path(unquote(urlsplit(found["metadata"]["location"]).path))
        self._time_ms = int(found["metadata"]["properties"]["delta.lastCommitTimestamp"])
        self.version = int(found["latest-table-version"])
        return self.version

    def append(self, rows: pyarrow.Table) -> int:
        """Write rows, stage a commit, ask for it: 200, or 409 where another came first."""
        data = f"part-{uuid.uuid4()}.parquet"
        pyarrow.parquet.write_table(rows, self._folder / data)
        size, now_ms = (self._folder / data).stat().st_size, max(_now_ms(), self._time_ms + 1)
        actions = [
            {
                "commitInfo": {
                    "inCommitTimestamp": now_ms,
                    "timestamp": now_ms,
                    "operation": "WRITE",
                    "operationParameters": {},
                    "engineInfo": "another-engine/1",
                    "txnId": str(uuid.uuid4()),
                }
            },
            {
                "add": {
                    "path": data,
                    "partitionValues": {},
                    "size": size,
                    "modificationTime": now_ms,
                    "dataChange": True,
                    "stats": json.dumps({"numRecords": rows.num_rows}),
                }
            },
        ]
        content = "\n".join(map(json.dumps, actions)).encode()
        staged = f"{self.version + 1:020d}.{uuid.uuid4()}.json"
        folder = self._folder / "_delta_log" / "_staged_commits"
        folder.mkdir(exist_ok=True)
        (folder / staged).write_bytes(content)
        commit = {
            "version": self.version + 1,
            "timestamp": now_ms,
            "file-name": staged,
            "file-size": len(content),
            "file-modification-timestamp": now_ms,
        }
        body = {
            "requirements": [{"type": "assert-table-uuid", "uuid": self._uuid}],
            "updates": [{"action": "add-commit", "commit": commit}],
        }
        try:
            _asked(self._url, body)
        except urllib.error.HTTPError as error:
            return error.code
        return 200


def _asked(url: str, body: object = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
