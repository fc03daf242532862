"""Servers of other makers, one of each for all processes of a test run.

The first who comes starts a server, and it ends with the last who used it, however that one ended.
`tools/servers.sh` brings them; without one its tests are skipped.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ROOT / ".cache" / "servers"
_START_LIMIT_S = 120
# The account that every azurite has.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@contextmanager
def azure_server(shared: Path) -> Iterator[dict[str, str]]:
    """The storage options of an Azure store with the container `lake`."""
    program = _brought("azurite") / "node_modules/azurite/dist/src/blob/main.js"
    node = shutil.which("node") or pytest.skip("no node, which azurite needs")
    command = [node, str(program), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
    command += ["--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", "{port}"]
    with _running(shared, "azurite", command, "/", prepare=_make_container) as port:
        options = {
            "azure_storage_account_name": AZURE_ACCOUNT,
            "azure_storage_account_key": AZURE_KEY,
            "azure_endpoint": f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
            "allow_http": "true",
            "max_retries": "0",
        }
        yield options


@contextmanager
def gcs_server(shared: Path) -> Iterator[str]:
    """The address of a Google store with the bucket `lake`, for a `proxy.GoogleFront` before it."""
    program = _brought("fake-gcs-server") / "fake-gcs-server"
    command = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", "{port}"]
    command += ["-backend", "memory", "-public-host", "127.0.0.1:{port}", "-log-level", "error"]
    ready = "/_internal/healthcheck"
    with _running(shared, "fake-gcs-server", command, ready, prepare=_make_bucket) as port:
        yield f"http://127.0.0.1:{port}"


def gcs_options_of(address: str) -> dict[str, str]:
    """The storage options for a Google store at an address that asks nobody who they are."""
    key = {"gcs_base_url": address, "disable_oauth": True, "client_email": "", "private_key": ""}
    return {
        "google_service_account_key": json.dumps({**key, "private_key_id": ""}),
        "allow_http": "true",
        "max_retries": "0",
    }


@contextmanager
def hdfs_cluster(shared: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of an HDFS, and the storage options to reach it."""
    java = shutil.which("java") or pytest.skip("no java, which Hadoop needs")
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        pytest.skip("no pyspark, which has Hadoop's client")
    jars = Path(found.submodule_search_locations[0]) / "jars"
    if not list(jars.glob("hadoop-client-runtime-3.5.*.jar")):
        pytest.skip("this PySpark has another version of Hadoop's client")
    command = [java, "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [f"{_brought('hdfs')}/*:{jars}/*"]
    command += ["org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format"]
    command += ["-nnhttpport", "{port}"]
    # Its client sleeps this long between looks whether a file's block has arrived.
    command += ["-D", "dfs.client.block.write.locateFollowingBlock.initial.delay.ms=5"]
    ready = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    with _running(shared, "hdfs", command, ready, '"NumLiveDataNodes" : 1') as port:
        address = f"127.0.0.1:{port}"
        yield f"webhdfs://{address}", {"webhdfs_user": _user(), "max_retries": "0"}


@contextmanager
def _running(
    shared: Path,
    name: str,
    command: Sequence[str],
    ready: str,
    says: str = "",
    prepare: Callable[[int], None] = lambda port: None,
) -> Iterator[int]:
    """The port of a server, which is shared with the processes that have the same folder.

    A keeper runs it until nobody holds the lock of its users any more. It has started when it
    `says` that at the path `ready`; then who started it prepares it, once, before others use it.
    """
    users, starting = shared / f"{name}.users", shared / f"{name}.starting"
    place = shared / f"{name}.port"
    with users.open("a") as using:
        with starting.open("a") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            fcntl.flock(using, fcntl.LOCK_SH)  # a keeper that is ending has it until it has ended
            if not place.exists():
                port = _free_port()
                filled = [each.replace("{port}", str(port)) for each in command]
                keeper = [sys.executable, __file__, str(users), str(place), *filled]
                with (shared / f"{name}.log").open("ab") as log:
                    process = subprocess.Popen(
                        keeper, stdout=log, stderr=log, cwd=shared, start_new_session=True
                    )
                _await(f"http://127.0.0.1:{port}{ready}", says, process, shared / f"{name}.log")
                prepare(port)
                place.write_text(str(port))
                process.returncode = 0  # the keeper outlives this process; nobody waits for it
        yield int(place.read_text())


def _await(url: str, says: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_LIMIT_S
    while not _says(url, says):
        if process.poll() is not None or time.monotonic() > end:
            pytest.fail(f"the server at {url} did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def _says(url: str, text: str) -> bool:
    try:
        with urlopen(url, timeout=10) as answer:
            return text in answer.read().decode()
    except HTTPError:
        return not text
    except OSError:
        return False


def _brought(name: str) -> Path:
    from tests.peers import need  # the keeper runs this file alone, without the path of the tests

    need(name, found=(SERVERS / f"{name}.stamp").exists())
    return SERVERS / name


def _free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        port = each.getsockname()[1]
        assert isinstance(port, int)
        return port


def _user() -> str:
    import getpass

    return getpass.getuser()


def _make_bucket(port: int) -> None:
    request = Request(
        f"http://127.0.0.1:{port}/storage/v1/b?project=txlake",
        json.dumps({"name": "lake"}).encode(),
        {"Content-Type": "application/json"},
    )
    urlopen(request, timeout=30).close()


def _make_container(port: int) -> None:
    from pyarrow.fs import AzureFileSystem

    authority = f"127.0.0.1:{port}"
    azure = AzureFileSystem(
        AZURE_ACCOUNT,
        account_key=AZURE_KEY,
        blob_storage_authority=authority,
        blob_storage_scheme="http",
        dfs_storage_authority=authority,
        dfs_storage_scheme="http",
    )
    azure.create_dir("lake", recursive=False)


def _keep(users: str, place: str, command: Sequence[str]) -> None:
    """Run a server until nobody uses it."""
    folder = tempfile.mkdtemp(prefix="txlake-server-")
    process = subprocess.Popen(command, cwd=folder)
    try:
        with Path(users).open("a") as using:
            fcntl.flock(using, fcntl.LOCK_EX)
            Path(place).unlink(missing_ok=True)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(120)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    os.umask(0o022)
    _keep(sys.argv[1], sys.argv[2], sys.argv[3:])
