"""The Spark session's rules for reading SQL text, as far as they matter here: a frozen value.

Owns whether txlake may parse a text itself. `spark.session_rules` makes the value from Spark's
settings; everything here is pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from txlake.errors import InvalidRequest


class StoreAssignment(StrEnum):
    """`spark.sql.storeAssignmentPolicy`: which values a column of another type takes."""

    ANSI = "ANSI"
    STRICT = "STRICT"
    LEGACY = "LEGACY"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A class of texts that a session may read differently from txlake.

    Attributes:
        setting: the setting that causes the difference and its value, `key=value`.
        pattern: matches every text that may be affected.
        in_stored: whether stored expressions (CHECK, DEFAULT, generated columns) and the queries of
            views are refused where the pattern matches: they must mean the same in every session.
    """

    setting: str
    pattern: re.Pattern[str]
    in_stored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something is refused while a setting has its value.

    Attributes:
        setting: the setting and its value, `key=value`.
        instead: what to do instead.
    """

    setting: str
    instead: str


SUBSTITUTED = re.compile(r"\$\{")
ANY_TEXT = re.compile("")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRules:
    """A session's rules for reading SQL text. The defaults are those of Spark.

    Attributes:
        doubts: the texts that only Spark can parse and evaluate.
        names_in_double_quotes: whether `"a"` is a name, not a string.
        zoned: whether the type TIMESTAMP is one with a time zone.
        case_sensitive: whether letter case distinguishes columns.
        assignment: which values a column of another type takes.
        bounded_texts: why CHAR and VARCHAR can't be declared; None: they can.
        partition_texts: why a number or NULL can't be the value of a partition; None: it can.
        backquotes: why an expression can't have names in backquotes; None: it can.
        defaults: why DEFAULT can't be declared; None: it can.
    """

    doubts: tuple[Doubt, ...] = (
        Doubt("spark.sql.variable.substitute=true", SUBSTITUTED, in_stored=True),
    )
    names_in_double_quotes: bool = False
    zoned: bool = True
    case_sensitive: bool = False
    assignment: StoreAssignment = StoreAssignment.ANSI
    bounded_texts: Refusal | None = None
    partition_texts: Refusal | None = None
    backquotes: Refusal | None = None
    defaults: Refusal | None = None

    def reads(self, text: str) -> bool:
        """Return whether txlake reads the text as the session does."""
        return not any(doubt.pattern.search(text) for doubt in self.doubts)

    def check_stored(self, text: str, what: str) -> None:
        """Check that a stored text means the same in this session as in every other.

        Raises InvalidRequest, naming the setting, where it doesn't; `what` names the text.
        """
        for doubt in self.doubts:
            if doubt.in_stored and doubt.pattern.search(text):
                key = doubt.setting.partition("=")[0]
                raise InvalidRequest(
                    f"{what}: {doubt.setting} of this session changes what {text!r:.200} means, "
                    "and a stored expression means the same in every session; unset it for this "
                    f"statement (SET {key}=... or spark.conf.unset({key!r})), or write the "
                    "expression without what the setting changes"
                )


DEFAULT_RULES = TextRules()


def refused(what: str, refusal: Refusal) -> InvalidRequest:
    """Return the error for something that is refused while a setting has its value."""
    return InvalidRequest(f"{what}: not with {refusal.setting}; {refusal.instead}")
