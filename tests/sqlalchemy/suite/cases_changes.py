"""Changes, transactions and definitions."""

from __future__ import annotations

import contextlib

from sqlalchemy.testing.suite.test_ddl import *  # noqa: F403
from sqlalchemy.testing.suite.test_dialect import *  # noqa: F403
from sqlalchemy.testing.suite.test_insert import *  # noqa: F403
from sqlalchemy.testing.suite.test_rowcount import *  # noqa: F403
from sqlalchemy.testing.suite.test_sequence import *  # noqa: F403
from sqlalchemy.testing.suite.test_unicode_ddl import *  # noqa: F403
from sqlalchemy.testing.suite.test_update_delete import *  # noqa: F403

with contextlib.suppress(ImportError):  # 2.0 lacks it
    from sqlalchemy.testing.suite.test_table_via_select import *  # noqa: F403
