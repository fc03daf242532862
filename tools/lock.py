"""Writes requirements.lock: the versions of this environment, a line each, no hashes, no URLs.

Run it in an environment that has what is wanted: `.venv/bin/python tools/lock.py`. Only what txlake
and its development need is written, so a stray package in the environment doesn't get in.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# The environment of `make test`, `make check`, `make demo` and `make bench`.
# To renew: update packages in .venv with pip, pass `make check test`, run tools/lock.py.
"""


def wanted() -> list[Requirement]:
    """The direct requirements: the package's, its extras' and the development group's."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        config = tomllib.load(file)
    project = config["project"]
    extras = project["optional-dependencies"].values()
    lists = [project["dependencies"], *extras, *config["dependency-groups"].values()]
    return [Requirement(line) for lines in lists for line in lines]


def pinned() -> dict[str, str]:
    """Normalised name to `name==version`, of all that the direct requirements lead to."""
    pins: dict[str, str] = {}
    todo = [(requirement, "pyproject.toml") for requirement in wanted()]
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement, parent = todo.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        try:
            found = distribution(name)
        except PackageNotFoundError as error:
            raise SystemExit(f"{name}, which {parent} needs, isn't installed") from error
        pin = f"{found.metadata['Name']}=={found.version}"
        # What not every Python has, as far as pyproject.toml says so.
        of_python = parent == "pyproject.toml" and requirement.marker is not None
        pins[name] = f"{pin}; {requirement.marker}" if of_python else pin
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for line in found.requires or ():
                child = Requirement(line)
                if child.marker is None or child.marker.evaluate({"extra": extra}):
                    todo.append((child, name))
    return pins


if __name__ == "__main__":
    lines = [pin for _, pin in sorted(pinned().items())]
    (ROOT / "requirements.lock").write_text(HEADER + "\n".join(lines) + "\n")
    print(f"{len(lines)} packages")
