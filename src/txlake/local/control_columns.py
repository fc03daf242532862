"""The names of the columns that rows carry beside those of their table."""

from __future__ import annotations

FILE = "__txlake_file"


ROW = "__txlake_row"


ROW_ID = "__txlake_row_id"


ROW_VERSION = "__txlake_row_version"


ACTION = "__txlake_action"


SOURCE_ROW = "__txlake_source_row"


VIOLATION = "__txlake_violation"


VIOLATION_ROW = "__txlake_violation_row"
