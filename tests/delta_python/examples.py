"""The Python examples of a checkout of Delta Lake, unchanged, on sessions that are a lake's.

python -m tests.delta_python.examples CHECKOUT [NAME ...]

Each runs in a process of its own, where it makes its tables below /tmp. 1 when one fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LEFT_OUT = {
    "image_storage": "downloads pictures",
    "missing_delta_storage_jar": "expects that a JAR is missing; txlake has none",
}
# Needs a Spark Connect server, whose address it takes from SPARK_REMOTE.
_OF_CONNECT = "delta_connect"


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.delta_python.examples")
    parser.add_argument("checkout", type=Path, help="a checkout of github.com/delta-io/delta")
    parser.add_argument("names", nargs="*", help="examples by their name; all without")
    asked = parser.parse_args(given)
    folder = asked.checkout.resolve() / "examples" / "python"
    found = {path.stem: path for path in sorted(folder.glob("*.py"))}
    if not found:
        print(f"{folder} has no examples: CHECKOUT is a folder with Delta Lake's sources")
        return 2
    failed = []
    for name, path in found.items():
        if asked.names and name not in asked.names:
            continue
        if name in LEFT_OUT:
            print(f"left out: {name}: {LEFT_OUT[name]}")
        elif not run(path, remote=name == _OF_CONNECT):
            failed.append(name)
    return 1 if failed else 0


def run(program: Path, *, remote: bool = False) -> bool:
    """Whether a program comes to its end; what it says is shown when it doesn't."""
    with tempfile.TemporaryDirectory(prefix="txlake-example-") as scratch:
        settings = "--conf spark.ui.enabled=false --conf spark.log.level=ERROR pyspark-shell"
        environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": settings, "SPARK_LOCAL_DIRS": scratch}
        if remote:
            environment["SPARK_REMOTE"] = "local[2]"
        done = subprocess.run(
            [sys.executable, "-m", "tests.delta_python.example", str(program), f"{scratch}/lake"],
            capture_output=True,
            text=True,
            env=environment,
            cwd=scratch,
        )
    print(f"{'passed' if done.returncode == 0 else 'FAILED'}: {program.stem}")
    if done.returncode:
        print(done.stdout[-3000:] + done.stderr[-6000:])
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
