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
from tests.differential.steps import ApiDelete, ApiMerge, ApiUpdate, FrameWrite

_DEFAULT = "CURRENT_DEFAULT"


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


def _is_without_changes(one: Difference) -> bool:
    """Delta Spark writes the metadata, or files, once more as they were."""
    told = re.fullmatch(r"([A-Z ]+) (\{.*\})", one.delta)
    if one.aspect != "history" or one.txlake or told is None or told[1] in ("OPTIMIZE", "REORG"):
        return False
    return all(count == "0" for name, count in _counts(told[2]) if name != "numSourceRows")


def _counts(metrics: str) -> list[tuple[str, str]]:
    return re.findall(r"'(\w+)': '(\d+)'", metrics)


def _is_generated_value_missing(one: Difference) -> bool:
    if one.aspect != "outcome" or one.txlake != "done" or one.shape is None:
        return False
    names = [item.name for item in one.shape.generated]
    if "[DELTA_MERGE_UNRESOLVED_EXPRESSION" in one.delta:
        return any(f"resolve {name} in" in one.delta for name in names)
    call = one.step.call
    deletes_all = (
        any(clause.values is None and clause.action != "delete" for clause in call.clauses)
        if isinstance(call, ApiMerge)
        else re.search(r"\b(UPDATE SET|INSERT) \*", one.step.text) is not None
    )
    return bool(names) and deletes_all and _has_no_message(one)


def _has_no_message(one: Difference) -> bool:
    """Delta Spark's error is that it can't word what it means to say of a MERGE's expression."""
    return "main error class 'DELTA_MERGE_UNRESOLVED_EXPRESSION'" in one.delta


def _refused_here(kinds: str | tuple[str, ...], *words: str) -> Callable[[Difference], bool]:
    """txlake refuses in these words what Delta Spark carries out."""
    return lambda one: (
        one.aspect == "outcome"
        and one.delta == "done"
        and one.step.kind in ((kinds,) if isinstance(kinds, str) else kinds)
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


def _is_insert_without_generated(one: Difference) -> bool:
    return (
        _refused_there("DELTA_INSERT_COLUMN_ARITY_MISMATCH")(one)
        and "not enough data columns" in one.delta
        and one.shape is not None
        and bool(one.shape.generated)
        and one.step.text.startswith("INSERT ")
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
        and _has_no_message(one)
    )


def _is_merge_by_source(one: Difference) -> bool:
    """Several source rows match a row that they don't change: txlake refuses it otherwise."""
    call = one.step.call
    is_by_source = (
        any(clause.when == "NotMatchedBySource" for clause in call.clauses)
        if isinstance(call, ApiMerge)
        else "WHEN NOT MATCHED BY SOURCE" in one.step.text
    )
    refused = _refused_there("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE")
    return refused(one) and is_by_source


def _is_whole_number_widened(one: Difference) -> bool:
    change = r'"fromType": "(byte|short|integer|long)", "toType": "(decimal|double)'
    return (
        one.aspect == "definition"
        and one.step.text.startswith("INSERT INTO {t} BY NAME")
        and re.search(change, one.delta) is not None
        and re.search(change, one.txlake) is None
    )


def _is_replacement_by_booleans(one: Difference) -> bool:
    """Spark makes `flag = true` the condition `flag`, for which Delta Spark has no filter.

    It has none for a NULL either.
    """
    return (
        one.aspect == "outcome"
        and one.txlake == "done"
        and "Table does not support overwrite by expression" in one.delta
        and one.shape is not None
        and (
            any(item.type == "BOOLEAN" for item in one.shape.columns)
            or "REPLACE WHERE CAST(NULL AS BOOLEAN) " in one.step.text
        )
    )


def _is_source_computed(one: Difference) -> bool:
    """A text of the source that is no value of its own column's type."""
    found = re.search(r"The value '(.*)' of the type \"STRING\" cannot be cast", one.txlake)
    return (
        _refused_here("merge", "[CAST_INVALID_INPUT]")(one)
        and found is not None
        and f"'{found[1]}' AS " in one.step.text
        and " UNION ALL " in one.step.text
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
    is_whole = (
        call.replace_where == "true"
        if isinstance(call, FrameWrite)
        else "REPLACE WHERE true " in one.step.text
    )
    number = r"\d+" if is_whole else "0"
    left_out = rf"'num(Copied|Deleted)Rows': '{number}', "
    by_none = one.delta == "WRITE {}" and re.fullmatch(counts, one.txlake) is not None
    return by_none or one.delta == re.sub(left_out, "", one.txlake)


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
    if one.step.call is None:
        return False
    if _refused_there("DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH")(one):
        # Without schema evolution: the column isn't to change, the values are.
        return isinstance(one.step.call, FrameWrite) and not one.step.call.is_schema_merged
    if _refused_there("DELTA_METADATA_MISMATCH")(one):
        _, _, schemas = one.delta.partition("Table schema:")
        table, _, rows = schemas.partition("Data schema:")
        # One line a column, and a field.
        names = [sorted(re.findall(r"-- (.*): \w+", side)) for side in (table, rows)]
        return bool(names[1]) and set(names[1]) <= set(names[0])
    if isinstance(one.step.call, FrameWrite) and one.step.call.is_schema_replaced:
        return False
    return _refused_there(
        "DELTA_FAILED_TO_MERGE_FIELDS",
        "DELTA_MERGE_INCOMPATIBLE_DATATYPE",
        "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",  # array() and the like
    )(one)


def _is_not_null_of_a_column(one: Difference) -> bool:
    return (
        one.aspect == "outcome"
        and one.txlake == "done"
        and "Cannot change nullable column to non-nullable" in one.delta
        and one.step.text.endswith(" SET NOT NULL")
    )


def _is_new_letter_case(one: Difference) -> bool:
    names = re.search(r"RENAME COLUMN `(.*)` TO `(.*)`$", one.step.text)
    return (
        _refused_there("FIELD_ALREADY_EXISTS")(one)
        and names is not None
        and names[1].lower() == names[2].lower()
    )


def _is_union_with_default(one: Difference) -> bool:
    refused = _refused_there("INVALID_INLINE_TABLE.INCOMPATIBLE_TYPES_IN_INLINE_TABLE")
    return refused(one) and re.search(r"\bDEFAULT\b", one.step.text) is not None


def _is_text_for_no_row(one: Difference) -> bool:
    """A literal that is no value of its column; what rows there are, txlake's error tells."""
    found = re.search(r"The value '(.*)' of the type \"STRING\" cannot be cast", one.delta)
    return (
        _refused_there("CAST_INVALID_INPUT")(one)
        and found is not None
        and f"'{found[1]}'" in str(one.step)
    )


def _is_replacement_by_nothing_true(one: Difference) -> bool:
    """The condition says false without looking at a row, as Spark finds out."""
    literals = r"(NOT|AND|OR|true|false|CAST\(NULL AS BOOLEAN\)|[() ])+"
    # One column is NULL, and a value.
    contradiction = r"\(`(?P<name>.+)` IS NULL\) AND \(`(?P=name)` <=> (?!NULL|CAST).*\)"
    return (
        _refused_here(("insert", "frame"), " is violated by the row")(one)
        and re.search(f"replace_where ({literals}|{contradiction}) is violated", one.txlake)
        is not None
    )


def _is_empty_partition_value(one: Difference) -> bool:
    return (
        _refused_here(one.step.kind, "a partition's empty text is NULL")(one)
        and one.shape is not None
        and any(not item.is_nullable for item in one.shape.partition_columns)
    )


def _is_partition_of_bytes(one: Difference) -> bool:
    return (
        _refused_here(one.step.kind, "expected text in UTF-8, found the bytes")(one)
        and one.shape is not None
        and bool(one.shape.partition_by)
    )


def _is_restored_append_only(one: Difference) -> bool:
    return _refused_here("restore", "the table only takes appends")(one)


def _is_unquoted_name(one: Difference) -> bool:
    call = one.step.call
    return (
        isinstance(call, FrameWrite)
        and _refused_there("INVALID_IDENTIFIER", "PARSE_SYNTAX_ERROR")(one)
        and any(re.fullmatch(r"\w+", name, re.A) is None for name in call.replace_using or ())
    )


def _is_clone_after_a_failed_one(one: Difference) -> bool:
    return (
        _refused_there("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION")(one)
        and one.step.kind == "clone"
    )


def _is_truncation_not_counted(one: Difference) -> bool:
    return (
        one.aspect == "history"
        and one.delta == "TRUNCATE {}"
        and re.fullmatch(r"TRUNCATE \{'numDeletedRows': '\d+'\}", one.txlake) is not None
    )


def _is_output_with_copies(one: Difference) -> bool:
    """Files are rewritten, and the rows that stay in them are counted as new ones."""
    sides = [dict(_counts(side)) for side in (one.delta, one.txlake)]
    without = [{key: side[key] for key in side if key != "numOutputRows"} for side in sides]
    return (
        one.aspect == "history"
        and one.delta.startswith("WRITE {")
        and without[0] == without[1]
        and "numDeletedRows" in sides[0]
        and int(sides[0].get("numOutputRows", 0)) > int(sides[1].get("numOutputRows", 0))
    )


def _is_replacement_by_padded_constant(one: Difference) -> bool:
    """Delta Spark pads the condition's constants, and not the values of the rows that it checks."""
    condition = re.search(r"condition or constraint '(.*)'\.", one.delta)
    return (
        _refused_there("DELTA_REPLACE_WHERE_MISMATCH")(one)
        and condition is not None
        and any(text.endswith(" ") for text in re.findall("'([^']*)'", condition[1]))
        and one.shape is not None
        and any(item.type.startswith("CHAR(") for item in one.shape.columns)
    )


def _is_char_compared_without_blanks(one: Difference) -> bool:
    """Rows are replaced by the value of a CHAR column, and Delta Spark doesn't find them."""
    call = one.step.call
    return (
        isinstance(call, FrameWrite)
        and one.shape is not None
        and any(
            item.type.startswith("CHAR(") and item.name in (call.replace_using or ())
            for item in one.shape.columns
        )
        and (one.aspect == "history" or (one.aspect == "rows" and one.txlake.endswith("alone ")))
    )


def _is_update_by_a_char(one: Difference) -> bool:
    """Rows are found by the value of a CHAR column, and Delta Spark doesn't find them."""
    call = one.step.call
    return (
        isinstance(call, ApiUpdate)
        and call.condition is not None
        and one.shape is not None
        and any(
            item.type.startswith("CHAR(") and item.quoted in call.condition
            for item in one.shape.columns
        )
        and (
            (one.aspect == "rows" and re.search(r" '", one.delta) is not None)
            or (one.aspect == "history" and not one.delta)
            or (one.aspect == "feed" and one.delta.endswith("alone "))
        )
    )


def _is_char_that_becomes_a_string(one: Difference) -> bool:
    """The same rows, but for the blanks at the end of texts, which Delta Spark doesn't store."""
    sides = [re.sub(r" +'", "'", side) for side in (one.delta, one.txlake)]
    return (
        one.aspect == "rows"
        and re.search(r" TYPE STRING$", one.step.text) is not None
        and one.shape is not None
        and any(item.type.startswith("CHAR(") for item in one.shape.columns)
        and sides[0] == sides[1]
        and len(one.delta) < len(one.txlake)
    )


def _is_default_of_a_frame(one: Difference) -> bool:
    """Rows' schema replaces the table's, and brings a DEFAULT along or not."""
    call = one.step.call
    is_replaced = (
        call.is_schema_replaced
        if isinstance(call, FrameWrite)
        else re.match(r"CREATE OR REPLACE TABLE .* AS SELECT ", one.step.text) is not None
    )
    if one.aspect != "definition" or not is_replaced:
        return False
    sides = [json.loads(side) for side in (one.delta, one.txlake)]
    if any(set(side) != {"columns"} for side in sides):
        return False
    columns = [
        {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != _DEFAULT}}
        for item in sides[0]["columns"]
    ]
    return bool(columns == sides[1]["columns"])


KNOWN: tuple[Known, ...] = (
    Known("which files OPTIMIZE rewrites", _is_compaction_that_finds_nothing),
    Known("`*` in a MERGE beside a generated column", _is_generated_value_missing),
    Known(
        "DEFAULT without its table feature",
        _refused_there("WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"),
    ),
    Known(
        "TIMESTAMP_NTZ without its table feature",
        _refused_there("DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"),
    ),
    Known("REPLACE WHERE false", _is_replacement_by_nothing_true),
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
    Known("generated columns left out of an INSERT", _is_insert_without_generated),
    Known("a struct with fewer fields in INSERT BY NAME", _is_struct_with_fewer_fields),
    Known("MERGE with WHEN NOT MATCHED BY SOURCE", _is_merge_by_source),
    Known("DEFAULT in a MERGE", _is_default_in_merge),
    Known("`DeltaTable.delete` on a table with a CHAR column", _is_delete_with_char),
    Known("counts of a replacement without rows", _is_replacement_without_rows),
    Known("NULL in place of a struct with a NOT NULL field", _is_null_struct),
    Known("NOT NULL in a DataFrame's schema", _is_nullability),
    Known("DEFAULT in a DataFrame's schema", _is_default_of_a_frame),
    Known("a DataFrame whose types differ from the table's", _is_of_other_types),
    Known("statements that change nothing", _is_without_changes),
    Known("ALTER COLUMN ... SET NOT NULL", _is_not_null_of_a_column),
    Known("RENAME COLUMN to other letter case", _is_new_letter_case),
    Known("types of a column of VALUES beside DEFAULT", _is_union_with_default),
    Known("a text that is no value, for no row", _is_text_for_no_row),
    Known("a source row that can't be computed", _is_source_computed),
    Known("an empty value in a NOT NULL partition column", _is_empty_partition_value),
    Known("bytes that are no text as a partition value", _is_partition_of_bytes),
    Known("`replaceUsing` a CHAR column", _is_char_compared_without_blanks),
    Known("REPLACE WHERE on a CHAR column", _is_replacement_by_padded_constant),
    Known("`DeltaTable.update` by a CHAR column", _is_update_by_a_char),
    Known("a CHAR column that becomes STRING", _is_char_that_becomes_a_string),
    Known("RESTORE of an append-only table", _is_restored_append_only),
    Known("names in `replaceUsing`", _is_unquoted_name),
    Known(
        "CLONE over a table with rows",
        lambda one: (
            one.step.kind == "clone" and _refused_there("DELTA_UNSUPPORTED_NON_EMPTY_CLONE")(one)
        ),
    ),
    Known("whole numbers that INSERT BY NAME widens", _is_whole_number_widened),
    Known("REPLACE WHERE on a BOOLEAN column", _is_replacement_by_booleans),
    Known(
        "a FLOAT literal in a CHECK condition",
        lambda one: (
            _refused_there("PARSE_SYNTAX_ERROR")(one)
            and re.search(r" ADD CONSTRAINT .*\d\.\d+F\b", one.step.text) is not None
        ),
    ),
    Known("CLONE after one that failed", _is_clone_after_a_failed_one),
    Known("counts of TRUNCATE", _is_truncation_not_counted),
    Known("rows that a replacement copies", _is_output_with_copies),
)


def excuse(difference: Difference) -> Known | None:
    """The known difference that this one is, if any."""
    return next((one for one in KNOWN if one.is_it(difference)), None)
