"""When two answers to a statement are equal, and which differences are known.

A query's answers are equal when both have the same columns, names and types, and the same rows,
in the same order where the query gives one; or when both are refused. Of other statements it counts
only whether they are refused: what they change is seen by the queries after them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

LIST = Path(__file__).with_name("excluded.toml")
_SUBJECT = re.compile(
    r"\b(?:TABLE|VIEW|INTO|OVERWRITE|FUNCTION|DATABASE|SCHEMA|NAMESPACE|VARIABLE|UPDATE|FROM|VAR)\s+"
    r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(?P<name>(?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))*)",
    re.IGNORECASE,
)
_INSERTED = re.compile(
    r"\bINSERT\s+(?:INTO|OVERWRITE)\s+(?:TABLE\s+)?(?:\w+\.)*(?P<name>\w+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is answered to one statement.

    Attributes:
        error: why it was refused; None where it wasn't.
        schema: the names and types of the columns, as Spark writes them.
        rows: as texts, in the order in which they came.
        is_sorted: whether the statement gives an order.
    """

    error: str | None = None
    schema: str = ""
    rows: tuple[str, ...] = ()
    is_sorted: Callable[[], bool] = lambda: True


class Verdict(Enum):
    """What two answers have in common."""

    EQUAL = "equal"
    REFUSED = "both refused"
    DIFFERENT = "different"


def verdict(spark: Answer, lake: Answer, *, is_query: bool) -> Verdict:
    """Compare the answers of Spark and of a lake."""
    if spark.error is not None and lake.error is not None:
        return Verdict.REFUSED
    if spark.error is not None or lake.error is not None:
        return Verdict.DIFFERENT
    if not is_query:
        return Verdict.EQUAL
    if _counts_rows(spark, lake):
        return Verdict.EQUAL
    if spark.schema != lake.schema:
        return Verdict.DIFFERENT
    if spark.rows == lake.rows:
        return Verdict.EQUAL
    if sorted(spark.rows) != sorted(lake.rows) or spark.is_sorted():
        return Verdict.DIFFERENT
    return Verdict.EQUAL


def _counts_rows(spark: Answer, lake: Answer) -> bool:
    """Whether it is a change that doesn't begin with its verb: a lake answers with row counts."""
    return spark.schema == "struct<>" and lake.schema.startswith("struct<num_affected_rows:")


def agrees_with_record(record: Answer, lake: Answer, *, is_query: bool) -> bool:
    """Whether an answer is the recorded one, whose rows are one text, sorted unless ordered.

    What isn't may be equal all the same: only Spark itself can tell.
    """
    if (record.error is None) != (lake.error is None):
        return False
    if record.error is not None or not is_query:
        return True
    if _counts_rows(record, lake):
        return True
    [text] = record.rows
    ways = ("\n".join(rows).rstrip() for rows in (lake.rows, sorted(lake.rows)))
    return record.schema == lake.schema and text in ways


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A kind of difference that is known.

    Attributes:
        reason: why txlake's answer is right, or what of Spark is out of scope.
        file, text, error: patterns that the file's name, the statement and the lake's error (its
            first line) have to match; None for any.
    """

    reason: str
    file: str | None = None
    text: str | None = None
    error: str | None = None

    def covers(self, file: str, text: str, lake: Answer) -> bool:
        """Whether a difference is of this kind."""
        given = ((self.file, file), (self.text, text), (self.error, lake.error or ""))
        return all(
            pattern is None or re.search(pattern, value, re.IGNORECASE | re.DOTALL) is not None
            for pattern, value in given
        )


def exclusions(path: Path = LIST) -> list[Exclusion]:
    """The known differences. Raises ValueError for one without a reason or a pattern."""
    found = [Exclusion(**one) for one in tomllib.loads(path.read_text())["exclusion"]]
    for one in found:
        if not one.reason or not (one.file or one.text or one.error):
            raise ValueError(f"expected a reason and a pattern, found {one}")
    return found


@dataclass(slots=True)
class Judge:
    """Judges the differences of one file on one side, statement after statement.

    A difference that follows from one that is known is known too: what the earlier statement should
    have made, or changed, is named in the later one.
    """

    file: str
    known: Sequence[Exclusion]
    _missing: dict[str, Exclusion] = field(default_factory=dict)

    def excuse(self, text: str, lake: Answer) -> Exclusion | None:
        """The known difference that this one is, or follows from."""
        found = next((one for one in self.known if one.covers(self.file, text, lake)), None)
        if found is None:
            words = set(re.findall(r"\w+", text.lower()))
            found = next((self._missing[name] for name in self._missing if name in words), None)
        if found is not None:
            self._missing.update(dict.fromkeys(subjects(text), found))
        return found


def subjects(text: str) -> Iterable[str]:
    """The names that a statement may make or change, without databases, in lower case.

    A query names none.
    """
    bare = without_comments(text)
    if re.match(r"(SELECT|WITH|VALUES|FROM|TABLE|\(|SHOW|DESC|EXPLAIN)", bare, re.IGNORECASE):
        # Unless it ends in one INSERT or several.
        yield from (found["name"].lower() for found in _INSERTED.finditer(bare))
        return
    found = _SUBJECT.search(bare)
    if found is not None:
        yield found["name"].split(".")[-1].strip("`").lower()


def without_comments(text: str) -> str:
    """The statement without the comments in front of it."""
    return re.sub(r"\A(\s+|--[^\n]*(\n|\Z)|/\*.*?\*/)+", "", text, flags=re.DOTALL)
