"""HDFS by its HTTP interface: name nodes, lost replies, gateways, refusals and options."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.storage.conftest import Placed, Scripted
from tests.storage.proxy import Fault, Proxy, Request, at_new_port, proxying, serving
from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.ports import PutOutcome, Store
from txlake.storage import open_store
from txlake.storage.hdfs.store import HdfsStore, translate_error
from txlake.storage.hdfs.webhdfs import (
    REFUSALS,
    REFUSING_STATUSES,
    WebHdfs,
    WebHdfsError,
    client_of,
    path_of,
)

CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


def _failure(kind: str, message: str = "of the test") -> bytes:
    return json.dumps({"RemoteException": {"exception": kind, "message": message}}).encode()


@dataclass
class NameNode:
    """A name node that keeps files in memory and, where the test says so, answers otherwise.

    Attributes:
        answers: by operation, the status and the body that are answered instead.
        overwrites: whether a rename replaces what has the name.
        knows_options: whether a rename heeds its options; gateways don't.
        asked: the operations, in order.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    overwrites: bool = False
    knows_options: bool = True
    asked: list[str] = field(default_factory=list)
    who: list[dict[str, str]] = field(default_factory=list)

    def carry_out(self, operation: str, path: str, query: dict[str, str], body: bytes) -> Any:
        match operation:
            case "CREATE":
                self.files[path] = body
                return b""
            case "OPEN":
                return self.files[path]
            case "GETFILESTATUS":
                return {"FileStatus": self._status(path, "")}
            case "LISTSTATUS":
                names = [each for each in self.files if each.startswith(f"{path}/")]
                found = [self._status(each, each[len(path) + 1 :]) for each in names]
                return {"FileStatuses": {"FileStatus": found}}
            case "DELETE":
                return {"boolean": self.files.pop(path, None) is not None}
            case _:
                return self._rename(path, query)

    def _rename(self, path: str, query: dict[str, str]) -> Any:
        target, options = query["destination"], query.get("renameoptions", "")
        if not self.knows_options:
            options = ""
        if not options and path not in self.files:
            return {"boolean": False}
        data = self.files[path]
        if target in self.files and not self.overwrites and options != "OVERWRITE":
            if not options:
                return {"boolean": False}
            return 403, _failure("FileAlreadyExistsException", "rename destination exists")
        del self.files[path]
        self.files[target] = data
        return b"" if options else {"boolean": True}

    def _status(self, path: str, name: str) -> dict[str, object]:
        size = len(self.files[path])
        return {"pathSuffix": name, "type": "FILE", "length": size, "modificationTime": 1}


@pytest.fixture
def node() -> Iterator[NameNode]:
    script = NameNode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            operation, path = query["op"], unquote(parts.path.removeprefix("/webhdfs/v1"))
            moves_bytes = operation in {"CREATE", "OPEN"}
            if moves_bytes and "here" not in query:
                script.who.append(query)
                self.send_response(307)
                self.send_header("Location", f"{script.address}{self.path}&here=1")
                self._finish(b"")
                return
            script.asked.append(operation)
            answer: Any = script.answers.get(operation)
            if answer is None:
                try:
                    answer = script.carry_out(operation, path, query, body)
                except KeyError:
                    answer = 404, _failure("FileNotFoundException")
            status, answer = answer if isinstance(answer, tuple) else (200, answer)
            self.send_response(status)
            self._finish(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        do_PUT = do_DELETE = do_GET  # noqa: N815

        def _finish(self, body: bytes) -> None:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = at_new_port(lambda: ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    server.daemon_threads = True
    script.address = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        yield script


def _store(node: NameNode, **options: str) -> Store:
    return open_store("hdfs://cluster/t", {"webhdfs_endpoint": node.address, **options})


def _hidden(node: NameNode) -> list[str]:
    return [each for each in node.files if ".txlake-" in each]


# --- put-if-absent -----------------------------------------------------------------------------


def test_an_object_gets_its_name_when_it_is_whole(node: NameNode) -> None:
    store = _store(node)
    assert store.put_if_absent("log/0", b"x") is CREATED
    assert node.asked == ["CREATE", "RENAME"]
    assert store.put_if_absent("log/0", b"y") is EXISTS
    assert node.files == {"/t/log/0": b"x"}


def test_a_client_that_overwrites_is_refused_by_name(node: NameNode) -> None:
    node.overwrites = True
    with pytest.raises(InvalidRequest, match="the store hdfs://cluster/t is unsafe"):
        _store(node, webhdfs_user="a").ensure_safe()
    assert node.files == {}


def test_a_gateway_whose_rename_knows_no_options(node: NameNode) -> None:
    node.knows_options = False
    store = _store(node, max_retries="0")
    store.ensure_safe()
    assert store.put_if_absent("x", b"1") is CREATED
    assert store.put_if_absent("x", b"2") is EXISTS
    store.put("y", b"1")
    with pytest.raises(InvalidRequest, match="the name node's own WebHDFS instead of this gateway"):
        store.put("y", b"2")
    assert node.files == {"/t/x": b"1", "/t/y": b"1"}


@pytest.mark.parametrize(
    ("fault", "kept"),
    [
        (Fault.CUT, False),
        (Fault.DONE_AND_CUT, True),
        (Fault.ERROR_500, False),
        (Fault.DONE_AND_503, True),
        (Fault.HALF, True),
    ],
)
def test_a_rename_whose_reply_was_lost_is_unknown_and_never_repeated(
    node: NameNode, fault: Fault, kept: bool
) -> None:
    def plan(request: Request) -> Fault | None:
        return fault if "op=RENAME" in request.target else None

    with proxying(Proxy(node.address, plan)) as proxy:
        store = open_store("hdfs://cluster/t", {"webhdfs_endpoint": proxy.address})
        outcome = store.put_if_absent("log/0", b"x")
    # Half of an answer that is empty is all of it.
    assert outcome is (CREATED if fault is Fault.HALF else UNKNOWN)
    assert node.asked.count("RENAME") == int(kept)
    assert node.files == ({"/t/log/0": b"x"} if kept else {})


def test_a_rename_that_arrives_late_finds_nothing(node: NameNode) -> None:
    faults = iter([Fault.LATE])

    def plan(request: Request) -> Fault | None:
        return next(faults, None) if "op=RENAME" in request.target else None

    with proxying(Proxy(node.address, plan)) as proxy:
        store = open_store("hdfs://cluster/t", {"webhdfs_endpoint": proxy.address})
        assert store.put_if_absent("log/0", b"first") is UNKNOWN
        assert store.put_if_absent("log/0", b"again") is CREATED
        proxy.settle()
        assert store.get("log/0") == b"again"
    assert _hidden(node) == []


@pytest.mark.parametrize(("knows_options", "outcome"), [(True, UNKNOWN), (False, EXISTS)])
def test_a_rename_that_came_twice_is_no_refusal(
    node: NameNode, knows_options: bool, outcome: PutOutcome
) -> None:
    # The second time its file is gone, and that answer can't say that the first one worked.
    node.knows_options = knows_options

    def plan(request: Request) -> Fault | None:
        return Fault.TWICE if "op=RENAME" in request.target else None

    with proxying(Proxy(node.address, plan)) as proxy:
        store = open_store("hdfs://cluster/t", {"webhdfs_endpoint": proxy.address})
        assert store.put_if_absent("log/0", b"x") is outcome
    assert node.files == {"/t/log/0": b"x"}


def test_a_gateway_that_lost_the_hidden_file(node: NameNode) -> None:
    node.answers["RENAME"] = 200, b'{"boolean": false}'
    assert _store(node).put_if_absent("log/0", b"x") is UNKNOWN
    assert node.files == {}


def test_what_was_not_written_whole_gets_no_name(node: NameNode) -> None:
    node.answers["CREATE"] = 403, _failure("IOException", "no data node has room")
    store = _store(node, max_retries="0")
    for put in (store.put, store.put_if_absent):
        with pytest.raises(Unavailable, match="no data node has room; try again"):
            put("log/0", b"x")
    assert "RENAME" not in node.asked


# --- name nodes --------------------------------------------------------------------------------


def test_the_name_node_that_is_active_answers(node: NameNode, closed_port: int) -> None:
    gone = f"http://127.0.0.1:{closed_port}"
    store = _store(node, webhdfs_endpoint=f"{gone}, {node.address}/")
    store.put("x", b"1")
    assert store.get("x") == b"1"


@pytest.mark.parametrize("kind", ["StandbyException", "RetriableException", "SafeModeException"])
def test_a_name_node_that_is_not_active_is_asked_again(node: NameNode, kind: str) -> None:
    node.files["/t/x"] = b"1"
    node.answers["GETFILESTATUS"] = 403, _failure(kind)
    with pytest.raises(Unavailable, match=kind):
        _store(node, max_retries="2").head("x")
    assert node.asked == ["GETFILESTATUS"] * 3
    node.answers["RENAME"] = 403, _failure(kind)
    with pytest.raises(Unavailable, match=kind):  # surely not carried out
        _store(node).put_if_absent("y", b"")


def test_a_redirect_to_nowhere(node: NameNode) -> None:
    node.files["/t/x"] = b"1"
    real, node.address = node.address, "http://nowhere:port"
    with pytest.raises(Unavailable, match="nowhere:port can't be reached"):
        open_store("hdfs://c/t", {"webhdfs_endpoint": real, "max_retries": "0"}).get("x")


def test_nobody_there(closed_port: int) -> None:
    options = {"webhdfs_endpoint": f"http://127.0.0.1:{closed_port}", "max_retries": "0"}
    store = open_store("hdfs://cluster/t", options)
    calls: list[Callable[[], object]] = [
        lambda: store.get("x"),
        lambda: store.get_range("x", 0, 1),
        lambda: store.head("x"),
        lambda: list(store.list("")),
        lambda: store.put("x", b""),
        lambda: store.put_if_absent("x", b""),
        lambda: store.delete(["x"]),
        lambda: store.sweep("", 0),
        store.ensure_safe,
    ]
    for call in calls:
        with pytest.raises(Unavailable, match="try again when HDFS answers") as caught:
            call()
        assert "hdfs://cluster/t" in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"<html>hello</html>", b"[]", b'{"boolean": 1}'])
def test_an_answer_that_is_not_of_webhdfs(node: NameNode, body: bytes) -> None:
    for operation in ("GETFILESTATUS", "LISTSTATUS", "DELETE"):
        node.answers[operation] = 200, body
    store = _store(node, max_retries="0")
    for call in (lambda: store.head("x"), lambda: list(store.list("")), lambda: store.delete("x")):
        with pytest.raises(Unavailable, match="an answer that isn't WebHDFS's"):
            call()


def test_an_answer_that_says_nothing_of_a_rename(node: NameNode) -> None:
    node.answers["RENAME"] = 200, b"<html>hello</html>"
    assert _store(node).put_if_absent("x", b"1") is UNKNOWN


# --- refusals ----------------------------------------------------------------------------------

TABLE = [
    (403, "AccessControlException", InvalidRequest, "webhdfs_user"),
    (403, "DSQuotaExceededException", InvalidRequest, "quota"),
    (403, "NSQuotaExceededException", InvalidRequest, "quota"),
    (403, "FileAlreadyExistsException", InvalidRequest, "in the way"),
    (400, "IllegalArgumentException", InvalidRequest, "correct the location"),
    (400, "InvalidPathException", InvalidRequest, "colon"),
    (403, "PathComponentTooLongException", InvalidRequest, "shorter"),
    (403, "ParentNotDirectoryException", InvalidRequest, "in the way"),
    (401, "SecurityException", InvalidRequest, "delegation token"),
    (400, "UnsupportedOperationException", InvalidRequest, "gateway"),
    (401, "", InvalidRequest, "delegation token"),
    (404, "", InvalidRequest, "correct the location"),
    (501, "", InvalidRequest, "correct the location"),
    (403, "IOException", Unavailable, "try again"),
    (403, "StandbyException", Unavailable, "try again"),
    (500, "RuntimeException", Unavailable, "try again"),
    (500, "", Unavailable, "try again"),
    (503, "", Unavailable, "try again"),
    (None, "", Unavailable, "try again"),
]


@pytest.mark.parametrize(("status", "kind", "expected", "advice"), TABLE)
def test_each_error(
    status: int | None, kind: str, expected: type[TxlakeError], advice: str
) -> None:
    error = WebHdfsError(f"{kind}: reason\nmore", kind=kind, status=status, may_be_done=True)
    found = translate_error(error, "write", "hdfs://c/t/x")
    assert type(found) is expected
    assert re.fullmatch(rf"can't write hdfs://c/t/x: .*reason more; .*{advice}.*", str(found))


def test_each_refusal_has_its_advice() -> None:
    for kind in REFUSALS:
        error = WebHdfsError(kind, kind=kind, status=403, may_be_done=True)
        assert not error.may_be_done
        assert isinstance(translate_error(error, "write", "hdfs://c/t/x"), InvalidRequest)
    for status in REFUSING_STATUSES:
        error = WebHdfsError("", status=status, may_be_done=True)
        assert not error.may_be_done
        assert isinstance(translate_error(error, "write", "hdfs://c/t/x"), InvalidRequest)


def test_a_file_where_a_folder_is_needed(node: NameNode) -> None:
    node.answers["CREATE"] = 403, _failure("ParentNotDirectoryException", "/t/a is not a directory")
    with pytest.raises(InvalidRequest, match="stands in the way"):
        _store(node).put_if_absent("a/b", b"")


def test_a_hidden_file_that_was_swept_meanwhile(node: NameNode) -> None:
    node.answers["RENAME"] = 404, _failure("FileNotFoundException")
    assert _store(node).put_if_absent("x", b"1") is UNKNOWN
    with pytest.raises(Unavailable, match="FileNotFoundException"):
        _store(node, max_retries="1").put("x", b"1")
    assert node.asked.count("RENAME") == 3
    assert node.files == {}


def test_sweeping(node: NameNode) -> None:
    node.files = {f"/t/{name}": b"" for name in (".txlake-a.tmp", ".txlake-b", "c.tmp")}
    store = _store(node)
    assert [each.path for each in store.list("")] == [".txlake-b", "c.tmp"]
    store.sweep("", 1)
    assert len(node.files) == 3
    store.sweep("", 2)
    assert sorted(node.files) == ["/t/.txlake-b", "/t/c.tmp"]


# --- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"webhdfs_endpont": "http://h:1"}, "webhdfs_endpont is not known; known are"),
        ({"webhdfs_endpoint": "h:9870"}, "is like http://host:9870"),
        ({"webhdfs_endpoint": "http://h:9870/webhdfs/v1"}, "is like http://host:9870"),
        ({"webhdfs_endpoint": "http://h:9870,"}, "is like http://host:9870"),
        ({"webhdfs_endpoint": "http://h:port"}, "is like http://host:9870"),
        ({"webhdfs_endpoint": "http://ann:word@h:9870"}, r"not 'http://\*\*\*@h:9870'"),
        ({"webhdfs_timeout": "soon"}, "is a number of seconds, not 'soon'"),
        ({"webhdfs_timeout": "0"}, "is a number of seconds"),
        ({"webhdfs_timeout": "inf"}, "is a number of seconds"),
        ({"max_retries": "many"}, "is a whole number"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        open_store("hdfs://cluster/t", options)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("hdfs://host:8020/t", "http://host:9870"),
        ("hdfs://host", "http://host:9870"),
        ("webhdfs://host:1234/t", "http://host:1234"),
        ("webhdfs://host/t", "http://host:9870"),
        ("swebhdfs://host/t", "https://host:9871"),
        ("webhdfs://[::1]:1234", "http://[::1]:1234"),
    ],
)
def test_where_the_name_node_is(url: str, endpoint: str) -> None:
    assert client_of(url, {"aws_region": "of another store"}) == WebHdfs((endpoint,))


def test_a_bucket_takes_no_notice_of_them(scripted: Scripted) -> None:
    store = open_store("s3://bucket/t", {**scripted.options, "WebHDFS_user": "ann"})
    store.put("x", b"1")
    assert store.get("x") == b"1"


def test_who_asks(node: NameNode) -> None:
    _store(node, webhdfs_user="ann").put("x", b"")
    assert node.who.pop()["user.name"] == "ann"
    token = "secret-of-the-test"
    store = _store(node, webhdfs_user="ann", webhdfs_token=token)
    store.put("x", b"")
    asked = node.who.pop()
    assert (asked["delegation"], asked.get("user.name")) == (token, None)
    assert isinstance(store, HdfsStore)
    assert token not in repr(store) + repr(store._client) + str(vars(type(store)))
    node.answers["GETFILESTATUS"] = 403, _failure("AccessControlException", "no")
    with pytest.raises(InvalidRequest) as caught:
        store.head("x")
    assert token not in str(caught.value) + repr(caught.value.__cause__)


def test_paths_of_urls() -> None:
    assert path_of("hdfs://host/a%20b/%25") == "/a b/%"
    assert path_of("hdfs://host") == "/"


def test_a_server_that_stays_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        options = {"webhdfs_endpoint": address, "webhdfs_timeout": "0.05", "max_retries": "0"}
        with pytest.raises(Unavailable, match="TimeoutError"):
            open_store("hdfs://cluster/t", options).head("x")


# --- the real one ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["hdfs"], indirect=True)
def test_a_root_is_a_place_too(place: Placed) -> None:
    root = open_store(place.url.split("/test_")[0], place.options)
    below = root.at("root of the test")
    below.put("a b", b"1")
    assert root.get("root of the test/a b") == b"1"
    assert "root of the test/a b" in [each.path for each in root.list("")]
    root.delete(["root of the test/a b"])


@pytest.mark.parametrize("place", ["hdfs"], indirect=True)
def test_many_may_replace_one_object(place: Placed) -> None:
    store = place.store
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait(120)
        for _ in range(5):
            store.put("x", bytes([number]) * 1000)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert len(set(store.get("x"))) == 1
    assert [each.path for each in store.list("")] == ["x"]


def test_nothing_of_it_is_loaded_for_other_places() -> None:
    program = (
        "import sys, txlake; txlake.Log('memory://a'); txlake.Log('s3://bucket/t'); "
        "assert not [name for name in sys.modules if name.startswith('txlake.storage.hdfs')]; "
        "txlake.Log('hdfs://host/t'); "
        "assert 'txlake.storage.hdfs.store' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
