"""The stores behind the proxy: moto's S3 and azurite, each a process of its own.

`python -m bench.far.stores` serves moto alone, prints its port, and runs until it is ended.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.far.measuring import FarStore
from bench.sources.lakes import postgresql_server
from bench.stage import NotHere

BUCKET = "far"
KINDS = ("s3", "azurite", "postgresql")
_AZURITE = Path(__file__).resolve().parents[2] / ".cache/servers/azurite"
_AZURITE_PROGRAM = _AZURITE / "node_modules/azurite/dist/src/blob/main.js"
_START_LIMIT_S = 60
# The account that every azurite has.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True, slots=True)
class RunningStore:
    """A store behind its proxy.

    Attributes:
        address: the proxy's.
        url: the bucket.
        options: the storage options, as txlake and delta-rs take them.
        database: the folder of the delayed socket of a PostgreSQL server, where that is what is far
            away; the files are on this machine then.
    """

    address: str
    url: str
    options: Mapping[str, str]
    database: str | None = None

    @property
    def proxy(self) -> FarStore:
        """The account of requests."""
        return FarStore(self.address)


@contextmanager
def running_store(kind: str) -> Iterator[RunningStore]:
    """Run a store of that kind and its proxy while the block runs. Of the kind `postgresql` it is a
    folder of this machine, and the proxy that of a database.

    Raises:
        NotHere: azurite isn't installed.
    """
    if kind == "postgresql":
        with tempfile.TemporaryDirectory(prefix="far_") as folder:
            server_folder = str(postgresql_server().query["host"])
            with _program("bench.far.database_proxy", server_folder, folder) as proxy_port:
                address = f"http://127.0.0.1:{proxy_port}"
                yield RunningStore(address, f"file://{folder}/files", {}, folder)
        return
    server = _azurite() if kind == "azurite" else _program("bench.far.stores")
    with server as port, _program("bench.far.proxy", f"127.0.0.1:{port}") as proxy_port:
        address = f"http://127.0.0.1:{proxy_port}"
        if kind == "azurite":
            yield RunningStore(address, f"az://{BUCKET}", _azure_options(address))
        else:
            yield RunningStore(address, f"s3://{BUCKET}", _s3_options(address))


def _s3_options(address: str) -> dict[str, str]:
    return {
        "aws_endpoint_url": address,
        "aws_access_key_id": "access",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }


def _azure_options(address: str) -> dict[str, str]:
    return {
        "azure_storage_account_name": _ACCOUNT,
        "azure_storage_account_key": _ACCOUNT_KEY,
        "azure_endpoint": f"{address}/{_ACCOUNT}",
        "allow_http": "true",
    }


@contextmanager
def _program(module: str, *arguments: str) -> Iterator[int]:
    """Run a module of the bench that prints its port."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def _azurite() -> Iterator[int]:
    node = shutil.which("node")
    if node is None or not _AZURITE_PROGRAM.exists():
        raise NotHere("azurite: tools/servers.sh brings it, and it needs node")
    port = _free_port()
    command = [node, str(_AZURITE_PROGRAM), "--inMemoryPersistence", "--silent"]
    command += ["--skipApiVersionCheck", "--disableTelemetry"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            _await_port(port, process)
            _make_container(port)
            yield port
        finally:
            process.kill()


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + _START_LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > limit:
                raise NotHere(f"azurite: it didn't start within {_START_LIMIT_S} s") from None
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _make_container(port: int) -> None:
    from pyarrow.fs import AzureFileSystem

    authority = f"127.0.0.1:{port}"
    azure = AzureFileSystem(
        _ACCOUNT,
        account_key=_ACCOUNT_KEY,
        blob_storage_authority=authority,
        blob_storage_scheme="http",
        dfs_storage_authority=authority,
        dfs_storage_scheme="http",
    )
    azure.create_dir(BUCKET, recursive=False)


def _serve_moto() -> None:
    """Serve moto's S3 with the bucket, and print the port."""
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    application = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()  # moto's put-if-absent looks first and writes then

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            pass

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        with one_at_a_time:
            return [b"".join(application(environ, start_response))]

    server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        aws_access_key_id="access",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    print(server.server_port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _serve_moto()
