"""What an error of Spark says, in each form in which the JVM's errors reach Python."""

from __future__ import annotations

import pytest

from txlake.spark.java_errors import Cause, causes_of

SPARK = "org.apache.spark.SparkException"
CAST = "[CAST_INVALID_INPUT] The value 'x' can't be cast. SQLSTATE: 22018"
QUOTED = f"{CAST}\n== SQL (line 1, position 8) ==\nCAST(s AS INT)\n^^^^^^^^^^^^^^"
AT = "\n\tat org.apache.spark.A.b(A.scala:1)\n\tat java.base/java.lang.C.d(C.java:2)"
AWAITED = "Exception thrown in awaitResult: "

FORMS = {
    "PySpark's own": (QUOTED, [Cause("", QUOTED)]),
    "py4j's, with causes": (
        (
            f"An error occurred while calling o1.getResult.\n: {SPARK}: {AWAITED}{AT}\n"
            f"Caused by: java.util.concurrent.ExecutionException: {SPARK}Cast: {QUOTED}\n{AT}\n"
            f"Caused by: {SPARK}Cast: {QUOTED}\n{AT}\n\t... 1 more"
        ),
        [Cause(SPARK, AWAITED.strip()), Cause(f"{SPARK}Cast", QUOTED)],
    ),
    "of a task": (
        (
            "An error occurred while calling o1.collect.\n"
            f": {SPARK}: Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 4) "
            f"(host executor 1): java.lang.reflect.InvocationTargetException{AT}\n\n"
            f"Driver stacktrace:{AT}\n"
            f"Caused by: java.lang.reflect.InvocationTargetException{AT}\n"
            f'Caused by: java.lang.NumberFormatException: For input string: "x"{AT}'
        ),
        [
            Cause(
                SPARK,
                "Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 4) (host "
                "executor 1)",
            ),
            Cause("java.lang.reflect.InvocationTargetException", ""),
            Cause("java.lang.NumberFormatException", 'For input string: "x"'),
        ],
    ),
    "of a query's plan": (
        "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 1 pos 0;\n'Filter ('x > 1)\n+- Range",
        [Cause("", "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 1 pos 0")],
    ),
    "gRPC's": (
        (
            "<_MultiThreadedRendezvous of RPC that terminated with:\n"
            '\tstatus = StatusCode.UNKNOWN\n\tdetails = "Java heap space"\n'
            '\tdebug_error_string = "UNKNOWN:Java heap space"\n>'
        ),
        [Cause("", "Java heap space")],
    ),
    "without a word": ("", [Cause("", "Raised")]),
}


class Raised(Exception):
    """As an error of Spark Connect: its causes stand in the stack trace alone."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self._trace = trace

    def getStackTrace(self) -> str:
        return self._trace


@pytest.mark.parametrize("form", FORMS)
def test_causes_are_found_in_every_form(form: str) -> None:
    text, wanted = FORMS[form]
    assert causes_of(Raised(text)) == wanted


@pytest.mark.parametrize("is_shown", [True, False])
def test_the_server_of_spark_connect_tells_the_causes_in_a_trace(is_shown: bool) -> None:
    trace = f"{SPARK}{AT}\nCaused by: {SPARK}Cast: {QUOTED}{AT}"
    text = f"{AWAITED}\n\nJVM stacktrace:\n{trace}" if is_shown else AWAITED
    assert causes_of(Raised(text, trace)) == [
        Cause(SPARK, AWAITED.strip()),
        Cause(f"{SPARK}Cast", QUOTED),
    ]


def test_no_text_has_a_credential() -> None:
    [cause] = causes_of(Raised("no access with secret_access_key=wJalrXUtnFEMI"))
    assert "wJalr" not in cause.text


@pytest.mark.parametrize(
    ("cause", "condition", "state", "shown"),
    [
        (Cause("x.SparkCast", CAST), "CAST_INVALID_INPUT", "22018", CAST),
        (Cause("java.lang.A", "[oh] no"), "", "", "A: [oh] no"),
        (Cause("java.lang.A", "it. SQLSTATE: 22018"), "", "", "A: it. SQLSTATE: 22018"),
        (Cause(SPARK, "Job aborted"), "", "", "Job aborted"),
        (Cause("java.lang.NullPointerException", ""), "", "", "NullPointerException"),
        (Cause("", ""), "", "", "Spark gave no reason"),
    ],
)
def test_a_cause_says_what_it_is(cause: Cause, condition: str, state: str, shown: str) -> None:
    assert (cause.condition, cause.state, cause.message) == (condition, state, shown)
