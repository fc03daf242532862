"""The differences that are known, each by a rule that excuses it and nothing else.

docs/differences-from-delta-spark.md says what each is and why; the names are those of its tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.differential.comparing import Difference
from tests.differential.steps import ApiDelete, FrameWrite


@dataclass(frozen=True, slots=True)
class Known:
    """A difference by its name in the docs, and when it is that one."""

    name: str
    is_it: Callable[[Difference], bool]


def _refused_there(*conditions: str) -> Callable[[Difference], bool]:
    """Delta Spark refuses with one of these error conditions what txlake carries out."""
    return lambda one: (
        one.aspect == "outcome"
        and one.txlake == "done"
        and any(f"[{condition}" in one.delta for condition in conditions)
    )


def _is_compaction_that_finds_nothing(one: Difference) -> bool:
    told = one.delta + one.txlake
    return (
        one.aspect == "history"
        and "" in (one.delta, one.txlake)
        and re.fullmatch(r"(OPTIMIZE|REORG) \{\}", told) is not None
    )


def _is_generated_value_missing(one: Difference) -> bool:
    return (
        _refused_there("DELTA_MERGE_UNRESOLVED_EXPRESSION")(one)
        and one.shape is not None
        and any(f"resolve {item.name} in" in one.delta for item in one.shape.generated)
    )


def _refused_here(kinds: tuple[str, ...], *words: str) -> Callable[[Difference], bool]:
    """txlake refuses in these words what Delta Spark carries out."""
    return lambda one: (
        one.aspect == "outcome"
        and one.delta == "done"
        and one.step.kind in kinds
        and any(said in one.txlake for said in words)
    )


def _is_source_not_counted(one: Difference) -> bool:
    counted = re.sub(r"'numSourceRows': '\d+'(, )?", "", one.delta)
    return one.aspect == "history" and counted == one.txlake and counted != one.delta


def _is_negative_zero(one: Difference) -> bool:
    """A table that is partitioned by floats, and rows that differ in the sign of a zero alone."""
    if one.shape is None or one.aspect not in ("rows", "other's rows", "answer"):
        return False
    floats = ("DOUBLE", "FLOAT")
    if not any(item.type in floats for item in one.shape.partition_columns):
        return False
    sides = [side.split(" of ")[0] for side in (one.delta, one.txlake)]
    unsigned = [side.replace("-0.0|8", "0.0|0") for side in sides]
    return unsigned[0] == unsigned[1] and sides[0].count("-0.0|8") > sides[1].count("-0.0|8")


def _is_overwrite_of_dynamic_partitions(one: Difference) -> bool:
    """txlake keeps partitions that Delta Spark removes, and nothing else differs."""
    return (
        one.aspect == "rows"
        and not one.step.settings
        and re.match(r"INSERT OVERWRITE \{t\} PARTITION \([^=)]*\)", one.step.text) is not None
        and one.delta.endswith("alone ")
    )


def _is_merge_into_char(one: Difference) -> bool:
    return (
        one.aspect == "outcome"
        and one.txlake == "done"
        and one.shape is not None
        and any(item.type.startswith("CHAR(") for item in one.shape.columns)
        and "DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT" in one.delta
    )


def _is_overwrite_without_generated(one: Difference) -> bool:
    return (
        _refused_there("DELTA_INSERT_COLUMN_ARITY_MISMATCH")(one)
        and "not enough data columns" in one.delta
        and one.shape is not None
        and bool(one.shape.generated)
        and re.match(r"INSERT OVERWRITE \{t\} (?!PARTITION)", one.step.text) is not None
    )


def _is_struct_with_fewer_fields(one: Difference) -> bool:
    return (
        _refused_there("DELTA_INSERT_COLUMN_ARITY_MISMATCH")(one)
        and "not enough nested fields" in one.delta
        and re.match(r"INSERT INTO \{t\} BY NAME", one.step.text) is not None
    )


def _is_default_in_merge(one: Difference) -> bool:
    return (
        one.aspect == "outcome"
        and one.txlake == "done"
        and one.step.kind == "merge"
        and re.search(r"\bDEFAULT\b", one.step.text) is not None
        and "main error class 'DELTA_MERGE_UNRESOLVED_EXPRESSION'" in one.delta
    )


def _is_delete_with_char(one: Difference) -> bool:
    return (
        isinstance(one.step.call, ApiDelete)
        and _refused_there("DELTA_UNSUPPORTED_SOURCE")(one)
        and one.shape is not None
        and any(item.type.startswith("CHAR(") for item in one.shape.columns)
    )


def _is_replacement_without_rows(one: Difference) -> bool:
    """Rows are replaced by none, or none by rows, and Delta Spark leaves counts out."""
    call = one.step.call
    replaces = (
        call.replace_where is not None
        if isinstance(call, FrameWrite)
        else re.search(r"^INSERT INTO \{t\} REPLACE WHERE|PARTITION \([^)]*=", one.step.text)
    )
    if one.aspect != "history" or not replaces:
        return False
    counts = r"WRITE \{('num(Copied|Deleted)Rows': '\d+', )*'numOutputRows': '0'\}"
    by_none = one.delta == "WRITE {}" and re.fullmatch(counts, one.txlake) is not None
    return by_none or one.delta == re.sub(r"'num(Copied|Deleted)Rows': '0', ", "", one.txlake)


def _is_null_struct(one: Difference) -> bool:
    return (
        _refused_there("DELTA_NOT_NULL_CONSTRAINT_VIOLATED")(one)
        and re.search(r"violated for column: \S+\.\S", one.delta) is not None
    )


def _is_nullability(one: Difference) -> bool:
    if one.aspect != "schema":
        return False
    sides = [_without_nullability(json.loads(side)) for side in (one.delta, one.txlake)]
    return sides[0] == sides[1]


def _without_nullability(value: Any) -> Any:
    if isinstance(value, dict):
        words = ("nullable", "containsNull", "valueContainsNull")
        return {key: _without_nullability(item) for key, item in value.items() if key not in words}
    if isinstance(value, list):
        # A column is its type, whether it is nullable, and its comment.
        is_column = len(value) == 3 and isinstance(value[1], bool)
        kept = [value[0], value[2]] if is_column else value
        return [_without_nullability(item) for item in kept]
    return value


def _is_of_other_types(one: Difference) -> bool:
    """A DataFrame's column has another type than the table's."""
    return one.step.call is not None and _refused_there(
        "DELTA_FAILED_TO_MERGE_FIELDS", "DELTA_MERGE_INCOMPATIBLE_DATATYPE"
    )(one)


KNOWN: tuple[Known, ...] = (
    Known("which files OPTIMIZE rewrites", _is_compaction_that_finds_nothing),
    Known("`*` in a MERGE beside a generated column", _is_generated_value_missing),
    Known(
        "DEFAULT without its table feature",
        _refused_there("WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"),
    ),
    Known("REPLACE WHERE false", _refused_here(("insert",), "replace_where false is violated by")),
    Known("`numSourceRows` of a large MERGE", _is_source_not_counted),
    Known("-0.0 as a partition value", _is_negative_zero),
    Known(
        "statements that change no row of an append-only table",
        _refused_here(
            ("delete", "update", "merge", "insert", "frame", "replace"),
            "the table only takes appends",
        ),
    ),
    Known(
        "INSERT OVERWRITE ... PARTITION (p) without a value", _is_overwrite_of_dynamic_partitions
    ),
    Known("MERGE into a table with a CHAR column", _is_merge_into_char),
    Known("generated columns left out of INSERT OVERWRITE", _is_overwrite_without_generated),
    Known("a struct with fewer fields in INSERT BY NAME", _is_struct_with_fewer_fields),
    Known("DEFAULT in a MERGE", _is_default_in_merge),
    Known("`DeltaTable.delete` on a table with a CHAR column", _is_delete_with_char),
    Known("counts of a replacement without rows", _is_replacement_without_rows),
    Known("NULL in place of a struct with a NOT NULL field", _is_null_struct),
    Known("NOT NULL in a DataFrame's schema", _is_nullability),
    Known("a DataFrame whose types differ from the table's", _is_of_other_types),
)


def excuse(difference: Difference) -> Known | None:
    """The known difference that this one is, if any."""
    return next((one for one in KNOWN if one.is_it(difference)), None)
