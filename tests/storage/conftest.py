"""Servers that the storage tests talk to, on this machine."""

from __future__ import annotations

import io
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.storage import servers
from tests.storage.proxy import GoogleFront, at_new_port, proxying, serving
from txlake.commit.branch_store import BranchStore
from txlake.ports import Store
from txlake.storage import canonical_url, join_url, open_store


def _one_at_a_time(application: Callable[..., Any]) -> Callable[..., list[bytes]]:
    """Carry out one request at a time, as moto's own put-if-absent looks first and writes then.

    A request is read before its turn: a client that stands still stops no other.
    """
    lock = threading.Lock()

    def serve(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        length = environ.get("CONTENT_LENGTH")
        if length:
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with lock:
            return list(application(environ, start))

    return serve


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run an S3 server with the bucket `lake`, and yield its storage options."""
    pytest.importorskip("moto", reason="moto, the S3 of these tests, isn't installed")
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_: Any) -> None:
            pass

    application = _one_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = at_new_port(
        lambda: make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    )
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "access",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "max_retries": "0",
    }
    with serving(server):
        with s3_client(options) as client:
            client.create_bucket(Bucket="lake")
        yield options


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    """The storage options of an S3 server with the bucket `lake`."""
    with s3_server() as options:
        yield options


@pytest.fixture(scope="session")
def servers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def azure_options(servers_folder: Path) -> Iterator[dict[str, str]]:
    """The storage options of an Azure store with the container `lake`."""
    with servers.azure_server(servers_folder) as options:
        yield options


@pytest.fixture(scope="session")
def gcs_options(servers_folder: Path) -> Iterator[dict[str, str]]:
    """The storage options of a Google store with the bucket `lake`."""
    with servers.gcs_server(servers_folder) as address, proxying(GoogleFront(address)) as front:
        yield servers.gcs_options_of(front.address)


@pytest.fixture(scope="session")
def hdfs(servers_folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of an HDFS, and the storage options to reach it."""
    with servers.hdfs_cluster(servers_folder) as cluster:
        yield cluster


@dataclass(frozen=True)
class Placed:
    """Where a test may make stores: below a URL, with these storage options."""

    url: str
    options: dict[str, str]

    @property
    def store(self) -> Store:
        return open_store(self.url, self.options)


@dataclass(frozen=True)
class BranchPlaced(Placed):
    """Where a table is, of which the test uses a branch."""

    @property
    def store(self) -> Store:
        return BranchStore(open_store(self.url, self.options), "the-branch", 3)


STORES = ("local", "memory", "s3", "azure", "gcs", "hdfs")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Placed:
    """An empty place in the store that the test is parametrised with."""
    name = re.sub(r"[/:\\\\]", "_", request.node.name)
    match request.param:
        case "local":
            return Placed(join_url(canonical_url(tmp_path), "not yet/there"), {})
        case "memory":
            return Placed(join_url("memory://contract", f"{name}/root"), {})
        case "branch":
            return BranchPlaced(join_url("memory://contract", f"{name}/root"), {})
        case "s3":
            return Placed(
                join_url("s3://lake", f"{name}/root"), request.getfixturevalue("s3_options")
            )
        case "azure":
            options = request.getfixturevalue("azure_options")
            return Placed(join_url("az://lake", f"{name}/root"), options)
        case "gcs":
            options = request.getfixturevalue("gcs_options")
            return Placed(join_url("gs://lake", f"{name}/root"), options)
        case _:
            url, options = request.getfixturevalue("hdfs")
            return Placed(join_url(url, f"{name}/root"), options)


@contextmanager
def s3_client(options: dict[str, str]) -> Iterator[Any]:
    """boto3's client of that server, for what no store of ours does."""
    boto3 = pytest.importorskip("boto3", reason="boto3, which makes buckets, isn't installed")
    client = boto3.client(
        "s3",
        endpoint_url=options["AWS_ENDPOINT_URL"],
        aws_access_key_id=options["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
        region_name=options["AWS_REGION"],
    )
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def closed_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        port = each.getsockname()[1]
        assert isinstance(port, int)
        return port


@dataclass
class Scripted:
    """An S3-like server that does what the test says.

    Attributes:
        options: the storage options to reach it.
        put_status: the answer to a PUT; None closes the connection without one, 0 gives none at
            all while the test runs.
        put_body: the body of that answer.
        keeps: whether a PUT is carried out, whatever is answered.
        refuses: whether If-None-Match is heeded.
        e_tag: what the answer to a PUT calls the object, if it does; others call it 1.
        head_status: the answer to a HEAD of an object that is there.
        objects: what it holds, by the path of the URL.
        puts: how many PUTs came.
    """

    options: dict[str, str] = field(default_factory=dict)
    put_status: int | None = 200
    put_body: bytes = b""
    keeps: bool = True
    refuses: bool = True
    e_tag: str | None = '"1"'
    head_status: int = 200
    objects: dict[str, bytes] = field(default_factory=dict)
    puts: int = 0
    over: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            script.puts += 1
            conditional = self.headers.get("If-None-Match") == "*"
            if conditional and script.refuses and self.path in script.objects:
                return self._answer(412)
            if script.keeps:
                script.objects[self.path] = data
            if not script.put_status:
                if script.put_status == 0:
                    script.over.wait(timeout=60)
                self.close_connection = True
                return None
            return self._answer(script.put_status, script.put_body)

        def do_GET(self) -> None:
            found = script.objects.get(self.path)
            there = script.head_status if self.command == "HEAD" else 200
            self._answer(404 if found is None else there, found or b"")

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            script.objects.clear()
            self._answer(200, b"<DeleteResult></DeleteResult>")

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            e_tag = script.e_tag if self.command == "PUT" else '"1"'
            if e_tag is not None:
                self.send_header("ETag", e_tag)
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = at_new_port(lambda: ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    server.daemon_threads = True
    script.options = {
        "endpoint": f"http://127.0.0.1:{server.server_port}",
        "access_key_id": "AKIAABCDEFGHIJKLMNOP",
        "secret_access_key": "secret-of-the-test",
        "region": "us-east-1",
        "allow_http": "true",
        "max_retries": "0",
    }
    with serving(server):
        yield script
        script.over.set()
