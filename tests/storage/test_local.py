"""The local store's durability: nothing half visible, nothing lost, nothing left."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.ports import PutOutcome, Store
from txlake.storage import open_store
from txlake.storage.local import translate_error

SOURCE = Path(__file__).parents[2] / "src"


def _command(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", script, *map(str, arguments)]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCE)}


def _files(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


# --- processes --------------------------------------------------------------------------------

RACE = """
import json, sys
from txlake.storage import open_store
root, me, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(root)
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([
    store.put_if_absent(f"log/{number}", (me * 20000).encode()).value for number in range(rounds)
]))
"""


def test_of_many_processes_one_creates(tmp_path: Path) -> None:
    rounds = 60
    processes = [
        subprocess.Popen(
            _command(RACE, tmp_path / "t", writer, rounds),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        for writer in range(4)
    ]
    outputs: list[list[str]] = []
    try:
        for each in processes:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in processes:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        outputs.extend(json.loads(each.communicate(timeout=60)[0]) for each in processes)
    finally:
        for each in processes:
            each.kill()
            each.communicate(timeout=120)
    store = open_store(tmp_path / "t")
    for number in range(rounds):
        outcomes = [each[number] for each in outputs]
        assert sorted(outcomes) == ["created", "exists", "exists", "exists"]
        winner = str(outcomes.index("created"))
        assert store.get(f"log/{number}") == (winner * 20000).encode()
    assert _files(tmp_path / "t") == sorted(f"log/{number}" for number in range(rounds))


# A process for each step: it is killed before its n-th call of the operating system, and writes
# reach the disk in small pieces.
CRASH = """
import os, signal, sys
from txlake.storage import open_store
root, method = sys.argv[1], sys.argv[2]
data = bytes(range(256)) * 64

def dying(function, step, seen):
    def call(*arguments, **options):
        if len(seen) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(function.__name__)
        if function.__name__ == "write":
            arguments = (arguments[0], arguments[1][:8192])
        return function(*arguments, **options)
    return call

for step in range(100):
    child = os.fork()
    if child == 0:
        seen = []
        for name in ("open", "write", "fsync", "close", "link", "replace", "unlink", "mkdir"):
            setattr(os, name, dying(getattr(os, name), step, seen))
        getattr(open_store(f"{root}/{step}"), method)("log/0", data)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(step)
        break
"""


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
def test_kill_at_any_step_leaves_all_or_nothing(tmp_path: Path, method: str) -> None:
    done = subprocess.run(
        _command(CRASH, tmp_path, method),
        capture_output=True,
        text=True,
        env=_environment(),
        timeout=60,
        check=True,
    )
    steps = int(done.stdout)
    data = bytes(range(256)) * 64
    assert steps >= 10
    visible, with_left = [], []
    for step in range(steps):
        store = open_store(tmp_path / str(step))
        found = [each.path for each in store.list("")]
        assert found in ([], ["log/0"])
        visible.append(bool(found))
        if found:
            assert store.get("log/0") == data
        expected = PutOutcome.EXISTS if found else PutOutcome.CREATED
        assert store.put_if_absent("log/0", data) is expected
        left = set(_files(tmp_path / str(step))) - {"log/0"}
        store.sweep("", 1_000)  # all of them are younger
        assert set(_files(tmp_path / str(step))) == {"log/0", *left}
        with_left.append(bool(left))
        store.sweep("other", 2**53)
        store.sweep("log", 2**53)
        assert _files(tmp_path / str(step)) == ["log/0"]
    assert True in visible
    assert False in visible
    assert visible == sorted(visible)
    assert True in with_left


class Recorder:
    """The calls that matter for durability, in order, with the files that they are about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.calls: list[str] = []
        self.root = root
        self._fsync, self._link = os.fsync, os.link
        self._replace, self._unlink = os.replace, os.unlink
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "link", self.link)
        monkeypatch.setattr(os, "replace", self.replace)
        monkeypatch.setattr(os, "unlink", self.unlink)

    def _name(self, path: str) -> str:
        name = os.path.relpath(path, self.root)
        return "temporary" if ".txlake-" in name else name

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        self.calls.append("sync " + self._name(os.readlink(f"/proc/self/fd/{descriptor}")))

    def link(self, source: str, target: str) -> None:
        self._link(source, target)
        self.calls.append("link " + self._name(target))

    def replace(self, source: str, target: str) -> None:
        self._replace(source, target)
        self.calls.append("replace " + self._name(target))

    def unlink(self, path: str) -> None:
        self._unlink(path)
        self.calls.append("unlink " + self._name(path))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux's /proc")
def test_the_order_of_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch, tmp_path)
    store = open_store(tmp_path / "t")
    assert store.put_if_absent("log/0", b"x") is PutOutcome.CREATED
    assert recorder.calls == [
        "sync .",  # the folder t is durable
        "sync t",  # the folder log
        "sync temporary",
        "link t/log/0",
        "sync t/log",
        "unlink temporary",
    ]
    recorder.calls.clear()
    # No more than these two syncs: what makes a commit take half a millisecond, not ten.
    assert store.put_if_absent("log/1", b"x") is PutOutcome.CREATED
    assert recorder.calls == ["sync temporary", "link t/log/1", "sync t/log", "unlink temporary"]
    recorder.calls.clear()
    # One that is there is made durable, as its writer may not have come to that yet.
    assert store.put_if_absent("log/1", b"y") is PutOutcome.EXISTS
    assert recorder.calls == ["sync t/log"]
    recorder.calls.clear()
    store.put_unsynced("log/0.crc", b"x")
    assert recorder.calls == ["link t/log/0.crc", "unlink temporary"]
    recorder.calls.clear()
    monkeypatch.setattr(os, "unlink", recorder._unlink)  # finds nothing after a rename
    store.put("log/1", b"y")
    assert recorder.calls == ["sync temporary", "replace t/log/1", "sync t/log"]


def test_a_file_system_whose_links_overwrite_is_unsafe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", shutil.copyfile)
    with pytest.raises(InvalidRequest, match="a second put-if-absent of one object succeeded"):
        open_store(tmp_path).ensure_safe()


def test_a_file_that_appears_after_the_look_stays(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("log/0", b"theirs")
    monkeypatch.setattr(os.path, "isfile", lambda path: False)
    assert store.put_if_absent("log/0", b"ours") is PutOutcome.EXISTS
    assert store.get("log/0") == b"theirs"


def test_mode_is_what_the_user_wants(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    before = os.umask(0o027)
    try:
        store.put("a", b"")
        store.put_if_absent("b", b"")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o640]


# --- what the system refuses -------------------------------------------------------------------


def _failing(number: int, after: int = 0) -> Callable[..., Any]:
    calls = iter(range(after))

    def call(*arguments: Any, **_: Any) -> int:
        if next(calls, None) is None:
            raise OSError(number, os.strerror(number))
        return 1  # of the bytes to write

    return call


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
@pytest.mark.parametrize(
    ("function", "number", "advice"),
    [
        ("write", errno.ENOSPC, "No space left on device; free space on the disk"),
        ("write", errno.EDQUOT, "raise the quota"),
        ("fsync", errno.ENOSPC, "free space on the disk"),
        ("open", errno.EROFS, "Read-only file system; .* use another folder"),
        ("open", errno.EACCES, "Permission denied; give this user the permission"),
        ("mkdir", errno.EACCES, "give this user the permission"),
        ("mkdir", errno.EROFS, "read-only"),
    ],
)
def test_full_and_read_only_disks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    function: str,
    number: int,
    advice: str,
) -> None:
    store = open_store(tmp_path)
    store.put("old/0", b"x")
    with monkeypatch.context() as patched:
        patched.setattr(os, function, _failing(number, 3 if function == "write" else 0))
        with pytest.raises(InvalidRequest, match=advice) as caught:
            getattr(store, method)("new/0", b"data")
    assert str(tmp_path / "new/0") in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert _files(tmp_path) == ["old/0"]
    assert getattr(store, method)("new/0", b"data") in {None, PutOutcome.CREATED}
    assert store.get("new/0") == b"data"


def test_a_read_only_folder_can_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("log/0", b"x")
    system_open = os.open

    def read_only(path: str, flags: int, *mode: int, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return system_open(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", read_only)
    assert store.get("log/0") == b"x"
    assert [each.path for each in store.list("")] == ["log/0"]
    with pytest.raises(InvalidRequest, match="read-only"):
        store.ensure_safe()


MOUNTED = """
import os, subprocess, sys
from txlake.errors import InvalidRequest
from txlake.storage import open_store
folder = sys.argv[1]
def mount(*options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder], check=True)
mount("size=64k")
store = open_store(folder)
store.ensure_safe()
store.put("log/0", b"x")
for method in (store.put, store.put_if_absent):
    try:
        method("log/1", bytes(1 << 20))
    except InvalidRequest as error:
        print(error)
print([each.path for each in store.list("")], os.listdir(folder + "/log"))
mount("remount", "ro")
try:
    store.put_if_absent("log/1", b"")
except InvalidRequest as error:
    print(error)
print(store.get("log/0"))
"""


def test_a_really_full_and_read_only_disk(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    may_mount = unshare and subprocess.run(
        [unshare, "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if not may_mount or may_mount.returncode != 0:
        pytest.skip("this machine lets nobody mount a file system of their own")
    done = subprocess.run(
        [str(unshare), "-rm", *_command(MOUNTED, tmp_path)],
        capture_output=True,
        text=True,
        env=_environment(),
        timeout=60,
        check=True,
    )
    full = f"can't write {tmp_path}/log/1: No space left on device; free space on the disk"
    lines = done.stdout.splitlines()
    assert lines[0].startswith(full)
    assert lines[1].startswith(full)
    assert lines[2] == "['log/0'] ['0']"
    assert lines[3].startswith(f"can't write {tmp_path}/log/1: Read-only file system")
    assert lines[4] == "b'x'"


def test_a_folder_stands_in_the_way(store: Store) -> None:
    store.put("a/b", b"")
    for method in (store.put, store.put_if_absent):
        with pytest.raises(InvalidRequest, match="a folder stands where the file belongs"):
            method("a", b"x")
        with pytest.raises(InvalidRequest, match="a file stands where a folder is needed"):
            method("a/b/c", b"x")
    assert [each.path for each in store.list("")] == ["a/b"]


def test_a_name_too_long(store: Store) -> None:
    with pytest.raises(InvalidRequest, match="use a shorter path"):
        store.put_if_absent("x" * 300, b"")
    assert list(store.list("")) == []


def test_the_folder_cannot_be_synced_after_the_commit_is_visible(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("log/0", b"")
    monkeypatch.setattr("txlake.storage.local.sync_folder", _failing(errno.EIO))
    for _ in range(2):  # what another one wrote may not outlive a power cut either
        assert store.put_if_absent("log/1", b"x") is PutOutcome.UNKNOWN
    assert store.get("log/1") == b"x"


def test_file_systems_that_cannot_sync_a_folder(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        system_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert store.put_if_absent("a/b", b"x") is PutOutcome.CREATED


TABLE: list[tuple[int, type[TxlakeError]]] = [
    (errno.ENOSPC, InvalidRequest),
    (errno.EDQUOT, InvalidRequest),
    (errno.EROFS, InvalidRequest),
    (errno.EACCES, InvalidRequest),
    (errno.EPERM, InvalidRequest),
    (errno.ENAMETOOLONG, InvalidRequest),
    (errno.ENOTDIR, InvalidRequest),
    (errno.EISDIR, InvalidRequest),
    (errno.ELOOP, InvalidRequest),
    (errno.EFBIG, InvalidRequest),
    (errno.EILSEQ, InvalidRequest),
    (errno.EIO, Unavailable),
    (errno.ESTALE, Unavailable),
    (errno.EMFILE, Unavailable),
    (errno.ETIMEDOUT, Unavailable),
    (errno.EBUSY, Unavailable),
]


@pytest.mark.parametrize(("number", "expected"), TABLE, ids=lambda value: str(value))
def test_the_systems_errors(number: int, expected: type[TxlakeError]) -> None:
    found = translate_error(OSError(number, os.strerror(number)), "write", "/data/t/x")
    assert type(found) is expected
    assert "/data/t/x" in str(found)
    assert os.strerror(number) in str(found)


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get("x"),
        lambda store: store.get_range("x", 0, 1),
        lambda store: store.head("x"),
        lambda store: list(store.list("")),
        lambda store: store.delete(["x"]),
    ],
)
def test_every_method_translates(
    store: Store, monkeypatch: pytest.MonkeyPatch, read: Callable[[Store], object]
) -> None:
    store.put("x", b"1")
    for number, expected in [(errno.EACCES, InvalidRequest), (errno.EIO, Unavailable)]:
        with monkeypatch.context() as patched:
            for function in ("stat", "scandir", "unlink"):
                patched.setattr(os, function, _failing(number))
            patched.setattr("builtins.open", _failing(number))
            with pytest.raises(expected) as caught:
                read(store)
        assert isinstance(caught.value.__cause__, OSError)


# --- file systems without hard links -----------------------------------------------------------


@pytest.fixture
def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.EPERM))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="renameat2 is Linux's")
@pytest.mark.usefixtures("without_links")
def test_renames_where_links_are_not_possible(store: Store, tmp_path: Path) -> None:
    assert store.put_if_absent("log/0", b"first") is PutOutcome.CREATED
    assert store.put_if_absent("log/0", b"second") is PutOutcome.EXISTS
    assert store.get("log/0") == b"first"
    assert _files(tmp_path) == ["log/0"]
    store.ensure_safe()


class _OldLibrary:
    """A C library without renameat2."""

    def __init__(self, *_: object, **__: object) -> None:
        pass


@pytest.mark.usefixtures("without_links")
def test_neither_links_nor_safe_renames(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", _OldLibrary)
    with pytest.raises(InvalidRequest, match="unsafe for commits"):
        store.put_if_absent("log/0", b"x")
    with pytest.raises(InvalidRequest, match="unsafe for commits"):
        store.ensure_safe()
    assert _files(tmp_path) == []


@pytest.mark.usefixtures("without_links")
def test_a_rename_that_the_file_system_lacks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def renameat2(*_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    class Library(_OldLibrary):
        def __init__(self, *_: object, **__: object) -> None:
            self.renameat2 = renameat2

    monkeypatch.setattr(ctypes, "CDLL", Library)
    with pytest.raises(InvalidRequest, match="unsafe for commits"):
        store.put_if_absent("log/0", b"x")


def test_a_link_whose_reply_was_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    system_link = os.link

    def link(source: str, target: str) -> None:
        system_link(source, target)
        system_link(source, target)  # an NFS client asks again, and is told that it exists

    monkeypatch.setattr(os, "link", link)
    assert store.put_if_absent("log/0", b"x") is PutOutcome.CREATED


# --- what else lies in folders -----------------------------------------------------------------


def test_our_temporary_files_are_not_listed(store: Store, tmp_path: Path) -> None:
    store.put("log/0", b"x")
    (tmp_path / "log" / ".txlake-0123.tmp").write_bytes(b"left by a killed process")
    (tmp_path / "log" / ".txlake.crc").write_bytes(b"someone else's")
    assert [each.path for each in store.list("")] == ["log/.txlake.crc", "log/0"]


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    root.mkdir()
    (elsewhere / "x").write_bytes(b"1")
    (root / "folder").symlink_to(elsewhere)
    (root / "file").symlink_to(elsewhere / "x")
    (root / "nothing").symlink_to(tmp_path / "nothing")
    (elsewhere / "up").symlink_to(root)
    os.mkfifo(root / "pipe")
    store = open_store(root)
    assert [each.path for each in store.list("")] == ["file", "folder/x"]
    assert store.head("nothing") is None
    assert store.head("pipe") is None


def test_files_that_go_while_they_are_listed(store: Store, tmp_path: Path) -> None:
    for name in ("a", "b", "c/d"):
        store.put(name, b"")
    listing = store.list("")
    assert next(listing).path == "a"
    store.delete(["b", "c/d"])
    (tmp_path / "c").rmdir()
    assert list(listing) == []
