"""A real server: over sockets, with TLS, killed, and beside a lake in this process."""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

import txlake
from tests.commit.foreign import stage, told
from tests.server.client import SCHEMA, file
from tests.server.process import ServerProcess
from txlake.cli.app import app
from txlake.protocol.actions import Metadata, Protocol, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.storage import open_store

pytestmark = [
    pytest.mark.broad(keep=3),
    pytest.mark.no_interop("its files' rows are only said to be there"),
]

ROOT = "/api/2.1/unity-catalog"
TABLES = f"{ROOT}/delta/v1/catalogs/warehouse/schemas/default/tables"
TIMEOUT_S = 60


def made(server: ServerProcess, name: str) -> tuple[str, str]:
    """Make a table as a client does; its id and its place."""
    path = TABLES.replace("/tables", "/staging-tables")
    staging = asked(server, "POST", path, {"name": name}).json()
    required = staging["required-protocol"]
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=tuple(required["reader-features"]),
        writer_features=tuple(required["writer-features"]),
    )
    metadata = Metadata(id=name, schema_string=SCHEMA, configuration=staging["required-properties"])
    content = encode_actions([told(1000, f"first of {name}", "CREATE TABLE"), protocol, metadata])
    open_store(staging["location"]).put(commit_path(0), content)
    body = {
        "name": name,
        "location": staging["location"].replace("file:///", "file:/"),  # as Hadoop's clients do
        "table-type": "MANAGED",
        "protocol": required,
        "properties": staging["required-properties"],
        "last-commit-timestamp-ms": 1000,
    }
    answer = asked(server, "POST", TABLES, body)
    assert answer.status_code == 200, answer.text
    return staging["table-id"], staging["location"]


def asked(server: ServerProcess, method: str, path: str, body: object = None) -> httpx.Response:
    """One request."""
    return httpx.request(method, f"{server.url}{path}", json=body, timeout=TIMEOUT_S)


def request(table_id: str, location: str, version: int, name: str) -> dict[str, Any]:
    """Stages an append; the body that asks for it."""
    staged = stage(open_store(location), version, 1000 + version, file(name))
    commit = {
        "version": version,
        "timestamp": staged.timestamp_ms,
        "file-name": staged.name,
        "file-size": staged.size_bytes,
        "file-modification-timestamp": 1,
    }
    return {
        "requirements": [{"type": "assert-table-uuid", "uuid": table_id}],
        "updates": [{"action": "add-commit", "commit": commit}],
    }


def test_a_table_is_written_by_a_client_and_by_a_lake(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with ServerProcess(warehouse) as server:
        table_id, location = made(server, "t")
        body = request(table_id, location, 1, "x")
        assert asked(server, "POST", f"{TABLES}/t", body).status_code == 200
        with txlake.connect(str(warehouse)) as lake:
            assert lake.view("sys.tables").num_rows == 1
            commits = lake.view("txlake.commits").to_pylist()
            assert {one["version"] for one in commits if one["table"] == "default.t"} == {0, 1}
        assert server.stop() in (0, -15)
    # What was answered is there for whoever comes next.
    with ServerProcess(warehouse) as server:
        assert asked(server, "GET", f"{TABLES}/t").json()["latest-table-version"] == 1


def test_a_server_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with ServerProcess(warehouse) as server:
        table_id, location = made(server, "t")
        bodies = [request(table_id, location, version, f"x{version}") for version in (1, 2, 3)]
        for body in bodies:
            assert asked(server, "POST", f"{TABLES}/t", body).status_code == 200
        server.kill()
    with ServerProcess(warehouse) as server:
        assert asked(server, "GET", f"{TABLES}/t").json()["latest-table-version"] == 3
        # The reply may have been lost: it is sent again.
        assert asked(server, "POST", f"{TABLES}/t", bodies[2]).status_code == 200
        assert asked(server, "POST", f"{TABLES}/t", bodies[1]).status_code == 200
        assert asked(server, "GET", f"{TABLES}/t").json()["latest-table-version"] == 3


def test_a_client_that_asks_for_another_protocol_is_answered_in_silence(tmp_path: Path) -> None:
    """As Java's does with each connection."""
    with ServerProcess(tmp_path / "warehouse") as server:
        answer = httpx.get(
            f"{server.url}{ROOT}/catalogs",
            headers={"connection": "upgrade, http2-settings", "upgrade": "h2c"},
            timeout=TIMEOUT_S,
        )
        assert answer.status_code == 200
        assert server.stop() in (0, -15)
        assert server.said() == []


def test_half_a_request_changes_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "warehouse") as server:
        table_id, location = made(server, "t")
        content = json.dumps(request(table_id, location, 1, "x")).encode()
        head = (
            f"POST {TABLES}/t HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        ).encode()
        for part in (head[:20], head, head + content[: len(content) // 2]):
            with socket.create_connection(server.address, TIMEOUT_S) as connection:
                connection.sendall(part)
        with socket.create_connection(server.address, TIMEOUT_S) as connection:
            connection.sendall(b"\x00\xffnot http\r\n\r\n")
            assert b"400" in connection.recv(100)
        assert asked(server, "GET", f"{TABLES}/t").json()["latest-table-version"] == 0
        with socket.create_connection(server.address, TIMEOUT_S) as connection:
            connection.sendall(head + content)
            assert b"200 OK" in connection.recv(1000)
        assert asked(server, "GET", f"{TABLES}/t").json()["latest-table-version"] == 1


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    own = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    chain, secret = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(own.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, secret


def test_with_tokens_and_tls(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    tokens = tmp_path / "tokens.json"
    tokens.write_text('[{"token": "a-token-that-is-good", "name": "etl"}]')
    options = ["--tls-certificate", chain, "--tls-key", key, "--token-file", tokens]
    with ServerProcess(tmp_path / "warehouse", *map(str, options)) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(chain))
        with httpx.Client(verify=trusted, timeout=TIMEOUT_S) as client:
            url = f"{server.url}{ROOT}/catalogs"
            assert client.get(url).status_code == 401
            good = {"authorization": "Bearer a-token-that-is-good"}
            assert client.get(url, headers=good).status_code == 200


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--host", "0.0.0.0"], 6, "there are no tokens"),
        (["--token-file", "nowhere.json"], 6, "nowhere.json"),
        (["--tls-key", "key.pem"], 2, "--tls-certificate and --tls-key together"),
        (["--lake", "other"], 2, "not both"),
    ],
)
def test_what_does_not_start(tmp_path: Path, options: list[str], code: int, told: str) -> None:
    command = ["serve", str(tmp_path / "warehouse"), "--port", "0", *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == code, done.output
    assert told in done.output.replace("\n", " ")
