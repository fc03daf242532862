"""The Spark session's rules for reading SQL text, as far as they matter here: a frozen value.

Owns whether txlake may parse a text itself. `spark.session_rules` makes the value from Spark's
settings; everything here is pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from txlake.errors import InvalidRequest

STORE_ASSIGNMENT = "spark.sql.storeAssignmentPolicy"
"""Spark's setting of the policy of store assignment."""


class StoreAssignment(StrEnum):
    """`spark.sql.storeAssignmentPolicy`: which values a column of another type takes."""

    ANSI = "ANSI"
    STRICT = "STRICT"
    LEGACY = "LEGACY"


@dataclass(frozen=True, slots=True)
class Divergence:
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
        advice: what to do instead.
    """

    setting: str
    advice: str


SUBSTITUTED = re.compile(r"\$\{")
ANY_TEXT = re.compile("")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRules:
    """A session's rules for reading SQL text. The defaults are those of Spark.

    Attributes:
        divergences: the texts that only Spark can parse and evaluate.
        names_in_double_quotes: whether `"a"` is a name, not a string.
        zoned: whether the type TIMESTAMP is one with a time zone.
        case_sensitive: whether letter case distinguishes columns.
        assignment: which values a column of another type takes.
        char_varchar_refusal: why CHAR and VARCHAR can't be declared; None: they can.
        partition_value_refusal: why a number or NULL can't be a partition's value; None: it can.
        backquotes_refusal: why an expression can't have names in backquotes; None: it can.
        default_refusal: why DEFAULT can't be declared; None: it can.
    """

    divergences: tuple[Divergence, ...] = (
        Divergence("spark.sql.variable.substitute=true", SUBSTITUTED, in_stored=True),
    )
    names_in_double_quotes: bool = False
    zoned: bool = True
    case_sensitive: bool = False
    assignment: StoreAssignment = StoreAssignment.ANSI
    char_varchar_refusal: Refusal | None = None
    partition_value_refusal: Refusal | None = None
    backquotes_refusal: Refusal | None = None
    default_refusal: Refusal | None = None

    def agrees_on(self, text: str) -> bool:
        """Return whether txlake reads the text as the session does."""
        return not any(divergence.pattern.search(text) for divergence in self.divergences)

    def check_stored(self, text: str, what: str) -> None:
        """Check that a stored text means the same in this session as in every other.

        Raises InvalidRequest, naming the setting, where it doesn't; `what` names the text.
        """
        for divergence in self.divergences:
            if divergence.in_stored and divergence.pattern.search(text):
                key = divergence.setting.partition("=")[0]
                raise InvalidRequest(
                    f"{what}: {divergence.setting} of this session changes what {text!r:.200} "
                    "means, and a stored expression means the same in every session; unset it for "
                    f"this statement (SET {key}=... or spark.conf.unset({key!r})), or write the "
                    "expression without what the setting changes"
                )


DEFAULT_RULES = TextRules()


def refusal_error(what: str, refusal: Refusal) -> InvalidRequest:
    """Return the error for something that is refused while a setting has its value."""
    return InvalidRequest(f"{what}: not with {refusal.setting}; {refusal.advice}")
