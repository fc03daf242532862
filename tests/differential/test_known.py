"""Each known difference is recognised by its own rule, and similar differences aren't."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.differential.comparing import Aspect, Difference
from tests.differential.known import KNOWN, find_known
from tests.differential.logs import Log
from tests.differential.schemas import Column, TableShape
from tests.differential.steps import ApiDelete, ApiMerge, ApiUpdate, Call, Clause, FrameWrite, Step

SHAPE = TableShape(
    (Column("d", "DOUBLE"), Column("n", "INT"), Column("twice", "BIGINT", generated="n * 2")),
    ("d",),
    {},
)


def found(
    kind: str, aspect: Aspect, delta: str, txlake: str, call: Call | None = None
) -> Difference:
    return Difference(Step(3, kind, "a statement", call), aspect, delta, txlake, SHAPE)


WITH_CHAR = replace(SHAPE, columns=(Column("c", "CHAR(5)"),))
DELETES = Clause("Matched", "delete")
OVERWRITE = Step(3, "insert", "INSERT OVERWRITE {t} PARTITION (`p`, `q`) SELECT 1, 2")
OF_NULLS = '{"n": ["integer", true, null]}'
EXCUSED = {
    "which files OPTIMIZE rewrites": found("optimize", "history", "OPTIMIZE {}", ""),
    "`*` in a MERGE beside a generated column": found(
        "merge",
        "outcome",
        "AnalysisException: [DELTA_MERGE_UNRESOLVED_EXPRESSION] Cannot resolve twice in INSERT",
        "done",
    ),
    "DEFAULT without its table feature": found(
        "alter",
        "outcome",
        "AnalysisException: [WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED] Failed",
        "done",
    ),
    "REPLACE WHERE false": found(
        "insert", "outcome", "done", "InvalidRequest: t: replace_where false is violated by the row"
    ),
    "`numSourceRows` of a large MERGE": found(
        "merge",
        "history",
        "MERGE {'numOutputRows': '1', 'numSourceRows': '2', 'numTarget': '0'}",
        "MERGE {'numOutputRows': '1', 'numTarget': '0'}",
    ),
    "-0.0 as a partition value": found(
        "insert", "rows", "1 rows, alone (-0.0|8)", "1 rows, alone (0.0|0)"
    ),
    "statements that change no row of an append-only table": found(
        "delete", "outcome", "done", "InvalidRequest: t: the table only takes appends (delta...)"
    ),
    "INSERT OVERWRITE ... PARTITION (p) without a value": replace(
        found("insert", "rows", "1 rows, alone ", "2 rows, alone (7)"), step=OVERWRITE
    ),
    "MERGE into a table with a CHAR column": replace(
        found(
            "merge",
            "outcome",
            "Cannot find main error class 'DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT'",
            "done",
        ),
        shape=WITH_CHAR,
    ),
    "generated columns left out of an INSERT": replace(
        found(
            "insert",
            "outcome",
            "AnalysisException: [DELTA_INSERT_COLUMN_ARITY_MISMATCH] not enough data columns",
            "done",
        ),
        step=Step(3, "insert", "INSERT OVERWRITE {t} SELECT 1.5 AS d, 1 AS n"),
    ),
    "a struct with fewer fields in INSERT BY NAME": replace(
        found(
            "insert",
            "outcome",
            "AnalysisException: [DELTA_INSERT_COLUMN_ARITY_MISMATCH] not enough nested fields in s",
            "done",
        ),
        step=Step(3, "insert", "INSERT INTO {t} BY NAME SELECT named_struct('x', 1) AS s"),
    ),
    "MERGE with WHEN NOT MATCHED BY SOURCE": replace(
        found(
            "merge",
            "outcome",
            "[DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE] Cannot perform Merge",
            "done",
        ),
        step=Step(3, "merge", "MERGE ... WHEN NOT MATCHED BY SOURCE THEN DELETE"),
    ),
    "CLONE over a table with rows": found(
        "clone", "outcome", "[DELTA_UNSUPPORTED_NON_EMPTY_CLONE] The clone destination", "done"
    ),
    "whole numbers that INSERT BY NAME widens": replace(
        found(
            "insert",
            "definition",
            '{"delta.typeChanges": [{"fromType": "integer", "toType": "decimal(12,2)"}]}',
            '{"columns": []}',
        ),
        step=Step(3, "insert", "INSERT INTO {t} BY NAME SELECT 1.25 AS n"),
    ),
    "REPLACE WHERE on a BOOLEAN column": replace(
        found(
            "insert",
            "outcome",
            "Py4JJavaError: Table does not support overwrite by expression: DeltaTableV2",
            "done",
        ),
        shape=replace(SHAPE, columns=(Column("b", "BOOLEAN"),)),
    ),
    "a FLOAT literal in a CHECK condition": replace(
        found("alter", "outcome", "ParseException: [PARSE_SYNTAX_ERROR] at or near '5F'", "done"),
        step=Step(3, "alter", "ALTER TABLE {t} ADD CONSTRAINT c CHECK (`n` < 0.5F)"),
    ),
    "a source row that can't be computed": replace(
        found(
            "merge",
            "outcome",
            "done",
            '[CAST_INVALID_INPUT] The value \'x\' of the type "STRING" cannot be cast to "INT"',
        ),
        step=Step(3, "merge", "MERGE ... USING (SELECT 'x' AS n UNION ALL SELECT 1 AS n) s"),
    ),
    "DEFAULT in a MERGE": replace(
        found(
            "merge",
            "outcome",
            "Py4JJavaError: Cannot find main error class 'DELTA_MERGE_UNRESOLVED_EXPRESSION'",
            "done",
        ),
        step=Step(3, "merge", "MERGE INTO {t} ... WHEN MATCHED THEN UPDATE SET n = DEFAULT"),
    ),
    "`DeltaTable.delete` on a table with a CHAR column": replace(
        found(
            "delete",
            "outcome",
            "AnalysisException: [DELTA_UNSUPPORTED_SOURCE] DELETE destination only supports",
            "done",
            ApiDelete("n = 1"),
        ),
        shape=WITH_CHAR,
    ),
    "counts of a replacement without rows": found(
        "frame",
        "history",
        "WRITE {}",
        "WRITE {'numDeletedRows': '2', 'numOutputRows': '0'}",
        FrameWrite("overwrite", replace_where="n = 1"),
    ),
    "NULL in place of a struct with a NOT NULL field": found(
        "insert",
        "outcome",
        "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: s.a.",
        "done",
    ),
    "DEFAULT in a DataFrame's schema": found(
        "frame",
        "definition",
        '{"columns": [{"name": "n", "metadata": {"CURRENT_DEFAULT": "1", "comment": "c"}}]}',
        '{"columns": [{"name": "n", "metadata": {"comment": "c"}}]}',
        FrameWrite("overwrite", is_schema_replaced=True),
    ),
    "NOT NULL in a DataFrame's schema": found(
        "create", "schema", OF_NULLS, OF_NULLS.replace("true", "false")
    ),
    "a DataFrame whose types differ from the table's": found(
        "frame",
        "outcome",
        "AnalysisException: [DELTA_FAILED_TO_MERGE_FIELDS] Failed",
        "done",
        FrameWrite("append"),
    ),
    "statements that change nothing": found(
        "merge", "history", "MERGE {'numOutputRows': '0', 'numSourceRows': '2'}", ""
    ),
    "ALTER COLUMN ... SET NOT NULL": replace(
        found("alter", "outcome", "Cannot change nullable column to non-nullable: n.", "done"),
        step=Step(3, "alter", "ALTER TABLE {t} ALTER COLUMN `n` SET NOT NULL"),
    ),
    "RENAME COLUMN to other letter case": replace(
        found("alter", "outcome", "[FIELD_ALREADY_EXISTS] Cannot rename column, because", "done"),
        step=Step(3, "alter", "ALTER TABLE {t} RENAME COLUMN `n` TO `N`"),
    ),
    "types of a column of VALUES beside DEFAULT": replace(
        found(
            "insert",
            "outcome",
            "[INVALID_INLINE_TABLE.INCOMPATIBLE_TYPES_IN_INLINE_TABLE] x",
            "done",
        ),
        step=Step(3, "insert", "INSERT INTO {t} VALUES (DEFAULT, 'a'), (1, X'31')"),
    ),
    "`replaceUsing` a CHAR column": replace(
        found(
            "frame",
            "rows",
            "7 rows, alone (0, 'b    ')",
            "5 rows, alone ",
            FrameWrite("overwrite", replace_using=("c",)),
        ),
        shape=WITH_CHAR,
    ),
    "REPLACE WHERE on a CHAR column": replace(
        found(
            "insert",
            "outcome",
            "[DELTA_REPLACE_WHERE_MISMATCH] overwrite condition or constraint '(c >= '     ')'.",
            "done",
        ),
        shape=WITH_CHAR,
    ),
    "`DeltaTable.update` by a CHAR column": replace(
        found(
            "update",
            "rows",
            "1 rows, alone ('b    ')",
            "1 rows, alone (None)",
            ApiUpdate("`c` >= 'b'", (("c", "NULL"),)),
        ),
        shape=WITH_CHAR,
    ),
    "TIMESTAMP_NTZ without its table feature": found(
        "alter", "outcome", "[DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT] ...: timestampNtz", "done"
    ),
    "a text that is no value, for no row": replace(
        found(
            "update",
            "outcome",
            '[CAST_INVALID_INPUT] The value \'x\' of the type "STRING" cannot be cast to "INT"',
            "done",
        ),
        step=Step(3, "update", "UPDATE {t} SET `n` = 'x' WHERE true"),
    ),
    "an empty value in a NOT NULL partition column": replace(
        found(
            "insert",
            "outcome",
            "done",
            "NOT NULL of column 'd' is violated: the table is partitioned by it, and a partition's "
            "empty text is NULL",
        ),
        shape=replace(SHAPE, columns=(Column("d", "BINARY", is_nullable=False),)),
    ),
    "bytes that are no text as a partition value": found(
        "insert", "outcome", "done", "column 'd' is ...: expected text in UTF-8, found the bytes FF"
    ),
    "a CHAR column that becomes STRING": replace(
        found("alter", "rows", "1 rows, alone ('b', 1)", "1 rows, alone ('b    ', 1)"),
        step=Step(3, "alter", "ALTER TABLE {t} ALTER COLUMN `c` TYPE STRING"),
        shape=WITH_CHAR,
    ),
    "RESTORE of an append-only table": found(
        "restore", "outcome", "done", "t at version 3: the table only takes appends (delta...)"
    ),
    "names in `replaceUsing`": found(
        "frame",
        "outcome",
        "ParseException: [INVALID_IDENTIFIER] The unquoted identifier ö is invalid",
        "done",
        FrameWrite("overwrite", replace_using=("n", "ö")),
    ),
    "CLONE after one that failed": found(
        "clone", "outcome", "[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION] Cannot create", "done"
    ),
    "counts of TRUNCATE": found(
        "truncate", "history", "TRUNCATE {}", "TRUNCATE {'numDeletedRows': '2'}"
    ),
    "rows that a replacement copies": found(
        "frame",
        "history",
        "WRITE {'numDeletedRows': '3', 'numOutputRows': '3'}",
        "WRITE {'numDeletedRows': '3', 'numOutputRows': '2'}",
    ),
}


def test_each_known_difference_has_an_example() -> None:
    assert set(EXCUSED) == {one.name for one in KNOWN}


@pytest.mark.parametrize("name", EXCUSED)
def test_each_example_matches_its_own_rule(name: str) -> None:
    known = find_known(EXCUSED[name])
    assert known is not None
    assert known.name == name
    assert [one.name for one in KNOWN if one.matches(EXCUSED[name])] == [name]


@pytest.mark.parametrize("name", EXCUSED)
def test_swapped_sides_match_no_rule(name: str) -> None:
    difference = EXCUSED[name]
    turned = replace(difference, delta=difference.txlake, txlake=difference.delta)
    both_ways = {
        "which files OPTIMIZE rewrites",
        "NOT NULL in a DataFrame's schema",
        "a source row that can't be computed",  # "a text that is no value, for no row"
    }
    if name not in both_ways:
        assert find_known(turned) is None


@pytest.mark.parametrize(
    "difference",
    [
        found("optimize", "history", "OPTIMIZE {}; WRITE {}", ""),
        found("merge", "history", "MERGE {'numOutputRows': '1'}", ""),
        found("optimize", "rows", "1 rows, alone (1)", "0 rows, alone "),
        found(
            "merge", "outcome", "[DELTA_MERGE_UNRESOLVED_EXPRESSION] Cannot resolve n in", "done"
        ),
        found("insert", "outcome", "done", "replace_where n = 1 is violated by the row"),
        found(
            "merge",
            "history",
            "MERGE {'numOutputRows': '1', 'numSourceRows': '2'}",
            "MERGE {'numOutputRows': '2'}",
        ),
        found("insert", "rows", "1 rows, alone (1)", "1 rows, alone (2)"),
        found("insert", "rows", "1 rows, alone (-0.0|8)", "2 rows, alone (0.0|0)"),
        found("insert", "rows", "1 rows, alone (-0.0|8, 1)", "1 rows, alone (0.0|0, 2)"),
        found(
            "insert",
            "outcome",
            "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: a.\n",
            "done",
        ),
        found("alter", "outcome", "done", "the table only takes appends"),
        found("create", "schema", OF_NULLS, OF_NULLS.replace("integer", "long")),
        found("insert", "outcome", "[DELTA_FAILED_TO_MERGE_FIELDS] Failed", "done"),
        found(
            "insert",
            "outcome",
            "[DELTA_INSERT_COLUMN_ARITY_MISMATCH] not enough nested fields in s",
            "done",
        ),
        found("merge", "outcome", "main error class 'DELTA_MERGE_UNRESOLVED_EXPRESSION'", "done"),
        found("update", "history", "UPDATE {'numUpdatedRows': '1'}", ""),
        found("update", "outcome", "[CAST_INVALID_INPUT] The value 'x' of the type", "done"),
        found("alter", "outcome", "Cannot change nullable column to non-nullable: n.", "done"),
        found("alter", "outcome", "[FIELD_ALREADY_EXISTS] Cannot rename column", "done"),
        found("alter", "rows", "1 rows, alone ('b', 1)", "1 rows, alone ('b    ', 1)"),
        found("insert", "outcome", "done", "replace_where true AND n = 1 is violated by the row"),
        found(
            "insert",
            "outcome",
            "done",
            "replace_where (`n` IS NULL) AND (`m` <=> 1) is violated by the row",
        ),
        replace(
            found("alter", "outcome", "[PARSE_SYNTAX_ERROR] Syntax error", "done"),
            step=Step(3, "alter", "ALTER TABLE {t} ADD CONSTRAINT c CHECK (`n` < 0.5)"),
        ),
        found("insert", "outcome", "done", "a partition's empty text is NULL"),
        found("create", "outcome", "[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION] x", "done"),
        found(
            "insert",
            "outcome",
            "[INVALID_INLINE_TABLE.INCOMPATIBLE_TYPES_IN_INLINE_TABLE] x",
            "done",
        ),
        found("insert", "outcome", "[DELTA_REPLACE_WHERE_MISMATCH] condition '(c >= ' ')'", "done"),
        found("create", "outcome", "[DELTA_UNSUPPORTED_NON_EMPTY_CLONE] The clone", "done"),
        found("insert", "outcome", "Table does not support overwrite by expression: x", "done"),
        replace(
            found("insert", "definition", '{"fromType": "byte", "toType": "short"}', "{}"),
            step=Step(3, "insert", "INSERT INTO {t} BY NAME SELECT 1.25 AS n"),
        ),
        found("insert", "definition", '{"fromType": "byte", "toType": "decimal(10,0)"}', "{}"),
        found("delete", "history", "DELETE {}", "DELETE {'numDeletedRows': '2'}"),
        found("frame", "history", "WRITE {'numOutputRows': '3'}", "WRITE {'numOutputRows': '2'}"),
        found(
            "frame",
            "outcome",
            "[PARSE_SYNTAX_ERROR] x",
            "done",
            FrameWrite("overwrite", replace_using=("n",)),
        ),
    ],
    ids=str,
)
def test_similar_differences_match_no_rule(difference: Difference) -> None:
    assert find_known(difference) is None


def test_an_overwrite_of_a_named_partition_or_with_lost_rows_is_unknown() -> None:
    difference = EXCUSED["INSERT OVERWRITE ... PARTITION (p) without a value"]
    for step in (
        replace(OVERWRITE, text=OVERWRITE.text.replace("`q`", "`q` = 1")),
        replace(OVERWRITE, text=OVERWRITE.text.replace("OVERWRITE", "INTO")),
        replace(OVERWRITE, settings=(("spark.sql.sources.partitionOverwriteMode", "dynamic"),)),
    ):
        assert find_known(replace(difference, step=step)) is None
    assert find_known(replace(difference, delta="2 rows, alone (8)")) is None


def test_replacements_are_known_by_statement_or_option() -> None:
    difference = EXCUSED["counts of a replacement without rows"]
    for text, is_one in (
        ("INSERT INTO {t} REPLACE WHERE n = 1 SELECT 1", True),
        ("INSERT OVERWRITE {t} PARTITION (`id` = 3) SELECT 1", True),
        ("INSERT OVERWRITE {t} PARTITION (`id`) SELECT 1", False),
        ("INSERT OVERWRITE {t} SELECT 1 WHERE n = 1", False),
    ):
        known = find_known(replace(difference, step=Step(3, "insert", text)))
        assert (known is not None) == is_one
    for text, is_one in (("n = 1", False), ("true", True)):
        step = Step(3, "insert", f"INSERT INTO {{t}} REPLACE WHERE {text} SELECT 1")
        told = found("insert", "history", "WRITE {'numOutputRows': '3'}", difference.txlake)
        told = replace(told, txlake="WRITE {'numDeletedRows': '8', 'numOutputRows': '3'}")
        assert (find_known(replace(told, step=step)) is not None) == is_one
    assert (
        find_known(replace(difference, step=replace(OVERWRITE, call=FrameWrite("append")))) is None
    )
    assert find_known(replace(difference, txlake="WRITE {'numOutputRows': '1'}")) is None


def test_omitted_columns_are_known_only_if_generated() -> None:
    difference = EXCUSED["generated columns left out of an INSERT"]
    plain = replace(SHAPE, columns=SHAPE.columns[:2])
    assert find_known(replace(difference, shape=plain)) is None
    write = Step(3, "frame", "SELECT 1.5 AS d, 1 AS n", FrameWrite("append"))
    assert find_known(replace(difference, step=write)) is None


def test_a_star_in_a_merge_with_a_generated_column_has_two_errors() -> None:
    without = replace(SHAPE, columns=SHAPE.columns[:2])
    told = found("merge", "outcome", "main error class 'DELTA_MERGE_UNRESOLVED_EXPRESSION'", "done")
    everything = Clause("NotMatched", "insert")
    for step, is_one in (
        (Step(3, "merge", "MERGE ... WHEN MATCHED THEN UPDATE SET *"), True),
        (Step(3, "merge", "MERGE ... WHEN NOT MATCHED THEN INSERT *"), True),
        (Step(3, "merge", "MERGE ... WHEN MATCHED THEN UPDATE SET n = s.n * 2"), False),
        (Step(3, "merge", "SELECT 1 AS n", ApiMerge("true", (everything,))), True),
        (Step(3, "merge", "SELECT * FROM x", ApiMerge("true", (DELETES,))), False),
    ):
        assert (find_known(replace(told, step=step)) is not None) == is_one
        assert find_known(replace(told, step=step, shape=without)) is None


def test_a_frame_with_other_columns_is_unknown() -> None:
    schemas = "Table schema:\nroot\n |-- n: byte\n |-- s: string\n\nData schema:\nroot\n"
    difference = EXCUSED["a DataFrame whose types differ from the table's"]
    for rows, is_one in ((" |-- n: integer\n", True), (" |-- m: byte\n", False), ("", False)):
        told = replace(difference, delta=f"[DELTA_METADATA_MISMATCH] A\n{schemas}{rows}")
        assert (find_known(told) is not None) == is_one


def test_a_frame_with_a_generated_column_is_known_if_its_schema_stays() -> None:
    refused = "AnalysisException: [DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH] Column n has data"
    for call, is_one in (
        (FrameWrite("overwrite"), True),
        (FrameWrite("append", is_schema_merged=True), False),
        (None, False),
    ):
        known = find_known(found("frame", "outcome", refused, "done", call))
        assert (known is not None) == is_one


def test_a_merge_that_keeps_other_rows_is_unknown() -> None:
    difference = EXCUSED["MERGE with WHEN NOT MATCHED BY SOURCE"]
    by_source = Clause("NotMatchedBySource", "delete")
    for step, is_one in (
        (Step(3, "merge", "MERGE ... WHEN MATCHED AND n > 1 THEN DELETE"), False),
        (Step(3, "merge", "SELECT 1 AS n", ApiMerge("true", (DELETES, by_source))), True),
        (Step(3, "merge", "SELECT 1 AS n", ApiMerge("true", (DELETES,))), False),
    ):
        assert (find_known(replace(difference, step=step)) is not None) == is_one


def test_a_replacement_with_a_contradiction_is_known() -> None:
    for condition, is_one in (
        ("(`a b` IS NULL) AND (`a b` <=> 3)", True),
        ("(`a b` IS NULL) AND (`a b` <=> NULL)", False),
        ("(`a` IS NULL) OR (`a` <=> 3)", False),
        ("true AND (NOT false)", True),
        ("CAST(NULL AS BOOLEAN)", True),
        ("CAST(`a` AS BOOLEAN)", False),
    ):
        told = f"InvalidRequest: t: replace_where {condition} is violated by the row"
        known = find_known(found("insert", "outcome", "done", told))
        assert (known is not None) == is_one


def test_a_replacement_with_null_is_known() -> None:
    difference = replace(EXCUSED["REPLACE WHERE on a BOOLEAN column"], shape=SHAPE)
    for condition, is_one in (("CAST(NULL AS BOOLEAN)", True), ("`n` = 3", False)):
        text = f"INSERT INTO {{t}} REPLACE WHERE {condition} SELECT 1 AS n"
        known = find_known(replace(difference, step=Step(3, "insert", text)))
        assert (known is not None) == is_one


def test_a_text_assigned_by_a_merge_is_unknown() -> None:
    difference = EXCUSED["a source row that can't be computed"]
    for text in (
        "MERGE ... USING (SELECT 1 AS n UNION ALL SELECT 2) s ... THEN UPDATE SET n = 'x'",
        "MERGE ... USING (SELECT 'x' AS n) s ON t.n = s.n",
    ):
        assert find_known(replace(difference, step=Step(3, "merge", text))) is None


def test_replacements_by_a_char_column_are_known() -> None:
    difference = EXCUSED["`replaceUsing` a CHAR column"]
    call = FrameWrite("overwrite", replace_using=("n",))
    assert find_known(replace(difference, step=replace(difference.step, call=call))) is None
    assert find_known(replace(difference, txlake="5 rows, alone (1, 'b    ')")) is None


def test_updates_by_a_char_column_are_known() -> None:
    difference = EXCUSED["`DeltaTable.update` by a CHAR column"]
    call = ApiUpdate("`n` >= 'b'", (("c", "NULL"),))
    assert find_known(replace(difference, step=replace(difference.step, call=call))) is None
    assert find_known(replace(difference, shape=SHAPE)) is None
    assert find_known(replace(difference, aspect="other's rows")) is None


def test_a_default_of_a_frame_is_known_only_with_a_replaced_schema() -> None:
    difference = EXCUSED["DEFAULT in a DataFrame's schema"]
    step = Step(3, "frame", "SELECT 1 AS n", FrameWrite("overwrite"))
    assert find_known(replace(difference, step=step)) is None
    for text, is_one in (("CREATE OR REPLACE TABLE {t} AS SELECT 1 AS n", True), ("ALTER", False)):
        known = find_known(replace(difference, step=Step(3, "replace", text)))
        assert (known is not None) == is_one
    for before, after in (('"c"', '"d"'), ("columns", "properties")):
        told = difference.delta.replace(before, after)
        assert find_known(replace(difference, delta=told)) is None


def test_only_constants_that_delta_spark_pads_are_known() -> None:
    difference = EXCUSED["REPLACE WHERE on a CHAR column"]
    assert find_known(replace(difference, shape=SHAPE)) is None
    told = difference.delta.replace("'     '", "'a'")
    assert find_known(replace(difference, delta=told)) is None


def test_a_refused_delete_by_sql_or_without_a_char_is_unknown() -> None:
    difference = EXCUSED["`DeltaTable.delete` on a table with a CHAR column"]
    assert find_known(replace(difference, shape=SHAPE)) is None
    assert find_known(replace(difference, step=Step(3, "delete", "DELETE FROM {t}"))) is None


def test_the_sign_of_zero_outside_partitions_is_unknown() -> None:
    difference = EXCUSED["-0.0 as a partition value"]
    assert find_known(replace(difference, shape=replace(SHAPE, partition_by=()))) is None


def test_blanks_are_removed_outside_texts_and_names() -> None:
    def conditions(text: str) -> Any:
        metadata = {
            "schemaString": '{"fields": []}',
            "partitionColumns": [],
            "configuration": {"delta.constraints.c": text, "mine": " x "},
        }
        return Log(metadata, ()).definition()["properties"]

    assert conditions("( `a b` = 'c  d' ) AND x") == conditions("(`a b`='c  d')AND x")
    assert conditions("`a b` = 'c  d'") != conditions("`a b` = 'c d'")
    assert conditions("`a b` = 1") != conditions("`ab` = 1")
    assert conditions("x")["mine"] == " x "
