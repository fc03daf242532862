"""Errors leave the edge as ours and as PySpark's at once, with the same message and attributes."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from pyspark.errors import (
    AnalysisException,
    PySparkException,
    UnsupportedOperationException,
)

from txlake import errors
from txlake.errors import (
    ConcurrentAppendException,
    Conflict,
    CorruptTable,
    Evidence,
    InvalidRequest,
    TxlakeError,
    UnsupportedFeature,
    UpdateConflict,
)
from txlake.lake.tables.errors import raises_delta_spark_errors, translate


def raised(error: Exception) -> Exception:
    @raises_delta_spark_errors
    def call() -> None:
        raise error

    with pytest.raises(type(error)) as found:
        call()
    return found.value


def test_bad_requests_are_analysis_exceptions() -> None:
    error = raised(InvalidRequest("no column x"))
    assert isinstance(error, AnalysisException)
    assert str(error) == "no column x"
    assert error.getCondition() is None


def test_an_error_class_at_the_start_of_a_message_is_the_condition() -> None:
    error = raised(InvalidRequest("[DELTA_MISSING_DELTA_TABLE] /t is not a Delta table"))
    assert isinstance(error, AnalysisException)
    assert error.getCondition() == "DELTA_MISSING_DELTA_TABLE"
    assert str(error) == "[DELTA_MISSING_DELTA_TABLE] /t is not a Delta table"
    assert error.args == (str(error),)


def test_an_error_class_behind_the_tables_name_is_the_condition_too() -> None:
    error = raised(InvalidRequest("/t: [DELTA_UNSUPPORTED_FEATURES_IN_CONFIG] no such feature: x"))
    assert isinstance(error, AnalysisException)
    assert error.getCondition() == "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"
    assert str(error) == "[DELTA_UNSUPPORTED_FEATURES_IN_CONFIG] /t: no such feature: x"


def test_an_error_class_at_the_end_of_a_message_is_the_condition_too() -> None:
    error = raised(InvalidRequest("/t: it can't be [DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED]"))
    assert isinstance(error, AnalysisException)
    assert error.getCondition() == "DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED"
    assert str(error) == "[DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED] /t: it can't be"


def test_other_words_in_brackets_are_not() -> None:
    error = raised(InvalidRequest("columns [KEY] [VALUE] are missing"))
    assert isinstance(error, AnalysisException)
    assert error.getCondition() is None


def test_missing_features_are_unsupported_operations() -> None:
    error = raised(UnsupportedFeature("needs identityColumns"))
    assert isinstance(error, UnsupportedOperationException)
    assert str(error) == "needs identityColumns"


def test_a_conflict_keeps_its_evidence_and_its_numbers() -> None:
    evidence = Evidence(table="t", read_version=3, winning_version=4)
    error = raised(UpdateConflict("both changed t", evidence))
    assert isinstance(error, PySparkException)
    assert isinstance(error, UpdateConflict)
    assert error.evidence is evidence
    assert error.codes == (24556, 24706)
    assert str(error) == "both changed t (error 24556, 24706)"


def test_conflicts_are_delta_sparks_own_where_the_program_imported_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("delta.exceptions")
    theirs = type("ConcurrentAppendException", (PySparkException,), {})
    general = type("DeltaConcurrentModificationException", (PySparkException,), {})
    module.ConcurrentAppendException = theirs  # type: ignore[attr-defined]
    module.DeltaConcurrentModificationException = general  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "delta.exceptions", module)
    error = raised(ConcurrentAppendException("rows came"))
    assert isinstance(error, theirs)
    assert type(error).__name__ == "ConcurrentAppendException"
    assert isinstance(raised(UpdateConflict("both")), general)


def test_every_conflict_can_be_translated() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    conflicts = [kind for kind in kinds if issubclass(kind, Conflict)]
    assert len(conflicts) > 5
    for kind in conflicts:
        assert isinstance(translate(kind("lost")), kind)


@pytest.mark.parametrize(
    "error",
    [
        CorruptTable("gap"),
        AnalysisException(message="of Spark"),
        translate(InvalidRequest("already translated")),
        KeyError("x"),
    ],
    ids=["corrupt", "spark's", "translated", "python's"],
)
def test_other_errors_go_through_as_they_are(error: Exception) -> None:
    assert raised(error) is error


def test_the_cause_and_the_place_of_the_error_stay() -> None:
    cause = ValueError("low level")

    @raises_delta_spark_errors
    def call() -> None:
        try:
            raise cause
        except ValueError as error:
            raise InvalidRequest("bad") from error

    with pytest.raises(TxlakeError) as found:
        call()
    assert found.value.__cause__ is cause
    assert [entry.name for entry in found.traceback].count("call") == 1
