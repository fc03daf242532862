"""A server that answers the clients of `bench.suites.served`, and only makes one durable file for
each commit: `python -m bench.empty_server FOLDER PROCESSES`.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

_FOLDER = "TXLAKE_BENCH_FOLDER"
_PATH = "/api/2.1/unity-catalog/delta/v1/catalogs/{lake}/schemas/{schema}/tables/{table}"


async def _load(request: Request) -> JSONResponse:
    folder = Path(os.environ[_FOLDER]) / request.path_params["table"]
    (folder / "_delta_log/_staged_commits").mkdir(parents=True, exist_ok=True)
    properties = {"delta.lastCommitTimestamp": str(time.time_ns() // 1_000_000)}
    metadata = {
        "location": folder.as_uri(),
        "table-uuid": str(uuid.uuid4()),
        "properties": properties,
    }
    return JSONResponse({"metadata": metadata})


async def _commit(request: Request) -> JSONResponse:
    await request.json()
    file = Path(os.environ[_FOLDER]) / request.path_params["table"] / f"{uuid.uuid4()}.json"
    with file.open("wb") as made:
        made.write(b"{}")
        made.flush()
        os.fsync(made.fileno())
    return JSONResponse({})


app = Starlette(
    routes=[
        Route(_PATH, _load, methods=["GET"]),
        Route(_PATH, _commit, methods=["POST"]),
    ]
)


if __name__ == "__main__":
    os.environ[_FOLDER] = sys.argv[1]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    uvicorn.run("bench.empty_server:app", port=port, workers=int(sys.argv[2]), access_log=False)
