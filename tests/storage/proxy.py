"""A proxy between a store's client and its server, which does to requests what a test wants.

What a fault means for the request is in its name: whether it was carried out, and what the client
hears of it.
"""

from __future__ import annotations

import http.client
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Protocol, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

_OF_ONE_HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length"}
_OF_THE_PROXY = _OF_ONE_HOP | {"date", "server"}
_LISTS = re.compile(r"list-type=2|comp=list")
_WHERE_A_LIST_STARTS = re.compile(r"&?(start-after|startFrom|marker|continuation-token)=[^&]*")
_LATE_AFTER_REQUESTS = 6


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The target, decoded."""
        return unquote(self.target)

    @property
    def listing(self) -> str | None:
        """What is listed, wherever the list starts; None for other requests."""
        if self.method != "GET" or _LISTS.search(self.target) is None:
            return None
        return _WHERE_A_LIST_STARTS.sub("", self.target)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Fault(Enum):
    """What happens to one request."""

    SLOW = "carried out, answered late"
    ERROR_500 = "not carried out, answered 500"
    ERROR_503 = "not carried out, answered 503"
    DONE_AND_500 = "carried out, answered 500"
    DONE_AND_503 = "carried out, answered 503"
    CUT = "not carried out, connection closed"
    DONE_AND_CUT = "carried out, connection closed"
    HALF = "carried out, half of the answer"
    SILENT = "not carried out, no answer"
    DONE_AND_SILENT = "carried out, no answer"
    LATE = "connection closed, carried out after later requests"
    TWICE = "carried out twice, answered the second time's answer"
    LIES = "not carried out, answered that it was"
    LIES_WITHOUT_ETAG = "not carried out, answered 200 by somebody in between"
    STALE = "answered what was true before"


FAILING = (
    *(Fault.SLOW, Fault.ERROR_500, Fault.ERROR_503, Fault.DONE_AND_500, Fault.DONE_AND_503),
    *(Fault.CUT, Fault.DONE_AND_CUT, Fault.HALF, Fault.LATE, Fault.TWICE),
)
LYING = (Fault.LIES, Fault.LIES_WITHOUT_ETAG, Fault.STALE)

# What is done to a request: a fault, or an answer in the server's place without carrying it out.
Plan = Callable[[Request], Fault | Answer | None]


def by_chance(seed: int, share: float, faults: tuple[Fault, ...], of: str = "") -> Plan:
    """A share of the requests whose target has the pattern `of` meet the faults, one by one."""
    chance, pattern = random.Random(seed), re.compile(of)
    rest: list[Fault] = []

    def plan(request: Request) -> Fault | None:
        if pattern.search(request.text) is None or chance.random() >= share:
            return None
        if not rest:
            rest.extend(chance.sample(faults, len(faults)))
        suiting = [each for each in rest if suits(each, request)]
        if not suiting:
            return None
        rest.remove(suiting[0])
        return suiting[0]

    return plan


def suits(fault: Fault, request: Request) -> bool:
    """Whether the fault means something for such a request."""
    if fault in {Fault.LIES, Fault.LIES_WITHOUT_ETAG}:
        return request.method == "PUT"
    return fault is not Fault.STALE or request.method in {"GET", "HEAD"}


class _Listening(Protocol):
    server_port: int

    def server_close(self) -> None: ...


S = TypeVar("S", bound=_Listening)
_ports_used: set[int] = set()


def at_new_port(make: Callable[[], S]) -> S:
    """Make a server at a port that this process has had no server at.

    A store's clients, and that it passed the self-test, are kept by its address: those of a server
    that is gone must not be taken for those of another at the same port.
    """
    known: list[S] = []
    while (server := make()).server_port in _ports_used:
        known.append(server)  # open until another port is found
    for each in known:
        each.server_close()
    _ports_used.add(server.server_port)
    return server


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Run a bound server in a thread for the length of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join(120)
        server.server_close()


class Proxy:
    """The proxy in front of one server; `met` counts the faults."""

    def __init__(self, upstream: str, plan: Plan = lambda _: None) -> None:
        self.plan = plan
        self.met: Counter[Fault] = Counter()
        self.upstream = urlsplit(upstream).netloc
        self.address = ""
        self._late: list[tuple[int, Request]] = []
        self._listed: dict[str, Answer] = {}
        self._count = 0
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """The server's answer."""
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in _OF_ONE_HOP}
            body = request.body or (b"" if request.method in {"PUT", "POST"} else None)
            connection.request(request.method, request.target, body, headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def decide(self, request: Request) -> Fault | Answer | None:
        """The fault of a request, or the answer in its place; sends what is late and due."""
        with self._lock:
            self._count += 1
            due = [late for when, late in self._late if when <= self._count]
            self._late = [each for each in self._late if each[0] > self._count]
            fault = self.plan(request)
            if fault is Fault.LATE:
                self._late.append((self._count + _LATE_AFTER_REQUESTS, request))
            if isinstance(fault, Fault):
                self.met[fault] += 1
        for late in due:
            self.answer(late)
        return fault

    def settle(self) -> None:
        """Send all that is late."""
        with self._lock:
            due, self._late = self._late, []
        for _, late in due:
            self.answer(late)

    def note(self, request: Request, answer: Answer) -> None:
        """Remembers what was listed."""
        if (listing := request.listing) is not None:
            self._listed[listing] = answer

    def before(self, request: Request) -> Answer:
        """What was true before: the list that was given last, and no object."""
        listing = request.listing
        if listing is None:
            return Answer(404)
        return self._listed.get(listing) or self.answer(request)


@contextmanager
def proxying(proxy: Proxy) -> Iterator[Proxy]:
    """Run the proxy; its address is then at `proxy.address`."""

    class Handler(_Handler):
        pass

    Handler.proxy = proxy

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            """A client that went away in the middle of an answer."""

    server = at_new_port(lambda: Server(("127.0.0.1", 0), Handler))
    proxy.address = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        yield proxy
        proxy.settle()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy

    def do_GET(self) -> None:
        request = Request(self.command, self.path, dict(self.headers), self._body())
        fault = self.proxy.decide(request)
        match fault:
            case Answer():
                return self._say(fault)
            case Fault.ERROR_500 | Fault.ERROR_503:
                return self._say(Answer(int(fault.name[-3:])))
            case Fault.CUT | Fault.LATE:
                return self._cut()
            case Fault.SILENT:
                return self._wait()
            case Fault.LIES:
                return self._say(Answer(200, {"ETag": '"0123456789abcdef0123456789abcdef"'}))
            case Fault.LIES_WITHOUT_ETAG:
                return self._say(Answer(200, {}, b"<html>welcome to this network</html>"))
            case Fault.STALE:
                return self._say(self.proxy.before(request))
        answer = self.proxy.answer(request)
        self.proxy.note(request, answer)
        match fault:
            case Fault.DONE_AND_500 | Fault.DONE_AND_503:
                return self._say(Answer(int(fault.name[-3:])))
            case Fault.DONE_AND_CUT:
                return self._cut()
            case Fault.DONE_AND_SILENT:
                return self._wait()
            case Fault.HALF:
                self._say(answer, half=True)
                return self._cut()
            case Fault.SLOW:
                threading.Event().wait(0.05)
            case Fault.TWICE:
                answer = self.proxy.answer(request)
        return self._say(answer)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _say(self, answer: Answer, *, half: bool = False) -> None:
        self.send_response(answer.status)
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in _OF_THE_PROXY}
        length = str(len(answer.body))
        if self.command == "HEAD":
            kept = {k.lower(): v for k, v in answer.headers.items()}
            length = kept.get("content-length", length)
        for name, value in {**headers, "Content-Length": length}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: len(answer.body) // 2] if half else answer.body)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _wait(self) -> None:
        """Says nothing until the client has lost patience."""
        self.connection.settimeout(60)
        self.connection.recv(1)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class GoogleFront(Proxy):
    """Before fake-gcs-server: it takes plain uploads by Google's JSON interface alone, and so are
    those of the XML interface, which clients send, sent on."""

    def __init__(self, upstream: str, plan: Plan = lambda _: None) -> None:
        super().__init__(upstream, plan)
        self._parts: dict[str, dict[int, bytes]] = {}

    def answer(self, request: Request) -> Answer:
        parts = urlsplit(request.target)
        query = parse_qs(parts.query, keep_blank_values=True)
        if request.method == "POST" and "uploads" in query:
            number = str(len(self._parts))
            self._parts[number] = {}
            begun = "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>"
            begun += f"{number}</UploadId></InitiateMultipartUploadResult>"
            return Answer(200, {}, begun.encode())
        if request.method == "PUT" and "uploadId" in query:
            self._parts[query["uploadId"][0]][int(query["partNumber"][0])] = request.body
            return Answer(200, {"ETag": '"part"'})
        if request.method == "POST" and "uploadId" in query:
            uploaded = self._parts.pop(query["uploadId"][0])
            body = b"".join(data for _, data in sorted(uploaded.items()))
            made = self._upload(parts.path, replace(request, body=body))
            done = b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
            return made if made.status != 200 else Answer(200, {}, done)
        if request.method == "PUT":
            return self._upload(parts.path, request)
        return super().answer(request)

    def _upload(self, path: str, request: Request) -> Answer:
        _, bucket, name = path.split("/", 2)
        wanted = {k.lower(): v for k, v in request.headers.items()}
        condition = wanted.get("x-goog-if-generation-match")
        target = (
            f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(unquote(name), safe='')}"
        )
        if condition is not None:
            target += f"&ifGenerationMatch={condition}"
        headers = {"Content-Type": "application/octet-stream"}
        made = super().answer(Request("POST", target, headers, request.body))
        if made.status != 200:
            return Answer(made.status, {}, made.body)
        there = super().answer(Request("HEAD", path, {}, b""))
        return Answer(200, {k: v for k, v in there.headers.items() if k.lower() == "etag"})
