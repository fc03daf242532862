"""What SQLAlchemy's suite may expect of txlake, and why not of the rest.

`SUPPORTED` are the requirements that SQLAlchemy leaves closed and txlake meets.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

from tests.sqlalchemy.suite.left_out import MISSING

SUPPORTED = (
    "precision_numerics_retains_significant_digits",
    "fetch_no_order_by",
    "fetch_first",
    "fetch_expression",
    "datetime_timezone_historic",
    "aggregate_order_by",
    "array_type",
    "autocommit",
    "boolean_col_expressions",
    "cast_precision_numerics_many_significant_digits",
    "check_constraint_reflection",
    "comment_reflection",
    "comment_reflection_full_unicode",
    "computed_columns",
    "computed_columns_default_persisted",
    "computed_columns_reflect_persisted",
    "computed_columns_stored",
    "create_or_replace_view",
    "create_table_as",
    "cross_schema_fk_reflection",
    "ctes",
    "ctes_with_update_delete",
    "ctes_with_values",
    "date_historic",
    "datetime_historic",
    "datetime_literals",
    "datetime_timezone",
    "dbapi_lastrowid",
    "emulated_lastrowid",
    "except_",
    "expression_server_defaults",
    "foreign_key_constraint_name_reflection",
    "identity_columns",
    "identity_columns_standard",
    "infinity_floats",
    "inline_check_constraint_reflection",
    "intersect",
    "isolation_level",
    "json_type",
    "mod_operator_as_percent_sign",
    "nullsordering",
    "order_by_label_with_expression",
    "percent_schema_names",
    "precision_numerics_enotation_small",
    "precision_numerics_many_significant_digits",
    "reflect_table_options",
    "reflects_pk_names",
    "regexp_match",
    "regexp_replace",
    "savepoints",
    "schema_create_delete",
    "server_defaults",
    "skip_autocommit_rollback",
    "supports_bitwise_and",
    "supports_bitwise_not",
    "supports_bitwise_or",
    "supports_bitwise_shift",
    "supports_bitwise_xor",
    "table_ddl_if_exists",
    "table_value_constructor",
    "timestamp_microseconds",
    "tuple_in",
    "unicode_ddl",
    "views",
    "window_functions",
    "window_range",
    "window_range_numeric",
)


class Requirements(SuiteRequirements):
    """txlake's."""

    def get_isolation_levels(self, config: Any) -> dict[str, Any]:
        return {
            "default": "WRITE SERIALIZABLE",
            "supported": ["SERIALIZABLE", "WRITE SERIALIZABLE", "SNAPSHOT", "AUTOCOMMIT"],
        }


def _open(_: Requirements) -> exclusions.compound:
    return exclusions.open()  # type: ignore[no-untyped-call]


def _closed(_: Requirements) -> exclusions.compound:
    return exclusions.closed()  # type: ignore[no-untyped-call]


for _names, _answer in ((SUPPORTED, _open), (MISSING, _closed)):
    for _name in _names:
        if hasattr(SuiteRequirements, _name):  # 2.0 lacks some
            setattr(Requirements, _name, property(_answer))
