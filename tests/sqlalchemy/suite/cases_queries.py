"""Queries, and their results."""

from __future__ import annotations

from sqlalchemy.testing.suite.test_cte import *  # noqa: F403
from sqlalchemy.testing.suite.test_results import *  # noqa: F403
from sqlalchemy.testing.suite.test_select import *  # noqa: F403
