"""The causes of a Spark error as texts, without Java's stack traces.

Owns the forms in which the JVM's errors reach Python: PySpark's own classes, py4j's, and those of
Spark Connect, whose causes are only in a stack trace. `spark_errors` owns what they mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from txlake.redaction import redact

_TRACE = re.compile(r"\n\t+(?:at |\.\.\. \d)[^\n]*")
_NEXT = re.compile(
    r"\nCaused by: |\n\n?(?:JVM|Driver) stacktrace:[^\n]*"
    # Of a task that failed: "... (TID 12) (host executor 1): java.lang.NullPointerException".
    r"|(?<=\)): (?=(?:[a-z]\w*\.)+[A-Z])"
)
_CLASS = re.compile(r"((?:[a-z]\w*\.)+[A-Z][\w$]*)(?::\s*|\s*$)")
_CALLING = re.compile(r"An error occurred while calling \S+\n: ")
_PLAN = re.compile(r";\n['+ ]*\w+")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ")
_STATE = re.compile(r"\bSQLSTATE: (\w{5})\b")
_RPC = re.compile(r"<\w+ of RPC that terminated with:.*?\bdetails = \"(.*?)\"\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cause:
    """One error of a chain of causes.

    Attributes:
        kind: its Java class; empty if unknown.
        text: its message, which may be empty.
    """

    kind: str
    text: str

    @property
    def condition(self) -> str:
        """Spark's error class, such as DIVIDE_BY_ZERO; empty if there is none."""
        match = _CONDITION.match(self.text)
        return "" if match is None else match[1]

    @property
    def state(self) -> str:
        """The SQLSTATE of the condition; empty if there is none."""
        states = _STATE.findall(self.text) if self.condition else []
        return states[-1] if states else ""

    @property
    def message(self) -> str:
        """The message, with the class where the message alone says too little."""
        name = self.kind.rpartition(".")[2]
        if not self.text:
            return name or "Spark gave no reason"
        return (
            self.text
            if self.condition or name in {"", "SparkException"}
            else f"{name}: {self.text}"
        )


def causes_of(error: BaseException) -> list[Cause]:
    """Return the error and its causes, root last, distinct; at least one. Credentials are
    redacted.
    """
    text = str(error)
    for attribute in ("getStackTrace", "_stackTrace"):  # Spark Connect's and the gateway's
        value = getattr(error, attribute, None)
        trace = value() if callable(value) else value
        if trace and trace not in text:
            text = f"{text}\n\nJVM stacktrace:\n{trace}"
    parts = _NEXT.split(_TRACE.sub("", _CALLING.sub("", redact(text), count=1)))
    causes = [_cause(part) for part in parts if part.strip()]
    distinct = list(dict.fromkeys(causes))
    # A stack trace begins with the class of the error whose message came before.
    if len(distinct) > 1 and not distinct[0].kind and not distinct[1].text:
        distinct[:2] = [Cause(distinct[1].kind, distinct[0].text)]
    return distinct or [Cause("", type(error).__name__)]


def _cause(part: str) -> Cause:
    """Return a part of an error's text as a cause, without class names, plans and RPC details."""
    java_class, text = "", part.strip()
    while match := _CLASS.match(text):  # whoever wraps an error repeats its text
        java_class, text = match[1], text[match.end() :]
    rpc = _RPC.search(text)
    if rpc is not None:
        text = rpc[1]
    return Cause(java_class, _PLAN.split(text)[0].strip())
