from __future__ import annotations

import re

import pytest
from dbt.tests.adapter.unit_testing import test_quoted_reserved_word_column_names
from dbt.tests.adapter.unit_testing.test_case_insensitivity import (
    BaseUnitTestCaseInsensivity,
)
from dbt.tests.adapter.unit_testing.test_invalid_input import (
    BaseUnitTestInvalidInput,
)
from dbt.tests.adapter.unit_testing.test_quoted_reserved_word_column_names import (
    BaseUnitTestQuotedReservedWordColumnNames,
)
from dbt.tests.adapter.unit_testing.test_types import (
    BaseUnitTestingTypes,
    BaseUnitTestingVarcharFixtureNoTruncation,
)
from dbt.tests.adapter.utils import fixture_get_intervals_between
from dbt.tests.adapter.utils.data_types import test_type_float, test_type_int
from dbt.tests.adapter.utils.data_types.test_type_bigint import (
    BaseTypeBigInt,
)
from dbt.tests.adapter.utils.data_types.test_type_boolean import (
    BaseTypeBoolean,
)
from dbt.tests.adapter.utils.data_types.test_type_float import (
    BaseTypeFloat,
)
from dbt.tests.adapter.utils.data_types.test_type_int import (
    BaseTypeInt,
)
from dbt.tests.adapter.utils.data_types.test_type_numeric import (
    BaseTypeNumeric,
)
from dbt.tests.adapter.utils.data_types.test_type_string import (
    BaseTypeString,
)
from dbt.tests.adapter.utils.data_types.test_type_timestamp import (
    BaseTypeTimestamp,
)
from dbt.tests.adapter.utils.test_any_value import (
    BaseAnyValue,
)
from dbt.tests.adapter.utils.test_array_append import (
    BaseArrayAppend,
)
from dbt.tests.adapter.utils.test_array_concat import (
    BaseArrayConcat,
)
from dbt.tests.adapter.utils.test_array_construct import (
    BaseArrayConstruct,
)
from dbt.tests.adapter.utils.test_bool_or import (
    BaseBoolOr,
)
from dbt.tests.adapter.utils.test_cast import (
    BaseCast,
)
from dbt.tests.adapter.utils.test_cast_bool_to_text import (
    BaseCastBoolToText,
)
from dbt.tests.adapter.utils.test_concat import (
    BaseConcat,
)
from dbt.tests.adapter.utils.test_current_timestamp import (
    BaseCurrentTimestampAware,
)
from dbt.tests.adapter.utils.test_date import (
    BaseDate,
)
from dbt.tests.adapter.utils.test_date_spine import (
    BaseDateSpine,
)
from dbt.tests.adapter.utils.test_date_trunc import (
    BaseDateTrunc,
)
from dbt.tests.adapter.utils.test_dateadd import (
    BaseDateAdd,
)
from dbt.tests.adapter.utils.test_datediff import (
    BaseDateDiff,
)
from dbt.tests.adapter.utils.test_equals import (
    BaseEquals,
)
from dbt.tests.adapter.utils.test_escape_single_quotes import (
    BaseEscapeSingleQuotesBackslash,
    BaseEscapeSingleQuotesQuote,
)
from dbt.tests.adapter.utils.test_except import (
    BaseExcept,
)
from dbt.tests.adapter.utils.test_generate_series import (
    BaseGenerateSeries,
)
from dbt.tests.adapter.utils.test_get_intervals_between import (
    BaseGetIntervalsBetween,
)
from dbt.tests.adapter.utils.test_get_powers_of_two import (
    BaseGetPowersOfTwo,
)
from dbt.tests.adapter.utils.test_hash import (
    BaseHash,
)
from dbt.tests.adapter.utils.test_intersect import (
    BaseIntersect,
)
from dbt.tests.adapter.utils.test_last_day import (
    BaseLastDay,
)
from dbt.tests.adapter.utils.test_length import (
    BaseLength,
)
from dbt.tests.adapter.utils.test_null_compare import (
    BaseMixedNullCompare,
    BaseNullCompare,
)
from dbt.tests.adapter.utils.test_position import (
    BasePosition,
)
from dbt.tests.adapter.utils.test_replace import (
    BaseReplace,
)
from dbt.tests.adapter.utils.test_right import (
    BaseRight,
)
from dbt.tests.adapter.utils.test_safe_cast import (
    BaseSafeCast,
)
from dbt.tests.adapter.utils.test_source_freshness_custom_info import (
    BaseCalculateFreshnessMethod,
)
from dbt.tests.adapter.utils.test_split_part import (
    BaseSplitPart,
)
from dbt.tests.adapter.utils.test_string_literal import (
    BaseStringLiteral,
)
from dbt.tests.adapter.utils.test_timestamps import (
    BaseCurrentTimestamps,
)
from dbt.tests.adapter.utils.test_validate_sql import (
    BaseValidateSqlMethod,
)

_COLUMN_TYPE = """
version: 2
seeds:
  - name: expected
    config:
      column_types: {{{}}}
"""


class TestAnyValue(BaseAnyValue): ...


class TestArrayAppend(BaseArrayAppend): ...


class TestArrayConcat(BaseArrayConcat): ...


class TestArrayConstruct(BaseArrayConstruct): ...


class TestBoolOr(BaseBoolOr): ...


class TestCast(BaseCast): ...


class TestCastBoolToText(BaseCastBoolToText): ...


class TestConcat(BaseConcat): ...


class TestCurrentTimestampAware(BaseCurrentTimestampAware): ...


class TestDate(BaseDate): ...


class TestDateSpine(BaseDateSpine): ...


class TestDateTrunc(BaseDateTrunc): ...


class TestDateAdd(BaseDateAdd): ...


class TestDateDiff(BaseDateDiff): ...


class TestEquals(BaseEquals): ...


class TestEscapeSingleQuotesQuote(BaseEscapeSingleQuotesQuote): ...


class TestEscapeSingleQuotesBackslash(BaseEscapeSingleQuotesBackslash): ...


class TestExcept(BaseExcept): ...


class TestGenerateSeries(BaseGenerateSeries): ...


class TestGetIntervalsBetween(BaseGetIntervalsBetween):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        model = fixture_get_intervals_between.models__test_get_intervals_between_sql
        iso = re.sub(r"(\d\d)/(\d\d)/(\d{4})", r"\3-\1-\2", model)
        schema = fixture_get_intervals_between.models__test_get_intervals_between_yml
        return {
            "test_get_intervals_between.sql": self.interpolate_macro_namespace(
                iso, "get_intervals_between"
            ),
            "test_get_intervals_between.yml": schema,
        }


class TestGetPowersOfTwo(BaseGetPowersOfTwo): ...


class TestHash(BaseHash): ...


class TestIntersect(BaseIntersect): ...


class TestLastDay(BaseLastDay): ...


class TestLength(BaseLength): ...


class TestMixedNullCompare(BaseMixedNullCompare): ...


class TestNullCompare(BaseNullCompare): ...


class TestPosition(BasePosition): ...


class TestReplace(BaseReplace): ...


class TestRight(BaseRight): ...


class TestSafeCast(BaseSafeCast): ...


class TestCalculateFreshnessMethod(BaseCalculateFreshnessMethod): ...


class TestSplitPart(BaseSplitPart): ...


class TestStringLiteral(BaseStringLiteral): ...


class TestCurrentTimestamps(BaseCurrentTimestamps):
    @pytest.fixture(scope="class")
    def expected_schema(self) -> dict[str, str]:
        names = ("", "_in_utc_backcompat", "_backcompat")
        return dict.fromkeys((f"current_timestamp{name}" for name in names), "timestamp")

    @pytest.fixture(scope="class")
    def expected_sql(self) -> None:
        """Don't compare the text."""


class TestValidateSqlMethod(BaseValidateSqlMethod): ...


class TestTypeBigInt(BaseTypeBigInt): ...


class TestTypeBoolean(BaseTypeBoolean): ...


class TestTypeFloat(BaseTypeFloat):
    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        return {
            "expected.csv": test_type_float.seeds__expected_csv,
            "expected.yml": _COLUMN_TYPE.format("float_col: float"),
        }


class TestTypeInt(BaseTypeInt):
    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        return {
            "expected.csv": test_type_int.seeds__expected_csv,
            "expected.yml": _COLUMN_TYPE.format("int_col: int"),
        }


class TestTypeNumeric(BaseTypeNumeric): ...


class TestTypeString(BaseTypeString): ...


class TestTypeTimestamp(BaseTypeTimestamp): ...


class TestUnitTestCaseInsensivity(BaseUnitTestCaseInsensivity): ...


class TestUnitTestInvalidInput(BaseUnitTestInvalidInput): ...


class TestUnitTestQuotedReservedWordColumnNames(BaseUnitTestQuotedReservedWordColumnNames):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        module = test_quoted_reserved_word_column_names
        return {
            "my_model.sql": module.my_model_sql,
            "my_upstream_model.sql": "select 1 as `GROUP`",
            "unit_tests.yml": module.test_my_model_csv_fixtures_yml,
        }


class TestUnitTestingTypes(BaseUnitTestingTypes):
    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        return [
            ["1", "1"],
            ["2.0", "2.0"],
            ["'12345'", "12345"],
            ["'string'", "string"],
            ["true", "true"],
            ["DATE '2020-01-02'", "2020-01-02"],
            ["TIMESTAMP '2013-11-03 00:00:00-0'", "2013-11-03 00:00:00-0"],
            ["cast(1 as decimal(10,2))", "1"],
        ]


class TestUnitTestingVarcharFixtureNoTruncation(BaseUnitTestingVarcharFixtureNoTruncation): ...
