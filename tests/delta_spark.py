"""Delta Spark as a peer of the tests: where its jars are, when they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

JARS = Path(__file__).resolve().parent.parent / ".cache" / "delta-jars"


def delta_jars() -> list[str]:
    """The paths of Delta Spark's jars, for `spark.jars`. Skips the test when they aren't there.

    `tools/delta_jars.sh`, which `make test` runs, brings them. They go on the class path when a JVM
    starts, so a test that needs them starts a Spark of its own, in a process of its own.
    """
    jars = sorted(str(path) for path in JARS.glob("delta-*.jar"))
    if not jars:
        pytest.skip(f"Delta Spark's jars aren't in {JARS} (tools/delta_jars.sh brings them)")
    return jars
