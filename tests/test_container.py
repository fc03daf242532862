"""The image and the compose file: linted, coherent, and their steps run here, without a container.

No container runtime is needed: the build's steps run in a folder that has only what the image gets,
and the services' commands and health checks as processes of this machine.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from txlake.server.serving import HEALTH

ROOT = Path(__file__).resolve().parent.parent
START_S = 120
TOKEN = "the-token-of-the-owner"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its arguments as one line."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, " ".join(rest.split()))
        for word, _, rest in (line.partition(" ") for line in whole.splitlines() if line)
    ]


def final_stage() -> list[tuple[str, str]]:
    found = instructions()
    last = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    return found[last:]


def of_image(word: str) -> str:
    """The last instruction of a kind."""
    return [rest for kind, rest in final_stage() if kind == word][-1]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return found


def test_the_linter_finds_nothing() -> None:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    ran = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr


def test_the_image_has_no_privileges_and_no_build_tools() -> None:
    assert int(of_image("USER")) > 0
    words = [word for word, _ in final_stage()]
    assert words.index("USER") < words.index("ENTRYPOINT")
    [install] = [rest for word, rest in final_stage() if word == "RUN"]
    packages = re.search(r"--no-install-recommends (.*?) &&", install)
    assert packages is not None
    assert packages[1].split() == ["openjdk-17-jre-headless", "tini"]
    assert json.loads(of_image("ENTRYPOINT")) == ["tini", "--", "txlake"]
    [copied] = [rest for word, rest in final_stage() if word == "COPY"]
    assert copied.startswith("--from=build ")


def test_the_build_gets_what_it_copies_and_no_more() -> None:
    listed = (ROOT / ".dockerignore").read_text().splitlines()
    assert listed[0] == "*"
    kept = {line[1:] for line in listed if line.startswith("!")}
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    assert {source.removeprefix("./") for source in copied} == kept
    assert all((ROOT / name).exists() for name in kept)


def test_the_compose_file_is_coherent() -> None:
    found = compose()
    services = found["services"]
    assert services.keys() == {"catalog", "serve", "console"}
    for name, service in services.items():
        for secret in service.get("secrets", ()):
            assert secret in found["secrets"]
        for volume in service["volumes"]:
            assert volume.split(":")[0] in found["volumes"]
        for other, condition in service.get("depends_on", {}).items():
            has_check = "healthcheck" in services[other] or services[other].get("build") == "."
            assert condition == {"condition": "service_healthy"}
            assert has_check, (name, other)
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
            assert port.rsplit(":", 1)[1] in of_image("EXPOSE").split()
    assert services["console"]["environment"] == services["serve"]["environment"]
    assert services["serve"]["command"] == json.loads(of_image("CMD"))


def checks() -> dict[str, list[str]]:
    """The health check of each service of the image."""
    _, _, of_serve = of_image("HEALTHCHECK").partition(" CMD ")
    of_console = compose()["services"]["console"]["healthcheck"]["test"]
    assert of_console[0] == "CMD"
    return {"serve": json.loads(of_serve), "console": of_console[1:]}


@pytest.mark.parametrize(("service", "port"), [("serve", 8080), ("console", 8090)])
def test_a_health_check_asks_the_port_that_the_service_has(service: str, port: int) -> None:
    program, option, code = checks()[service]
    assert (program, option) == ("python", "-c")
    ast.parse(code)
    assert f"http://127.0.0.1:{port}{HEALTH}" in code


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that the build makes: its steps, with this machine's packages for the
    dependencies, in a folder with nothing but what is copied into the image.
    """
    folder = tmp_path_factory.mktemp("image")
    source, target = folder / "src", folder / "txlake"
    source.mkdir()
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            *names, place = rest.split()
            for name in names:
                if (ROOT / name).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(ROOT / name, source / place, ignore=ignored)
                else:
                    shutil.copy(ROOT / name, source / place)
    step = next(rest for word, rest in instructions() if word == "RUN")
    step = step.replace("/opt/txlake", str(target))
    make, install, uninstall = step.split(" && ")
    run(make.replace("python", sys.executable, 1), source)
    site = run(f"{target}/bin/python -c 'import site; print(site.getsitepackages()[0])'", source)
    # First the project's own packages: the build needs flit_core, and the run the dependencies.
    path = Path(site.strip()) / "of_the_project.pth"
    path.write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    run(f"{install} --no-deps --no-build-isolation --no-index --ignore-installed", source)
    run(uninstall, source)
    assert not (target / "bin" / "pip").exists()
    return target


def run(command: str, folder: Path) -> str:
    ran = subprocess.run(
        ["sh", "-ec", command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def started(
    built: Path, name: str, places: dict[str, str], environment: dict[str, str], folder: Path
) -> Iterator[int]:
    """A service's command, as the image runs it but for tini; its port, once it is healthy."""
    port = free_port()
    command = [places.get(word, word) for word in compose()["services"][name]["command"]]
    env = {"PATH": f"{built}/bin:{os.environ['PATH']}", "HOME": str(folder), **environment}
    with subprocess.Popen(
        [built / "bin" / "txlake", *command, "--port", str(port)], env=env, cwd=folder
    ) as process:
        try:
            wait_until_healthy(process, checks()[name], port, env)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def wait_until_healthy(
    process: subprocess.Popen[bytes], check: Sequence[str], port: int, env: dict[str, str]
) -> None:
    """Ask by the health check, at its intervals, until it succeeds."""
    asked = [re.sub(r":80[89]0/", f":{port}/", word) for word in check]
    deadline = time.monotonic() + START_S
    while True:
        ran = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=60)
        if ran.returncode == 0:
            return
        assert process.poll() is None, "the service has ended"
        assert time.monotonic() < deadline, ran.stderr
        time.sleep(0.5)  # the interval; nothing is synchronised by it


@pytest.mark.broad
def test_the_services_start_in_order_and_are_healthy(
    built: Path, postgres_url: str, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"token": TOKEN, "name": "owner"}]))
    (tmp_path / "data").mkdir()
    places = {"/data": str(tmp_path / "data"), "/run/secrets/tokens": str(tokens)}
    of_compose = compose()["services"]["serve"]["environment"]
    assert of_compose["TXLAKE_CATALOG"].startswith("postgresql+psycopg://")
    environment = {"TXLAKE_CATALOG": postgres_url}
    header = {"authorization": f"Bearer {TOKEN}"}
    with started(built, "serve", places, environment, tmp_path) as port:
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}{HEALTH}").json() == {"status": "ok"}
        sql = f"{url}/api/txlake/v1/sql"
        assert httpx.post(sql, json={"statement": "SHOW TABLES"}).status_code == 401
        made = {"statement": "CREATE TABLE t (id INT); INSERT INTO t VALUES (1)"}
        assert httpx.post(sql, json=made, headers=header, timeout=60).status_code == 200
        with started(built, "console", places, environment, tmp_path) as console_port:
            page = f"http://127.0.0.1:{console_port}"
            assert httpx.get(f"{page}{HEALTH}").json() == {"status": "ok"}
            assert httpx.get(page, follow_redirects=False).status_code in (302, 303)
