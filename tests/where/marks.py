"""Marks of tests that run on more than the local Spark (`--spark`, tests/spark_session.py)."""

from __future__ import annotations

import pytest

everywhere = pytest.mark.runs_on("local", "cluster", "connect")
on_a_cluster = pytest.mark.runs_on("cluster")
on_connect = pytest.mark.runs_on("connect")
