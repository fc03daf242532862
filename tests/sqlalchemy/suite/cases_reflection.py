"""What a lake has, as the inspector finds it."""

from __future__ import annotations

from sqlalchemy.testing.suite.test_reflection import *  # noqa: F403
