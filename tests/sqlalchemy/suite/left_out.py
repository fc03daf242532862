"""What of SQLAlchemy's suite isn't run, each with its reason, as in docs/compatibility.md."""

from __future__ import annotations

_NO_INDEXES = "there are no indexes"
_NO_TEMPORARY = "there are no temporary tables"
_NO_TIME = "Delta tables have no `TIME`"
_KEYS = "primary and foreign keys are informational, and nothing enforces or cascades them"
_UNIQUE = "there are no `UNIQUE` constraints"
_FETCH = "`FETCH` has no `PERCENT` and `WITH TIES`"

MISSING = {
    "async_dialect": "the driver isn't asynchronous",
    "column_collation_reflection": "columns have no collations of their own",
    "computed_columns_virtual": "computed columns are stored",
    "constraint_comment_reflection": "constraints have no comments",
    "create_temp_table_as": _NO_TEMPORARY,
    "ctes_on_dml": "a `WITH` contains queries alone",
    "deferrable_fks": _KEYS,
    "delete_from": "`DELETE` has no `USING`; `merge` has",
    "duplicate_key_raises_integrity_error": _KEYS,
    "fetch_offset_with_options": _FETCH,
    "fetch_percent": _FETCH,
    "fetch_ties": _FETCH,
    "foreign_key_constraint_option_reflection_ondelete": _KEYS,
    "foreign_key_constraint_option_reflection_onupdate": _KEYS,
    "has_temp_table": _NO_TEMPORARY,
    "index_ddl_if_exists": _NO_INDEXES,
    "index_reflection": _NO_INDEXES,
    "indexes_with_ascdesc": _NO_INDEXES,
    "indexes_with_expressions": _NO_INDEXES,
    "materialized_views": "there are no materialized views",
    "on_update_cascade": _KEYS,
    "recursive_fk_cascade": _KEYS,
    "reflect_indexes_with_ascdesc": _NO_INDEXES,
    "reflect_tables_no_columns": "a table has columns",
    "repeated_column_foreign_keys": "a key names a column once",
    "repeated_remote_col_foreign_keys": "a key names a column once",
    "sequences": "there are no sequences",
    "supports_distinct_on": "Spark has no `DISTINCT ON`",
    "temp_table_reflection": _NO_TEMPORARY,
    "temporary_tables": _NO_TEMPORARY,
    "temporary_views": "a temporary view belongs to the Spark session",
    "time": _NO_TIME,
    "time_implicit_bound": _NO_TIME,
    "time_microseconds": _NO_TIME,
    "two_phase_transactions": "there are no prepared transactions",
    "unique_constraint_reflection": _UNIQUE,
    "update_from": "`UPDATE` has no `FROM`; `merge` has",
    "uuid_data_type": "a `Uuid` is a text",
    "window_range_non_numeric": "bounds of a window's `RANGE` are bound as numbers",
}
"""Requirements that txlake doesn't meet."""

LEFT_OUT = {
    r"ComputedReflectionTest::": "`/` gives a `DOUBLE`, which no integer column is computed by",
    r"IdentityColumnTest::|IdentityReflectionTest::": "identities have no `MINVALUE`, `MAXVALUE`",
    r"(inline|standalone)\[\w+-My|quoted_name\[(FK|PK|mixed)": (
        "names of constraints are lower case, as in Delta"
    ),
    r"LongNameBlowoutTest::test_long_convention_name\[ix": _NO_INDEXES,
}
"""Tests by a pattern of their names, which no requirement leaves out."""
