"""What an error of Spark says: its causes as texts, without Java's stack traces.

Owns the forms in which the JVM's errors reach Python: PySpark's own classes, py4j's, and those of
Spark Connect, whose causes stand in a stack trace alone. What they mean is `translation`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from txlake.redaction import redacted

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
    """One error of a chain.

    Attributes:
        kind: its Java class, where that is known.
        text: its message, which may be empty.
    """

    kind: str
    text: str

    @property
    def condition(self) -> str:
        """Spark's error class, such as DIVIDE_BY_ZERO; empty where it has none."""
        found = _CONDITION.match(self.text)
        return "" if found is None else found[1]

    @property
    def state(self) -> str:
        """The SQLSTATE that Spark gives the condition; empty where it gives none."""
        found = _STATE.findall(self.text) if self.condition else []
        return found[-1] if found else ""

    @property
    def shown(self) -> str:
        """The message; with the class where the message alone says too little."""
        name = self.kind.rpartition(".")[2]
        if not self.text:
            return name or "Spark gave no reason"
        return (
            self.text
            if self.condition or name in {"", "SparkException"}
            else f"{name}: {self.text}"
        )


def causes_of(error: BaseException) -> list[Cause]:
    """The error and what caused it, the root last; at least one. No text shows a credential."""
    text = str(error)
    for trace in ("getStackTrace", "_stackTrace"):  # Spark Connect's and the gateway's
        found = getattr(error, trace, None)
        told = found() if callable(found) else found
        if told and told not in text:
            text = f"{text}\n\nJVM stacktrace:\n{told}"
    parts = _NEXT.split(_TRACE.sub("", _CALLING.sub("", redacted(text), count=1)))
    causes = [_cause(part) for part in parts if part.strip()]
    made = list(dict.fromkeys(causes))
    # A stack trace begins with the class of the error whose message came before.
    if len(made) > 1 and not made[0].kind and not made[1].text:
        made[:2] = [Cause(made[1].kind, made[0].text)]
    return made or [Cause("", type(error).__name__)]


def _cause(part: str) -> Cause:
    kind, text = "", part.strip()
    while found := _CLASS.match(text):  # whoever wraps an error repeats its text
        kind, text = found[1], text[found.end() :]
    called = _RPC.search(text)
    if called is not None:
        text = called[1]
    return Cause(kind, _PLAN.split(text)[0].strip())
