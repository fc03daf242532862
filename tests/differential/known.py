"""The known differences, each with a rule that recognises it and nothing else.

docs/differences-from-delta-spark.md explains each of them, by the same names.
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
class KnownDifference:
    """A known difference: its name in the docs, and the rule that recognises it."""

    name: str
    matches: Callable[[Difference], bool]


def _refused_by_delta(*conditions: str) -> Callable[[Difference], bool]:
    """Return a rule: Delta Spark refuses with one of these error conditions what txlake
    executes.
    """
    return lambda difference: (
        difference.aspect == "outcome"
        and difference.txlake == "done"
        and any(f"[{condition}" in difference.delta for condition in conditions)
    )


def _is_compaction_that_finds_nothing(difference: Difference) -> bool:
    text = difference.delta + difference.txlake
    return (
        difference.aspect == "history"
        and "" in (difference.delta, difference.txlake)
        and re.fullmatch(r"(OPTIMIZE|REORG) \{\}", text) is not None
    )


def _is_without_changes(difference: Difference) -> bool:
    """Delta Spark writes unchanged metadata or files again."""
    text = re.fullmatch(r"([A-Z ]+) (\{.*\})", difference.delta)
    if (
        difference.aspect != "history"
        or difference.txlake
        or text is None
        or text[1] in ("OPTIMIZE", "REORG")
    ):
        return False
    return all(count == "0" for name, count in _counts(text[2]) if name != "numSourceRows")


def _counts(metrics: str) -> list[tuple[str, str]]:
    return re.findall(r"'(\w+)': '(\d+)'", metrics)


def _is_generated_value_missing(difference: Difference) -> bool:
    if difference.aspect != "outcome" or difference.txlake != "done" or difference.shape is None:
        return False
    names = [item.name for item in difference.shape.generated]
    if "[DELTA_MERGE_UNRESOLVED_EXPRESSION" in difference.delta:
        return any(f"resolve {name} in" in difference.delta for name in names)
    call = difference.step.call
    deletes_all = (
        any(clause.values is None and clause.action != "delete" for clause in call.clauses)
        if isinstance(call, ApiMerge)
        else re.search(r"\b(UPDATE SET|INSERT) \*", difference.step.text) is not None
    )
    return bool(names) and deletes_all and _has_no_message(difference)


def _has_no_message(difference: Difference) -> bool:
    """Delta Spark fails to format its own error about a MERGE's expression."""
    return "main error class 'DELTA_MERGE_UNRESOLVED_EXPRESSION'" in difference.delta


def _refused_by_txlake(kinds: str | tuple[str, ...], *words: str) -> Callable[[Difference], bool]:
    """Return a rule: txlake refuses with these words what Delta Spark executes."""
    return lambda difference: (
        difference.aspect == "outcome"
        and difference.delta == "done"
        and difference.step.kind in ((kinds,) if isinstance(kinds, str) else kinds)
        and any(words_of_error in difference.txlake for words_of_error in words)
    )


def _is_source_not_counted(difference: Difference) -> bool:
    counted = re.sub(r"'numSourceRows': '\d+'(, )?", "", difference.delta)
    return (
        difference.aspect == "history"
        and counted == difference.txlake
        and counted != difference.delta
    )


def _is_negative_zero(difference: Difference) -> bool:
    """The table is partitioned by floats, and rows differ only in the sign of a zero."""
    if difference.shape is None or difference.aspect not in ("rows", "other's rows", "answer"):
        return False
    floats = ("DOUBLE", "FLOAT")
    if not any(item.type in floats for item in difference.shape.partition_columns):
        return False
    sides = [side.split(" of ")[0] for side in (difference.delta, difference.txlake)]
    unsigned = [side.replace("-0.0|8", "0.0|0") for side in sides]
    return unsigned[0] == unsigned[1] and sides[0].count("-0.0|8") > sides[1].count("-0.0|8")


def _is_overwrite_of_dynamic_partitions(difference: Difference) -> bool:
    """txlake keeps partitions that Delta Spark removes, and nothing else differs."""
    return (
        difference.aspect == "rows"
        and not difference.step.settings
        and re.match(r"INSERT OVERWRITE \{t\} PARTITION \([^=)]*\)", difference.step.text)
        is not None
        and difference.delta.endswith("alone ")
    )


def _is_merge_into_char(difference: Difference) -> bool:
    return (
        difference.aspect == "outcome"
        and difference.txlake == "done"
        and difference.shape is not None
        and any(item.type.startswith("CHAR(") for item in difference.shape.columns)
        and "DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT" in difference.delta
    )


def _is_insert_without_generated(difference: Difference) -> bool:
    return (
        _refused_by_delta("DELTA_INSERT_COLUMN_ARITY_MISMATCH")(difference)
        and "not enough data columns" in difference.delta
        and difference.shape is not None
        and bool(difference.shape.generated)
        and difference.step.text.startswith("INSERT ")
    )


def _is_struct_with_fewer_fields(difference: Difference) -> bool:
    return (
        _refused_by_delta("DELTA_INSERT_COLUMN_ARITY_MISMATCH")(difference)
        and "not enough nested fields" in difference.delta
        and re.match(r"INSERT INTO \{t\} BY NAME", difference.step.text) is not None
    )


def _is_default_in_merge(difference: Difference) -> bool:
    return (
        difference.aspect == "outcome"
        and difference.txlake == "done"
        and difference.step.kind == "merge"
        and re.search(r"\bDEFAULT\b", difference.step.text) is not None
        and _has_no_message(difference)
    )


def _is_merge_by_source(difference: Difference) -> bool:
    """Several source rows match a row that they don't change: txlake refuses it otherwise."""
    call = difference.step.call
    is_by_source = (
        any(clause.when == "NotMatchedBySource" for clause in call.clauses)
        if isinstance(call, ApiMerge)
        else "WHEN NOT MATCHED BY SOURCE" in difference.step.text
    )
    refused = _refused_by_delta("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE")
    return refused(difference) and is_by_source


def _is_whole_number_widened(difference: Difference) -> bool:
    change = r'"fromType": "(byte|short|integer|long)", "toType": "(decimal|double)'
    return (
        difference.aspect == "definition"
        and difference.step.text.startswith("INSERT INTO {t} BY NAME")
        and re.search(change, difference.delta) is not None
        and re.search(change, difference.txlake) is None
    )


def _is_replacement_by_booleans(difference: Difference) -> bool:
    """Spark makes `flag = true` the condition `flag`, for which Delta Spark has no filter.

    It has none for a NULL either.
    """
    return (
        difference.aspect == "outcome"
        and difference.txlake == "done"
        and "Table does not support overwrite by expression" in difference.delta
        and difference.shape is not None
        and (
            any(item.type == "BOOLEAN" for item in difference.shape.columns)
            or "REPLACE WHERE CAST(NULL AS BOOLEAN) " in difference.step.text
        )
    )


def _is_source_computed(difference: Difference) -> bool:
    """A text of the source that is no value of its own column's type."""
    found = re.search(r"The value '(.*)' of the type \"STRING\" cannot be cast", difference.txlake)
    return (
        _refused_by_txlake("merge", "[CAST_INVALID_INPUT]")(difference)
        and found is not None
        and f"'{found[1]}' AS " in difference.step.text
        and " UNION ALL " in difference.step.text
    )


def _is_delete_with_char(difference: Difference) -> bool:
    return (
        isinstance(difference.step.call, ApiDelete)
        and _refused_by_delta("DELTA_UNSUPPORTED_SOURCE")(difference)
        and difference.shape is not None
        and any(item.type.startswith("CHAR(") for item in difference.shape.columns)
    )


def _is_replacement_without_rows(difference: Difference) -> bool:
    """Rows are replaced by none, or none by rows, and Delta Spark leaves counts out."""
    call = difference.step.call
    replaces = (
        call.replace_where is not None
        if isinstance(call, FrameWrite)
        else re.search(r"^INSERT INTO \{t\} REPLACE WHERE|PARTITION \([^)]*=", difference.step.text)
    )
    if difference.aspect != "history" or not replaces:
        return False
    counts = r"WRITE \{('num(Copied|Deleted)Rows': '\d+', )*'numOutputRows': '0'\}"
    is_whole = (
        call.replace_where == "true"
        if isinstance(call, FrameWrite)
        else "REPLACE WHERE true " in difference.step.text
    )
    number = r"\d+" if is_whole else "0"
    left_out = rf"'num(Copied|Deleted)Rows': '{number}', "
    by_none = difference.delta == "WRITE {}" and re.fullmatch(counts, difference.txlake) is not None
    return by_none or difference.delta == re.sub(left_out, "", difference.txlake)


def _is_null_struct(difference: Difference) -> bool:
    return (
        _refused_by_delta("DELTA_NOT_NULL_CONSTRAINT_VIOLATED")(difference)
        and re.search(r"violated for column: \S+\.\S", difference.delta) is not None
    )


def _is_nullability(difference: Difference) -> bool:
    if difference.aspect != "schema":
        return False
    sides = [
        _without_nullability(json.loads(side)) for side in (difference.delta, difference.txlake)
    ]
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


def _is_of_other_types(difference: Difference) -> bool:
    """A DataFrame's column has another type than the table's."""
    if difference.step.call is None:
        return False
    if _refused_by_delta("DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH")(difference):
        # Without schema evolution: the column isn't to change, the values are.
        return (
            isinstance(difference.step.call, FrameWrite)
            and not difference.step.call.is_schema_merged
        )
    if _refused_by_delta("DELTA_METADATA_MISMATCH")(difference):
        _, _, schemas = difference.delta.partition("Table schema:")
        table, _, rows = schemas.partition("Data schema:")
        # One line a column, and a field.
        names = [sorted(re.findall(r"-- (.*): \w+", side)) for side in (table, rows)]
        return bool(names[1]) and set(names[1]) <= set(names[0])
    if isinstance(difference.step.call, FrameWrite) and difference.step.call.is_schema_replaced:
        return False
    return _refused_by_delta(
        "DELTA_FAILED_TO_MERGE_FIELDS",
        "DELTA_MERGE_INCOMPATIBLE_DATATYPE",
        "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",  # array() and the like
    )(difference)


def _is_not_null_of_a_column(difference: Difference) -> bool:
    return (
        difference.aspect == "outcome"
        and difference.txlake == "done"
        and "Cannot change nullable column to non-nullable" in difference.delta
        and difference.step.text.endswith(" SET NOT NULL")
    )


def _is_new_letter_case(difference: Difference) -> bool:
    names = re.search(r"RENAME COLUMN `(.*)` TO `(.*)`$", difference.step.text)
    return (
        _refused_by_delta("FIELD_ALREADY_EXISTS")(difference)
        and names is not None
        and names[1].lower() == names[2].lower()
    )


def _is_union_with_default(difference: Difference) -> bool:
    refused = _refused_by_delta("INVALID_INLINE_TABLE.INCOMPATIBLE_TYPES_IN_INLINE_TABLE")
    return refused(difference) and re.search(r"\bDEFAULT\b", difference.step.text) is not None


def _is_text_for_no_row(difference: Difference) -> bool:
    """A literal that is no value of its column; what rows there are, txlake's error tells."""
    found = re.search(r"The value '(.*)' of the type \"STRING\" cannot be cast", difference.delta)
    return (
        _refused_by_delta("CAST_INVALID_INPUT")(difference)
        and found is not None
        and f"'{found[1]}'" in str(difference.step)
    )


def _is_replacement_by_nothing_true(difference: Difference) -> bool:
    """The condition says false without looking at a row, as Spark finds out."""
    literals = r"(NOT|AND|OR|true|false|CAST\(NULL AS BOOLEAN\)|[() ])+"
    # One column is NULL, and a value.
    contradiction = r"\(`(?P<name>.+)` IS NULL\) AND \(`(?P=name)` <=> (?!NULL|CAST).*\)"
    return (
        _refused_by_txlake(("insert", "frame"), " is violated by the row")(difference)
        and re.search(f"replace_where ({literals}|{contradiction}) is violated", difference.txlake)
        is not None
    )


def _is_empty_partition_value(difference: Difference) -> bool:
    return (
        _refused_by_txlake(difference.step.kind, "a partition's empty text is NULL")(difference)
        and difference.shape is not None
        and any(not item.is_nullable for item in difference.shape.partition_columns)
    )


def _is_partition_of_bytes(difference: Difference) -> bool:
    return (
        _refused_by_txlake(difference.step.kind, "expected text in UTF-8, found the bytes")(
            difference
        )
        and difference.shape is not None
        and bool(difference.shape.partition_by)
    )


def _is_restored_append_only(difference: Difference) -> bool:
    return _refused_by_txlake("restore", "the table only takes appends")(difference)


def _is_unquoted_name(difference: Difference) -> bool:
    call = difference.step.call
    return (
        isinstance(call, FrameWrite)
        and _refused_by_delta("INVALID_IDENTIFIER", "PARSE_SYNTAX_ERROR")(difference)
        and any(re.fullmatch(r"\w+", name, re.A) is None for name in call.replace_using or ())
    )


def _is_clone_after_a_failed_one(difference: Difference) -> bool:
    return (
        _refused_by_delta("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION")(difference)
        and difference.step.kind == "clone"
    )


def _is_truncation_not_counted(difference: Difference) -> bool:
    return (
        difference.aspect == "history"
        and difference.delta == "TRUNCATE {}"
        and re.fullmatch(r"TRUNCATE \{'numDeletedRows': '\d+'\}", difference.txlake) is not None
    )


def _is_output_with_copies(difference: Difference) -> bool:
    """Files are rewritten, and the rows that stay in them are counted as new ones."""
    sides = [dict(_counts(side)) for side in (difference.delta, difference.txlake)]
    without = [{key: side[key] for key in side if key != "numOutputRows"} for side in sides]
    return (
        difference.aspect == "history"
        and difference.delta.startswith("WRITE {")
        and without[0] == without[1]
        and "numDeletedRows" in sides[0]
        and int(sides[0].get("numOutputRows", 0)) > int(sides[1].get("numOutputRows", 0))
    )


def _is_replacement_by_padded_constant(difference: Difference) -> bool:
    """Delta Spark pads the condition's constants, and not the values of the rows that it checks."""
    condition = re.search(r"condition or constraint '(.*)'\.", difference.delta)
    return (
        _refused_by_delta("DELTA_REPLACE_WHERE_MISMATCH")(difference)
        and condition is not None
        and any(text.endswith(" ") for text in re.findall("'([^']*)'", condition[1]))
        and difference.shape is not None
        and any(item.type.startswith("CHAR(") for item in difference.shape.columns)
    )


def _is_char_compared_without_blanks(difference: Difference) -> bool:
    """Rows are replaced by the value of a CHAR column, and Delta Spark doesn't find them."""
    call = difference.step.call
    return (
        isinstance(call, FrameWrite)
        and difference.shape is not None
        and any(
            item.type.startswith("CHAR(") and item.name in (call.replace_using or ())
            for item in difference.shape.columns
        )
        and (
            difference.aspect == "history"
            or (difference.aspect == "rows" and difference.txlake.endswith("alone "))
        )
    )


def _is_update_by_a_char(difference: Difference) -> bool:
    """Rows are found by the value of a CHAR column, and Delta Spark doesn't find them."""
    call = difference.step.call
    return (
        isinstance(call, ApiUpdate)
        and call.condition is not None
        and difference.shape is not None
        and any(
            item.type.startswith("CHAR(") and item.quoted in call.condition
            for item in difference.shape.columns
        )
        and (
            (difference.aspect == "rows" and re.search(r" '", difference.delta) is not None)
            or (difference.aspect == "history" and not difference.delta)
            or (difference.aspect == "feed" and difference.delta.endswith("alone "))
        )
    )


def _is_char_that_becomes_a_string(difference: Difference) -> bool:
    """The same rows, but for the blanks at the end of texts, which Delta Spark doesn't store."""
    sides = [re.sub(r" +'", "'", side) for side in (difference.delta, difference.txlake)]
    return (
        difference.aspect == "rows"
        and re.search(r" TYPE STRING$", difference.step.text) is not None
        and difference.shape is not None
        and any(item.type.startswith("CHAR(") for item in difference.shape.columns)
        and sides[0] == sides[1]
        and len(difference.delta) < len(difference.txlake)
    )


def _is_default_of_a_frame(difference: Difference) -> bool:
    """Rows' schema replaces the table's, and brings a DEFAULT along or not."""
    call = difference.step.call
    is_replaced = (
        call.is_schema_replaced
        if isinstance(call, FrameWrite)
        else re.match(r"CREATE OR REPLACE TABLE .* AS SELECT ", difference.step.text) is not None
    )
    if difference.aspect != "definition" or not is_replaced:
        return False
    sides = [json.loads(side) for side in (difference.delta, difference.txlake)]
    if any(set(side) != {"columns"} for side in sides):
        return False
    columns = [
        {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != _DEFAULT}}
        for item in sides[0]["columns"]
    ]
    return bool(columns == sides[1]["columns"])


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference("which files OPTIMIZE rewrites", _is_compaction_that_finds_nothing),
    KnownDifference("`*` in a MERGE beside a generated column", _is_generated_value_missing),
    KnownDifference(
        "DEFAULT without its table feature",
        _refused_by_delta("WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"),
    ),
    KnownDifference(
        "TIMESTAMP_NTZ without its table feature",
        _refused_by_delta("DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"),
    ),
    KnownDifference("REPLACE WHERE false", _is_replacement_by_nothing_true),
    KnownDifference("`numSourceRows` of a large MERGE", _is_source_not_counted),
    KnownDifference("-0.0 as a partition value", _is_negative_zero),
    KnownDifference(
        "statements that change no row of an append-only table",
        _refused_by_txlake(
            ("delete", "update", "merge", "insert", "frame", "replace"),
            "the table only takes appends",
        ),
    ),
    KnownDifference(
        "INSERT OVERWRITE ... PARTITION (p) without a value", _is_overwrite_of_dynamic_partitions
    ),
    KnownDifference("MERGE into a table with a CHAR column", _is_merge_into_char),
    KnownDifference("generated columns left out of an INSERT", _is_insert_without_generated),
    KnownDifference("a struct with fewer fields in INSERT BY NAME", _is_struct_with_fewer_fields),
    KnownDifference("MERGE with WHEN NOT MATCHED BY SOURCE", _is_merge_by_source),
    KnownDifference("DEFAULT in a MERGE", _is_default_in_merge),
    KnownDifference("`DeltaTable.delete` on a table with a CHAR column", _is_delete_with_char),
    KnownDifference("counts of a replacement without rows", _is_replacement_without_rows),
    KnownDifference("NULL in place of a struct with a NOT NULL field", _is_null_struct),
    KnownDifference("NOT NULL in a DataFrame's schema", _is_nullability),
    KnownDifference("DEFAULT in a DataFrame's schema", _is_default_of_a_frame),
    KnownDifference("a DataFrame whose types differ from the table's", _is_of_other_types),
    KnownDifference("statements that change nothing", _is_without_changes),
    KnownDifference("ALTER COLUMN ... SET NOT NULL", _is_not_null_of_a_column),
    KnownDifference("RENAME COLUMN to other letter case", _is_new_letter_case),
    KnownDifference("types of a column of VALUES beside DEFAULT", _is_union_with_default),
    KnownDifference("a text that is no value, for no row", _is_text_for_no_row),
    KnownDifference("a source row that can't be computed", _is_source_computed),
    KnownDifference("an empty value in a NOT NULL partition column", _is_empty_partition_value),
    KnownDifference("bytes that are no text as a partition value", _is_partition_of_bytes),
    KnownDifference("`replaceUsing` a CHAR column", _is_char_compared_without_blanks),
    KnownDifference("REPLACE WHERE on a CHAR column", _is_replacement_by_padded_constant),
    KnownDifference("`DeltaTable.update` by a CHAR column", _is_update_by_a_char),
    KnownDifference("a CHAR column that becomes STRING", _is_char_that_becomes_a_string),
    KnownDifference("RESTORE of an append-only table", _is_restored_append_only),
    KnownDifference("names in `replaceUsing`", _is_unquoted_name),
    KnownDifference(
        "CLONE over a table with rows",
        lambda difference: (
            difference.step.kind == "clone"
            and _refused_by_delta("DELTA_UNSUPPORTED_NON_EMPTY_CLONE")(difference)
        ),
    ),
    KnownDifference("whole numbers that INSERT BY NAME widens", _is_whole_number_widened),
    KnownDifference("REPLACE WHERE on a BOOLEAN column", _is_replacement_by_booleans),
    KnownDifference(
        "a FLOAT literal in a CHECK condition",
        lambda difference: (
            _refused_by_delta("PARSE_SYNTAX_ERROR")(difference)
            and re.search(r" ADD CONSTRAINT .*\d\.\d+F\b", difference.step.text) is not None
        ),
    ),
    KnownDifference("CLONE after one that failed", _is_clone_after_a_failed_one),
    KnownDifference("counts of TRUNCATE", _is_truncation_not_counted),
    KnownDifference("rows that a replacement copies", _is_output_with_copies),
)


def find_known(difference: Difference) -> KnownDifference | None:
    """Return the known difference that this one is; None if there is none."""
    return next((known for known in KNOWN if known.matches(difference)), None)
