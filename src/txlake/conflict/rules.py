"""The conflict rules, in the order in which they are checked.

Each rule compares one transaction with one winner and returns a finding, or None. A rule knows no
other, does no I/O and changes nothing. Source: docs/how-a-commit-works.md, rules 1 to 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext
from txlake.conflict.evidence import Finding
from txlake.conflict.footprint import Footprint
from txlake.conflict.metadata_rules import (
    app_id_advanced,
    domain_changed,
    dropped_feature_used,
    feature_came_into_force,
    features_dropped,
    metadata_changed,
    protocol_changed_by_both,
    table_created_by_both,
)
from txlake.conflict.row_rules import (
    file_added_by_both,
    files_of_old_settings,
    rows_added,
    rows_deleted,
    rows_deleted_by_both,
    select_not_true,
    table_changed_by_both,
)

Rule: TypeAlias = Callable[[Footprint, ConcurrentCommit, CheckContext], Finding | None]

RULES: tuple[Rule, ...] = (
    select_not_true,
    table_created_by_both,
    protocol_changed_by_both,
    features_dropped,
    feature_came_into_force,
    dropped_feature_used,
    metadata_changed,
    domain_changed,
    app_id_advanced,
    table_changed_by_both,
    rows_added,
    files_of_old_settings,
    rows_deleted,
    rows_deleted_by_both,
    file_added_by_both,
)

RULES_AFTER_SELECTS: tuple[Rule, ...] = RULES[1:]
"""Those that are left to ask once the SELECTs were checked against every winner of every table."""
