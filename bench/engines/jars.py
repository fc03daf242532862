"""Where `tools/delta_jars.sh` puts Delta Spark's jars."""

from __future__ import annotations

from pathlib import Path

JARS = Path(__file__).resolve().parents[2] / ".cache" / "delta-jars"
