"""The wheel and the sdist: what is in them, and that what they install works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from flit_core import buildapi
from packaging.specifiers import SpecifierSet

from tests.pages import ROOT, page

WITHOUT_SPARK = """
CREATE TABLE orders (item STRING, pieces INT); INSERT INTO orders VALUES ('apple', 5);
BEGIN; UPDATE orders SET pieces = 7 WHERE item = 'apple'; COMMIT;
SELECT * FROM orders
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both."""
    folder = tmp_path_factory.mktemp("built")
    for build in (buildapi.build_wheel, buildapi.build_sdist):
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(ROOT)
            build(str(folder))
    return folder


def test_both_have_the_version_that_pyproject_says(built: Path) -> None:
    version = tomllib.loads(page("pyproject.toml"))["project"]["version"]
    assert sorted(path.name for path in built.iterdir()) == [
        f"txlake-{version}-py3-none-any.whl",
        f"txlake-{version}.tar.gz",
    ]
    assert f"## {version}\n" in page("CHANGELOG.md")


def test_the_wheel_has_every_file_of_the_package_and_no_other(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith("txlake-")}
    files = (path for path in (ROOT / "src/txlake").rglob("*") if path.is_file())
    wanted = {str(path.relative_to(ROOT / "src")) for path in files}
    assert names == {name for name in wanted if "__pycache__" not in name}
    [source] = built.glob("*.tar.gz")
    with tarfile.open(source) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {f"src/{name}" for name in names} <= inside
    assert {"LICENSE", "README.md", "pyproject.toml"} <= inside


def test_pip_installs_no_release_that_is_untested_or_is_warned_of() -> None:
    dependencies = tomllib.loads(page("pyproject.toml"))["project"]["dependencies"]
    bounded = {
        name: bounds for name, bounds in map(_name_and_bounds, dependencies) if "<" in bounds
    }
    [others] = re.findall(r"^SPARK_RELEASES := (.*)$", page("Makefile"), re.MULTILINE)
    tested = {tuple(map(int, one.partition("-")[0].split(".")[:2])) for one in others.split()}
    first, last = min(tested), max(tested)
    assert bounded == {
        "pandas": ">=2.2,<3",
        "pyspark": f">={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}",
    }


def _name_and_bounds(requirement: str) -> tuple[str, str]:
    name, sign, bounds = requirement.partition(">=")
    return name, sign + bounds


@pytest.mark.broad
def test_every_locked_release_runs_on_the_oldest_python() -> None:
    """Debian 12's own Python is 3.11.2; pip refuses a release that asks for more."""
    names = re.findall(r"^([A-Za-z0-9_.-]+)==", page("requirements.lock"), re.MULTILINE)
    asked = {}
    for name in names:
        try:
            asked[name] = (metadata.metadata(name).get_all("Requires-Python") or [""])[0]
        except metadata.PackageNotFoundError:  # for another platform
            continue
    assert len(asked) > len(names) // 2
    assert [name for name, text in asked.items() if not SpecifierSet(text).contains("3.11.0")] == []


def test_what_the_wheel_installs_works(built: Path, tmp_path: Path) -> None:
    """In an environment that has the dependencies, and nothing of this repository."""
    [wheel] = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The folder alone: what an editable installation put beside it isn't looked at.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}

    def said(*command: str) -> str:
        ran = subprocess.run(
            [str(python), *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert said("-c", "import txlake; print(txlake.__file__)").startswith(str(tmp_path))
    version = tomllib.loads(page("pyproject.toml"))["project"]["version"]
    assert said("-m", "txlake", "--version") == f"txlake {version}\n"
    shown = said("-m", "txlake", "sql", "--lake", str(tmp_path / "lake"), WITHOUT_SPARK)
    assert "apple" in shown
    assert sys.executable != str(python)
