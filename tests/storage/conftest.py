"""Servers that the storage tests talk to, on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any

import pytest


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Runs a bound server in a thread for the length of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    """The storage options of an S3 server with the bucket `lake`."""
    pytest.importorskip("moto", reason="moto, the S3 of these tests, isn't installed")
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_: Any) -> None:
            pass

    # One request at a time: moto's own put-if-absent looks first and writes then.
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=False, request_handler=Quiet)
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
        objects: what it holds, by the path of the URL.
        puts: how many PUTs came.
    """

    options: dict[str, str] = field(default_factory=dict)
    put_status: int | None = 200
    put_body: bytes = b""
    keeps: bool = True
    refuses: bool = True
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
            self._answer(404 if found is None else 200, found or b"")

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            script.objects.clear()
            self._answer(200, b"<DeleteResult></DeleteResult>")

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
