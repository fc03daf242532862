"""The exit code of each kind of error, and an error's facts for programs."""

from __future__ import annotations

import datetime
from dataclasses import asdict

from txlake.errors import (
    Conflict,
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    Unavailable,
    UnsupportedFeature,
)

EXIT_OTHER = 1
EXIT_USAGE = 2
EXIT_CODES: dict[type[TxlakeError], int] = {
    Conflict: 3,
    Unavailable: 4,
    OutcomeUnknown: 5,
    InvalidRequest: 6,
    CorruptTable: 7,
    UnsupportedFeature: 8,
}
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
EXIT_HELP = """Exit codes: 0 done; 3 Conflict (run it again); 4 Unavailable (wait and retry);
5 OutcomeUnknown (look first); 6 InvalidRequest (change the statement); 7 CorruptTable;
8 UnsupportedFeature; 2 wrong usage of the command; 130 interrupted; 141 the reader of the output
went away; 1 anything else."""


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that this error ended; 1 for an error that isn't
    txlake's.
    """
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return EXIT_PIPE
    kind = _kind(error)
    return EXIT_OTHER if kind is None else EXIT_CODES[kind]


def _kind(error: BaseException) -> type[TxlakeError] | None:
    return next((kind for kind in EXIT_CODES if isinstance(error, kind)), None)


def error_facts(error: BaseException) -> dict[str, object]:
    """Return an error's kind and name, message, other systems' codes, exit code, and a conflict's
    evidence.

    The kind is None for an error that isn't txlake's.
    """
    kind = _kind(error)
    facts: dict[str, object] = {
        "kind": None if kind is None else kind.__name__,
        "name": type(error).__name__,
        "message": str(error),
        "codes": list(getattr(error, "codes", ())),
        "exit_code": exit_code(error),
    }
    if isinstance(error, Conflict) and error.evidence is not None:
        evidence = asdict(error.evidence)
        winning_ms = evidence.pop("winning_timestamp_ms")
        evidence["winning_timestamp"] = (
            None
            if winning_ms is None
            else datetime.datetime.fromtimestamp(winning_ms / 1000, datetime.UTC)
        )
        facts["evidence"] = evidence
    return facts
