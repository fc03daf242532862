"""Every error has its exit code and its facts."""

from __future__ import annotations

import io
import json

import pytest

from txlake import errors
from txlake.cli.exit_codes import EXIT_CODES, EXIT_HELP, error_facts, exit_code
from txlake.cli.output import JsonOutput, TableOutput
from txlake.errors import ConcurrentAppendException, Evidence, LockTimeout, TxlakeError
from txlake.sql import parse_script

KINDS = {
    "Conflict": 3,
    "Unavailable": 4,
    "OutcomeUnknown": 5,
    "InvalidRequest": 6,
    "CorruptTable": 7,
    "UnsupportedFeature": 8,
}
EVIDENCE = Evidence(
    table="t", read_version=1, winning_version=2, winning_timestamp_ms=1_767_225_600_500
)
LOST = ConcurrentAppendException("lost", EVIDENCE)


def test_the_codes_by_kind() -> None:
    assert {kind.__name__: code for kind, code in EXIT_CODES.items()} == KINDS
    for name, code in KINDS.items():
        assert f"{code} {name}" in " ".join(EXIT_HELP.split())


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, TxlakeError)
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_error_has_the_code_of_its_kind(kind: type[TxlakeError]) -> None:
    base = next((one.__name__ for one in kind.__mro__ if one.__name__ in KINDS), None)
    assert exit_code(kind("message")) == (1 if base is None else KINDS[base])
    assert error_facts(kind("message"))["kind"] == base


def test_other_ends() -> None:
    assert exit_code(KeyboardInterrupt()) == 130
    assert exit_code(BrokenPipeError()) == 141
    assert exit_code(ValueError()) == 1


def test_the_facts_of_a_conflict() -> None:
    facts = json.loads(printed(JsonOutput, LOST))["error"]
    evidence = facts.pop("evidence")
    assert facts == {
        "kind": "Conflict",
        "name": "ConcurrentAppendException",
        "message": "lost",
        "codes": [],
        "exit_code": 3,
        "statement": "DELETE FROM t",
        "line": 2,
    }
    assert evidence["table"] == "t"
    assert evidence["winning_timestamp"] == "2026-01-01T00:00:00.500000+00:00"
    assert evidence["rows"] == []
    assert "winning_timestamp_ms" not in evidence


def test_the_codes_of_other_systems_are_facts() -> None:
    assert error_facts(LockTimeout("late"))["codes"] == [1222]
    assert "evidence" not in error_facts(LockTimeout("late"))


def test_an_error_is_drawn_with_its_name_and_line() -> None:
    assert printed(TableOutput, LOST) == "ConcurrentAppendException (line 2): lost\n"
    assert printed(TableOutput, KeyboardInterrupt()) == "interrupted (line 2)\n"


def printed(kind: type[TableOutput | JsonOutput], error: BaseException) -> str:
    out, err = io.StringIO(), io.StringIO()
    output = TableOutput(None, out, err) if kind is TableOutput else JsonOutput(out, err)
    output.error(error, parse_script("\nDELETE FROM t")[0])
    assert out.getvalue() == ""
    return err.getvalue()
